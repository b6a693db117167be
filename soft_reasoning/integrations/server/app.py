"""The addresses of the server, its streams, and its process."""

from __future__ import annotations

import asyncio
import hmac
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any, TypeVar

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

from soft_reasoning.integrations.server.requests import (
    ApiError,
    ChatBody,
    ResponsesBody,
    TextBody,
    known_model,
)
from soft_reasoning.integrations.server.responses import Reply, ResponsesReply, TextReply, event
from soft_reasoning.integrations.server.service import Service, shutting_down
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.types import Round, UserError

T = TypeVar("T")
TYPES = {401: "authentication_error", 403: "permission_error", 503: "service_unavailable_error",
         504: "timeout_error"}  # fmt: skip
"""OpenAI's names of errors; others are the request's fault below 500, and the server's above."""


def create_app(service: Service) -> FastAPI:
    """Return the application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    settings, names, created = service.settings, service.names, int(time.time())
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts)

    def guard(request: Request) -> None:
        """Refuse pages of other sites, and who lacks the key."""
        origin = request.headers.get("origin")
        if origin is not None and not {origin, "*"} & {*settings.allowed_origins}:
            raise ApiError(403, f"expected no page of {origin!r:.80}; add it to server.allowed_origins")
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        right = settings.api_key is None or hmac.compare_digest(key.encode(), settings.api_key.encode())
        if not right or (settings.api_key is not None and scheme.lower() != "bearer"):
            raise ApiError(401, "expected the header Authorization: Bearer KEY with this server's key, got "
                           f"{'another key' if key else 'none'}", code="invalid_api_key")  # fmt: skip

    v1 = APIRouter(prefix="/v1", dependencies=[Depends(guard)])

    @v1.post("/chat/completions")
    async def chat(body: ChatBody, http: Request) -> Response:
        return await respond(http, service, Reply(body, service.reasoner.context.prompts))

    @v1.post("/completions")
    async def completion(body: TextBody, http: Request) -> Response:
        return await respond(http, service, TextReply(body, service.reasoner.context.prompts))

    @v1.post("/responses")
    async def response(body: ResponsesBody, http: Request) -> Response:
        return await respond(http, service, ResponsesReply(body, service.reasoner.context.prompts))

    def described(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "soft_reasoning"}

    @v1.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described(name) for name in names]}

    @v1.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        return described(known_model(name, names))

    @app.get("/health")
    async def health() -> Response:
        closed = service.reasoner.closed
        return JSONResponse({"status": "closed" if closed else "ok", "in_work": service.in_work},
                            503 if closed else 200)  # fmt: skip

    @app.get("/metrics", dependencies=[Depends(guard)])
    async def metrics() -> Response:
        counts = {**dict(sorted(service.counts.items())), "soft_reasoning_requests_in_work": service.in_work}
        lines = [f"{name} {count}\n" for name, count in counts.items()]
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")

    @app.exception_handler(HTTPException)
    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: HTTPException | RequestValidationError) -> Response:
        refusal = of_fields(error) if isinstance(error, RequestValidationError) else error
        return JSONResponse(error_body(refusal), refusal.status_code, refusal.headers)

    app.include_router(v1)
    return app


def error_body(error: HTTPException) -> dict[str, Any]:
    """Return an error as OpenAI writes it."""
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    more = {key: getattr(error, key, None) for key in ("param", "code")}
    return {"error": {"message": error.detail, "type": TYPES.get(error.status_code, kind), **more}}


def of_fields(error: RequestValidationError) -> ApiError:
    """Return the error for a field that was refused."""
    last = error.errors()[-1]  # of a union, the list rather than the text
    parts = [str(part) for part in last["loc"][1:]]
    names = [
        part for part in parts if not re.search(r"\W|^(str|int|[A-Z]\w*)$", part)
    ]  # the others are types
    if not names or last["type"] == "json_invalid":
        return ApiError(400, "body: expected a JSON object and the header Content-Type: application/json")
    place = ".".join(names)
    got = "" if last["type"] == "missing" else f", got {last['input']!r:.80}"
    return ApiError(400, f"{place}: {last['msg']}{got}", place, last["type"])


async def respond(http: Request, service: Service, reply: Reply) -> Response:
    """Solve a request and answer it.

    Raises:
        ApiError: For any other status than 200.
    """
    if not reply.body.stream:
        return JSONResponse(reply.whole(await unless_gone(http, service.solve(reply.body))))
    parts = stream(service, reply)
    first = await unless_gone(http, anext(parts))  # what is refused at once has a status of its own
    return StreamingResponse(
        rest(first, parts), media_type="text/event-stream", headers={"cache-control": "no-cache"}
    )


async def unless_gone(http: Request, work: Awaitable[T]) -> T:
    """Return the result of ``work``; end it when the client disconnects or the server shuts down."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(disconnected(http))
    gone.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError as error:
        raise shutting_down() from error  # nobody reads it where the client has gone
    finally:
        task.cancel()
        gone.cancel()


async def disconnected(http: Request) -> None:
    """Wait until the client disconnects."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def stream(service: Service, reply: Reply) -> AsyncIterator[str]:
    """Yield events of finished rounds, comments while nothing happens, and the answer."""
    rounds: asyncio.Queue[Round | None] = asyncio.Queue()
    task = asyncio.create_task(service.solve(reply.body, rounds.put_nowait))
    task.add_done_callback(lambda _: rounds.put_nowait(None))
    try:
        while True:
            try:
                async with asyncio.timeout(service.settings.keep_alive_seconds):
                    round = await rounds.get()
            except TimeoutError:
                yield ": in work\n\n"
                continue
            if round is None:
                break
            for part in reply.round(round):
                yield part
        for part in reply.end(task.result()):
            yield part
    finally:
        task.cancel()


async def rest(first: str, parts: AsyncIterator[str]) -> AsyncIterator[str]:
    """Yield ``first`` and what follows; an error is the last event."""
    yield first
    try:
        async for part in parts:
            yield part
    except ApiError as error:
        yield event(error_body(error))


def bound(settings: Settings) -> socket.socket:
    """Return a socket at the server's address.

    Raises:
        UserError: If the address is taken or does not exist.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        raise UserError(
            f"server.host={settings.host} server.port={settings.port}: expected an address that is free, "
            f"got: {error.strerror or error}; choose another port="
        ) from error


def address_of(listening: socket.socket) -> str:
    """Return the address that clients are given."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _timed(seconds: float) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a bound of the time until a connection's first headers have arrived.

    uvicorn has none: a client that never ends its headers would keep its connection, of which there are few.
    """

    class Timed(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore
            super().connection_made(transport)
            self._late = self.loop.call_later(seconds, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None:
                self._late.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            self._late.cancel()
            super().connection_lost(exc)

    return Timed


class Server(uvicorn.Server):
    """Serves ``service`` on a socket by ``run(sockets=[listening])``; uvicorn sees to signals and limits.

    Args:
        service: Solves the requests.
        listening: The socket of :func:`bound`.
    """

    def __init__(self, service: Service, listening: socket.socket) -> None:
        settings = service.settings
        super().__init__(
            uvicorn.Config(
                create_app(service), log_config=None, http=_timed(settings.header_seconds),
                limit_concurrency=settings.max_connections,
                timeout_graceful_shutdown=settings.drain_seconds,  # pyright: ignore[reportArgumentType]
            )
        )  # fmt: skip
        self._message = f"serving {next(iter(service.names))} at {address_of(listening)} (Ctrl-C ends it)"

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say where."""
        await super().startup(sockets)
        print(f"soft_reasoning: {self._message}", file=sys.stderr, flush=True)
