"""The console script ``soft-reasoning``: its commands by name."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module

import soft_reasoning

COMMANDS = {
    "run": ("run:main", "[group=choice] [key=value]", "solve a data set, or continue an interrupted run"),
    "compare": ("run:compare_main", "METHOD METHOD ... [options]", "run methods on the same problems"),
    "sweep": ("run:sweep_main", "[key=a,b] [options]", "run every combination of values and compare"),
    "tune": ("tune:main", "[dataset=FILE] [options]", "learn soft tokens or a judge from a task's questions"),
    "serve": ("serve:main", "[options] [port=8000]", "answer requests in the format of OpenAI's API"),
    "regrade": ("finished:regrade_main", "FOLDER [grader.key=value]", "grade a run again, without a model"),
    "show": ("finished:show_main", "FOLDER [PROBLEM]", "show results, explain one problem, or write tables"),
}
"""For each command: its function, which takes the words after the command; its usage; and what it does."""

LINES = "\n".join(f"  {f'{name} {words}':<36} {what}" for name, (_, words, what) in COMMANDS.items())
USAGE = f"""\
soft-reasoning COMMAND [options]

{LINES}

soft-reasoning COMMAND --help explains a command, and soft-reasoning --version prints the version."""


def main() -> None:
    """Run a command.

    Ctrl-C during its imports, which take seconds, ends the process at once, without a traceback.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored in a shell's background
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not sys.stderr.isatty():  # the bars of libraries fill files and pipes; ours prints lines there
        os.environ.setdefault("TQDM_DISABLE", "1")
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    command, words = sys.argv[1] if len(sys.argv) > 1 else "--help", sys.argv[2:]
    if command in ("-h", "--help"):
        print(USAGE)
    elif command == "--version":
        print(f"soft-reasoning {soft_reasoning.__version__}")
    elif command in COMMANDS:
        module, _, function = COMMANDS[command][0].partition(":")
        getattr(import_module(f"soft_reasoning.cli.{module}"), function)(words)
    else:
        print(
            f"soft-reasoning: expected a command ({', '.join(COMMANDS)}), got {command}; see --help",
            file=sys.stderr,
        )
        sys.exit(2)
