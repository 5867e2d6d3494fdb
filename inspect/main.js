// The page's state, kept in the address behind '#', and what is drawn when it changes.

const defaults = {
  layer: 0, head: 0, cut: run.nCut, from: run.first, to: run.end, colour: textColours[0][0],
  scope: "all", thumbs: hasGates ? "retention" : "decisions", theme: "",
};
let state = {...defaults};
let drawn = {};  // state at the last drawing

function readHash() {
  state = {...defaults};
  for (const [key, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!(key in defaults)) continue;
    if (typeof defaults[key] === "string") state[key] = text;
    else if (/^\d+$/.test(text)) state[key] = Number(text);
  }
  state.layer = Math.min(state.layer, nShownLayer - 1);
  state.head = Math.min(state.head, nShownHead - 1);
  state.cut = Math.min(state.cut, run.nCut);
  if (!textColours.some(([name]) => name === state.colour)) state.colour = defaults.colour;
  if (!["all", "one"].includes(state.scope)) state.scope = "all";
  if (!hasGates || !["retention", "decisions"].includes(state.thumbs)) state.thumbs = defaults.thumbs;
  setRange(state.from, state.to);
}

function setRange(from, to) {
  state.from = Math.max(run.first, Math.min(from, run.end - 1));
  state.to = Math.max(state.from + 1, Math.min(to, run.end));
}

function writeHash() {
  const parts = Object.keys(defaults).filter((key) => state[key] !== defaults[key])
    .map((key) => `${key}=${encodeURIComponent(state[key])}`);
  history.replaceState(null, "", parts.length ? "#" + parts.join("&") : location.pathname + location.search);
}

function headName() {
  if (nShownLayer === 1) return "shared by all layers and heads";
  return nShownHead === 1 ? `layer ${state.layer}` : `layer ${state.layer}, KV head ${state.head}`;
}

function showControls() {
  byId("layer").value = state.layer;
  byId("head").value = state.head;
  byId("cut").value = state.cut;
  byId("cut-text").textContent = state.cut === run.nCut ? `end: ${grouped(run.nToken)} tokens`
    : `${state.cut + 1} of ${run.nCut}: ${grouped(run.seen[state.cut])} tokens`;
  byId("from").value = state.from;
  byId("to").value = state.to - 1;
  byId("colour").value = state.colour;
  byId("scope").value = state.scope;
  byId("thumbs").value = state.thumbs;
  byId("head-name").textContent = headName();
  const name = `${headName()}, positions ${state.from} to ${state.to - 1}`;
  byId("retention").setAttribute("aria-label", "Retention matrix of " + name);
  byId("decisions").setAttribute("aria-label", "Eviction decisions of " + name);
}

// Draws what depends on what has changed; everything after a change of size or theme.
function draw(all = false) {
  const changed = (...keys) => all || keys.some((key) => state[key] !== drawn[key]);
  if (changed("theme")) applyTheme();
  all = all || state.theme !== drawn.theme;
  showControls();
  if (changed("layer", "head", "cut", "from", "to")) {
    if (hasGates) drawMatrix(byId("retention"), "retention", state);
    drawMatrix(byId("decisions"), "decisions", state);
  }
  if (nShownLayer > 1) {
    if (changed("thumbs")) drawOverview(state.thumbs);
    markOverview(state.layer, state.head);
  }
  if (changed("layer", "head", "cut", "colour")) drawText(state);
  if (changed("scope") || (state.scope === "one" && changed("layer", "head"))) drawTables(state);
  if (changed("layer", "head", "cut")) drawDepth(state);
  drawn = {...state};
}

function update(changes) {
  Object.assign(state, changes);
  writeHash();
  draw();
}

function applyTheme() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
}

function showFacts() {
  const {model, policy, budget, chunk, protection, kvbound} = run.header;
  const {name, granularity, paper, ...rest} = policy;
  const facts = [
    ["model", model.name || model.architecture], ["layers \u00d7 KV heads", `${run.nLayer} \u00d7 ${run.nKvHead}`],
    ["policy", name], ["token sets", granularity], ["budget", `${grouped(budget)} tokens`],
    ["chunk", `${grouped(chunk)} tokens`], ["tokens", grouped(run.nToken)], ["cuts", grouped(run.nCut)],
    ...(run.header.position_limit ? [["positions", `below ${grouped(run.header.position_limit)}, ${grouped(run.nRebase)} rebase${run.nRebase === 1 ? "" : "s"}`]] : []),
    ["protected", protection ? `${protection.sinks} first, ${protection.recent} last${protection.pin_prompt ? ", prompt" : ""}` : "-"],
    ...Object.entries(rest).filter(([, value]) => value !== null).map(([key, value]) => [key, typeof value === "object" ? JSON.stringify(value) : String(value)]),
    ...(paper && paper !== "-" ? [["paper", paper]] : []), ["kvbound", kvbound || "-"],
  ];
  for (const [key, value] of facts) {
    byId("facts").append(element("div", {}, element("dt", {textContent: key}), element("dd", {textContent: value})));
  }
  byId("title").textContent = `${name}, ${model.name || model.architecture}`;
  document.title = `${name} \u00b7 kvbound inspect`;
}

