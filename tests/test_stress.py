"""Threads and event loops that share a model get the answers of one call with all questions."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.data.demo import demo_dataset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["cot", "soft_reasoning"])
def solved(request):
    """A reasoner, questions, and what one call answers them all."""
    overrides, count = [f"method={request.param}", "max_new_tokens=60"], 60
    if request.param != "cot":
        overrides += ["search.rounds=1", "search.candidates=2", "search.stopping.rule=none"]
        count = 15
    questions = [one.question for one in demo_dataset(name="demo", limit=count).problems()]
    with SoftReasoner.from_pretrained("demo", overrides=overrides) as reasoner:
        yield reasoner, questions, reasoner.solve(questions)


def parts(result):
    return result.answer, result.candidates, result.trace, result.prompt


def check(found, expected):
    assert [parts(one) for one in found] == [parts(one) for one in expected]


@pytest.mark.parametrize("threads", [2, 8])
def test_threads(solved, threads):
    reasoner, questions, expected = solved
    some = len(questions) if threads > 2 else len(questions) // 3  # few threads make small batches
    with ThreadPoolExecutor(threads) as pool:
        check(pool.map(reasoner.solve, questions[:some]), expected[:some])


def test_an_asyncio_service(solved):
    reasoner, questions, expected = solved

    async def serve():
        return await asyncio.gather(*(reasoner.asolve(question) for question in questions))

    check(asyncio.run(serve()), expected)


def test_a_cancelled_task_leaves_the_others_alone(solved):
    reasoner, questions, expected = solved

    async def serve():
        kept, dropped = (
            asyncio.create_task(reasoner.asolve(some)) for some in (questions[:5], questions[5:])
        )
        await asyncio.sleep(0.05)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        return await asyncio.wait_for(kept, 60)

    check(asyncio.run(serve()), expected[:5])
