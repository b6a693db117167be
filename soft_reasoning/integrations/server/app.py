"""The addresses of the server: ``/v1/chat/completions``, ``/v1/models`` and ``/health``."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from soft_reasoning.integrations.server.errors import ApiError
from soft_reasoning.integrations.server.requests import ChatRequest, read_request
from soft_reasoning.integrations.server.responses import models_of, response_of
from soft_reasoning.integrations.server.service import Service
from soft_reasoning.integrations.server.streaming import DONE, Rounds, chunks_of, event
from soft_reasoning.solution import Solution

log: logging.Logger = logging.getLogger(__name__)

GONE = 499
"""Status in the log of a client that disconnected."""

MOST_UNREAD = 2**24
"""Bytes beyond the limit that are read and dropped."""


def create_app(service: Service) -> FastAPI:
    """Return the application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    created, names = int(time.time()), service.names

    @app.exception_handler(ApiError)
    async def _(_: Request, error: ApiError) -> Response:
        return error.response()

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        asked = f"{request.method} {request.url.path}"
        said = f"expected /v1/chat/completions, /v1/models or /health, got {asked}"
        return ApiError(error.status_code, said, code="unknown_url").response()

    @app.get("/health")
    async def health() -> Response:
        state = "closing" if service.closing else "ok"
        return JSONResponse({"status": state, "in_work": service.in_work}, 503 if service.closing else 200)

    @app.get("/v1/models")
    async def models(request: Request) -> dict[str, Any]:
        authorise(request, service)
        return {"object": "list", "data": models_of(names.served, created)}

    @app.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> dict[str, Any]:
        authorise(request, service)
        if not names.known(name):
            said = f"model: expected one of {', '.join(names.served)}, got {name!r:.80}"
            raise ApiError(404, said, param="model", code="model_not_found")
        return models_of([name], created)[0]

    @app.post("/v1/chat/completions")
    async def chat(http: Request) -> Response:
        authorise(http, service)
        exchange = Exchange(http, service)
        try:
            return await exchange.answer()
        except ApiError as error:
            exchange.log(error.status)
            return error.response()
        except ClientDisconnect:
            exchange.log(GONE)
            return Response(status_code=GONE)  # nobody reads it

    return app


def authorise(request: Request, service: Service) -> None:
    """Check the key of a request.

    Raises:
        ApiError: If it is not the server's.
    """
    key = service.settings.api_key
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if key is None:
        return
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), key.encode()):
        raise ApiError(401, "expected the header Authorization: Bearer KEY with this server's key, got "
                       f"{'another key' if given else 'none'}", code="invalid_api_key")  # fmt: skip


class Exchange:
    """One request for a completion and its response."""

    def __init__(self, http: Request, service: Service) -> None:
        self._http, self._service = http, service
        self._began, self._created = time.perf_counter(), int(time.time())
        self._name = f"chatcmpl-{uuid.uuid4().hex}"
        self._request: ChatRequest | None = None

    async def answer(self) -> Response:
        """Return the response.

        Raises:
            ApiError: For any other status than 200.
            ClientDisconnect: If nobody waits for it any more; its work has ended.
        """
        request = self._request = read_request(await self._body())
        rounds = Rounds()
        task = self._service.start(request, rounds.add)
        watch = asyncio.create_task(self._cancel_when_gone(task))
        task.add_done_callback(lambda _: watch.cancel())
        try:
            if request.stream:
                comments = rounds.comments(task, self._service.settings.keep_alive_seconds)
                begun = await anext(comments, "")
                if not task.done():
                    return self._streamed(self._goes_on(begun, comments, task, request))
            else:
                await asyncio.wait({task})
            body = self._finished(task, request)
        except BaseException:
            task.cancel()
            raise
        self.log(200)
        return self._streamed(_parts(body, request)) if request.stream else JSONResponse(body)

    def log(self, status: int) -> None:
        """Write a line about the request: no question, no answer."""
        asked = self._request
        model, user = ("", None) if asked is None else (asked.model, asked.user or asked.safety_identifier)
        seconds = time.perf_counter() - self._began
        log.info("%s model=%.80r user=%.80r: %d, %.2f s", self._name, model, user, status, seconds)

    def _streamed(self, parts: AsyncIterator[str]) -> Response:
        return StreamingResponse(parts, media_type="text/event-stream", headers={"cache-control": "no-cache"})

    async def _goes_on(
        self, begun: str, comments: AsyncIterator[str], task: asyncio.Task[Solution], request: ChatRequest
    ) -> AsyncIterator[str]:
        """Yield comments while the work goes on, and then the answer or the error."""
        status = GONE
        try:
            yield begun
            async for comment in comments:
                yield comment
            async for part in _parts(self._finished(task, request), request):
                yield part
            status = 200
        except ApiError as error:
            status = error.status
            yield event(error.body())
        except ClientDisconnect:
            return
        finally:
            task.cancel()
            self.log(status)

    def _finished(self, task: asyncio.Task[Solution], request: ChatRequest) -> dict[str, Any]:
        """Return the body for a finished task; errors as in :meth:`answer`."""
        if task.cancelled():
            raise self._service.shutting_down() if self._service.closing else ClientDisconnect
        tokenizer = self._service.reasoner.context.engine.tokenizer
        return response_of(self._name, self._created, request, task.result(), tokenizer)

    async def _cancel_when_gone(self, task: asyncio.Task[Solution]) -> None:
        while (await self._http.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    async def _body(self) -> bytes:
        """Read the body within the limits.

        A body that is somewhat too long is read to its end, since clients first send and then listen.
        """
        kind = self._http.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # so that no page of another site can send a request unasked
            raise ApiError(
                400, f"expected the header Content-Type: application/json, got {kind or 'none'!r:.80}"
            )
        most, seconds = self._service.settings.max_body_bytes, self._service.settings.max_seconds
        body, length = bytearray(), 0
        try:
            async with asyncio.timeout(seconds):
                async for part in self._http.stream():
                    length += len(part)
                    if length <= most:
                        body += part
                    elif length > most + MOST_UNREAD:
                        break
        except TimeoutError as error:
            raise ApiError(
                408, f"expected the whole request within {seconds:g} seconds", retry=False
            ) from error
        if length > most:
            raise ApiError(413, f"expected a request of at most {most:,} bytes, got more; shorten it")
        return bytes(body)


async def _parts(body: dict[str, Any], request: ChatRequest) -> AsyncIterator[str]:
    options = request.stream_options
    for chunk in chunks_of(body, options is not None and options.include_usage):
        yield event(chunk)
    yield DONE
