"""SoftReasoner, and the README's lines of Python, on the bundled model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.checks import OptionError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.task.probe import Probe
from soft_reasoning.task.space import TaskPoint

QUESTIONS = [
    "Ada has 31 apples. Ada buys 3 packs of 7 apples. Ada loses 12. How many apples does Ada have now?",
    "Ben has 40 books. Ben gives 4 to each of 5 friends. How many books does Ben have now?",
    "Eva has 18 coins. Then Eva doubles the coins. Jon also finds 5 coins. How many coins does Eva have now?",
]


@pytest.fixture(scope="module")
def reasoner():
    return SoftReasoner.from_pretrained("demo", rounds=1)


@pytest.mark.parametrize("bad", ["   ", {"text": "hello"}, None, [QUESTIONS[0], 5], b"abc"])
def test_an_empty_question_is_refused(reasoner, bad):
    with pytest.raises(UserError, match="expected a question"):
        reasoner.solve(bad)


def test_an_id_has_one_question(reasoner):
    with pytest.raises(UserError, match="two questions with '1'"):
        reasoner.solve([{"id": 1, "question": QUESTIONS[0]}, {"id": 1, "question": QUESTIONS[1]}])
    assert len(reasoner.solve([{"id": 1, "question": QUESTIONS[0]}] * 2)) == 2


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("/nope", {}, "model.path"),
        ("demo", {"device": "cuda:99"}, "device: expected a device .*'cuda:99'"),
        ("demo", {"limit": 3}, "expected options among .*got limit"),
        ("demo", {"answer_type": "boolean"}, "answer_type=boolean: expected a prompt .* use prompt=boolean"),
        ("demo", {"quantization": "3bit"}, "quantization: expected 4bit, 8bit or a mapping, got .3bit"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(name, options, expected):
    with pytest.raises(UserError, match=expected) as error:
        SoftReasoner.from_pretrained(name, **options)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("call", [TaskPoint.load, Probe.load, SoftReasoner.from_pretrained])
def test_a_home_that_nobody_has_is_named(call):
    with pytest.raises(OptionError, match="expected a home directory for ~, got ~nobody-here/x without one"):
        call("~nobody-here/x")


def test_a_folder_of_any_name_and_options_of_any_kind(tmp_path):
    folder = tmp_path / "my model (1), it's [new] a=b"
    folder.symlink_to(DEMO_FOLDER)
    options = {"revision": None, "trust_remote_code": False, "dtype": "float32"}
    with SoftReasoner.from_pretrained(folder, prompt="demo", method="cot", **options) as reasoner:
        assert reasoner.solve(QUESTIONS[1]).candidates


@pytest.mark.parametrize("kind", ["choice", "latex", "text"])
def test_the_prompt_asks_for_answers_of_their_type(kind):
    options = {"answer_type": kind, "engine": "fake", "method": "cot"}
    with SoftReasoner.from_pretrained("some/model", **options) as reasoner:
        heads = [compose_config([f"prompt={name}"]).prompt.wording.head for name in (kind, "math")]
        assert reasoner.context.prompts.wording.head == heads[0] != heads[1]


def python_of(page):
    """The blocks of Python on a page."""
    text = (Path(__file__).parents[1] / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_a_type_checker_is_content_with_the_readme(tmp_path):
    pyright = Path(sys.executable).with_name("pyright")
    if not pyright.exists():
        pytest.skip("pyright is not installed")
    (tmp_path / "readme.py").write_text("\n".join([*python_of("README.md"), TYPED]))
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(Path(__file__).parents[1])]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--pythonpath", sys.executable, "--project", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "0 errors" in done.stdout, done.stdout


TYPED = """
from typing_extensions import assert_type
from soft_reasoning import Candidate, Message, Question, Solution
def judge(question: str, candidates: list[Candidate]) -> list[float]:
    return [1.0 for _ in candidates]
with SoftReasoner.from_pretrained("demo", method="cot", k=3, max_tokens=100) as reasoner:
    assert_type(reasoner.solve("?", method="cot", k=2, on_round=lambda round: print(round.number)), Solution)
    assert_type(reasoner.solve([{"role": "user", "content": "?"}], verifier=judge), Solution)
    chat: list[Message] = [{"role": "user", "content": "?"}]
    assert_type(reasoner.solve(chat), Solution)
    asked: Question = {"question": "?", "id": 1}
    assert_type(reasoner.solve(asked), Solution)
    assert_type(reasoner.solve(["?", asked, chat], progress=True), list[Solution])
    assert_type(reasoner.solve(text for text in ("?", "??")), list[Solution])
"""


@pytest.mark.parametrize("page", ["README.md", "docs/start.md", "docs/own_parts.md"])
def test_the_examples_of_the_pages_run(page, capsys):
    names: dict[str, object] = {}  # a later block uses what an earlier block defines
    for block in python_of(page):
        exec(compile(block, page, "exec"), names)
    assert capsys.readouterr().out.strip()
