"""Rules replayed on a recording: accuracy, tokens and paired intervals, and how well judges order texts.

    python -m experiments.real_models.replay experiments/results/recordings/NAME.csv [--chart FILE.svg]

Every rule sees the same texts and programs (``record.py``), the first ones of each kind. "minus" is the
paired difference from the majority of ``--texts`` texts, or from the first rule whose name holds
``--reference``, with its 95 % interval over questions. "until settled" takes one voter after the other until
the leading answer stays ahead with this probability (the Beta rule of Adaptive-Consistency, Aggarwal et al.,
arXiv 2305.11860). The table of a run's tokens compares this with a rule for all questions together: each gets
its programs, then the question whose leading answer is least settled gets its next text, until the run's
tokens are spent. A judge's AUC is the chance that it prefers a right text to a wrong one of the same
question, ties half, over the questions that have both; +- is a standard error over questions. If the
recording has runs (``record.py --strip``), further tables compare their candidates with as many texts, and
their answers with the rules, on the questions that the runs answered.
"""

from __future__ import annotations

import argparse
import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import binomtest

from experiments.real_models.record import ANSWER, CANDIDATE, GREEDY_TEXT, PROGRAM, TEXT
from soft_reasoning.answers import Grader
from soft_reasoning.reports.plots import BLUE, ORANGE
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.history import same_answers
from soft_reasoning.search.stopping import settled

KINDS = (GREEDY_TEXT, TEXT, PROGRAM)  # every other kind is a run's or a verifier's name


@dataclass(frozen=True)
class Answered:
    """A recorded text or program: its answer (None if it has none), whether that is right, and tokens."""

    answer: str | None
    right: bool
    tokens: int
    logprob: float


@dataclass(frozen=True)
class Recorded:
    """A question with its greedy text, sampled texts and programs."""

    kind: str
    gold: str
    greedy: Answered
    texts: Sequence[Answered]
    programs: Sequence[Answered]
    """Those that judge and vote."""
    further_programs: Sequence[Answered] = ()
    """Recorded for the control, the majority of as many programs as cost the same tokens."""
    candidates: Mapping[str, Sequence[Answered]] = field(default_factory=dict)
    """A run's candidates, by the run's name."""
    answers: Mapping[str, Answered] = field(default_factory=dict)
    """A run's answer, with the tokens of the whole question, by the run's name."""
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """A verifier's score of each text, by the verifier's name."""
    verifier_tokens: Mapping[str, int] = field(default_factory=dict)
    """The tokens that a verifier wrote for all texts, by its name."""


@dataclass
class Rules:
    """Rules of one question, each with the answer that it gives and the tokens that it takes."""

    question: Recorded
    grader: Grader = field(default_factory=Grader)

    def same(self, a: Answered, b: Answered) -> bool:
        return a.answer is not None and self.grader.equal(a.answer, b.answer, self.question.kind)

    def vote(self, texts: int, programs: int = 0, weight: float = 1.0) -> tuple[bool, int]:
        """The majority of ``texts`` and ``programs``, a program counting ``weight``; whether it is right."""
        voters = [*self.question.texts[:texts], *self.question.programs[:programs]]
        weights = [1.0] * texts + [weight] * programs
        return self._right([voter.answer for voter in voters], weights), sum(voter.tokens for voter in voters)

    def best(self, judge: Callable[[Recorded, int], float], texts: int, programs: int) -> tuple[bool, int]:
        """The answers of ``texts``, each weighted by its score; whether the best is right."""
        chosen = self.question.texts[:texts]
        scores = [max(judge(self.question, i), 1e-9) for i in range(len(chosen))]
        tokens = sum(text.tokens for text in [*chosen, *self.question.programs[:programs]])
        return self._right([text.answer for text in chosen], scores), tokens

    def settled(self, order: str, confidence: float) -> tuple[bool, int]:
        """Voters in ``order`` (t a text, p a program) until the leading answer is settled.

        As in ``method=mixed_consistency``, texts come before programs in a tie.
        """
        for count in range(1, len(order) + 1):
            leading, right, tokens = self.leading(order[:count])
            if leading >= confidence:
                break
        return right, tokens

    def leading(self, order: str) -> tuple[float, bool, int]:
        """How settled the leading answer of the voters in ``order`` is, whether it is right, and tokens."""
        texts = range(order.count("t"))
        programs = range(len(self.question.texts), len(self.question.texts) + order.count("p"))
        taken = [*texts, *programs]
        votes = Counter(self._groups[i] for i in taken if i in self._groups)
        tokens = sum(self._voters[i].tokens for i in taken)
        if not votes:
            return 0.0, False, tokens
        most = max(votes.values())
        first = next(i for i in taken if votes[self._groups.get(i, -1)] == most)
        return settled(list(votes.values())), self._voters[first].right, tokens

    @cached_property
    def _voters(self) -> Sequence[Answered]:
        return [*self.question.texts, *self.question.programs]

    @cached_property
    def _groups(self) -> dict[int, int]:
        """The answer, by number, of every text and program that has one."""
        answers = [voter.answer for voter in self._voters]
        groups = same_answers(answers, self.grader, self.question.kind)
        return {i: number for number, group in enumerate(groups) for i in group}

    def covered(self, texts: int) -> tuple[bool, int]:
        """Whether any of ``texts`` is right."""
        chosen = self.question.texts[:texts]
        return any(text.right for text in chosen), sum(text.tokens for text in chosen)

    def _right(self, answers: Sequence[str | None], weights: Sequence[float]) -> bool:
        answer = self.grader.vote(answers, self.question.kind, weights)
        return answer is not None and self.grader.equal(answer, self.question.gold, self.question.kind)


