"""The server's answers, read by OpenAI's client, are those of SoftReasoner.solve."""

import itertools
import json
import threading

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from soft_reasoning.serve.requests import ChatBody  # noqa: E402
from soft_reasoning.serve.responses import write_choices  # noqa: E402
from soft_reasoning.solution import Solution  # noqa: E402
from soft_reasoning.types import Candidate  # noqa: E402
from tests.serve.serving import QUESTION, ask, chat, served  # noqa: E402

Q = QUESTION
PROMPT = f"Question:\n{Q}\nThought:\n"


def check(response, solution, stops=()):
    """Everything of a response that follows from its solution."""
    text = solution.text
    for stop in stops:  # the verifier's text is cut as well
        text = text.partition(stop)[0]
    assert response.choices[0].message.content == text
    roles, usage = solution.usage.values(), response.usage
    assert usage.prompt_tokens == sum(role.prompt_tokens for role in roles)
    assert usage.completion_tokens == solution.generated_tokens
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    lengths = {each.text: each.generated_tokens for each in solution.candidates}
    shown = sum(lengths.get(choice.message.content, 0) for choice in response.choices)
    assert usage.completion_tokens_details.reasoning_tokens == usage.completion_tokens - shown
    assert response.soft_reasoning == solution.summary()


def test_the_name_of_a_model_chooses_the_method(client, reasoner):
    check(ask(client), reasoner.solve(Q))
    greedy = reasoner.solve(Q, method="cot")
    response = ask(client, "cot-demo")
    check(response, greedy)
    assert response.usage.completion_tokens_details.reasoning_tokens == 0
    assert response.choices[0].message.reasoning is None
    names = [model.id for model in client.models.list()]
    assert names[0] == "demo" and {"cot-demo", "soft_reasoning-demo"} < {*names}
    assert client.models.retrieve("cot-demo").id == "cot-demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


@pytest.mark.parametrize("method", ["cot", "mixed_consistency"])
def test_programs_answer_questions_for_a_number_and_words_the_others(method):
    options = {"prompt": "any", "method": method, "max_new_tokens": 30, "engine": "fake"}
    with SoftReasoner.from_pretrained("demo", **options) as reasoner:
        with served(reasoner) as running, running.client() as client:
            kinds = ({"answer_type": "number"}, None)
            replies = [ask(client, "mixed_consistency-demo", extra=kind, n=16) for kind in kinds]
            with pytest.raises(openai.BadRequestError, match="a question with an answer of type open"):
                ask(client, "program_consistency-demo")
    texts = [[choice.message.content for choice in reply.choices] for reply in replies]
    assert [sum(text.startswith("```python\n") for text in each) for each in texts] == [4, 0]
    assert all(any(text and text[:3] != "```" for text in each) for each in texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"extra": {"k": 4, "rounds": 0, "preset": "paper"}}, {"k": 4, "rounds": 0, "preset": "paper"}),
        ({"extra": {"max_seconds": 1e-9}}, {"max_seconds": 1e-9}),
        ({"temperature": 1.5, "seed": 7}, {"temperature": 1.5, "seed": 7}),
        ({"max_tokens": 2}, {"max_new_tokens": 2}),
        ({"model": "self_consistency-demo", "top_p": 0.01}, {"method": "self_consistency", "top_p": 0.01}),
        ({"max_completion_tokens": 40}, {"max_tokens": 40}),
        ({"stop": ["=", "Answer"]}, {"stop": ["=", "Answer"]}),
    ],
)
def test_fields_that_act(client, reasoner, sent, meant):
    response, solution = ask(client, **sent), reasoner.solve(Q, **meant)
    plain = reasoner.solve(Q)
    assert (solution.candidates, solution.generated_tokens) != (plain.candidates, plain.generated_tokens)
    check(response, solution, meant.get("stop", ()))
    if "max_tokens" in sent:
        assert response.choices[0].finish_reason == "length"


