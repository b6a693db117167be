"""The command soft-reasoning serve [group=choice] [key=value]; the server is ``soft_reasoning.serve``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.commands.launch import launch, one_line_errors
from soft_reasoning.configuration.choices import choice
from soft_reasoning.configuration.compose import typed_keys
from soft_reasoning.engine.paths import is_bundled
from soft_reasoning.types import UserError

if TYPE_CHECKING:
    from soft_reasoning.reasoner import SoftReasoner

HEADER = """\
soft-reasoning serve [group=choice] [key=value] [host=127.0.0.1] [port=8000] [server.key=value]
Answers requests like OpenAI's /v1/chat/completions, /v1/completions and /v1/responses. These are the keys of
server (the variable SOFT_REASONING_API_KEY also sets api_key):
{keys}
The other options are those of soft-reasoning run, except those of a run of a data set (limit, launcher, ...):
"""


def server_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command line for the server, with its group.

    Models other than the bundled one get the chat unchanged, unless a prompt or a data set is named.
    """
    named = {key: word.partition("=")[2] for key, word in zip(typed_keys(words), words, strict=True)}
    model = named.get("model.path", named.get("model", "demo")).strip("'\"")
    chat = not {"prompt", "dataset", "experiment"} & {*named} and not is_bundled(model)
    return ["+server=default", *(["prompt=any"] if chat else []), *words]


def register_server() -> None:
    """Register the group ``server``, which only this command has."""
    try:
        from soft_reasoning.serve.settings import Settings
    except ImportError as error:
        raise UserError(
            f"serve: expected FastAPI and uvicorn, got none ({error}); pip install 'soft-reasoning[serve]'"
        ) from error
    help = {"help": {"header": HEADER.format(keys=fill(", ".join(Settings.model_fields), 100))}}
    key = "${oc.env:SOFT_REASONING_API_KEY,null}"
    short = {"host": "host", "port": "port"}
    choice("server", "default", Settings, short=short, top={"hydra": help}, api_key=key)


def build_reasoner(config: DictConfig) -> SoftReasoner:
    """Build the reasoner of this job, whose command line was composed to ``config``.

    Raises:
        UserError: For an override that only a run of a data set reads, and for a comparison.
    """
    from soft_reasoning.configuration.options import check_overrides
    from soft_reasoning.reasoner import SoftReasoner  # takes seconds, which wrong options do without

    job = HydraConfig.get()
    words = [
        word for word in job.overrides.task if not word.startswith(("+server", "server.", "host=", "port="))
    ]
    check_overrides(words)
    if config.methods is not None:
        raise UserError(
            "serve: expected one method, got methods=[...]; clients ask for METHOD-NAME for other methods"
        )
    has_dataset = "dataset" in typed_keys(words)
    answer_type = config.prompt.answer_type or (config.dataset.answer_type if has_dataset else None)
    return SoftReasoner.from_pretrained(
        config.model.path,
        prompt=config.prompt.get("path") or job.runtime.choices["prompt"],
        answer_type=answer_type,
        seed=config.seed,
        overrides=words,
    )


def serve(config: DictConfig, folder: Path) -> None:
    """Serve the configured method until a signal ends the server."""
    from soft_reasoning.serve.app import base_url, bind, build_server
    from soft_reasoning.serve.service import Service
    from soft_reasoning.serve.settings import Settings

    group = cast(dict[str, Any], OmegaConf.to_container(config.server, resolve=True))
    settings = Settings.of({key: value for key, value in group.items() if not key.startswith("_")})
    with bind(settings) as listening, closing(build_reasoner(config)) as reasoner:
        name = settings.model_name or Path(config.model.path).name
        if not settings.local and settings.api_key is None:
            print(
                f"soft_reasoning: anyone who reaches {settings.host} can use this server; set "
                "SOFT_REASONING_API_KEY",
                file=sys.stderr,
            )
        server = build_server(Service(reasoner, settings, name))
        line = f"soft_reasoning: serving {name} at {base_url(listening)} (Ctrl-C ends it)"
        server.announce = lambda: print(line, file=sys.stderr, flush=True)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, server.handle_exit)  # it ends without an error
        server.run(sockets=[listening])


def main(words: Sequence[str]) -> None:
    """Run the command line. Nothing is written, so the run's folder is the current directory."""
    with one_line_errors():
        register_server()
        words = server_words(words)
    launch(serve, ["hydra.run.dir=.", *words])
