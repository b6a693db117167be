"""Rules replayed on recordings: accuracy, tokens and paired intervals, and how well judges order samples.

    python -m experiments.real_models.replay experiments/results/recordings/NAME.csv [--chart FILE.svg]

The questions of several recordings count alike. Every rule sees the same texts and programs (``record.py``),
the first ones of each kind. "minus" is the paired difference from the majority of ``--texts`` texts, or from
the first rule whose name holds ``--reference``, with its 95 % interval over questions. "until settled" takes
all programs, then one text after the other until the leading answer stays ahead with this probability, as
the package's method does. The table of a run's tokens compares this with a rule for all questions together:
each gets its programs, then the question whose leading answer is least settled gets its next text, until the
run's tokens are spent. A judge's AUC is the chance that it prefers a right text to a wrong one of the same
question, ties half, over the questions that have both; +- is a standard error over questions. If the
recording has runs (``record.py --strip``), further tables compare their candidates with as many texts, and
their answers with the rules, on the questions that the runs answered.
"""

from __future__ import annotations

import argparse
import heapq
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import binomtest

from experiments.real_models.recording import Recorded, load
from experiments.real_models.rules import (
    Outcomes,
    Rules,
    accuracy,
    coverage,
    greedy,
    hits,
    judges,
    majorities,
    majority,
    minus,
    mixtures,
    program_scores,
    programs_agree,
    searches,
    tokens,
    tokens_per_right,
    within_question_auc,
)
from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.lab.reports.plots import BLUE, ORANGE
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.method.mixed_consistency import MixedConsistency


def rules_table(questions: Sequence[Recorded], texts: int, reference: str | None = None) -> Table:
    """The rules; the paired difference is from the first whose name holds ``reference``."""
    of_texts, of_programs = majorities(questions)
    results: dict[str, Outcomes] = {"greedy (`cot`)": greedy(questions)}
    results |= {majority(n, "samples"): outcomes for n, outcomes in of_texts.items()}
    results |= {majority(n, "programs"): outcomes for n, outcomes in of_programs.items()}
    results |= mixtures(questions, texts)
    results[f"a perfect judge of {texts} samples (coverage)"] = coverage(questions, texts)
    wanted = reference or majority(texts, "samples")
    compared = next((name for name in results if wanted in name), None)
    if compared is None:
        raise SystemExit(
            f"--reference: expected a part of a rule's name, got {wanted!r}: {', '.join(results)}"
        )
    rows = [
        [
            name,
            f"{accuracy(outcomes):.1f}",
            minus(hits(outcomes), hits(results[compared])),
            f"{tokens(outcomes):.0f}",
            f"{tokens_per_right(outcomes):.0f}",
        ]
        for name, outcomes in results.items()
    ]
    return Table(["rule", "accuracy %", f"minus {compared}", "tokens", "tokens per right answer"], rows)


def spending_table(questions: Sequence[Recorded], texts: int) -> Table:
    """A run's tokens spent on the least settled questions, against a rule for each question."""
    rules = [Rules(question) for question in questions]
    programs = min(len(question.programs) for question in questions)
    method = MixedConsistency()
    states = [rule.voted(0, programs, method) for rule in rules]
    waiting = [(rule.settled(0, programs, method), 0, i) for i, rule in enumerate(rules)]
    heapq.heapify(waiting)
    path = [(sum(spent for _, spent in states), sum(right for right, _ in states))]
    while waiting:
        _, count, i = heapq.heappop(waiting)
        if count < texts:
            before, states[i] = states[i], rules[i].voted(count + 1, programs, method)
            spent, right = path[-1]
            path.append((spent + states[i][1] - before[1], right + states[i][0] - before[0]))
            heapq.heappush(waiting, (rules[i].settled(count + 1, programs, method), count + 1, i))
    rows = []
    for confidence in (0.8, 0.85, 0.9, 0.95):
        for most in (texts - 2, texts - 1, texts):
            method = MixedConsistency(confidence=confidence)
            ended = [rule.mixed(most, programs, method) for rule in rules]
            right, total = sum(r for r, _ in ended), sum(t for _, t in ended)
            at = [hits for spent, hits in path if spent <= max(total, path[0][0])][-1]
            least = next((spent for spent, hits in path if hits >= right), None)  # as only gold answers tell
            saved = "never" if least is None else f"{100 * (1 - least / total):.0f}"
            shares = (f"{100 * x / len(rules):.1f}" for x in (right, at))
            name = f"{confidence}, at most {most} samples"
            rows.append([name, f"{total / len(rules):.0f}", *shares, saved])
    columns = [
        "each question until settled",
        "tokens",
        "accuracy %",
        "a run's tokens: accuracy %",
        "tokens saved at most %",
    ]
    return Table(columns, rows)


