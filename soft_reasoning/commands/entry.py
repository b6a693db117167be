"""The console script ``soft-reasoning``; each command is a module that ``python -m`` runs as well."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import NoReturn

from soft_reasoning.commands.completion import SCRIPT, candidates

USAGE = """\
soft-reasoning COMMAND [options]

  run [group=choice] [key=value]       solve a data set; the same command continues an interrupted run
  compare METHOD METHOD ... [options]  run several methods on the same problems
  calibrate [options]                  recommend sigma and points to begin with, for a model and data
  serve [options] [port=8000]          answer requests as OpenAI's API does
  regrade FOLDER [grader.key=value]    grade a finished run again, without a model
  show FOLDER [PROBLEM]                show a run's results, or explain one problem
  eval [arguments of lm-eval]          run lm-evaluation-harness with a method as its model
  completion                           print what makes bash complete options:
                                       eval "$(soft-reasoning completion)"

soft-reasoning COMMAND --help says more."""

COMPARE = """\
soft-reasoning compare METHOD METHOD ... [options of soft-reasoning run]

Runs the methods on the same problems with the same prompts, grader and seed, and writes comparison.md and report.html.
budget=equal gives each as many tokens as soft_reasoning."""  # noqa: E501

HERE = "soft_reasoning.commands"
COMMANDS = {
    "run": f"{HERE}.run", "compare": f"{HERE}.run", "calibrate": f"{HERE}.calibrate",
    "serve": f"{HERE}.serve", "regrade": f"{HERE}.regrade", "show": f"{HERE}.show",
    "eval": "soft_reasoning.integrations.harness.command",
}  # fmt: skip
"""The module of each command."""


def main() -> None:
    """Run a command."""
    words = sys.argv[1:]
    if words[:1] == ["completion"]:
        # The shell asks with the line so far; a person asks for the script.
        print("\n".join(candidates(words[1])) if len(words) > 1 else SCRIPT)
        return
    if not words or words[0] in ("-h", "--help"):
        print(USAGE)
        return
    if words[0] not in COMMANDS:
        _refuse(f"expected a command ({', '.join([*COMMANDS, 'completion'])}), got {words[0]}; see --help")
    rest = words[1:]
    if words[0] == "compare":
        rest = _compared(rest)
    sys.argv[1:] = rest
    import_module(COMMANDS[words[0]]).main()


def _compared(words: list[str]) -> list[str]:
    """The options of a run that compares the methods named first."""
    methods = [word for word in words if "=" not in word and not word.startswith(("-", "+", "~"))]
    options = [word for word in words if word not in methods]
    if not methods and {"-h", "--help"} & {*words}:
        print(COMPARE)
        sys.exit()
    if len(methods) < 2:
        named = " ".join(methods) or "none"
        _refuse(f"compare: expected two methods or more, got {named}; name them: compare cot soft_reasoning")
    return [f"methods=[{','.join(methods)}]", *options]


def _refuse(message: str) -> NoReturn:
    print(f"soft-reasoning: {message}", file=sys.stderr)
    sys.exit(2)
