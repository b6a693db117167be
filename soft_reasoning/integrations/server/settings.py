"""The options of the server itself, and their checks."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.checks import real, whole
from soft_reasoning.types import UserError


@dataclass(frozen=True)
class Settings:
    """The group ``server`` of the configuration.

    Args:
        host: The address to listen on.
        port: The port; 0 is a free one.
        api_key: What clients must send; None accepts anything.
        model_name: What clients call the model; None is the last part of its path.
        max_body_bytes: Most bytes of a request.
        max_tokens: Most generated tokens of a request, all work together; None is the configured max_tokens.
        max_seconds: Most seconds of a request, its wait included.
        max_n: Most choices of a request.
        max_k: Most candidates of a round that a request may ask for.
        max_rounds: Most rounds that a request may ask for.
        max_waiting: Requests that may wait beside the ``max_live`` in work.
        drain_seconds: Time for work to be finished after a signal.
        keep_alive_seconds: Time between comments in a stream that waits.

    Raises:
        UserError: For a value out of its range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    model_name: str | None = None
    max_body_bytes: int = 2**20
    max_tokens: int | None = None
    max_seconds: float = 600.0
    max_n: int = 16
    max_k: int = 64
    max_rounds: int = 64
    max_waiting: int = 256
    drain_seconds: float = 30.0
    keep_alive_seconds: float = 15.0

    def __post_init__(self) -> None:
        whole("server.port", self.port, least=0, most=65535)
        for key in ("max_body_bytes", "max_n", "max_k"):
            whole(f"server.{key}", getattr(self, key), least=1)
        for key in ("max_rounds", "max_waiting"):
            whole(f"server.{key}", getattr(self, key), least=0)
        if self.max_tokens is not None:
            whole("server.max_tokens", self.max_tokens, least=1)
        for key in ("max_seconds", "keep_alive_seconds"):
            real(f"server.{key}", getattr(self, key), above=0.0)
        real("server.drain_seconds", self.drain_seconds, least=0.0)
        if not isinstance(self.host, str) or not self.host:
            raise UserError(f"server.host: expected an address such as 127.0.0.1, got {self.host!r:.40}")
        for key in ("api_key", "model_name"):  # a number in the environment or on the command line is one too
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, str(value))
        if self.api_key is not None and (not self.api_key.strip() or not self.api_key.isascii()):
            raise UserError("server.api_key: expected ASCII text that is not blank; choose another one")

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")
