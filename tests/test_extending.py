"""The examples of docs/extending.md and of the README: a new user's scripts, each of them run."""

import csv
import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.cli.run import run_one
from soft_reasoning.lab.data.demo import FOLDER
from soft_reasoning.lab.reports.report import summary
from soft_reasoning.lab.runs.files import MANIFEST, PREDICTIONS
from soft_reasoning.lab.runs.runner import LocalLauncher

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCKS = {
    kind: re.findall(rf"```{kind}\n(.*?)```", PAGE, flags=re.DOTALL) for kind in ("python", "bash", "yaml")
}
QUESTION = (
    "Sam has 8 cards. 1) Sam gives 2 to each of 3 friends. 2) Sam gets 10. How many cards does Sam have now?"
)
TEMPLATE = (  # of words that the bundled model's tokenizer knows
    "{% for m in messages %}Solutions:\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}Analysis:\n{% endif %}"
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with mine.py, mine.yaml, mine.csv, and a model with a chat template."""
    (tmp_path / "mine.py").write_text("\n\n".join(BLOCKS["python"][1:]))
    (tmp_path / "mine.yaml").write_text(BLOCKS["yaml"][0])
    (tmp_path / "mine.csv").write_text("q,a,x,y\nWhat is 1 + 2?,3,1,2\nWhat is 2 + 2?,4,2,2\n")
    shutil.copytree(FOLDER / "model", tmp_path / "my-folder")
    settings = tmp_path / "my-folder" / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"chat_template": TEMPLATE}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    importlib.invalidate_caches()
    return tmp_path


def command(part, *more):
    """The documented command that holds ``part``, run in this process on the fake engine."""
    [line] = [line for block in BLOCKS["bash"] for line in block.strip().splitlines() if part in line]
    words = shlex.split(line)
    assert words[:2] == ["soft-reasoning", "run"]
    config = compose_config(
        [*words[2:], *more, "engine=fake", "limit=2", "max_new_tokens=20", "progress=false"]
    )
    run_one(config, Path("out"), LocalLauncher())
    return config


def records():
    return [json.loads(line) for line in Path("out/samples.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_own_folder_and_own_loaded_model(here, capsys):
    names = {}
    exec(
        compile(BLOCKS["python"][0].replace("max_tokens=2000", "max_tokens=100"), "extending.md", "exec"),
        names,
    )
    assert "Answers:" in capsys.readouterr().out  # a chat model whose questions are open answers by cot
    prompt = "".join(names["result"].prompt)
    assert prompt.startswith("Solutions:\n") and "Analysis:\n" in prompt
    with SoftReasoner.from_pretrained("my-folder", method="cot", max_tokens=20) as reasoner:
        assert "".join(reasoner.solve(QUESTION).prompt).startswith("Solutions:\n")
    assert compose_config(["model=./my-folder"]).prompt.layout == "auto"
    with pytest.raises(UserError, match="use from_pretrained"):
        SoftReasoner("my-folder", None)


def test_own_prompt_file(here):
    assert len(BLOCKS["yaml"][0].splitlines()) <= 12
    config = compose_config(
        ["prompt=mine.yaml", "engine=fake", "limit=2", "max_new_tokens=20", "progress=false"]
    )
    run_one(config, Path("out"), LocalLauncher())
    stored = json.loads(Path("out", MANIFEST).read_text())["config"]["prompt"]["wording"]
    assert "Somebody answered" in stored["reviews"]["single_judge"]["ask"]
    assert all("Think step by step." in "".join(record["prompt"]) for record in records())
    Path("mine.yaml").write_text(BLOCKS["yaml"][0].replace("Think", "Reason"))
    with pytest.raises(UserError, match="prompt.wording"):
        changed = compose_config(["prompt=mine.yaml", "engine=fake", "limit=2", "max_new_tokens=20"])
        run_one(changed, Path("out"), LocalLauncher())


def test_own_csv_with_and_without_answers(here):
    command("dataset=mine.csv", "method=cot")
    assert [record["target"] for record in records()] == ["3", "4"]
    assert not Path("out", PREDICTIONS).exists()
    shutil.rmtree("out")
    command("dataset=mine.csv", "method=cot", "dataset.row.answer=null")
    with Path("out", PREDICTIONS).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["question"] for row in rows] == ["What is 1 + 2?", "What is 2 + 2?"]
    assert all(f"{row['question']}  {row['answer'] or 'no answer'}" in summary(Path("out")) for row in rows)


def test_own_rows(here):
    more = ["dataset=custom", "dataset.path=mine.csv", "dataset.row._target_=mine.Rows", "method=cot"]
    config = compose_config([*more, "engine=fake", "progress=false", "max_new_tokens=20"])
    assert "dataset.row._target_=mine.Rows" in PAGE
    run_one(config, Path("out"), LocalLauncher())
    assert [record["question"] for record in records()] == ["What is 1 + 2?", "What is 2 + 2?"]


def test_own_method_from_both_sides(here):
    command("LongestOf")
    assert all(len(record["candidates"]) == 4 for record in records())
    from mine import LongestOf

    with SoftReasoner.from_pretrained("demo", engine="fake") as reasoner:
        solution = reasoner.solve(QUESTION, method=LongestOf())
        assert solution.method == "longest_of" and len(solution.candidates) == 3
        assert "Answers:" in solution.explain()


def test_own_verifier_and_acquisition(here):
    command("PrefersShort", "rounds=1", "stopping=none")
    for record in records():
        for first in (0, 5):
            lengths = [len(text) for text in record["resps"][0][first : first + 5]]
            scores = [candidate["verified"] for candidate in record["candidates"][first : first + 5]]
            assert scores == [float(length == min(lengths)) for length in lengths]
    shutil.rmtree("out")
    config = command("Cautious", "rounds=1", "stopping=none")
    assert config.acquisition.kappa == 2
    sys.modules["mine"].test_cautious()
    assert all(len(record["candidates"]) == 10 for record in records())


def test_own_effect(here):
    command("FirstWord")
    for record in records():
        assert record["usage"]["likeliest"]["sequences"] == 1 and len(record["trace"][0]["likeliest"]) == 3
        assert record["filtered_resps"] == [record["trace"][0]["likeliest"][0]]
    command("FirstWord", "max_seconds=1e-9", "fresh=true")
    assert all(not record["usage"] for record in records())


def test_a_changed_plug_in_is_noticed(here):
    command("LongestOf")
    command("LongestOf")  # continues
    path = here / "mine.py"
    path.write_text(path.read_text() + "\n# better\n")
    with pytest.raises(UserError, match="source of mine: .* restore these"):
        command("LongestOf")
    command("LongestOf", "fresh=true")
