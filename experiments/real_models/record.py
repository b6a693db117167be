"""Record a real model's answers: one greedy text, sampled texts and programs for each question.

    python -m experiments.real_models.record OUT.jsonl model=qwen25_coder_1_5b dataset=gsm8k dataset.path=FILE
    python -m experiments.real_models.record --judge probability OUT.jsonl model=qwen25_coder_1_5b \\
        dataset=gsm8k dataset.path=FILE
    python -m experiments.real_models.record --strip OUT.jsonl [RUN ...] FILE.csv

Every text is stored as soon as it is complete, and a repeated command goes on where the last one ended.
With ``--stripped FILE.csv`` it writes only what that file lacks, so that a recording can go on elsewhere.
Questions are worked off in groups of ``--group``, so that the first of them have all their texts early.
``--judge`` adds a verifier's score of each recorded text, with the texts of a question as one round.
``--strip`` reads each text's answer, runs the programs, and writes what rules can be replayed from without
any text: question, kind, sample, gold answer, answer, whether it is right, tokens, whether the text was cut,
its mean log-probability, and a verifier's score. Each RUN, the folder of a run on the same questions, adds
its candidates and its answers, with the tokens of the whole question, as kinds named after the folder. Rows
that FILE.csv has already stay, unless they are written anew.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import pandas as pd
from omegaconf import DictConfig

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.judge.programs import Sandbox
from soft_reasoning.judge.programs.writing import answer_of, code_of
from soft_reasoning.judge.verifier import Verifier, verify
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.runs.records import read_records
from soft_reasoning.method.rounds import VerifiedMethod
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import (
    GREEDY,
    Candidate,
    Completion,
    FinishReason,
    Problem,
    Request,
    Result,
    Sampling,
    seed_for,
)

GREEDY_TEXT, TEXT, PROGRAM = "greedy", "text", "program"
CANDIDATE, ANSWER = "candidate:", "answer:"  # and the name of a run's folder
KEY = ["id", "kind", "sample"]
MAX_PROGRAM_TOKENS = 300
Requests: TypeAlias = Iterator[tuple[str, int, Request]]


def requests(
    problem: Problem, context: Context, counts: Mapping[str, int], most: int, temperature: float
) -> Requests:
    """Yield kind, sample and request of every text of a question; the first program is greedy."""
    for kind, count in counts.items():
        program = kind == PROGRAM
        for i in range(count):
            prompt = (
                context.prompts.task(kind, problem.without_gold())
                if program
                else context.prompts.solve(problem)
            )
            greedy = kind == GREEDY_TEXT or (program and i == 0)
            request = Request(
                prompt.ids,
                max_new_tokens=MAX_PROGRAM_TOKENS if program else most,
                stop=prompt.stop,
                sampling=GREEDY if greedy else Sampling(temperature),
                seed=seed_for(context.seed, problem.id, kind, i),
            )
            yield kind, i, request


def record(path: Path, config: DictConfig, arguments: argparse.Namespace) -> None:
    """Complete what ``path`` lacks and append it, one line for each text."""
    known = {(line["id"], line["kind"], line["sample"]) for line in stored(path)}
    if arguments.stripped:
        stripped = pd.read_csv(arguments.stripped, dtype={"id": str})
        known |= set(stripped[KEY].itertuples(index=False, name=None))
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    problems = dataset.problems()
    counts = {GREEDY_TEXT: 1, TEXT: arguments.texts, PROGRAM: arguments.programs}
    limits = arguments.max_new_tokens, arguments.temperature
    with open(path, "a", encoding="utf-8") as file:
        for start in range(0, len(problems), arguments.group):
            group = problems[start : start + arguments.group]
            wanted = [(p, *rest) for p in group for rest in requests(p, context, counts, *limits)]
            missing = [item for item in wanted if (item[0].id, item[1], item[2]) not in known]
            tickets = dict(zip(engine.add([item[3] for item in missing]), missing, strict=True))
            while tickets:
                for ticket, completion in engine.step():
                    if isinstance(completion, Exception):
                        raise completion
                    problem, kind, sample, _ = tickets.pop(ticket)
                    begin = context.prompts.wording.tasks[kind].cue if kind == PROGRAM else ""
                    file.write(json.dumps(line_of(problem, kind, sample, begin, completion)) + "\n")
                    file.flush()


@dataclass(frozen=True)
class Judging:
    """A method whose result holds a verifier's scores of a question's recorded texts, judged as one round."""

    verifier: Verifier
    texts: Mapping[str, Sequence[Mapping[str, Any]]]
    name: str

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        candidates = [self.candidate(line, problem, context) for line in self.texts[problem.id]]
        verdict = yield from verify(self.verifier, problem.without_gold(), candidates, context, [])
        return Result(None, tuple(candidates), ({"scores": verdict.scores},))

    def candidate(self, line: Mapping[str, Any], problem: Problem, context: Context) -> Candidate:
        reason = FinishReason.LENGTH if line["cut"] else FinishReason.EOS
        answer = context.grader.extract(line["text"], problem.answer_type, problem.question, cut=line["cut"])
        coherence, count = math.exp(line["logprob"]), line["tokens"]
        return Candidate(line["text"], answer, 0, coherence, generated_tokens=count, finish_reason=reason)


def judge(path: Path, config: DictConfig, name: str) -> None:
    """Append the scores of ``config``'s verifier, called ``name``, for the texts in ``path`` without one."""
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    lines, texts = stored(path), dict[str, list[dict[str, Any]]]()
    for line in lines:
        if line["kind"] == TEXT:
            texts.setdefault(line["id"], []).append(line)
    judged = {line["id"] for line in lines if line["kind"] == name}
    problems = [p for p in dataset.problems() if p.id in texts and p.id not in judged]
    method = Judging(cast(VerifiedMethod, build_method(config)).verifier, texts, name)
    with open(path, "a", encoding="utf-8") as file:
        for problem, result in drive(problems, method, context):
            tokens = sum(usage.generated_tokens for usage in result.usage.values())
            for line, score in zip(texts[problem.id], result.trace[0]["scores"], strict=True):
                common = {key: line[key] for key in ("id", "sample", "type", "gold", "cut", "logprob")}
                scored = {"kind": name, "text": "", "tokens": tokens / len(texts[problem.id]), "score": score}
                file.write(json.dumps(common | scored) + "\n")
            file.flush()


