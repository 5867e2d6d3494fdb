// Colours: viridis for retention, and the theme's own for the rest.

const viridis = (() => {
  const stops = ["440154", "482475", "414487", "355f8d", "2a788e", "21918c", "22a884", "44bf70",
    "7ad151", "bddf26", "fde725"].map((hex) => [0, 2, 4].map((k) => parseInt(hex.substr(k, 2), 16)));
  const table = new Uint8Array(256 * 3);
  for (let k = 0; k < 256; ++k) {
    const at = k / 255 * (stops.length - 1);
    const low = Math.min(Math.floor(at), stops.length - 2);
    for (let c = 0; c < 3; ++c) {
      table[3 * k + c] = Math.round(stops[low][c] + (stops[low + 1][c] - stops[low][c]) * (at - low));
    }
  }
  return table;
})();

function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function themeRgb(name) {
  const hex = themeColour(name);
  return [1, 3, 5].map((k) => parseInt(hex.substr(k, 2), 16));
}

// A level in [0, 1] as the ground of a piece of text.
function tint(level) {
  return `rgba(${themeColour("--tint")}, ${(level * .9).toFixed(3)})`;
}
