"""Errors in OpenAI's format."""

from __future__ import annotations

from typing import Any

from fastapi import HTTPException


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