function showNotes() {
  const notes = [];
  if (!hasGates) notes.push("This trace has no log \u03b2 (the policy reads no gates), so only eviction is shown, no retention.");
  const tail = run.nToken - run.seen[run.nCut - 1];
  if (hasGates && tail > 0) notes.push(`The last ${grouped(tail)} tokens came after the last cut: their log \u03b2 is not in the trace.`);
  if (run.nSet === 1) notes.push("The policy keeps one token set for all layers and heads.");
  if (!run.ended) notes.push("The trace has no end: its run was still going on, or was stopped.");
  if (run.nRun > 1) notes.push(`Conversation ${run.number + 1} of ${run.nRun} in this trace.`);
  if (run.n < run.nToken) notes.push(`Positions ${grouped(run.first)} to ${grouped(run.end - 1)} of ${grouped(run.nToken)}; sums and means are over these.`);
  byId("notes").textContent = notes.join(" ");
  byId("head-note").textContent = (hasGates ? "First: how much of token i is left at query step t by its gate alone. Second: what the run did. "
    : "") + "A token is in the cache from its own step on, until a cut drops it.";
}

function fillSelect(select, options) {
  for (const [value, text] of options) select.append(element("option", {value, textContent: text}));
}

function build() {
  showFacts();
  showNotes();
  const numbers = (n) => Array.from({length: n}, (_, k) => [k, String(k)]);
  fillSelect(byId("layer"), numbers(nShownLayer));
  fillSelect(byId("head"), numbers(nShownHead));
  fillSelect(byId("colour"), textColours);
  const unit = nShownHead > 1 ? "head" : "layer";
  fillSelect(byId("scope"), [["all", `all ${unit}s`], ["one", `the chosen ${unit}`]]);
  byId("cut").max = run.nCut;
  byId("head-title").textContent = nShownLayer === 1 ? "The token set" : nShownHead === 1 ? "One layer" : "One head";
  byId("layer-label").hidden = nShownLayer === 1;
  byId("head-label").hidden = nShownHead === 1;
  byId("overview-section").hidden = nShownLayer === 1;
  byId("retention-figure").hidden = !hasGates;
  byId("thumbs-choice").hidden = !hasGates;
  byId("scope-choice").hidden = nShownLayer === 1;
  if (nShownLayer > 1) buildOverview((layer, head) => update({layer, head}));
  buildText();
  const scale = byId("scale").getContext("2d");
  for (let k = 0; k < 256; ++k) {
    scale.fillStyle = `rgb(${viridis[3 * k]}, ${viridis[3 * k + 1]}, ${viridis[3 * k + 2]})`;
    scale.fillRect(k, 0, 1, 1);
  }
}

function listen() {
  for (const key of ["layer", "head"]) byId(key).onchange = (event) => update({[key]: Number(event.target.value)});
  for (const key of ["colour", "scope", "thumbs"]) byId(key).onchange = (event) => update({[key]: event.target.value});
  let frame = 0;
  byId("cut").oninput = (event) => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => update({cut: Number(event.target.value)}));
  };
  const zoom = () => {
    setRange(Number(byId("from").value), Number(byId("to").value) + 1);
    update({});
  };
  byId("from").onchange = byId("to").onchange = zoom;
  byId("all").onclick = () => update({from: run.first, to: run.end});
  byId("theme").onclick = () => update({theme: document.documentElement.dataset.theme === "dark" ? "light" : "dark"});
  for (const id of ["retention", "decisions"]) {
    const canvas = byId(id);
    canvas.onmousemove = (event) => {
      const text = matrixTip(canvas, event, state);
      if (text) showTip(event, text); else hideTip();
    };
    canvas.onmouseleave = hideTip;
  }
  byId("text").onmousemove = (event) => {
    const span = event.target.closest("span[data-i]");
    if (span) showTip(event, textTip(Number(span.dataset.i), state)); else hideTip();
  };
  byId("text").onmouseleave = hideTip;
  addEventListener("hashchange", () => { readHash(); draw(); });
  let pending = 0;
  addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(() => draw(true), 120); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
}

build();
readHash();
listen();
draw(true);
