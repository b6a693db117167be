"""The command ``tune``: soft tokens or a probe for a task, learnt once from its questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from soft_reasoning.cli.groups import store
from soft_reasoning.cli.launch import Job, launch, one_line_errors, refuse_unread, sweep_name
from soft_reasoning.cli.learning import learn
from soft_reasoning.configuration.registry import Part
from soft_reasoning.lab.runs.naming import run_name
from soft_reasoning.task import ProbeFitting, Tuning

HEADER = """\
soft-reasoning tune [tune=probe] [group=choice] [key=value] [tune.key=value]
Learns from a task's questions (limit=160 of them). By default it learns soft tokens: it screens several
spaces, searches the most promising one, and compares the best points on questions that the search did not
see. It writes the best point to point.json, which method=soft_token point=FOLDER/point.json uses. The keys
of tune are then {token}.
tune=probe fits a judge of hidden states on sampled solutions and writes it to probe.json, which
method=mixed_consistency probe=FOLDER/probe.json uses, or verifier=probe with other methods. The keys of
tune are then {probe}.
The same command continues an interrupted one. The other options are those of soft-reasoning run that greedy
decoding reads; method, methods, label, reference, budget, launcher, max_tokens and max_seconds are
rejected:"""
UNREAD = (
    *("method", "methods", "label", "reference", "budget", "launcher"),
    *("max_tokens", "max_seconds"),
)
"""Options of ``run`` that the command does not read."""

OWN_WORDS = ("method=cot", "tune=default")
"""Options that the command adds unless they are typed: greedy decoding, and a choice of its group."""


def register_tune() -> None:
    """Register the group ``tune``, which only this command has."""
    token, probe = (
        ", ".join(field.name for field in fields(kind) if field.name != "max_new_tokens")
        for kind in (Tuning, ProbeFitting)
    )
    help = {"help": {"header": HEADER.format(token=token, probe=probe)}}
    store("tune", "default", Part(Tuning), top={"hydra": help, "limit": 160})
    store("tune", "probe", Part(ProbeFitting, short={}), top={"hydra": help, "limit": 160})


def tune_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line for the search, with its group and its folder.

    Raises:
        UserError: For an option that the command does not read.
    """
    refuse_unread("tune", words, UNREAD)
    name = run_name("tune", sweep_name([word for word in words if not word.startswith("-")]))
    greedy, chosen = OWN_WORDS
    typed = [word for word in words if word.startswith("tune=")]
    rest = [word for word in words if word not in typed]
    # Hydra adds a group that its defaults do not name by "+".
    return [f"hydra.run.dir='runs/{name}'", greedy, f"+{(typed or [chosen])[-1]}", *rest]


def tune(job: Job) -> None:
    """Learn from the configured data set."""
    words = [word.removeprefix("+") for word in job.words]
    learn(job.config, [word for word in words if word not in OWN_WORDS], job.folder)


def main(words: Sequence[str]) -> None:
    """Run the command line."""
    with one_line_errors():
        register_tune()
        words = tune_words(words)
    launch(tune, words)