def others_agree(question: Recorded, i: int) -> float:
    """The share of the other texts with the answer of text ``i``."""
    same = Rules(question).same
    return float(np.mean([same(question.texts[i], x) for j, x in enumerate(question.texts) if j != i]))


def programs_agree(question: Recorded, i: int) -> float:
    """The share of the programs that gave an answer and agree with text ``i``; 0 if none did."""
    ran = [program for program in question.programs if program.answer is not None]
    return sum(Rules(question).same(question.texts[i], program) for program in ran) / max(len(ran), 1)


def probability(question: Recorded, i: int) -> float:
    """The geometric mean probability of the tokens of text ``i``."""
    return float(np.exp(question.texts[i].logprob))


def together(question: Recorded, i: int) -> float:
    """Agreement of texts and programs, and half the mean probability."""
    return others_agree(question, i) + programs_agree(question, i) + 0.5 * probability(question, i)


JUDGES = {
    "mean probability of its tokens": probability,
    "share of the other texts that have its answer": others_agree,
    "share of the programs that have its answer": programs_agree,
    "texts + programs": lambda question, i: others_agree(question, i) + programs_agree(question, i),
    "texts + programs + 0.5 mean probability": together,
}


def score_of(name: str) -> Callable[[Recorded, int], float]:
    """The verifier ``name`` as a judge."""
    return lambda question, i: question.scores[name][i]


def judges(questions: Sequence[Recorded]) -> dict[str, Callable[[Recorded, int], float]]:
    """All judges of a recording: those of its texts and programs, and the verifiers that scored all texts."""
    names = set.intersection(*(set(question.scores) for question in questions))
    return JUDGES | {f"`verifier={name}`": score_of(name) for name in sorted(names)}


def load(path: Path, texts: int = 5, programs: int = 4, control: int = 0) -> list[Recorded]:
    """The questions of a recording with at least ``texts`` and ``programs``, of which so many vote and judge.

    ``control`` is the least number of programs for the control. A data set without programs needs none.
    """
    table = pd.read_csv(
        path,
        dtype={"answer": str, "gold": str},
        keep_default_na=False,
        na_values={name: [""] for name in ("answer", "logprob", "score")},
    )
    least = {GREEDY_TEXT: 1, TEXT: texts}
    if (table.kind == PROGRAM).any():
        least[PROGRAM] = max(programs, control)
    questions = []
    for _, rows in table.groupby("id", sort=False):
        parts = {str(kind): part.sort_values("sample") for kind, part in rows.groupby("kind")}
        if any(len(parts.get(kind, ())) < count for kind, count in least.items()):
            continue
        answered = {kind: [read(row) for row in part.itertuples()] for kind, part in parts.items()}
        written = answered.get(PROGRAM, [])
        candidates, answers = (
            {kind.removeprefix(start): x for kind, x in answered.items() if kind.startswith(start)}
            for start in (CANDIDATE, ANSWER)
        )
        verdicts = {
            kind: part
            for kind, part in parts.items()
            if kind not in KINDS and not kind.startswith((CANDIDATE, ANSWER))
        }
        question = Recorded(
            rows.iloc[0].type,
            rows.iloc[0].gold,
            answered[GREEDY_TEXT][0],
            answered[TEXT][:texts],
            written[:programs],
            written[programs:],
            candidates,
            {run: answer for run, [answer] in answers.items()},
            {name: part.score.astype(float).tolist()[:texts] for name, part in verdicts.items()},
            {name: int(part.tokens.sum()) for name, part in verdicts.items()},
        )
        questions.append(question)
    return questions