def finals_table(questions: Sequence[Recorded], texts: int) -> Table:
    """The final rules of ``verified_sampling verifier=program``."""
    results: dict[str, list[float]] = {}
    programs = min(len(question.programs) for question in questions)
    rules = ("reward_vote", "weighted_vote", "vote", "best_reward")
    finals = {rule: FinalAnswer(rule) for rule in rules}
    finals["weighted_vote, verifier_weight=2"] = FinalAnswer("weighted_vote", verifier_weight=2)
    for name, final in finals.items():
        results[name] = hits([Rules(q).judged(program_scores(q, texts), programs, final) for q in questions])
    rows = [
        [name, f"{100 * np.mean(right):.1f}", minus(right, results["reward_vote"])]
        for name, right in results.items()
    ]
    return Table(["final rule, programs as the judge", "accuracy %", "minus reward_vote"], rows)


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
    columns = ["judge of a sample", f"AUC within the {len(values)} questions with right and wrong samples"]
    columns += ["mean for right samples", "for wrong ones", "a vote weighted by it, accuracy %"]
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
        means = [f"{accuracy(texts):.1f}", f"{accuracy(soft):.1f}", minus(hits(soft), hits(texts))]
        rows.append([name, *means, f"{tokens(texts):.0f}", f"{tokens(soft):.0f}"])
    columns = ["rule", "sampled %", f"{run} %", "difference", "tokens", f"tokens, {run}"]
    return Table(columns, rows)


def runs_table(questions: Sequence[Recorded], texts: int, reference: str) -> Table:
    """The answers of the runs of ``questions``, beside rules on their texts; differences from a run."""
    results: dict[str, Outcomes] = {"greedy": greedy(questions)}
    results[majority(texts, "samples")] = majorities(questions)[0][texts]
    results |= mixtures(questions, texts)
    results[f"a perfect judge of {texts} samples (coverage)"] = coverage(questions, texts)
    for run, answers in searches(questions).items():
        candidates = [question.candidates[run] for question in questions]
        mean = np.mean([len(tried) for tried in candidates])
        results[run] = answers
        results[f"a perfect judge of its {mean:.1f} candidates, {run}"] = [
            (any(candidate.right for candidate in tried), spent)
            for tried, (_, spent) in zip(candidates, answers, strict=True)
        ]
    base = results[reference]
    rows = [
        [name, f"{accuracy(x):.1f}", minus(hits(base), hits(x)) if x is not base else "", f"{tokens(x):.0f}"]
        for name, x in results.items()
    ]
    return Table(["rule or run", "accuracy %", f"{reference} minus it", "tokens"], rows)


def draw(questions: Sequence[Recorded], path: Path) -> None:
    """Draw the accuracy of six rules with 95 % intervals (Wilson), and write their tokens in the bars."""
    from matplotlib.figure import Figure

    of_texts, of_programs = majorities(questions)
    bars: dict[str, Outcomes] = {"greedy": greedy(questions), "4 programs": of_programs[4]}
    bars |= {f"self-consistency, {n} samples": of_texts[n] for n in (3, 4, 5)}
    bars["both: 4 programs, at most 5 samples"] = [
        Rules(q).mixed(5, 4, MixedConsistency()) for q in questions
    ]
    figure = Figure(figsize=(7.2, 3.0), layout="constrained", facecolor="#f8fafc", edgecolor="#cbd5e1")
    figure.set_linewidth(1.5)  # a light panel with an edge reads well on a dark page, too
    axes = figure.subplots()
    axes.set_facecolor("none")
    for place, (name, outcomes) in enumerate(reversed(bars.items())):
        right = sum(x for x, _ in outcomes)
        interval = binomtest(right, len(outcomes)).proportion_ci(method="wilson")
        share = right / len(outcomes)
        errors = [[100 * (share - interval.low)], [100 * (interval.high - share)]]
        axes.barh(place, 100 * share, color=ORANGE if place == 0 else BLUE, height=0.7)
        axes.errorbar(100 * share, place, xerr=errors, color="black", capsize=3)
        label = f"{name}: {100 * share:.1f} %, {tokens(outcomes):,.0f} tokens"
        axes.text(2, place, label, color="white", va="center", fontsize=9)
    axes.set_yticks([])
    axes.set_xlim(0, 100)
    axes.set_xlabel(f"accuracy in %, {len(questions)} questions, with 95 % intervals")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="+", type=Path)
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--programs", type=int, default=4, help="how many programs judge and vote")
    parser.add_argument("--judged", metavar="VERIFIER", help="only the questions whose texts it scored")
    parser.add_argument("--reference", help="the rule from which differences are taken")
    parser.add_argument("--chart", type=Path, help="draw the rules of the README")
    arguments = parser.parse_args()
    texts, programs = arguments.texts, arguments.programs
    questions = [q for path in arguments.recordings for q in load(path, texts, programs)]
    if arguments.judged:
        questions = [question for question in questions if arguments.judged in question.scores]
    if not questions:
        raise SystemExit(
            f"{' '.join(map(str, arguments.recordings))}: expected questions with {texts} texts, "
            f"{programs} programs and the scores of --judged, got none"
        )
    print(f"{len(questions)} questions\n")
    print(rules_table(questions, texts, arguments.reference).markdown(), "\n")
    print(judges_table(questions, texts).markdown())
    if all(question.programs for question in questions):
        print(f"\n{spending_table(questions, texts).markdown()}\n")
        print(finals_table(questions, texts).markdown())
    if arguments.chart:
        draw(questions, arguments.chart)
    for run in sorted({name for question in questions for name in question.candidates}):
        both = [q for q in questions if len(q.candidates.get(run, ())) >= texts]
        if len(both) > 1:
            print(f"\n{len(both)} questions\n\n{arms_table(both, run, texts).markdown()}")
    if runs := sorted({name for question in questions for name in question.answers}):
        every = [question for question in questions if len(question.answers) == len(runs)]
        if every:
            print(f"\n{len(every)} questions\n\n{runs_table(every, texts, runs[-1]).markdown()}")


if __name__ == "__main__":
    main()
