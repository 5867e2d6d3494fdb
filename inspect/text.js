// The text, each token coloured by a level in [0, 1].

const textColours = [
  ...(hasGates ? [["retention", "retention in the chosen head"],
    ["mean", "mean retention over all heads"]] : []),
  ...(run.nSet > 1 ? [["held", `share of ${setUnit}s that hold it`]] : []),
  ["kept", run.nSet > 1 ? `kept or evicted in the chosen ${setUnit}` : "kept or evicted"],
];

let textSpans = [];

function buildText() {
  const box = byId("text");
  let line = element("div");
  for (let i = 0; i < run.n; ++i) {
    const text = run.vocab[run.tokens[i]].text;
    const span = element("span");
    span.dataset.i = i;
    if (typeof text === "string" && text !== "" && visible(text) === text) {
      span.textContent = text;
    } else {
      span.append(element("i", {textContent: tokenName(i)}));
    }
    line.append(span);
    textSpans.push(span);
    if (i + 1 < run.n && !(typeof text === "string" && text.endsWith("\n"))) continue;
    box.append(line);
    line = element("div");
  }
}

// Level of each shown token after the chosen cut; NaN where it is not known.
function textLevels(state) {
  const levels = new Float32Array(run.n);
  const t = run.seen[state.cut];
  const add = (value, n) => {
    for (let i = 0; i < run.n && run.first + i < t; ++i) levels[i] += value(i) / n;
  };
  const retention = (rates) => (i) => Math.exp(-rates[i] * (t - run.first - i));
  if (state.colour === "retention") add(retention(rateRow(state.layer, state.head)), 1);
  if (state.colour === "mean") for (const rates of run.rates) add(retention(rates), run.rates.length);
  if (state.colour === "held") {
    for (let set = 0; set < run.nSet; ++set) {
      add((i) => run.gone[set][i] > state.cut ? 1 : 0, run.nSet);
    }
  }
  return levels;
}

const textSteps = 24;

// What a token looks like after the chosen cut: its class and its level in steps.
function textLook(i, set, level, state) {
  if (run.first + i >= run.seen[state.cut]) return ["later", 0];
  const held = isHeld(set, i, state.cut);
  if (state.colour === "kept") return held ? ["", Math.round(.38 * textSteps)] : ["gone", 0];
  return [held ? "held" : "", Math.round((level || 0) * textSteps)];
}

function drawText(state) {
  const set = setOf(state.layer, state.head);
  const levels = textLevels(state);
  // Read once: asking for a style after each change would lay the page out anew each time.
  const grounds = Array.from({length: textSteps + 1}, (_, k) => k ? tint(k / textSteps) : "");
  const ink = themeColour("--card");
  const flip = Number(themeColour("--flip"));  // level from which light and dark change places
  const theme = document.documentElement.dataset.theme;
  for (let i = 0; i < run.n; ++i) {
    const span = textSpans[i];
    const [name, step] = textLook(i, set, levels[i], state);
    const look = name + step + theme;
    if (span.look === look) continue;
    span.look = look;
    span.className = name;
    span.style.background = grounds[step];
    span.style.color = step > flip * textSteps ? ink : "";
  }
  drawTextLegend(state);
}

function drawTextLegend(state) {
  const word = (text) => element("span", {textContent: text});
  const parts = state.colour === "kept"
    ? [swatches([.38]), word("kept"), word("\u00b7 grey: evicted")]
    : [word("0"), swatches([0, .2, .4, .6, .8, 1]), word("1"), element("span", {className: "line"}),
      word(run.nSet > 1 ? `underlined: held by the chosen ${setUnit}` : "underlined: held")];
  if (run.seen[state.cut] < run.end) parts.push(word("\u00b7 faint: not read yet"));
  byId("text-legend").replaceChildren(...parts);
}

function swatches(levels) {
  return element("span", {className: "swatch"}, ...levels.map((level) => {
    const box = element("span");
    box.style.background = tint(level);
    return box;
  }));
}

function textTip(i, state) {
  const set = setOf(state.layer, state.head);
  const lines = [`${tokenName(i)} \u00b7 id ${run.vocab[run.tokens[i]].id} \u00b7 position ${grouped(run.first + i)}`];
  const age = run.seen[state.cut] - run.first - i;
  if (age <= 0) return lines.concat("not read yet at this cut").join("\n");
  if (hasGates) {
    const rate = rateRow(state.layer, state.head)[i];
    lines.push(isNaN(rate) ? "log \u03b2 not known: no cut came after it"
      : `log \u03b2 ${(-rate).toPrecision(3)}, retention ${Math.exp(-rate * age).toFixed(3)} at age ${grouped(age)}`);
  }
  const gone = goneAt(set, i);
  lines.push(gone === Infinity ? "kept to the end" : `evicted at ${grouped(gone)} tokens, aged ${grouped(gone - run.first - i)}`);
  if (run.nSet > 1) {
    let holders = 0;
    for (let s = 0; s < run.nSet; ++s) if (isHeld(s, i, state.cut)) ++holders;
    lines.push(`held by ${holders} of ${run.nSet} ${setUnit}s after this cut`);
  }
  return lines.join("\n");
}
