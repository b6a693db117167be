"""A task's soft tokens by gradient descent: how much is there for a search to find.

    python -m experiments.task.gradient OUT.jsonl model=qwen25_coder_0_5b dataset=svamp dataset.path=FILE \\
        [--training 64] [--validation 64] [--test 200] [--tokens 4] [--epochs 10]

Prompt tuning (Lester et al., 2021) in the place of the search's soft tokens, before the first token of the
answer. (``peft`` puts them before the prompt, which is another space.) The model samples solutions of the
training questions, and the soft tokens learn to make the correct ones likelier. Each epoch's tokens answer
the training questions. The best five are compared on the validation questions, and the best of these answers
the test questions, like the points of the searches. OUT.jsonl gets these answers. With ``cache=FOLDER`` a
repeated command generates nothing twice.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from experiments.task.parts import Found, Parts, validated
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.schedule.solutions import read_candidate, solution_request
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import Sampling, generator_for

EPOCHS, BATCH, RATE = 10, 8, 0.1
"""The learning rate is in units of the embedding table's root mean square."""
SAMPLES, KEPT = 16, 8
"""Solutions sampled for each training question, and correct ones that are learnt from."""


def correct_solutions(parts: Parts, max_new_tokens: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The tokens of the prompt and of a correct solution, for up to KEPT different ones of each question."""
    context, sampling = parts.context, Sampling(temperature=0.8, top_k=50)
    asked = [
        (problem, solution_request(problem, context, max_new_tokens, index=i, sampling=sampling))
        for problem in parts.training
        for i in range(SAMPLES)
    ]
    completions = context.engine.generate([request for _, request in asked])
    correct: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
    for (problem, request), completion in zip(asked, completions, strict=True):
        if context.grader.correct(read_candidate(completion, problem, context).answer, problem):
            correct.setdefault(request.prompt_ids, {})[completion.token_ids] = None
    return [(prompt, ids) for prompt, texts in correct.items() for ids in list(texts)[:KEPT]]


def descend(parts: Parts, start: Tensor, max_new_tokens: int, epochs: int = EPOCHS) -> Iterator[Tensor]:
    """The soft tokens (m, D) after each epoch, from ``start``."""
    engine, count = parts.context.engine, len(start)
    path, dtype = engine.model.config._name_or_path, engine.model.dtype
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).requires_grad_(False).eval()
    lessons = correct_solutions(parts, max_new_tokens)
    print(f"{len(lessons)} correct solutions", flush=True)
    with torch.no_grad():
        read = {ids: model(torch.tensor([ids]), use_cache=True).past_key_values for ids in dict(lessons)}
    rms = engine.embedding_rms
    units = (start / rms).clone().requires_grad_()
    optimiser = torch.optim.Adam([units], lr=RATE)
    for epoch in range(epochs):
        stream, began, total = generator_for(parts.context.seed, "gradient", epoch), time.time(), 0.0
        for batch in torch.randperm(len(lessons), generator=stream).split(BATCH):
            for prompt, ids in (lessons[int(i)] for i in batch):
                soft = torch.cat([rms * units, engine.embed(ids[:-1]).float()]).to(dtype)
                cache = copy.deepcopy(read[prompt])
                logits = model(inputs_embeds=soft[None], past_key_values=cache).logits[0, count - 1 :]
                loss = torch.nn.functional.cross_entropy(logits.float(), torch.tensor(ids))
                (loss / len(batch)).backward()
                total += float(loss.detach())
            optimiser.step()
            optimiser.zero_grad()
        seconds = time.time() - began
        print(f"epoch {epoch}: loss {total / len(lessons):.4f}, {seconds:.0f} s", flush=True)
        yield rms * units.detach().clone()


def gradient(
    parts: Parts, space: TaskSpace, history: Path, max_new_tokens: int = 300, epochs: int = EPOCHS
) -> Found:
    """Gradient descent from the likeliest first tokens."""
    likely = parts.objective(parts.training, TaskSpace()).likely(space.tokens)
    vectors = list(descend(parts, parts.context.engine.embed(likely), max_new_tokens, epochs))
    return validated(parts, space, vectors, parts.objective(parts.training, space).ask(vectors))


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("overrides", nargs="*", help="model, data set and other options")
    parser.add_argument("--training", type=int, default=64)
    parser.add_argument("--validation", type=int, default=64)
    parser.add_argument("--test", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args(words)
    config = compose_config(arguments.overrides)
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    problems = dataset.problems()
    first, last = arguments.training, arguments.training + arguments.validation
    parts = Parts(context, problems[:first], problems[first:last], problems[last:][: arguments.test])
    space = TaskSpace(tokens=arguments.tokens)
    test = parts.objective(parts.test, space)
    with replaying(StoreFile.of(config.cache, config.cache_gb), [engine]):
        found, training, validation, _ = gradient(parts, space, arguments.path, epochs=arguments.epochs)
        for run, vectors in (("greedy", None), (f"gradient, {arguments.tokens} tokens", found)):
            [answers] = test.ask([vectors])
            line = {"run": run, "training": training, "validation": validation, "mean": answers.mean}
            with open(arguments.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({**line, "rewards": answers.rewards, "tokens": answers.tokens}) + "\n")
            print(run, answers.mean, flush=True)


if __name__ == "__main__":
    main()
