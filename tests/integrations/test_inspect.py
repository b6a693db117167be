"""Inspect evaluates the bundled model through its provider: real evals, without a network."""

import asyncio
import logging
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import Task  # noqa: E402
from inspect_ai import eval as evaluate  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import (  # noqa: E402
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from inspect_ai.scorer import match  # noqa: E402
from inspect_ai.solver import generate  # noqa: E402
from inspect_ai.tool import ToolInfo  # noqa: E402
from inspect_ai.util import JSONSchema  # noqa: E402

import soft_reasoning.integrations.inspect_registry  # noqa: E402, F401  # as the entry point does
from soft_reasoning import SoftReasoner, UserError  # noqa: E402
from soft_reasoning.data.demo import demo_dataset  # noqa: E402

ROOT = Path(__file__).parents[2]
ARGUMENTS = {"rounds": 1, "k": 3}
QUESTION = (
    "Ada has 31 apples. 1) Ada buys 3 packs of 7 apples. 2) Ada loses 12. How many apples does Ada have now?"
)


@pytest.fixture(scope="module")
def problems():
    return demo_dataset("validation", name="demo", limit=6).problems()


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", **ARGUMENTS) as reasoner:
        yield reasoner


@pytest.fixture(scope="module")
def model():
    return get_model("soft_reasoning/demo", **ARGUMENTS, memoize=False)


def ask(model, given=QUESTION, tools=(), **config):
    return asyncio.run(model.generate(given, config=GenerateConfig(**config), tools=list(tools)))


def test_an_eval_has_the_score_of_solve(problems, reasoner, tmp_path):
    samples = [Sample(input=one.question, target=one.gold, id=one.id) for one in problems]
    task = Task(dataset=samples, solver=generate(), scorer=match(location="end", numeric=True))
    [log] = evaluate(
        task, model="soft_reasoning/demo", model_args=ARGUMENTS, log_dir=str(tmp_path), display="none"
    )
    assert log.status == "success", log.error
    ours = {one.id: reasoner.solve(one.question) for one in problems}
    grader = reasoner.context.grader
    for sample in log.samples:
        assert sample.output.completion == ours[sample.id].text
        assert sample.output.metadata["answer"] == ours[sample.id].answer
    right = [grader.equal(ours[one.id].answer, one.gold, "number") for one in problems]
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(sum(right) / len(right))
    [usage] = log.stats.model_usage.values()
    assert usage.output_tokens == sum(one.generated_tokens for one in ours.values())


def test_requests_at_the_same_time_share_batches(problems, model):
    engine, sizes = model.api.reasoner.context.engine, []
    advance = engine.advance
    engine.advance = lambda: sizes.append(len(engine.queued)) or advance()

    async def all_of_them():
        return await asyncio.gather(*(model.generate(one.question) for one in problems))

    try:
        together = asyncio.run(all_of_them())
    finally:
        engine.advance = advance
    assert max(sizes) > ARGUMENTS["k"]
    for problem, found in [*zip(problems, together, strict=True)][:2]:
        assert found.completion == ask(model, problem.question).completion
    assert model.api.max_connections() == 64 and model.api.connection_key() == "demo"


def test_an_answer_counts_all_tokens(model, reasoner):
    found, solution = ask(model), reasoner.solve(QUESTION)
    assert found.completion == solution.text and found.stop_reason == "stop"
    usage = found.usage
    prompt = sum(one.prompt_tokens for one in solution.usage.values())
    assert usage.input_tokens + usage.input_tokens_cache_read == prompt
    assert usage.output_tokens == solution.generated_tokens
    assert usage.total_tokens == prompt + usage.output_tokens
    own = 0 if solution.chosen is None else solution.chosen.generated_tokens
    assert usage.reasoning_tokens == usage.output_tokens - own > 0
    assert found.metadata["candidates"] == len(solution.candidates)


class TestConfiguration:
    def test_max_tokens(self, model):
        found = ask(model, max_tokens=2)
        assert found.stop_reason == "max_tokens" and len(found.completion.split()) <= 6

    def test_temperature_seed_and_stop_texts(self, model, reasoner):
        config, plain = {"temperature": 2.0, "seed": 3}, reasoner.solve(QUESTION)
        solution = reasoner.solve(QUESTION, **config, stop=["Answer"])
        assert solution.candidates != plain.candidates
        found = ask(model, **config, stop_seqs=["Answer"], num_choices=2)
        assert [one.message.text for one in found.choices[1:]] == [one.text for one in solution.ranked[1:2]]
        with pytest.raises(UserError, match="temperature"):
            ask(get_model("soft_reasoning/demo", method="cot", memoize=False), temperature=1.0)

    def test_num_choices(self, model, reasoner):
        solution, found = reasoner.solve(QUESTION), ask(model, num_choices=3)
        assert found.choices[0].message.text == solution.text and len(found.choices) == 3
        texts = [one.text for one in solution.candidates]
        assert all(one.message.text in texts for one in found.choices[1:])

    def test_logprobs(self):
        greedy = get_model("soft_reasoning/demo", method="cot", memoize=False)
        assert ask(greedy).choices[0].logprobs is None
        [choice] = ask(greedy, logprobs=True).choices
        with SoftReasoner.from_pretrained("demo", method="cot") as reasoner:
            [candidate] = reasoner.solve(QUESTION).candidates
        assert [one.logprob for one in choice.logprobs.content] == list(candidate.logprobs)
        assert len(choice.logprobs.content) == len(candidate.token_ids)

    def test_what_has_no_effect_is_told_once(self, model, caplog):
        with caplog.at_level(logging.WARNING, "soft_reasoning.integrations.inspect_model"):
            first = ask(model, top_p=0.5, frequency_penalty=1.0, timeout=600, max_retries=1)
            assert ask(model, top_p=0.5).completion == first.completion
        said = [one.getMessage() for one in caplog.records if one.name.startswith("soft_reasoning")]
        assert said == [
            "soft_reasoning: top_p=0.5 has no effect",
            "soft_reasoning: frequency_penalty=1.0 has no effect",
        ]

    def test_what_cannot_be_met_is_refused(self, model):
        schema = ResponseSchema(name="x", json_schema=JSONSchema(type="object"))
        for config in ({"top_logprobs": 3}, {"modalities": ["image"]}, {"response_schema": schema}):
            with pytest.raises(UserError, match=f"expected no {[*config][0]}, which cannot be met"):
                ask(model, **config)


class TestInput:
    def test_a_chat(self, model, reasoner):
        chat = [("system", "Be brief."), ("user", "Hello."), ("assistant", "Hi."), ("user", QUESTION)]
        kinds = {"system": ChatMessageSystem, "user": ChatMessageUser, "assistant": ChatMessageAssistant}
        found = ask(model, [kinds[role](content=text) for role, text in chat])
        same = reasoner.solve([{"role": role, "content": text} for role, text in chat])
        assert found.completion == same.text and found.completion != ask(model).completion

    def test_what_is_no_text_is_refused(self, model):
        image = ChatMessageUser(content=[ContentImage(image="data:image/png;base64,AAAA")])
        used = [ChatMessageUser(content=QUESTION), ChatMessageTool(content="7", tool_call_id="1")]
        for given, tools, message in (
            ([image], [], "expected messages of text, got image"),
            (used, [], "expected messages of text, got tool"),
            (QUESTION, [ToolInfo(name="add", description="Adds.")], "expected a task without tools"),
            ([ChatMessageAssistant(content="Hi.")], [], "ends with the user's message"),
        ):
            with pytest.raises(UserError, match=message) as error:
                asyncio.run(model.api.generate(*_chat(given), tools, "auto", GenerateConfig()))
            assert len(str(error.value).splitlines()) == 1


def _chat(given):
    return [[ChatMessageUser(content=given)] if isinstance(given, str) else given]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "telepathy"}, "telepathy"),
        ({"colour": "red"}, "from_pretrained: expected options among .* got colour"),
        ({"base_url": "http://here"}, "expected no base_url"),
    ],
)
def test_models_that_cannot_be(arguments, message):
    with pytest.raises(UserError, match=message):
        get_model("soft_reasoning/demo", memoize=False, **arguments)


@pytest.mark.slow
def test_inspect_finds_the_provider_of_the_installed_package(tmp_path):
    """The documented script in a process of its own, where only the entry point names the provider."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["inspect_ai"]
    metadata = tmp_path / "site" / "soft_reasoning-9.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: soft-reasoning\nVersion: 9\n")
    lines = "".join(f"{key} = {value}\n" for key, value in named.items())
    (metadata / "entry_points.txt").write_text(f"[inspect_ai]\n{lines}")
    script, path = ROOT / "docs" / "scripts" / "inspect_task.py", f"{metadata.parent}:{ROOT}"
    assert "integrations" not in script.read_text()
    done = subprocess.run(
        [sys.executable, script, tmp_path / "logs"],
        capture_output=True, text=True, timeout=500, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "INSPECT_DISPLAY": "none"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = demo_dataset("validation", name="demo", limit=8).problems()
    with SoftReasoner.from_pretrained("demo", rounds=2) as reasoner:
        right = [reasoner.solve(one.question).answer == one.gold for one in found]
    assert done.stdout.splitlines()[-1] == f"accuracy {sum(right) / len(right)}"
