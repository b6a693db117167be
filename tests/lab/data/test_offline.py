"""The hub without a network: a cache that holds the data set serves it, an empty one names the three ways."""

import json
import os
import subprocess
import sys

import pytest

ROWS = [{"question": f"How much is {n} + {n}?", "answer": f"#### {2 * n}"} for n in range(3)]
LOAD = """
import json, sys
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.types import UserError
for name in sys.argv[1:]:
    try:
        problems = build_dataset(compose_config([f"dataset={name}"])).problems()
        print(json.dumps([(problem.id, problem.gold) for problem in problems]))
    except UserError as error:
        print(json.dumps(str(error)))
"""


@pytest.fixture
def home(tmp_path):
    """A cache as a download of openai/gsm8k leaves it, filled from local rows."""
    import datasets

    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    datasets.load_dataset("json", data_files={"test": str(file)}, cache_dir=str(tmp_path / "made"))
    (made,) = (info.parent for info in (tmp_path / "made").glob("json/*/*/*/dataset_info.json"))
    cached = tmp_path / "home" / "datasets" / "openai___gsm8k" / "main" / made.parent.name / made.name
    cached.parent.mkdir(parents=True)
    made.rename(cached)
    (cached / "json-test.arrow").rename(cached / "gsm8k-test.arrow")
    info = json.loads((cached / "dataset_info.json").read_text())
    info |= {"dataset_name": "gsm8k", "config_name": "main"}
    (cached / "dataset_info.json").write_text(json.dumps(info))
    return tmp_path / "home"


@pytest.mark.slow
def test_a_cached_data_set_is_served_and_another_is_named(home):
    # In a process of its own: the hub's libraries read these variables when imported.
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    environment.pop("HF_DATASETS_CACHE", None)
    command = [sys.executable, "-c", LOAD, "gsm8k", "svamp"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    cached, missing = map(json.loads, done.stdout.splitlines()[-2:])
    assert cached == [["gsm8k-0", "0"], ["gsm8k-1", "2"], ["gsm8k-2", "4"]]
    assert "from the hub as ChilleD/SVAMP" in missing and "\n" not in missing


def test_a_hub_that_cannot_be_reached_is_tried_once(tmp_path):
    """Nothing answers at the port; without the try the libraries of the hub would ask again for minutes."""
    env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and "OFFLINE" not in k}
    env |= {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://127.0.0.1:9"}
    script = "from soft_reasoning import SoftReasoner\nSoftReasoner.from_pretrained('owner/model')"
    both = "; the weights of meta-llama/Meta-Llama-3-8B-Instruct are missing, too: model=<local folder>"
    run = ["-m", "soft_reasoning.run", "+experiment=llama_zero", "limit=2"]
    for code, named in ((["-c", LOAD, "gsm8k"], "three ways"), (["-c", script], "HF_HOME"), (run, both)):
        done = subprocess.run([sys.executable, *code], capture_output=True, text=True, env=env)
        told = done.stdout + done.stderr
        assert named in told and told.count("cannot be reached") == 1 and "Retry" not in told
