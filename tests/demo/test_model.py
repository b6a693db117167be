"""The bundled model: what ships, and what the model card promises of it."""

import json
from pathlib import Path

import pytest

import soft_reasoning
from experiments.demo.problems import make_split
from experiments.demo.prompts import review_prompt, solve_prompt
from experiments.demo.solutions import training_rows
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.lab.data.demo import demo_dataset
from soft_reasoning.schedule.scheduler import drive

FOLDER = Path(soft_reasoning.__file__).parent / "demo"


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config())


def solve(engine, *overrides, split="validation", limit=60):
    config = compose_config(overrides)
    method, context = build_method(config), build_context(config, engine)
    problems = demo_dataset(split, name="demo", limit=limit).problems()
    return [(p, r, context.grader) for p, r in drive(problems, method, context)]


def rows_of(split):
    return [json.loads(line) for line in (FOLDER / f"{split}.jsonl").read_text().splitlines()]


def test_the_files_are_what_the_generator_makes():
    taken = set()
    for split in ("validation", "test"):
        made = make_split(split, 500, exclude=taken)
        expected = [(problem.question, str(problem.answer), problem.difficulty) for problem in made]
        assert [(r["question"], r["answer"], r["difficulty"]) for r in rows_of(split)] == expected
        taken |= {problem.question for problem in made}
    assert rows_of("train") == training_rows(500, taken)
    drawn = make_split("train", 500, exclude=taken)
    assert [row["answer"] for row in rows_of("train")] == [str(problem.answer) for problem in drawn]


def test_the_prompts_are_those_of_training(engine):
    prompts = build_context(compose_config(), engine).prompts
    [problem] = demo_dataset("test", name="demo", limit=1).problems()
    decode = engine.tokenizer.decode
    assert decode(prompts.solve(problem).ids[1:]) == solve_prompt(problem.question)
    shown = ["1 + 1 = 2.\nAnswer: 2", "3."]
    for kind, end in (("multi_generate", ()), ("multi_judge", ("Judge:\n",))):
        expected = review_prompt(problem.question, shown, *end)
        assert decode(prompts.review(kind, problem, shown).ids[1:]) == expected


def accuracy(solved):
    right = [grader.correct(result.answer, problem) for problem, result, grader in solved]
    return sum(right) / len(right)


@pytest.mark.slow
def test_greedy_leaves_room_and_the_reviewer_alone_knows_no_more(engine):
    greedy = accuracy(solve(engine, "method=cot", limit=200))
    alone = accuracy(solve(engine, "method=verifier_only", limit=200))
    assert 0.3 < greedy < 0.5 and abs(alone - greedy) < 0.08


@pytest.mark.slow
def test_first_tokens_lead_to_different_answers(engine):
    results = solve(engine, "rounds=0")
    several = [len({c.answer for c in r.candidates}) > 1 for _, r, _ in results]
    assert sum(several) / len(several) > 0.5


@pytest.mark.slow
def test_the_reviewer_finds_a_right_solution_where_there_is_one(engine):
    right = {False: [], True: []}
    drawn = ("method=verified_sampling", "rounds=0", "verifier=multi_generate", "final=verifier")
    for problem, result, grader in solve(engine, *drawn, limit=200):
        covered = any(grader.correct(c.answer, problem) for c in result.candidates)
        right[covered].append(grader.correct(result.answer, problem))
    assert sum(right[True]) / len(right[True]) > 0.85
    assert sum(right[False]) / len(right[False]) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("verifier", ["multi_judge", "single_judge"])
def test_judges_tell_right_from_wrong(engine, verifier):
    called = {False: [], True: []}
    drawn = ("method=verified_sampling", "temperature=0.8", "rounds=0")
    overrides = (*drawn, f"verifier={verifier}", "final=best_reward")
    for problem, result, grader in solve(engine, *overrides, limit=100):
        for candidate in result.candidates:
            called[bool(grader.correct(candidate.answer, problem))].append(candidate.verified >= 0.5)
    right, wrong = (sum(called[ok]) / len(called[ok]) for ok in (True, False))
    assert (right + 1 - wrong) / 2 > 0.75
