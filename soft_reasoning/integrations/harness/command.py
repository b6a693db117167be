"""The command ``soft-reasoning eval``: lm-evaluation-harness with the model ``soft_reasoning``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec

from soft_reasoning.configuration.errors import one_line
from soft_reasoning.types import UserError

NAME = "soft_reasoning"
TARGET = "soft_reasoning.integrations.harness.model:SoftReasoningLM"
MODEL_OPTIONS = ("--model", "-M", "--config", "-C")
HELP = ("-h", "--help")
USAGE = """\
soft-reasoning eval [the arguments of lm-eval]

Runs lm-evaluation-harness, whose --model is soft_reasoning unless you name another:

  soft-reasoning eval --tasks gsm8k --model_args pretrained=Qwen/Qwen3-1.7B,k=5,rounds=3

model_args: the arguments of --model hf, those of SoftReasoner (method, k, rounds, seed, ...), question_field,
and overrides such as search.rounds=2. The arguments of the harness:
"""


def register() -> None:
    """Register the model ``soft_reasoning`` with the harness.

    Raises:
        UserError: If the harness is not installed.
    """
    if find_spec("lm_eval") is None:
        raise UserError(
            "expected the package lm_eval (lm-evaluation-harness), found none; "
            "pip install 'soft-reasoning[lm-eval]'"
        )
    import_module("lm_eval.models")  # registers the harness's models
    from lm_eval.api.registry import model_registry

    if NAME not in model_registry:
        model_registry.register(NAME, target=TARGET)


def main(words: Sequence[str] | None = None) -> None:
    """Run the harness's command line."""
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in HELP:
        print(USAGE, flush=True)
        words = ["run", "--help"]
    evaluates = words[0] == "run" or words[0].startswith("-")
    if evaluates and not any(word.partition("=")[0] in (*MODEL_OPTIONS, *HELP) for word in words):
        words = [*words, "--model", NAME]
    try:
        register()
        from lm_eval.__main__ import cli_evaluate

        sys.argv = ["lm-eval", *words]
        cli_evaluate()
    except Exception as error:
        if (line := one_line(error)) is None:
            raise
        print(f"soft_reasoning: {line}", file=sys.stderr)
        sys.exit(2)
