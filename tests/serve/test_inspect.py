"""A real evaluation of Inspect through a real server, with the task of the documentation."""

from pathlib import Path

import pytest

pytest.importorskip("fastapi")
inspect_ai = pytest.importorskip("inspect_ai")

from soft_reasoning import SoftReasoner  # noqa: E402
from soft_reasoning.lab.data.demo import demo_dataset  # noqa: E402
from tests.serve.serving import served  # noqa: E402

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "docs" / "scripts"


def test_an_evaluation_has_the_answers_and_the_score_of_solve(tmp_path, monkeypatch):
    monkeypatch.chdir(SCRIPTS)  # Inspect takes relative paths of tasks alone
    problems = demo_dataset("validation", name="demo", limit=8).problems()
    with SoftReasoner.from_pretrained("demo", rounds=1) as reasoner, served(reasoner) as running:
        [log] = inspect_ai.eval(
            "inspect_task.py",
            model="openai-api/soft-reasoning/demo",
            model_base_url=running.url,
            model_args={"api_key": "none"},
            log_dir=str(tmp_path),
            display="none",
            num_choices=2,
            seed=3,
            extra_body={"soft_reasoning": {"k": 3}},
        )
        assert log.status == "success", log.error
        expected = {each.id: reasoner.solve(each.question, k=3, seed=3) for each in problems}
        for sample in log.samples:
            solution, choices = expected[sample.id], sample.output.choices
            texts = [each.text for each in solution.ranked[1:2]]
            assert [choice.message.text for choice in choices] == [solution.text, *texts]
        grader = reasoner.context.grader
        right = [grader.equal(expected[each.id].answer, each.gold, "number") for each in problems]
        assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(sum(right) / len(right))
        [usage] = log.stats.model_usage.values()
        assert usage.output_tokens == sum(each.generated_tokens for each in expected.values())
