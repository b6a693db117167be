"""The file of a store: completions by key in SQLite, of bounded size, shared by processes of one machine.

A completion is stored as compact bytes, without a change of any bit.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from threading import Lock
from time import time
from typing import Any

import numpy
import torch
from torch import Tensor

from soft_reasoning.checks import real
from soft_reasoning.types import Completion, FinishReason, TopLogprobs, UserError

HEAD = 4
"""Bytes that hold the length of the values in JSON, before the bytes of the tensors."""
VERSION = 1
"""Version of the file's format and of everything that decides a completion but is not in its key."""
WAIT = 60.0
"""Seconds to wait while another process writes."""
TOUCHED = 3600.0
"""Seconds after which a completion that is read again counts as used again."""
KEPT = 0.9
"""Share of the size that is left when the least recently used completions are deleted."""
AT_ONCE = 500
"""Keys in a statement."""


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


class CompletionStore:
    """Completions by key in the SQLite file ``path``, which is created with its folder.

    A killed process loses nothing that :meth:`keep` returned from. Threads and processes may use the file at
    once, but not machines, since SQLite's log does not work on a network's file system.

    Args:
        path: The file.
        gigabytes: Maximum size of all completions; beyond it the least recently used are deleted.

    Raises:
        UserError: If the file is damaged, of another version, or locked for more than a minute, or cannot be
            written, here and in every method.
    """

    def __init__(self, path: Path, gigabytes: float) -> None:
        self.path = path
        self._most = real("cache_gb", gigabytes, above=0.0) * 1e9
        self._lock = Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cache: expected a folder, got {path.parent} ({error.strerror})") from error
        with self._one_line_errors():
            self._db = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")  # a power failure may lose the last steps
        with self._transaction():
            [version] = self._db.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise UserError(
                    f"cache: expected a file of version {VERSION}, got {self.path} of version {version}; "
                    "delete it, or choose another folder"
                )
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS completions "
                "(key BLOB PRIMARY KEY, used REAL NOT NULL, value BLOB NOT NULL)"
            )
            self._db.execute("CREATE INDEX IF NOT EXISTS by_use ON completions (used)")
            self._db.execute(f"PRAGMA user_version={VERSION}")

    def __len__(self) -> int:
        with self._lock, self._one_line_errors():
            return self._db.execute("SELECT count(*) FROM completions").fetchone()[0]

    def find(self, keys: Collection[bytes]) -> dict[bytes, Completion]:
        """Return those completions of ``keys`` that are stored."""
        wanted, now = list(dict.fromkeys(keys)), time()
        completions, old = dict[bytes, Completion](), list[tuple[float, bytes]]()
        with self._lock, self._one_line_errors():
            for start in range(0, len(wanted), AT_ONCE):
                part = wanted[start : start + AT_ONCE]
                query = f"SELECT key, used, value FROM completions WHERE key IN ({','.join('?' * len(part))})"
                for key, used, value in self._db.execute(query, part):
                    completions[key] = decode(value)
                    old += [(now, key)] if used < now - TOUCHED else []
            if old:
                with self._transaction():
                    self._db.executemany("UPDATE completions SET used = ? WHERE key = ?", old)
        return completions

    def keep(self, completions: Mapping[bytes, Completion]) -> None:
        """Store completions by key, in one transaction."""
        now = time()
        rows = [(key, now, encode(completion)) for key, completion in completions.items()]
        with self._lock, self._one_line_errors(), self._transaction():
            self._db.executemany("INSERT OR IGNORE INTO completions VALUES (?, ?, ?)", rows)
            self._evict()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _evict(self) -> None:
        pages, free, size = (
            self._db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (excess := (pages - free) * size - self._most) <= 0:
            return
        excess += (1 - KEPT) * self._most
        oldest = self._db.execute("SELECT key, length(value) FROM completions ORDER BY used, rowid")
        doomed: list[tuple[bytes]] = []
        for key, length in oldest:
            if excess <= 0:
                break
            doomed.append((key,))
            excess -= length + 2 * len(key)
        oldest.close()
        self._db.executemany("DELETE FROM completions WHERE key = ?", doomed)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextmanager
    def _one_line_errors(self) -> Generator[None]:
        try:
            yield
        except (sqlite3.Error, zlib.error) as error:
            locked = "locked" in str(error)
            raise UserError(
                f"cache: expected a file of completions, got {self.path}, and {error}; "
                + ("wait for the process that holds it" if locked else "delete it, free space on the disk")
                + ", or take another folder or cache=none"
            ) from error
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:  # other forms
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"cache: expected a file of completions, got {self.path} with rows of another program; take "
                "another folder or cache=none"
            ) from error
