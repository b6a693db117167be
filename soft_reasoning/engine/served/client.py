"""A server's addresses under one URL, called by the openai package, each request in a thread of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from threading import Lock, Thread
from typing import Any, cast
from urllib.parse import urlsplit

from soft_reasoning.checks import OptionError, real, whole
from soft_reasoning.types import UserError

LONGEST = 200
"""Characters of a server's message that are shown."""

Reply = Mapping[str, Any]


class Refused(UserError):
    """The server refuses one request (400, 413, 422), as one too long for its context. Others go on."""


class Server:
    """Sends requests, at most ``at_once`` of them, which a 429 halves and each reply raises a little.

    The key comes from the environment alone. Neither it nor the URL is in a message.

    Args:
        url: Where the addresses are, such as ``http://localhost:8000/v1``.
        concurrency: Maximum number of requests in flight.
        timeout: Seconds to wait for a reply.
        retries: How often a request is sent again after a 408, 429, 5xx, timeout or lost connection.
        key_variable: The environment variable with the key.
        max_prompt_tokens: Maximum number of prompt tokens of a run, by the server's count; None is no bound.
        max_generated_tokens: The same for generated tokens. Requests beyond either end as "budget".

    Raises:
        OptionError: For a value out of its range, and for a URL with a user or a query in it.
        UserError: Without the openai package.
    """

    def __init__(
        self,
        url: str,
        *,
        concurrency: int = 32,
        timeout: float = 600.0,
        retries: int = 5,
        key_variable: str = "OPENAI_API_KEY",
        max_prompt_tokens: int | None = None,
        max_generated_tokens: int | None = None,
    ) -> None:
        whole("concurrency", concurrency, least=1)
        whole("retries", retries, least=0)
        self._bounds = {"prompt_tokens": max_prompt_tokens, "completion_tokens": max_generated_tokens}
        self._used = dict.fromkeys(self._bounds, 0)
        real("timeout", timeout, above=0.0)
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise OptionError("url", "expected a URL such as http://localhost:8000/v1, got another text")
        if address.username or address.password or address.query:
            raise OptionError(
                "url", f"expected no user, password or query in the URL; set a key as {key_variable} instead"
            )
        try:
            import openai
        except ImportError as error:
            fix = "pip install 'openai>=2,<4'"
            raise UserError(f"engine=served: expected the package openai, found none; {fix}") from error
        for name in ("httpx", "httpx2"):  # they log every request with its URL
            logging.getLogger(name).setLevel(logging.WARNING)
        self._openai, self._secrets = openai, [url, address.netloc, os.environ.get(key_variable, "")]
        self._timeout, self._most, self._lock = timeout, concurrency, Lock()
        self.at_once: float = concurrency
        self._client = openai.OpenAI(
            base_url=url,
            api_key=os.environ.get(key_variable) or "none",
            timeout=timeout,
            max_retries=retries,
            http_client=openai.DefaultHttpxClient(event_hooks={"response": [self._notice]}),
        )

    def get(self, path: str) -> Reply:
        """Return the reply at ``path``; raises as :meth:`read`."""
        return self.read(self._start(partial(self._client.get, path, cast_to=object)))

    def submit(self, path: str, body: Mapping[str, Any], seconds: float | None = None) -> Future[Any]:
        """Send ``body`` to ``path``; :meth:`read` returns the reply. With ``seconds`` it is sent once."""
        once: Any = {"timeout": min(self._timeout, max(seconds or 0.0, 0.01)), "max_retries": 0}
        options: Any = {} if seconds is None else once
        return self._start(partial(self._client.post, path, cast_to=object, body=dict(body), options=options))

    def post(self, path: str, **body: Any) -> Reply:
        """Send ``body`` to ``path``, and return the reply; raises as :meth:`read`."""
        return self.read(self.submit(path, body))

    def read(self, future: Future[Any]) -> Reply:
        """Return a reply.

        Raises:
            Refused: If the server refused this request.
            TimeoutError: If there was none in time.
            UserError: If it refuses all requests, or cannot be reached.
        """
        openai = self._openai
        try:
            reply = future.result()
        except openai.APIStatusError as error:
            kind = Refused if error.status_code in (400, 413, 422) else UserError
            fix = {401: "check the key", 403: "check the key", 404: "check the URL and the model's name"}
            then = fix.get(error.status_code, "the same command continues once the server answers again")
            raise kind(f"the server refused a request ({self._shown(error)}); {then}") from None
        except openai.APITimeoutError:
            raise TimeoutError(f"the server gave no reply within {self._timeout:g} seconds") from None
        except (openai.APIConnectionError, ValueError) as error:
            raise UserError(
                f"the server cannot be reached, or its reply was torn ({self._shown(error)}); the same "
                "command continues once it answers again"
            ) from None
        if not isinstance(reply, Mapping):
            raise UserError(f"expected a reply in JSON, got {self._shown(reply)}; check the URL")
        for name in self._used:
            self._used[name] += (cast(Reply, reply).get("usage") or {}).get(name) or 0
        return cast(Reply, reply)

    @property
    def spent(self) -> bool:
        """Whether the tokens of the run are used up."""
        return any(most is not None and self._used[name] >= most for name, most in self._bounds.items())

    def begin_run(self) -> None:
        """Count the tokens of another run."""
        self._used = dict.fromkeys(self._used, 0)

    def close(self) -> None:
        """Send nothing more; replies on their way are not waited for."""
        self._client.close()

    def _start(self, call: Callable[[], Any]) -> Future[Any]:
        """Start ``call`` in a thread for whose end no exit of the process waits; a pool's would be joined."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        future.set_running_or_notify_cancel()
        Thread(target=work, daemon=True).start()
        return future

    def _notice(self, response: Any) -> None:
        with self._lock:
            if response.status_code == 429:
                self.at_once = max(1.0, self.at_once / 2)
            elif response.status_code < 400:
                self.at_once = min(self._most, self.at_once + 1 / self.at_once)

    def _shown(self, what: object) -> str:
        """The beginning of a message in one line, without the URL and the key."""
        text = " ".join(str(what).split())
        for secret in filter(None, self._secrets):
            text = text.replace(secret, "...")
        return text[:LONGEST]
