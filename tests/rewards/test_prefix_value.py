"""Values of unfinished solutions: what the model is asked, and the trained head against least squares."""

from types import SimpleNamespace

import pytest
import torch

from experiments.train_prefix_head import fit_head, save_head
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.rewards.prefix_value import (
    LinearHead,
    Prefix,
    SelfJudged,
    head_values,
)
from soft_reasoning.types import Completion, Generate, Problem, Prompt, UserError
from tests.contracts.engine import logits_after
from tests.engines.models import VOCABULARY, tiny

PREFIXES = [Prefix((7, 8), "3 + 4 =\n  7"), Prefix((9,), "3 - 4")]


def answered(steps, logits):
    effect = next(steps)
    assert isinstance(effect, Generate) and all(r.max_new_tokens == 0 for r in effect.requests)
    with pytest.raises(StopIteration) as stop:
        steps.send([Completion((), (), "", "length", 1, next_logits=row) for row in logits])
    return effect.requests, stop.value.value


def test_the_model_is_asked_about_each_prefix_on_one_line_and_sees_no_gold():
    asked = []

    def task(kind, problem, **fields):
        assert problem.gold is None
        asked.append((kind, fields))
        return Prompt(ids=(len(asked),))

    context = SimpleNamespace(
        prompts=SimpleNamespace(task=task), engine=SimpleNamespace(tokenizer=FakeTokenizer())
    )
    steps = SelfJudged().values(Problem("p", "How many?", "7"), Prompt((1,)), PREFIXES, context)
    requests, values = answered(steps, torch.tensor([[2.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 2.0]]))
    assert asked == [("prefix_right", {"partial": "3 + 4 = 7"}), ("prefix_right", {"partial": "3 - 4"})]
    assert [r.prompt_ids for r in requests] == [(1,), (2,)] and requests[0].role == "verifier"
    assert values.tolist() == pytest.approx([0.8807970, 0.1192029])  # 1 / (1 + e^-2)


def test_a_head_is_ridge_regression_on_all_prefixes(tmp_path):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    rewards = (torch.rand(40, generator=generator) < 0.5).double()
    weight, bias = fit_head(logits, rewards, ridge=1e-12)
    design = torch.cat([logits - logits.mean(-1, keepdim=True), torch.ones(40, 1)], dim=1)
    expected = design @ (torch.linalg.pinv(design) @ rewards)
    assert torch.allclose(head_values(logits, weight, bias), expected, atol=1e-6)
    assert torch.allclose(
        head_values(logits + 5, weight, bias), expected, atol=1e-6
    )  # log-probabilities, say
    flat, mean = fit_head(logits, rewards, ridge=1e9)
    assert flat.abs().max() < 1e-6 and float(mean) == pytest.approx(float(rewards.mean()), abs=1e-6)

    save_head(tmp_path / "head", range(10, 16), weight, bias)
    head = LinearHead(str(tmp_path / "head"))
    requests, values = answered(head.values(None, Prompt((1, 2)), PREFIXES, None), logits[:2].float())
    assert [r.prompt_ids for r in requests] == [(1, 2, 7, 8), (1, 2, 9)]
    assert requests[0].next_logits == tuple(range(10, 16))
    assert torch.allclose(values, expected[:2], atol=1e-5)


def test_a_head_on_logits_is_one_on_the_last_hidden_state():
    """A value that is linear in the hidden state is read off the logits of twice as many tokens."""
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, VOCABULARY, (240, 6), generator=generator)
    with torch.no_grad():
        state = engine.model(ids, output_hidden_states=True).hidden_states[-1][:, -1].double()
    value = state @ torch.randn(state.shape[1], generator=generator, dtype=torch.float64)
    logits = logits_after(engine, [tuple(row) for row in ids.tolist()], range(2 * state.shape[1]))
    weight, bias = fit_head(logits[:160], value[:160], ridge=1e-9)
    error = head_values(logits[160:], weight, bias) - value[160:]
    assert float(error.std() / value.std()) < 1e-3


@pytest.mark.parametrize("content", [None, b"no tensors"])
def test_a_file_that_is_no_head_is_refused_in_one_line(tmp_path, content):
    if content:
        (tmp_path / "head").write_bytes(content)
    with pytest.raises(UserError, match="method.head: expected") as error:
        LinearHead(str(tmp_path / "head"))
    assert "train_prefix_head.py" in str(error.value) and "\n" not in str(error.value)
