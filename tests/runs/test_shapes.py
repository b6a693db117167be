"""Edited files of a run's folder: one line that names the place, never a traceback."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from soft_reasoning.answers import Grader
from soft_reasoning.reports import plots
from soft_reasoning.reports.compare import compare
from soft_reasoning.runs.files import read_manifest, read_means, read_peaks, read_records, read_seconds
from soft_reasoning.runs.local import Local
from soft_reasoning.runs.records import grade
from soft_reasoning.runs.runner import regrade, run
from soft_reasoning.runs.store import Store
from soft_reasoning.types import UserError
from tests.runs.world import parts, problems

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
FUZZ = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run of three problems on the fake engine."""
    method, context, config = parts("search.rounds=2")
    return run(problems(3), Local(method, context), tmp_path_factory.mktemp("run"), config).folder


@pytest.fixture(scope="module")
def record(finished):
    return next(iter(read_records(finished)))


def places(value, path=()):
    """The path of everything in nested JSON, its own first."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def edited(value, path, now):
    """A copy of ``value`` with ``now`` at ``path``; ... takes what is there out."""
    if not path:
        return now
    value = copy.deepcopy(value)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    if now is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = now
    return value


def one_line(call):
    """Calls; a refusal has one line."""
    try:
        call()
    except UserError as error:
        assert len(str(error).splitlines()) == 1 and len(str(error)) < 600


@pytest.mark.parametrize(
    ("path", "now", "said"),
    [
        (["candidates"], ..., "candidates: expected it, got nothing"),
        (["answer"], {"x": 1}, "answer: expected a text or null, got {'x': 1}"),
        (["candidates", 0, "reward"], float("nan"), r"candidates\[0\].reward: expected a number"),
        (["candidates", 0, "round"], 10**9, "candidates: expected rounds from 0"),
        (["resps"], [[]], "resps: expected one list of"),
        (["answer_type"], ["number"], "answer_type: expected one of number"),
        (["usage", "candidate", "tokens"], 1, "usage: expected counts of"),
    ],
)
def test_an_edited_record_names_its_problem_and_field(record, path, now, said):
    with pytest.raises(UserError, match=rf"problem 'p0'.*edited \({said}"):
        grade(edited(record, path, now), Grader())


@FUZZ
@given(data=st.data())
def test_any_record_is_graded_or_refused(record, data):
    path = data.draw(st.sampled_from([one for one in places(record) if one]))
    now = data.draw(JSON | st.just(...))
    one_line(lambda: grade(edited(record, path, now), Grader()))


@settings(FUZZ, max_examples=40)
@given(data=st.data())
def test_any_file_of_a_run_is_read_or_refused(finished, data):
    """What reads it: a resumed run, another grading, a comparison, and the sums of its times."""
    name = data.draw(st.sampled_from(["manifest.json", "results.json", "grades.json", "timing.jsonl"]))
    path = finished / name
    whole = path.read_bytes()
    lines = whole.splitlines() if name.endswith("l") else [whole]
    if data.draw(st.booleans()):
        content = json.loads(lines[0])
        place = data.draw(st.sampled_from(list(places(content))))
        lines[0] = json.dumps(edited(content, place, data.draw(JSON))).encode()
    else:
        start = data.draw(st.integers(0, len(lines[0])))
        lines[0] = lines[0][:start] + data.draw(st.binary(max_size=4)) + lines[0][start + 2 :]
    others = {one.name: one.read_bytes() for one in finished.iterdir() if one.is_file()}
    path.write_bytes(b"\n".join(lines) + b"\n")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(plots, "available", lambda: False)
            for read in (read_seconds, read_peaks, read_means):
                one_line(lambda read=read: read(finished))
            one_line(lambda: compare([finished], show=False))
            one_line(lambda: Store(finished, read_manifest(finished)["config"]).close())
            one_line(lambda: regrade(finished, Grader()))
    finally:
        for kept, content in others.items():
            (finished / kept).write_bytes(content)


@settings(FUZZ, max_examples=40)
@given(tail=st.binary(max_size=80), cut=st.integers(0, 10**6))
def test_any_tail_of_the_records_is_dropped_or_refused(finished, tail, cut):
    path = finished / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % (len(whole) + 1)] + tail)
    try:
        one_line(lambda: [grade(record, Grader()) for record in read_records(finished)])
        one_line(lambda: Store(finished, read_manifest(finished)["config"]).close())
    finally:
        path.write_bytes(whole)
