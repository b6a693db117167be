from dataclasses import replace
from types import SimpleNamespace

import pytest

from experiments.demo.problems import make_split
from experiments.demo.prompts import build_tokenizer, review_prompt, solve_prompt
from soft_reasoning.prompts import Prompts, ReviewWording, TaskWording, Wording
from soft_reasoning.types import Problem, UserError


@pytest.fixture(scope="module")
def tokenizer():
    texts = [
        solve_prompt(p.question) + review_prompt(p.question, ["1 + 1 = 2."]) for p in make_split("train", 200)
    ]
    return build_tokenizer([*texts, "Task: Aye, zinc", " 7 (seven)", "Answer: 1 True cue"])


def wording(**changes):
    return Wording(
        **{
            "ask": "Question:\n{question}\nThought:\n",
            "exemplar": "Question:\n{question}\nThought:\n{thought}\nAnswer: {answer}\n",
            "reviews": {
                "multi_generate": ReviewWording(ask="Question:\n{question}\nSolutions:\n{solutions}\n")
            },
        }
        | changes
    )


PROBLEM = Problem("p", "Ada has 3 apples. How many apples does Ada have now?")


def test_exemplars_stand_before_the_question(tokenizer):
    exemplar = SimpleNamespace(question="Ben has 1 apples.", thought="1 + 0 = 1.", answer="1")
    prompts = Prompts(tokenizer, wording(), exemplars=[exemplar])
    prompt = prompts.solve(PROBLEM)
    text = tokenizer.decode(prompt.ids[1:])
    assert text.index("Ben has 1 apples.") < text.index("Answer: 1") < text.index("Ada has 3")


def test_a_task_is_its_head_the_question_the_steps_and_its_fields(tokenizer):
    ask = TaskWording(
        ask="Q {question}\nSo far:\n{steps}New: {asked}?", head="Task: ", step="{answered} <- {asked}\n"
    )
    prompts = Prompts(tokenizer, wording(tasks={"ask": ask}))
    prompt = prompts.task("ask", PROBLEM, [("1 {x}", "2"), ("3", "4")], asked="5")
    text = f"Task: Q {PROBLEM.question}\nSo far:\n2 <- 1 {{x}}\n4 <- 3\nNew: 5?"
    assert prompt.ids == tuple(tokenizer.encode(text))


def test_positions_of_the_soft_token(tokenizer):
    prompts = Prompts(tokenizer, wording(cue="cue"))
    prompt = prompts.solve(PROBLEM)
    at = {p: prompts.position(prompt, p, PROBLEM, seed=0) for p in ("first", "middle", "last")}
    assert at["first"] == 1 and at["last"] == len(prompt.ids)
    assert prompt.cue == 1
    middles = {prompts.position(prompt, "middle", replace(PROBLEM, id=str(i)), seed=0) for i in range(300)}
    assert min(middles) == 2 and max(middles) == len(prompt.ids) - prompt.cue - 1
    with pytest.raises(UserError, match="first, middle, last"):
        prompts.position(prompt, "end", PROBLEM, seed=0)


@pytest.mark.parametrize(
    ("kind", "texts", "message"),
    [
        (Wording, {"stop": "Question"}, "stop: expected a list of non-empty strings, got 'Q"),
        (Wording, {"ask": "no question"}, "ask: expected a string with {question} and no other field"),
        (ReviewWording, {"solution": "{j}"}, "solution: expected a string with perhaps {i}, {text}"),
        (TaskWording, {"step": "{reply}"}, "step: expected a string with perhaps {asked}, perhaps"),
    ],
)
def test_a_wording_that_cannot_be_filled_in_is_refused(kind, texts, message):
    usual: dict[str, object] = {"ask": "{question}"}
    if kind is ReviewWording:
        usual = {"ask": "{question} {solutions}", "exemplars": [{"question": "q", "solutions": ["s"]}]}
    with pytest.raises(UserError) as caught:
        kind(**usual | texts)
    line = str(caught.value)
    assert line.startswith(message) and "\n" not in line


def test_bad_input_is_one_line(tokenizer):
    with pytest.raises(UserError, match="auto, chat, completion"):
        Prompts(tokenizer, wording(), layout="raw")
    with pytest.raises(UserError, match="no chat template"):
        Prompts(tokenizer, wording(), layout="chat")
    with pytest.raises(UserError, match="problem p: expected a question in Unicode text, got '\\\\ud800"):
        Prompts(tokenizer, wording()).solve(Problem("p", "Why \ud800?"))
    with pytest.raises(UserError, match="it has: multi_generate"):
        Prompts(tokenizer, wording()).review("multi_judge", PROBLEM, ["1"])


def test_copies_of_the_prompts_differ_in_their_stops_and_bounds(tokenizer):
    prompts = Prompts(tokenizer, wording())
    plain, stopped, bounded = (
        each.solve(PROBLEM) for each in (prompts, prompts.ending(["zinc"]), prompts.ending(max_new_tokens=7))
    )
    assert stopped == replace(plain, stop=(*plain.stop, "zinc"))
    assert bounded == replace(plain, max_new_tokens=7) and plain.max_new_tokens is None
    assert prompts.solve(replace(PROBLEM, question="What is 2 + 2?")) != plain


def test_prompts_know_those_for_other_types_of_answer(tokenizer):
    built = []

    def other(answer_type):
        built.append(answer_type)
        return Prompts(tokenizer, wording(ask="{question} Yes or no?"), max_new_tokens=9)

    prompts = Prompts(tokenizer, wording(), max_new_tokens=5, answer_type="number", others=other)
    assert prompts.of("number") is prompts and not built
    boolean, limited = prompts.of("boolean"), prompts.ending(["zinc"], 7).of("boolean")
    assert boolean.solve(PROBLEM).max_new_tokens == 9, "its own limit"
    assert limited.solve(PROBLEM).max_new_tokens == 7 and limited.solve(PROBLEM).stop[-1] == "zinc"
    assert limited.solve(PROBLEM).ids == boolean.solve(PROBLEM).ids != prompts.solve(PROBLEM).ids
    assert built == ["boolean"], "built once for all calls"
    assert Prompts(tokenizer, wording()).of("choice").answer_type is None, "without others: for every type"
