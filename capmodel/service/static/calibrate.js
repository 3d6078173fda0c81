// The calibration page: a file goes up, a calibration comes back and is kept in this browser.

import { ask, download, root, showProblem } from "./http.js";
import { keepCalibration } from "./own.js";
import { digits, node, percent, seconds, table, whole } from "./words.js";

const byId = (id) => document.getElementById(id);
const drop = byId("drop");
const input = byId("file");
let calibration = null;

async function fit(files) {
  if (!files.length) return;
  byId("chosen").textContent = [...files].map((file) => file.name).join(", ");
  byId("results").setAttribute("aria-busy", "true");
  byId("answer").hidden = true;
  showProblem(byId("problem"), null);
  const began = Date.now();
  const tick = setInterval(() => {
    byId("status").textContent = `Reading, fitting and grading: ${Math.round((Date.now() - began) / 1000)} s`;
  }, 1000);
  byId("status").textContent = "Reading and fitting…";
  const form = new FormData();
  for (const file of files) form.append("runs", file, file.name);
  form.append("name", files[0].name.replace(/\.[^.]*$/, "").replace(/[^\w.-]+/g, "-").slice(0, 60) || "calibration");
  form.append("grade", String(byId("grade").checked));
  form.append("figures", "true");
  try {
    const response = await ask("/v1/fit", { method: "POST", body: form });
    show(await response.json());
    byId("status").textContent = `Done in ${Math.max(1, Math.round((Date.now() - began) / 1000))} s.`;
  } catch (error) {
    byId("status").textContent = "No calibration.";
    showProblem(byId("problem"), error, "That file gives no calibration");
  } finally {
    clearInterval(tick);
    byId("results").setAttribute("aria-busy", "false");
    input.value = "";
  }
}

function show(found) {
  calibration = found.calibration;
  byId("answer").hidden = false;
  byId("kept").textContent = "";
  byId("name").textContent = found.calibration_id;
  const list = byId("figures");
  list.replaceChildren();
  const figure = (name, value, ...notes) => list.append(node("div", {}, node("dt", { textContent: name }),
    node("dd", { textContent: value }, ...notes.map((note) => node("small", { textContent: note })))));
  figure("Rows used", whole(found.rows.used), `of ${whole(found.rows.read)} read`);
  const aside = Object.entries(found.rows.set_aside);
  figure("Set aside", whole(aside.reduce((sum, [, n]) => sum + n, 0)), ...aside.slice(0, 3).map(([rule, n]) => `${rule}: ${whole(n)}`));
  const splits = Object.keys(found.splits);
  for (const [split, name] of [["config", "Off on configurations not seen"], ["model", "Off on models not seen"]]) {
    const error = found.splits[split]?.regressor?.mape;
    if (error != null) figure(name, percent(error, 1), `the roofline alone ${percent(found.splits[split].roofline.mape, 1)}`);
  }
  figure("Noise of the measurements", percent(found.noise_floor_mape, 1), found.noise_floor_mape == null ? "no repeats in the file" : "from repeated rows");
  byId("warnings").replaceChildren(...(found.warnings.length ? [node("div", { className: "warn" }, node("ul", {}, ...found.warnings.map((text) => node("li", { textContent: text }))))] : []));
  byId("pictures").replaceChildren(...Object.values(found.figures).map((picture) => node("figure", { className: "panel" },
    node("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: "Figure" }, node("img", { className: "figure", alt: picture.alt, src: `data:image/svg+xml;base64,${base64(picture.svg)}` })),
    node("figcaption", { className: "note", textContent: picture.caption }))));
  const cells = splits.flatMap((split) => Object.entries(found.splits[split]).map(([estimator, score]) => ({ split, estimator, ...score })));
  byId("card").replaceChildren(table("Mean, median and 90th percentile of the error", [
    ["Left out", (row) => row.split], ["Estimator", (row) => row.estimator], ["MAPE", (row) => percent(row.mape, 1), true], ["Median", (row) => percent(row.median_ape, 1), true],
    ["90th", (row) => percent(row.p90_ape, 1), true], ["Bias", (row) => percent(row.bias, 1), true], ["R²", (row) => digits(row.r2), true], ["Rows", (row) => whole(row.n), true]], cells));
  byId("absent").textContent = Object.entries(found.absent_splits).map(([split, why]) => `${split}: ${why}`).join(" · ");
  byId("coefficients").replaceChildren(table("By engine and GPU, with standard errors", [
    ["Engine", (row) => row.engine], ["GPU", (row) => row.gpu], ["Coefficient", (row) => row.coefficient], ["Value", (row) => inUnit(row, row.value), true],
    ["±", (row) => inUnit(row, row.standard_error, 2), true], ["Unit", (row) => row.unit.replace(/^s\//, "a ")], ["Note", (row) => (row.at_bound ? "at its bound" : row.identified ? "" : "not told by these rows")]], found.coefficients));
  byId("files").replaceChildren(table("Files", [["Name", (row) => row.name], ["Format", (row) => row.format], ["Rows", (row) => whole(row.rows), true], ["With a decode step", (row) => whole(row.kept), true], ["What became of it", (row) => row.reason || row.status]], found.files));
  byId("aside-summary").textContent = `Rows set aside: ${whole(found.set_aside.length)} shown`;
  byId("aside").replaceChildren(table("Rows that no fit used, and why", [["Run", (row) => row.run_id], ["Model", (row) => row.model], ["GPU", (row) => row.gpu], ["Batch", (row) => whole(row.batch_size), true], ["Rule", (row) => row.rule], ["Why", (row) => row.reason]], found.set_aside));
}

/** A coefficient in seconds a layer, or the like, with a unit that can be read. */
function inUnit(row, value, places = 3) {
  return row.unit.startsWith("s/") ? seconds(value, places) : digits(value, places);
}

function base64(text) {
  let binary = "";
  for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
  return btoa(binary);
}

input.addEventListener("change", () => fit(input.files));
byId("fit").addEventListener("submit", (event) => event.preventDefault());
for (const name of ["dragenter", "dragover"]) {
  drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
}
for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
drop.addEventListener("drop", (event) => { event.preventDefault(); fit(event.dataTransfer.files); });
byId("save").addEventListener("click", () => download(new Blob([JSON.stringify(calibration)], { type: "application/json" }), `${calibration.name}.json`));
byId("use").addEventListener("click", async () => {
  try {
    await keepCalibration(calibration);
    location.href = `${root}/`;
  } catch {
    byId("kept").textContent = "This browser keeps nothing for this page (private window?). Download the file instead.";
  }
});
