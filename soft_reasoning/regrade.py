"""Grade finished runs again, without a model: python -m soft_reasoning.regrade RUN [grader.key=value ...]."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.answers import Grader
from soft_reasoning.config import one_line
from soft_reasoning.evaluation.files import MANIFEST, read_manifest
from soft_reasoning.evaluation.report import regrade, summary_table
from soft_reasoning.run import one_line_errors
from soft_reasoning.types import UserError

PREFIX = "grader."
USAGE = """\
Computes results.json, grades.json, report.md and the plots of finished runs anew from their stored records
(samples.jsonl, which stays as it is); nothing is generated. Without changes the grader is the run's own.

  grader.extraction=strict|flexible   how answers are read from the stored texts
  grader.absolute=0.01                numbers this far apart are equal ...
  grader.relative=0                   ... or this far, times the larger of them

Under another extraction than the run's every candidate is read again; the search, its rewards and the choice
of the texts that gave a final answer stay as they were. The same command that made the run restores its own
grades."""


def grader_of(config: Mapping[str, Any], changes: Sequence[str]) -> Grader:
    """The grader of a run's ``config`` under ``changes`` (``grader.key=value``). Raises UserError."""
    own = OmegaConf.create(dict(config.get("grader") or {"_target_": "soft_reasoning.answers.Grader"}))
    OmegaConf.set_struct(own, True)
    try:
        own.merge_with_dotlist([change.removeprefix(PREFIX) for change in changes])
    except OmegaConfBaseException as error:
        known = ", ".join(f"{PREFIX}{key}" for key in own if key != "_target_")
        raise UserError(
            f"expected changes of {known}, got {' '.join(changes)} ({one_line(error)})"
        ) from error
    return instantiate(own)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m soft_reasoning.regrade",
        description=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run")
    parser.add_argument("changes", nargs="*", metavar="grader.key=value", help="changes of its grader")
    given = parser.parse_args(arguments)
    with one_line_errors():
        for change in given.changes:
            if not change.startswith(PREFIX) or "=" not in change:
                raise UserError(
                    f"expected {PREFIX}key=value after the run's folder, got {change}; see --help"
                )
        folder = Path(given.run)
        if not folder.is_dir():
            raise UserError(
                f"expected the folder of a finished run, found none at {given.run}; check the path"
            )
        inside = sorted(str(path.parent) for path in folder.glob(f"*/{MANIFEST}"))
        if inside and not (folder / MANIFEST).exists():
            raise UserError(
                f"{folder}: expected the folder of one run, got one of several; give one of "
                + ", ".join(inside)
            )
        config = read_manifest(given.run)["config"]
        metrics = regrade(given.run, grader_of(config, given.changes))
        print(summary_table(metrics, config))
        print(f"\n{folder / 'report.md'}")


if __name__ == "__main__":
    main()
