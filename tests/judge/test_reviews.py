"""The worked reviews that ship: complete, right, shown as each verifier asks, and replaceable."""

from functools import cache

import pytest

from soft_reasoning.answers import equal, extract
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.judge.model_verifier import verdict_numbers
from soft_reasoning.types import Problem, UserError

PROBLEM = Problem("p", "How many is 2 and 3?")


ENGINE = FakeEngine()


@cache
def prompts(name="math", *overrides):
    return build_context(compose_config([f"prompt={name}", *overrides]), ENGINE).prompts


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("multi_generate", "Earlier answers:\n0. Thought: a. Answer: 1\n1. Thought: b\n\nAnalysis:"),
        ("multi_judge", "Earlier answers:\n0. Thought: a. Answer: 1\n1. Thought: b\n\nCorrect:"),
        ("single_generate", "Earlier answers:\na. Answer: 1\n\nAnalysis:"),
        ("single_judge", "Answer:\na. Answer: 1\n\nCorrect:"),
    ],
)
@pytest.mark.parametrize("answer_type", ["number", "boolean"])
def test_the_papers_templates_show_one_worked_example_and_number_from_zero(answer_type, kind, shown):
    data = ["dataset=strategyqa"] if answer_type == "boolean" else []
    made, solutions = prompts("paper", *data), ["a. Answer: 1", "b"][: 1 + kind.startswith("multi")]
    text = ENGINE.tokenizer.decode(made.review(kind, PROBLEM, solutions).ids)
    assert text.endswith(f"Question:\n{PROBLEM.question}\n\n{shown}") and text.count("Question:") == 2
    for entry in made.wording.reviews[kind].exemplars:
        if kind == "multi_judge":
            answers = [extract(solution, answer_type) for solution in entry["solutions"]]
            right = {
                i for i, answer in enumerate(answers) if equal(answer, str(entry["answer"]), answer_type)
            }
            assert set(verdict_numbers(entry["correct"])) == right
        worked = made.wording.reviews[kind].worked.format(**entry)
        assert "generate" not in kind or equal(
            extract(worked, answer_type), str(entry["answer"]), answer_type
        )


def test_the_paper_s_prompt_follows_the_type_of_answer():
    """A data set's and a row's; options of the prompt stay."""
    options = ["dataset=strategyqa", "prompt.wording.cue=So", "prompt.layout=completion"]
    config = compose_config(["prompt=paper", *options])
    assert config.prompt == compose_config(["prompt=paper_boolean", *options]).prompt
    assert config.prompt.answer_type == "boolean" and config.prompt.wording.cue == "So"

    def shown(context):
        problem = Problem("p", "Is it?", answer_type="boolean")
        return ENGINE.tokenizer.decode(context.of(problem).prompts.review("single_judge", problem, ["a"]).ids)

    texts = [
        shown(build_context(compose_config([f"prompt={n}"]), ENGINE)) for n in ("paper", "paper_boolean")
    ]
    assert texts[0] == texts[1] and "True or False" not in texts[0] and "queen" in texts[0]
    with pytest.raises(UserError, match="use prompt=choice"):
        compose_config(["prompt=paper", "dataset=custom", "dataset.answer_type=choice"])


def test_a_prompt_ends_as_its_worked_reviews_begin():
    made = prompts()
    text = ENGINE.tokenizer.decode(made.review("multi_judge", PROBLEM, ["x\ny. Answer: 5", "Answer: 6"]).ids)
    assert text.endswith("How many is 2 and 3?\nSolutions:\n1. x y. Answer: 5\n2. Answer: 6\nCorrect:")
    assert text.count("\nCorrect:") == 6 and "\nCorrect: 1, 3, 5\n\nQuestion:" in text
    text = ENGINE.tokenizer.decode(made.review("single_generate", PROBLEM, ["Answer: 5"]).ids)
    assert "\nSolution:\nAnswer: 5\nAnalysis:\nChecking the solution," in text


def test_shots_and_answers_alone():
    made = prompts()

    def text(**options):
        return ENGINE.tokenizer.decode(made.review("multi_generate", PROBLEM, ["Answer: 5"], **options).ids)

    assert [text(shots=n).count("Analysis:") for n in (0, 2, None)] == [1, 3, 6]
    brief = text(shots=1, brief=True)
    assert "\n1. Answer: 27\n2. Answer: 18\n3. Answer: 27\n" in brief and "lemons are bad" in brief
    with pytest.raises(UserError, match="verifier.shots: expected at most 5"):
        text(shots=6)


def test_as_many_worked_reviews_as_there_is_room_for():
    made = prompts()

    def length(shots=None, room=None):
        return len(made.review("multi_generate", PROBLEM, ["Answer: 5"], shots=shots, room=room).ids)

    whole, two = length(), length(shots=2)
    assert length(room=whole) == whole and length(room=whole - 1) == length(shots=4)
    assert length(room=two) == two and length(room=1) == length(shots=0)
    assert length(shots=2, room=1) == two, "a number that was asked for stays"


def test_a_user_s_own_reviews_take_their_place(tmp_path):
    (tmp_path / "prompt.yaml").write_text("inherits: [math]\nexemplars: mine.yaml\n")
    (tmp_path / "mine.yaml").write_text(
        "multi: []\nsingle: []\n"
        "single_judge: [{question: 'One?', solutions: ['Answer: 1'], correct: 1, analysis: a, answer: 1}]\n"
    )
    made = prompts(tmp_path / "prompt.yaml")
    assert not made.wording.reviews["multi_generate"].exemplars
    text = ENGINE.tokenizer.decode(made.review("single_judge", PROBLEM, ["Answer: 5"]).ids)
    assert "Question:\nOne?\nSolution:\nAnswer: 1\nCorrect: 1\n\n" in text
