// The page of a comparison or a sweep: figures, who is right where another is wrong, and the problems side by side.

const [GROUP, NAME, ASKED, GOLD, CELLS] = Array(5).keys();

// How many of a column's runs are right, of those that have the problem.
function scoreOf(cell) {
  const graded = cell.filter((run) => run !== null && run[1] !== null);
  return graded.length ? graded.filter((run) => run[1]).length / graded.length : null;
}

function cellOf(cell) {
  const known = cell.filter((run) => run !== null);
  if (!known.length) return el("span", { class: "none" }, "–");
  const right = known.filter((run) => run[1]).length;
  const graded = known.some((run) => run[1] !== null);
  const kind = !graded ? "open" : right === known.length ? "right" : right ? "partly" : "wrong";
  const answers = [...new Set(known.map((run) => run[0] ?? "no answer"))];
  const told = known.length > 1 && graded ? `${right}/${known.length}` : null;
  return el("span", { class: `cell ${kind}`, title: answers.join(", ") }, el("span", { class: "said" }, answers.join(", ")), told ? el("b", {}, told) : mark(known[0][1]));
}

function overviewList(index, rows, columns) {
  const scores = new Map(rows.map((row) => [row, row[CELLS].map(scoreOf)]));
  const known = (row) => scores.get(row).filter((score) => score !== null);
  const answers = (row) => new Set(row[CELLS].flatMap((cell) => cell.filter(Boolean).map((run) => run[0])));
  const filters = [
    { key: "all", label: "all", of: () => true },
    { key: "disagree", label: "methods disagree", title: "some are right and some are wrong", of: (row) => new Set(known(row)).size > 1 },
    { key: "differ", label: "answers differ", of: (row) => answers(row).size > 1 },
    { key: "right", label: "all right", of: (row) => known(row).length > 0 && known(row).every((score) => score === 1) },
    { key: "wrong", label: "all wrong", of: (row) => known(row).length > 0 && known(row).every((score) => score === 0) },
    { key: "lost", label: "covered but lost", title: "some run had a right candidate and another answer", of: (row) => row[CELLS].some((cell) => cell.some((run) => run && run[1] === false && run[2])) },
    { key: "unparsed", label: "unparsed", title: "some run's answer could not be read", of: (row) => row[CELLS].some((cell) => cell.some((run) => run && run[0] === null)) },
  ];
  const pair = /^(\d+)-over-(\d+)$/.exec(stateOf().get("show") ?? "");
  if (pair && columns[pair[1]] && columns[pair[2]]) filters.push({
    key: pair[0], label: `${columns[pair[1]].label} right, ${columns[pair[2]].label} wrong`,
    of: (row) => beats(scores.get(row), pair[1], pair[2]),
  });
  const shown = [
    { key: "id", title: "problem", value: (row) => row[NAME], cell: (row) => row[NAME] },
    { key: "question", title: "question", value: (row) => row[ASKED], cell: (row) => el("span", { class: "clip" }, row[ASKED]) },
    { key: "gold", title: "reference", value: (row) => row[GOLD], cell: (row) => row[GOLD] ?? "–" },
    ...columns.map((column, c) => ({ key: `m${c}`, title: column.label, value: (row) => scores.get(row)[c], cell: (row) => cellOf(row[CELLS][c]) })),
  ];
  return new List({ rows, columns: shown, filters, words: (row) => [row[NAME], row[ASKED], row[GOLD] ?? "", ...answers(row)].map(String), idOf: (row) => row[NAME] });
}

function beats(scores, one, other) {
  return scores[one] !== null && scores[other] !== null && scores[one] > scores[other];
}

