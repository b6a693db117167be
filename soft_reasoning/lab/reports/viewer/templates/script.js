"use strict";
// The list filters, searches and sorts; a problem opens; keys move. All that is shown was rendered in Python.

const find = (where) => document.querySelector(where);
const all = (where) => [...document.querySelectorAll(where)];
const overview = find("#overview"), place = find("#problem"), search = find("input[type=search]"), sorting = find(".sorting");
const rows = all(".problems tbody tr"), heads = all("[data-sort]"), body = find(".problems tbody"), title = document.title;
const order = new Intl.Collator("en", { numeric: true });
const words = new Map(rows.map((row) => [row, [...row.querySelectorAll(".c-id, .c-question, .c-answer, .c-gold")].map((cell) => cell.textContent).join("\n").toLowerCase()]));
let found = rows, selected = 0, looking = null;

// What the address says: "show", "q" and "sort" of the list, and the "problem" that is open.
const stateOf = () => new URLSearchParams(location.hash.slice(1));
const idOf = (row) => row.cells[0].textContent;

function addressOf(changes) {
  const state = stateOf();
  for (const [key, value] of Object.entries(changes)) value ? state.set(key, value) : state.delete(key);
  return `#${state}`;
}

function update() {
  const state = stateOf(), show = state.get("show") ?? "all", sort = state.get("sort") ?? "id", down = sort.startsWith("-");
  const asked = (state.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
  const column = Math.max(0, heads.findIndex((head) => head.dataset.sort === sort.replace("-", "")));
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
  const compare = (a, b) => a === "" || b === "" ? (a === "") - (b === "") : (down ? -1 : 1) * order.compare(a, b);
  found = rows.filter((row) => row.dataset.shownBy.split(" ").includes(show) && asked.every((word) => words.get(row).includes(word)))
    .sort((a, b) => compare(value(a), value(b)));
  body.replaceChildren(...found);
  search.value = state.get("q") ?? "";
  sorting.value = sort;
  for (const chip of all("[data-show]")) chip.ariaPressed = chip.dataset.show === show;
  for (const [i, head] of heads.entries()) head.parentNode.ariaSort = i !== column ? "none" : down ? "descending" : "ascending";
  find(".told").textContent = found.length === rows.length ? "" : `${found.length} problem${found.length === 1 ? "" : "s"} of ${rows.length}`;
}

function change(changes) {
  history.replaceState(null, "", addressOf(changes));
  update();
  select(0, false);
}

function select(to, scroll = true) {
  selected = Math.max(0, Math.min(to, found.length - 1));
  for (const row of rows) row.classList.toggle("selected", row === found[selected]);
  if (scroll) found[selected]?.scrollIntoView({ block: "nearest" });
}

// The articles of a shard, which gzip and base64 packed.
async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

async function open(id) {
  const row = rows.find((one) => idOf(one) === id), shards = all(".shard"), size = Number(shards[0]?.dataset.size);
  if (!row) throw new Error(`no problem ${id}`);
  const number = rows.indexOf(row), articles = await unpack(shards[Math.floor(number / size)].textContent);
  if (looking !== id) return;
  const near = found.includes(row) ? found : rows, at = near.indexOf(row);
  place.replaceChildren(document.createRange().createContextualFragment(articles[number % size]));
  for (const [where, other] of [[".previous", near[at - 1]], [".next", near[at + 1]]]) {
    const link = place.querySelector(where);
    if (other) link.href = addressOf({ problem: idOf(other) });
    else link.ariaDisabled = "true";
  }
  place.querySelector(".back").href = addressOf({ problem: null });
  place.querySelector(".place").textContent = `${at + 1} of ${near.length}`;
  document.title = `${id} · ${title}`;
  selected = found.indexOf(row);
  compare();
  overview.hidden = true;
  window.scrollTo(0, 0);
}

async function route() {
  const opened = looking !== null;
  looking = stateOf().get("problem");
  if (!opened) update();
  if (looking !== null) return open(looking);
  place.replaceChildren();
  overview.hidden = false;
  document.title = title;
  select(selected, opened);
}

// Marks where each candidate's text leaves the chosen one, at the start of a word.
function compare() {
  const base = place.querySelector(".base")?.value, texts = [...place.querySelectorAll(".card .written")];
  for (const part of place.querySelectorAll(".shared, .parts")) part.replaceWith(...(part.dataset.end ? [] : part.childNodes));
  for (const text of texts) text.normalize();
  const other = texts[base - 1];
  for (const text of texts) {
    const at = !base || text === other ? -1 : divergence(text.textContent, other.textContent);
    text.classList.toggle("same", Boolean(base) && text !== other && at < 0);
    if (at >= 0) split(text, at);
  }
}

function divergence(text, base) {
  if (text.trim() === base.trim()) return -1;
  const offset = text.length - text.trimStart().length, own = text.trimStart(), other = base.trimStart(), word = /[\p{L}\p{N}.]/u;
  let at = 0;
  while (at < own.length && own[at] === other[at]) at++;
  while (at > 0 && word.test(own[at - 1]) && word.test((own[at] ?? "") + (other[at] ?? ""))) at--;
  return offset + at;
}

// Greys what comes before `at` in `text`, and marks the word there; a formula counts as one word.
function split(text, at) {
  const range = document.createRange();
  let before = at, node = text.firstChild;
  while (node && before >= node.textContent.length) [before, node] = [before - node.textContent.length, node.nextSibling];
  const next = node?.nodeType === Node.TEXT_NODE ? node.splitText(before) : node;
  range.setStart(text, 0);
  if (next) range.setEndBefore(next);
  else range.setEndAfter(text.lastChild ?? text);
  range.surroundContents(Object.assign(document.createElement("span"), { className: "shared" }));
  const mark = Object.assign(document.createElement("mark"), { className: "parts", title: "the first divergence" });
  if (next?.nodeType === Node.TEXT_NODE) next.splitText(/^\s*\S*/.exec(next.data)[0].length);
  text.insertBefore(mark, next ?? null);
  if (next) mark.append(next);
  else [mark.textContent, mark.dataset.end] = ["⏹", "true"];
}

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const moves = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };
  const links = { j: ".next", ArrowRight: ".next", k: ".previous", ArrowLeft: ".previous" };
  if (looking !== null) {
    const link = place.querySelector(event.key in links ? links[event.key] : ["Escape", "u"].includes(event.key) ? ".back" : "none");
    if (link?.href) location.replace(link.href);
    return;
  }
  if (event.key in moves) select(selected + moves[event.key]);
  else if (event.key === "/") search.focus();
  else if (["Enter", "o"].includes(event.key) && !event.target.closest("button, a, summary")) found[selected]?.querySelector("a").click();
  else return;
  event.preventDefault();
}

