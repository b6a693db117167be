"""The server's routes, streams and process."""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import chain
from socket import AF_INET, AF_INET6
from typing import Annotated, Any, TypeVar

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import Receive, Scope, Send

from soft_reasoning.serve.errors import ApiError, error_body
from soft_reasoning.serve.requests import ChatBody, TextBody
from soft_reasoning.serve.responses import ChatReply, TextReply, event
from soft_reasoning.serve.service import Service, shutting_down
from soft_reasoning.serve.settings import Settings, describe_error
from soft_reasoning.types import Round, UserError

T = TypeVar("T")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


def create_app(service: Service) -> FastAPI:
    """Return the application."""
    app, settings = FastAPI(openapi_url=None), service.settings
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes)
    app.add_middleware(
        CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)
    needs_key = [Depends(check_key(settings))]

    @app.get("/health")
    async def health() -> Response:
        closed = service.reasoner.closed
        return JSONResponse(
            {"status": "closed" if closed else "ok", "in_progress": service.in_progress},
            503 if closed else 200,
        )

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400 and error.__cause__ is not None and not isinstance(error, ApiError):
            why = " ".join(str(error.__cause__).split())  # FastAPI's message tells none
            error = ApiError(400, f"body: expected a JSON object in UTF-8, got an error ({why})", "body")
        return JSONResponse(error_body(error), error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        last = error.errors()[-1]  # of a union: the error of the list rather than of the text
        field, message = describe_error(last)
        if last["type"] == "string_unicode":  # of a name or a value
            field = field or "body"
            message = f"{field}: expected text in UTF-8, got half a surrogate pair in {last['input']!r:.80}"
        elif last["type"] == "json_invalid" or not field:
            field = "body"
            message = "body: expected a JSON object and the header Content-Type: application/json"
        return JSONResponse(error_body(ApiError(400, message, field)), 400)

    app.include_router(api_routes(service), dependencies=needs_key)
    return app


def check_key(settings: Settings) -> Callable[[Credentials], None]:
    """Return a check of a request's key, which does nothing if the server has none."""

    def check(credentials: Credentials) -> None:
        if settings.api_key is None:
            return
        key = credentials.credentials if credentials else ""
        if not hmac.compare_digest(key.encode(), settings.api_key.encode()):
            raise ApiError(
                401,
                "expected the header Authorization: Bearer KEY with this server's key, got "
                f"{'another key' if key else 'none'}",
                code="invalid_api_key",
            )

    return check


def api_routes(service: Service) -> APIRouter:
    """Return the routes of OpenAI's API."""
    v1, created = APIRouter(prefix="/v1"), int(time.time())

    @v1.post("/chat/completions")
    async def chat(body: ChatBody, http: Request) -> Response:
        return await respond(http, service, ChatReply(body, service.reasoner.context.prompts))

    @v1.post("/completions")
    async def completion(body: TextBody, http: Request) -> Response:
        return await respond(http, service, TextReply(body, service.reasoner.context.prompts))

    def describe_model(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": created, "owned_by": "soft_reasoning"}

    @v1.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [describe_model(name) for name in service.names]}

    @v1.get("/models/{name:path}")
    async def model(name: str) -> dict[str, Any]:
        service.method(name)
        return describe_model(name)

    return v1


async def respond(http: Request, service: Service, reply: ChatReply) -> Response:
    """Solve a request and answer it.

    Raises:
        ApiError: For any other status than 200.
    """
    if not reply.body.stream:
        return JSONResponse(reply.full_body(await unless_disconnected(http, service.solve(reply.body))))
    parts = stream(service, reply)
    first = await unless_disconnected(http, anext(parts))  # an immediate error has its own status

    async def rest() -> AsyncIterator[str]:
        yield first
        try:
            async for part in parts:
                yield part
        except ApiError as error:
            yield event(error_body(error))

    return StreamingResponse(rest(), media_type="text/event-stream", headers={"cache-control": "no-cache"})


async def unless_disconnected(http: Request, work: Awaitable[T]) -> T:
    """Return the result of ``work``; end it when the client disconnects or the server shuts down."""
    task = asyncio.ensure_future(work)
    disconnected = asyncio.ensure_future(http.receive())  # the body was read, so only this can follow
    disconnected.add_done_callback(lambda _: task.cancel())
    try:
        return await task
    except asyncio.CancelledError as error:
        raise shutting_down() from error  # not read by a client that has disconnected
    finally:
        task.cancel()
        disconnected.cancel()


async def stream(service: Service, reply: ChatReply) -> AsyncIterator[str]:
    """Yield what is known at once, finished rounds, the tokens so far at intervals, and the answer."""
    updates, begin, tokens = asyncio.Queue[Round | int | None](), reply.begin(), 0
    task = asyncio.create_task(service.solve(reply.body, updates.put_nowait))
    task.add_done_callback(lambda _: updates.put_nowait(None))
    clock, seconds = asyncio.get_running_loop().time, service.settings.keep_alive_seconds
    due = clock() + seconds
    try:
        while True:
            news: Iterable[str] = ()
            try:
                async with asyncio.timeout_at(due):
                    update = await updates.get()
            except TimeoutError:
                due, news = clock() + seconds, reply.note(f"{tokens} tokens so far\n")
            else:
                if update is None:
                    break
                if isinstance(update, int):
                    tokens = max(tokens, update)  # between two counts a completion is in neither
                else:
                    news = reply.report_round(update)
            for part in chain(begin, news):
                yield part
        for part in chain(begin, reply.end(task.result())):
            yield part
    finally:
        task.cancel()


def bind(settings: Settings) -> socket.socket:
    """Return a socket at the server's address.

    Raises:
        UserError: If the address is in use or does not exist.
    """
    host, port = settings.host, settings.port
    try:
        return socket.create_server((host, port), family=AF_INET6 if ":" in host else AF_INET)
    except OSError as error:
        raise UserError(
            f"server.host={host} server.port={port}: expected an address that is free, got: "
            f"{error.strerror or error}; choose another port="
        ) from error


def base_url(listening: socket.socket) -> str:
    """Return the base URL for clients."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1"


class Server(uvicorn.Server):
    """Calls ``announce`` once it accepts connections and handles signals."""

    announce: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.announce is not None:
            self.announce()


def build_server(service: Service) -> Server:
    """Return the server, which ``run(sockets=[listening])`` starts and a signal ends."""
    settings, app = service.settings, create_app(service)
    full = ApiError(503, f"expected at most {settings.max_connections} open connections, got more; try again")

    async def limited(scope: Scope, receive: Receive, send: Send) -> None:
        if len(server.server_state.connections) > settings.max_connections:  # this one among them
            await JSONResponse(error_body(full), 503)(scope, receive, send)
        else:
            await app(scope, receive, send)

    config = uvicorn.Config(
        limited,
        lifespan="off",
        timeout_graceful_shutdown=settings.drain_seconds,  # pyright: ignore[reportArgumentType]
    )
    server = Server(config)
    return server
