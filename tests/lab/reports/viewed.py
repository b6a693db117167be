"""Runs made by hand for the viewer's tests: hostile texts, every outcome, several rounds."""

import json
import re
from base64 import b64decode
from gzip import decompress

from soft_reasoning.answers import Grader
from soft_reasoning.lab.reports.page import write_page
from soft_reasoning.lab.runs.files import MANIFEST, read_json
from soft_reasoning.lab.runs.records import read_graded
from soft_reasoning.types import Candidate, Problem, Result, Usage
from tests.lab.runs.world import stored

GRADER = Grader()
HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
ASKED = {"model": {"path": "m"}, "dataset": {"name": "made up"}, "seed": 0}


def problem(i, gold="3"):
    return Problem(f"p{i}", f"Question {i}? {HOSTILE if i == 0 else ''}", gold)


def searched(answer, answers, *, rounds=1, verifier=None, rewards=None, texts=None, ended="rounds"):
    """A search's result: ``answers`` spread over ``rounds``, the verifier's own answer in each."""
    per = len(answers) // rounds
    rewards = rewards or [0.1 * i for i in range(len(answers))]
    texts = texts or [f" one two {a}. Answer: {a}" for a in answers]
    candidates = tuple(
        Candidate(text, a, i // per, 0.5, 1.0, reward, (float(i), float(i % 2), 1.0), 7, "eos", 1.0)
        for i, (a, reward, text) in enumerate(zip(answers, rewards, texts, strict=True))
    )
    trace = [
        {
            "round": r,
            "rewards": rewards[r * per : (r + 1) * per],
            "verifier": {
                "answers": [verifier],
                "weights": [1.0],
                "texts": [f"So {verifier}. {HOSTILE}"],
                "prompts": ["Which is right?"],
            },
            "tokens": [[{"nearest": [["Now", 0.5], [" Here", 0.25]]}]] * per,
            "proposal": None if r == 0 else {"mean": [0.25] * per, "sd": [0.5] * per, "decided": 1.0},
        }
        for r in range(rounds)
    ]
    trace[0]["anchor"], trace[-1]["ended"] = "Now", ended
    return Result(answer, candidates, tuple(trace), {"candidate": Usage(5, 1, 70, 2)}, ("<s>Ask me", ""))


def write(folder, results):
    """A run's folder with ``results`` by problem, and its page."""
    method = {"name": "soft_reasoning", "final": {"rule": "reward_vote", "verifier_weight": 1.0}}
    stored(folder, {**ASKED, "method": method}, results.items())
    manifest = read_json(folder / MANIFEST)
    write_page(folder, f"soft_reasoning {HOSTILE}", manifest, GRADER.name, read_graded(folder), [], {})
    return folder


def write_all(folder):
    """A search with a problem of every outcome; return its folder."""
    search = {
        problem(0): searched("3", ["3", "4", "3", "3"], rounds=2, verifier="3"),
        problem(1): searched("3", ["3", "3"], verifier="3"),
        problem(2): searched("4", ["3", "4"], verifier="4"),  # covered but lost
        problem(3): searched("5", ["4", "5"], verifier="5"),
        problem(4): searched(None, [None, None], texts=["", "hm"]),
    }
    return write(folder / "search", search)


def page_of(folder):
    """The text of a page, and the articles of its problems, read as the page reads them."""
    text = (folder / "report.html").read_text(encoding="utf-8")
    packed = re.findall(r'data-article="([^"]*)"', text)
    return text, [json.loads(decompress(b64decode(article))) for article in packed]