def read(row: Any) -> Answered:
    """A row of a recording."""
    return Answered(None if pd.isna(row.answer) else row.answer, bool(row.right), row.tokens, row.logprob)


def minus(right: Sequence[float], other: Sequence[float]) -> str:
    """The paired difference in points, with its 95 % interval."""
    interval = paired_bootstrap(right, other)
    return f"{100 * interval.difference:+.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def rules_table(questions: Sequence[Recorded], texts: int, reference: str | None = None) -> Table:
    """The rules; the paired difference is from the first whose name holds ``reference``."""
    results = outcomes(questions, texts)
    wanted = reference or f"majority of {texts} texts"
    compared = next((name for name in results if wanted in name), None)
    if compared is None:
        raise SystemExit(
            f"--reference: expected a part of a rule's name, got {wanted!r}: {', '.join(results)}"
        )
    base = [float(right) for right, _ in results[compared]]
    rows = []
    for name, answered in results.items():
        right = [float(x) for x, _ in answered]
        spent, accuracy = float(np.mean([tokens for _, tokens in answered])), 100 * sum(right) / len(right)
        shown = minus(right, base)
        rows.append(
            [name, f"{accuracy:.1f}", shown, f"{spent:.0f}", f"{100 * spent / max(accuracy, 1e-9):.0f}"]
        )
    return Table(["rule", "right %", f"minus {compared}", "tokens", "tokens per right answer"], rows)


def outcomes(questions: Sequence[Recorded], texts: int) -> dict[str, list[tuple[bool, int]]]:
    """Whether each question's answer is right and the tokens it took, by rule."""
    rules = [Rules(question) for question in questions]
    results: dict[str, list[tuple[bool, int]]] = {
        "greedy text (`cot`)": [(q.greedy.right, q.greedy.tokens) for q in questions],
        "one text": [(q.texts[0].right, q.texts[0].tokens) for q in questions],
    }
    for count in range(2, texts + 1):
        results[f"majority of {count} texts (`self_consistency`)"] = [rule.vote(count) for rule in rules]
    for confidence in (0.85, 0.95):
        name = f"texts until settled ({confidence})"
        results[name] = [rule.settled("t" * texts, confidence) for rule in rules]
    programs = min(len(question.programs) for question in questions)
    if programs:
        for confidence in (0.85, 0.95):
            name = f"programs, then texts until settled ({confidence}, `mixed_consistency`)"
            order = "p" * programs + "t" * texts
            results[name] = [rule.settled(order, confidence) for rule in rules]
        results["one program (`program`)"] = [rule.vote(0, 1) for rule in rules]
        every = [Rules(replace(q, programs=[*q.programs, *q.further_programs])) for q in questions]
        for count in range(programs, min(len(rule.question.programs) for rule in every) + 1, programs):
            name = f"majority of {count} programs (`program_consistency`)"
            results[name] = [rule.vote(0, count) for rule in every]
        for count in range(1, texts + 1):
            name = f"{count} texts and {programs} programs vote, a program counts half"
            results[name] = [rule.vote(count, programs, 0.5) for rule in rules]
        name = f"{texts} texts, each weighted by the programs (`verifier=program`)"
        results[name] = [rule.best(programs_agree, texts, programs) for rule in rules]
        name = f"{texts} texts, each weighted by texts + programs + 0.5 mean probability"
        results[name] = [rule.best(together, texts, programs) for rule in rules]
    for verifier in sorted(set.intersection(*(set(question.scores) for question in questions))):
        best = [rule.best(score_of(verifier), texts, 0) for rule in rules]
        spent = [question.verifier_tokens[verifier] for question in questions]
        name = f"{texts} texts, each weighted by `verifier={verifier}`"
        results[name] = [(right, tokens + more) for (right, tokens), more in zip(best, spent, strict=True)]
    results[f"a perfect judge of {texts} texts (coverage)"] = [rule.covered(texts) for rule in rules]
    return results


