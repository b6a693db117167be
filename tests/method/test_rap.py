"""Reasoning via planning on scripted models: the tree, its rewards and its answer, worked out by hand."""

import json
import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from experiments.demo.problems import make_split
from experiments.demo.prompts import steps_prompt
from experiments.demo.solutions import FINAL_CUE, final_question
from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_method, build_prompts
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.method.rap import FINAL, Node, overall_question, read_answer, select, uct, votes
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Completion, Problem
from tests.at_once import AtOnce
from tests.method.scripted import TOKENIZER, ScriptedEngine

PROBLEM = Problem("p", "Ada has 3 apples. She eats some. How many are left?", "5")
LAST = f"{FINAL} How many are left?"


def says(*numbers):
    return [f"So it is. The answer is {n}." for n in numbers]


class Scripted(AtOnce, ScriptedEngine):
    """Writes the next of the texts of ``script`` under what follows "Steps:"; a number is a usefulness."""

    def complete(self, requests):
        return [self._reply(request, self._script[self._key(request)]) for request in requests]

    def _key(self, request):
        return TOKENIZER.decode(request.prompt_ids).split("Steps:\n")[1]

    def _reply(self, request, entry):
        if request.next_logits:
            odds = torch.tensor([entry, 0.0, 1 - entry, 0.0]).log()
            return Completion((), (), "", "length", 1, next_logits=odds)
        text = entry.pop(0)
        ids = tuple(TOKENIZER.encode(text, add_special_tokens=False))
        return Completion(ids, (0.0,) * len(ids), text, "stop", 1)


def run(script, problem=PROBLEM, budget="null", **changes):
    """The result and the requests for text."""
    engine = Scripted(deepcopy(script))
    options = [f"method.{key}={value}" for key, value in changes.items()]
    config = compose_config(["engine=fake", "method=rap", f"max_tokens={budget}", *options])
    prompts = build_prompts({**config.prompt, "answer_type": None}, engine)  # the scripts follow one prompt
    context = replace(build_context(config, engine), prompts=prompts)
    method = build_method(config)
    [(_, result)] = drive([problem], method, context)
    return result, engine.requests


A = "Q: a?\nA: So it is. The answer is 1.\n"
C = "Q: c?\nA: So it is. The answer is 2.\n"
B = "Q: b?\nA: So it is. The answer is 8.\n"
TABLE = {
    "Q:": [" a?", " b?"],
    "Q: a?\nUseful:": 0.64,
    "Q: b?\nUseful:": 0.36,
    "Q: a?\nA:": says(1, 1),  # agree at once
    f"{A}Q:": [" c?", " c?"],  # one sub-question, asked twice
    f"{A}Q: c?\nUseful:": 0.25,
    f"{A}Q: c?\nA:": says(2, 3, 2, 4),  # a tie, then half of four
    f"{A}{C}Q: {LAST}\nUseful:": 0.81,  # forced: the third of three
    f"{A}{C}Q: {LAST}\nA:": says(5, 5),
    "Q: b?\nA:": says(7, 8, 7, 8, 9, 8),  # a tie, a tie, then half of six
    f"{B}Q:": [" How many are left?", f" {FINAL} what?"],  # both are the final question
    f"{B}Q: {LAST}\nUseful:": 0.49,
    f"{B}Q: {LAST}\nA:": says(5, 6, 6, 6.0),  # a tie, then three of four
}
SMALL = {"actions": 2, "answers": 6, "depth": 3, "iterations": 3}


