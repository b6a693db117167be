"""What a task teaches: the probe, its votes, the states that it reads, and gradient descent beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from experiments.real_models.recording import Answered, Recorded
from experiments.real_models.rules import Rules
from experiments.task import bundled, gradient, probe
from experiments.task.states import KINDS, SHARES, Reader
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.method.mixed_consistency import MixedConsistency
from soft_reasoning.types import Request, Sampling


def labelled(shift, questions=60):
    """Questions of five texts whose states tell right from wrong by ``shift`` standard deviations."""
    stream = np.random.default_rng(0)
    right = stream.uniform(size=(questions, 5)) < 0.5
    states = stream.normal(size=(questions * 5, len(SHARES), len(KINDS), 16))
    states[..., 0] += shift * right.reshape(-1, 1, 1)
    made = [
        Recorded("number", "1", Answered("1", True, 9, 0.0), texts, [Answered("1", True, 9, 0.0)] * 4)
        for texts in ([Answered(str(int(r)), bool(r), 10, -0.1) for r in row] for row in right)
    ]
    return probe.Labelled([f"q{i}" for i in range(questions)], made, states.astype(np.float16))


@pytest.mark.parametrize(("shift", "least", "most"), [(0.0, 0.4, 0.6), (3.0, 0.9, 1.0)])
def test_the_probe_finds_what_the_states_hold_and_nothing_else(shift, least, most):
    data = labelled(shift)
    scores = probe.cross_validated(data, [data.part("mean", 2)])
    over_all, within = probe.figures(data, scores)
    assert least <= float(over_all[:5]) <= most and least <= float(within[:5]) <= most
    perfect, _ = probe.weighted(data, [data.right + 1e-9] * 5, 0, 1.0)
    assert perfect == [Rules(question).covered(5)[0] for question in data.questions]


@pytest.mark.parametrize("confidence", [0.85, 1.0])
def test_equal_weights_are_the_vote_of_the_method(confidence):
    data = labelled(0.0)
    right, tokens = probe.weighted(data, [np.ones(len(data.right))] * 5, 4, confidence)
    method = MixedConsistency(confidence=confidence)
    voted = [Rules(question).mixed(5, 4, method) for question in data.questions]
    assert right == [answer for answer, _ in voted] and tokens == np.mean([spent for _, spent in voted])


def test_states_are_read_while_decoding():
    engine = HuggingFaceEngine("demo")
    reader, text = Reader(engine), tuple(engine.tokenizer.encode("Sam has 8 cards. Sam gets 10. How many?\n"))
    requests = [Request(text, max_new_tokens=40, sampling=Sampling(1.0), seed=seed) for seed in range(3)]
    tickets, read = engine.add(requests), {}
    while len(read) < 3:
        read |= {ticket: (completion, reader.pop(ticket)) for ticket, completion in engine.step(tickets)}
    for completion, states in read.values():
        ids = torch.tensor([text + completion.token_ids[:-1]])
        with torch.inference_mode():
            hidden = engine.model.model(ids, output_hidden_states=True).hidden_states
        fed = torch.stack([hidden[round(share * (len(hidden) - 1))][0, len(text) :] for share in SHARES])
        wanted = torch.stack([fed.mean(1), fed[:, -1], fed[:, :32].mean(1), fed[:, :64].mean(1)], 1)
        assert torch.allclose(states, wanted, rtol=1e-3, atol=1e-2)


def test_gradient_descent_makes_correct_solutions_likelier(monkeypatch):
    for name, value in {"SAMPLES": 4, "BATCH": 2, "RATE": 0.02}.items():
        monkeypatch.setattr(gradient, name, value)
    [parts] = bundled.seeds(1)
    parts = replace(parts, training=parts.training[:8])
    lessons = gradient.correct_solutions(parts, 60)
    golds = {parts.context.prompts.solve(p).ids: p.gold for p in parts.training}
    tokenizer = parts.context.engine.tokenizer
    assert lessons and all(golds[prompt] in tokenizer.decode(list(ids)) for prompt, ids in lessons)
    start = parts.context.engine.embed([lessons[0][1][0]])
    *_, found = gradient.descend(parts, start, 60, epochs=6)
    model = AutoModelForCausalLM.from_pretrained(parts.context.engine.model.config._name_or_path)

    @torch.inference_mode()
    def loss(soft, prompt, ids):
        """The loss of a lesson, without a cache."""
        before, after = (model.get_input_embeddings()(torch.tensor(part)) for part in (prompt, ids))
        logits = model(inputs_embeds=torch.cat([before, soft, after])[None]).logits[0, len(prompt) : -1]
        return torch.nn.functional.cross_entropy(logits, torch.tensor(ids))

    assert sum(loss(found, *lesson) for lesson in lessons) < sum(loss(start, *lesson) for lesson in lessons)
