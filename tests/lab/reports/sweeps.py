"""Finished runs for tests of sweeps: manifest, results and grades, as small as tables and plots can read."""

import json

from soft_reasoning.lab.reports.frame import against, by_setting, read_runs

MODELS = {
    "llama3_8b": "meta-llama/Meta-Llama-3-8B-Instruct",
    "llama31_8b": "meta-llama/Llama-3.1-8B-Instruct",
    "qwen2_7b": "Qwen/Qwen2-7B-Instruct",
    "demo": "demo",
}


def finished(
    folder,
    accuracy,
    *,
    method="cot",
    model="demo",
    dataset="gsm8k",
    path=None,
    shots=0,
    choices=None,
    ended=None,
    verifier=None,
    measured=None,
    **more,
):
    """Write a run of 10 problems.

    ``verifier`` is (name, accuracy), ``measured`` replaces results, and ``more`` are other keys of its
    configuration.
    """
    parts = {"embedding": more.get("embedding")} | ({"stopping": {"rule": "agreement"}} if ended else {})
    config = {
        "seed": 0,
        "label": None,
        "methods": None,
        "model": {"path": MODELS.get(model, model)},
        "engine": {"path": MODELS.get(model, model), "max_batch_tokens": None},
        "dataset": {"name": dataset, "path": path, "shots": shots, "hub": {"id": f"hub/{dataset}"}},
        "prompt": {"wording": {"head": f"Solve the {dataset} problems. It costs $5 or $10.\n"}},
        "method": {"name": method, **parts},
        **({"verifier": {"name": verifier[0]}} if verifier else {}),
        **more,
    }
    ended = ended or {"1": 1.0}
    results = {
        "problems": 10,
        "graded": 10,
        "questions": 10,
        "exact_match": accuracy,
        "coverage": 0.9,
        "after_each_round": [],
        "rounds": {"mean": sum(int(n) * p for n, p in ended.items()), "share_ended_after": ended},
        "tokens": {"total": {"prompt": 5000, "cached": 0, "generated": 1000, "sequences": 50}},
        "seconds": {"total": 61.0},
        "peak_bytes": {"kv": None, "activations": None},
        "verifier": None if verifier is None else {"accuracy": verifier[1]},
        **(measured or {}),
    }
    grade = {
        "covered": True,
        "answer": "3",
        "difficulty": None,
        "candidates": [],
        "verifier": [],
        "votes": [],
    }
    grades = {f"p{i}": grade | {"correct": i < round(10 * accuracy)} for i in range(10)}
    manifest = {"config": config, "choices": choices or {}, "model": {"engine": "HuggingFaceEngine"}}
    folder.mkdir(parents=True)
    for name, content in {"manifest": manifest, "results": results, "grades": grades}.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def settings(runs, reference="cot"):
    """The frame of settings of ``runs``, with differences from the label ``reference``."""
    return against(by_setting(read_runs(runs)), reference)
