"""Everything at once for as long as SOAK_SECONDS says (25 by default), with counts at the end.

One process serves clients and callers in Python together. Nothing may be lost, nothing mixed up, and memory
must stay flat.
"""

import asyncio
import json
import os
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.serve.serving import chat, questions, served  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads memory in /proc"),
]

SECONDS = float(os.environ.get("SOAK_SECONDS", "25"))
CLIENTS, CALLERS = 12, 3
METHODS = {"cot": {}, "self_consistency": {"k": 3}, "soft_reasoning": {"k": 2, "rounds": 1}}
MOST_GROWTH = 60e6
"""Bytes that the process may grow after its first third."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Soak:
    """What all parts share: the right answers, the time left, the counts and the first failure."""

    def __init__(self, reasoner):
        self.reasoner, self.asked = reasoner, questions(16)
        self.right = {
            method: [solution.text for solution in reasoner.solve(self.asked, method=method, **more)]
            for method, more in METHODS.items()
        }
        self.counts, self.memory, self.failures = Counter(), list[int](), list[str]()
        self.ends = time.monotonic() + SECONDS

    @property
    def over(self) -> bool:
        return bool(self.failures) or time.monotonic() > self.ends

    def check(self, what: str, method: str, numbers: list[int], texts: list[str]) -> None:
        self.counts[what] += len(numbers)
        if texts != [self.right[method][number] for number in numbers]:
            self.failures.append(f"{what}: {method} answered {numbers} with {texts}")

    async def client(self, running, seed: int) -> None:
        """Requests over HTTP: plain, streamed, streamed and left in the middle, ended by a time limit."""
        draw = random.Random(seed)
        async with running.client(kind=openai.AsyncOpenAI, timeout=600) as client:
            while not self.over:
                method, number = draw.choice([*METHODS]), draw.randrange(len(self.asked))
                sent = {
                    "model": f"{method}-demo",
                    "messages": chat(self.asked[number]),
                    "extra_body": {"soft_reasoning": METHODS[method]},
                }
                create, way = client.chat.completions.create, draw.randrange(3)
                try:
                    if way == 0:
                        patience = draw.choice([600, draw.uniform(0.01, 3)])
                        got = await create(**sent, timeout=patience)
                        self.check("server, plain", method, [number], [got.choices[0].message.content])
                        continue
                    stream = await create(**sent, stream=True)
                    leaves, pieces = draw.randrange(20) if way == 1 else None, []
                    async for piece in stream:
                        if len(pieces) == leaves:
                            break
                        pieces.append(piece.choices[0].delta.content or "")
                    else:
                        self.check("server, streamed", method, [number], ["".join(pieces)])
                        continue
                    await stream.close()
                    self.counts["disconnected"] += 1
                except openai.APITimeoutError:
                    self.counts["given up"] += 1
                except openai.APIError as error:  # of a machine too busy for an answer
                    if "The request took longer than" not in str(error):
                        raise
                    self.counts["ended by the server's limit"] += 1

    def caller(self, seed: int) -> None:
        """Calls from Python: lists, tasks of which some are cancelled."""
        draw = random.Random(seed)
        while not self.over:
            method = draw.choice([*METHODS])
            numbers = draw.sample(range(len(self.asked)), draw.randint(1, 8))
            some = [self.asked[number] for number in numbers]
            if draw.random() < 0.5:
                solutions = self.reasoner.solve(some, method=method, **METHODS[method])
                self.check("python, lists", method, numbers, [solution.text for solution in solutions])
            else:
                asyncio.run(self.tasks(draw, method, numbers, some))

    async def tasks(self, draw: random.Random, method: str, numbers: list[int], some: list[str]) -> None:
        tasks = [
            asyncio.ensure_future(self.reasoner.asolve(q, method=method, **METHODS[method])) for q in some
        ]
        await asyncio.sleep(draw.uniform(0, 0.5))
        for task in tasks:
            if draw.random() < 0.5:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for number, outcome in zip(numbers, outcomes, strict=True):
            if isinstance(outcome, asyncio.CancelledError):
                self.counts["cancelled"] += 1
            elif isinstance(outcome, BaseException):
                self.failures.append(f"a task ended with {outcome!r}")
            else:
                self.check("python, tasks", method, [number], [outcome.text])

    def watch(self) -> None:
        while not self.over:
            self.memory.append(resident())
            time.sleep(SECONDS / 60)


def test_soak():
    with SoftReasoner.from_pretrained("demo", max_new_tokens=60) as reasoner:
        soak = Soak(reasoner)
        with served(reasoner) as running, ThreadPoolExecutor(CALLERS + 2) as pool:

            async def clients():
                await asyncio.gather(*(soak.client(running, seed) for seed in range(CLIENTS)))

            parts = [pool.submit(asyncio.run, clients()), pool.submit(soak.watch)]
            parts += [pool.submit(soak.caller, seed) for seed in range(CALLERS)]
            for part in parts:
                part.result()
            wait_until(lambda: running.service.in_progress == 0)
    third = len(soak.memory) // 3
    before, after = max(soak.memory[third : 2 * third]), max(soak.memory[2 * third :])
    print(json.dumps(soak.counts))
    assert not soak.failures, soak.failures[:3]
    assert after - before < MOST_GROWTH
    assert min(soak.counts[name] for name in ("server, plain", "python, lists")) > 0
