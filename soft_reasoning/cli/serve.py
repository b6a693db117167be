"""The command soft-reasoning serve [group=choice] [key=value]; the server is ``soft_reasoning.serve``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from textwrap import fill

from soft_reasoning.cli.compose import checked_method, plain
from soft_reasoning.cli.groups import store
from soft_reasoning.cli.launch import Job, launch, one_line_errors, refuse_unread
from soft_reasoning.configuration.context import build_engine, check_wording
from soft_reasoning.configuration.data import read_model, read_prompt
from soft_reasoning.configuration.options import Options
from soft_reasoning.configuration.parts import Setting, make, parameters
from soft_reasoning.configuration.registry import METHODS, Part
from soft_reasoning.configuration.setup import Setup
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.runs.naming import typed_keys
from soft_reasoning.reasoner import SoftReasoner
from soft_reasoning.types import UserError

UNREAD = (
    *("budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher"),
    *("limit", "methods", "reference"),
)
"""Options that only a run of a data set reads."""

HEADER = """\
soft-reasoning serve [group=choice] [key=value] [host=127.0.0.1] [port=8000] [server.key=value]
Answers requests like OpenAI's /v1/chat/completions and /v1/completions. These are the keys of
server (the variable SOFT_REASONING_API_KEY also sets api_key):
{keys}
The other options are those of soft-reasoning run, except those of a run of a data set (limit, launcher, ...):
"""


def server_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line for the server, with its group.

    Models other than the bundled one get the chat unchanged, unless a prompt or a data set is named, or a
    method that writes programs, which compute numbers.

    Raises:
        UserError: For an option that only a run of a data set reads.
    """
    refuse_unread("serve", words, UNREAD)
    named = {key: word.partition("=")[2] for key, word in zip(typed_keys(words), words, strict=True)}
    model = named.get("model", "demo").strip("'\"")
    method = named.get("method")
    computes = method in METHODS and "programs" in parameters(METHODS[method].target)
    chat = not ({"prompt", "dataset", "experiment"} & {*named} or computes or is_bundled(model))
    return ["+server=default", *(["prompt=any"] if chat else []), *words]


def register_server() -> None:
    """Register the group ``server``, which only this command has."""
    try:
        from soft_reasoning.serve.settings import Settings
    except ImportError as error:
        raise UserError(f"serve: {error}; pip install fastapi uvicorn openai") from error
    help = {"help": {"header": HEADER.format(keys=fill(", ".join(Settings.model_fields), 100))}}
    key = "${oc.env:SOFT_REASONING_API_KEY,null}"
    short = {"host": "host", "port": "port"}
    store("server", "default", Part(Settings, short=short, api_key=key), top={"hydra": help})


def build_reasoner(job: Job) -> SoftReasoner:
    """Build the reasoner of a configuration.

    Raises:
        UserError: For a value that a class rejects.
    """
    method, config = checked_method(job.config), plain(job.config)
    prompt, model = config["prompt"], read_model(job.chosen["model"])
    if prompt["answer_type"] is None and "dataset" in typed_keys(job.words):
        prompt = {**prompt, "default_answer_type": config["dataset"]["answer_type"]}
    check_wording(prompt, method)
    chooses = {} if "path" in prompt else read_prompt(job.chosen["prompt"]).chooses
    setting = Setting(
        model=config["model"],
        choices={**chooses, **model.chooses},
        max_new_tokens=config["max_new_tokens"],
    )
    options = Options(seed=config["seed"], max_tokens=config["max_tokens"], max_seconds=config["max_seconds"])
    if "method" in typed_keys(job.words):
        options["method"] = method.name
    setup = Setup(
        model=config["model"]["path"],
        setting=setting,
        prompt=prompt,
        method=method,
        options=options,
        exemplars=build_dataset(config).exemplars() if config["dataset"]["shots"] else (),
        grader=make(config["grader"], "grader"),
        cache=config["cache"],
        max_live=config["max_live"],
    )
    return SoftReasoner.from_setup(build_engine(config), setup)  # last: what is refused starts no server


def serve(job: Job) -> None:
    """Serve the configured method until a signal ends the server."""
    from soft_reasoning.serve.app import base_url, bind, build_server
    from soft_reasoning.serve.service import Service
    from soft_reasoning.serve.settings import Settings

    group = plain(job.config)["server"]
    settings = Settings.from_group({key: value for key, value in group.items() if not key.startswith("_")})
    with bind(settings) as listening, closing(build_reasoner(job)) as reasoner:
        name = settings.model_name or Path(job.config.model.path).name
        if not settings.local and settings.api_key is None:
            print(
                f"soft_reasoning: anyone who reaches {settings.host} can use this server; set "
                "SOFT_REASONING_API_KEY",
                file=sys.stderr,
            )
        server = build_server(Service(reasoner, settings, name))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)  # it ends without an error
        line = f"soft_reasoning: serving {name} at {base_url(listening)} (Ctrl-C ends it)"
        print(line, file=sys.stderr, flush=True)  # requests that come before it runs wait in the socket
        server.run(sockets=[listening])


def main(words: Sequence[str]) -> None:
    """Run the command line. Nothing is written, so the run's folder is the current directory."""
    with one_line_errors():
        register_server()
        words = server_words(words)
    launch(serve, ["hydra.run.dir=.", *words])
