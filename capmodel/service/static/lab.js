// The lab page: numbers of GET /v1/lab, drawn. It counts nothing itself.

import { ask, showProblem } from "./http.js";
import { axis, colour, draw, line, LINES_BELOW } from "./charts.js";
import { bytes, digits, node, table, whole } from "./words.js";

const byId = (id) => document.getElementById(id);
const TOKENS = 24;
const NAMES = { mha: "MHA", gqa: "GQA", mqa: "MQA", mla: "MLA", sliding: "Sliding window", sinks: "Window and sinks" };

let lab = null;
let kind = "mha";
let step = 1;
let playing = 0;

const mode = () => document.querySelector("input[name=cache]:checked").value;
const now = () => lab.kinds[kind][mode()][step - 1];

async function load() {
  const block = byId("block").value;
  const response = await ask(`/v1/lab?n_tokens=${TOKENS}&block_size=${block}`);
  lab = await response.json();
}

// ---- one step

function showStep() {
  const own = lab.kinds[kind];
  const cached = mode() === "cached";
  const did = now();
  const dtype = byId("dtype").value;
  byId("step").value = step;
  byId("step-of").textContent = `${step} of ${lab.n_tokens}`;
  byId("back").disabled = step === 1;
  byId("next").disabled = step === lab.n_tokens;
  byId("kind-note").textContent = `${own.title}.${own.window ? ` The window is ${own.window} tokens; the picture shows a windowed layer.` : ""}`;
  byId("told").textContent = cached
    ? `Step ${step}: one token computed; attention goes over ${digits(did.tokens_read)} of ${step} in the cache, the new one included${own.window ? " (the mean of a windowed and a full layer)" : ""}.`
    : `Step ${step}: all ${step} tokens computed again; nothing was kept.`;
  const list = byId("figures");
  list.replaceChildren();
  const figure = (id, name, value, note) => list.append(node("div", {}, node("dt", { textContent: name }),
    node("dd", { id, textContent: value }, note ? node("small", { textContent: note }) : null)));
  figure("f-computed", "Keys computed, a layer", whole(did.tokens_computed));
  figure("f-work", "Work this step", `${whole(did.flop)} FLOP`);
  figure("f-total", "Work so far", `${whole(did.cumulative_flop)} FLOP`);
  figure("f-read", "Cache read this step", `${whole(did.bytes_read)} B`, cached ? "of the decoder's float32 arrays" : "there is none");
  figure("f-cache", "Cache now", cached ? `${whole(own.cache_bytes[dtype][step - 1])} B` : "0 B", cached ? `in ${dtype}` : "");
  figure("f-token", "One more token adds", cached ? `${whole(own.cache_bytes[dtype][step - 1] - (step > 1 ? own.cache_bytes[dtype][step - 2] : 0))} B` : "0 B", cached ? `in ${dtype}` : "");
  picture(own, cached);
}

/** Rows are steps, columns tokens: what each step computed and read, up to now. */
function picture(own, cached) {
  const grid = node("div", { className: "grid" });
  grid.style.gridTemplateColumns = `repeat(${lab.n_tokens}, minmax(0, 1.35rem))`;
  for (let row = 1; row <= step; row += 1) {
    for (let token = 1; token <= lab.n_tokens; token += 1) {
      const cell = node("span", { className: "cell" });
      if (token <= row) {
        const outside = own.window && token <= row - own.window && !(kind === "sinks" && token <= 2);
        if (!cached || token === row) cell.classList.add("computed");
        else cell.classList.add(outside ? "dropped" : "read");
      }
      grid.append(cell);
    }
  }
  const box = byId("picture");
  box.setAttribute("aria-label", cached ? `${step} steps; each computed one token and read the earlier ones.` : `${step} steps; each computed every token so far.`);
  box.replaceChildren(grid);
}

// ---- all steps, all kinds

function showWork() {
  const own = lab.kinds[kind];
  const last = lab.n_tokens - 1;
  const times = own.uncached[last].cumulative_flop / own.cached[last].cumulative_flop;
  byId("work-note").textContent = `${NAMES[kind]}: without a cache ${digits(times)} times the work of ${lab.n_tokens} tokens with one, and the gap grows with every token: off, the work so far grows as the square of the tokens.`;
  byId("work-table").replaceChildren(table("FLOP so far, after each token", [["Token", (row) => whole(row.length), true], ["Cache on", (row) => whole(row.on), true], ["Cache off", (row) => whole(row.off), true]],
    own.cached.map((one, i) => ({ length: one.length, on: one.cumulative_flop, off: own.uncached[i].cumulative_flop }))));
  const series = (name) => own[name].map((one) => [one.length, one.cumulative_flop / 1e6]);
  draw("work-chart", `Lines: cache on ends at ${whole(own.cached[last].cumulative_flop)} FLOP, off at ${whole(own.uncached[last].cumulative_flop)}`, () => ({
    type: "line",
    data: { datasets: [line("cache off: every token again", series("uncached"), "s2", { borderDash: [6, 3] }), line("cache on", series("cached"), "s1")] },
    options: { scales: { x: axis("Tokens"), y: { ...axis("MFLOP so far"), beginAtZero: true } }, plugins: { legend: LINES_BELOW } },
  }));
}

