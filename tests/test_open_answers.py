"""A question of any kind: the chat as it is, free text, JSON and code, and models that think."""

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.answers import Grader, equal, extract, locate
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_prompts
from soft_reasoning.engine.text import StopChecker, decode
from soft_reasoning.judge.final import FinalAnswer, SearchHistory
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.thoughts import CHANNELS, split
from soft_reasoning.types import Candidate, Problem
from tests.chat_templates import HEADERS, only, tokenizer_of
from tests.engine.models import tiny

HAIKU = "Write a haiku about an old pond."


def prompts_of(family, *overrides):
    config = compose_config(["model=./any", "prompt=any", *overrides])
    return build_prompts(config.prompt, only(tokenizer_of(family)))


def asked(prompts, **problem):
    return prompts.tokenizer.decode(prompts.solve(Problem("q", HAIKU, **problem)).ids)


@pytest.mark.parametrize("family", sorted(HEADERS))
def test_a_question_reaches_a_chat_template_as_it_is(family):
    prompts = prompts_of(family, "+prompt.chat_options.enable_thinking=false")
    text = asked(prompts)
    before, after = HEADERS[family]
    assert text.startswith(before + HAIKU + after) and prompts.stop == ()
    assert text.removeprefix(before + HAIKU + after) in ("", "<think>\n\n</think>\n\n")
    assert prompts.marks is None
    assert prompts.split("An old pond.\n", Problem("q", HAIKU)) == ("", "An old pond.\n")


ON = "+prompt.chat_options.enable_thinking=true"
OPENED = {
    "qwen3": "<|im_start|>assistant\n<think>\n",
    "gemma4": "<|turn>model\n<|channel>thought\n",
    "gpt-oss": "<|start|>assistant<|channel|>analysis<|message|>",
    "magistral": "[/INST][THINK]",
}


class TestThinking:
    @pytest.mark.parametrize("family", sorted(OPENED))
    def test_the_prompt_ends_where_the_thoughts_begin(self, family):
        prompts = prompts_of(family, *([ON] if family == "gemma4" else []))
        prompt = prompts.solve(Problem("q", HAIKU))
        assert asked(prompts).endswith(OPENED[family]) and prompt.thinks
        assert prompts.position(prompt, "last", Problem("q", HAIKU), seed=0) == len(prompt.ids)

    def test_a_template_whose_thoughts_are_off_by_default(self):
        prompts = prompts_of("gemma4")
        assert prompts.marks is None and prompts.split("Old pond", Problem("q", HAIKU)) == ("", "Old pond")
        assert asked(prompts).endswith("<|turn>model\n<|channel>thought\n<channel|>")

    @pytest.mark.parametrize("prompt", ["math", "boolean", "choice", "text"])
    def test_a_cue_may_stand_in_thoughts_that_a_template_opens(self, prompt):
        for opens in ("<think>\n", ""):
            tokenizer = tokenizer_of("qwen3")
            tokenizer.chat_template += "{%- if add_generation_prompt %}{{- '" + opens + "' }}{%- endif %}"
            prompts = build_prompts(
                compose_config(["model=./any", f"prompt={prompt}"]).prompt, only(tokenizer)
            )
            solve = prompts.solve(Problem("q", HAIKU))
            review = prompts.review("multi_generate", Problem("q", HAIKU), ["Answer: 1"])
            assert solve.thinks == review.thinks == bool(opens)
            assert tokenizer.decode(solve.ids).endswith(opens + prompts.wording.cue)

    @pytest.mark.parametrize(
        ("family", "written"),
        [
            ("qwen3", "Frogs.\n</think>\n\nOld pond<|im_end|>"),
            ("qwen3", "<think>\nFrogs.</think>Old pond"),
            ("gemma4", "Frogs.<channel|>Old pond<turn|>"),
            ("gpt-oss", "Frogs.<|end|><|start|>assistant<|channel|>final<|message|>Old pond"),
            ("magistral", "Frogs.[/THINK]Old pond"),
        ],
    )
    def test_thoughts_stand_apart_from_the_answer(self, family, written):
        prompts = prompts_of(family, *([ON] if family == "gemma4" else []))
        tokenizer, haiku = prompts.tokenizer, Problem("q", HAIKU)
        assert prompts.split(decode(tokenizer, tokenizer.encode(written)), haiku) == ("Frogs.", "Old pond")
        cut = written[: written.index(".")]
        assert prompts.split(decode(tokenizer, tokenizer.encode(cut)), haiku) == ("Frogs", "")

    @pytest.mark.parametrize("family", ["qwen3", "llama3.2"])
    @pytest.mark.parametrize("opened", [opened for opened in OPENED.values()])
    @pytest.mark.parametrize("as_ids", [False, True])
    def test_a_complete_prompt_may_open_thoughts(self, family, opened, as_ids):
        prompts = prompts_of(family)
        for text, thinks in ((f"Why? {opened}", True), ("Why?", False), (f"Why? {opened}Because", False)):
            prompt = tuple(prompts.tokenizer.encode(text)) if as_ids else text
            problem = Problem("q", HAIKU, given=prompt)
            assert prompts.solve(problem).thinks == thinks
            thought = prompts.split("3 frogs</think>Old pond", problem)
            assert thought == ("3 frogs", "Old pond")
            assert prompts.split("Old pond", problem) == (("Old pond", "") if thinks else ("", "Old pond"))

    def test_a_model_may_think_unasked(self):
        prompts = prompts_of("llama3.2")
        assert prompts.split("<think>Frogs jump", Problem("q", HAIKU)) == ("Frogs jump", "")
        assert prompts.split("[THINK]Frogs[/THINK]Pond", Problem("q", HAIKU)) == ("Frogs", "Pond")

    @pytest.mark.parametrize("opens", [True, False])
    @pytest.mark.parametrize(
        ("family", "opened", "closed"),
        [
            ("qwen3", "<think>", "</think>"),
            ("gemma4", "<|channel>thought\n", "<channel|>"),
            ("gpt-oss", CHANNELS.open, f"<|end|><|start|>assistant{CHANNELS.close}"),
            ("magistral", "[THINK]", "[/THINK]"),
        ],
    )
    def test_a_stop_string_acts_on_the_answer(self, family, opened, closed, opens):
        tokenizer = tokenizer_of(family)
        written = f"{'' if opens else opened}One.\nTwo.{closed}Old.\nPond."
        ids = tokenizer.encode(written, add_special_tokens=False)
        count, text, reason = StopChecker(tokenizer).finish(ids, (".\nT", ".\nP"), thinks=opens)
        assert split(text, opens) == ("One.\nTwo.", "Old") and reason == "stop" and count < len(ids)