def test_the_tree_that_the_script_tells():
    result, _ = run(TABLE, **SMALL)
    tree = {(entry.get("question"), entry.get("parent")): entry for entry in result.trace}
    root, a, b = tree[None, None], tree["a?", 0], tree["b?", 0]
    c = tree["c?", a["node"]]
    long, short = tree[LAST, c["node"]], tree[LAST, b["node"]]
    assert len(result.trace) == 6 and json.loads(json.dumps(result.trace)) == list(result.trace)
    visited = (a, c, long, b, short)
    assert [e["useful"] for e in visited] == pytest.approx([0.64, 0.25, 0.81, 0.36, 0.49])
    assert [e["confidence"] for e in visited] == [1, 0.5, 1, 0.5, 0.75]
    assert [e["drawn"] for e in visited] == [2, 4, 2, 6, 4]
    assert [e["parsed"] for e in visited] == ["1", "2", "5", "8", "6"]
    # sqrt(useful * confidence)
    rewards = [0.8, math.sqrt(0.125), 0.9, math.sqrt(0.18), math.sqrt(0.3675)]
    assert [e["reward"] for e in visited] == pytest.approx(rewards)
    # Expected: a 0.716, b 0.537, so a first. Second: ln 1 = 0, and a's 0.685 beats b's 0.537, down to the
    # end that is known. Third: a 0.685 + sqrt(ln 2 / 2) = 1.273, b 0.537 + sqrt(ln 2) = 1.369.
    assert [e["round"] for e in visited] == [0, 0, 0, 2, 2]
    assert [e["visits"] for e in (root, *visited)] == [3, 2, 2, 2, 1, 1]
    q = [sum(rewards[:3]) / 4, sum(rewards[:3]) / 3, sum(rewards[1:3]) / 2, 0.9]
    q += [sum(rewards[3:]) / 2, rewards[4]]
    assert [e["q"] for e in (root, *visited)] == pytest.approx(q)


def test_answer_candidates_and_usage():
    result, requests = run(TABLE, **SMALL)
    assert result.answer == "5"  # 0.8 + 0.354 + 0.9 against 0.424 + 0.606
    assert [(c.answer, c.round) for c in result.candidates] == [("5", 0), ("6", 2)]
    assert result.candidates[0].reward == pytest.approx((0.8 + math.sqrt(0.125) + 0.9) / 3)
    assert result.candidates[0].text == "So it is. The answer is 5.\nAnswer: 5"
    texts = [" a?", *says(1), " c?", *says(2), *says(5)]
    count = sum(len(TOKENIZER.encode(t, add_special_tokens=False)) for t in texts)
    assert result.candidates[0].generated_tokens == count
    assert len({request.seed for request in requests}) == len(requests) == 24
    assert result.usage["candidate"].sequences == 24 and result.usage["verifier"].sequences == 5


def test_answers_that_the_budget_does_not_pay_for_do_not_outvote_those_drawn():
    script = {f"Q: {LAST}\nUseful:": 0.5, f"Q: {LAST}\nA:": says(5, 6, 5, 5)}
    small = {"depth": 1, "answers": 4, "iterations": 1}
    assert run(script, **small)[0].trace[1]["drawn"] == 4
    written = sum(len(TOKENIZER.encode(text, add_special_tokens=False)) for text in says(5, 6))
    result, _ = run(script, budget=written, **small)
    [candidate] = result.candidates
    assert (result.answer, candidate.answer) == ("5", "5") and result.trace[1]["drawn"] == 2
    asked = 4 * len(TOKENIZER.encode(" a?", add_special_tokens=False))
    result, _ = run({"Q:": [" a?"] * 4, "Q: a?\nUseful:": 0.5}, budget=asked, depth=2, iterations=1)
    assert not result.candidates and result.spent == "max_tokens", "no answer was drawn"


def test_an_unparsed_answer_is_one_of_its_own_where_numbers_are_asked_for():
    texts = ["The answer is 1727.", "I do not know."] + ["The answer is 1727."] * 2
    step = "Q: when?\nA: The answer is 1727.\n"
    replies = {f"{step}Q: {LAST}\nUseful:": 0.5, f"{step}Q: {LAST}\nA:": ["The answer is 1, yes."] * 2}
    script = {"Q:": [" when?"], "Q: when?\nUseful:": 0.5, "Q: when?\nA:": texts, **replies}
    result, _ = run(script, Problem("p", PROBLEM.question), actions=1, depth=2, iterations=1)
    assert (result.trace[1]["drawn"], result.trace[1]["confidence"]) == (4, 0.75)
    assert result.trace[1]["parsed"] == "1727" and result.answer == "1"