def line_of(problem: Problem, kind: str, sample: int, begin: str, completion: Completion) -> dict[str, Any]:
    count, cut = max(len(completion.logprobs), 1), completion.finish_reason == "length"
    return {
        "id": problem.id,
        "kind": kind,
        "sample": sample,
        "type": problem.answer_type,
        "gold": problem.gold,
        "text": begin + completion.text,
        "tokens": len(completion.token_ids),
        "cut": cut,
        "logprob": round(sum(completion.logprobs) / count, 4),
    }


def stored(path: Path) -> list[dict[str, Any]]:
    """The lines of ``path``; a last line without its end, as a killed process leaves it, is dropped."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole, encoding="utf-8")
    return [json.loads(line) for line in whole.splitlines()]


def strip(path: Path, out: Path, runs: Sequence[Path] = ()) -> None:
    """Write the recording ``path``, and what ``runs`` answered, without texts as CSV to ``out``."""
    lines, grader = stored(path), Grader()
    codes = [code_of(line["text"]) for line in lines if line["kind"] == PROGRAM]
    values = iter(Sandbox().run(codes))
    rows: list[dict[str, Any]] = []
    for line in lines:
        answer = answer_in(line, grader, values)
        rows.append(
            {key: line[key] for key in ("id", "kind", "sample", "type", "gold")}
            | {"answer": answer, "right": int(grader.equal(answer, line["gold"], line["type"]))}
            | {"tokens": round(line["tokens"]), "cut": int(line["cut"]), "logprob": line["logprob"]}
            | ({"score": line["score"]} if "score" in line else {})
        )
    for run in runs:
        rows += answers_of(run, grader)
    table = pd.DataFrame(rows)
    if out.is_file():
        earlier = pd.read_csv(out, dtype=str, keep_default_na=False)
        table = pd.concat([earlier.astype({"sample": int}), table]).drop_duplicates(KEY, keep="last")
    out.parent.mkdir(parents=True, exist_ok=True)
    table.sort_values(KEY, kind="stable").to_csv(out, index=False)


def answers_of(run: Path, grader: Grader) -> Iterator[dict[str, Any]]:
    """The candidates and the answers of a run's records as rows of a recording."""
    for record in read_records(run):
        problem, result = record.problem, record.result
        kind, gold = problem.answer_type, problem.gold
        question = {"id": problem.id, "type": kind, "gold": gold}
        tokens = sum(usage.generated_tokens for usage in result.usage.values())
        answer = {"answer": result.answer, "tokens": tokens, "cut": 0}
        candidates = [
            {
                "answer": candidate.answer,
                "tokens": candidate.generated_tokens,
                "cut": int(candidate.finish_reason == FinishReason.LENGTH),
            }
            for candidate in result.candidates
        ]
        for part, answered in ((ANSWER, [answer]), (CANDIDATE, candidates)):
            for sample, row in enumerate(answered):
                right = int(grader.equal(row["answer"], gold, kind))
                yield question | {"kind": part + run.name, "sample": sample, "right": right} | row


def answer_in(line: dict[str, Any], grader: Grader, values: Iterator[Any]) -> str | None:
    """The answer of a stored text, or of the next of the programs' ``values``."""
    if line["kind"] == PROGRAM:
        problem = Problem(line["id"], "", line["gold"], line["type"])
        return answer_of(next(values), problem, grader)[0]
    return grader.extract(line["text"], line["type"])


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the recording, JSON Lines")
    parser.add_argument(
        "overrides", nargs="*", help="model, data set and other options; with --strip the CSV"
    )
    parser.add_argument("--strip", action="store_true", help="write the recording without its texts")
    parser.add_argument("--stripped", type=Path, metavar="FILE.csv", help="write only what it lacks")
    parser.add_argument("--judge", metavar="VERIFIER", help="add the scores of this choice of conf/verifier")
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--programs", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--group", type=int, default=20, help="questions whose texts are written together")
    arguments = parser.parse_args(words)
    if arguments.strip:
        if not arguments.overrides:
            parser.error("expected --strip OUT.jsonl [RUN ...] FILE.csv")
        *runs, out = map(Path, arguments.overrides)
        strip(arguments.path, out, runs)
    elif arguments.judge:
        overrides = [*arguments.overrides, f"verifier={arguments.judge}"]
        judge(arguments.path, compose_config(overrides), arguments.judge)
    else:
        arguments.path.parent.mkdir(parents=True, exist_ok=True)
        record(arguments.path, compose_config(arguments.overrides), arguments)


if __name__ == "__main__":
    main()
