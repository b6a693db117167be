"""A run in the formats of others, read by their own code."""

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub._eval_results import parse_eval_result_entries

from soft_reasoning.reports.exports import write_exports
from soft_reasoning.types import Candidate, Problem, Result, UserError
from tests.runs.world import stored

HUB = {"id": "openai/gsm8k", "config": "main", "split": "test", "revision": None}


def finished(folder: Path, hub=None, gold: str | None = "3") -> Path:
    config = {
        "seed": 3,
        "command": "soft-reasoning run dataset=gsm8k k=4",
        "model": {"path": "meta-llama/Llama-3.1-8B-Instruct"},
        "dataset": {"name": "gsm8k", **({"hub": hub} if hub else {})},
        "method": {"name": "soft_reasoning"},
        "engine": {"_target_": "soft_reasoning.engines.huggingface.HuggingFaceEngine"},
        "max_new_tokens": 300,
    }
    candidates = [Candidate("x", "3" if i < 6 else "4", 0, reward=0.5) for i in range(10)]
    results = [(Problem(f"p{i}", "q", gold), Result(c.answer, (c,))) for i, c in enumerate(candidates)]
    return stored(folder, config, results)


def test_every_eval_ever(tmp_path):
    [path] = write_exports(finished(tmp_path), "Ours")
    place = path.relative_to(tmp_path / "exports").parts
    assert place[:4] == ("data", "gsm8k", "meta-llama", "Llama-3.1-8B-Instruct")
    log = json.loads(path.read_text())
    accuracy, coverage = log["evaluation_results"]
    assert accuracy["score_details"]["score"] == coverage["score_details"]["score"] == 0.6
    assert accuracy["score_details"]["uncertainty"]["num_samples"] == 10
    assert "k=4" in accuracy["generation_config"]["generation_args"]["execution_command"]
    assert write_exports(tmp_path, "Ours") == [path]  # again: the same file
    validator = pytest.importorskip("every_eval_ever.validator.validation_core")  # .ci/run has it
    report = validator.validate_aggregate(path, repo_path="/".join(place), run_semantic_checks=True)
    assert report.valid and not report.errors, report


def test_the_hubs_eval_results(tmp_path):
    _, path = write_exports(finished(tmp_path, HUB))
    [entry] = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    assert path.parent.name == ".eval_results"
    assert (entry.dataset_id, entry.task_id, entry.value) == ("openai/gsm8k", "main", 60.0)
    assert entry.notes == "soft_reasoning, 10 problems"


def test_a_run_without_reference_answers_is_refused(tmp_path):
    with pytest.raises(UserError, match="expected problems with reference answers"):
        write_exports(finished(tmp_path, gold=None))
