"""The server's routes, streams and process."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from itertools import chain
from socket import AF_INET, AF_INET6
from typing import Annotated, TypeVar

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from openai.types import Model
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from soft_reasoning.schedule.method import Round
from soft_reasoning.serve.errors import (
    ApiError,
    describe_error,
    error_body,
    error_response,
    shutting_down,
)
from soft_reasoning.serve.requests import ChatBody, TextBody
from soft_reasoning.serve.responses import ChatReply, TextReply
from soft_reasoning.serve.service import Service, Update
from soft_reasoning.serve.settings import Settings
from soft_reasoning.types import UserError

T = TypeVar("T")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


NO_BODY = "body: expected a JSON object in UTF-8 and the header Content-Type: application/json"

NO_ROUTE = "address: expected /v1/chat/completions, /v1/completions, /v1/models or /health"


def create_app(service: Service) -> FastAPI:
    """Return the application."""
    app, settings = FastAPI(openapi_url=None), service.settings
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=settings.max_body_bytes)
    app.add_middleware(
        CORSMiddleware, allow_origins=settings.allowed_origins, allow_methods=["*"], allow_headers=["*"]
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.hosts, www_redirect=False)

    @app.get("/health")
    async def health() -> Response:
        closed = service.reasoner.closed
        return JSONResponse(
            {"status": "closed" if closed else "ok", "in_progress": service.in_progress},
            503 if closed else 200,
        )

    @app.exception_handler(HTTPException)
    async def _(request: Request, error: HTTPException) -> Response:
        if error.status_code == 400 and not isinstance(error, ApiError):  # FastAPI could not read the body
            error = ApiError(400, NO_BODY, "body")
        if error.status_code == 404 and not isinstance(error, ApiError):
            error = ApiError(404, f"{NO_ROUTE}, got {request.url.path}")
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field, message = describe_error(first)
        if first["type"] == "json_invalid" or not field:
            field, message = "body", NO_BODY
        return error_response(ApiError(400, message, field))

    app.include_router(api_routes(service), dependencies=[Depends(check_key(settings))])
    return app


def check_key(settings: Settings) -> Callable[[Credentials], None]:
    """Return a check of a request's key, which does nothing if the server has none."""

    def check(credentials: Credentials) -> None:
        key = credentials.credentials if credentials else ""
        if settings.api_key is not None and not hmac.compare_digest(key.encode(), settings.api_key.encode()):
            expected = "the header Authorization: Bearer KEY with this server's key"
            got = "another key" if key else "none"
            raise ApiError(401, f"expected {expected}, got {got}", code="invalid_api_key")

    return check


def api_routes(service: Service) -> APIRouter:
    """Return the routes of OpenAI's API."""
    v1, created = APIRouter(prefix="/v1"), int(time.time())

    @v1.post("/chat/completions")
    async def chat(body: ChatBody, http: Request) -> Response:
        return await respond(http, service, ChatReply(body))

    @v1.post("/completions")
    async def completion(body: TextBody, http: Request) -> Response:
        return await respond(http, service, TextReply(body))

    def describe_model(name: str) -> Model:
        return Model(id=name, object="model", created=created, owned_by="soft_reasoning")

    @v1.get("/models")
    async def models() -> dict[str, str | list[Model]]:
        return {"object": "list", "data": [describe_model(name) for name in service.names]}

    @v1.get("/models/{name:path}")
    async def model(name: str) -> Model:
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
            yield f"data: {json.dumps(error_body(error))}\n\n"

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
    updates, begin, tokens = asyncio.Queue[Update | None](), reply.begin(), 0
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
                if isinstance(update, Round):
                    news = reply.report_round(update)
                else:  # between two counts a completion is in neither
                    tokens, news = max(tokens, update[0]), reply.report_text(*update[1:])
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


def build_server(service: Service) -> uvicorn.Server:
    """Return the server, which ``run(sockets=[listening])`` starts and a signal ends."""
    settings = service.settings
    return uvicorn.Server(
        uvicorn.Config(
            create_app(service),
            lifespan="off",
            limit_concurrency=settings.max_connections + 1,  # from that number on they get a 503
            timeout_graceful_shutdown=settings.drain_seconds,  # pyright: ignore[reportArgumentType]
        )
    )
