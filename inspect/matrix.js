// Retention matrix and eviction decisions of one head: query step down, token across.

// An image of cells x cells for positions [from, to). A cell covers a bin of tokens, as they are
// at the last query step of its bin: the mean of up to 4 of them.
function matrixImage(kind, layer, head, from, to, cells) {
  const image = new ImageData(cells, cells);
  const pixels = new Uint32Array(image.data.buffer);
  const edge = (k) => from + Math.floor(k * (to - from) / cells);
  const value = kind === "retention" ? retentionOf(layer, head) : presenceOf(setOf(layer, head));
  const palette = kind === "retention" ? viridisPalette() : decisionPalette();
  for (let row = 0; row < cells; ++row) {
    const t = edge(row + 1) - 1;
    for (let column = 0; column <= row; ++column) {
      const first = edge(column);
      const end = edge(column + 1);
      const step = Math.max(1, Math.ceil((end - first) / 4));
      let sum = 0;
      let count = 0;
      for (let p = end - 1; p >= first; p -= step, ++count) sum += value(p - run.first, t - p, t);
      const mean = sum / count;
      if (mean >= 0) pixels[row * cells + column] = palette[Math.round(mean * 255)];
    }
  }
  return image;
}

function retentionOf(layer, head) {
  const rates = rateRow(layer, head);
  return (i, age) => Math.exp(-rates[i] * age);
}

function presenceOf(set) {
  return (i, age, t) => t < goneAt(set, i) ? 1 : 0;
}

const packRgb = (r, g, b) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

function viridisPalette() {
  return Uint32Array.from({length: 256}, (_, k) =>
    packRgb(viridis[3 * k], viridis[3 * k + 1], viridis[3 * k + 2]));
}

function decisionPalette() {
  const kept = themeRgb("--kept");
  const evicted = themeRgb("--evicted");
  return Uint32Array.from({length: 256}, (_, k) =>
    packRgb(...kept.map((c, at) => Math.round(evicted[at] + (c - evicted[at]) * k / 255))));
}

const margins = {left: 72, right: 10, top: 6, bottom: 44};

function plotSize(canvas) {
  const width = canvas.clientWidth || 520;
  return Math.max(80, Math.min(width - margins.left - margins.right, 560));
}

function drawMatrix(canvas, kind, state) {
  const size = plotSize(canvas);
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const width = canvas.clientWidth || 520;
  const height = size + margins.top + margins.bottom;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.fillStyle = themeColour("--none");
  context.fillRect(margins.left, margins.top, size, size);
  const cells = Math.max(1, Math.min(state.to - state.from, Math.floor(size)));
  const image = matrixImage(kind, state.layer, state.head, state.from, state.to, cells);
  const off = element("canvas", {width: cells, height: cells});
  off.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(off, margins.left, margins.top, size, size);
  drawAxes(context, state, size);
}

function drawAxes(context, state, size) {
  const scale = size / (state.to - state.from);
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = themeColour("--soft");
  context.strokeStyle = themeColour("--rule");
  context.lineWidth = 1;
  context.strokeRect(margins.left - .5, margins.top - .5, size + 1, size + 1);
  for (const v of ticks(state.from, state.to, size > 300 ? 6 : 3)) {
    const at = (v - state.from) * scale;
    context.textAlign = at > size - 14 ? "right" : "center";
    context.fillText(grouped(v), margins.left + Math.min(at, size), margins.top + size + 16);
    context.textAlign = "right";
    context.fillText(grouped(v), margins.left - 6, margins.top + Math.max(8, Math.min(at + 4, size)));
  }
  context.textAlign = "center";
  context.fillText("token position i", margins.left + size / 2, margins.top + size + 36);
  context.save();
  context.translate(12, margins.top + size / 2);
  context.rotate(-Math.PI / 2);
  context.fillText("query step t", 0, 0);
  context.restore();
  const mark = (run.seen[state.cut] - state.from) * scale;
  if (mark < 0 || mark > size) return;
  context.strokeStyle = themeColour("--mark");
  context.lineWidth = 1.5;
  context.beginPath();
  context.moveTo(margins.left, margins.top + mark);
  context.lineTo(margins.left + size, margins.top + mark);
  context.stroke();
}

// What lies under the pointer, in words; null outside the triangle.
function matrixTip(canvas, event, state) {
  const box = canvas.getBoundingClientRect();
  const scale = (state.to - state.from) / plotSize(canvas);
  const p = state.from + Math.floor((event.clientX - box.left - margins.left) * scale);
  const t = state.from + Math.floor((event.clientY - box.top - margins.top) * scale);
  if (p < state.from || t >= state.to || p > t) return null;
  const i = p - run.first;
  const set = setOf(state.layer, state.head);
  const lines = [`token ${tokenName(i)} at ${grouped(p)}, query step ${grouped(t)}, age ${grouped(t - p)}`];
  if (hasGates) {
    const rate = rateRow(state.layer, state.head)[i];
    lines.push(isNaN(rate) ? "log \u03b2 not known: no cut came after it"
      : `retention ${Math.exp(-rate * (t - p)).toFixed(3)}, log \u03b2 ${(-rate).toPrecision(3)}`);
  }
  const gone = goneAt(set, i);
  lines.push(gone === Infinity ? "in the cache to the end"
    : t < gone ? `in the cache, evicted at ${grouped(gone)} tokens` : `evicted at ${grouped(gone)} tokens`);
  return lines.join("\n");
}
