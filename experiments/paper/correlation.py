"""The correlation matrix of a run's sampled points, by round.

    soft-reasoning run +experiment=paper_correlation hydra.run.dir=runs/low
    python -m experiments.paper.correlation runs/low

Mean over problems, points of a round ordered by reward, best first. Writes correlation.png into each run's
folder, and prints the mean correlation of each round's points with the best points of earlier rounds.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from soft_reasoning.lab.reports.plots import panels
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.runs.records import Record, read_records
from soft_reasoning.types import Candidate, UserError


def correlation_matrices(records: Sequence[Record]) -> tuple[list[np.ndarray], list[int]]:
    """Return the correlation matrix of the points of rounds 0 to r for every r, and the points per round.

    Each is the mean over the problems that reached round r. The points of a round are sorted by reward,
    best first, so that the common part of good points shows. Candidates without a point, and points of one
    coordinate, which have no correlation, are left out; a round without any is skipped.
    """
    problems = [_rounds(record) for record in records]
    size = max((len(rounds[0]) for rounds in problems if rounds), default=0)
    matrices: list[np.ndarray] = []
    for r in range(max(map(len, problems), default=0)):
        reached = [rounds[: r + 1] for rounds in problems if len(rounds) > r]
        matrices.append(np.mean([np.corrcoef(np.concatenate(rounds)) for rounds in reached], axis=0))
    return matrices, [size] * len(matrices)


def _rounds(record: Record) -> list[np.ndarray]:
    """The points (k, d) of each round, highest reward first."""
    rounds: dict[int, list[Candidate]] = {}
    for candidate in record.result.candidates:
        if candidate.u is not None and len(candidate.u) > 1:
            rounds.setdefault(candidate.round, []).append(candidate)
    ordered = [sorted(group, key=lambda c: -c.rank) for _, group in sorted(rounds.items())]
    return [np.array([candidate.u for candidate in group]) for group in ordered]


def plot(matrices: Sequence[Sequence[Sequence[float]]], sizes: Sequence[int], path: Path) -> None:
    """Plot the correlation of the points sampled up to each round, one panel per round.

    ``matrices[r]`` is square over the points of rounds 0 to r, in order. A round has ``sizes[r]`` points,
    and lines separate the rounds.
    """
    with panels(path, columns=len(matrices), width=2.2 * len(matrices) + 0.9, height=3.0) as grid:
        image = None
        for r, (axes, matrix) in enumerate(zip(grid[0], matrices, strict=True)):
            image = axes.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
            for edge in (sum(sizes[: i + 1]) - 0.5 for i in range(r)):
                axes.axhline(edge, color="black", linewidth=0.6)
                axes.axvline(edge, color="black", linewidth=0.6)
            axes.set_title("first round" if r == 0 else f"after round {r}")
            axes.set_xticks([])
            axes.set_yticks([])
            axes.grid(visible=False)
        figure = grid[0][0].figure
        figure.colorbar(image, ax=list(grid[0]), shrink=0.8, label="correlation")
        figure.suptitle("Correlation of the sampled points")


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Draw the plot; return each round's mean correlation within it and with earlier best points."""
    matrices, sizes = correlation_matrices(list(read_records(folder)))
    if not matrices:
        raise UserError(f"{folder}: expected a run that searches in two dimensions or more, found none")
    plot(matrices, sizes, folder / "correlation.png")
    table = []
    for r, matrix in enumerate(matrices):
        new = slice(sum(sizes[:r]), sum(sizes[: r + 1]))
        within = matrix[new, new][~np.eye(sizes[r], dtype=bool)].mean()
        firsts = [sum(sizes[:i]) for i in range(r)]
        before = f"{matrix[new, firsts].mean():+.3f}" if firsts else "-"
        table.append((folder.name, str(r), f"{within:+.3f}", before))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    try:
        table = [row for folder in parser.parse_args().runs for row in rows(folder)]
    except UserError as error:
        parser.error(str(error))
    columns = ("run", "round", "within the round", "with the best points of earlier rounds")
    print(Table(columns, table, labels=1).markdown())


if __name__ == "__main__":
    main()