def spending_table(questions: Sequence[Recorded], texts: int) -> Table:
    """A run's tokens spent on the least settled questions, against a rule for each question."""
    rules = [Rules(question) for question in questions]
    programs = min(len(question.programs) for question in questions)
    order = "p" * programs + "t" * texts
    states = [rule.leading(order[:programs]) for rule in rules]
    waiting = [(state[0], programs, i) for i, state in enumerate(states)]
    heapq.heapify(waiting)
    path = [(sum(tokens for *_, tokens in states), sum(right for _, right, _ in states))]
    while waiting:
        _, count, i = heapq.heappop(waiting)
        if count < len(order):
            before, states[i] = states[i], rules[i].leading(order[: count + 1])
            spent, right = path[-1]
            path.append((spent + states[i][2] - before[2], right + states[i][1] - before[1]))
            heapq.heappush(waiting, (states[i][0], count + 1, i))
    rows = []
    for confidence in (0.8, 0.85, 0.9, 0.95):
        for most in (texts - 2, texts - 1, texts):
            ended = [rule.settled(order[: programs + most], confidence) for rule in rules]
            right, tokens = sum(r for r, _ in ended), sum(t for _, t in ended)
            at = max(hits for spent, hits in path if spent <= max(tokens, path[0][0]))
            least = next((spent for spent, hits in path if hits >= right), None)
            saved = "never" if least is None else f"{100 * (1 - least / tokens):.0f}"
            shares = (f"{100 * x / len(rules):.1f}" for x in (right, at))
            rows.append([f"{confidence}, at most {most} texts", f"{tokens / len(rules):.0f}", *shares, saved])
    columns = [
        "each question until settled",
        "tokens",
        "right %",
        "a run's tokens: right %",
        "tokens saved %",
    ]
    return Table(columns, rows)


def within_question_auc(questions: Sequence[Recorded], scores: Sequence[Sequence[float]]) -> list[float]:
    """The AUC of the texts' scores, for each question with right and wrong texts."""
    values: list[float] = []
    for question, given in zip(questions, scores, strict=True):
        judged = list(zip(question.texts, given, strict=False))
        right = [score for text, score in judged if text.right]
        wrong = [score for text, score in judged if not text.right]
        if right and wrong:
            values.append(float(np.mean([(a > b) + 0.5 * (a == b) for a in right for b in wrong])))
    return values


def judges_table(questions: Sequence[Recorded], texts: int) -> Table:
    rows, values = [], list[float]()
    for name, judge in judges(questions).items():
        scores = [[judge(question, i) for i in range(texts)] for question in questions]
        values = within_question_auc(questions, scores)
        error = float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")
        means = (
            np.mean([judge(q, i) for q in questions for i in range(texts) if q.texts[i].right == right])
            for right in (True, False)
        )
        votes = [Rules(question).best(judge, texts, 0)[0] for question in questions]
        row = [name, f"{np.mean(values):.3f} ± {error:.3f}", *(f"{mean:.2f}" for mean in means)]
        rows.append([*row, f"{100 * np.mean(votes):.1f}"])
    columns = ["judge of a text", f"AUC within the {len(values)} questions with right and wrong texts"]
    columns += ["mean for right texts", "for wrong ones", "a vote weighted by it, right %"]
    return Table(columns, rows)


def arms_table(questions: Sequence[Recorded], run: str, count: int) -> Table:
    """The rules on ``count`` texts, and on as many candidates of ``run``, of the same questions."""
    programs = min(len(question.programs) for question in questions)
    rules: dict[str, Callable[[Rules], tuple[bool, int]]] = {
        "one": lambda rule: rule.vote(1),
        f"majority of {count}": lambda rule: rule.vote(count),
        f"{count}, weighted by the programs": lambda rule: rule.best(programs_agree, count, programs),
        f"a perfect judge of {count} (coverage)": lambda rule: rule.covered(count),
    }
    rows = []
    for name, rule in rules.items():
        texts = [rule(Rules(question)) for question in questions]
        soft = [rule(Rules(replace(question, texts=question.candidates[run]))) for question in questions]
        right, other = ([float(x) for x, _ in outcomes] for outcomes in (soft, texts))
        means = [f"{100 * np.mean(other):.1f}", f"{100 * np.mean(right):.1f}", minus(right, other)]
        rows.append([name, *means, *(f"{np.mean([t for _, t in arm]):.0f}" for arm in (texts, soft))])
    columns = ["rule", "sampled %", f"{run} %", "difference", "tokens", f"tokens, {run}"]
    return Table(columns, rows)


