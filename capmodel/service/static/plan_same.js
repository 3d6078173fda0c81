// The same plan from a shell and from Python.

const byId = (id) => document.getElementById(id);

const quoted = (text) => (/^[\w.,/=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The command and the Python call that give the plan of `asked`. */
export function showSame(asked, calibration) {
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
  flag("slo-e2e-p95", asked.slo_e2e_p95);
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