@pytest.fixture(scope="module")
def thinker():
    """A random model with the real template of a model that thinks."""
    tokenizer = tokenizer_of("qwen3")
    model = tiny("qwen3", vocab_size=len(tokenizer), max_position_embeddings=1024)
    model.generation_config.max_new_tokens = 40
    with SoftReasoner(model, tokenizer, method="soft_reasoning", k=2, rounds=0, seed=1) as reasoner:
        yield reasoner


def test_a_thinking_model_solves_with_its_own_bound(thinker):
    solution = thinker.solve(HAIKU)
    assert thinker.answer_type == "open" and solution.prompt[0].endswith("<think>\n")
    for candidate in solution.candidates:
        assert candidate.generated_tokens == 40 or candidate.finish_reason == "eos"
        thought, reply = thinker.context.prompts.split(candidate.text, Problem("q", HAIKU))
        assert candidate.answer == (reply.strip() or None) and (thought or reply)
    assert all(c.generated_tokens <= 7 for c in thinker.solve(HAIKU, max_new_tokens=7).candidates)


def test_free_text_is_chosen_by_the_verifier():
    searching = {"method": "soft_reasoning", "k": 3, "rounds": 0, "seed": 2}
    with SoftReasoner.from_pretrained("demo", prompt="any", **searching) as reasoner:
        solution = reasoner.solve(HAIKU)
        assert reasoner.answer_type == "open"
        for candidate in solution.candidates:
            assert candidate.answer == (candidate.text.strip() or None)
        answered = sum(candidate.answer is not None for candidate in solution.candidates)
        assert solution.usage["verifier"].sequences == answered
        assert [entry["verifier"]["answers"] for entry in solution.trace] == [[]]  # it chose and wrote none
        assert solution.answer in {candidate.answer for candidate in solution.candidates}
        with pytest.raises(UserError, match="verifier=fresh: expected one that sees the answers"):
            reasoner.solve(HAIKU, verifier="fresh")


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        ("  Old pond,\nfrogs.\n", "open", "Old pond,\nfrogs."),
        ('Here: {"b": [1, 2], "a": null} as asked.', "json", '{"a": null, "b": [1, 2]}'),
        ('Say [1] or\n```json\n{"a": "}"}\n```', "json", '{"a": "}"}'),
        ("[NaN]", "json", None),
        ("So:\n```python\ndef f():\n    return 1\n```\nDone.", "code", "def f():\n    return 1"),
        ("```\nx = 1\n```\nbetter:\n```py\nx = 2", "code", "x = 2"),
        ("x = 1", "code", "x = 1"),
    ],
)
def test_reading(text, kind, answer):
    assert extract(text, kind) == answer == extract(text, kind, mode="strict")
    place = locate(text, kind)
    assert (place is None) == (answer is None)
    if kind == "open" and place:
        assert text[slice(*place)] == answer


@pytest.mark.parametrize(
    ("a", "b", "kind", "same"),
    [
        ("Old pond,\nfrogs", "Old pond, frogs", "open", True),
        ("Old pond", "old pond", "open", False),
        ('{"a": 1, "b": [2.0]}', '{"b": [2], "a": 1.0}', "json", True),
        ('{"a": 1}', '{"a": true}', "json", False),
        ('```json\n{"a": 1, "b": 2}\n```', '{"b": 2.0, "a": 1}', "open", True),
        ("$1,200", "1200.00", "open", True),
        ("12 pm", "12", "open", False),
        ("x=1  # one", "x = 1", "code", True),
        ("fn f() {\n  1\n}", "fn f() {\n    1\n}", "code", True),
    ],
)
def test_agreement(a, b, kind, same):
    assert equal(a, b, kind) is equal(b, a, kind) is same


