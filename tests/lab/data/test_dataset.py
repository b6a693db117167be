import json

import pytest

from soft_reasoning.cli.compose import compose_config, methods_of
from soft_reasoning.lab.data import Dataset, build_dataset
from soft_reasoning.lab.data.demo import SPLITS, demo_dataset
from soft_reasoning.types import Problem, UserError

ROWS = [{"question": f"How much is {n} + {n}?", "answer": f"#### {2 * n}", "level": n % 2} for n in range(20)]
ADAPTER = "soft_reasoning.lab.data.benchmarks.gsm8k"


@pytest.fixture
def jsonl(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return str(file)


def ids(dataset):
    return [problem.id for problem in dataset.problems()]


def test_problems_in_their_order(jsonl):
    problems = Dataset(name="gsm8k", row=ADAPTER, path=jsonl).problems()
    assert problems[3] == Problem("gsm8k-3", "How much is 3 + 3?", "6")
    assert problems[3].doc == ROWS[3] and len(problems) == 20


@pytest.mark.parametrize(("limit", "count"), [(None, 20), (7.0, 7), (99, 20), (0.25, 5), (0.01, 1)])
def test_limits(jsonl, limit, count):
    assert len(ids(Dataset(name="gsm8k", row=ADAPTER, path=jsonl, limit=limit))) == count


def test_a_seeded_sample(jsonl):
    def sample(seed, **options):
        return ids(Dataset(name="gsm8k", row=ADAPTER, path=jsonl, sample="random", seed=seed, **options))

    assert sample(1) == sample(1) != sample(2)
    assert sorted(sample(1)) == sorted(f"gsm8k-{n}" for n in range(20))
    assert sample(1, limit=5) == sample(1)[:5] and sample(1, offset=5, limit=5) == sample(1)[5:10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"limit": 0}, "limit: expected a count of at least 1 or a fraction below 1, got 0"),
        ({"offset": -1}, "offset: expected a whole number"),
        ({"row": "soft_reasoning.lab.data.nothing.problem"}, "row: expected the dotted name"),
    ],
)
def test_bad_settings_are_refused_before_any_reading(options, message):
    with pytest.raises(UserError, match=message):
        Dataset(**{"name": "gsm8k", "row": ADAPTER, "path": "nowhere.jsonl", **options})


def test_too_far_an_offset_and_too_many_shots(jsonl):
    with pytest.raises(UserError, match="expected rows beyond offset=20, got 20 in all"):
        Dataset(name="gsm8k", row=ADAPTER, path=jsonl, offset=20).problems()
    with pytest.raises(UserError, match="shots=2: expected as many exemplars, got 0"):
        Dataset(name="gsm8k", row=ADAPTER, path=jsonl, shots=2).exemplars()


def test_bad_rows_are_named(tmp_path):
    for line, message in [
        ({"answer": "#### 1"}, "expected a field 'question', got answer"),
        ({"question": "  ", "answer": "#### 1"}, "expected text in field 'question'"),
        ({"question": "q", "answer": "#### many"}, "expected a number in field 'answer', got 'many'"),
    ]:
        file = tmp_path / "rows.jsonl"
        file.write_text(json.dumps(ROWS[0]) + "\n\n" + json.dumps(line) + "\n", encoding="utf-8")
        with pytest.raises(UserError, match=f"rows.jsonl line 3: {message}") as caught:
            Dataset(name="gsm8k", row=ADAPTER, path=str(file)).problems()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        (
            "svamp",
            {"ID": "chal-1", "Body": "A", "Question": "Q?", "Equation": "", "Answer": "51.0"},
            Problem("chal-1", "A. Q?", "51"),
        ),
        ("gsm_hard", {"input": "Q?", "target": -2.5}, Problem("gsm_hard-0", "Q?", "-2.5")),
        (
            "strategyqa",
            {"qid": "x", "term": "T", "description": "d", "question": "Q?", "answer": True},
            Problem("strategyqa-x", "T: d. Q?", "True", "boolean"),
        ),
        ("aime_2025", {"id": "0", "problem": "Q?", "answer": "70"}, Problem("aime_2025-0", "Q?", "70")),
    ],
)
def test_each_benchmarks_rows(tmp_path, name, row, problem):
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    options = [f"dataset={name}", f"dataset.path={tmp_path / 'rows.jsonl'}"]
    assert build_dataset(compose_config(options)).problems() == [problem]


def test_the_splits_of_the_bundled_problems_have_no_problem_in_common():
    splits = [demo_dataset(split, name="demo").problems() for split in SPLITS]
    assert [len(problems) for problems in splits] == [500] * 3
    assert len({problem.question for problems in splits for problem in problems}) == 1500


def test_the_experiment_with_a_real_model_asks_twenty_problems():
    config = compose_config(["+experiment=real_model"])
    assert [*methods_of(config)] == ["cot", "self_consistency k=3", "mixed_consistency k=3"]
    assert len(build_dataset(config).problems()) == 20
