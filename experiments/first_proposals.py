r"""Differences between acquisition functions: first proposals, accuracy, coverage, accuracy of candidates by
round.

    python -m soft_reasoning.run +experiment=sweep_acquisition limit=200 search.stopping.rule=none seed=0 \
        hydra.run.dir=runs/acquisitions
    python experiments/first_proposals.py runs/acquisitions/*/

The folders are runs on the same problems. "differs" is the share of problems whose first proposals are not
those of the run called soft_reasoning.
"""

import sys
from pathlib import Path

from soft_reasoning.runs.files import RESULTS, read_json, read_records

folders = {folder.name: folder for folder in map(Path, sys.argv[1:]) if (folder / RESULTS).is_file()}


def proposed(folder: Path) -> dict[str, list[tuple[float, ...]]]:
    """The points of the second round, by problem."""
    records = read_records(folder)
    return {r["doc_id"]: [tuple(c["u"]) for c in r["candidates"] if c["round"] == 1] for r in records}


reference = proposed(folders["soft_reasoning"])
print("| run | differs % | decided % | accuracy % | coverage % | candidates by round % |")
print("|---" * 6 + "|")
for name, folder in folders.items():
    points, metrics = proposed(folder), read_json(folder / RESULTS)
    both = [key for key in reference if reference[key] and points.get(key)]
    differs = sum(points[key] != reference[key] for key in both) / max(1, len(both))
    shares = [differs, metrics["decided"] or 0.0, metrics["exact_match"], metrics["coverage"]]
    rounds = " ".join(f"{100 * row['accuracy']:.1f}" for row in metrics["by_round"])
    print(f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} | {rounds} |")
