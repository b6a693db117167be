"""Screen spaces of soft tokens on a real model: random points, all on the same questions.

    python -m experiments.task.screen OUT.jsonl model=qwen25_coder_0_5b dataset=svamp dataset.path=FILE \\
        [--first 400] [--questions 100] [--points 30] [--only "mixture of 24 openings"] [--numbers 3 7]

Each line of OUT.jsonl is a point of a space: which questions are solved, the answers, the tokens, which
solutions were cut, and hashes of every solution and of what follows its first token. It holds no text. A
point is greedy decoding after the same soft tokens in all questions; the point "greedy" has none. Points go
round the spaces, so that what there is so far can be compared. A repeated command goes on.
``experiments.task.spread`` estimates from the file what there is to find.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from experiments.real_models.record import stored
from soft_reasoning.configuration.build import build_context, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.solutions import read_candidate
from soft_reasoning.types import Completion, Problem, Request, generator_for

DIM = 20
LIKELY = 24
GREEDY = "greedy"


@dataclass(frozen=True)
class Space:
    """Maps points to soft tokens (m, D), at the question's ``anchor`` (D,), before or after the prompt."""

    name: str
    dim: int
    soft: Callable[[Tensor, Tensor], Tensor]
    placement: str = "last"


def spaces(context: Context, likely: Tensor) -> list[Space]:
    """The spaces; ``likely`` (LIKELY, D) are the embeddings of the first tokens that are likely in all."""
    engine = context.engine
    A = torch.randn(
        engine.hidden_size, DIM, dtype=torch.float64, generator=generator_for(context.seed, "projection")
    )
    unit = engine.embedding_rms / math.sqrt(DIM) * A

    def offset(scale: float) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda u, anchor: (anchor.double() + scale * unit @ u).float().unsqueeze(0)

    def before(u: Tensor, _: Tensor) -> Tensor:
        return (u.reshape(-1, DIM) @ unit.T).float()

    return [
        Space("shared vector", DIM, lambda u, _: (unit @ u).float().unsqueeze(0)),
        Space(
            "mixture of 24 openings",
            LIKELY,
            lambda u, _: (torch.softmax(3 * u, 0) @ likely.double()).float()[None],
        ),
        Space("anchor + 0.5 rms", DIM, offset(0.5)),
        Space("anchor + 1 rms", DIM, offset(1.0)),
        Space("anchor + 1.5 rms", DIM, offset(1.5)),
        Space("4 vectors before the question", 4 * DIM, before, "first"),
    ]


def looks(problems: Sequence[Problem], context: Context) -> tuple[list[Tensor], Tensor]:
    """Each question's anchor, and the embeddings of the LIKELY first tokens of largest mean probability."""
    engine = context.engine
    prompts = [context.prompts.solve(problem) for problem in problems]
    completions = engine.generate(
        [Request(p.ids, max_new_tokens=0, next_logits=True, role="anchor") for p in prompts]
    )
    logits = torch.stack([completion.next_logits for completion in completions])
    anchors = engine.embed(logits.argmax(-1).tolist())
    special = torch.tensor(sorted(engine.tokenizer.all_special_ids))
    mean = torch.softmax(logits.double(), -1).mean(0).index_fill(0, special, 0)
    return list(anchors), engine.embed(mean.topk(LIKELY).indices.tolist())


def line_of(
    space: str, number: int, completions: Sequence[Completion], problems: Sequence[Problem], context: Context
) -> dict[str, object]:
    candidates = [read_candidate(c, p, context) for c, p in zip(completions, problems, strict=True)]
    return {
        "space": space,
        "point": number,
        "ids": [problem.id for problem in problems],
        "right": [
            int(bool(context.grader.correct(c.answer, p))) for c, p in zip(candidates, problems, strict=True)
        ],
        "answers": [candidate.answer for candidate in candidates],
        "tokens": [completion.generated_tokens for completion in completions],
        "cut": [int(completion.cut) for completion in completions],
        "texts": [hashed(c.token_ids) for c in completions],
        "rests": [hashed(c.token_ids[1:]) for c in completions],
    }


def hashed(token_ids: Sequence[int]) -> str:
    return hashlib.sha256(repr(tuple(token_ids)).encode()).hexdigest()[:8]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("overrides", nargs="*", help="model, data set and other options")
    parser.add_argument("--first", type=int, default=400)
    parser.add_argument("--questions", type=int, default=100)
    parser.add_argument("--points", type=int, default=30)
    parser.add_argument("--max-new-tokens", type=int, default=224)
    parser.add_argument("--only", help="a space's name")
    parser.add_argument("--numbers", type=int, nargs="+", help="only these points, such as the best")
    parser.add_argument("--rows", type=int, default=96, help="requests that are queued at least")
    arguments = parser.parse_args(words)
    known = {(line["space"], line["point"]) for line in stored(arguments.path)}
    config = compose_config(arguments.overrides)
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    problems = dataset.problems()[arguments.first : arguments.first + arguments.questions]
    anchors, likely = looks(problems, context)

    def requests(space: Space | None, number: int) -> Iterator[Request]:
        u = torch.zeros(0)
        if space is not None:
            stream = generator_for(context.seed, space.name, number)
            u = torch.randn(space.dim, dtype=torch.float64, generator=stream)
        for problem, anchor in zip(problems, anchors, strict=True):
            prompt = context.prompts.solve(problem)
            soft = None if space is None else space.soft(u, anchor)
            placement = "last" if space is None else space.placement
            position = context.prompts.position(prompt, placement, problem, seed=context.seed)
            yield Request(
                prompt.ids,
                soft=soft,
                position=position if soft is not None else None,
                max_new_tokens=arguments.max_new_tokens,
                stop=prompt.stop,
                turn=len(points),
            )

    every = [space for space in spaces(context, likely) if arguments.only in (None, space.name)]
    numbers = arguments.numbers or range(arguments.points)
    todo = [(None, 0)] + [(space, n) for n in numbers for space in every]
    points = [(s, n) for s, n in todo if (s.name if s else GREEDY, n) not in known]
    points.reverse()
    tickets: dict[int, tuple[str, int, int]] = {}
    done: dict[tuple[str, int], dict[int, Completion]] = {}
    began = time.time()
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    with open(arguments.path, "a", encoding="utf-8") as file:
        while points or tickets:
            while points and len(tickets) < arguments.rows:
                space, number = points.pop()
                name = space.name if space else GREEDY
                done[name, number] = {}
                for i, ticket in enumerate(engine.add(list(requests(space, number)))):
                    tickets[ticket] = name, number, i
            for ticket, completion in engine.step():
                if isinstance(completion, Exception):
                    raise completion
                name, number, i = tickets.pop(ticket)
                complete = done[name, number]
                complete[i] = completion
                if len(complete) == len(problems):
                    line = line_of(
                        name, number, [complete[j] for j in range(len(problems))], problems, context
                    )
                    file.write(json.dumps(line) + "\n")
                    file.flush()
                    del done[name, number]
                    print(
                        f"{name} {number}: {sum(line['right'])} right, {time.time() - began:.0f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
