"""The options of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from soft_reasoning.serve.errors import describe_error
from soft_reasoning.types import UserError

LOCAL = ("localhost", "127.0.0.1", "::1")


class Settings(BaseModel):
    """The group ``server`` of the configuration.

    Attributes:
        host: The address to listen at; 0.0.0.0 is every network.
        port: The port; 0 takes a free one.
        api_key: The key that clients must send; None accepts every client.
        model_name: The model's name for clients; None takes the last part of its path.
        allowed_hosts: Accepted Host headers; None accepts this machine's on a local address, else any.
        allowed_origins: Pages that may send requests; "*" accepts any.
        max_body_bytes: Maximum number of bytes of a request.
        max_tokens: Maximum number of generated tokens of a request; None takes the option max_tokens.
        max_seconds: Time limit of a request in seconds, including its wait.
        max_n: Maximum number of choices of a request, and of prompts of a completion.
        max_k: Maximum number of candidates per round that a request may ask for.
        max_rounds: Maximum number of rounds that a request may ask for.
        max_connections: Maximum number of open connections.
        drain_seconds: Time limit for unfinished work after Ctrl-C or SIGTERM, in seconds.
        keep_alive_seconds: Seconds between two counts of tokens in a stream.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8000, ge=0, le=65535)
    api_key: str | None = Field(default=None, pattern="^[!-~]+$")  # visible ASCII
    model_name: str | None = None
    allowed_hosts: Sequence[str] | None = None
    allowed_origins: Sequence[str] = ()
    max_body_bytes: int = Field(default=2**20, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_seconds: float = Field(default=600.0, gt=0)
    max_n: int = Field(default=16, ge=1)
    max_k: int = Field(default=64, ge=1)
    max_rounds: int = Field(default=64, ge=0)
    max_connections: int = Field(default=512, ge=1)
    drain_seconds: float = Field(default=30.0, ge=0)
    keep_alive_seconds: float = Field(default=10.0, gt=0)

    @classmethod
    def from_group(cls, group: Mapping[str, Any]) -> Settings:
        """Return the settings in a group of the configuration.

        Raises:
            UserError: For a value out of its range.
        """
        try:
            return cls.model_validate(group)
        except ValidationError as error:
            raise UserError(f"server.{describe_error(error.errors()[0])[1]}") from error

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
