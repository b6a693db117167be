// Texts beside the one they are compared with: what both begin with, and where they part.

// Where `text` leaves `base`, at the start of a word; -1 where they are the same.
function divergence(text, base) {
  if (text.trim() === base.trim()) return -1;
  const offset = text.length - text.trimStart().length;
  const own = text.trimStart();
  const other = base.trimStart();
  let at = 0;
  while (at < own.length && at < other.length && own[at] === other[at]) at++;
  while (at > 0 && /[\p{L}\p{N}.]/u.test(own[at - 1] ?? "") && /[\p{L}\p{N}.]/u.test((own[at] ?? "") + (other[at] ?? ""))) at--;
  return offset + at;
}

// What the model wrote of a candidate's text, after the opening that stands for its soft token.
function writtenOf(candidate) {
  return candidate.text.slice((candidate.opening ?? "").length);
}

// `opening` stands for a candidate's soft token; what follows it is compared with `base`.
function textOf(text, base, opening = "") {
  const lead = opening ? el("span", { class: "opening", title: "stands for the soft token" }, opening) : null;
  const shown = text.slice(opening.length).replace(/\s+$/, "");
  if (!shown && !lead) return el("pre", { class: "text" }, el("span", { class: "none" }, "empty"));
  const at = base === null || base === undefined ? -1 : divergence(shown, base);
  if (at === -1) return el("pre", { class: "text" }, lead, mathsOf(shown));
  const rest = shown.slice(at);
  const word = /^\s*\S+/.exec(rest)?.[0] ?? "";
  return el("pre", { class: "text" },
    lead,
    el("span", { class: "shared" }, mathsOf(shown.slice(0, at))),
    el("mark", { class: "parts", title: "the first divergence" }, word || "⏹"),
    mathsOf(rest.slice(word.length)));
}
