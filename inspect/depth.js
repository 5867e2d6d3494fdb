// Charts over the layers: how many tokens are retained, how old the kept ones are.

// [layer][head] of S, the retention summed over the tokens seen.
function retainedSums(t) {
  const sums = [];
  for (let layer = 0; layer < run.nLayer; ++layer) {
    sums.push([]);
    for (let head = 0; head < run.nKvHead; ++head) {
      const rates = rateRow(layer, head);
      let sum = 0;
      for (let i = 0; i < run.n && run.first + i < t; ++i) {
        if (!isNaN(rates[i])) sum += Math.exp(-rates[i] * (t - run.first - i));
      }
      sums[layer].push(sum);
    }
  }
  return sums;
}

// [layer][head or one] of the mean age of what is held after a cut.
function keptAges(cut) {
  const perLayer = run.nSet / run.nLayer;
  const ages = [];
  for (let layer = 0; layer < run.nLayer; ++layer) {
    ages.push([]);
    for (let k = 0; k < perLayer; ++k) {
      let sum = 0;
      let count = 0;
      for (let i = 0; i < run.n; ++i) {
        if (!isHeld(layer * perLayer + k, i, cut)) continue;
        sum += run.seen[cut] - run.first - i;
        ++count;
      }
      ages[layer].push(count ? sum / count : NaN);
    }
  }
  return ages;
}

// `limit`: height of the dashed line.
function drawDepthChart(box, values, label, limit, state) {
  const width = Math.max(300, box.clientWidth || 520);
  const height = 270;
  const left = 62, right = 12, top = 14, bottom = 44;
  const svg = svgElement("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label});
  const high = Math.max(...values.flat().filter(isFinite), limit) * 1.06 || 1;
  const x = (layer) => left + (width - left - right) * (layer + .5) / values.length;
  const y = (value) => height - bottom - (height - top - bottom) * value / high;
  for (const v of ticks(0, high, 5)) {
    svg.append(svgElement("line", {class: "axis", x1: left, x2: width - right, y1: y(v), y2: y(v)}));
    svg.append(svgElement("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, grouped(v)));
  }
  for (const v of ticks(0, values.length - 1, width > 450 ? 10 : 6)) {
    if (Number.isInteger(v)) svg.append(svgElement("text", {x: x(v), y: height - bottom + 18, "text-anchor": "middle"}, String(v)));
  }
  svg.append(svgElement("text", {x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle"}, "layer"));
  svg.append(svgElement("text", {x: 0, y: 0, transform: `translate(13 ${(height - bottom + top) / 2}) rotate(-90)`, "text-anchor": "middle"}, label));
  svg.append(svgElement("line", {class: "limit", x1: left, x2: width - right, y1: y(limit), y2: y(limit)}));
  const means = values.map((row) => row.reduce((a, b) => a + b, 0) / row.length);
  svg.append(svgElement("polyline", {class: "mean", points: means.map((v, layer) => isFinite(v) ? `${x(layer)},${y(v)}` : "").join(" ")}));
  values.forEach((row, layer) => row.forEach((value, head) => {
    if (!isFinite(value)) return;
    const chosen = layer === state.layer && (row.length === 1 || head === state.head);
    const dot = svgElement("circle", {class: chosen ? "head chosen" : "head", cx: x(layer), cy: y(value), r: chosen ? 5 : 3.5});
    const name = row.length > 1 ? `layer ${layer}, KV head ${head}` : `layer ${layer}`;
    dot.onmousemove = (event) => showTip(event, `${name}: ${short(value)} tokens\nmean of the layer ${short(means[layer])}`);
    dot.onmouseleave = hideTip;
    svg.append(dot);
  }));
  box.replaceChildren(svg);
}

function drawDepth(state) {
  const t = run.seen[state.cut];
  const budget = run.header.budget;
  byId("sum-figure").hidden = !hasGates;
  byId("age-figure").hidden = run.nSet === 1;
  byId("depth-section").hidden = !hasGates && run.nSet === 1;
  byId("depth-note").textContent = `After ${grouped(t)} tokens. Dots: ` +
    `${run.nSet === run.nLayer && !hasGates ? "layers" : "KV heads, with the chosen one marked"}; line: mean of the layer.` +
    (hasGates ? " S is the sum of \u03b2^age over the tokens seen: about how many tokens a head would keep if it could choose their number." : "");
  if (hasGates) {
    drawDepthChart(byId("sum"), retainedSums(t), "S, tokens", budget, state);
  }
  if (run.nSet > 1) {
    drawDepthChart(byId("age"), keptAges(state.cut), "mean age, tokens", Math.min(budget, t) / 2, state);
  }
}
