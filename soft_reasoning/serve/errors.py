"""Errors in OpenAI's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException


class ApiError(HTTPException):
    """An answer with a status other than 200: a message, the field that it is about, and a code."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code


def shutting_down() -> ApiError:
    """Return the error for requests that arrive or still run while the server shuts down."""
    return ApiError(503, "The server is shutting down; try another server.")


def error_body(error: HTTPException) -> dict[str, object]:
    """Return the body of an answer with ``error``; half a surrogate pair is escaped."""
    kind = "invalid_request_error" if error.status_code < 500 else "server_error"
    param, code = (getattr(error, name, None) for name in ("param", "code"))
    texts: dict[str, str | None] = {"message": error.detail, "type": kind, "param": param, "code": code}
    return {"error": {k: v and v.encode(errors="backslashreplace").decode() for k, v in texts.items()}}


def error_response(error: HTTPException) -> JSONResponse:
    """Return the answer with ``error``."""
    return JSONResponse(error_body(error), error.status_code, error.headers)


def describe_error(error: Mapping[str, Any]) -> tuple[str, str]:
    """Return the path of the field of an error of pydantic, and a message that begins with this path."""
    field = ".".join(str(part) for part in error["loc"] if part != "body")
    got = f"got {error['input']!r:.80}"
    match error["type"]:
        case "extra_forbidden" if field in ("tools", "functions"):
            return field, f"{field}: expected none, as no method calls tools; ask the model's own server"
        case "extra_forbidden":
            return field, f"{field}: expected a field that has an effect here, {got}; leave it out"
        case "missing" | "refused" | "string_pattern_mismatch":  # the last may be a key
            return field, f"{field}: {error['msg']}"
        case _:
            return field, f"{field}: {error['msg']}, {got}"
