// The page of one problem of a run: prompt, final vote, and rounds as columns of candidates.

const SHORT = 700;

// Colours of rewards, from low to high.
const SCALE = [[84, 50, 140], [59, 92, 152], [33, 145, 140], [94, 201, 98], [253, 231, 37]];

function colour(share) {
  const place = Math.max(0, Math.min(1, share)) * (SCALE.length - 1);
  const from = Math.min(Math.floor(place), SCALE.length - 2);
  const mix = SCALE[from].map((value, i) => Math.round(value + (place - from) * (SCALE[from + 1][i] - value)));
  return `rgb(${mix.join(" ")})`;
}

function rewardScale(candidates) {
  const rewards = candidates.map((c) => c.reward).filter((r) => typeof r === "number");
  const low = Math.min(...rewards);
  const high = Math.max(...rewards);
  const share = (reward) => (high > low ? (reward - low) / (high - low) : 1);
  return (reward) => (typeof reward === "number" ? colour(share(reward)) : "var(--muted)");
}

function promptOf(parts, question) {
  const soft = () => el("span", { class: "soft", title: "the soft tokens that the search chooses are inserted here" }, "soft token");
  const content = parts.flatMap((part, i) => (i ? [soft(), part] : [part]));
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  if (parts.length === 1 && parts[0] === question) return null;
  return el("details", { class: "panel prompt", open: length <= SHORT },
    el("summary", {}, "Prompt"), el("pre", { class: "text" }, content));
}

function votesOf(votes, rule) {
  if (!votes.length) return el("p", { class: "none" }, "No answer was given.");
  const sizeOf = (vote) => vote.weight ?? vote.candidates + vote.verifier;
  const most = Math.max(...votes.map(sizeOf)) || 1;
  const bar = (vote) => {
    const own = vote.weight === null ? vote.candidates : vote.weight - vote.by_verifier;
    const share = (value) => ({ width: `${(100 * value) / most}%` });
    return el("span", { class: `heap ${vote.right === null ? "open" : vote.right ? "right" : "wrong"}` },
      vote.candidates ? el("i", { style: share(own) }) : null,
      vote.verifier ? el("i", { class: "by-verifier", style: share(sizeOf(vote) - own) }) : null);
  };
  const sides = (vote) => [
    vote.candidates ? count(vote.candidates, "candidate") : null,
    vote.verifier ? `verifier ${["", "once", "twice"][vote.verifier] ?? `${vote.verifier} times`}` : null,
  ].filter(Boolean).join(", ");
  const shown = votes.slice(0, 8);
  return [
    el("ol", { class: "votes" }, shown.map((vote) => el("li", { class: vote.chosen ? "chosen" : "" },
      answerOf(vote.answer, vote.right), bar(vote),
      el("span", { class: "weight" }, vote.weight === null ? "" : number(vote.weight)),
      el("span", { class: "sides" }, sides(vote), vote.chosen ? el("b", {}, " · chosen") : null)))),
    votes.length > shown.length ? el("p", { class: "note" }, `and ${count(votes.length - shown.length, "other answer")}`) : null,
    el("p", { class: "note" }, rule ? `Rule: ${rule}.${votes.some((vote) => vote.verifier) ? " Hatched: the verifier's own answers." : ""}` : "How often each answer was given."),
  ];
}

function fact(name, value, title) {
  return value === null || value === undefined ? null : el("div", { class: "fact", title }, el("dt", {}, name), el("dd", {}, value));
}

function factsOf(c) {
  const expected = c.mean === undefined ? null : `${number(c.mean)}${c.sd === undefined ? "" : ` ± ${number(c.sd)}`}`;
  return el("dl", { class: "facts" },
    fact("reward", c.reward === undefined ? null : number(c.reward)),
    fact("verdict", c.verified === undefined ? null : number(c.verified), "the verifier's score, its confidence included"),
    c.agreement !== undefined && c.agreement !== c.verified ? fact("agreement", number(c.agreement), "the verifier's score before confidence") : null,
    fact("coherence", c.coherence === undefined ? null : number(c.coherence, 3)),
    fact("expected", expected, "posterior mean and deviation of the reward before the point was tried"),
    fact("delta", c.delta === undefined ? null : number(c.delta)),
    fact("first token", c.first === undefined ? null : JSON.stringify(c.first)),
    fact("tokens", c.tokens === undefined ? null : `${c.tokens}${c.finish === "length" ? ", cut" : ""}`, c.finish === "length" ? "the token limit was reached" : null));
}

function tokensOf(name, groups, title) {
  if (!groups || !groups.flat().length) return null;
  return el("div", { class: "nearest", title }, el("span", {}, name),
    groups.map((group, i) => [i ? el("span", { class: "next" }, "|") : null,
      group.map(([token, value]) => el("code", {}, token.replaceAll("\n", "⏎").replaceAll(" ", "␣"), el("small", {}, number(value))))]));
}

class ProblemPage {
  constructor(index, row, detail, place, back) {
    Object.assign(this, { index, row, detail, place, back });
    this.candidates = detail.rounds.flatMap((round) => round.candidates);
    this.scale = rewardScale(this.candidates);
    this.base = this.candidates.length > 1 ? "0" : "none";
    this.full = false;
  }

