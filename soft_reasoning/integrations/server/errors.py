"""Errors in OpenAI's format, and which error of ours becomes which status."""

from __future__ import annotations

import re
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import ValidationError

from soft_reasoning.types import UserError

TYPES = {400: "invalid_request_error", 401: "authentication_error", 404: "invalid_request_error",
         405: "invalid_request_error", 408: "timeout_error", 413: "invalid_request_error",
         429: "rate_limit_error", 503: "service_unavailable_error", 504: "timeout_error"}  # fmt: skip


class ApiError(Exception):
    """An answer other than 200.

    Args:
        status: The status code.
        message: What was expected, what came, and how to fix it.
        param: The field that it is about.
        code: A name that programs can compare.
        retry: Whether the same request may succeed later; None leaves that to the client.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: bool | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI writes it."""
        kind = TYPES.get(self.status, "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """Return the answer; OpenAI's clients read the headers to decide whether they try again."""
        headers = {"www-authenticate": "Bearer"} if self.status == 401 else {}
        if self.retry is not None:
            headers["x-should-retry"] = str(self.retry).lower()
        if self.retry:
            headers["retry-after"] = "1"
        return JSONResponse(self.body(), self.status, headers)


def refused(field: str, message: str) -> ApiError:
    """Return the error for a field of the request that cannot be."""
    return ApiError(400, f"{field}: {message}", param=field, code="invalid_value")


def of_fields(error: ValidationError) -> ApiError:
    """Return the error for the first field that pydantic refused."""
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not _is_branch(part))
    if first["type"] == "extra_forbidden":
        return ApiError(
            400,
            f"{place}: expected a field that this server knows; leave it out",
            param=place,
            code="unknown_parameter",
        )
    if first["type"] == "missing":
        return ApiError(
            400, f"{place}: expected it, got none; add it", param=place, code="missing_required_parameter"
        )
    if first["type"] == "value_error":  # our own check
        return ApiError(
            400, f"{place}: {first['msg'].removeprefix('Value error, ')}", param=place, code="invalid_value"
        )
    said, got = first["msg"].removeprefix("Input should be "), first["input"]
    return ApiError(400, f"{place}: expected {said}, got {got!r:.80}", param=place, code="invalid_value")


def _is_branch(part: int | str) -> bool:
    """Whether a part of a place names a branch of a union, such as ``list[...]``, and no field."""
    return isinstance(part, str) and bool(re.search(r"[\[\](]|^(str|int|bool|list)$", part))


def of_user(error: UserError, fields: dict[str, str]) -> ApiError:
    """Return the error for what the package refuses; ``fields`` are the request's names of our options."""
    message = str(error)
    named = re.match(r"(?:problem .*?: )?([\w.]+)[=:]", message)
    param = fields.get(named[1]) if named else None
    return ApiError(400, message, param=param, code="invalid_value")