def test_harmless_fields_are_taken_and_change_nothing(client):
    parts = [{"type": "text", "text": Q[:10]}, {"type": "text", "text": Q[10:]}]
    sent = {
        "colour": None,
        "frequency_penalty": 0,
        "top_k": -1,
        "top_p": 0.5,
        "min_p": 0,
        "verbosity": "medium",
        "tools": [],
        "response_format": {"type": "text"},
        "stream_options": None,
        "user": "ann",
        "metadata": {"a": "b"},
        "soft_reasoning": None,
    }
    messages = [{"role": "user", "content": parts, "name": "ann"}]
    response = client.chat.completions.create(
        model="cot-demo", messages=messages, temperature=0.7, extra_body=sent
    )
    assert response.choices == ask(client, "cot-demo").choices
    prompt = client.completions.create(model="cot-demo", prompt=PROMPT, extra_body=sent)
    assert prompt.choices == client.completions.create(model="cot-demo", prompt=PROMPT).choices


def test_a_chat_with_an_earlier_answer(client, reasoner):
    first = ask(client, "cot-demo").choices[0].message
    talk = [{"role": "developer", "content": "Be brief."}, *chat(Q), first, *chat("How many are left?")]
    meant = [
        {"role": "system", "content": "Be brief."},
        *chat(Q),
        {"role": "assistant", "content": first.content},
        *chat("How many are left?"),
    ]
    response = client.chat.completions.create(model="cot-demo", messages=talk)
    check(response, reasoner.solve(meant, method="cot"))


@pytest.mark.slow
def test_n_is_the_chosen_solution_and_the_others_by_reward(client, reasoner):
    solution = reasoner.solve(Q)
    for n in (2, 16):
        response = ask(client, n=n)
        check(response, solution)
        count = len(solution.candidates) + (response.choices[0].soft_reasoning["source"] == "verifier")
        assert len(response.choices) == min(n, count)
        rewards = [choice.soft_reasoning["reward"] for choice in response.choices[1:]]
        assert rewards == sorted(rewards, reverse=True)
    assert len(ask(client, "cot-demo", n=3).choices) == 1  # there are no more


@pytest.mark.slow
@pytest.mark.parametrize("model", ["demo", "cot-demo", "rap-demo"])
def test_a_stream_holds_the_same_answer(client, model):
    whole = ask(client, model, n=2)
    options = {"n": 2, "stream_options": {"include_usage": True}}
    chunks = list(ask(client, model, stream=True, **options))
    assert {(chunk.object, chunk.id) for chunk in chunks} == {("chat.completion.chunk", chunks[0].id)}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    for choice in whole.choices:
        parts = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.delta.content or "" for part in parts) == choice.message.content
        reasoning = [getattr(part.delta, "reasoning", None) or "" for part in parts]
        assert "".join(reasoning) == (choice.message.reasoning or "")
        assert [part.finish_reason for part in parts if part.finish_reason] == [choice.finish_reason]


def test_a_stream_has_a_line_at_once_for_each_round_and_for_the_tokens_so_far(reasoner):
    body = {"model": "demo", "messages": chat(Q), "stream": True}
    with served(reasoner, keep_alive_seconds=0.05) as running:
        with httpx.stream("POST", f"{running.url}/chat/completions", json=body, timeout=None) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith("data: {")]
    assert deltas[0]["role"] == "assistant"
    reasoning = [d["reasoning_content"] for d in deltas if d.get("reasoning_content")]
    counts = [int(line.split()[0]) for line in reasoning if line.endswith(" tokens so far\n")]
    assert counts == sorted(counts) and 0 < counts[-1] <= reasoner.solve(Q).total.generated_tokens
    reasoning = [line for line in reasoning if not line.endswith(" tokens so far\n")]
    rounds = reasoner.solve(Q).rounds
    assert len(reasoning) == len(rounds) == 2
    best = max(rounds[1], key=lambda candidate: candidate.reward)
    assert reasoning[1].startswith(f"Round 2: 2 candidates, the best says {best.answer} (reward ")


def test_a_greedy_solution_comes_as_it_is_written(reasoner, monkeypatch):
    engine, calls, received = reasoner.context.engine, itertools.count(), threading.Event()
    advance = engine.advance

    def wait_for_the_client():
        if next(calls) == 35:  # the text is not finished
            received.wait()
        return advance()

    monkeypatch.setattr(engine, "advance", wait_for_the_client)
    parts = []
    with served(reasoner) as running, running.client() as client:
        for chunk in ask(client, "cot-demo", stream=True):
            parts += [chunk.choices[0].delta.content or ""]
            if parts[-1]:
                received.set()
    assert len([part for part in parts if part]) > 1
    assert "".join(parts) == reasoner.solve(Q, method="cot").text


