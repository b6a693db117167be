"""``compare --all``: successive halving over the methods that the engine can serve."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.commands.launch import launch, one_line_errors, refuse
from soft_reasoning.commands.solving import run_one
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.conf_dir import choices
from soft_reasoning.configuration.implied import NAMES
from soft_reasoning.configuration.overrides import Override, parse, split_flags
from soft_reasoning.configuration.parts import built
from soft_reasoning.reports.compare import compare
from soft_reasoning.runs.files import write_text
from soft_reasoning.runs.runner import Summary
from soft_reasoning.types import UserError

PRESET = "preset.yaml"
QUESTIONS, TOKENS = 200, 1000
"""Defaults of limit (the last stage) and max_tokens (per question)."""


def halve_methods(names: Sequence[str], words: Sequence[str]) -> None:
    """Run successive halving (Karnin et al. 2013) over the methods ``names``, by default over all.

    The stages use a quarter, half and all of the questions; each continues copies of the previous one's runs.
    The more accurate half stays; ties go to fewer tokens. The best method is written as a preset.
    """
    known = choices("method")
    with one_line_errors():
        short = [str(override) for override in split_flags(words)[0] if override.key in NAMES]
    if others := [*({*names} - {*known}), *short]:
        refuse(f"compare --all: expected names of methods ({', '.join(known)}), got {', '.join(others)}")

    def run_stages(config: DictConfig, folder: Path) -> None:
        total = QUESTIONS if config.limit is None else config.limit
        if not isinstance(total, int) or total < 4:
            raise UserError(f"limit: expected 4 questions or more to compare, got {total}")
        typed = parse(HydraConfig.get().overrides.task)
        overrides = [override for override in typed if override.key not in ("limit", "max_tokens")]
        budget = Override("max_tokens", str(config.max_tokens or TOKENS))
        methods, summaries = list(names) or known, dict[str, Summary]()
        with closing(built(config, "launcher")) as launcher:
            for stage, size in enumerate((total // 4, total // 2, total)):
                summaries = {}
                for name in methods:
                    before, place = (folder / f"stage-{i}" / name for i in (stage, stage + 1))
                    changes = [*overrides, Override("method", name), budget, Override("limit", str(size))]
                    if stage and (config.fresh or not place.exists()):
                        shutil.copytree(before, place, dirs_exist_ok=True)
                        changes.append(Override("fresh", "false"))
                    try:
                        summaries[name] = run_one(
                            compose_config(changes), place, launcher, overrides=changes, tracked=False
                        )
                    except UserError as error:  # such as a wording that the prompt lacks
                        if stage:
                            raise
                        print(f"{name} is left out: {error}", file=sys.stderr)
                if not summaries:
                    raise UserError("compare: expected a method that can be run, got none")
                print(f"\nStage {stage + 1}: {size} questions\n")
                compare([summaries[name].folder for name in summaries], folder / f"stage-{stage + 1}")
                methods = ranked(summaries)[: (len(summaries) + 1) // 2]
        write_preset(folder / PRESET, [*overrides, Override("method", methods[0]), budget])
        print(f"\nThe best of these questions is {methods[0]}: soft-reasoning run preset={folder / PRESET}")

    launch(run_stages, words)


def ranked(summaries: dict[str, Summary]) -> list[str]:
    """Return the names by accuracy, the highest first; ties go to fewer tokens."""

    def key(name: str) -> tuple[float, float]:
        metrics = summaries[name].metrics
        if metrics["exact_match"] is None:
            raise UserError(
                "compare: expected questions with reference answers, got none; give the data's gold"
            )
        return -metrics["exact_match"], metrics["tokens"]["total"]["generated"]

    return sorted(summaries, key=key)


def write_preset(path: Path, overrides: Sequence[Override]) -> None:
    """Write ``overrides`` as a preset, without those of the model, the questions and the run."""
    left_out = ("model", "dataset", "hydra", "seed", "fresh", "progress", "launcher", "max_live", "engine")
    words = [str(override) for override in overrides if override.root not in left_out]
    text = OmegaConf.to_yaml(OmegaConf.create({"overrides": words}))
    command = shlex.join(map(str, overrides))
    write_text(path, f"# soft-reasoning compare --all, then run {command}\n{text}")
