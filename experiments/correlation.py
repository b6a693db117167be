"""The correlation matrix of a run's sampled points, by round: python experiments/correlation.py RUN [RUN ...]

    python experiments/correlation.py +experiment=paper_correlation

Words with a = are a configuration, as on the command line of a run, which is run first.

Mean over problems, points of a round ordered by reward, best first. Writes correlation.png into each run's
folder, and prints the mean correlation of the best points of each round with those before them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from soft_reasoning.analysis import plots
from soft_reasoning.analysis.correlation import correlation_matrices
from soft_reasoning.analysis.tables import Table
from soft_reasoning.configuration.compose import run_name
from soft_reasoning.evaluation.files import read_records
from soft_reasoning.types import UserError


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Draws the plot; for each round the mean correlation within it and with the best point so far."""
    matrices, sizes = correlation_matrices(list(read_records(folder)))
    if not matrices:
        raise UserError(f"{folder}: expected a run that searches in two dimensions or more, found none")
    plots.correlation(matrices, sizes, folder / "correlation.png")
    out = []
    for r, matrix in enumerate(matrices):
        new = slice(sum(sizes[:r]), sum(sizes[: r + 1]))
        within = matrix[new, new][~np.eye(sizes[r], dtype=bool)].mean()
        firsts = [sum(sizes[:i]) for i in range(r)]
        before = f"{matrix[new, firsts].mean():+.3f}" if firsts else "-"
        out.append((folder.name, str(r), f"{within:+.3f}", before))
    return out


def solve(overrides: list[str]) -> Path:
    """Run the configuration; its folder."""
    folder = Path("runs") / run_name("correlation", ",".join(overrides))
    command = [sys.executable, "-m", "soft_reasoning.run", *overrides, f"hydra.run.dir={folder}"]
    if subprocess.run(command, stdout=sys.stderr).returncode:
        raise UserError(f"expected a run that ends well, got a fault of {' '.join(overrides)}; see above")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run's folder, or a configuration to run")
    words = parser.parse_args().runs
    overrides = [word for word in words if "=" in word and not Path(word).is_dir()]
    folders = [Path(word) for word in words if word not in overrides]
    try:
        folders += [solve(overrides)] if overrides else []
        table = [row for folder in folders for row in rows(folder)]
    except UserError as error:
        parser.error(str(error))
    columns = ("run", "round", "within the round", "with the best points of earlier rounds")
    print(Table(columns, table, labels=1).markdown())


if __name__ == "__main__":
    main()