def runs_table(questions: Sequence[Recorded], texts: int, reference: str) -> Table:
    """The answers of the runs of ``questions``, beside rules on their texts; differences from a run."""
    rules = [Rules(question) for question in questions]
    programs = min(len(question.programs) for question in questions)
    order = "p" * programs + "t" * texts
    results = {
        "greedy text": (
            [(q.greedy.right, q.greedy.tokens) for q in questions],
            [[q.greedy] for q in questions],
        ),
        f"majority of {texts} texts": (
            [rule.vote(texts) for rule in rules],
            [q.texts[:texts] for q in questions],
        ),
        f"{texts} texts, weighted by the programs": (
            [rule.best(programs_agree, texts, programs) for rule in rules],
            [q.texts[:texts] for q in questions],
        ),
        "programs, then texts until settled (0.85)": ([rule.settled(order, 0.85) for rule in rules], None),
    }
    for run in sorted(questions[0].answers):
        answers = [question.answers[run] for question in questions]
        results[run] = ([(x.right, x.tokens) for x in answers], [q.candidates[run] for q in questions])
    base = [float(right) for right, _ in results[reference][0]]
    rows = []
    for name, (answered, tried) in results.items():
        right = [float(x) for x, _ in answered]
        row = [name, f"{100 * np.mean(right):.1f}", minus(base, right) if name != reference else ""]
        covered = "" if tried is None else f"{100 * np.mean([any(x.right for x in c) for c in tried]):.1f}"
        count = "" if tried is None else f"{np.mean([len(c) for c in tried]):.1f}"
        rows.append([*row, count, covered, f"{np.mean([tokens for _, tokens in answered]):.0f}"])
    columns = ["rule or run", "right %", f"{reference} minus it", "texts", "coverage %", "tokens"]
    return Table(columns, rows)


def draw(questions: Sequence[Recorded], path: Path) -> None:
    """Draw the accuracy of five rules with 95 % intervals (Wilson), and write their tokens beside them."""
    from matplotlib.figure import Figure

    rules = [Rules(question) for question in questions]
    bars = {
        "greedy": [(q.greedy.right, q.greedy.tokens) for q in questions],
        "4 programs": [rule.vote(0, 4) for rule in rules],
        "self-consistency, 3": [rule.vote(3) for rule in rules],
        "self-consistency, 5": [rule.vote(5) for rule in rules],
        "programs, then texts until settled": [rule.settled("pppp" + "ttttt", 0.85) for rule in rules],
    }
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    axes = figure.subplots()
    for place, (name, answered) in enumerate(reversed(bars.items())):
        right, spent = sum(x for x, _ in answered), np.mean([tokens for _, tokens in answered])
        interval = binomtest(right, len(answered)).proportion_ci(method="wilson")
        share = right / len(answered)
        errors = [[100 * (share - interval.low)], [100 * (interval.high - share)]]
        axes.barh(place, 100 * share, color=ORANGE if place == 0 else BLUE, height=0.7)
        axes.errorbar(100 * share, place, xerr=errors, color="black", capsize=3)
        axes.text(
            2,
            place,
            f"{name}: {100 * share:.1f} %, {spent:,.0f} tokens",
            color="white",
            va="center",
            fontsize=9,
        )
    axes.set_yticks([])
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"right answers in %, {len(questions)} questions, with 95 % intervals")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", type=Path)
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--programs", type=int, default=4, help="how many programs judge and vote")
    parser.add_argument("--control", type=int, default=0, help="least programs, whose majority is a control")
    parser.add_argument("--judged", metavar="VERIFIER", help="only the questions whose texts it scored")
    parser.add_argument("--reference", help="the rule from which differences are taken")
    parser.add_argument("--chart", type=Path, help="draw the rules of the README")
    arguments = parser.parse_args()
    questions = load(arguments.recording, arguments.texts, arguments.programs, arguments.control)
    if arguments.judged:
        questions = [question for question in questions if arguments.judged in question.scores]
    if not questions:
        raise SystemExit(
            f"{arguments.recording}: expected questions with {arguments.texts} texts, "
            f"{max(arguments.programs, arguments.control)} programs and the scores of --judged, got none"
        )
    print(f"{len(questions)} questions\n")
    print(rules_table(questions, arguments.texts, arguments.reference).markdown(), "\n")
    print(judges_table(questions, arguments.texts).markdown())
    if all(question.programs for question in questions):
        print(f"\n{spending_table(questions, arguments.texts).markdown()}")
    if arguments.chart:
        draw(questions, arguments.chart)
    for run in sorted({name for question in questions for name in question.candidates}):
        both = [q for q in questions if len(q.candidates.get(run, ())) >= arguments.texts]
        if len(both) > 1:
            print(f"\n{len(both)} questions\n\n{arms_table(both, run, arguments.texts).markdown()}")
    if runs := sorted({name for question in questions for name in question.answers}):
        every = [question for question in questions if len(question.answers) == len(runs)]
        print(f"\n{len(every)} questions\n\n{runs_table(every, arguments.texts, runs[-1]).markdown()}")


if __name__ == "__main__":
    main()
