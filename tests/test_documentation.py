"""README and docs/: links, named files, commands, the example of a prompt, and the site itself."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from soft_reasoning.commands.serve import overrides_of
from soft_reasoning.configuration.compose import compose_config

ROOT = Path(__file__).parents[1]
OWN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")),
       *sorted((ROOT / "docs" / "notebooks").glob("*.md"))]  # fmt: skip
PAGES = [*OWN, ROOT / "CHANGELOG.md", ROOT / "soft_reasoning" / "ARCHITECTURE.md",
         ROOT / "soft_reasoning" / "demo" / "model" / "README.md",
         *sorted((ROOT / "experiments").rglob("*.md"))]  # fmt: skip
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"(?:conf|docs|experiments|soft_reasoning|tests|\.ci)/[\w./-]*\w\.(?:py|md|ya?ml|csv|jsonl?|svg)\b"
)
PLACEHOLDER = re.compile(r"NAME|FOLDER|FILE|GROUP|HOST")
EXTRA = [name for name in ("sphinx", "furo", "myst_nb", "ipykernel", "matplotlib")
         if importlib.util.find_spec(name) is None]  # fmt: skip


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
    named = {one for one in NAMED.findall(page.read_text(encoding="utf-8")) if not PLACEHOLDER.search(one)}
    assert not [one for one in sorted(named) if not (ROOT / one).exists()]


def typed(page):
    """The lines of a page's shell blocks."""
    for block in re.findall(r"```bash\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()


def commands(page):
    """The arguments of each run or calibration that a page shows."""
    for line in typed(page):
        found = re.match(
            r"(?:\./sr |soft-reasoning |python -m soft_reasoning\.)(run|calibrate|serve)\b(.*)", line
        )
        if found:
            words = shlex.split(found[2], comments=True)
            if found[1] == "serve":
                words = overrides_of(words)
            yield line, ["+calibration=default"] * (found[1] == "calibrate") + words


def single(word):
    """The first value of a sweep's list."""
    key, _, value = word.partition("=")
    return word if value.startswith(("[", "'", "{")) else f"{key}={value.partition(',')[0]}"


SHOWN = [pytest.param(words, id=line) for page in OWN for line, words in commands(page)
         if not any(word.startswith("--config-dir") for word in words)]  # fmt: skip


@pytest.mark.parametrize("words", SHOWN)
def test_commands_compose(words):
    sweep = "-m" in words
    compose_config([single(word) if sweep else word for word in words if word != "-m"])


ELSEWHERE = re.compile(r"mine|FILE|FOLDER|HOST|runs/|test\.jsonl|smollm2|logging=|ray|--|<|serve|calibrate")
"""Commands that need files of the reader's own, weights or a service, which other tests give them."""
ASKED = re.compile(r"(\./sr|soft-reasoning) (run|compare)\b")
RUN = [line for line in dict.fromkeys(line for page in OWN for line in typed(page))
       if ASKED.match(line) and not ELSEWHERE.search(line)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("line", RUN)
def test_commands_run(command, tmp_path, line):
    """As typed, but on two questions and without a large model."""
    asked = [f'{{"question": "What is {n} and {n} at $5?", "answer": "#### {2 * n}"}}\n' for n in range(4)]
    (tmp_path / "rows.jsonl").write_text("".join(asked), encoding="utf-8")
    words, small = shlex.split(line, comments=True)[1:], ["limit=2", "max_new_tokens=8", "progress=false"]
    if re.search("model=|llama|paper", line):
        small += ["engine=fake"]
    if re.search("gsm8k|llama|paper", line):
        small += ["dataset=gsm8k", "dataset.path=rows.jsonl"]
    keys = {word.partition("=")[0] for word in small} | {"dataset.shots", "engine.tensor_parallel_size"}
    kept = [word for word in words if word.partition("=")[0] not in keys]
    done = command(*(single(word) if "-m" in words and "=" in word else word for word in kept), *small)
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("runs/**/results.json"))


@pytest.mark.slow
@pytest.mark.skipif(bool(EXTRA), reason=f"needs the extra [docs]: {', '.join(EXTRA)} missing")
def test_the_site_builds_without_warnings_and_its_notebooks_run(tmp_path):
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", tmp_path / "html"],
        cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "html" / "index.html").is_file()
    for notebook in (ROOT / "docs" / "notebooks").glob("*.md"):
        page = (tmp_path / "html" / "docs" / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        assert "cell_output" in page, notebook.name
