"""What every engine must do. Inherit :class:`EngineContract` and give an ``engine`` and some ``prompts``."""

from __future__ import annotations

import math
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import monotonic

import pytest
import torch

from soft_reasoning.types import FinishReason, Request, Sampling, UserError


def looks(engine, prompts, ids=None):
    """Completions that hold no text but the logits after ``prompts``, of all tokens or of ``ids``."""
    wanted = True if ids is None else tuple(ids)
    return engine.generate([Request(tuple(p), max_new_tokens=0, next_logits=wanted) for p in prompts])


def logits_after(engine, prompts, ids=None):
    return torch.stack([look.next_logits for look in looks(engine, prompts, ids)])


class EngineContract:
    """``engine`` and ``prompts`` (at least three tuples of ids, of different lengths) are fixtures."""

    @pytest.fixture(autouse=True)
    def able(self, engine, request):
        """Skips what the engine does not offer."""
        mark = request.node.get_closest_marker("needs")
        if mark is not None and not engine.offers >= {*mark.args}:
            pytest.skip(f"{type(engine).__name__} offers {sorted(engine.offers)}")

    new_tokens = 12
    rounding = 0.0
    """How far log-probabilities of the same request may differ between two runs; by default not at all."""

    def same(self, a, b) -> bool:
        """Tokens, text and reason, and log-probabilities up to ``rounding``."""
        words = (a.token_ids, a.text, a.finish_reason) == (b.token_ids, b.text, b.finish_reason)
        return words and self.close(torch.tensor(a.logprobs), torch.tensor(b.logprobs))

    def close(self, a, b) -> bool:
        return torch.allclose(a, b, rtol=0, atol=self.rounding)

    def greedy(self, engine, prompt, **options):
        return engine.generate([Request(prompt, max_new_tokens=self.new_tokens, **options)])[0]

    @pytest.mark.needs("rows")
    def test_sigma_zero_continues_the_greedy_completion(self, engine, prompts):
        """Invariant 1: the greedy first token's embedding, placed last, gives the greedy continuation."""
        for prompt in prompts:
            plain = self.greedy(engine, prompt)
            soft = engine.embed(plain.token_ids[:1])
            again = engine.generate([Request(prompt, soft=soft, max_new_tokens=self.new_tokens - 1)])[0]
            assert again.token_ids == plain.token_ids[1:]
            assert again.logprobs == pytest.approx(plain.logprobs[1:], abs=1e-4)

    @pytest.mark.needs("rows")
    def test_soft_tokens_stand_for_the_tokens_whose_embeddings_they_are(self, engine, prompts):
        prompt = prompts[0]
        plain = self.greedy(engine, prompt)
        last = len(prompt)
        for position, count in ((0, 1), (0, 3), (2, 1), (last - 4, 3), (last - 1, 1)):
            soft = engine.embed(prompt[position : position + count])
            rest = prompt[:position] + prompt[position + count :]
            got = self.greedy(engine, rest, soft=soft, position=position)
            assert got.token_ids == plain.token_ids, (position, count)
            assert got.prompt_tokens == plain.prompt_tokens == last
        soft = engine.embed(prompt[-3:])
        assert self.greedy(engine, prompt[:-3], soft=soft).token_ids == plain.token_ids

    @pytest.mark.needs("rows")
    def test_a_sample_behind_a_token_s_embedding_is_the_sample_behind_the_token(self, engine, prompts):
        drawn = {"sampling": Sampling(0.8, top_k=50), "max_new_tokens": self.new_tokens, "seed": 3}
        token = self.greedy(engine, prompts[0]).token_ids[:1]
        by_id, by_row = engine.generate(
            [Request((*prompts[0], *token), **drawn), Request(prompts[0], soft=engine.embed(token), **drawn)]
        )
        assert by_id.token_ids == by_row.token_ids and by_id.prompt_tokens == by_row.prompt_tokens

    def mixed(self, engine, prompts) -> list[Request]:
        """Requests of every kind side by side."""
        generator = torch.Generator().manual_seed(3)
        requests = []
        for i in range(24):  # every kind in every place
            prompt = prompts[i % len(prompts)]
            count = 1 + i % 2
            kind = i % 8
            soft = None
            if kind < 5 and "rows" in engine.offers:
                soft = engine.embed(prompt[:count])
                soft = soft + engine.embedding_rms * torch.randn(soft.shape, generator=generator)
            requests.append(
                Request(
                    prompt,
                    soft=soft,
                    position=None if soft is None else (None, 1, len(prompt) // 2)[kind % 3],
                    sampling=Sampling(0.9, top_k=20, top_p=0.9) if kind in (4, 6) else Sampling(),
                    seed=i,
                    max_new_tokens=3 + i % 11,
                )
            )
        return requests

    def test_a_request_is_answered_alike_alone_in_a_batch_and_shuffled(self, engine, prompts):
        """Invariant 2."""
        requests = self.mixed(engine, prompts)
        together = engine.generate(requests)
        order = list(range(len(requests)))
        random.Random(0).shuffle(order)
        shuffled = engine.generate([requests[i] for i in order])
        for place, i in enumerate(order):
            assert self.same(shuffled[place], together[i])
        for i, request in enumerate(requests):
            assert self.same(engine.generate([request])[0], together[i]), i

    @pytest.mark.needs("logits")
    @pytest.mark.parametrize("threads", [2, 8])
    def test_calls_from_several_threads_get_what_calls_in_turn_get(self, engine, prompts, threads):
        requests = self.mixed(engine, prompts)[: 3 * threads]
        in_turn = [engine.generate([request])[0] for request in requests]
        logits = logits_after(engine, prompts)

        def work(number: int):
            rows = logits_after(engine, prompts) if number % 2 else None
            return engine.generate(requests[number::threads]), rows

        with ThreadPoolExecutor(threads) as pool:
            results = list(pool.map(work, range(threads)))
        for number, (completions, rows) in enumerate(results):
            for completion, expected in zip(completions, in_turn[number::threads], strict=True):
                assert self.same(completion, expected)
            assert rows is None or self.close(rows, logits)

    def test_a_step_is_about_a_token_and_requests_join_between_steps(self, engine, prompts):
        """A short request that comes later is complete before a long request that came first."""
        requests = [
            Request(prompts[0], max_new_tokens=40, min_new_tokens=40),
            Request(prompts[1], max_new_tokens=2),
        ]
        expected = engine.generate(requests)
        [long] = engine.add(requests[:1])
        assert engine.step([long]) == []
        [short] = engine.add(requests[1:])
        done = []
        while len(done) < 2:
            done += engine.step([long, short])
        assert [ticket for ticket, _ in done] == [short, long]
        assert self.same(done[0][1], expected[1]) and self.same(done[1][1], expected[0])
        assert engine.step() == []

    def test_a_cancelled_request_leaves_the_others_as_they_are(self, engine, prompts):
        requests = self.mixed(engine, prompts)[:12]
        expected = engine.generate(requests)
        tickets = engine.add(requests)
        engine.cancel(tickets[:2])
        outcomes = dict(engine.step())
        cancelled = [ticket for ticket in tickets[2::3] if ticket not in outcomes]
        engine.cancel(cancelled)
        left = set(tickets[2:]) - set(cancelled)
        while not left <= outcomes.keys():
            outcomes |= engine.step()
        assert outcomes.keys() == left
        for ticket, completion in zip(tickets, expected, strict=True):
            assert ticket not in left or self.same(outcomes[ticket], completion)

    @pytest.mark.parametrize(("place", "tokens"), [("begin", 5), ("advance", 6)])
    def test_an_interrupted_call_leaves_no_request_behind(self, engine, prompts, monkeypatch, place, tokens):
        request, work = Request(prompts[0], max_new_tokens=tokens), getattr(engine, place)

        def interrupted(*values):
            work(*values)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(engine, place, interrupted)
            engine.generate([request])
        assert not engine.queued and engine.step() == []
        [again], whole = engine.generate([request]), self.greedy(engine, prompts[0])
        assert again.token_ids == whole.token_ids[:tokens]

    def test_a_deadline_ends_a_completion(self, engine, prompts):
        request = Request(prompts[0], max_new_tokens=100)
        whole, late = engine.generate([request, replace(request, deadline=monotonic())])
        assert 0 < len(late.token_ids) <= 32 and late.token_ids == whole.token_ids[: len(late.token_ids)]

    @pytest.mark.needs("rows")
    def test_what_is_read_beside_text(self, engine, prompts):
        """Logits and likeliest tokens are those of the looks at every prefix, soft tokens included."""
        soft = engine.embed(prompts[0][:1]) * 1.1
        for options in ({}, {"soft": soft, "position": 1}):
            plain = self.greedy(engine, prompts[1], **options)
            run = self.greedy(engine, prompts[1], next_logits=True, top_logprobs=3, **options)
            assert self.same(run, plain) and len(run.top_logprobs) == len(run.token_ids)
            logits = run.next_logits.log_softmax(-1)
            assert int(logits.argmax()) == run.token_ids[0]
            assert float(logits.max()) == pytest.approx(run.logprobs[0], abs=1e-4)
            for top, token, logprob in zip(run.top_logprobs, run.token_ids, run.logprobs, strict=True):
                assert top.ids[0] == token and top.logprobs[0] == pytest.approx(logprob, abs=1e-5)
                assert len(top.ids) == 3 and list(top.logprobs) == sorted(top.logprobs, reverse=True)
            [look] = engine.generate(
                [Request(prompts[1], max_new_tokens=0, next_logits=(7, 3), top_logprobs=3, **options)]
            )
            assert look.token_ids == () and look.text == "" and len(look.top_logprobs) == 1
            assert look.top_logprobs[0].ids == run.top_logprobs[0].ids
            assert look.next_logits.log_softmax(-1).tolist() == pytest.approx(
                run.next_logits[[7, 3]].log_softmax(-1).tolist(), abs=1e-4
            )

    def test_a_sample_follows_its_seed(self, engine, prompts):
        request = Request(prompts[0], sampling=Sampling(1.5), max_new_tokens=self.new_tokens)
        runs = engine.generate([replace(request, seed=s) for s in (0, 1, 2, 3, 4, 5, 6, 7, 0)])
        assert self.same(runs[0], runs[-1])
        assert len({run.token_ids for run in runs}) > 1

    def test_top_k_one_and_tiny_top_p_are_greedy(self, engine, prompts):
        plain = self.greedy(engine, prompts[1])
        for sampling in (Sampling(5.0, top_k=1), Sampling(1.0, top_p=1e-9), Sampling(0, first_temperature=0)):
            assert self.greedy(engine, prompts[1], sampling=sampling, seed=4).token_ids == plain.token_ids

    @pytest.mark.needs("logits")
    def test_a_hot_first_token_leaves_the_rest_greedy(self, engine, prompts):
        prompt = prompts[0]
        hot = Sampling(0.0, first_temperature=30.0, first_top_k=5)
        firsts = set()
        top = logits_after(engine, [prompt])[0].topk(5).indices.tolist()
        for seed in range(12):
            run = self.greedy(engine, prompt, sampling=hot, seed=seed)
            assert run.token_ids[0] in top
            firsts.add(run.token_ids[0])
            rest = engine.generate([Request(prompt + run.token_ids[:1], max_new_tokens=self.new_tokens - 1)])[
                0
            ]
            assert rest.token_ids == run.token_ids[1:] or run.finish_reason == "eos"
        assert len(firsts) > 1

    @pytest.mark.needs("logits")
    def test_log_probabilities_are_those_of_the_plain_logits(self, engine, prompts):
        sampled = Sampling(0.7, top_k=3)
        for options in ({}, {"sampling": sampled, "seed": 5}):
            run = self.greedy(engine, prompts[2], **options)
            history = [prompts[2] + run.token_ids[:i] for i in range(len(run.token_ids))]
            logits = logits_after(engine, history)
            for token, logprob, row in zip(run.token_ids, run.logprobs, logits, strict=True):
                assert logprob == pytest.approx(float(row.log_softmax(-1)[token]), abs=1e-4)

    def test_text_is_cut_before_the_earliest_stop_string(self, engine, prompts):
        plain = self.greedy(engine, prompts[0])
        text = plain.text
        assert len(text) >= 4, "the fixture's model should write something"
        for length in (1, 2, 3):
            stop = text[2 : 2 + length]
            run = self.greedy(engine, prompts[0], stop=("never written", stop))
            assert run.text == text[: text.index(stop)]
            assert run.finish_reason == "stop"
            count = len(run.token_ids)
            assert run.token_ids == plain.token_ids[:count] and len(run.logprobs) == count
            decode = engine.tokenizer.decode
            assert stop in decode(run.token_ids) and stop not in decode(run.token_ids[:-1])

    def test_min_new_tokens_outlasts_stops(self, engine, prompts):
        plain = self.greedy(engine, prompts[0])
        run = self.greedy(engine, prompts[0], stop=(plain.text[0],), min_new_tokens=5)
        assert len(run.token_ids) >= 5
        assert run.token_ids[:5] == self.greedy(engine, prompts[0], min_new_tokens=5).token_ids[:5]

    @pytest.mark.needs("logits")
    def test_next_token_logits_of_some_ids_and_alone(self, engine, prompts):
        every = logits_after(engine, prompts)
        assert every.dtype == torch.float32 and every.shape[0] == len(prompts)
        assert self.close(logits_after(engine, prompts, [7, 3]), every[:, [7, 3]])
        for i, prompt in enumerate(prompts):
            assert self.close(logits_after(engine, [prompt])[0], every[i])

    @pytest.mark.needs("rows")
    def test_what_prompts_have_in_common_changes_nothing_and_is_counted(self, engine, prompts):
        prompt = max(prompts, key=len)
        parts = [prompt[: len(prompt) - i] for i in range(4)]
        alone = logits_after(engine, parts)
        for _ in range(2):  # the second time some of it may be kept
            completions = looks(engine, parts)
            logits = torch.stack([c.next_logits for c in completions])
            assert torch.allclose(logits.log_softmax(-1), alone.log_softmax(-1), atol=1e-4)
            assert all(0 <= c.cached_tokens < len(part) for c, part in zip(completions, parts, strict=True))
        soft = engine.embed(prompt[:1]) * 1.1
        plain, again = (self.greedy(engine, prompt, soft=soft) for _ in range(2))
        assert again.token_ids == plain.token_ids
        assert again.logprobs == pytest.approx(plain.logprobs, abs=1e-4)

    @pytest.mark.needs("rows")
    def test_embeddings(self, engine):
        table = engine.embed(range(10))
        assert table.shape == (10, engine.hidden_size)
        assert table.dtype == torch.float32 and table.device.type == "cpu"
        assert torch.equal(engine.embed([4, 4])[1], table[4])
        assert engine.embed([]).shape == (0, engine.hidden_size)
        assert math.isfinite(engine.embedding_rms) and engine.embedding_rms > 0
        for token, near in enumerate(engine.nearest_tokens(table[5:9], 2), start=5):
            assert len(near) == 2 and near[0][0] == token and near[0][1] == pytest.approx(1, abs=1e-4)

    def test_a_completion_ends_with_an_end_token_and_holds_no_other(self, engine, prompts):
        assert engine.eos_ids
        sampled = [Request(prompts[0], sampling=Sampling(2.0), seed=s, max_new_tokens=40) for s in range(8)]
        for run in engine.generate(sampled):
            assert isinstance(run.finish_reason, FinishReason)
            assert (run.token_ids[-1] in engine.eos_ids) == (run.finish_reason == "eos")
            assert not engine.eos_ids & set(run.token_ids[:-1])

    def test_nothing_asked_nothing_given(self, engine):
        assert engine.generate([]) == []

    @pytest.mark.needs("rows")
    def test_bad_requests_are_refused_before_any_work(self, engine, prompts):
        wide = torch.zeros(1, engine.hidden_size + 1)
        bad = torch.full((1, engine.hidden_size), math.nan)
        for options in (
            {"soft": wide},
            {"soft": bad},
            {"soft": bad.nan_to_num(posinf=1.0) / 0},
            {"soft": wide[0]},
            {"soft": engine.embed([3]), "position": len(prompts[0]) + 1},
            {"max_new_tokens": 0},
            {"max_new_tokens": -1, "top_logprobs": 1},
            {"max_new_tokens": 2.5},
            {"top_logprobs": -1},
            {"next_logits": (10**9,)},
        ):
            with pytest.raises(ValueError, match="expected"):
                engine.add([Request(prompts[0]), Request(prompts[0], **options)])
            assert not engine.queued
        with pytest.raises(ValueError, match="at least one token"):
            engine.generate([Request(())])
        with pytest.raises(UserError, match=f"context of {engine.context_length} tokens"):
            engine.generate([Request((5,) * engine.context_length)])


class HiddenStateContract:
    """Of an engine that offers hidden states."""

    def test_a_request_reads_its_own_alone_and_in_a_batch(self, engine, prompts):
        assert "hidden_states" in engine.offers
        noise = torch.randn(2, engine.hidden_size, generator=torch.Generator().manual_seed(0))
        soft = {"soft": 0.5 * engine.embedding_rms * noise, "position": 2}
        looks = [
            Request(prompt, max_new_tokens=0, hidden_state=depth, **more)
            for prompt in prompts
            for more in ({}, soft)
            for depth in (0.5, 1.0)
        ]
        *together, written = engine.generate([*looks, Request(prompts[0], max_new_tokens=3)])
        for request, completion in zip(looks, together, strict=True):
            assert completion.hidden_state.shape == (engine.hidden_size,)
            assert completion.hidden_state.dtype == torch.float32
            [alone] = engine.generate([request])
            assert torch.allclose(alone.hidden_state, completion.hidden_state, atol=1e-5)
        assert written.hidden_state is None

    def test_states_are_averaged_over_the_end_of_a_prompt(self, engine, prompts):
        """The same alone, together with its own prefixes, and when it is read again."""
        for prompt in prompts:
            first = len(prompt) - 6
            ends = range(first + 1, len(prompt) + 1)
            looks = [Request(prompt[:end], max_new_tokens=0, hidden_state=0.5) for end in ends]
            request = replace(looks[-1], average_from=first)
            [alone], [one, two, *looked] = engine.generate([request]), engine.generate([request] * 2 + looks)
            states = torch.stack([completion.hidden_state for completion in looked])
            wanted = torch.stack([states[-1], states.mean(0)])
            for completion in (alone, one, two):
                assert torch.allclose(completion.hidden_state, wanted, atol=1e-4)
        with pytest.raises(ValueError, match="hidden_state below 1 with average_from, got 1"):
            engine.add([Request((5, 6), max_new_tokens=0, hidden_state=1.0, average_from=1)])
        with pytest.raises(ValueError, match=r"average_from in 0\.\.1, got 2"):
            engine.add([Request((5, 6), max_new_tokens=0, hidden_state=0.5, average_from=2)])
