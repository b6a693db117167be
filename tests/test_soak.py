"""Many clients and callers at once, several times over: nothing is mixed up, and memory stays flat."""

import asyncio
import os
import random
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

TIMES = int(os.environ.get("SOAK_TIMES", "4"))
CLIENTS, CALLERS = 12, 3
METHODS = {"cot": {}, "self_consistency": {"k": 3}, "soft_reasoning": {"k": 2, "rounds": 1}}
MOST_GROWTH = 60e6
"""Bytes that the process may grow after the second time."""


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Soak:
    """What all parts share: the questions and the right answers."""

    def __init__(self, reasoner):
        self.reasoner, self.asked = reasoner, questions(16)
        self.right = {
            method: [solution.text for solution in reasoner.solve(self.asked, method=method, **more)]
            for method, more in METHODS.items()
        }

    async def client(self, running, seed: int) -> None:
        """Requests over HTTP: plain, streamed, and streamed and left in the middle."""
        draw = random.Random(seed)
        async with running.client(kind=openai.AsyncOpenAI, timeout=600) as client:
            for way in draw.sample(("plain", "plain", "streamed", "left"), 4):
                method, number = draw.choice([*METHODS]), draw.randrange(len(self.asked))
                sent = {"model": f"{method}-demo", "messages": chat(self.asked[number])}
                sent["extra_body"] = {"soft_reasoning": METHODS[method]}
                if way == "plain":
                    reply = await client.chat.completions.create(**sent)
                    assert reply.choices[0].message.content == self.right[method][number]
                    continue
                stream, pieces = await client.chat.completions.create(**sent, stream=True), []
                async for piece in stream:
                    if way == "left":
                        break
                    pieces.append(piece.choices[0].delta.content or "")
                await stream.close()
                assert way == "left" or "".join(pieces) == self.right[method][number]

    async def tasks(self, draw: random.Random) -> None:
        """Tasks of which some are cancelled."""
        method, numbers = draw.choice([*METHODS]), draw.sample(range(len(self.asked)), 6)
        solve = self.reasoner.asolve
        tasks = [
            asyncio.ensure_future(solve(self.asked[n], method=method, **METHODS[method])) for n in numbers
        ]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes[::2])
        assert [outcome.text for outcome in outcomes[1::2]] == [self.right[method][n] for n in numbers[1::2]]

    def caller(self, seed: int) -> None:
        """Calls from Python: lists and tasks."""
        draw = random.Random(seed)
        for method in METHODS:
            numbers = draw.sample(range(len(self.asked)), 5)
            some = [self.asked[number] for number in numbers]
            solutions = self.reasoner.solve(some, method=method, **METHODS[method])
            assert [solution.text for solution in solutions] == [self.right[method][n] for n in numbers]
            asyncio.run(self.tasks(draw))


def test_soak():
    with SoftReasoner.from_pretrained("demo", max_new_tokens=60) as reasoner:
        soak, memory = Soak(reasoner), list[int]()
        with served(reasoner) as running, ThreadPoolExecutor(CALLERS + 1) as pool:

            async def clients(time):
                await asyncio.gather(*(soak.client(running, CLIENTS * time + i) for i in range(CLIENTS)))

            for time in range(TIMES):
                parts = [pool.submit(asyncio.run, clients(time))]
                parts += [pool.submit(soak.caller, CALLERS * time + i) for i in range(CALLERS)]
                for part in parts:
                    part.result()
                wait_until(lambda: running.service.in_progress == 0)
                memory.append(resident())
    assert max(memory[2:]) - max(memory[:2]) < MOST_GROWTH
