// A plan in figures and tables.

import { digits, dollars, node, percent, seconds, table, whole } from "./words.js";

const byId = (id) => document.getElementById(id);

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

export function showHeadline(found) {
  const best = found.recommendation;
  document.querySelector(".headline").classList.toggle("no", !best);
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
    figure("Replicas", `${best.replicas} × ${best.tp} GPU${best.tp > 1 ? "s" : ""}`, `${best.weight_dtype} weights, ${best.kv_dtype} cache`, ...(between ? [between] : []));
    const [cost, costs] = range(best.dollars_per_hour, dollars);
    figure("Cost an hour", cost, ...(costs ? [costs] : []));
    for (const [name, key, limit] of [["First token, p95", "ttft_p95_s", found.slo.ttft_s], ["Each token, p95", "tpot_p95_s", found.slo.tpot_s], ["Whole answer, p95", "e2e_p95_s", found.slo.e2e_s]]) {
      const own = found.latency[key];
      if (!own) continue;
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

export function showOthers(found) {
  byId("rejected-summary").textContent = `Set aside: ${found.rejected.length}`;
  byId("rejected-table").replaceChildren(table("Deployments set aside, and why", [
    ["Deployment", (row) => `${row.tp} × ${row.gpu}, ${row.weight_dtype}/${row.kv_dtype}`], ["By", (row) => row.stage], ["Why", (row) => row.reason]], found.rejected));
  for (const [id, rows] of [["what-if-table", found.what_ifs], ["assumptions-table", found.assumptions ?? []], ["rejected-table", found.rejected]]) {
    byId(id).closest("details").hidden = !rows.length;
  }
  byId("what-if-table").replaceChildren(table("The same load, one thing changed", [
    ["Change", (row) => row.name], ["GPUs", (row) => whole(row.n_gpus), true], ["$/hour", (row) => dollars(row.dollars_per_hour), true],
    ["First token p95", (row) => seconds(row.ttft_p95_s), true], ["Each token p95", (row) => seconds(row.tpot_p95_s), true], ["Note", (row) => row.note || ""]], found.what_ifs));
  byId("assumptions-table").replaceChildren(table("What the plan rests on", [
    ["What", (row) => row.what], ["Value", (row) => row.value], ["Known by", (row) => row.kind], ["Source", (row) => row.source]], found.assumptions ?? []));
}
