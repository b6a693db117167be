"""What solve takes, per-call options, callbacks, and results that explain themselves."""

import asyncio
import json
import pickle
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.prompts import ReviewWording, Wording
from soft_reasoning.solution import Solution, Vote
from soft_reasoning.types import Candidate

QUESTIONS = ["Ada has 3 apples. How many?", "Ben has 4 books. How many?"]
FAKE = {"engine": "fake", "max_new_tokens": 30}


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", **FAKE, rounds=1) as reasoner:
        yield reasoner


def test_every_form_of_a_question_gets_the_same_answer(reasoner):
    alone = reasoner.solve(QUESTIONS[0])
    chat = [{"role": "user", "content": QUESTIONS[0]}]
    for form in ({"question": QUESTIONS[0]}, {"question": QUESTIONS[0], "id": QUESTIONS[0]}, chat):
        assert reasoner.solve(form) == alone
    both = [alone, reasoner.solve(QUESTIONS[1])]
    forms = [QUESTIONS, tuple(QUESTIONS), (q for q in QUESTIONS), [chat, {"question": QUESTIONS[1]}]]
    for form in forms:
        assert reasoner.solve(form) == both
    assert asyncio.run(reasoner.asolve(QUESTIONS)) == both
    assert reasoner.solve([]) == []


def test_a_chat_is_asked_with_its_earlier_messages(reasoner):
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": QUESTIONS[0]},
    ]
    solution = reasoner.solve(chat)
    prompt = "".join(solution.prompt)
    assert "Be brief." in prompt and prompt.index("Hi.") < prompt.index("Ada has")
    assert solution.question == QUESTIONS[0]
    for bad in (chat[:3], [{"role": "user"}], [{"role": "robot", "content": "?"}]):
        with pytest.raises(UserError, match="expected (a chat|messages)"):
            reasoner.solve(bad)


def test_a_question_with_its_whole_prompt(reasoner):
    text, tokenizer = "Q: Ada has 3 apples.\nA:", reasoner.context.engine.tokenizer
    asked = {"question": QUESTIONS[0], "prompt": text, "id": "p"}
    solution = reasoner.solve(asked, method="cot")
    assert "".join(solution.prompt) == tokenizer.decode(tokenizer.encode(text))
    assert solution.question == QUESTIONS[0]
    assert reasoner.solve({**asked, "prompt": tokenizer.encode(text)}, method="cot") == solution
    reply = solution.text
    assert len(reply) > 20 and solution.candidates[0].generated_tokens > 4
    for method in ("cot", "soft_reasoning", "self_consistency", "cot_decoding", "prefix_scorer"):
        short = reasoner.solve(asked, method=method, max_new_tokens=4)
        assert max(candidate.generated_tokens for candidate in short.candidates) == 4
    stop = reply[10:14]
    stopped = reasoner.solve(asked, method="cot", stop=[stop])
    assert stopped.text == reply[: reply.index(stop)]
    searched = reasoner.solve(asked, rounds=0)
    assert tokenizer.decode(tokenizer.encode(text)) in "".join(searched.prompt)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prompt": ["a"]}, "expected a prompt that is a string or token ids, got \\['a'\\]"),
        ({"prompt": "Q", "stop": ["x"]}, "expected .*keys among question, id, .*, got 'stop'"),
        ({"anwser_type": "number"}, "expected .*keys among question, id, .*, got 'anwser_type'"),
    ],
)
def test_a_wrong_prompt_is_one_line(reasoner, wrong, message):
    with pytest.raises(UserError, match=message):
        reasoner.solve({"question": QUESTIONS[0], **wrong})


def test_a_reference_answer_is_text_or_a_number(reasoner):
    for gold, text in (("13", "13"), (13, "13"), (0.5, "0.5"), (None, None)):
        assert reasoner.problem(QUESTIONS[0], gold).gold == text
    for wrong in (True, ["13"], b"13"):
        with pytest.raises(UserError, match="gold: expected text or a number, got"):
            reasoner.problem(QUESTIONS[0], wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "cot", "k": 3}, "k: expected a method that reads it, got method=cot"),
        ({"method": "telepathy"}, "telepathy"),
        ({"k": 0}, "k: expected a whole number"),
        ({"seed": -1}, "seed: expected a whole number of at least 0"),
        ({"stop": "Answer"}, "stop: expected a list of non-empty strings"),
        ({"kk": 3}, "expected options among method, .* got kk"),
    ],
)
def test_options_that_cannot_be(reasoner, options, message):
    with pytest.raises(UserError, match=message) as error:
        reasoner.solve(QUESTIONS[0], **options)
    assert len(str(error.value).splitlines()) == 1


@contextmanager
def heard(reasoner):
    """The requests that the engine gets."""
    requests, engine, add = [], reasoner.context.engine, reasoner.context.engine.add
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "add", lambda some: requests.extend(some) or add(some))
        yield requests


@pytest.mark.parametrize("method", ["cot", "self_consistency", "cot_decoding", "soft_reasoning"])
def test_stop_texts_end_candidates_and_no_review(reasoner, method):
    def asked(**options):
        with heard(reasoner) as requests:
            solution = reasoner.solve(QUESTIONS[0], method=method, **options)
        stops = {r.role: r.stop for r in requests if r.role in ("candidate", "verifier")}
        return solution, stops

    plain, before = asked()
    word = max((c.text for c in plain.candidates), key=len)[-3:]
    stopped, after = asked(stop=[word])
    assert after["candidate"] == (*before["candidate"], word)
    assert after.get("verifier") == before.get("verifier") and ("verifier" in after) == (
        method == "soft_reasoning"
    )
    assert stopped.candidates != plain.candidates and not any(word in c.text for c in stopped.candidates)


