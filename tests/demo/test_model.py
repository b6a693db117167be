"""The bundled model: what ships, and what the model card promises of it."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

import soft_reasoning
from soft_reasoning.build import build_context, build_engine, build_method
from soft_reasoning.config import compose_config
from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.demo.problems import make_split
from soft_reasoning.demo.prompts import review_prompt, solve_prompt
from soft_reasoning.prompts import Prompts
from soft_reasoning.scheduler import drive
from soft_reasoning.types import Request

FOLDER = Path(soft_reasoning.__file__).parent / "demo"


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config())


def solve(engine, *overrides, split="validation", limit=60):
    config = compose_config(overrides)
    method, context = build_method(config), build_context(config, engine)
    problems = demo_dataset(split, name="demo", limit=limit).problems(0)
    return [(p, r, context.grader) for p, r in drive(problems, method, context)]


def test_plain_transformers_loads_it():
    model = AutoModelForCausalLM.from_pretrained(FOLDER / "model")
    tokenizer = AutoTokenizer.from_pretrained(FOLDER / "model")
    assert model.config.model_type == "llama" and model.config.vocab_size == len(tokenizer)
    assert sum(f.stat().st_size for f in (FOLDER / "model").glob("*.safetensors")) < 8e6
    assert (FOLDER / "model" / "README.md").is_file()


@pytest.mark.parametrize("split", ["validation", "test"])
def test_the_problem_files_are_what_the_generator_makes(split):
    taken = {p.question for p in make_split("validation", 500)} if split == "test" else set()
    made = [(p.question, str(p.answer), p.difficulty) for p in make_split(split, 500, exclude=taken)]
    rows = [json.loads(line) for line in (FOLDER / f"{split}.jsonl").read_text().splitlines()]
    assert [(r["question"], r["answer"], r["difficulty"]) for r in rows] == made


def test_no_word_of_the_problems_is_unknown(engine):
    for problem in demo_dataset("test", name="demo").problems(0):
        assert engine.tokenizer.unk_token_id not in engine.tokenizer.encode(problem.question)


def test_the_prompts_are_those_of_training(engine):
    config = compose_config()
    prompts: Prompts = build_context(config, engine).prompts
    [problem] = demo_dataset("test", name="demo", limit=1).problems(0)
    decode = engine.tokenizer.decode
    assert decode(prompts.solve(problem).ids[1:]) == solve_prompt(problem.question)
    shown = ["1 + 1 = 2.\nAnswer: 2", "3."]
    assert decode(prompts.review("multi_generate", problem, shown).ids[1:]) == review_prompt(
        problem.question, shown
    )
    assert decode(prompts.review("multi_judge", problem, shown).ids[1:]) == review_prompt(
        problem.question, shown, "Judge:\n"
    )


def test_greedy_solves_a_third_to_two_thirds(engine):
    solved = [g.correct(r.answer, p) for p, r, g in solve(engine, "method=cot", limit=200)]
    assert 1 / 3 < sum(solved) / len(solved) < 2 / 3


def test_first_tokens_lead_to_different_answers(engine):
    results = solve(engine, "search.rounds=0")
    several = [len({c.answer for c in r.candidates}) > 1 for _, r, _ in results]
    assert sum(several) / len(several) > 0.5


@pytest.mark.slow
def test_the_verifier_reads_the_candidates(engine):
    """Its accuracy moves with what it is shown: a right solution among wrong ones, or wrong ones alone."""
    config = compose_config()
    context = build_context(config, engine)
    results = solve(engine, "search.rounds=0", limit=500)
    mixed = [
        (p, r)
        for p, r, g in results
        if 0 < sum(g.correct(c.answer, p) for c in r.candidates) < len(r.candidates)
    ]
    assert len(mixed) > 50
    accuracy = {}
    for name in ("right among them", "wrong alone"):
        requests = []
        for p, r in mixed:
            correct = [c for c in r.candidates if context.grader.correct(c.answer, p)]
            wrong = [c for c in r.candidates if not context.grader.correct(c.answer, p)]
            shown = wrong[:2] + correct[:1] if name == "right among them" else wrong
            prompt = context.prompts.review("multi_generate", p, [c.text for c in shown])
            requests.append(Request(prompt.ids, stop=context.prompts.stop))
        texts = [c.text for c in engine.generate(requests)]
        right = [
            context.grader.correct(context.grader.extract(t, "number"), p)
            for t, (p, _) in zip(texts, mixed, strict=True)
        ]
        accuracy[name] = sum(right) / len(right)
    assert accuracy["right among them"] > accuracy["wrong alone"] + 0.15