  render() {
    const { row, detail, index } = this;
    const [id, question, target, answer, correct, right, many] = row;
    this.rounds = el("div");
    this.showRounds();
    return el("article", { class: "problem" },
      barOf(id, this.place, this.back, pill(kindOf(correct, right > 0, answer !== null))),
      el("p", { class: "question" }, mathsOf(question)),
      el("dl", { class: "outcome" },
        fact("final answer", answerOf(answer, correct)), fact("reference", target ?? "unknown"),
        correct === null ? null : fact("right candidates", `${right} of ${many}`)),
      promptOf(detail.prompt, question),
      el("section", { class: "panel" }, el("h2", {}, index.rule && !index.rule.endsWith("vote") ? "Answers given" : "Final vote"), votesOf(detail.votes, index.rule)),
      el("section", { class: "search" },
        el("header", {}, el("h2", {}, detail.rounds.length > 1 ? count(detail.rounds.length, "round") : count(this.candidates.length, "candidate"),
          detail.ended ? el("span", { class: "note" }, ` ended: ${detail.ended}`) : null), this.options()),
        this.rounds));
  }

  options() {
    if (!this.candidates.length) return null;
    const bases = [...this.candidates.map((_, i) => [String(i), `candidate ${i + 1}`]), ["none", "nothing"]];
    const select = el("select", { onchange: () => { this.base = select.value; this.showRounds(); } },
      bases.map(([value, label]) => el("option", { value, selected: value === this.base }, label)));
    const full = el("input", { type: "checkbox", onchange: () => { this.full = full.checked; this.showRounds(); } });
    return el("div", { class: "options" }, el("label", {}, "divergence from ", select), el("label", {}, full, " repeated texts"));
  }

  showRounds() {
    const base = this.base === "none" ? null : writtenOf(this.candidates[this.base]);
    const first = new Map();
    let i = 0;
    const columns = this.detail.rounds.map((round) => el("section", { class: "round" },
      this.detail.rounds.length > 1 ? this.headOf(round) : null,
      round.verifier ? this.verifierOf(round) : null,
      el("div", { class: "cards" }, round.candidates.map((c) => {
        const key = writtenOf(c).trim();
        const same = this.full ? undefined : first.get(key);
        if (!first.has(key)) first.set(key, i);
        return this.cardOf(c, i++, base, same);
      }))));
    const single = columns.length === 1;
    this.rounds.className = single ? "rounds single" : "rounds";
    this.rounds.replaceChildren(...columns);
  }

  headOf(round) {
    const rewards = round.candidates.map((c) => c.reward).filter((r) => typeof r === "number");
    const mean = rewards.length ? rewards.reduce((a, b) => a + b, 0) / rewards.length : null;
    return el("h3", {}, `Round ${round.round + 1}`, mean === null ? null : el("span", { class: "note" }, `mean reward ${number(mean)}`));
  }

  verifierOf(round) {
    const said = round.verifier;
    const answers = said.answers.map((answer, i) => [i ? ", " : null, answerOf(answer, said.right[i])]);
    return el("details", { class: "verifier", open: said.texts.length === 1 },
      el("summary", {}, "Verifier ", answers.length ? answers : "judged"), said.texts.map((text, i) => [
        said.prompts[i] ? el("details", {}, el("summary", { class: "note" }, "prompt"), textOf(said.prompts[i])) : null, textOf(text)]));
  }

  cardOf(c, i, base, same) {
    const copy = same !== undefined && same !== i;
    const repeats = base !== null && String(i) !== this.base && divergence(writtenOf(c).replace(/\s+$/, ""), base) === -1;
    return el("article", {
      class: `card ${c.right === null ? "" : c.right ? "right" : "wrong"}`, id: `candidate-${i}`,
    },
      el("header", {},
        el("span", { class: "dot", style: { background: this.scale(c.reward) }, title: "coloured by reward" }, String(i + 1)),
        answerOf(c.answer, c.right)),
      factsOf(c),
      tokensOf("near", c.nearest, "the tokens nearest to the soft token, by cosine"),
      tokensOf("of", c.weights, "the heaviest of the tokens that the soft token is made of"),
      copy ? el("p", { class: "note" }, "same text as ", el("a", { href: `#candidate-${same}`, onclick: (event) => { event.preventDefault(); this.show(same); } }, `candidate ${same + 1}`))
        : [textOf(c.text, String(i) === this.base ? null : base, c.opening), repeats ? el("p", { class: "note" }, "same text") : null]);
  }

  show(i) {
    const card = document.getElementById(`candidate-${i}`);
    card.scrollIntoView({ block: "center", inline: "center", behavior: "smooth" });
    card.classList.add("found");
    setTimeout(() => card.classList.remove("found"), 1600);
  }
}

// The bar of a problem's page: back, previous and next.
function barOf(id, place, back, ...more) {
  const step = (label, href, title) => el("a", { class: `button ${href === null ? "off" : ""}`, href, title, "aria-disabled": String(href === null) }, label);
  return el("nav", { class: "bar" },
    el("a", { class: "button", href: back, title: "Escape" }, "← problems"),
    el("h1", {}, id), more,
    el("span", { class: "place" }, `${place.place + 1} of ${place.of}`),
    step("‹", place.previous, "previous: k or ←"), step("›", place.next, "next: j or →"));
}
