"""Many clients at once: nothing is lost, nothing is mixed up, and the client's script of the docs runs."""

import asyncio
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.integrations.serving import chat, questions, served, wait_until  # noqa: E402

pytestmark = pytest.mark.slow

SECONDS = 60
CLIENTS = 32


def test_32_clients_for_a_minute():
    """Plain, streamed and abandoned requests of three methods; every answer is that of one batched call."""
    asked = questions(40)
    options = {"cot": {}, "self_consistency": {"k": 3}, "soft_reasoning": {"k": 2, "rounds": 1}}
    with SoftReasoner.from_pretrained("demo", overrides=["max_new_tokens=60"]) as reasoner:
        right = {
            method: [one.text for one in reasoner.solve(asked, method=method, **more)]
            for method, more in options.items()
        }
        counts = {"answered": 0, "abandoned": 0}
        with served(reasoner) as running:

            async def one(client, draw):
                method, number = draw.choice(list(options)), draw.randrange(len(asked))
                sent = {"model": f"{method}-demo", "messages": chat(asked[number]),
                        "extra_body": {"soft_reasoning": options[method]}}  # fmt: skip
                way = draw.choice(["plain", "plain", "stream", "abandoned"])
                create = client.chat.completions.create
                if way == "plain":
                    text = (await create(**sent)).choices[0].message.content
                elif way == "stream":
                    stream = await create(**sent, stream=True)
                    text = "".join([c.choices[0].delta.content or "" async for c in stream])
                else:
                    try:
                        text = (
                            (await create(**sent, timeout=draw.uniform(0.01, 1))).choices[0].message.content
                        )
                    except openai.APITimeoutError:
                        counts["abandoned"] += 1
                        return
                assert text == right[method][number]
                counts["answered"] += 1

            async def client_of(number, ends):
                draw = random.Random(number)
                async with running.client(kind=openai.AsyncOpenAI, timeout=600) as client:
                    while time.monotonic() < ends:
                        await one(client, draw)

            async def all_of_them():
                ends = time.monotonic() + SECONDS
                await asyncio.gather(*(client_of(number, ends) for number in range(CLIENTS)))

            asyncio.run(all_of_them())
            wait_until(lambda: running.service.in_work == 0)
    assert counts["answered"] >= CLIENTS and counts["abandoned"] > 0


def test_the_script_of_the_documentation():
    script = Path(__file__).parents[2] / "docs" / "scripts" / "openai_client.py"
    with SoftReasoner.from_pretrained("demo") as reasoner, served(reasoner, api_key="k") as running:
        ended = subprocess.run([sys.executable, script, running.url, "k"], capture_output=True, text=True)
        asked = re.search(r'question = "(.*)"', script.read_text(encoding="utf-8"))[1]
        greedy = reasoner.solve(asked, method="cot")
        other = reasoner.solve(asked, k=4, rounds=1, seed=1)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("cot-demo: ") and lines[1].startswith("demo: ") and "hidden" in lines[-1]
    assert lines[0] == f"cot-demo: {greedy.text.strip()!r}, {greedy.generated_tokens} tokens"
    assert f"answer: {other.answer} of {len(other.candidates)} candidates" in lines
