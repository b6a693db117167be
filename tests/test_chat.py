"""Chat with the published templates: cues behind the assistant's header, soft tokens inside the text."""

from dataclasses import replace
from datetime import datetime

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_prompts
from soft_reasoning.types import Problem, UserError
from tests.chat_templates import FAMILIES, HEADERS, only, tokenizer_of

PROBLEM = Problem("p", "Ada has 3 apples and buys 4. How many apples does Ada have now?")
SOLUTIONS = ["3 + 4 = 7. Answer: 7", "4 - 3 = 1. Answer: 1"]
CUES = {
    "multi_generate": "Comparing the solutions,",
    "single_generate": "Checking the solution,",
    "multi_judge": "Correct:",
    "single_judge": "Correct:",
}
TASKS = {
    "program": ("```python\ndef solution():\n", {}),
    "prefix_right": ("Right so far:", {"partial": "3 + 4"}),
    "rap_question": ("Q:", {}),
    "rap_answer": ("A:", {"asked": "How many does Ada buy?"}),
    "rap_useful": ("Is the new question useful?", {"asked": "How many does Ada buy?"}),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request):
    return request.param, tokenizer_of(request.param)


def prompts_of(tokenizer, prompt="math", *overrides):
    config = compose_config([f"prompt={prompt}", *overrides])
    return build_prompts(config.prompt, only(tokenizer))


def made(tokenizer, prompt):
    """(name, ids, cue, the same as raw text) for everything that a wording asks."""
    chat, raw = (prompts_of(tokenizer, prompt, f"prompt.layout={name}") for name in ("chat", "completion"))
    cue = chat.wording.cue
    yield "solve", chat.solve(PROBLEM), cue, raw.solve(PROBLEM)
    for kind, cue in CUES.items():
        some = SOLUTIONS[:1] if kind.startswith("single") else SOLUTIONS
        yield kind, chat.review(kind, PROBLEM, some), cue, raw.review(kind, PROBLEM, some)
    for kind, (cue, fields) in TASKS.items():
        if kind not in chat.wording.tasks:  # knowledge is not computed
            continue
        yield kind, chat.task(kind, PROBLEM, **fields), cue, raw.task(kind, PROBLEM, **fields)


@pytest.mark.parametrize("prompt", ["math", "boolean"])
def test_every_cue_follows_the_assistants_header(family, prompt):
    name, tokenizer = family
    before, after = HEADERS[name]
    for kind, asked, cue, raw in made(tokenizer, prompt):
        text = tokenizer.decode(asked.ids)
        assert text.startswith(before) and text.endswith(f"{after}{cue}"), kind
        user = text.removeprefix(before).removesuffix(after + cue)
        whole = tokenizer.decode(raw.ids)
        text = whole.removesuffix(cue)
        assert user == (text.strip() if name.startswith(("llama", "gemma")) else text), kind  # these trim
        assert asked.cue == len(tokenizer.encode(cue, add_special_tokens=False)), kind


def test_soft_tokens_stay_out_of_headers(family):
    name, tokenizer = family
    before, after = HEADERS[name]
    prompts = prompts_of(tokenizer)
    prompt = prompts.solve(PROBLEM)

    def cut(place, problem="p"):
        at = prompts.position(prompt, place, replace(PROBLEM, id=problem), seed=0)
        return tokenizer.decode(prompt.ids[:at]), tokenizer.decode(prompt.ids[at:])

    assert cut("first")[0] == before and cut("last")[1] == ""
    places = set()
    for i in range(2000):
        left, right = cut("middle", str(i))
        assert left.startswith(before) and len(left) > len(before)
        assert right.endswith(after + prompts.wording.cue) and len(right) > len(after + prompts.wording.cue)
        places.add(len(left))
    text = len(tokenizer.decode(prompt.ids)) - len(before + after + prompts.wording.cue)
    assert min(places) <= len(before) + 3 and max(places) >= len(before) + text - 3


def test_thinking_that_is_switched_off_comes_before_the_cue():
    tokenizer = tokenizer_of("qwen3")
    prompts = prompts_of(tokenizer, "math", "+prompt.chat_options.enable_thinking=false")
    text = tokenizer.decode(prompts.solve(PROBLEM).ids)
    assert text.endswith(f"assistant\n<think>\n\n</think>\n\n{prompts.wording.cue}")
    at = prompts.position(prompts.solve(PROBLEM), "first", PROBLEM, seed=0)
    assert tokenizer.decode(prompts.solve(PROBLEM).ids[:at]) == "<|im_start|>user\n"


@pytest.mark.slow
def test_a_prompt_is_the_same_on_any_day(monkeypatch):
    tokenizer = tokenizer_of("llama3.2")
    start = HEADERS["llama3.2"][0]

    def text_on(day, *overrides):
        clock = type("clock", (), {"now": staticmethod(lambda: datetime(2031, 5, day))})
        monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", clock)
        return tokenizer.decode(prompts_of(tokenizer, "math", *overrides).solve(PROBLEM).ids)

    assert text_on(1) == text_on(2) and text_on(1).startswith(start)
    dated = text_on(1, "prompt.date='2025-12-01'")
    assert dated.startswith(start.replace("26 Jul 2024", "01 Dec 2025"))
    assert text_on(1, "+prompt.chat_options.date_string=now").startswith(start.replace("26 Jul 2024", "now"))
    for wrong in ("today", "null", "2025-13-01", "20251201"):
        with pytest.raises(UserError, match="prompt.date: expected a date such as 2024-07-26"):
            text_on(1, f"prompt.date={wrong}")
