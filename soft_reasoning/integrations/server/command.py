"""The command line: python -m soft_reasoning.integrations.server.command [group=choice] [key=value]."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from soft_reasoning.api import SoftReasoner
from soft_reasoning.config import check, completed, conf_dir, register_resolvers
from soft_reasoning.integrations.server.names import Names, untrained_methods
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.options import check_overrides
from soft_reasoning.run import one_line_errors
from soft_reasoning.types import UserError

if TYPE_CHECKING:
    from soft_reasoning.integrations.server.service import Service

SHORT = ("host", "port")
"""Keys of the group ``server`` that may be given without it."""

ANSWER_TYPE = ("prompt.answer_type", "dataset.answer_type")
"""Where the type of answers stands, the first that is there."""

WRITE_SECONDS = 5
"""Time for finished answers to be read by slow clients at the end."""


def overrides_of(words: Sequence[str]) -> list[str]:
    """Return the overrides that the words of a command line stand for."""
    long = [f"server.{one}" if one.partition("=")[0] in SHORT else one for one in words]
    return ["+server=default", *long]


def reasoner_of(config: DictConfig, choices: Mapping[str, str], overrides: Sequence[str]) -> SoftReasoner:
    """Return the reasoner that a command line describes.

    Args:
        config: What its ``overrides`` compose to.
        choices: The choice of each group.
        overrides: Those of the command line; the server's own are left out.

    Raises:
        UserError: For an override that only a run of a data set reads, and for a comparison.
    """
    own = [one for one in overrides if not one.lstrip("+~").startswith("server")]
    check_overrides(own)
    if "path" not in config.model or config.methods is not None:
        raise UserError(
            "serve: expected one method, got methods=[...]; every method has a model name of its own"
        )
    answer_type = next(filter(None, (OmegaConf.select(config, key) for key in ANSWER_TYPE)), "number")
    prompt = config.prompt.path if choices["prompt"] == "file" else choices["prompt"]
    return SoftReasoner.from_pretrained(
        config.model.path, prompt=prompt, answer_type=answer_type, seed=config.seed, overrides=own
    )


def bound(settings: Settings) -> socket.socket:
    """Return a socket that has the address, but does not listen yet.

    Raises:
        UserError: If the address is taken or does not exist.
    """
    where = f"server.host={settings.host} server.port={settings.port}"
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        raise UserError(f"{where}: expected an address that is free, got: {error.strerror or error}; "
                        "choose another port=") from error  # fmt: skip
    return made


def address_of(listening: socket.socket) -> str:
    """Return the address that clients are given."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def make_server(service: Service, listening: socket.socket) -> Any:
    """Return a uvicorn server that first finishes its work when a signal ends it.

    Its ``run(sockets=[listening])`` serves; ``handle_exit`` is what a signal calls.
    """
    import uvicorn

    from soft_reasoning.integrations.server.app import create_app

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            service.close()

        async def on_tick(self, counter: int) -> bool:
            if service.drained():
                self.should_exit = True
            return await super().on_tick(counter)

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            said = f"serving {service.names.model} at {address_of(listening)} (Ctrl-C ends it)"
            print(f"soft_reasoning: {said}", file=sys.stderr, flush=True)

    return Server(
        uvicorn.Config(
            create_app(service),
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=WRITE_SECONDS,
        )
    )


def log_to_stderr() -> None:
    """Write a line for each request to standard error."""
    handler, own = logging.StreamHandler(sys.stderr), logging.getLogger(__package__)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    own.addHandler(handler)
    own.setLevel(logging.INFO)
    own.propagate = False  # Hydra's own handler would print them again


def serve(config: DictConfig, choices: Mapping[str, str], overrides: Sequence[str]) -> None:
    """Serve what the composed configuration describes, until a signal ends it."""
    try:
        import uvicorn  # noqa: F401

        from soft_reasoning.integrations.server.service import Service
    except ImportError as error:
        raise UserError(f"serve: expected FastAPI and uvicorn, got none ({error}); "
                        "pip install 'soft-reasoning[serve]'") from error  # fmt: skip
    settings: Settings = instantiate(config.server)
    methods = [*untrained_methods()]
    with bound(settings) as listening, closing(reasoner_of(config, choices, overrides)) as reasoner:
        if config.method.name not in methods:  # a trained method, whose model this is
            methods.append(config.method.name)
        name = settings.model_name or Path(config.model.path).name
        if not settings.local and settings.api_key is None:
            print(f"soft_reasoning: anyone who reaches {settings.host} can use this server; set "
                  "SOFT_REASONING_API_KEY", file=sys.stderr)  # fmt: skip
        log_to_stderr()
        service = Service(reasoner, settings, Names(name, sorted(methods)), config.max_live)
        make_server(service, listening).run(sockets=[listening])


@hydra.main(version_base="1.3", config_path=conf_dir(), config_name="config")
def hydra_main(config: DictConfig) -> None:
    """Serve what the command line describes."""
    with one_line_errors():
        check(config)
        found = HydraConfig.get()
        serve(config, found.runtime.choices, found.overrides.task)


def main() -> None:
    """Run the command line."""
    register_resolvers()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # errors come to us instead of to Hydra's own printing
    # Nothing is written, so the folder of the run is one that exists.
    sys.argv[1:] = ["hydra.run.dir=.", *completed(overrides_of(sys.argv[1:]))]
    with one_line_errors():
        hydra_main()


if __name__ == "__main__":
    main()
