"""model.generate(custom_generate=FOLDER) with the bundled model and random models of other architectures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import soft_reasoning.integrations
from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.configuration.implied import MAX_NEW_TOKENS
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.paths import DEMO_FOLDER
from soft_reasoning.integrations.generation import generate
from tests.engines.models import tiny

FOLDER = str(Path(soft_reasoning.integrations.__file__).parent / "custom_generate")
ROOT = Path(__file__).parents[2]
TEXTS = [
    f"Question:\n{question}\nThought:\n"
    for question in (
        "Sam has 8 cards. 1) Sam gets 10. How many cards does Sam have now?",
        "Ada has 31 apples. 1) Ada buys 3 packs of 7. 2) Ada loses 12. How many apples does Ada have now?",
        "Ben has 40 books. 1) Ben gives 4 to each of 5 friends. How many books does Ben have now?",
    )
]


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    """Transformers copies the code of ``custom_generate`` into this folder."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path))


@pytest.fixture(scope="module")
def demo():
    model, tokenizer = (auto.from_pretrained(DEMO_FOLDER) for auto in (AutoModelForCausalLM, AutoTokenizer))
    return model, tokenizer


@pytest.fixture(scope="module")
def batch(demo):
    """Three prompts, padded on the left."""
    demo[1].padding_side = "left"
    inputs = demo[1](TEXTS, return_tensors="pt", padding=True)
    return {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}


def ours(demo, inputs, **options):
    model, tokenizer = demo
    options = {"max_new_tokens": 60, "tokenizer": tokenizer, **options}
    return model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True, **options)


def first(batch):
    """The first prompt without its padding."""
    kept = batch["attention_mask"][0].bool()
    return {"input_ids": batch["input_ids"][:1, kept]}


def theirs(demo, inputs, **options):
    return demo[0].generate(**inputs, do_sample=False, **{"max_new_tokens": 60, **options})


def test_the_greedy_method_is_greedy_decoding_token_for_token(demo, batch):
    assert torch.equal(ours(demo, batch, method="cot"), theirs(demo, batch))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3", "gpt2", "mamba"])
def test_other_architectures(family):
    model, tokenizer = tiny(family), FakeTokenizer()
    inputs = {"input_ids": torch.tensor([tokenizer.encode("Ann has 3 pens.", add_special_tokens=False)])}
    output = ours((model, tokenizer), inputs, method="cot", max_new_tokens=25)
    assert torch.equal(output, theirs((model, tokenizer), inputs, max_new_tokens=25))
    searched = ours((model, tokenizer), inputs, rounds=1, k=2, max_new_tokens=25)
    length = inputs["input_ids"].shape[1]
    assert torch.equal(searched[:, :length], inputs["input_ids"])
    assert length < searched.shape[1] <= length + 25


@pytest.mark.slow
def test_rows_may_be_padded_on_either_side(demo, batch):
    n = batch["input_ids"].shape[1]
    right = demo[1](TEXTS, return_tensors="pt", padding=True, padding_side="right")
    left = ours(demo, batch, method="cot")
    padded = ours(demo, {key: right[key] for key in batch}, method="cot")
    assert torch.equal(padded[:, :n], right["input_ids"]) and torch.equal(padded[:, n:], left[:, n:])
    guessed = ours(demo, {"input_ids": batch["input_ids"]}, method="cot")  # from the padding token
    assert torch.equal(guessed, left)


@pytest.mark.slow
def test_a_row_gets_the_solution_that_its_prompt_gets(demo, batch):
    out = ours(demo, batch, rounds=1, k=3, return_dict_in_generate=True)
    n, tokenizer = batch["input_ids"].shape[1], demo[1]
    assert torch.equal(out.sequences[:, :n], batch["input_ids"])
    with SoftReasoner(*demo, rounds=1, k=3, overrides=["max_new_tokens=60"]) as reasoner:
        for row, text, answer, solution in zip(out.sequences, TEXTS, out.answers, out.solutions, strict=True):
            ids = tokenizer.encode(text)
            asked = {"question": text, "id": " ".join(map(str, ids)), "prompt": ids}
            alone = reasoner.solve(asked)
            assert (answer, solution.text) == (alone.answer, alone.text)
            if solution.chosen is not None:
                opening = tokenizer.encode(solution.chosen.opening, add_special_tokens=False)
                written = (*opening, *solution.chosen.token_ids)
                assert tuple(row[n:][: len(written)].tolist()) == written
            assert tokenizer.decode(row[n:], skip_special_tokens=True).strip() == solution.text.strip()


@pytest.mark.slow
def test_a_text_of_the_verifiers_is_encoded(demo, batch):
    n = first(batch)["input_ids"].shape[1]
    for options in ({"rounds": 0, "k": 2, "overrides": ["final.rule=verifier"]}, {"method": "verifier_only"}):
        out = ours(demo, first(batch), return_dict_in_generate=True, **options)
        text = demo[1].decode(out.sequences[0, n:], skip_special_tokens=True)
        assert text.split() == out.solutions[0].text.split()