function showModel() {
  const { model } = lab;
  const dtypes = ["bf16", "fp8", "int4"];
  const rows = model.variants;
  const own = rows.find((row) => row.own);
  byId("model-note").textContent = `${model.name}, one request of ${whole(model.context_len)} tokens: ${bytes(rows[0].kv_bytes.bf16)} as ${rows[0].attention}, ${own ? `${bytes(own.kv_bytes.bf16)} as it is (${own.attention}), ` : ""}${bytes(Math.min(...rows.map((row) => row.kv_bytes.int4)))} at the least.`;
  byId("model-table").replaceChildren(table("Cache of one request; the model's own attention is marked", [["Attention", (row) => row.attention],
    ["A token, bf16", (row) => bytes(row.kv_bytes_per_token.bf16), true], ...dtypes.map((name) => [name, (row) => bytes(row.kv_bytes[name]), true])], rows, (row) => (row.own ? "own" : "")));
  draw("model-chart", `Bars: ${rows.map((row) => `${row.attention} ${bytes(row.kv_bytes.bf16)} in bf16`).join(", ")}`, () => ({
    type: "bar",
    data: { labels: rows.map((row) => (row.own ? [row.attention, "(own)"] : row.attention)), datasets: dtypes.map((name, i) => ({ label: name, data: rows.map((row) => row.kv_bytes[name] / 1e9), backgroundColor: colour(`s${i + 1}`) })) },
    options: { scales: { x: { grid: { display: false } }, y: axis("GB", "logarithmic") }, plugins: { legend: { position: "bottom" }, tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${digits(item.raw)} GB` } } } },
  }));
}

function showPaging() {
  const side = document.querySelector("input[name=sharing]:checked").value;
  const found = lab.paging[side];
  const size = lab.paging.block_size;
  const other = lab.paging[side === "shared" ? "alone" : "shared"];
  const computed = (one) => one.requests.reduce((sum, request) => sum + request.tokens_computed, 0);
  byId("paging-told").textContent = `${found.used_blocks} blocks of ${size} tokens hold three requests with ${found.empty_places} places empty, ${computed(found)} tokens computed; ${side === "shared" ? "each alone" : "with the prefix shared"} it is ${other.used_blocks} blocks and ${computed(other)} tokens. The answers are ${[...found.requests, ...other.requests].every((one) => one.same_answer) ? "the same" : "not the same"}.`;
  byId("blocks").replaceChildren(...found.requests.map((request) => {
    const blocks = request.table.map((number, i) => {
      const filled = Math.min(size, request.tokens - i * size);
      const slots = node("div", { className: "slots" }, ...Array.from({ length: size }, (_, j) => node("i", { className: j < filled ? "" : "empty" })));
      const shared = i < request.shared_blocks;
      return node("div", { className: `block${shared ? " shared" : ""}` }, node("span", { textContent: `${number}${shared ? " shared" : ""}` }), slots);
    });
    return node("div", {}, node("h3", { textContent: `${request.name}: ${request.tokens} tokens` }), node("div", { className: "blocks" }, ...blocks));
  }));
  byId("paging-table").replaceChildren(table("What each request holds", [["Request", (row) => row.name], ["Prompt", (row) => whole(row.prompt_len), true], ["Cached", (row) => whole(row.tokens), true], ["Computed", (row) => whole(row.tokens_computed), true],
    ["Blocks", (row) => whole(row.table.length), true], ["Of them shared", (row) => whole(row.shared_blocks), true], ["Held", (row) => `${whole(row.nbytes)} B`, true], ["Filled", (row) => `${whole(row.token_nbytes)} B`, true]], found.requests));
}

// ---- wiring

function go(to) {
  step = Math.min(Math.max(to, 1), lab.n_tokens);
  if (step === lab.n_tokens) stop();
  showStep();
}

function stop() {
  clearInterval(playing);
  playing = 0;
  byId("play").textContent = "Play";
  byId("play").setAttribute("aria-pressed", "false");
}

function play() {
  if (playing) { stop(); return; }
  if (step === lab.n_tokens) step = 0;
  byId("play").textContent = "Pause";
  byId("play").setAttribute("aria-pressed", "true");
  playing = setInterval(() => go(step + 1), 500);
  go(step + 1);
}

async function start() {
  try {
    await load();
  } catch (error) {
    byId("status").textContent = "The lab did not answer.";
    showProblem(byId("problem"), error);
    return;
  }
  byId("status").hidden = true;
  byId("answer").hidden = false;
  byId("kinds").append(...Object.keys(lab.kinds).map((name) => node("label", {}, node("input", { type: "radio", name: "kind", value: name, checked: name === kind }), NAMES[name] ?? name)));
  byId("dtype").append(...lab.dtypes.map((name) => node("option", { textContent: name, selected: name === "bf16" })));
  byId("step").max = lab.n_tokens;
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("controls").addEventListener("change", (event) => {
    if (event.target.name === "kind") { kind = event.target.value; showWork(); }
    showStep();
  });
  byId("step").addEventListener("input", (event) => { stop(); go(Number(event.target.value)); });
  byId("back").addEventListener("click", () => { stop(); go(step - 1); });
  byId("next").addEventListener("click", () => { stop(); go(step + 1); });
  byId("play").addEventListener("click", play);
  for (const radio of document.querySelectorAll("input[name=sharing]")) radio.addEventListener("change", showPaging);
  byId("block").addEventListener("change", async () => {
    try {
      await load();
      showProblem(byId("problem"), null);
      showPaging();
    } catch (error) { showProblem(byId("problem"), error); }
  });
  showStep();
  showWork();
  showModel();
  showPaging();
}

start();
