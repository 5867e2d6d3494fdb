// Which tokens stay longest and go first: lives by token, over heads and occurrences.

const tableRows = 15;

// Tokens that came too late in the run to grow old are left out.
function lastCounted() {
  const margin = Math.min(run.header.budget, Math.floor(run.nToken / 2));
  return Math.min(run.seen[run.nCut - 1], run.nToken - margin);
}

function livesByToken(sets, heads) {
  const rows = run.vocab.map((token, k) => ({k, token, count: 0, life: 0, held: 0, rate: 0, nRate: 0}));
  const last = lastCounted();
  for (let i = 0; i < run.n && run.first + i < last; ++i) {
    const row = rows[run.tokens[i]];
    ++row.count;
    for (const set of sets) {
      const gone = goneAt(set, i);
      if (gone === Infinity) ++row.held;
      row.life += Math.min(gone, run.nToken) - run.first - i;
    }
    for (const head of heads) {
      if (isNaN(run.rates[head][i])) continue;
      row.rate += run.rates[head][i];
      ++row.nRate;
    }
  }
  return rows.filter((row) => row.count > 0).map((row) => ({
    ...row, life: row.life / row.count / sets.length, held: row.held / row.count / sets.length,
    halfLife: row.nRate ? Math.LN2 / (row.rate / row.nRate) : NaN,
  }));
}

function fillTable(table, rows) {
  const heads = ["token", "times", "mean life, tokens", "still held"];
  if (hasGates) heads.push("half-life, tokens");
  const head = element("tr", {}, ...heads.map((text) => element("th", {textContent: text, scope: "col"})));
  const body = rows.map((row) => {
    const name = element("code", {textContent: visible(row.token.text, row.token.id).replace(/ /g, "\u00b7"),
      title: "id " + row.token.id});
    const cells = [grouped(row.count), short(row.life), Math.round(row.held * 100) + " %"];
    if (hasGates) cells.push(short(row.halfLife));
    return element("tr", {}, element("td", {}, name),
      ...cells.map((text) => element("td", {textContent: text})));
  });
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

function drawTables(state) {
  const one = state.scope === "one";
  const sets = one ? [setOf(state.layer, state.head)] : [...run.gone.keys()];
  const heads = !hasGates ? [] : one ? [state.layer * run.nKvHead + state.head] : [...run.rates.keys()];
  const all = livesByToken(sets, heads);
  const least = [3, 2, 1].find((n) => all.filter((row) => row.count >= n).length >= 2 * tableRows) || 1;
  const rows = all.filter((row) => row.count >= least).sort((a, b) => b.life - a.life || a.k - b.k);
  const nRow = Math.min(tableRows, Math.ceil(rows.length / 2));
  fillTable(byId("longest"), rows.slice(0, nRow));
  fillTable(byId("shortest"), rows.slice(rows.length - nRow).reverse());
  byId("tables-note").textContent =
    `Life: tokens from a token's arrival to its eviction, or to the end of the run for those still held; ` +
    `mean over occurrences${run.nSet > 1 && !one ? ` and ${setUnit}s` : ""}. Tokens that come ${least === 1 ? "once or more" : `at least ${least} times`} ` +
    `before position ${grouped(lastCounted())}; later ones had no time to grow old. ` +
    (hasGates ? "Half-life: age at which retention is 0.5, from the mean of log \u03b2. " : "") + "A dot stands for a space.";
}