class TestArguments:
    @pytest.fixture
    def call(self, demo, batch):
        def call(**options):
            return ours(demo, first(batch), return_dict_in_generate=True, **options)

        return call

    @pytest.mark.slow
    def test_lengths(self, demo, batch, call):
        n = first(batch)["input_ids"].shape[1]
        assert call(method="cot", max_new_tokens=7).sequences.shape[1] == n + 7
        unsaid = call(method="cot", max_new_tokens=None, eos_token_id=demo[1].pad_token_id)
        assert unsaid.sequences.shape[1] == n + MAX_NEW_TOKENS
        config = GenerationConfig(max_new_tokens=4, do_sample=False)
        assert call(method="cot", max_new_tokens=None, generation_config=config).sequences.shape[1] == n + 4

    @pytest.mark.slow
    def test_sampling(self, demo, batch, call):
        def texts(**options):
            return [c.text for c in call(**{"k": 2, "rounds": 0, **options}).solutions[0].candidates]

        greedy = texts(do_sample=False)
        assert greedy == texts(do_sample=False) != texts(do_sample=True, temperature=3.0)
        assert texts(do_sample=True, temperature=3.0, overrides=["decoding.top_k=1"]) == greedy
        two = {key: torch.cat([value, value]) for key, value in first(batch).items()}  # a prompt twice
        one, other = ours(demo, two, method="self_consistency", k=1, do_sample=True, temperature=5.0)
        assert not torch.equal(one, other)
        samples = {"method": "self_consistency", "k": 3, "rounds": None, "do_sample": True}
        assert len({*texts(**samples, temperature=1e-3)}) == 1 < len({*texts(**samples, temperature=5.0)})

    @pytest.mark.slow
    def test_ends(self, demo, call):
        whole = call(method="cot").solutions[0].text
        word = whole.split()[4]
        assert call(method="cot", stop_strings=word).solutions[0].text == whole[: whole.index(word)]
        token = demo[1].encode("Answer", add_special_tokens=False)[0]
        candidate = call(method="cot", eos_token_id=[token, 2]).solutions[0].candidates[0]
        assert candidate.token_ids[-1] == token
        assert call(method="cot", max_time=1e-9).solutions[0].candidates[0].token_ids == ()

    def test_the_models_own_sampling_is_not_asked_for(self, demo, batch, monkeypatch):
        for name, value in (("do_sample", True), ("temperature", 2.0), ("max_new_tokens", 6)):
            monkeypatch.setattr(demo[0].generation_config, name, value)
        monkeypatch.setattr(demo[0], "training", True)
        out = ours(demo, first(batch), method="cot", max_new_tokens=None)
        assert demo[0].training  # as it was
        demo[0].eval()
        assert torch.equal(out, theirs(demo, first(batch), max_new_tokens=6, temperature=None))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tokenizer": None}, "expected the model's tokenizer, got none; add tokenizer=tokenizer"),
            ({"num_beams": 4}, "got num_beams=4, which has no effect here"),
            ({"colour": "red"}, "got colour='red'"),
            ({"method": "cot", "do_sample": True}, "temperature: expected a method that has it"),
            ({"do_sample": True, "top_p": 0.9}, "got top_p=0.9"),
            ({"method": "cot", "k": 3}, "k: expected a method that has it, got method=cot"),
            ({"attention_mask": torch.ones(1, 2)}, "expected an attention_mask"),
            ({"max_new_tokens": 0}, "max_new_tokens: expected a whole number of at least 1"),
        ],
    )
    def test_what_cannot_act_is_refused(self, call, options, message):
        with pytest.raises(UserError, match=message) as error:
            call(**options)
        assert len(str(error.value).splitlines()) == 1

    @pytest.mark.parametrize("ids", [torch.tensor([1, 2]), torch.zeros(1, 3), torch.zeros(0, 3).long()])
    def test_what_are_no_ids_is_refused(self, demo, ids):
        with pytest.raises(UserError, match="expected token ids \\(b, n\\) as input_ids"):
            ours(demo, {"input_ids": ids})


@pytest.mark.slow
def test_type_ids_and_positions_of_a_tokenizer_are_taken(demo, batch):
    ids, mask = batch["input_ids"], batch["attention_mask"]
    plain = ours(demo, batch, method="cot", max_new_tokens=5)
    positions = (mask.cumsum(-1) - 1).clamp_min(0)
    padded = positions.masked_fill(mask == 0, 1)
    for more in (
        {"token_type_ids": torch.zeros_like(ids)},
        {"position_ids": positions},
        {"position_ids": padded},
        {"position_ids": positions.int()},
        {"position_ids": positions.expand(3, *ids.shape)},  # as models with images have them
        {"token_type_ids": torch.zeros_like(ids).int()},
        {"token_type_ids": None, "position_ids": None},
        {"token_type_ids": torch.zeros_like(ids), "position_ids": positions},
    ):
        assert torch.equal(ours(demo, {**batch, **more}, method="cot", max_new_tokens=5), plain)
    for wrong in (
        {"position_ids": positions + 1},
        {"position_ids": positions.flip(-1)},
        {"position_ids": 0 * positions},
        {"position_ids": positions[:, 1:]},
        {"position_ids": positions[1:]},
        {"position_ids": positions.expand(3, *ids.shape) + torch.arange(3)[:, None, None]},
        {"position_ids": torch.tensor(0)},
        {"mm_token_type_ids": torch.ones_like(ids)},
        {"token_type_ids": torch.ones_like(ids)},
        {"inputs_embeds": torch.ones(3, 4, 8)},
        {"decoder_input_ids": ids},
    ):
        with pytest.raises(UserError) as error:
            generate(demo[0], **batch, **wrong, tokenizer=demo[1])
        assert "\n" not in str(error.value)


@pytest.mark.slow
def test_the_script_of_the_documentation():
    script = ROOT / "docs" / "scripts" / "custom_generate.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *rows, answers = done.stdout.strip().splitlines()
    assert len(rows) >= 2 and len(json.loads(answers)) == 2
