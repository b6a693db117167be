"""The server's answers, read by OpenAI's client, are those of SoftReasoner.solve."""

import asyncio
import json
import math

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.integrations.serving import chat, questions, served  # noqa: E402

QUESTIONS = questions(6)
Q = QUESTIONS[4]  # one that takes several rounds


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", k=2, rounds=1, overrides=["max_new_tokens=60"]) as reasoner:
        yield reasoner


@pytest.fixture(scope="module")
def running(reasoner):
    with served(reasoner, keep_alive_seconds=0.05) as running:
        yield running


@pytest.fixture(scope="module")
def client(running):
    with running.client() as client:
        yield client


def ask(client, model="demo", question=Q, extra=None, **options):
    body = {} if extra is None else {"extra_body": {"soft_reasoning": extra}}
    return client.chat.completions.create(model=model, messages=chat(question), **body, **options)


def check(response, solution, stops=()):
    """Everything of a response that follows from its solution."""
    text = solution.text
    for stop in stops:  # the verifier's text is cut as well
        text = text.partition(stop)[0]
    assert response.choices[0].message.content == text
    roles, usage = solution.usage.values(), response.usage
    assert usage.prompt_tokens == sum(one.prompt_tokens for one in roles)
    assert usage.completion_tokens == solution.generated_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens
    lengths = {one.text: one.generated_tokens for one in solution.candidates}
    shown = [one.message.content for one in response.choices if one.soft_reasoning["source"] == "candidate"]
    hidden = usage.completion_tokens - sum(lengths[text] for text in shown)
    assert usage.completion_tokens_details.reasoning_tokens == hidden
    own = response.soft_reasoning
    assert (own["answer"], own["method"]) == (solution.answer, solution.method)
    assert (own["candidates"], own["rounds"]) == (len(solution.candidates), len(solution.rounds))


def test_the_default_is_the_configured_method(client, reasoner):
    for question in QUESTIONS[:3]:
        response, solution = ask(client, question=question), reasoner.solve(question)
        check(response, solution)
        assert response.soft_reasoning["method"] == "soft_reasoning" and response.model == "demo"
        assert response.object == "chat.completion" and response.id.startswith("chatcmpl-")
        assert len(solution.candidates) in (2, 4) and response.soft_reasoning["ended"] == solution.ended


def test_cached_tokens_are_those_of_the_solution(client, reasoner, monkeypatch):
    found = []
    asolve = reasoner.asolve

    async def noted(*given, **options):
        found.append(await asolve(*given, **options))
        return found[-1]

    monkeypatch.setattr(reasoner, "asolve", noted)
    usage = ask(client).usage
    assert (
        usage.prompt_tokens_details.cached_tokens == sum(u.cached_tokens for u in found[0].usage.values()) > 0
    )


def test_a_method_by_the_models_name_or_by_a_field(client, reasoner):
    greedy = reasoner.solve(Q, method="cot")
    for response in (ask(client, "cot-demo"), ask(client, extra={"method": "cot"}),
                     ask(client, "cot-demo", extra={"method": "cot"})):  # fmt: skip
        check(response, greedy)
        assert (
            response.choices[0].message.content
            == greedy.candidates[0].text
            == reasoner.solve(Q).greedy().text
        )
        assert response.usage.completion_tokens_details.reasoning_tokens == 0
    check(ask(client, "self_consistency-demo"), reasoner.solve(Q, method="self_consistency"))
    check(ask(client, "soft_reasoning-demo"), reasoner.solve(Q))


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"extra": {"k": 4}}, {"k": 4}),
        ({"extra": {"rounds": 0}}, {"rounds": 0}),
        ({"extra": {"preset": "paper"}}, {"preset": "paper"}),
        ({"extra": {"max_seconds": 0.001}}, {"max_seconds": 0.001}),
        ({"temperature": 1.5}, {"temperature": 1.5}),
        ({"temperature": 1.5, "seed": 7}, {"temperature": 1.5, "seed": 7}),
        ({"seed": 3}, {"seed": 3}),
        ({"max_tokens": 2}, {"max_new_tokens": 2}),
        ({"max_completion_tokens": 40}, {"max_tokens": 40}),
        ({"stop": "Answer"}, {"stop": ["Answer"]}),
        ({"stop": ["=", "Answer"]}, {"stop": ["=", "Answer"]}),
    ],
)
def test_fields_that_act(client, reasoner, sent, meant):
    response, solution = ask(client, **sent), reasoner.solve(Q, **meant)
    plain = reasoner.solve(Q)
    assert (solution.candidates, solution.generated_tokens) != (plain.candidates, plain.generated_tokens)
    check(response, solution, meant.get("stop", ()))
    if "stop" in sent:
        assert not any(text in response.choices[0].message.content for text in meant["stop"])
    if "max_tokens" in sent:
        assert response.choices[0].finish_reason == "length"


def test_a_temperature_of_zero_is_what_cot_has(client):
    assert ask(client, "cot-demo", temperature=0).choices == ask(client, "cot-demo").choices


