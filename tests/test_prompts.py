from dataclasses import replace
from types import SimpleNamespace

import pytest

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.prompts import Prompts, ReviewWording, TaskWording, Wording
from soft_reasoning.types import Problem, UserError

TOKENIZER = FakeTokenizer()


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


def test_exemplars_stand_before_the_question():
    exemplar = SimpleNamespace(question="Ben has 1 apples.", thought="1 + 0 = 1.", answer="1")
    prompts = Prompts(TOKENIZER, wording(), exemplars=[exemplar])
    prompt = prompts.solve(PROBLEM)
    text = TOKENIZER.decode(prompt.ids[1:])
    assert text.index("Ben has 1 apples.") < text.index("Answer: 1") < text.index("Ada has 3")


def test_a_task_is_its_head_the_question_the_steps_and_its_fields():
    ask = TaskWording(
        ask="Q {question}\nSo far:\n{steps}New: {asked}?", head="Task: ", step="{answered} <- {asked}\n"
    )
    prompts = Prompts(TOKENIZER, wording(tasks={"ask": ask}))
    prompt = prompts.task("ask", PROBLEM, [("1 {x}", "2"), ("3", "4")], asked="5")
    text = f"Task: Q {PROBLEM.question}\nSo far:\n2 <- 1 {{x}}\n4 <- 3\nNew: 5?"
    assert prompt.ids == tuple(TOKENIZER.encode(text))


def test_positions_of_the_soft_token():
    prompts = Prompts(TOKENIZER, wording(cue="Answer"))
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


def test_bad_input_is_one_line():
    with pytest.raises(UserError, match="auto, chat, completion"):
        Prompts(TOKENIZER, wording(), layout="raw")
    with pytest.raises(UserError, match="no chat template"):
        Prompts(TOKENIZER, wording(), layout="chat")
    with pytest.raises(UserError, match="problem p: expected a question in Unicode text, got '\\\\ud800"):
        Prompts(TOKENIZER, wording()).solve(Problem("p", "Why \ud800?"))
    with pytest.raises(UserError, match="it has: multi_generate"):
        Prompts(TOKENIZER, wording()).review("multi_judge", PROBLEM, ["1"])
