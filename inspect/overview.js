// A small picture of each layer and head, in cards of one layer.

const thumbCells = 56;

function drawThumb(canvas, kind, layer, head) {
  const cells = Math.min(thumbCells, run.n);
  canvas.width = canvas.height = cells;
  canvas.getContext("2d").putImageData(
    matrixImage(kind, layer, head, run.first, run.end, cells), 0, 0);
}

// `choose(layer, head)` is called when a picture is chosen.
function buildOverview(choose) {
  const overview = byId("overview");
  overview.style.setProperty("--heads", Math.min(nShownHead, 8));
  for (let layer = 0; layer < nShownLayer; ++layer) {
    const row = element("div");
    for (let head = 0; head < nShownHead; ++head) {
      const name = nShownHead > 1 ? `layer ${layer}, KV head ${head}` : `layer ${layer}`;
      const button = element("button", {className: "thumb", type: "button", title: name},
        element("canvas"));
      button.setAttribute("aria-label", name);
      button.dataset.at = layer * nShownHead + head;
      button.onclick = () => choose(layer, head);
      row.append(button);
    }
    overview.append(element("div", {className: "layer-card"},
      element("span", {textContent: `layer ${layer}`}), row));
  }
  overview.onkeydown = (event) => moveInOverview(event, choose);
}

function moveInOverview(event, choose) {
  const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: nShownHead, ArrowUp: -nShownHead}[event.key];
  const at = Number(event.target.dataset.at) + step;
  if (!(at >= 0 && at < nShownLayer * nShownHead)) return;
  event.preventDefault();
  choose(Math.floor(at / nShownHead), at % nShownHead);
  byId("overview").querySelectorAll(".thumb")[at].focus();
}

function drawOverview(kind) {
  for (const button of byId("overview").querySelectorAll(".thumb")) {
    const at = Number(button.dataset.at);
    drawThumb(button.firstChild, kind, Math.floor(at / nShownHead), at % nShownHead);
  }
}

function markOverview(layer, head) {
  for (const button of byId("overview").querySelectorAll(".thumb")) {
    const chosen = Number(button.dataset.at) === layer * nShownHead + head;
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
}
