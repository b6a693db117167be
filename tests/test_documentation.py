"""README and docs/: links, named files, commands, the example of a prompt, and the site itself."""

import importlib.util
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.cli.serve import register_server, server_words
from soft_reasoning.cli.tune import register_tune, tune_words
from soft_reasoning.lab.reports import plots

ROOT = Path(__file__).parents[1]
OWN = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "notebooks").glob("*.md")),
]
PAGES = [
    *OWN,
    ROOT / "CHANGELOG.md",
    ROOT / "soft_reasoning" / "ARCHITECTURE.md",
    ROOT / "soft_reasoning" / "demo" / "model" / "README.md",
    *sorted((ROOT / "experiments").rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"(?:conf|docs|experiments|soft_reasoning|tests|\.ci)/[\w./-]*\w\.(?:py|md|ya?ml|csv|jsonl?|svg)\b"
)
PLACEHOLDER = re.compile(r"NAME|FOLDER|FILE|GROUP|HOST")
EXTRA = [
    name
    for name in ("sphinx", "furo", "myst_nb", "ipykernel", "matplotlib")
    if importlib.util.find_spec(name) is None
]


def name(path):
    return str(path.relative_to(ROOT))


def anchors(text):
    """Anchors of a page's headings, as GitHub and MyST make them."""
    plain = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", plain, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_local_links_lead_somewhere(page):
    text, broken = page.read_text(encoding="utf-8"), []
    for link in LINK.findall(text):
        if link.startswith(("https://", "http://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("page", OWN, ids=name)
def test_files_that_are_named_exist(page):
    paths = {path for path in NAMED.findall(page.read_text(encoding="utf-8")) if not PLACEHOLDER.search(path)}
    assert not [path for path in sorted(paths) if not (ROOT / path).exists()]


CODE = re.compile(r"\[`(?:\w+\.)?(\w+)`\]\((\.\./[\w/]+\.py)\)")


def test_functions_and_tests_of_the_papers_equations_exist():
    page = ROOT / "docs" / "paper.md"
    named = CODE.findall(page.read_text(encoding="utf-8"))
    assert len(named) > 40
    for function, file in named:
        source = (page.parent / file).resolve().read_text(encoding="utf-8")
        assert re.search(rf"^\s*(?:def|class) {function}\b", source, flags=re.MULTILINE), function


def typed(page):
    """The lines of a page's shell blocks."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def commands(page):
    """The arguments of each run that a page shows."""
    for line in typed(page):
        match = re.match(r"(?:\./sr |soft-reasoning |python -m soft_reasoning\.)(run|serve|tune)\b(.*)", line)
        if match:
            words = shlex.split(match[2], comments=True)
            if match[1] == "serve":
                register_server()
                words = server_words(words)
            elif match[1] == "tune":
                register_tune()
                words = tune_words(words)
            yield line, words


def single(word):
    """The first value of a sweep's list."""
    key, _, value = word.partition("=")
    return word if value.startswith(("[", "'", "{")) else f"{key}={value.partition(',')[0]}"


SHOWN = [
    pytest.param(words, id=line)
    for page in OWN
    for line, words in commands(page)
    if not any(word.startswith("--config-dir") for word in words)
]


@pytest.mark.parametrize("words", SHOWN)
def test_commands_compose(words):
    sweep = "-m" in words
    compose_config([single(word) if sweep else word for word in words if word != "-m"])


def headers(path):
    """The commands in the first comment of a configuration, or in a script's docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        text = "\n".join(line[2:] for line in text.splitlines() if line.startswith("# "))
        lines = re.findall(r"^(?:python -m |soft-reasoning ).*", text, flags=re.MULTILINE)
    else:
        text = text.partition('"""')[2].partition('"""')[0]
        lines = re.findall(r"(?:^ {4}|: )((?:python |soft-reasoning ).*)", text, flags=re.MULTILINE)
    return [part for line in lines for part in re.sub(r" \[[^\]=]*(=0,1,2 -m)?\]", "", line).split(" && ")]


ELSEWHERE = re.compile(
    r"^(pip|hf|export|inspect|lm-eval|\./sr (test|docs))|reasoning (serve|tune)|point=|probe=|\[group="
    r"|=mine\.[A-Z]|HOST|launcher=ray|gguf|paper_|sweep_|neurons|paper\.|demo\.train|bench_(gpu|server)|adapter"
    r"|finetune|experiments\.reading|runs=\[FOLDER\]|bench_search.py --grid( |$)"
    r"|safetensors model=|-m venv|model=http|bench_served|real_model|experiments.schemas"
)
"""Commands that other tests run, or that need a server, a cluster or a GPU. Hours of training have none."""
SMALL = {
    "bench_engine": "--rows 2 --steps 3",
    "bench_run": "--problems 2",
    "bench_search": "--problems 2 --boxes Branin",
    "bring_your_own_optimiser": "--problems 1 --rounds 2",
    "user_tasks": "'own CSV' 'a mistyped option'",
}
"""By script, what makes it small."""
ROWS = "".join(f'{{"question": "What is {n} and {n}?", "answer": "#### {2 * n}"}}\n' for n in range(4))


def made_small(words):
    """A run's words for two questions and the fake engine."""
    small = ["limit=2", "max_new_tokens=20", "progress=false", "engine=fake"]
    asked = " ".join(words)
    if re.search(r"gsm8k|qwen|llama|mistral|OWNER", asked) and "dataset.path=FOLDER" not in asked:
        small += ["dataset=gsm8k", "dataset.path=test.jsonl"]
    keys = {word.partition("=")[0] for word in small} | {
        "dataset.shots",
        "engine.tensor_parallel_size",
        "engine.environment",
    }
    kept = [word for word in words if word.partition("=")[0] not in keys]
    return [*(single(word) if "-m" in words and "=" in word else word for word in kept), *small]


def run_script(words, monkeypatch):
    """``python FILE ...`` and ``python -m MODULE ...`` in this process."""
    name, more = (words[1], words[2:]) if words[0] == "-m" else (words[0], words[1:])
    path = ROOT / (name if name.endswith(".py") else f"{name.replace('.', '/')}.py")
    drop = {word for word in shlex.split(SMALL.get(path.stem, "")) if word.startswith("--")}
    kept = [word for i, word in enumerate(more) if word not in drop and more[i - 1] not in drop]
    monkeypatch.setattr(sys, "argv", [str(path), *kept, *shlex.split(SMALL.get(path.stem, ""))])
    runpy.run_path(str(path), run_name="__main__")


def documented():
    """By page, configuration and script, its commands, without runs that an earlier place shows."""
    seen, by_place = set(), {}
    scripts = sorted((ROOT / "experiments").glob("*.py"))
    for place in [*OWN, *sorted((ROOT / "conf").rglob("*.yaml")), *scripts]:
        for line in typed(place) if place.suffix == ".md" else headers(place):
            words = shlex.split(
                re.sub(r"^(\./sr|python -m soft_reasoning\.run)", "soft-reasoning", line), True
            )
            if not words or ELSEWHERE.search(line):
                continue
            words[1:2] = (
                words[1:2] if words[0] != "soft-reasoning" or "=" not in words[1] else ["run", words[1]]
            )
            if words[0] != "soft-reasoning" or tuple(words) not in seen:
                by_place.setdefault(place, []).append(words)
                seen.add(tuple(words))
    return by_place


DOCUMENTED = documented()


@pytest.mark.slow
@pytest.mark.parametrize("place", DOCUMENTED, ids=name)
def test_commands_run(command, tmp_path, monkeypatch, place):
    """A place's commands in their order, as typed, but on two questions and without a large model."""
    monkeypatch.setattr(plots, "available", lambda: False)  # plots have tests of their own
    monkeypatch.chdir(tmp_path)
    for file, text in {
        "mine.csv": "q,a\nWhat is 1 + 2?,3\n",
        "FILE.csv": "question,answer\nWhat is 1 + 2?,3\n",
        "test.jsonl": ROWS,
        "FOLDER/gsm8k.jsonl": ROWS,
    }.items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(text, encoding="utf-8")
    for program, called, *rest in DOCUMENTED[place]:
        if program.startswith("python"):
            run_script([called, *rest], monkeypatch)
            continue
        if called == "regrade":  # of the run before it
            done = Path("runs").glob("*/results.json")
            rest[0] = str(max(done, key=lambda path: path.stat().st_mtime_ns).parent)
        done = command(called, *(made_small(rest) if called in ("run", "compare") else rest))
        assert done.returncode == 0, f"{called} {rest}\n{done.stderr}"
        assert list(Path("runs").glob("**/results.json")), rest


@pytest.mark.slow
@pytest.mark.skipif(bool(EXTRA), reason=f"needs the extra [docs]: {', '.join(EXTRA)} missing")
def test_the_site_builds_without_warnings_and_its_notebooks_run(tmp_path):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", tmp_path / "html"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "index.html").is_file()
    for notebook in (ROOT / "docs" / "notebooks").glob("*.md"):
        page = (tmp_path / "html" / "docs" / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        assert "cell_output" in page, notebook.name
