// Small helpers for the document.

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const node = document.createElement(name);
  Object.assign(node, properties);
  node.append(...children);
  return node;
}

function svgElement(name, attributes = {}, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

const grouped = (number) => Math.round(number).toLocaleString("en");

// Few digits, whatever the size.
function short(number) {
  if (!isFinite(number)) return "-";
  if (number >= 1e6) return (number / 1e6).toFixed(number >= 1e8 ? 0 : 1) + " M";
  if (number >= 100) return grouped(number);
  return number >= 10 ? number.toFixed(1) : number.toPrecision(2);
}

// Round values in [low, high], about `n` of them.
function ticks(low, high, n) {
  const rough = (high - low) / Math.max(n, 1);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1e-9)));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough) || 10 * power;
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) out.push(v);
  return out;
}

function showTip(event, text) {
  const tip = byId("tip");
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = (below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 10) + "px";
}

function hideTip() {
  byId("tip").hidden = true;
}
