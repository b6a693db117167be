"""The prefix scorer: which block is kept, from what a token is drawn, and where a solution ends."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from experiments.demo.prompts import review_prompt
from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.methods.prefix_scorer import PrefixScorer, tilted
from soft_reasoning.types import Completion, Generate, Problem, Prompt, TopLogprobs, seed_for

TOKENIZER = FakeTokenizer()
PROBLEM = Problem("p", "How many?", "7")
END = TOKENIZER.eos_token_id


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


class Scripted:
    """Plays the engine: ``blocks`` are the K texts of each round ("</s>" ends one), ``worth`` a partial
    solution's text -> V. ``shown`` keeps the partial solutions, ``requests`` the requests."""

    def __init__(self, blocks=(), worth=None, logits=None):
        self.blocks, self.worth, self.logits = list(blocks), worth, logits
        self.shown, self.requests = [], []

    def task(self, kind, problem, partial):
        assert kind == "prefix_right" and problem.gold is None
        self.shown.append(partial)
        return Prompt(ids=encode(partial))

    def run(self, method):
        prompts = SimpleNamespace(
            solve=lambda problem: Prompt(ids=(5, 6), stop=("Question:",)),
            task=self.task,
            split=lambda text: ("", text),
        )
        context = SimpleNamespace(
            engine=SimpleNamespace(tokenizer=TOKENIZER, eos_ids=frozenset([END]), context_length=10_000),
            prompts=prompts, grader=Grader(), seed=0, stream=lambda *stage: seed_for(0, *stage),
        )  # fmt: skip
        steps = method.solve(PROBLEM, context)
        effect = next(steps)
        try:
            while True:
                effect = steps.send(self.answer(effect))
        except StopIteration as stop:
            return stop.value

    def answer(self, effect):
        assert isinstance(effect, Generate)
        if not any(request.reads for request in effect.requests):
            texts = self.blocks[len(self.requests)]
            self.requests.append(effect.requests)
            assert len(texts) == len(effect.requests)
            made = []
            for text in texts:
                over = text.endswith("</s>")
                ids = encode(text.removesuffix("</s>")) + ((END,) if over else ())
                made.append(Completion(ids, (0.0,) * len(ids), text, "eos" if over else "length", 2))
            return made
        return [self.read(request) for request in effect.requests]

    def read(self, request):
        if request.top_logprobs:
            values, ids = self.logits.log_softmax(-1).topk(request.top_logprobs)
            top = TopLogprobs(tuple(ids.tolist()), tuple(values.tolist()))
            return Completion(top.ids[:1], top.logprobs[:1], "", "length", 2, top_logprobs=(top,))
        value = self.worth(TOKENIZER.decode(request.prompt_ids))
        odds = math.log(value / (1 - value))
        return Completion((), (), "", "length", 2, next_logits=torch.tensor([odds, odds, 0.0, 0.0]))


def test_the_block_of_highest_value_is_kept_each_time():
    worth = {
        "First 3": 0.2, "We 4": 0.9, "So 5": 0.4,
        "We 4 is 6": 0.3, "We 4 is 7": 0.8, "We 4 apples": 0.7,
        "We 4 is 7 Answer: 7": 0.6, "We 4 is 7 Answer: 8": 0.5, "We 4 is 7 days": 0.55,
    }  # fmt: skip
    script = Scripted(
        [
            [" First 3", " We 4", " So 5"],
            [" is 6</s>", " is 7", " apples"],
            ["\nAnswer: 7</s>", "\nAnswer: 8</s>", " days"],
        ],
        worth.__getitem__,
    )
    result = script.run(PrefixScorer(candidates=3))
    assert script.shown == list(worth)
    assert [t["chosen"] for t in result.trace] == [1, 1, 0]
    assert result.trace[0]["values"] == pytest.approx([0.2, 0.9, 0.4])
    assert [r[0].prompt_ids[2:] for r in script.requests] == [(), encode(" We 4"), encode(" We 4 is 7")]
    [candidate] = result.candidates
    assert candidate.text == " We 4 is 7\nAnswer: 7" and candidate.finish_reason == "eos"
    assert result.answer == "7" and candidate.verified == pytest.approx(0.6)
    seeds = [request.seed for requests in script.requests for request in requests]
    assert len(set(seeds)) == len(seeds)


def test_a_stop_string_across_two_blocks_ends_the_solution():
    script = Scripted([[" is 7 Question"], [":\nWhat"]], lambda text: 0.5)
    [candidate] = script.run(PrefixScorer(candidates=1)).candidates
    assert candidate.text == " is 7 "
    assert candidate.finish_reason == "stop"


def test_the_tilted_distribution_is_the_closed_form():
    logits = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    values = torch.tensor([0.1, 0.9, 0.5], dtype=torch.float64)
    weights = [math.exp(a) * math.exp(3 * v) for a, v in zip(logits.tolist(), values.tolist(), strict=True)]
    assert tilted(logits, values, 3.0).tolist() == pytest.approx([w / sum(weights) for w in weights])
    assert torch.equal(tilted(logits, values, 0.0), logits.softmax(-1))
    assert tilted(logits, values, 1e6).tolist() == pytest.approx([0, 1, 0])


def test_tokens_are_drawn_from_the_likeliest_in_proportion_to_reference_and_value():
    logits = torch.full((TOKENIZER.vocab_size,), -9.0)
    words = [" We", " So", " Now"]
    ids = [encode(word)[0] for word in words]
    logits[torch.tensor(ids)] = torch.tensor([1.0, 0.5, 0.0])
    worth = {"We": 0.2, "So": 0.7, "Now": 0.4}
    method = PrefixScorer(
        form="token", top_tokens=2, strength=2.0, temperature=0.5, max_new_tokens=1, candidates=1
    )
    script = Scripted(logits=logits, worth=worth.__getitem__)
    [entry] = script.run(method).trace
    assert script.shown == ["We", "So"]
    weights = {" We": math.exp(1.0 / 0.5 + 2 * 0.2), " So": math.exp(0.5 / 0.5 + 2 * 0.7)}
    drawn = TOKENIZER.decode([entry["token"]])
    assert entry["probability"] == pytest.approx(weights[drawn] / sum(weights.values()))
    assert entry["value"] == pytest.approx(worth[drawn.strip()])
    sure = Scripted(logits=logits, worth=worth.__getitem__).run(replace(method, strength=1e4))
    assert sure.candidates[0].text == " So"


def test_the_bundled_models_wording_is_that_of_its_training():
    prompts = build_context(compose_config(["prompt=demo"]), FakeEngine()).prompts
    prompt = prompts.task("prefix_right", PROBLEM, partial="First, 1) 2 + 2 = 4.")
    expected = review_prompt(PROBLEM.question, ["First, 1) 2 + 2 = 4."], "Right so far:")
    assert TOKENIZER.decode(prompt.ids[1:]) == expected
