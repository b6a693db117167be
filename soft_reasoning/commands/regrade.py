"""Grade finished runs again without a model: soft-reasoning regrade RUN [grader=NAME] ..."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.commands.run import one_line_errors
from soft_reasoning.configuration.compose import conf_dir, one_line
from soft_reasoning.evaluation.files import MANIFEST, read_manifest
from soft_reasoning.evaluation.report import regrade, summary_table
from soft_reasoning.types import UserError

TARGET = "_target_"
PREFIX = "grader."
CHOICE = "grader="
DEFAULT = "default"
USAGE = """\
Computes results.json, grades.json, report.md, report.html and the plots of finished runs anew from their
stored records (samples.jsonl, which stays as it is); nothing is generated. Without changes the grader is the
run's own.

  grader=NAME                         another grader: default, released, lm_eval_strict, lm_eval_flexible or
                                      math_verify
  grader.extraction=strict|flexible   how the default grader reads the stored texts
  grader.absolute=0.01                numbers this far apart are equal ...
  grader.relative=0                   ... or this far, times the larger of them

Under another reading than the run's every candidate is read again; the search, its rewards and the choice
of the texts that gave a final answer stay as they were. The same command that made the run restores its own
grades."""


def grader_of(config: Mapping[str, Any], changes: Sequence[str]) -> AnswerGrader:
    """Return the grader of a run's ``config`` under ``changes`` (``grader=NAME``, ``grader.key=value``).

    A run's folder is data: its grader must be one of conf/grader, and its settings plain values.

    Raises:
        UserError: For a grader that is not this package's, an unknown key, or a wrong value.
    """
    names = [change.removeprefix(CHOICE) for change in changes if change.startswith(CHOICE)]
    values = [change.removeprefix(PREFIX) for change in changes if change.startswith(PREFIX)]
    settings = _choice(names[-1]) if names else _own(config.get("grader"))
    target = settings.pop(TARGET)
    try:
        own = OmegaConf.create(settings)
        OmegaConf.set_struct(own, True)
        own.merge_with_dotlist(values)
    except OmegaConfBaseException as error:
        known = ", ".join(f"{PREFIX}{key}" for key in settings) or "none"
        raise UserError(f"expected changes of {known}, got {' '.join(values)} ({one_line(error)})") from error
    return get_class(target)(**{str(key): value for key, value in own.items()})


def _shipped() -> dict[str, dict[str, Any]]:
    """The settings of every grader of conf/grader, by name."""
    files = sorted(Path(conf_dir(), "grader").glob("*.yaml"))
    return {file.stem: {str(key): value for key, value in OmegaConf.load(file).items()} for file in files}


def _choice(name: str) -> dict[str, Any]:
    shipped = _shipped()
    if name not in shipped:
        raise UserError(f"grader: expected one of {', '.join(shipped)}, got {name}")
    return shipped[name]


def _own(stored: Any) -> dict[str, Any]:
    """The settings of a run's own grader, as its manifest has them."""
    if stored is None:
        return _choice(DEFAULT)
    if not isinstance(stored, Mapping):
        raise UserError(f"{MANIFEST}: expected settings under grader, got {stored!r:.80}; choose a grader=")
    known = {settings[TARGET]: settings for settings in _shipped().values()}
    target = stored.get(TARGET)
    if not isinstance(target, str) or target not in known:
        raise UserError(
            f"{MANIFEST}: expected a grader of this package, got {target!r:.80}; choose one with "
            "grader=default, or call soft_reasoning.evaluation.report.regrade with a grader of your own"
        )
    for key, value in stored.items():
        plain = isinstance(value, str | int | float) and not (isinstance(value, str) and "${" in value)
        if key not in known[target] or not plain:
            raise UserError(
                f"{MANIFEST}: expected plain settings of {target}, got {key}={value!r:.80}; choose a grader="
            )
    return {**known[target], **stored}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="soft-reasoning regrade",
        description=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="the folder of a finished run")
    parser.add_argument("changes", nargs="*", metavar="grader.key=value", help="changes of its grader")
    given = parser.parse_args(arguments)
    with one_line_errors():
        for change in given.changes:
            if not change.startswith((PREFIX, CHOICE)) or "=" not in change:
                raise UserError(
                    f"expected grader=NAME or {PREFIX}key=value after the run's folder, got {change}; "
                    "see --help"
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
        print(summary_table(metrics))
        print(f"\n{folder / 'report.md'}")