function click(event) {
  const { target } = event;
  const chip = target.closest("[data-show]"), head = target.closest("[data-sort]"), to = target.closest("[data-to]"), row = target.closest(".problems tbody tr");
  if (chip) change({ show: chip.dataset.show === "all" ? null : chip.dataset.show });
  else if (head) change({ sort: (head.parentNode.ariaSort === "ascending" ? "-" : "") + head.dataset.sort });
  else if (row && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    location.hash = addressOf({ problem: idOf(row) });
  }
  else if (to) {
    const card = find(`#${to.dataset.to}`);
    card.scrollIntoView({ block: "center", inline: "center", behavior: "smooth" });
    card.classList.add("found");
    setTimeout(() => card.classList.remove("found"), 1600);
  }
}

const failed = (error) => place.replaceChildren(Object.assign(document.createElement("p"), { className: "failed", textContent: `This problem could not be shown: ${error.message}` }));
const routed = () => route().catch(failed).finally(() => { document.documentElement.dataset.ready = "true"; });
window.addEventListener("hashchange", routed);
document.addEventListener("keydown", key);
document.addEventListener("click", click);
search.addEventListener("input", () => change({ q: search.value }));
sorting.addEventListener("change", () => change({ sort: sorting.value }));
place.addEventListener("change", (event) => event.target.matches(".base") && compare());
routed();
