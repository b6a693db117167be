"""Files of what was learnt: for one model and prompt, and read by one reader that takes no damaged number."""

import json
import re
from dataclasses import replace

import pytest

from soft_reasoning.checks import OptionError
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.method.soft_token import SoftToken
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.task import TaskObjective, TaskPoint
from soft_reasoning.task.learnt import made_for
from soft_reasoning.task.probe import HiddenStateJudge, Probe
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import Problem, UserError
from tests.task.world import PROBLEMS, fake_context


@pytest.fixture(scope="module")
def context():
    return fake_context()


def test_a_point_is_a_file_for_its_model_and_prompt(context, tmp_path):
    objective = TaskObjective(PROBLEMS, TaskSpace(dim=6), context, max_new_tokens=30)
    point = objective.point([0.5] * 6)
    point.save(tmp_path / "point.json")
    assert TaskPoint.load(tmp_path / "point.json") == point
    method = SoftToken(point=tmp_path / "point.json", max_new_tokens=30)
    assert method.point == point
    with pytest.raises(UserError, match="made for this prompt"):
        list(drive(PROBLEMS, method, fake_context("Q: {question}\n")))
    adapted = FakeEngine()
    adapted.settings = {"adapter": str(tmp_path)}
    for engine in (FakeEngine(hidden_size=16), adapted):
        with pytest.raises(UserError, match="made for this model"):
            list(drive(PROBLEMS, method, replace(context, engine=engine)))
    with pytest.raises(UserError, match="24 that it was, such as p0"):
        point.check_unseen(PROBLEMS)
    point.check_unseen([Problem("new", "Another?", "1")])


POINT = {"vectors": [[0.5, 1.0]], "u": [0.5], "made_for": {}, "questions": {}}
PROBE = {"weights": [0.5, 1.0], "vote_weight": 1.0, "bias": 0.0, "made_for": {}, "questions": {}}
NUMBERS = [
    "NaN",
    "Infinity",
    "1e39",
    "1" + 400 * "0",
    '"1"',
    "null",
    "true",
    "[1]",
    "[]",
    "[" * 900 + "]" * 900,
]
FIELDS = [(TaskPoint, POINT, "vectors"), (TaskPoint, POINT, "u"), *((Probe, PROBE, name) for name in PROBE)]


@pytest.mark.parametrize(("kind", "content", "field"), FIELDS, ids=lambda x: x if isinstance(x, str) else "")
@pytest.mark.parametrize("number", NUMBERS, ids=lambda text: text[:9])
def test_a_damaged_number_is_one_line_with_file_and_field(tmp_path, kind, content, field, number):
    text = json.dumps(content | {field: "?"})
    damaged = {"vectors": f"[[0.5, {number}]]", "u": f"[{number}]", "weights": f"[{number}, 1]"}
    rejects(kind, tmp_path / "learnt.json", text.replace('"?"', damaged.get(field, number)), field)


@pytest.mark.parametrize(
    ("kind", "content", "field"),
    [
        (TaskPoint, {"vectors": []}, "vectors"),
        (TaskPoint, {"vectors": [[1], [1, 2]]}, "vectors"),
        (TaskPoint, {"questions": {"q": 5}}, "questions"),
        (TaskPoint, {"more": 1}, "more"),
        (Probe, {"weights": []}, "weights"),
    ],
)
def test_a_damaged_field_is_one_line_with_file_and_field(tmp_path, kind, content, field):
    text = json.dumps((POINT if kind is TaskPoint else PROBE) | content)
    rejects(kind, tmp_path / "learnt.json", text, field)


@pytest.mark.parametrize("kind", [TaskPoint, Probe])
def test_a_file_lacks_no_field(tmp_path, kind):
    whole = POINT if kind is TaskPoint else PROBE
    for field in whole:
        rest = {name: value for name, value in whole.items() if name != field}
        rejects(kind, tmp_path / "learnt.json", json.dumps(rest), field)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "5", "\ufeff{}", '{"u": [', "[" * 100_000, "\0"])
def test_another_file_is_one_line(tmp_path, text):
    rejects(TaskPoint, tmp_path / "learnt.json", text)
    with pytest.raises(OptionError, match=r"^probe: expected .*none.json .No such file"):
        HiddenStateJudge(probe=tmp_path / "none.json")


def rejects(kind, path, text, field=""):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match=re.escape(str(path))) as raised:
        kind.load(path)
    assert str(raised.value).startswith(f"{kind.option}: expected a file that") and field in str(raised.value)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_numbers_for_another_width_are_refused(context):
    point = TaskPoint(**POINT | {"made_for": made_for(context)})
    with pytest.raises(UserError, match="point: expected numbers for a hidden size of"):
        list(drive(PROBLEMS[:1], SoftToken(point=point), context))
    size = context.engine.hidden_size
    for weights in ([1.0, 2.0], [1.0] * (2 * size + 1)):
        with pytest.raises(UserError, match=f"probe: expected numbers for a hidden size of {size}, got"):
            Probe(**PROBE | {"weights": weights, "made_for": made_for(context)}).check_fits(context)