def test_on_round_is_called_in_the_callers_thread(reasoner):
    seen = []

    def watch(round):
        seen.append((threading.current_thread(), round.problem.question, round.number, len(round.candidates)))

    solutions = reasoner.solve(QUESTIONS, on_round=watch)
    here = threading.current_thread()
    assert sorted(seen, key=lambda call: call[1:]) == [
        (here, s.question, number, 5) for s in solutions for number in range(len(s.rounds))
    ]

    def stop(round):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        reasoner.solve(QUESTIONS, on_round=stop)
    assert reasoner.solve(QUESTIONS) == solutions


def test_a_solution_explains_itself(reasoner):
    solution = reasoner.solve(QUESTIONS[0])
    assert solution.text in [c.text for c in solution.candidates] + [
        text for entry in solution.trace for text in entry["verifier"]["texts"]
    ]
    assert sum(vote.weight for vote in solution.votes) > 0
    assert len(repr(solution)) < 150 and str(solution.answer) in repr(solution)
    explanation = solution.explain()
    for part in (QUESTIONS[0], f"Answer: {solution.answer}", "Votes (reward_vote):", "Round 1:", "verifier:"):
        assert part in explanation
    data = json.loads(solution.to_json())
    assert data == solution.to_dict() and data["answer"] == solution.answer and data["text"] == solution.text
    assert len(data["candidates"]) == len(solution.candidates)
    assert pickle.loads(pickle.dumps(solution)) == solution


def test_a_notebook_shows_the_text_the_votes_and_the_candidates_and_escapes_what_a_model_wrote():
    found = Candidate("<script>1</script> & 18.", "18", 0, reward=0.5), Candidate("7", "7", 1, reward=0.25)
    votes = Vote("18", 1, 0, 0.5), Vote("7", 1, 0, 0.25)
    page = Solution("18", found, question="Why?", votes=votes, rule="reward_vote")._repr_html_()
    text = "&lt;script&gt;1&lt;/script&gt; &amp; 18."
    assert page.startswith(f"<blockquote>{text}</blockquote>") and page.count(text) == 2
    assert "Votes (reward_vote):" in page and "Round 2:" in page and "<script" not in page
    assert "<blockquote></blockquote>" in Solution(None, ())._repr_html_()


@pytest.mark.parametrize("kind", ["dict", "object"])
def test_a_prompt_of_ones_own(kind):
    ask, check = "PROBLEM {question}\n", {"ask": "CHECK {question}\n{solutions}\n"}
    prompt = {"ask": ask, "reviews": {"single_judge": check}}
    if kind == "object":
        prompt = Wording(ask=ask, reviews={"single_judge": ReviewWording(**check)})
    with SoftReasoner.from_pretrained("demo", prompt=prompt, **FAKE, rounds=0) as reasoner:
        with heard(reasoner) as asked:
            solution = reasoner.solve(QUESTIONS[0])
        assert "".join(solution.prompt).startswith("<s>PROBLEM Ada has 3")
        tokenizer = reasoner.context.engine.tokenizer
        reviews = [tokenizer.decode(list(r.prompt_ids)) for r in asked if r.role == "verifier"]
        assert reviews and all(review.startswith("<s>CHECK Ada has 3") for review in reviews)
        with pytest.raises(UserError, match="verifier=multi_judge: this prompt has no wording for it"):
            judge = replace(reasoner.method.verifier, name="multi_judge")
            reasoner.solve(QUESTIONS[0], method=replace(reasoner.method, verifier=judge))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected a YAML file"),
        ("head: hello", "prompt.wording.ask: expected a value"),
        (
            "ask: '{question}'\nheads: 1",
            "prompt.wording.heads: expected .* did you mean head?",
        ),
        ("inherits: [mth]", "prompt.inherits: expected a list of .*, got .'mth'"),
        ("inherits: [math]\ntasks: {rap_answer: {exemplars: nope}}", "prompt.tasks.exemplars: .* got 'nope'"),
    ],
)
def test_a_prompt_file_that_cannot_be(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=message) as from_python:
        SoftReasoner.from_pretrained("demo", prompt=path, **FAKE)
    with pytest.raises(UserError, match=message) as from_command_line:
        config = compose_config(["engine=fake", "dataset=custom", f"prompt={path}"])
        build_context(config, FakeEngine())
    for error in (from_python, from_command_line):
        assert len(str(error.value).splitlines()) == 1


def test_the_longest_unfinished_text_is_shown():
    texts = ["", "The", "The sum of", "The sum"]
    cut = tuple(Candidate(text, None, 0, finish_reason="length") for text in texts)
    solution = Solution(None, cut, spent="max_seconds")
    assert solution.text == "The sum of" and solution.ended == "max_seconds"
    said = "max_seconds: none of 4 candidates finished; the text is the longest of them, unfinished"
    assert solution.unfinished == said and said in solution.explain().splitlines()
    ended = replace(cut[1], finish_reason="eos")
    assert Solution(None, (*cut, ended), spent="max_seconds").unfinished is None
    assert Solution("3", (replace(cut[1], answer="3"), *cut), spent="max_seconds").text == "The"
