// Charts by Chart.js in the colours of the page. Each has a table beside it that says the same.

const drawn = new Map();

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function faded(name, share) {
  const hex = colour(name).slice(1);
  const [r, g, b] = [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${share})`;
}

/** Draw `make()` into the canvas `id`; drawn again when the colour scheme changes. */
export function draw(id, label, make) {
  drawn.get(id)?.chart.destroy();
  const canvas = document.getElementById(id);
  canvas.setAttribute("aria-label", label);
  const Chart = window.Chart;
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.color = colour("ink");
  Chart.defaults.borderColor = colour("line");
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.labels.boxWidth = 14;
  drawn.set(id, { chart: new Chart(canvas, make()), label, make });
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const [id, { label, make }] of [...drawn]) draw(id, label, make);
});

const plainTick = (value) => (Math.abs(value) >= 1000 ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4))));
const powersOfTwo = (value) => (Number.isInteger(Math.log2(value)) ? plainTick(value) : "");

/** Ticks of a logarithmic axis at round numbers, enough of them to read a value by. */
function roundTicks(scale) {
  const within = (steps) => {
    const found = [];
    for (let power = Math.floor(Math.log10(scale.min)); 10 ** power <= scale.max; power += 1) {
      for (const step of steps) found.push(Number((step * 10 ** power).toPrecision(3)));
    }
    return found.filter((value) => value >= scale.min && value <= scale.max);
  };
  const choices = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 5, 7]].map(within);
  scale.ticks = (choices.find((ticks) => ticks.length >= 4) ?? choices.at(-1)).map((value) => ({ value }));
}

export function axis(title, kind = "linear", ticks = {}) {
  const made = { type: kind, title: { display: true, text: title }, ticks: { callback: plainTick, autoSkipPadding: 12, maxRotation: 0, ...ticks }, grid: { color: colour("line") } };
  return kind === "logarithmic" ? { ...made, afterBuildTicks: roundTicks } : made;
}

/** A line with its band: rows of [x, low, middle, high]. */
export function band(name, points, hue, hollow = () => false) {
  const line = (index) => points.map((point) => ({ x: point[0], y: point[index] }));
  const edge = { pointRadius: 0, borderWidth: 0, backgroundColor: faded(hue, 0.18) };
  return [
    { ...edge, label: `${name}, low`, data: line(1), fill: false },
    { ...edge, label: `${name}, high`, data: line(3), fill: "-1" },
    {
      label: name, data: line(2), borderColor: colour(hue), borderWidth: 2, fill: false, pointRadius: 3,
      pointBackgroundColor: points.map((point) => (hollow(point) ? colour("paper") : colour(hue))),
      pointBorderColor: colour(hue),
    },
  ];
}

export function line(name, points, hue, more = {}) {
  return { label: name, data: points.map(([x, y]) => ({ x, y })), borderColor: colour(hue), backgroundColor: colour(hue), borderWidth: 2, pointRadius: 3, ...more };
}

/** Vertical marks at x with words, as a plugin. */
export function marks(places) {
  return {
    id: "marks",
    afterDatasetsDraw(chart) {
      const { ctx, chartArea: area, scales } = chart;
      ctx.save();
      ctx.strokeStyle = ctx.fillStyle = colour("soft");
      ctx.setLineDash([4, 3]);
      ctx.font = `12px ${window.Chart.defaults.font.family}`;
      places.forEach(([x, words], index) => {
        const at = scales.x.getPixelForValue(x);
        if (!(at >= area.left && at <= area.right)) return;
        ctx.beginPath();
        ctx.moveTo(at, area.top);
        ctx.lineTo(at, area.bottom);
        ctx.stroke();
        const left = at > (area.left + area.right) / 2;
        ctx.textAlign = left ? "right" : "left";
        ctx.fillText(words, at + (left ? -5 : 5), area.top + 12 + 15 * index);
      });
      ctx.restore();
    },
  };
}

/** A legend below, lines as lines, dashed where they are. */
export const LINES_BELOW = { position: "bottom", labels: { usePointStyle: true, pointStyle: "line", pointStyleWidth: 32, generateLabels: dashedLabels } };

function dashedLabels(chart) {
  const usual = Chart.defaults.plugins.legend.labels.generateLabels(chart);
  return usual.map((item) => ({ ...item, lineDash: chart.data.datasets[item.datasetIndex].borderDash ?? [] }));
}

export { powersOfTwo };
