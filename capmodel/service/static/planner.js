// The planner page: the form is sent as it changes, the answer drawn. No arithmetic here.

import { ask, download, post, Problem, showProblem } from "./http.js";
import { axis, band, colour, draw, line, LINES_BELOW, marks, powersOfTwo } from "./charts.js";
import { copyText, digits, dollars, gib, node, percent, seconds, table, whole } from "./words.js";
import { forgetCalibration, ownCalibration } from "./own.js";

const form = document.getElementById("plan");
const results = document.getElementById("results");
const status = document.getElementById("status");
const problem = document.getElementById("problem");
const answer = document.getElementById("answer");
const fields = form.elements;
const byId = (id) => document.getElementById(id);

let running = null; // what is being asked, to be given up when the form changes
let timer = 0;
let calibration = null;
let last = null; // { body, plan } on the page

// ---- the form -> a request body, and the address

const number = (name) => (fields[name].value.trim() === "" ? null : Number(fields[name].value));
const chosenGpus = () => [...form.querySelectorAll("input[name=gpu]:checked")].map((box) => box.value);

function ownModel() {
  const text = fields.config.value.trim();
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Problem(422, [{ field: "config", message: `The pasted config is not whole JSON: ${error.message}` }]);
  }
}

function body() {
  const spread = number("length_cv") ?? 0;
  const lengths = (name) => (spread > 0 && number(name) ? { mean: number(name), cv: spread } : number(name));
  const gpus = chosenGpus();
  const asked = {
    model: ownModel() ?? fields.model.value.trim(),
    gpu: gpus.length ? gpus : null,
    [fields.load.value]: number("amount"),
    input_len: lengths("input_len"),
    output_len: lengths("output_len"),
    slo_ttft_p95: number("slo_ttft_p95"),
    slo_tpot_p95: number("slo_tpot_p95"),
    tp: number("tp"),
    weight_dtype: fields.weight_dtype.value || null,
    kv_dtype: fields.kv_dtype.value || null,
    engine: fields.engine.value || null,
    price: number("price"),
    prefix: number("prefix_len") ? { tokens: number("prefix_len") } : null,
    memory_fraction: number("memory_fraction") ?? 0.92,
    simulate: fields.simulate.checked,
  };
  return Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== null));
}

function keepInAddress() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (name !== "config" && value !== "") query.append(name, value);
  }
  query.set("simulate", fields.simulate.checked ? "1" : "0");
  const own = fields.config.value.trim();
  const hash = own ? `#config=${encodeURIComponent(own)}` : "";
  history.replaceState(null, "", `${location.pathname}?${query}${hash}`);
}

