"use strict";
// The run as the page's data gives it (cli/inspect_page.cc packs it).

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; ++k) bytes[k] = text.charCodeAt(k);
  return bytes;
}

// `count` whole numbers: groups of three bits in half bytes, the fourth bit for another group.
function readNibbles(bytes, count) {
  const out = new Int32Array(count);
  let at = 0;
  for (let k = 0; k < count; ++k) {
    for (let shift = 0; ; shift += 3) {
      const nibble = at & 1 ? bytes[at >> 1] >> 4 : bytes[at >> 1] & 15;
      ++at;
      out[k] |= (nibble & 7) << shift;
      if (nibble < 8) break;
    }
  }
  return out;
}

// First cut at which a position is present; nCut if it came after the last.
function birthsOf(first, end, seen) {
  const births = new Int32Array(end - first);
  let cut = 0;
  for (let p = first; p < end; ++p) {
    while (cut < seen.length && seen[cut] <= p) ++cut;
    births[p - first] = cut;
  }
  return births;
}

// -log beta for each head: Float32Array of each shown position; NaN where it is not known.
function readRates(packed, nHead, n) {
  const bytes = bytesOf(packed.data);
  const table = new Float32Array(packed.steps + 2);
  table[0] = NaN;
  for (let k = 0; k <= packed.steps; ++k) {
    table[k + 1] = Math.exp(packed.low + (packed.high - packed.low) * k / packed.steps);
  }
  const rates = [];
  for (let head = 0; head < nHead; ++head) {
    const row = new Float32Array(n);
    for (let i = 0; i < n; ++i) {
      const at = (head * n + i) * packed.bytes;
      row[i] = table[packed.bytes === 2 ? bytes[at] | bytes[at + 1] << 8 : bytes[at]];
    }
    rates.push(row);
  }
  return rates;
}

function decodeRun(raw) {
  const n = raw.end - raw.first;
  const nCut = raw.tokens_seen.length;
  const births = birthsOf(raw.first, raw.end, raw.tokens_seen);
  const lives = readNibbles(bytesOf(raw.lives), raw.n_set * n);
  const gone = [];
  for (let set = 0; set < raw.n_set; ++set) {
    const row = lives.subarray(set * n, set * n + n);
    for (let i = 0; i < n; ++i) {
      row[i] += births[i];
      if (row[i] >= nCut) row[i] = nCut + 1;  // held to the end
    }
    gone.push(row);
  }
  const tokenBytes = bytesOf(raw.tokens);
  return {
    header: raw.header, number: raw.run, nRun: raw.n_run, ended: raw.ended,
    nLayer: raw.n_layer, nKvHead: raw.n_kv_head, nSet: raw.n_set,
    first: raw.first, end: raw.end, n, nToken: raw.n_token, nCut,
    nRebase: raw.n_rebase,
    seen: raw.tokens_seen.concat([raw.n_token]),  // [nCut + 1], the last is the end of the run
    births, gone,
    rates: raw.log_beta ? readRates(raw.log_beta, raw.n_layer * raw.n_kv_head, n) : null,
    vocab: raw.vocab.map(([id, text]) => ({id, text})),
    tokens: new Uint32Array(tokenBytes.buffer, 0, n),
  };
}

const run = decodeRun(JSON.parse(document.getElementById("data").textContent));

// The heads and layers that differ in anything shown.
const hasGates = run.rates !== null;
const nShownLayer = hasGates || run.nSet > 1 ? run.nLayer : 1;
const nShownHead = hasGates || run.nSet > run.nLayer ? run.nKvHead : 1;
const setUnit = run.nSet > run.nLayer ? "head" : "layer";  // whose token set a set is

function setOf(layer, head) {
  if (run.nSet === 1) return 0;
  return run.nSet === run.nLayer ? layer : layer * run.nKvHead + head;
}

function rateRow(layer, head) {
  return run.rates[layer * run.nKvHead + head];
}

// Tokens seen when position index i left a set; infinite if it never did.
function goneAt(set, i) {
  const cut = run.gone[set][i];
  return cut < run.nCut ? run.seen[cut] : Infinity;
}

// Whether index i is in a set after `cut` (nCut: at the end).
function isHeld(set, i, cut) {
  return run.first + i < run.seen[cut] && run.gone[set][i] > cut;
}

// What a token is called where control characters and parts of characters must be seen.
function visible(text, id) {
  if (text === null) return "#" + id;
  if (Array.isArray(text)) {
    return text.map((b) => "\\x" + b.toString(16).padStart(2, "0")).join("");
  }
  if (text === "") return "(empty)";
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (c) =>
    c === "\n" ? "\u23ce" : c === "\t" ? "\u21e5" : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function tokenName(i) {
  const token = run.vocab[run.tokens[i]];
  return visible(token.text, token.id);
}
