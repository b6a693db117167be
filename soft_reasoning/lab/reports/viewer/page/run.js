// The page of a run: its figures, its outcomes as a bar, and the list of its problems.

const [ID, QUESTION, TARGET, ANSWER, CORRECT, RIGHT, MANY, ROUNDS, TOKENS, ANSWERS] = Array(10).keys();

function runList(index) {
  const rows = index.rows;
  const graded = rows.some((row) => row[CORRECT] !== null);
  const kind = (row) => kindOf(row[CORRECT], row[RIGHT] > 0, row[ANSWER] !== null);
  const filters = [
    { key: "all", label: "all", of: () => true },
    ...(graded ? [
      { key: "right", label: "right", of: (row) => row[CORRECT] === true },
      { key: "wrong", label: "wrong", of: (row) => row[CORRECT] === false },
      { key: "lost", label: "covered but lost", title: "wrong, though a candidate was right", of: (row) => row[CORRECT] === false && row[RIGHT] > 0 },
    ] : []),
    { key: "unparsed", label: "unparsed", title: "no final answer could be read", of: (row) => row[ANSWER] === null },
    { key: "split", label: "candidates disagree", of: (row) => row[ANSWERS] > 1 },
  ];
  const ranks = Object.keys(KINDS);
  const columns = [
    { key: "id", title: "problem", value: (row) => row[ID], cell: (row) => row[ID] },
    { key: "question", title: "question", value: (row) => row[QUESTION], cell: (row) => el("span", { class: "clip" }, row[QUESTION]) },
    { key: "outcome", title: "outcome", value: (row) => ranks.indexOf(kind(row)), cell: (row) => pill(kind(row)) },
    { key: "answer", title: "answer", value: (row) => row[ANSWER], cell: (row) => answerOf(row[ANSWER]) },
    ...(graded ? [
      { key: "gold", title: "reference", value: (row) => row[TARGET], cell: (row) => row[TARGET] },
      { key: "candidates", title: "right candidates", num: true, value: (row) => row[RIGHT] / (row[MANY] || 1),
        cell: (row) => el("span", { class: "share", title: `${row[RIGHT]} of ${row[MANY]} candidates are right` },
          el("i", { style: { width: `${(100 * row[RIGHT]) / (row[MANY] || 1)}%` } }), `${row[RIGHT]}/${row[MANY]}`) },
    ] : []),
    { key: "rounds", title: "rounds", num: true, value: (row) => row[ROUNDS], cell: (row) => String(row[ROUNDS]) },
    { key: "tokens", title: "tokens", num: true, value: (row) => row[TOKENS], cell: (row) => row[TOKENS].toLocaleString("en") },
  ];
  return new List({ rows, columns, filters, words: (row) => [row[ID], row[QUESTION], row[ANSWER] ?? "", row[TARGET] ?? ""], idOf: (row) => row[ID] });
}

function outcomesOf(index) {
  const counts = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, 0]));
  for (const row of index.rows) counts[kindOf(row[CORRECT], row[RIGHT] > 0, row[ANSWER] !== null)]++;
  const known = Object.entries(counts).filter(([, many]) => many);
  const total = index.rows.length;
  return el("div", { class: "outcomes", role: "img", "aria-label": known.map(([kind, many]) => `${many} ${KINDS[kind][0]}`).join(", ") },
    el("div", { class: "stack" }, known.map(([kind, many]) => el("i", { class: kind, style: { width: `${(100 * many) / total}%` } }))),
    el("ul", {}, known.map(([kind, many]) => el("li", { title: KINDS[kind][1] }, el("i", { class: kind }), kind === "lost" ? "covered but lost " : `${KINDS[kind][0]} `, el("b", {}, percent(many, total)), ` ${many}`))));
}

function headOf(index) {
  return el("header", { class: "head" },
    el("h1", {}, index.title),
    index.about ? el("p", { class: "about" }, [count(index.rows.length, "problem"), ...index.about].join(" · ")) : null,
    index.command ? el("p", { class: "command" }, el("code", {}, index.command)) : null,
    outcomesOf(index),
    index.pictures.length ? el("div", { class: "pictures" }, index.pictures.map(([title, src]) => el("img", { src, alt: title, title }))) : null,
    index.tables.length ? el("details", { class: "tables" },
      el("summary", {}, "Figures of the run"), el("div", { class: "grid" }, index.tables.map(tableOf))) : null);
}

const KEYS = "j k or ↑ ↓ move, Enter opens, / searches; on a problem j k or ← → go on, Escape goes back";

function runPage(index) {
  const list = runList(index);
  return {
    list,
    table: () => [headOf(index), list.render(), el("footer", {}, KEYS)],
    problem: async (place, back) => new ProblemPage(index, index.rows[place.i], await detailOf(index, place.i), place, back).render(),
  };
}