def test_a_seed_repeats(client):
    def texts(seed):
        found = ask(client, "self_consistency-demo", seed=seed, n=5)
        return [one.message.content for one in found.choices]

    assert texts(1) == texts(1) != texts(2)


def test_n_is_the_chosen_solution_and_the_others_by_reward(client, reasoner):
    solution = reasoner.solve(Q)
    for n in (2, 3, 16):
        response = ask(client, n=n)
        check(response, solution)
        count = len(solution.candidates) + (response.choices[0].soft_reasoning["source"] == "verifier")
        assert len(response.choices) == min(n, count)
        assert [one.index for one in response.choices] == list(range(len(response.choices)))
        rewards = [one.soft_reasoning["reward"] for one in response.choices[1:]]
        assert rewards == sorted(rewards, reverse=True)
    assert sorted(
        one.message.content for one in response.choices if one.soft_reasoning["source"] == "candidate"
    ) == (sorted(one.text for one in solution.candidates))
    assert len(ask(client, "cot-demo", n=3).choices) == 1  # there are no more


def test_log_probabilities_are_the_engines(client, reasoner):
    candidate = reasoner.solve(Q, method="cot").candidates[0]
    [choice] = ask(client, "cot-demo", logprobs=True).choices
    said = choice.logprobs.content
    assert "".join(one.token for one in said) == choice.message.content == candidate.text
    assert [one.logprob for one in said] == list(candidate.logprobs[: len(said)])
    assert all(bytes(one.bytes).decode() == one.token and one.top_logprobs == [] for one in said)
    assert all(math.isfinite(one.logprob) and one.logprob <= 0 for one in said)
    assert ask(client, "cot-demo", logprobs=False).choices[0].logprobs is None
    for choice in ask(client, logprobs=True, n=3).choices:
        if choice.soft_reasoning["source"] == "candidate":
            assert "".join(one.token for one in choice.logprobs.content) == choice.message.content


def test_messages(client, reasoner):
    parts = [{"type": "text", "text": Q[:10]}, {"type": "text", "text": Q[10:]}]
    send = client.chat.completions.create
    assert send(model="cot-demo", messages=[{"role": "user", "content": parts}]).choices == (
        ask(client, "cot-demo").choices
    )
    first = ask(client, "cot-demo").choices[0].message
    talk = [{"role": "developer", "content": "Be brief."}, *chat(Q), first, *chat(QUESTIONS[1])]
    given = [{"role": "system", "content": "Be brief."}, *chat(Q),
             {"role": "assistant", "content": first.content}, *chat(QUESTIONS[1])]  # fmt: skip
    check(send(model="cot-demo", messages=talk), reasoner.solve(given, method="cot"))


def read(stream):
    """The chunks of a stream, and the text of each choice."""
    chunks, texts = list(stream), {}
    for chunk in chunks:
        for one in chunk.choices:
            texts[one.index] = texts.get(one.index, "") + (one.delta.content or "")
    return chunks, texts


@pytest.mark.parametrize("model", ["demo", "cot-demo"])
def test_a_stream_holds_the_same_answer(client, model):
    whole = ask(client, model, n=2, logprobs=True)
    chunks, texts = read(ask(client, model, n=2, logprobs=True, stream=True))
    assert texts == {one.index: one.message.content for one in whole.choices}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"} and len(
        {c.id for c in chunks}
    ) == 1
    ends = {one.index: one.finish_reason for c in chunks for one in c.choices if one.finish_reason}
    assert ends == {one.index: one.finish_reason for one in whole.choices}
    assert all(chunk.usage is None for chunk in chunks)
    said = [one.logprobs for c in chunks for one in c.choices if one.index == 0 and one.logprobs]
    assert [one.content for one in said] == ([whole.choices[0].logprobs.content] if said else [])
    chunks, _ = read(ask(client, model, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_a_stream_has_comments_while_rounds_go_on(running):
    body = {"model": "demo", "messages": chat(Q), "stream": True}
    with httpx.stream("POST", f"{running.url}/chat/completions", json=body, timeout=120) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    comments = [line for line in lines if line.startswith(":")]
    assert ": in work" in comments and ": round 0, 2 candidates" in comments
    assert lines[-1] == "data: [DONE]"
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert len(data) + len(comments) + 1 == len(lines)


def test_many_at_once_with_the_async_client(running, reasoner):
    async def texts():
        async with running.client(kind=openai.AsyncOpenAI) as client:

            async def one(i, question):
                given = await ask(client, "cot-demo", question, stream=i % 2 == 1)
                if i % 2 == 0:
                    return given.choices[0].message.content
                return "".join([c.choices[0].delta.content or "" async for c in given if c.choices])

            return await asyncio.gather(*(one(i, question) for i, question in enumerate(QUESTIONS)))

    assert asyncio.run(texts()) == [one.text for one in reasoner.solve(QUESTIONS, method="cot")]


def test_models(client, reasoner):
    names = [one.id for one in client.models.list()]
    assert names[0] == "demo" and {"cot-demo", "soft_reasoning-demo", "rap-demo"} < {*names}
    assert client.models.retrieve("cot-demo").id == "cot-demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")
