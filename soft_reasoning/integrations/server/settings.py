"""The options of the server itself, and the names of its models. This module needs no FastAPI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.types import UserError

LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """The group ``server`` of the configuration.

    Args:
        host: The address to listen on.
        port: The port; 0 is a free one.
        api_key: What clients must send; None accepts anything.
        model_name: What clients call the model; None is the last part of its path.
        unknown_fields: ``refuse`` or ``ignore`` fields of a request that have no effect here.
        allowed_hosts: Accepted values of the header Host. None is this machine's names on a local address,
            and any on another.
        allowed_origins: Accepted values of the header Origin, which browsers send for pages; "*" is any.
        max_body_bytes: Most bytes of a request.
        max_tokens: Most generated tokens of a request, all work together; None is the configured max_tokens.
        max_seconds: Most seconds of a request, its wait included.
        max_n: Most choices of a request, and most prompts of a completion.
        max_k: Most candidates of a round that a request may ask for.
        max_rounds: Most rounds that a request may ask for.
        max_connections: Most open connections.
        header_seconds: Most seconds until a connection's first headers have arrived.
        drain_seconds: Time for work to be finished after a signal.
        keep_alive_seconds: Time between comments in a stream that waits.

    Raises:
        UserError: For a value out of its range.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    model_name: str | None = None
    unknown_fields: str = "refuse"
    allowed_hosts: Sequence[str] | None = None
    allowed_origins: Sequence[str] = ()
    max_body_bytes: int = 2**20
    max_tokens: int | None = None
    max_seconds: float = 600.0
    max_n: int = 16
    max_k: int = 64
    max_rounds: int = 64
    max_connections: int = 512
    header_seconds: float = 10.0
    drain_seconds: float = 30.0
    keep_alive_seconds: float = 15.0

    def __post_init__(self) -> None:
        whole("port", self.port, least=0, most=65535)
        for key in ("max_body_bytes", "max_n", "max_k", "max_connections"):
            whole(key, getattr(self, key), least=1)
        whole("max_rounds", self.max_rounds, least=0)
        if self.max_tokens is not None:
            whole("max_tokens", self.max_tokens, least=1)
        for key in ("max_seconds", "keep_alive_seconds", "header_seconds"):
            real(key, getattr(self, key), above=0.0)
        real("drain_seconds", self.drain_seconds, least=0.0)
        choice("unknown_fields", self.unknown_fields, ("refuse", "ignore"))
        if not isinstance(self.host, str) or not self.host:
            raise UserError(f"server.host: expected an address such as 127.0.0.1, got {self.host!r:.40}")
        for key in ("api_key", "model_name"):  # YAML may have read a number
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, str(value))
        if self.api_key is not None and (not self.api_key.strip() or not self.api_key.isascii()):
            raise UserError("server.api_key: expected ASCII text that is not blank; choose another one")

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOCAL or self.host.startswith("127.")

    @property
    def hosts(self) -> list[str]:
        """Accepted values of the header Host."""
        if self.allowed_hosts is not None:
            return list(self.allowed_hosts)
        return [f"[{host}]" if ":" in host else host for host in (self.host, *LOCAL)] if self.local else ["*"]


def model_names(model: str, methods: Sequence[str]) -> dict[str, str | None]:
    """Return the method of each name that clients use.

    ``model`` itself is the configured method (None), METHOD-``model`` each of ``methods``.
    """
    return {model: None, **{f"{method}-{model}": method for method in methods}}