def shorter_than_five(a, b):
    return len(a) < 5 and len(b) < 5


def test_a_function_of_the_users_decides():
    grader = Grader(same=f"{__name__}.shorter_than_five")
    assert grader.equal("one", "two", "open") and not grader.equal("one", "seven", "open")
    assert grader.vote(["long answer", "one", "two"], "open") == "one"
    assert not grader.equal(None, "two", "open")
    with pytest.raises(UserError, match="same: expected the dotted name of a function, got 'nowhere.at_all'"):
        Grader(same="nowhere.at_all")


@pytest.mark.parametrize("embedding", ["token_simplex", "gaussian"])
def test_a_free_text_is_whole_wherever_it_is_read(embedding):
    options = {"method": "soft_reasoning", "embedding": embedding, "k": 3, "rounds": 0, "max_new_tokens": 8}
    with SoftReasoner.from_pretrained("demo", prompt="any", **options) as reasoner:
        solution = reasoner.solve(HAIKU)
        context = reasoner.context
    decoded = [decode(context.engine.tokenizer, c.token_ids) for c in solution.candidates]
    name = "weights" if embedding == "token_simplex" else "nearest"
    for candidate, text, [soft] in zip(
        solution.candidates, decoded, solution.trace[0]["tokens"], strict=True
    ):
        assert candidate.opening == soft[name][0][0] and candidate.written == text
        assert candidate.text == candidate.opening + text and candidate.answer == candidate.text.strip()
    assert solution.text == solution.chosen.text and solution.answer == solution.text.strip()
    assert " ".join(solution.text.split()) in solution.explain()
    record = Record.new(Problem("q", HAIKU, answer_type="open"), solution, context.grader)
    assert record.line()["resps"][0] == [c.text for c in solution.candidates]
    asked = [prompt for entry in solution.trace for prompt in entry["verifier"]["prompts"]]
    for candidate in solution.candidates:  # the bundled tokenizer lacks some of the nearest tokens' pieces
        whole = any(spaced(candidate.text) in spaced(prompt) for prompt in asked)
        assert whole or embedding == "gaussian"


def spaced(text):
    return " ".join(text.split())


def test_a_solution_of_a_worded_prompt_is_judged_after_its_soft_token():
    with SoftReasoner.from_pretrained("demo", k=2, rounds=0) as reasoner:
        solution = reasoner.solve("Sam has 8 cards. 1) Sam gets 10. How many cards does Sam have now?")
    for candidate, prompt in zip(solution.candidates, solution.trace[0]["verifier"]["prompts"], strict=True):
        assert candidate.text == candidate.opening + candidate.written and candidate.opening
        assert spaced(candidate.written) in spaced(prompt) and spaced(candidate.text) not in spaced(prompt)


def free(*candidates):
    made = [Candidate(text, text, 0, reward=r, finish_reason=reason) for text, reason, r in candidates]
    return SearchHistory(made, [], Grader(), "open")


@pytest.mark.parametrize("rule", ["vote", "reward_vote", "best_reward"])
def test_a_finished_text_comes_before_one_that_was_cut(rule):
    final = FinalAnswer(rule)
    assert final.choose(free(("Old pon", "length", 2.0), ("Old pond.", "eos", 0.5))) == "Old pond."
    assert final.choose(free(("Old pon", "length", 2.0), ("A fro", "length", 1.0))) == "Old pon"


def test_the_default_for_open_questions_is_one_greedy_solution(caplog):
    with SoftReasoner.from_pretrained("demo", prompt="any") as reasoner:
        assert reasoner.method.name == "cot"
        assert reasoner.solve(HAIKU, max_new_tokens=4).method == "cot"
        with pytest.raises(UserError, match="temperature: expected a method that reads it, got method=cot"):
            reasoner.solve(HAIKU, temperature=0.7)
    assert "1 of 1 candidates were cut at 4 tokens; raise max_new_tokens" in caplog.messages
    judged = SoftReasoner.from_pretrained(
        "demo", prompt="any", method="soft_reasoning", verifier=lambda question, found: [1.0] * len(found)
    )
    with judged as reasoner:
        assert reasoner.method.name == "soft_reasoning"


def test_a_temperature_asks_for_no_search_through_the_server():
    """Clients send it with every request."""
    pytest.importorskip("fastapi")
    pytest.importorskip("openai")
    from tests.serve.serving import chat, served

    with SoftReasoner.from_pretrained("demo", prompt="any", max_new_tokens=4) as reasoner:
        with served(reasoner) as running, running.client() as client:
            create = client.chat.completions.create
            greedy = create(model="demo", messages=chat(HAIKU))
            sent = create(model="demo", messages=chat(HAIKU), temperature=0.7)
            search = {"soft_reasoning": {"k": 2, "rounds": 0}}
            searched = create(model="demo", messages=chat(HAIKU), temperature=0.7, extra_body=search)
    assert sent.choices == greedy.choices and sent.usage == greedy.usage
    assert searched.usage.completion_tokens > greedy.usage.completion_tokens
