"""The paper's figures: the tables agree with one another, and a run is shown those that fit it."""

import json
import sys

import pytest
from omegaconf import OmegaConf

from experiments.paper import beside as script
from experiments.paper import hours
from experiments.paper.beside import beside, figures
from soft_reasoning.cli.compose import compose_config
from tests.lab.reports.sweeps import finished, settings


def config(*overrides, method="soft_reasoning", model="llama3_8b", dataset="gsm8k", shots=0):
    parts = f"model={model} dataset={dataset} dataset.shots={shots} method={method} limit=200".split()
    parts.append("max_new_tokens=300")
    preset = ["preset=paper"] if method == "soft_reasoning" else []
    return OmegaConf.to_container(compose_config([*parts, *preset, *overrides]), resolve=True)


def value(metric, config):
    matches = [(f.value, f.std) for f in figures(config) if f.metric == metric]
    return matches[0] if matches else None


@pytest.mark.parametrize(
    "overrides",
    ["model=someone/Qwen2-7B-Instruct-tuned", "limit=10", "engine=fake", "embedding.sigma=0"],
)
def test_a_run_that_the_paper_has_no_like_of_finds_none(overrides):
    chosen = config(overrides)
    assert not any(figure.metric in ("accuracy", "coverage") for figure in figures(chosen))


def test_llama_3_1_and_any_folder_have_figures():
    assert value("accuracy", config(model="llama31_8b")) == value("accuracy", config())
    assert value("accuracy", folder := config("model=/models/mine")) is None
    assert figures(folder, "llama3_8b") == figures(config())


def test_verdicts_of_the_first_round_need_no_later_one():
    assert value("verifier_accuracy", config("rounds=0", "verifier=multi_judge")) == ("80.4", "")


def paper_run(folder, seed, accuracy, method="soft_reasoning", *overrides, shots=8, **options):
    """A finished run of the paper's on GSM8K, by default with eight exemplars."""
    searched = {"ended": {"1": 0.5, "2": 0.5}, "verifier": ("multi_generate", 1.0)}
    finished(folder, accuracy, method=method, **(searched if method == "soft_reasoning" else {}))
    manifest = {
        "config": config(f"seed={seed}", *overrides, method=method, shots=shots, **options),
        "model": {"engine": "HuggingFaceEngine"},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def test_ours_beside_the_papers_over_seeds(tmp_path):
    for seed in (0, 1):
        paper_run(tmp_path / str(seed), seed, 0.5 + seed / 10)
    shown = {row[4]: row[5:] for row in beside(settings([tmp_path / "0", tmp_path / "1"])).rows}
    ours = "55.0 ± 7.1 (27.4 to 79.9)"
    assert shown["accuracy %"] == [ours, "84.3 ± 1.4", "-29.3", "tab:acquisition and 7 more"]
    assert shown["ended after 1 rounds %"][:3] == ["50.0 ± 0.0", "76.8 ± 2.2", "-26.8"]
    assert shown["verifier's accuracy, first round %"][:3] == ["100.0 ± 0.0", "87.6", "+12.4"]
    assert shown["prompt tokens"][:3] == ["500", "7,286", "-"]
    assert shown["minutes"][0] == "1.02"
    assert "activations, peak MiB" in shown and "keys and values, peak MiB" in shown


def test_gains_are_averaged_over_models(tmp_path):
    """Of the paper's table, GSM8K zero-shot: 5.5, 6.6 and 6.3 over the best baselines."""
    methods = [["soft_reasoning"], ["cot_decoding"], ["self_consistency", "temperature=0.6"]]
    runs = [
        paper_run(tmp_path / f"{model}-{words[0]}", 0, accuracy, *words, model=model, shots=0)
        for model, ours in (("llama3_8b", 0.6), ("llama31_8b", 0.9), ("qwen2_7b", 0.7), ("mistral_7b", 0.8))
        for words, accuracy in zip(methods, (ours, 0.5, 0.5), strict=True)
    ]
    gains = [row for row in beside(settings(runs)).rows if "gain" in row[4]]
    expected = [["+40.0", "+5.5"], ["+10.0", "+5.5"], ["+30.0", "+6.3"], ["+20.0", "+6.6"], ["+30.0", "+6.1"]]
    assert [row[5:7] for row in gains] == expected
    assert gains[-1][:4] == ["mean of 3 models", "gsm8k", "0", "soft_reasoning"]


def test_the_script_writes_the_table_and_refuses_runs_without_figures(tmp_path, monkeypatch, capsys):
    paper_run(tmp_path / "sweep" / "0", 0, 0.5)
    monkeypatch.setattr(sys, "argv", ["beside", str(tmp_path / "sweep")])
    script.main()
    assert "| 84.3 ± 1.4 |" in capsys.readouterr().out
    assert len([*(tmp_path / "sweep").glob("beside_paper.*")]) == 3
    finished(tmp_path / "other", 0.5)
    monkeypatch.setattr(sys, "argv", ["beside", str(tmp_path / "other")])
    with pytest.raises(SystemExit):
        script.main()
    assert "expected runs of the paper's settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "count", "expected"),
    [("paper_setting", 1, "0.4"), ("paper_computation2", 28, "22")],
)
def test_gpu_hours_come_from_the_printed_times(name, count, expected):
    found = hours.runs(name)
    total = sum(hours.minutes(*run) for run in found) / 60
    assert len(found) == count and f"{total:.{'.' in expected:d}f}" == expected


def test_what_is_not_printed_is_derived():
    assert hours.minutes("cot", "gsm8k") == pytest.approx(27.28 / 5)
    assert hours.minutes("rap", "aime_2024", "qwen2_72b") == pytest.approx(9 * 234.14 * 30 / 200)
    (read, written), error = hours.fit()
    assert (round(read), round(written), round(100 * error)) == (2386, 274, 16)
