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
    seed=0,
    label=None,
    methods=None,
    coverage=0.9,
    ended=None,
    generated=1000,
    engine="HuggingFaceEngine",
    verifier=None,
    peaks=None,
    alike=None,
    choices=None,
    **more,
):
    """Write a run of 10 problems.

    ``more`` are other groups of its configuration, and ``verifier`` is (name, accuracy).
    """
    parts = {"embedding": more.get("embedding")} | ({"stopping": {"rule": "agreement"}} if ended else {})
    config = {
        "seed": seed,
        "label": label,
        "methods": methods,
        "model": {"path": MODELS.get(model, model)},
        "engine": {"path": MODELS.get(model, model), "max_batch_tokens": None},
        "dataset": {"name": dataset, "path": path, "shots": shots, "hub": {"id": f"hub/{dataset}"}},
        "prompt": {"wording": {"head": f"Solve the {dataset} problems. It costs $5 or $10.\n"}},
        "method": {"name": method, **parts},
        **more,
    }
    if verifier:
        config["verifier"] = {"name": verifier[0]}
    ended = ended or {"1": 1.0}
    results = {
        "problems": 10,
        "graded": 10,
        "questions": 10,
        "exact_match": accuracy,
        "coverage": coverage,
        "after_each_round": [],
        "one_text": alike,
        "rounds": {"mean": sum(int(n) * p for n, p in ended.items()), "share_ended_after": ended},
        "tokens": {"total": {"prompt": 5000, "cached": 0, "generated": generated, "sequences": 50}},
        "seconds": {"total": 61.0},
        "peak_bytes": peaks or {"kv": None, "activations": None},
        "verifier": None if verifier is None else {"accuracy": verifier[1]},
    }
    folder.mkdir(parents=True)
    graded = {
        "covered": True,
        "answer": "3",
        "difficulty": None,
        "candidates": [],
        "verifier": [],
        "votes": [],
    }
    grades = {f"p{i}": graded | {"correct": i < round(10 * accuracy)} for i in range(10)}
    manifest = {"config": config, "choices": choices or {}, "model": {"engine": engine}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(results), encoding="utf-8")
    (folder / "grades.json").write_text(json.dumps(grades), encoding="utf-8")
    return folder


def settings(runs, reference="cot"):
    """The frame of settings of ``runs``, with differences from the label ``reference``."""
    return against(by_setting(read_runs(runs)), reference)