@pytest.mark.parametrize(
    "text, kind, answer",
    [
        ("The answer is 3. Wait. The answer is $1,200.", "number", "1200"),
        ("5 + 6 = 11, so the answer is 11.", "number", "11"),
        ("The answer is about 45 centimetres.", "text", "about 45 centimetres"),
        ("They share it. The answer is: yes.", "boolean", "True"),
        ("Nobody knows.", "text", None),
    ],
)
def test_reading_an_answer(text, kind, answer):
    assert read_answer(text, kind, Grader()) == answer


def test_the_overall_question_of_the_bundled_problems_is_that_of_their_training():
    assert FINAL == FINAL_CUE
    for problem in make_split("test", 100):
        assert overall_question(problem.question) == final_question(problem)
    assert overall_question("What is 2 + 2") == "What is 2 + 2"
    assert (
        overall_question("Find it.\nHow many did Mr. J. Doe\nbuy? Round.") == "How many did Mr. J. Doe buy?"
    )


def test_the_bundled_models_prompts_are_those_of_its_training():
    prompts = build_context(compose_config(["prompt=demo"]), FakeEngine()).prompts
    steps = [("How many?", "3 + 4 = 7. The answer is 7."), ("And then?", "8.")]

    def text(kind, **fields):
        return TOKENIZER.decode(prompts.task(kind, PROBLEM, steps, **fields).ids[1:])

    before = steps_prompt(PROBLEM.question, steps)
    assert text("rap_question") == f"{before}Q:"
    assert text("rap_answer", asked="What is left?") == f"{before}Q: What is left?\nA:"
    assert text("rap_useful", asked="What is left?") == f"{before}Q: What is left?\nUseful:"
    after = steps_prompt(PROBLEM.question, [*steps, ("x?", "y")])
    assert (text("rap_answer", asked="x?") + " y\n").startswith(after)


@pytest.mark.parametrize(("shots", "shown"), [(0, 4), (1, 1), (8, 8), (9, 8)])
def test_prompts_show_as_many_decompositions_as_the_data_set_has_exemplars(shots, shown):
    config = compose_config(["engine=fake", "method=rap", "dataset=gsm8k"])
    engine, exemplars = FakeEngine(), [Exemplar("Why?", "So.", "1")] * shots
    steps = build_method(config).solve(PROBLEM, build_context(config, engine, exemplars))
    text = engine.tokenizer.decode(next(steps).requests[0].prompt_ids)
    assert text.count("Steps:") == shown + 1 and text.count(FINAL) == shown + 1  # and the task's text


def test_uct_weighs_value_against_visits():
    root = Node(reward=0.0, returns=[0.0] * 4)
    often = Node(parent=root, reward=0.9, returns=[0.9, 0.8, 0.7])
    never = Node(parent=root, expected=0.5)
    root.children = [often, never]
    assert uct(often, 2.0) == pytest.approx(0.9 + 2 * math.sqrt(math.log(4) / 3))
    assert uct(never, 2.0) == pytest.approx(0.5 + 2 * math.sqrt(math.log(4)))
    # 0.9 + 0.680 w against 0.5 + 1.177 w: equal at w = 0.804.
    assert select(root, 0.80) is often and select(root, 0.81) is never
    never.expected = often.returns[0]
    never.returns, often.returns = [0.9], [0.9]
    assert select(root, 1.0) is often  # the earliest of equals


def grown(parent, *children):
    """Visited nodes under ``parent`` with these (step, reward) pairs."""
    parent.children += [Node(step, parsed=step, parent=parent, reward=reward) for step, reward in children]
    return parent.children


def test_votes_count_a_node_once_for_each_answer_below_it():
    root = Node(reward=0.0)
    left, right = grown(root, ("left", 0.5), ("right", 0.3))
    grown(left, ("x", 0.2), ("x", 0.4), ("y", 0.8))
    grown(right, ("y", 0.25))
    right.children.append(Node("x", parsed="x", parent=right, expected=0.9))  # not visited
    total = {}
    for answer, weight in votes(root, lambda a, b: a == b):
        total[answer] = total.get(answer, 0) + weight
    assert total == pytest.approx({"x": 0.2 + 0.4 + 0.5, "y": 0.8 + 0.5 + 0.25 + 0.3})
