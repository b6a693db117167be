"""What there is to find in each space of a screening, and whether the estimate covers.

    python -m experiments.task.spread SCREENING.jsonl
    python -m experiments.task.spread --simulate

The simulation draws answers with the questions' difficulties of a real model: each point shifts the log-odds
of all questions by a normal amount, and changes each question's by another. The truth is the standard
deviation of the points' expected means over many questions. It counts how often the 95 % interval holds it.
The observed deviation is that of the points' means, chance included.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.real_models.record import stored
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.task.screening import spread

GREEDY = "greedy"


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Each space's points against greedy decoding of the same questions."""
    [greedy] = [line for line in lines if line["space"] == GREEDY]
    questions = len(greedy["right"])
    rows = [
        ["greedy", "1", f"{100 * np.mean(greedy['right']):.1f}", "", "", "", "", mean_of([greedy], "tokens")]
    ]
    for space in dict.fromkeys(line["space"] for line in lines if line["space"] != GREEDY):
        points = [line for line in lines if line["space"] == space]
        means = [100 * float(np.mean(line["right"])) for line in points]
        same = greedy["texts" if space.endswith("before the question") else "rests"]
        changed = np.mean([np.array(line["texts"]) != np.array(same) for line in points])
        won, lost = (
            np.mean(
                [
                    sum(sign * (a - b) > 0 for a, b in zip(x["right"], greedy["right"], strict=True))
                    for x in points
                ]
            )
            for sign in (1, -1)
        )
        found = ""
        if len(points) > 1:
            part = spread([line["right"] for line in points])
            found = f"{100 * part.deviation:.1f} ({100 * part.low:.1f} to {100 * part.high:.1f})"
        rows.append(
            [
                space,
                str(len(points)),
                f"{np.mean(means):.1f}",
                f"{min(means):.0f} to {max(means):.0f}",
                f"{100 * changed:.0f}",
                f"{won:.1f} : {lost:.1f}",
                found,
                mean_of(points, "tokens"),
            ]
        )
    columns = ["space", "points", "mean right %", "lowest and highest", "texts changed %", "won : lost"]
    return Table([*columns, f"deviation beyond chance, points of {questions} questions", "tokens"], rows)


def mean_of(lines: Sequence[dict[str, Any]], name: str) -> str:
    return f"{np.mean([line[name] for line in lines]):.0f}"


def simulate(
    points: int, questions: int, shift: float, change: float, repeats: int = 1000
) -> tuple[float, ...]:
    """The truth in points, the observed deviation, the estimate, the interval's coverage and its upper end.

    All but the truth are means over ``repeats`` screenings.
    """
    stream = np.random.default_rng(0)
    difficulty = stream.normal(-0.3, 2.0, 4000)  # half of the questions are nearly always right or wrong
    shifted = difficulty + change * stream.normal(size=4000)
    expected = [(1 / (1 + np.exp(-(shifted + shift * s)))).mean() for s in stream.normal(size=400)]
    truth = round(float(np.std(expected)), 9)  # exactly 0 without a shift
    held, observed, estimates, highs = 0, [], [], []
    for _ in range(repeats):
        chosen = stream.choice(difficulty, questions)
        odds = (
            chosen
            + shift * stream.normal(size=(points, 1))
            + change * stream.normal(size=(points, questions))
        )
        # One draw decides a question for all points, so points differ only where their log-odds do.
        right = stream.uniform(size=(1, questions)) < 1 / (1 + np.exp(-odds))
        part = spread(right.astype(float).tolist())
        held += part.low <= truth <= part.high
        observed.append(np.std(right.mean(1), ddof=1))
        estimates.append(part.deviation)
        highs.append(part.high)
    means = [float(np.mean(values)) for values in (observed, estimates, highs)]
    return 100 * truth, 100 * means[0], 100 * means[1], 100 * held / repeats, 100 * means[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, nargs="?")
    parser.add_argument("--simulate", action="store_true")
    arguments = parser.parse_args()
    if arguments.path is not None:
        print(table(stored(arguments.path)).markdown())
    if arguments.simulate:
        rows = []
        for points, questions in ((12, 64), (30, 100)):
            for shift in (0.0, 0.1, 0.3, 0.6):
                figures = simulate(points, questions, shift, 1.5)
                rows.append([str(points), str(questions), *(f"{figure:.1f}" for figure in figures)])
        columns = ["points", "questions", "true deviation", "observed", "estimate", "covered %", "upper end"]
        print(Table(columns, rows).markdown())


if __name__ == "__main__":
    main()
