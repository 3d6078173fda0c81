// Numbers as people write them, and tables. Text only goes in as text.

export function whole(value) {
  return value == null ? "–" : Math.round(value).toLocaleString("en-US");
}

export function digits(value, n = 3) {
  if (value == null) return "–";
  if (value === 0) return "0";
  if (Math.abs(value) >= 1000) return whole(value);
  return Number(value.toPrecision(n)).toString();
}

export function seconds(value, n = 3) {
  if (value == null) return "–";
  if (value === 0) return "0 s";
  if (value < 1e-3) return `${digits(value * 1e6, n)} µs`;
  if (value < 1) return `${digits(value * 1e3, n)} ms`;
  return `${digits(value, n)} s`;
}

export function bytes(value) {
  if (value == null) return "–";
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (Math.abs(value) >= size) return `${digits(value / size)} ${unit}`;
  }
  return `${digits(value)} B`;
}

export function gib(value) {
  return value == null ? "–" : `${digits(value / 2 ** 30)} GiB`;
}

export function dollars(value) {
  if (value == null) return "–";
  return value >= 1000 ? `$${whole(value)}` : `$${value.toFixed(2)}`;
}

export function percent(value, places = 0) {
  return value == null ? "–" : `${(100 * value).toFixed(places)} %`;
}

export function node(name, props = {}, ...children) {
  const made = Object.assign(document.createElement(name), props);
  made.append(...children.filter((child) => child != null));
  return made;
}

/** columns: [heading, row => text, numeric?]; mark: row => class of the row. */
export function table(caption, columns, rows, mark = () => "") {
  const head = node("tr", {}, ...columns.map(([title, , numeric]) =>
    node("th", { scope: "col", className: numeric ? "n" : "", textContent: title })));
  const body = rows.map((row) => node("tr", { className: mark(row) },
    ...columns.map(([, text, numeric]) => node("td", { className: numeric ? "n" : "", textContent: text(row) ?? "–" }))));
  if (!rows.length) body.push(node("tr", {}, node("td", { colSpan: columns.length, textContent: "None." })));
  return node("table", {}, node("caption", { textContent: caption }), node("thead", {}, head), node("tbody", {}, ...body));
}

export async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const area = node("textarea", { value: text, className: "hidden" });
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Select and copy";
    area.remove();
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}