function readConfigFromAddress() {
  const found = location.hash.match(/^#config=(.*)$/s);
  if (!found) return;
  try {
    fields.config.value = decodeURIComponent(found[1]);
    byId("own-model").open = true;
  } catch { /* a broken address holds no config */ }
}

// ---- asking

async function plan() {
  running?.abort();
  const mine = new AbortController();
  running = mine;
  clearWrong();
  keepInAddress();
  results.setAttribute("aria-busy", "true");
  status.textContent = "Planning…";
  try {
    const asked = body();
    if (!asked.model) throw new Problem(422, [{ field: "model", message: "Name a model, or paste its config.json." }]);
    const withOwn = calibration ? { ...asked, calibration } : asked;
    // First without simulation: something to look at while the requests are simulated.
    await show(asked, await post("/v1/plan", { ...withOwn, simulate: false }, mine.signal), mine);
    if (asked.simulate && last.plan.feasible) {
      showProblem(problem, null);
      status.textContent = "By estimate; now simulating the requests…";
      await show(asked, await post("/v1/plan", withOwn, mine.signal), mine);
    }
    status.textContent = last.plan.simulated ? "Checked by simulating the requests." : "By estimate, without simulation.";
    showProblem(problem, null);
  } catch (error) {
    if (error.name === "AbortError") return;
    answer.hidden = true;
    last = null;
    status.textContent = "No plan.";
    showProblem(problem, error);
    markWrong(error.problems ?? []);
  } finally {
    if (running === mine) results.setAttribute("aria-busy", "false");
  }
}

const FIELD_OF = { rate: "amount", concurrency: "amount", gpu: "gpu-filter", prefix: "prefix_len" };

function markWrong(problems) {
  for (const one of problems) {
    const name = one.field.split(".")[0];
    const input = byId(FIELD_OF[name] ?? name);
    if (!input || !form.contains(input)) continue;
    input.setAttribute("aria-invalid", "true");
    const words = node("p", { className: "wrong", id: `${input.id}-wrong`, textContent: one.message });
    input.setAttribute("aria-errormessage", words.id);
    input.closest(".field")?.append(words);
  }
}

function clearWrong() {
  for (const words of form.querySelectorAll(".wrong")) words.remove();
  for (const input of form.querySelectorAll("[aria-invalid]")) {
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-errormessage");
  }
}

// ---- the answer

async function show(asked, found, mine) {
  if (mine.signal.aborted) return;
  last = { body: asked, plan: found };
  answer.hidden = false;
  headline(found);
  others(found);
  same(asked);
  byId("charts").hidden = !found.recommendation;
  if (found.recommendation) {
    memory(found);
    steps(found);
    front(found);
    await fits(asked, found, mine);
  }
}

function range(figure, format, low, high) {
  const ends = figure.low === figure.high ? "" : `${format(figure.low)} to ${format(figure.high)}`;
  return [format(figure.estimate), ends || (low ?? ""), high];
}

const LIMITS = {
  ttft: "time to the first token", tpot: "time per token", e2e: "time to the end", cache: "room in the cache",
  max_num_seqs: "the engine's sequences", max_num_batched_tokens: "the engine's tokens a step", compute: "prompts and compute",
};

function promise(value, limit) {
  if (limit == null || value == null) return null;
  const kept = value <= limit;
  return node("small", { className: kept ? "kept" : "missed", textContent: `${kept ? "within" : "over"} ${seconds(limit)}` });
}

function headline(found) {
  const best = found.recommendation;
  byId("answer").querySelector(".headline").classList.toggle("no", !best);
  byId("message").textContent = best ? `${found.model.name}: ${found.message}` : found.message;
  const list = byId("figures");
  list.replaceChildren();
  const figure = (name, value, ...notes) => list.append(node("div", {}, node("dt", { textContent: name }),
    node("dd", { textContent: value }, ...notes.map((note) => (typeof note === "string" ? node("small", { textContent: note }) : note)))));
  if (!best) {
    const near = found.closest;
    byId("fleet").textContent = near?.stage === "memory" ? "It does not fit" : "Nothing keeps the promises";
    if (near) figure("Closest", `${near.tp} × ${near.gpu}`, `${near.weight_dtype} weights, ${near.kv_dtype} cache`);
  } else {
    byId("fleet").textContent = `${best.n_gpus} × ${best.gpu}`;
    const between = best.replicas_low === best.replicas_high ? "" : `${best.replicas_low} to ${best.replicas_high} with the step time's interval`;
    figure("Replicas", `${best.replicas} of ${best.tp} GPU${best.tp > 1 ? "s" : ""}`, `${best.weight_dtype} weights, ${best.kv_dtype} cache`, ...(between ? [between] : []));
    const [cost, costs] = range(best.dollars_per_hour, dollars);
    figure("Cost an hour", cost, ...(costs ? [costs] : []));
    for (const [name, key, limit] of [["First token, p95", "ttft_p95_s", found.slo.ttft_s], ["Each token, p95", "tpot_p95_s", found.slo.tpot_s]]) {
      const own = found.latency[key];
      const [middle, ends] = range(own, seconds);
      const notes = [ends, promise(own.estimate, limit)].filter(Boolean);
      figure(name, middle, ...notes);
    }
    figure("What binds", LIMITS[best.limited_by] ?? best.limited_by ?? "–", `a step goes mostly into ${best.step_ruled_by}`);
    figure("A million output tokens", dollars(found.costs.per_million_output), `input ${dollars(found.costs.per_million_input)}`);
    if (found.clients) figure("Fits at once", whole(found.clients.fits.p50), "requests of this load, in one replica's cache");
    figure("In use", percent(best.estimate.utilisation), `one replica takes ${digits(best.capacity_per_replica)} requests/s`);
    figure("Calibration", found.calibration.name ?? "–", found.calibration.basis ?? found.calibration.id ?? "");
  }
  const box = byId("warnings");
  box.replaceChildren();
  if (found.warnings.length) {
    box.append(node("div", { className: "warn" }, node("strong", { textContent: "To know" }),
      node("ul", {}, ...found.warnings.map((text) => node("li", { textContent: text })))));
  }
}

const PARTS = { weights_bytes: "weights", activation_bytes: "activations", graphs_bytes: "graphs", non_torch_bytes: "driver, libraries", cache_bytes: "KV cache", outside_bytes: "left unused" };

function memory(found) {
  const parts = Object.entries(PARTS).map(([key, name]) => [name, found.memory[key] ?? 0]).filter(([, size]) => size > 0);
  byId("memory-note").textContent = `${gib(found.memory.capacity_bytes)} as the driver reports it; ${whole(found.memory.pool_blocks)} blocks of cache.`;
  byId("memory-table").replaceChildren(table("Parts of one GPU's memory", [["Part", (row) => row[0]], ["Size", (row) => gib(row[1]), true], ["Share", (row) => percent(row[1] / found.memory.capacity_bytes, 1), true]], parts));
  const hues = { weights: "s1", activations: "s2", graphs: "s6", "driver, libraries": "s4", "KV cache": "s3", "left unused": "line" };
  draw("memory-chart", `Stacked bar: ${parts.map(([name, size]) => `${name} ${gib(size)}`).join(", ")}`, () => ({
    type: "bar",
    data: { labels: [""], datasets: parts.map(([name, size]) => ({ label: name, data: [size / 2 ** 30], backgroundColor: colour(hues[name]), barThickness: 42 })) },
    options: {
      indexAxis: "y",
      scales: { x: { ...axis("GiB"), stacked: true, max: found.memory.capacity_bytes / 2 ** 30 }, y: { stacked: true, display: false } },
      plugins: { legend: { position: "bottom" }, tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${digits(item.raw)} GiB` } } },
    },
  }));
}

const CROSSINGS = { half_gain: "doubling pays less", cache_longest_from: "cache reads lead", pool_full: "cache full" };

function steps(found) {
  const rows = found.steps;
  const places = Object.entries(CROSSINGS).map(([key, words]) => [found.crossover?.[key], words]).filter(([x]) => x != null);
  const ends = (row) => [...row.tokens_per_s].sort((a, b) => a - b);
  const points = rows.map((row) => [row.batch, ends(row)[0], row.tokens_per_s[1], ends(row).at(-1), row.fits]);
  const ceiling = found.crossover?.ceiling ? ` Ceiling: ${found.crossover.ceiling}.` : "";
  byId("steps-note").textContent = `One replica; the band is the step time's interval; hollow where the cache overflows.${ceiling}`;
  byId("steps-table").replaceChildren(table("One replica over batch", [
    ["Batch", (row) => whole(row.batch), true], ["Step", (row) => seconds(row.step_s[1]), true], ["Low", (row) => seconds(row.step_s[0]), true],
    ["High", (row) => seconds(row.step_s.at(-1)), true], ["Tokens/s", (row) => whole(row.tokens_per_s[1]), true], ["Fits", (row) => (row.fits ? "yes" : "no")]], rows));
  const [first, end] = [rows[0], rows.at(-1)];
  draw("steps-chart", `Line: ${whole(first.tokens_per_s[1])} tokens/s at batch ${first.batch}, ${whole(end.tokens_per_s[1])} at ${whole(end.batch)}`, () => ({
    type: "line",
    data: { datasets: band("tokens/s", points, "s1", (point) => !point[4]) },
    options: {
      scales: { x: { ...axis("Batch", "logarithmic", { callback: powersOfTwo }), afterBuildTicks: twos }, y: { ...axis("Tokens/s"), beginAtZero: true } },
      plugins: { legend: { display: false }, tooltip: { mode: "index", intersect: false } },
    },
    plugins: [marks(places)],
  }));
}

/** Ticks at powers of two. */
function twos(scale) {
  scale.ticks = [];
  for (let value = 1; value <= scale.max; value *= 2) if (value >= scale.min) scale.ticks.push({ value });
}

async function fits(asked, found, mine) {
  const best = found.recommendation;
  const top = Math.min(found.model.max_context ?? 131072, 1048576);
  const lengths = [];
  for (let length = Math.min(1024, top); length < top; length *= 2) lengths.push(length);
  lengths.push(top);
  const common = { model: asked.model, gpu: best.gpu, tp: best.tp, context_len: lengths, weight_dtype: best.weight_dtype, memory_fraction: asked.memory_fraction, mode: found.memory.mode };
  const dtypes = [...new Set([best.kv_dtype, "bf16", "fp8"])];
  const series = await Promise.all(dtypes.map((kv_dtype) => post("/v1/kv", { ...common, kv_dtype }, mine.signal)));
  const rows = lengths.map((length, i) => ({ length, counts: series.map((one) => one.max_concurrency[i]) }));
  byId("fits-note").textContent = `Requests of that length that one replica (${best.tp} × ${best.gpu}) holds at once.`;
  byId("fits-table").replaceChildren(table("Requests at once, by context", [["Context", (row) => whole(row.length), true],
    ...dtypes.map((name, i) => [`${name} cache`, (row) => whole(row.counts[i]), true])], rows));
  draw("fits-chart", `Lines by cache dtype: ${dtypes.map((name, i) => `${name} ${whole(rows[0].counts[i])} of ${whole(lengths[0])} tokens, ${whole(rows.at(-1).counts[i])} of ${whole(top)}`).join("; ")}`, () => ({
    type: "line",
    data: { datasets: dtypes.map((name, i) => line(`${name} cache`, rows.filter((row) => row.counts[i] > 0).map((row) => [row.length, row.counts[i]]), `s${i + 1}`, { borderDash: [[], [6, 3], [2, 2]][i] })) },
    options: { scales: { x: { ...axis("Context [tokens]", "logarithmic", { callback: powersOfTwo }), afterBuildTicks: twos }, y: axis("Requests at once", "logarithmic") }, plugins: { legend: LINES_BELOW } },
  }));
}

const fleetName = (row) => `${row.replicas} × (${row.tp} × ${row.gpu}), ${row.weight_dtype}/${row.kv_dtype}`;

function front(found) {
  const best = found.recommendation;
  const fleets = [{ ...best, dollars_per_hour: best.dollars_per_hour.estimate, chosen: true }, ...found.alternatives]
    .map((row) => ({ ...row, e2e: row.estimate.e2e_mean_s })).filter((row) => row.e2e != null);
  const edge = found.pareto.map((row) => ({ ...row, e2e: row.e2e_mean_s })).sort((a, b) => a.e2e - b.e2e);
  byId("front-table").replaceChildren(table("Fleets that keep the promises, the cheapest first", [
    ["Fleet", fleetName], ["GPUs", (row) => whole(row.n_gpus), true], ["$/hour", (row) => dollars(row.dollars_per_hour), true],
    ["First token p95", (row) => seconds(row.estimate.ttft_p95_s), true], ["Each token p95", (row) => seconds(row.estimate.tpot_p95_s), true],
    ["To the end, mean", (row) => seconds(row.e2e), true]], fleets, (row) => (row.chosen ? "own" : "")));
  const dots = (name, rows, hue, radius, more = {}) => ({ type: "scatter", label: name, data: rows.map((row) => ({ x: row.e2e, y: row.dollars_per_hour, row })), backgroundColor: colour(hue), borderColor: colour(hue), pointRadius: radius, pointHoverRadius: radius + 2, ...more });
  draw("front-chart", `Scatter of ${fleets.length} fleets; the chosen one costs ${dollars(fleets[0].dollars_per_hour)} an hour at ${seconds(fleets[0].e2e)} to the end`, () => ({
    type: "scatter",
    data: {
      datasets: [
        dots("chosen", fleets.slice(0, 1), "s4", 8, { pointStyle: "rectRot" }),
        dots("cheaper or faster than all others", edge, "s1", 4, { type: "line", borderWidth: 1.5, fill: false }),
        dots("others", fleets.slice(1), "soft", 3),
      ],
    },
    options: {
      scales: { x: axis("Mean time to the end of the answer [s]", "logarithmic"), y: axis("$ an hour", "logarithmic") },
      plugins: { legend: { position: "bottom", labels: { usePointStyle: true } }, tooltip: { callbacks: { label: ({ raw }) => `${fleetName(raw.row)}: ${dollars(raw.y)}/h, ${seconds(raw.x)}` } } },
    },
  }));
}

function others(found) {
  byId("rejected-summary").textContent = `Set aside: ${found.rejected.length}`;
  byId("rejected-table").replaceChildren(table("Deployments set aside, and why", [
    ["Deployment", (row) => `${row.tp} × ${row.gpu}, ${row.weight_dtype}/${row.kv_dtype}`], ["By", (row) => row.stage], ["Why", (row) => row.reason]], found.rejected));
  for (const [id, rows] of [["what-if-table", found.what_ifs], ["assumptions-table", found.assumptions ?? []], ["rejected-table", found.rejected]]) {
    byId(id).closest("details").hidden = !rows.length;
  }
  byId("what-if-table").replaceChildren(table("The same load, one thing changed", [
    ["Change", (row) => row.name], ["GPUs", (row) => whole(row.n_gpus), true], ["$/hour", (row) => dollars(row.dollars_per_hour), true],
    ["First token p95", (row) => seconds(row.ttft_p95_s), true], ["Each token p95", (row) => seconds(row.tpot_p95_s), true], ["", (row) => row.note || ""]], found.what_ifs));
  byId("assumptions-table").replaceChildren(table("What the plan rests on", [
    ["What", (row) => row.what], ["Value", (row) => row.value], ["", (row) => row.kind], ["Source", (row) => row.source]], found.assumptions ?? []));
}

// ---- the same elsewhere

const quoted = (text) => (/^[\w.,/=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function same(asked) {
  const words = ["capmodel plan"];
  const flag = (name, value) => { if (value != null) words.push(`--${name} ${quoted(String(value))}`); };
  const own = typeof asked.model !== "string";
  flag("model", own ? "config.json" : asked.model);
  for (const gpu of asked.gpu ?? []) flag("gpu", gpu);
  flag("rate", asked.rate);
  flag("concurrency", asked.concurrency);
  const mean = (value) => value?.mean ?? value;
  flag("input-len", mean(asked.input_len));
  flag("output-len", mean(asked.output_len));
  flag("length-cv", asked.input_len?.cv);
  flag("slo-ttft-p95", asked.slo_ttft_p95);
  flag("slo-tpot-p95", asked.slo_tpot_p95);
  flag("tp", asked.tp);
  flag("weight-dtype", asked.weight_dtype);
  flag("kv-dtype", asked.kv_dtype);
  flag("engine", asked.engine);
  flag("price", asked.price);
  flag("prefix-len", asked.prefix?.tokens);
  if (asked.memory_fraction !== 0.92) flag("memory-fraction", asked.memory_fraction);
  if (calibration) flag("calibration", `${calibration.name}.json`);
  if (!asked.simulate) words.push("--no-simulate");
  byId("command").textContent = words.join(" \\\n    ");

  const imports = ["import capmodel as cm"];
  const python = (value) => (value === true ? "True" : value === false ? "False" : Array.isArray(value) ? `[${value.map(python).join(", ")}]` : JSON.stringify(value));
  const parts = [];
  for (const [name, value] of Object.entries(asked)) {
    if (name === "model" || name === "gpu") continue;
    if (name === "simulate" && value) continue;
    if (name === "memory_fraction" && value === 0.92) continue;
    if (value?.mean != null) {
      parts.push(`${name}=Lognormal(${value.mean}, ${value.cv})`);
      if (imports.length === 1 || !imports.at(-1).includes("Lognormal")) imports.push("from capmodel.workload import Lognormal");
    } else if (name === "prefix") {
      parts.push(`prefix=SharedPrefix(${value.tokens})`);
      imports.push("from capmodel.workload import SharedPrefix");
    } else parts.push(`${name}=${python(value)}`);
  }
  if (calibration) parts.push(`calibration=${JSON.stringify(`${calibration.name}.json`)}`);
  const first = [own ? '"config.json"' : JSON.stringify(asked.model), asked.gpu ? python(asked.gpu) : "None"];
  byId("python").textContent = `${imports.join("\n")}\n\nplan = cm.plan(\n    ${[first.join(", "), ...parts].join(",\n    ")},\n)\nprint(plan.message)`;
}

async function save(button) {
  const format = button.dataset.format;
  const asked = { ...last.body, date: new Date().toISOString().slice(0, 10), ...(calibration ? { calibration } : {}) };
  const before = button.textContent;
  button.disabled = true;
  button.textContent = "Writing…";
  try {
    if (format === "json") {
      download(new Blob([JSON.stringify(last.plan, null, 2)], { type: "application/json" }), "capacity_plan.json");
    } else {
      const response = await ask(`/v1/plan?format=${format}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) });
      download(await response.blob(), `capacity_plan.${format}`);
    }
    showProblem(problem, null);
  } catch (error) {
    showProblem(problem, error, "The file could not be written");
  } finally {
    button.disabled = false;
    button.textContent = before;
  }
}

// ---- wiring

function later() {
  clearTimeout(timer);
  results.setAttribute("aria-busy", "true");
  timer = setTimeout(plan, 350);
}

form.addEventListener("input", (event) => { if (event.target.id !== "gpu-filter") later(); });
form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); plan(); });
byId("gpu-filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const label of form.querySelectorAll(".choices label")) {
    label.hidden = !label.textContent.toLowerCase().includes(wanted) && !label.querySelector("input").checked;
  }
});
byId("downloads").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.id === "share") copyText(location.href, button);
  else save(button);
});
for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", () => copyText(byId(button.dataset.copy).textContent, button));
}

async function start() {
  readConfigFromAddress();
  calibration = await ownCalibration();
  if (calibration) {
    const note = byId("own-calibration");
    const drop = node("button", { type: "button", textContent: "Use the shipped ones" });
    drop.addEventListener("click", async () => { await forgetCalibration(); calibration = null; note.hidden = true; plan(); });
    note.append(`With your calibration ${calibration.calibration_id}. `, drop);
    note.hidden = false;
  }
  await plan();
}

start();
