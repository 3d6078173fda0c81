// The charts of a plan, each with its table.

import { axis, band, colour, draw, line, LINES_BELOW, marks, powersOfTwo } from "./charts.js";
import { post } from "./http.js";
import { digits, dollars, gib, percent, seconds, table, whole } from "./words.js";

const byId = (id) => document.getElementById(id);

const PARTS = { weights_bytes: "weights", activation_bytes: "activations", graphs_bytes: "graphs", non_torch_bytes: "driver, libraries", cache_bytes: "KV cache", outside_bytes: "left unused" };

export function drawMemory(found) {
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

export function drawSteps(found) {
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

export async function drawFits(asked, found, signal) {
  const best = found.recommendation;
  const top = Math.min(found.model.max_context ?? 131072, 1048576);
  const lengths = [];
  for (let length = Math.min(1024, top); length < top; length *= 2) lengths.push(length);
  lengths.push(top);
  const common = { model: asked.model, gpu: best.gpu, tp: best.tp, context_len: lengths, weight_dtype: best.weight_dtype, memory_fraction: asked.memory_fraction, mode: found.memory.mode };
  const dtypes = [...new Set([best.kv_dtype, "bf16", "fp8"])];
  const series = await Promise.all(dtypes.map((kv_dtype) => post("/v1/kv", { ...common, kv_dtype }, signal)));
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

export function drawFront(found) {
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
      plugins: { legend: { position: "bottom", labels: { usePointStyle: true, boxHeight: 7 } }, tooltip: { callbacks: { label: ({ raw }) => `${fleetName(raw.row)}: ${dollars(raw.y)}/h, ${seconds(raw.x)}` } } },
    },
  }));
}
