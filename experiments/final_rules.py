"""Every final-answer rule on finished runs: python experiments/final_rules.py RUN [RUN ...]

Reads each run's samples.jsonl, fits the run's own surrogate where a rule needs posterior means, and prints
the accuracy (%) under each rule. Votes are shown with several weights of the verifier's answers (0:
candidates only; 5: as much as a round's candidates).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from soft_reasoning.commands.regrade import grader_of
from soft_reasoning.configuration.stored import build_stored
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.final import RULES, FinalAnswer
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.runs.files import read_manifest, read_records
from soft_reasoning.types import Candidate, Problem

WEIGHTS = (0.0, 1.0, 2.0, 5.0)


def read(record) -> tuple[Problem, list[Candidate], list[Verdict]]:
    problem = Problem(record["doc_id"], record["question"], record["target"], record["answer_type"])
    candidates = [
        Candidate(
            text="", answer=c["answer"], round=c["round"], reward=c["reward"], u=tuple(c.get("u") or ())
        )
        for c in record["candidates"]
    ]
    rounds = [t["verifier"] for t in record["trace"]]
    return problem, candidates, [Verdict((), r["answers"], (), r["weights"]) for r in rounds]


GROUPS = ("search", "surrogate", "acquisition", "candidate_points", "batch")


def accuracies(folder: Path, rules: list[FinalAnswer]) -> list[float | None]:
    """Accuracy (%) under each rule; None where it needs posterior means and the run had no surrogate."""
    config = read_manifest(folder)["config"]
    stored = config["method"].get("optimiser")
    optimiser = stored and build_stored(stored, f"{folder}: method.optimiser", *GROUPS)
    grader = grader_of(config, [])
    usable = [rule for rule in rules if optimiser or not rule.needs_posterior]
    right = {rule: 0 for rule in usable}
    records = list(read_records(folder))
    for record in records:
        problem, candidates, verdicts = read(record)
        mean = None
        if optimiser:
            U = torch.tensor([c.u for c in candidates], dtype=torch.float64)
            y = torch.tensor([c.reward for c in candidates], dtype=torch.float64)
            mean = optimiser.posterior_mean(U[None], y[None])[0].tolist()
        for rule in usable:
            answer = rule.choose(candidates, verdicts, grader, problem.answer_type, mean)
            right[rule] += bool(grader.correct(answer, problem))
    return [100 * right[rule] / len(records) if rule in right else None for rule in rules]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    runs = parser.parse_args().runs
    rules = [(r, w) for r in RULES for w in (WEIGHTS if r.endswith("vote") else (1.0,))]
    names = [f"{r}, verifier_weight={w:g}" if r.endswith("vote") else r for r, w in rules]
    columns = [accuracies(run, [FinalAnswer(r, verifier_weight=w) for r, w in rules]) for run in runs]
    rows = [
        (name, *("-" if c[i] is None else f"{c[i]:.1f}" for c in columns)) for i, name in enumerate(names)
    ]
    print(Table(("final rule", *(run.name for run in runs)), rows).markdown())


if __name__ == "__main__":
    main()
