"""The server's socket, and uvicorn's server, which finishes its work when a signal ends it."""

from __future__ import annotations

import socket
import sys
from types import FrameType

import uvicorn

from soft_reasoning.integrations.server.app import create_app
from soft_reasoning.integrations.server.service import Service
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.types import UserError

WRITE_SECONDS = 5
"""Time for finished answers to be read by slow clients at the end."""


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


class Server(uvicorn.Server):
    """Serves ``service`` on a socket by ``run(sockets=[listening])``.

    Args:
        service: Solves the requests.
        listening: The socket of :func:`bound`.
    """

    def __init__(self, service: Service, listening: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service), log_config=None, log_level="warning", access_log=False,
                timeout_graceful_shutdown=WRITE_SECONDS,
            )
        )  # fmt: skip
        self._service, self._listening = service, listening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, as a signal does."""
        self._service.close()

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end, which is when nothing is in work any more."""
        if self._service.drained():
            self.should_exit = True
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say where."""
        await super().startup(sockets)
        said = f"serving {self._service.names.model} at {address_of(self._listening)} (Ctrl-C ends it)"
        print(f"soft_reasoning: {said}", file=sys.stderr, flush=True)
