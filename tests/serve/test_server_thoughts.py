"""The server with a template whose prompt ends in an open ``<think>``: the answer starts inside thoughts."""

import pytest
import torch

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import Candidate, SoftReasoner, Solution  # noqa: E402
from soft_reasoning.engine.base import Engine  # noqa: E402
from soft_reasoning.engine.fake import FakeEngine  # noqa: E402
from soft_reasoning.serve.requests import TextBody  # noqa: E402
from soft_reasoning.serve.responses import write_choices  # noqa: E402
from tests.chat_templates import tokenizer_of  # noqa: E402
from tests.serve.serving import ask, served  # noqa: E402

THOUGHT, REPLY = "3 + 4.\n\n\nQuestion: is it 8? Answer: 8.", "Seven.\nAnswer: 7"
CUE = "Let us go through this one step at a time."


class Thinker(FakeEngine):
    """Writes the thought and the reply after any prompt."""

    def __init__(self) -> None:
        Engine.__init__(self)
        self.tokenizer = tokenizer_of("qwen3")
        self.tokenizer.chat_template += "{%- if add_generation_prompt %}{{- '<think>\n' }}{%- endif %}"
        self.context_length = 8192
        rows = torch.randn(len(self.tokenizer), 32, generator=torch.Generator().manual_seed(0))
        self.set_embeddings(rows.__getitem__, rows)
        [end] = self.tokenizer.encode("<|im_end|>", add_special_tokens=False)
        self.eos_ids = frozenset([end])
        script = f"{THOUGHT}</think>\n\n{REPLY}"
        self.script = [*self.tokenizer.encode(script, add_special_tokens=False), end]

    def logits(self, ids: list[int]) -> torch.Tensor:
        header = self.tokenizer.encode("assistant\n<think>\n", add_special_tokens=False)
        begun = max(i for i in range(len(ids)) if ids[i : i + len(header)] == header) + len(header)
        cue = self.tokenizer.encode(CUE, add_special_tokens=False)
        place = len(ids) - begun - (len(cue) if ids[begun : begun + len(cue)] == cue else 0)
        logits = torch.zeros(len(self.tokenizer))
        logits[self.script[min(place, len(self.script) - 1)]] = 50.0
        return logits


@pytest.fixture(scope="module", params=["any", "math"])
def client(request):
    options = {"method": "soft_reasoning", "engine": Thinker(), "max_new_tokens": 200}
    with SoftReasoner.from_pretrained("demo", prompt=request.param, k=2, rounds=0, **options) as reasoner:
        with served(reasoner) as running, running.client() as client:
            yield client


@pytest.mark.parametrize("model", ["cot-demo", "self_consistency-demo", "soft_reasoning-demo"])
@pytest.mark.parametrize("n", [1, 2])
def test_no_thought_is_content(client, model, n):
    whole = ask(client, model, n=n)
    for choice in whole.choices:
        assert choice.message.content == REPLY
        soft = choice.soft_reasoning["opening"]  # stands for the first token
        assert choice.message.reasoning.endswith(soft + THOUGHT[bool(soft) :])
    parts = [chunk.choices[0] for chunk in ask(client, model, stream=True) if chunk.choices]
    assert "".join(part.delta.content or "" for part in parts) == REPLY
    said = "".join(getattr(part.delta, "reasoning", None) or "" for part in parts)
    assert said == whole.choices[0].message.reasoning


def test_thoughts_that_a_limit_cuts_are_no_content(client):
    choice = ask(client, "cot-demo", max_tokens=8).choices[0]
    assert (choice.message.content, choice.finish_reason) == ("", "length")
    assert choice.message.reasoning == THOUGHT[:8].strip()


def test_other_kinds_of_requests(client):
    prompt = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    assert client.completions.create(model="cot-demo", prompt=prompt).choices[0].text == REPLY


def test_a_stop_string_acts_on_the_answer(client):
    [choice] = ask(client, "cot-demo", stop=["Question:", "\nAnswer"]).choices
    assert (choice.message.content, choice.message.reasoning) == ("Seven.", THOUGHT)


def test_a_text_of_the_verifier_does_not_begin_in_thoughts():
    trace = ({"verifier": {"answers": ["7"], "texts": [REPLY]}},)
    solution = Solution("7", (Candidate("8", "8", 0),), trace, thinks=True)
    body = TextBody(model="demo", prompt="?", n=2)
    chosen, other = write_choices(solution, body)
    assert chosen.text == REPLY and REPLY not in chosen.reasoning
    assert (other.text, other.reasoning) == ("", "8")