def test_an_answer_that_only_programs_gave_begins_with_a_sentence():
    code = "```python\ndef solution(): return 15\n```\nAnswer: 15"
    program, words = Candidate(code, "15", 0, computed=True), Candidate("So it is 15.", "15", 0)
    verdict = {"round": 0, "verifier": {"answers": ["15"], "texts": [code], "computed": True}}
    body = ChatBody(model="demo", messages=chat(Q))
    for solution, source in (
        (Solution("15", (program,)), "candidate"),
        (Solution("15", (Candidate("It is 12.", "12", 0),), (verdict,)), "verifier"),
    ):
        [written] = write_choices(solution, body)
        assert written.text == f"The answer is 15. This program computes it:\n\n{code}"
        assert written.extra["source"] == source
    [written] = write_choices(Solution("15", (words, program)), body)
    assert written.text == "So it is 15."


def test_a_temperature_that_cannot_act_is_told(client, reasoner):
    response = ask(client, "self_consistency-demo", temperature=0)
    assert response.choices[0].message.content == reasoner.solve(Q, method="self_consistency").text
    assert response.soft_reasoning["warning"].startswith("temperature: expected a finite number above 0")
    assert "cot" in ask(client, "cot-demo", temperature=0.5).soft_reasoning["warning"]
    assert "warning" not in ask(client, "cot-demo").soft_reasoning


def test_a_type_of_answer_per_request():
    asked = [{"role": "user", "content": "How many eggs are in a dozen?"}]
    with (
        SoftReasoner.from_pretrained("some/model", engine="fake", max_new_tokens=20) as reasoner,
        served(reasoner) as running,
        running.client() as client,
    ):
        ends = {}
        for kind in ("number", "boolean"):
            reply = ask(client, messages=asked, extra={"answer_type": kind})
            ends[kind] = reply.choices[0].message.content
            solved = reasoner.solve({"question": asked[0]["content"], "answer_type": kind})
            assert ends[kind] == solved.text and reply.soft_reasoning == solved.summary()
        assert ends["number"] != ends["boolean"]
        with pytest.raises(openai.BadRequestError, match="soft_reasoning.answer_type: String should match"):
            ask(client, messages=asked, extra={"answer_type": "bool"})


class TestCompletions:
    def test_a_prompt_reaches_the_model_as_it_is(self, client, reasoner):
        ids = reasoner.context.engine.tokenizer.encode(PROMPT)
        alone = reasoner.solve({"question": PROMPT, "prompt": PROMPT}, method="cot").candidates[0]
        for prompt in (PROMPT, ids, [PROMPT], [ids]):
            response = client.completions.create(model="cot-demo", prompt=prompt)
            [choice] = response.choices
            assert (response.object, choice.text) == ("text_completion", alone.text)
        both = client.completions.create(model="cot-demo", prompt=[ids, ids[1:]])  # of the same text
        assert both.choices[0].text == alone.text and len(both.choices) == 2

    def test_the_fake_engine_completes_texts_and_ids(self):
        with SoftReasoner.from_pretrained("demo", engine="fake", max_new_tokens=9) as fake:
            ids = fake.context.engine.tokenizer.encode("How many?")
            with served(fake) as running, running.client() as client:
                texts = [client.completions.create(model="cot-demo", prompt=p) for p in ("How many?", ids)]
        assert texts[0].choices[0].text == texts[1].choices[0].text != ""

    def test_several_prompts_and_a_stream(self, client):
        whole = client.completions.create(model="demo", prompt=[PROMPT, "Hello"], max_tokens=20, n=2)
        assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
        stream = client.completions.create(
            model="demo", prompt=[PROMPT, "Hello"], max_tokens=20, n=2, stream=True
        )
        assert [c.text for chunk in stream for c in chunk.choices] == [c.text for c in whole.choices]
        with pytest.raises(openai.BadRequestError, match="prompt: expected at most 16, the limit"):
            client.completions.create(model="demo", prompt=["Hello"] * 17)
