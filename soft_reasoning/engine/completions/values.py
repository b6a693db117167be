"""A completion as compact bytes, and back, without a change of any bit."""

from __future__ import annotations

import json
import zlib
from dataclasses import fields
from typing import Any

import numpy
import torch
from torch import Tensor

from soft_reasoning.types import Completion, FinishReason, TopLogprobs

HEAD = 4
"""Bytes that hold the length of the values in JSON, before the bytes of the tensors."""


def encode(completion: Completion) -> bytes:
    """Return the bytes of ``completion``. JSON keeps every float, and tensors are stored as they are."""
    plain, tensors = dict[str, Any](), list[bytes]()
    for part in fields(completion):
        value = getattr(completion, part.name)
        if isinstance(value, Tensor):
            value = value.detach().cpu().contiguous()
            tensors.append(value.view(torch.uint8).numpy().tobytes())
            dtype = str(value.dtype).removeprefix("torch.")
            value = {"dtype": dtype, "shape": list(value.shape), "bytes": value.nbytes}
        plain[part.name] = value
    head = json.dumps(plain, separators=(",", ":")).encode()
    return zlib.compress(b"".join([len(head).to_bytes(HEAD, "little"), head, *tensors]), level=1)


def decode(data: bytes) -> Completion:
    """Return the completion of the bytes of :func:`encode`.

    Raises:
        zlib.error: If the bytes are damaged.
    """
    data = zlib.decompress(data)
    at = HEAD + int.from_bytes(data[:HEAD], "little")
    plain: dict[str, Any] = json.loads(data[HEAD:at])
    for name, value in plain.items():
        if isinstance(value, dict):
            dtype: torch.dtype = getattr(torch, value["dtype"])
            with torch.inference_mode(False):  # an ordinary tensor, as the engine's
                plain[name] = row = torch.empty(value["shape"], dtype=dtype)
                raw = numpy.frombuffer(data, numpy.uint8, value["bytes"], at)
                row.view(torch.uint8).copy_(torch.from_numpy(raw.copy()).view_as(row.view(torch.uint8)))
            at += value["bytes"]
        elif isinstance(value, list):
            plain[name] = tuple(value)
    tops = [TopLogprobs(tuple(ids), tuple(logprobs)) for ids, logprobs in plain["top_logprobs"]]
    reason = FinishReason(plain["finish_reason"])
    plain |= {"finish_reason": reason, "top_logprobs": tuple(tops)}
    return Completion(**plain)
