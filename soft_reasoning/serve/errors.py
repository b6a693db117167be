"""Errors in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class ApiError(HTTPException):
    """An answer with a status other than 200: a message, the field that it is about, and a code."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code


def error_body(error: Any) -> dict[str, Any]:
    """Return the body of an answer with ``error``, an ``HTTPException``; half a surrogate pair is escaped."""
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    details = {key: getattr(error, key, None) for key in ("param", "code")}
    texts: dict[str, str | None] = {"message": error.detail, "type": kind, **details}
    return {"error": {k: v and v.encode(errors="backslashreplace").decode() for k, v in texts.items()}}


class ErrorsAsJson:
    """Middleware that gives errors in plain text, as other middleware writes them, OpenAI's format.

    Args:
        app: The application.
        messages: Messages in place of some plain texts.
    """

    def __init__(self, app: ASGIApp, messages: Mapping[str, str]) -> None:
        self.app, self.messages = app, messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None
        body = b""

        async def convert(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and message["status"] >= 400:
                if MutableHeaders(raw=message["headers"]).get("content-type", "").startswith("text/plain"):
                    start = message
                    return
            if start is None:
                await send(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            text = body.decode(errors="replace")
            error = ApiError(start["status"], self.messages.get(text, text))
            response = JSONResponse(error_body(error), error.status_code)
            kept = MutableHeaders(raw=start["headers"])
            del kept["content-type"], kept["content-length"]
            response.raw_headers += kept.raw
            await response(scope, receive, send)

        await self.app(scope, receive, convert if scope["type"] == "http" else send)
