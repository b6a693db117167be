"""What engines with further abilities must do: a suite for each. Inherit those of what an engine offers."""

from dataclasses import replace

import pytest
import torch

from soft_reasoning.engines.abilities import (
    AdjustsLogits,
    FeedsEmbeddings,
    HiddenStates,
    LMHead,
    SoftTokenGradients,
    offers,
)
from soft_reasoning.types import Request


def soft_request(engine, prompt, **options) -> Request:
    noise = torch.randn(2, engine.hidden_size, generator=torch.Generator().manual_seed(0))
    return Request(prompt, soft=0.5 * engine.embedding_rms * noise, position=2, max_new_tokens=1, **options)


class FeedsEmbeddingsContract:
    def test_a_token_s_embedding_fed_in_its_place_changes_nothing(self, engine, prompts):
        assert offers(engine, FeedsEmbeddings)
        plain = Request(prompts[0], max_new_tokens=9)
        fed = replace(plain, feed=lambda logits: engine.embed([int(logits.argmax())])[0])
        for completion in engine.generate([fed, plain, fed])[::2]:
            assert completion.token_ids == engine.generate([plain])[0].token_ids

    def test_another_embedding_fed_acts_as_its_token(self, engine, prompts):
        """Feeding the second likeliest token's embedding is reading that token."""

        def second(logits):
            return engine.embed([int(logits.topk(2).indices[1])])[0]

        run, beside = engine.generate(
            [Request(prompts[0], max_new_tokens=5, min_new_tokens=5, feed=second), Request(prompts[1])]
        )
        ids = prompts[0]
        for token in run.token_ids:
            [look] = engine.generate([Request(ids, max_new_tokens=0, top_logprobs=2)])
            assert look.top_logprobs[0].ids[0] == token
            ids += look.top_logprobs[0].ids[1:]
        assert beside.token_ids == engine.generate([Request(prompts[1])])[0].token_ids


class AdjustsLogitsContract:
    def test_a_token_is_chosen_from_the_adjusted_logits_and_keeps_its_logprob(self, engine, prompts):
        """The likeliest token is barred at the second step alone, so the second likeliest is chosen there."""
        assert offers(engine, AdjustsLogits)

        def barred(ids, logits):
            if len(ids) != 1:
                return logits
            return logits.scatter(0, logits.argmax(keepdim=True), -torch.inf)

        request = Request(prompts[0], max_new_tokens=3, min_new_tokens=3, top_logprobs=2, adjust=barred)
        changed, plain, _ = engine.generate([request, Request(prompts[0]), Request(prompts[1])])
        assert changed.token_ids[0] == plain.token_ids[0]
        assert changed.token_ids[1] == changed.top_logprobs[1].ids[1]
        assert changed.logprobs[1] == pytest.approx(changed.top_logprobs[1].logprobs[1], abs=1e-5)


class HiddenStatesContract:
    def test_the_states_of_a_prompt_begin_as_those_of_its_parts(self, engine, prompts):
        assert offers(engine, HiddenStates)
        whole, part = engine.hidden_states([Request(prompts[0]), Request(prompts[0][:4])])
        assert whole.shape == (len(prompts[0]), engine.hidden_size) and whole.dtype == torch.float32
        assert torch.allclose(whole[:4], part, atol=1e-4)
        soft = engine.embed(prompts[0][2:4])
        [mixed] = engine.hidden_states([Request(prompts[0][:2] + prompts[0][4:], soft=soft, position=2)])
        assert torch.allclose(mixed, whole, atol=1e-4)

    def test_a_request_reads_the_last_one_alone_and_in_a_batch(self, engine, prompts):
        requests = [Request(p, max_new_tokens=0, hidden_state=True) for p in prompts]
        requests += [soft_request(engine, p, hidden_state=True) for p in prompts]
        together = engine.generate([*requests, Request(prompts[0], max_new_tokens=3)])
        for request, completion in zip(requests, together, strict=False):
            [expected] = engine.hidden_states([request])
            assert torch.allclose(completion.hidden_state, expected[-1], atol=1e-4)
            [alone] = engine.generate([request])
            assert torch.allclose(alone.hidden_state, completion.hidden_state, atol=1e-5)
        assert together[-1].hidden_state is None


class LMHeadContract:
    """Of an engine whose hidden states can be read."""

    def test_the_lm_head_of_a_state_gives_the_next_token_s_logits(self, engine, prompts):
        assert offers(engine, LMHead)
        requests = [Request(p, max_new_tokens=0, hidden_state=True, next_logits=True) for p in prompts]
        looks = engine.generate(requests)
        logits = engine.lm_head(torch.stack([look.hidden_state for look in looks]))
        assert torch.allclose(logits, torch.stack([look.next_logits for look in looks]), atol=1e-4)

    def test_the_gradient_of_the_lm_head_is_that_of_finite_differences(self, engine, prompts):
        assert 0 < engine.lm_head_share < 1
        [states] = engine.hidden_states([Request(prompts[0] * 5)])  # more rows than one part holds
        states = states.clone()
        weights = torch.randn(len(states), generator=torch.Generator().manual_seed(0))

        def weighted(logits, rows):
            return (weights[rows] * logits.log_softmax(-1)[:, 7]).sum()

        value, gradient = engine.lm_head_gradient(states, weighted)
        assert gradient.shape == states.shape
        whole = float(weighted(engine.lm_head(states), slice(None)))
        assert value == pytest.approx(whole, rel=1e-3, abs=1e-3)
        step = torch.randn(states.shape, generator=torch.Generator().manual_seed(1))
        step *= 0.1 / step.norm()
        ahead, behind = (engine.lm_head_gradient(states + s * step, weighted)[0] for s in (1, -1))
        assert (ahead - behind) / 2 == pytest.approx(float((gradient * step).sum()), rel=0.05, abs=1e-3)


class SoftTokenGradientsContract:
    def test_the_gradient_of_soft_tokens_is_that_of_finite_differences(self, engine, prompts):
        assert offers(engine, SoftTokenGradients)
        request = soft_request(engine, prompts[0])

        def confidence(logits):
            assert logits.shape[0] == len(prompts[0])  # two soft tokens and all ids but the first two
            return logits.log_softmax(-1)[:2].topk(3).values.mean()

        _, gradient = engine.soft_gradient(request, confidence)
        assert gradient.shape == request.soft.shape and gradient.abs().sum() > 0
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            step = torch.randn(request.soft.shape, generator=generator)
            step *= 3e-3 * engine.embedding_rms / step.norm()
            neighbours = (replace(request, soft=request.soft + sign * step) for sign in (1, -1))
            ahead, behind = (engine.soft_gradient(neighbour, confidence)[0] for neighbour in neighbours)
            assert (ahead - behind) / 2 == pytest.approx(float((gradient * step).sum()), rel=0.05, abs=2e-6)
        with pytest.raises(ValueError, match="expected a request with soft tokens"):
            engine.soft_gradient(Request(prompts[0]), torch.sum)