// On how many problems the row is right (or more often right) where the column is wrong; each leads to them.
function matrixOf(rows, columns) {
  if (columns.length < 2 || columns.length > 12) return null;
  const scores = rows.map((row) => row[CELLS].map(scoreOf));
  const many = (one, other) => scores.filter((score) => beats(score, one, other)).length;
  const most = Math.max(1, ...columns.flatMap((_, a) => columns.map((__, b) => many(a, b))));
  return el("section", { class: "table matrix" }, el("h3", {}, "Right where another is wrong"),
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "right ↓ wrong →"), columns.map((c) => el("th", { class: "num" }, c.label)))),
      el("tbody", {}, columns.map((a, i) => el("tr", {}, el("th", { scope: "row" }, a.label), columns.map((_, j) => {
        const found = many(i, j);
        return el("td", { class: "num", style: { "--share": i === j ? 0 : found / most } },
          i === j ? "" : found ? el("a", { href: addressOf({ show: `${i}-over-${j}`, problem: null }) }, String(found)) : "0");
      })))))));
}

function runsOf(columns) {
  return el("section", { class: "table" }, el("h3", {}, "Runs"), el("ul", { class: "runs" }, columns.map((column) => el("li", {}, el("span", {}, column.label),
    column.runs.map((run, i) => el("a", { href: run }, column.runs.length > 1 ? `run ${i + 1}` : "open"))))));
}

function comparedOf(index, row, texts, columns, place, back) {
  const [, name, asked, gold, cells] = row;
  const base = columns.findIndex((column) => column.label === "cot" || column.label.startsWith("cot "));
  const greedy = base >= 0 ? texts[base].find((one) => one !== null)?.text : undefined;
  const runs = columns.flatMap((column, c) => cells[c].map((run, i) => ({ column, run, c, i })).filter((one) => one.run !== null));
  return el("article", { class: "problem" }, barOf(name, place, back),
    el("p", { class: "question" }, mathsOf(asked)),
    el("dl", { class: "outcome" }, fact("reference", gold ?? "unknown")),
    greedy === undefined ? null : el("p", { class: "note" }, "Marked: the first divergence from the greedy completion."),
    el("div", { class: "compared" }, runs.map(({ column, run, c, i }) => {
      const [answer, correct, covered] = run;
      const found = texts[c][i];
      return el("article", { class: `card ${correct === null ? "" : correct ? "right" : "wrong"}` },
        el("header", {}, el("h3", {}, column.label, column.runs.length > 1 ? el("span", { class: "note" }, `run ${i + 1}`) : null), pill(kindOf(correct, covered, answer !== null))),
        el("p", {}, answerOf(answer, correct), " ", el("a", { class: "into", href: `${column.runs[i]}#${new URLSearchParams({ problem: name })}` }, "all candidates →")),
        found === null ? null : textOf(found.text, c === base || greedy === undefined ? null : afterAnchor(greedy, found.anchor), found.opening));
    })));
}

function overviewPage(index) {
  const chosen = () => Math.min(Number(stateOf().get("group")) || 0, index.groups.length - 1);
  const rowsOf = (group) => index.rows.filter((row) => row[GROUP] === group);
  let current = null;
  const listOf = (group) => {
    const key = `${group} ${/^\d+-over-\d+$/.exec(stateOf().get("show") ?? "") ?? ""}`;
    if (current?.key !== key) current = { key, list: overviewList(index, rowsOf(group), index.groups[group].columns) };
    return current.list;
  };
  return {
    get list() { return current?.list ?? listOf(chosen()); },
    table: () => {
      const group = chosen();
      const columns = index.groups[group].columns;
      const groups = index.groups.length < 2 ? null : el("div", { class: "chips groups" }, index.groups.map((one, g) =>
        el("a", { class: "chip", href: `#group=${g}`, "aria-current": String(g === group) }, one.name)));
      return [headOf(index), groups, el("div", { class: "grid sides" }, matrixOf(rowsOf(group), columns), runsOf(columns)),
        listOf(group).render(), el("footer", {}, KEYS)];
    },
    problem: async (place, back) => {
      const group = chosen();
      const row = rowsOf(group)[place.i];
      const texts = await detailOf(index, index.rows.indexOf(row));
      return comparedOf(index, row, texts, index.groups[group].columns, place, back);
    },
  };
}
