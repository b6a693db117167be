// Building elements. Text always becomes text nodes: what a model wrote is never read as HTML.

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "–";
}

function number(value, digits = 2) {
  return typeof value === "number" ? value.toFixed(digits) : String(value);
}

function count(value, one, many = `${one}s`) {
  return `${value.toLocaleString("en")} ${value === 1 ? one : many}`;
}

const KINDS = {
  right: ["right", "the final answer is right"],
  lost: ["lost", "the final answer is wrong, a candidate was right"],
  wrong: ["wrong", "the final answer is wrong, and every candidate too"],
  unparsed: ["unparsed", "no final answer could be read"],
  open: ["no gold", "there is no reference answer"],
};

function kindOf(correct, covered, parsed) {
  if (!parsed) return "unparsed";
  if (correct === null) return "open";
  if (correct) return "right";
  return covered ? "lost" : "wrong";
}

function pill(kind) {
  const [label, title] = KINDS[kind];
  return el("span", { class: `pill ${kind}`, title }, label);
}

function mark(right) {
  if (right === null || right === undefined) return null;
  return el("span", { class: right ? "mark right" : "mark wrong", title: right ? "right" : "wrong" }, right ? "✓" : "✗");
}

function answerOf(answer, right) {
  const known = answer !== null && answer !== undefined;
  return el("span", { class: known ? "answer" : "answer none" }, known ? answer : "no answer", " ", mark(right));
}

function tableOf(table) {
  const bold = new Set(table.bold.map((cell) => cell.join(",")));
  const cell = (tag, text, column, row) =>
    el(tag, { class: [column < table.labels ? "" : "num", bold.has(`${row},${column}`) ? "bold" : ""].join(" ").trim() }, text);
  return el("section", { class: "table" },
    table.title ? el("h3", {}, table.title) : null,
    el("div", { class: "scroll" },
      el("table", {},
        el("thead", {}, el("tr", {}, table.columns.map((text, column) => cell("th", text, column, -1)))),
        el("tbody", {}, table.rows.map((row, i) => el("tr", {}, row.map((text, column) => cell("td", text, column, i))))))),
    table.note ? el("p", { class: "note" }, table.note) : null);
}
