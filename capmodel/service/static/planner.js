// The planner page: the form is sent as it changes, the answer drawn. No arithmetic here.

import { ask, download, post, Problem, showProblem } from "./http.js";
import { drawFits, drawFront, drawMemory, drawSteps } from "./plan_charts.js";
import { showSame } from "./plan_same.js";
import { showHeadline, showOthers } from "./plan_words.js";
import { copyText, node } from "./words.js";
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
    slo_e2e_p95: number("slo_e2e_p95"),
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
    const words = node("p", { className: "wrong", id: `${input.id}-wrong`, textContent: one.message.replace(`${one.field}: `, "") });
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
  showHeadline(found);
  showOthers(found);
  showSame(asked, calibration);
  byId("charts").hidden = !found.recommendation;
  if (found.recommendation) {
    drawMemory(found);
    drawSteps(found);
    drawFront(found);
    await drawFits(asked, found, mine.signal);
  }
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
