"""model.generate(custom_generate=FOLDER) with the bundled model and a random one of another architecture."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

import soft_reasoning.integrations
from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.paths import DEMO_FOLDER
from soft_reasoning.integrations.generation import MOST
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
    model, tokenizer = (one.from_pretrained(DEMO_FOLDER) for one in (AutoModelForCausalLM, AutoTokenizer))
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
    assert torch.equal(ours(demo, first(batch), method="cot"), theirs(demo, first(batch)))


@pytest.mark.parametrize("family", ["qwen3", "gpt2", "mamba"])
def test_other_architectures(family):
    model, tokenizer = tiny(family), FakeTokenizer()
    inputs = {"input_ids": torch.tensor([tokenizer.encode("Ann has 3 pens.", add_special_tokens=False)])}
    found = ours((model, tokenizer), inputs, method="cot", max_new_tokens=25)
    assert torch.equal(found, theirs((model, tokenizer), inputs, max_new_tokens=25))
    searched = ours((model, tokenizer), inputs, rounds=1, k=2, max_new_tokens=25)
    length = inputs["input_ids"].shape[1]
    assert (
        torch.equal(searched[:, :length], inputs["input_ids"]) and length < searched.shape[1] <= length + 25
    )


def test_rows_may_be_padded_on_either_side(demo, batch):
    tokenizer, n = demo[1], batch["input_ids"].shape[1]
    rows = [row[mask.bool()] for row, mask in zip(*batch.values(), strict=True)]
    right = torch.stack(
        [torch.nn.functional.pad(r, (0, n - len(r)), value=tokenizer.pad_token_id) for r in rows]
    )
    mask = torch.stack([(torch.arange(n) < len(r)).long() for r in rows])
    left = ours(demo, batch, method="cot")
    padded = ours(demo, {"input_ids": right, "attention_mask": mask}, method="cot")
    assert torch.equal(padded[:, :n], right) and torch.equal(padded[:, n:], left[:, n:])
    guessed = ours(demo, {"input_ids": batch["input_ids"]}, method="cot")  # from the padding token
    assert torch.equal(guessed, left)


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
                assert tuple(row[n:][: len(solution.chosen.token_ids)].tolist()) == solution.chosen.token_ids
            assert tokenizer.decode(row[n:], skip_special_tokens=True).strip() == solution.text.strip()
            assert solution.question == text.strip() or solution.question == text
    last = [row[n:] for row in out.sequences]
    assert max(int(row.ne(tokenizer.pad_token_id).sum()) for row in last) == len(last[0])


def test_a_text_of_the_verifiers_is_encoded(demo, batch):
    out = ours(
        demo, first(batch), rounds=0, k=2, overrides=["final.rule=verifier"], return_dict_in_generate=True
    )
    alone = ours(demo, first(batch), method="verifier_only", return_dict_in_generate=True)
    for one in (out, alone):
        n = first(batch)["input_ids"].shape[1]
        assert (
            demo[1].decode(one.sequences[0, n:], skip_special_tokens=True).split()
            == one.solutions[0].text.split()
        )


class TestArguments:
    @pytest.fixture
    def call(self, demo, batch):
        def call(**options):
            return ours(demo, first(batch), return_dict_in_generate=True, **options)

        return call

    @pytest.mark.slow
    def test_the_search_is_configured(self, call):
        assert len(call(k=2, rounds=0).solutions[0].candidates) == 2
        assert call(preset="paper", k=2, rounds=0).solutions[0].rule == "best_reward"
        assert call(method="self_consistency", k=3).solutions[0].method == "self_consistency"
        assert call(k=2, rounds=0, max_tokens=20).solutions[0].generated_tokens <= 20
        assert call(method="cot", answer_type="text", prompt="text").answers[0] is not None
        wording = {"ask": "{question}", "reviews": {"single_judge": {"ask": "SEE {question} {solutions}"}}}
        assert call(k=2, rounds=0, prompt=wording).solutions[0].usage["verifier"].sequences <= 2

    def test_lengths(self, demo, batch, call):
        assert len(call(method="cot", max_new_tokens=7).solutions[0].candidates[0].token_ids) == 7
        n = first(batch)["input_ids"].shape[1]
        out = ours(demo, first(batch), method="cot", max_new_tokens=None, max_length=n + 5)
        assert out.shape[1] == n + 5
        unsaid = ours(
            demo, first(batch), method="cot", max_new_tokens=None, eos_token_id=demo[1].pad_token_id
        )
        assert unsaid.shape[1] == n + MOST
        with pytest.raises(UserError, match=f"expected max_length above the {n} tokens of input_ids, got 3"):
            ours(demo, first(batch), max_new_tokens=None, max_length=3)

    @pytest.mark.slow
    def test_sampling(self, call):
        def texts(**options):
            return [c.text for c in call(**{"k": 2, "rounds": 0, **options}).solutions[0].candidates]

        greedy = texts(do_sample=False)
        assert greedy == texts(do_sample=False) != texts(do_sample=True, temperature=3.0)
        assert texts(do_sample=True, temperature=3.0, top_k=1) == greedy
        assert texts(do_sample=True, temperature=3.0, top_k=0, top_p=1e-6) == greedy
        samples = {"method": "self_consistency", "k": 3, "rounds": None, "do_sample": True}
        assert len({*texts(**samples, temperature=1e-3)}) == 1 < len({*texts(**samples, temperature=5.0)})

    def test_ends(self, demo, call):
        whole = call(method="cot").solutions[0].text
        word = whole.split()[4]
        assert call(method="cot", stop_strings=[word]).solutions[0].text == whole[: whole.index(word)]
        assert call(method="cot", stop_strings=word).solutions[0].text == whole[: whole.index(word)]
        token = demo[1].encode("Answer", add_special_tokens=False)[0]
        found = call(method="cot", eos_token_id=[token, 2]).solutions[0].candidates[0]
        assert found.token_ids[-1] == token
        assert call(method="cot", max_time=1e-9).solutions[0].candidates[0].token_ids == ()

    def test_a_configuration_as_one_object(self, demo, batch, call):
        config = GenerationConfig(max_new_tokens=5, do_sample=False, return_dict_in_generate=True)
        found = demo[0].generate(
            **first(batch), generation_config=config, tokenizer=demo[1], method="cot", custom_generate=FOLDER,
            trust_remote_code=True,
        )  # fmt: skip
        assert len(found.solutions[0].candidates[0].token_ids) == 5
        plain = call(method="cot", max_new_tokens=None, generation_config=GenerationConfig(max_new_tokens=4))
        assert plain.sequences.shape[1] == first(batch)["input_ids"].shape[1] + 4

    def test_the_models_own_sampling_is_not_asked_for(self, demo, batch):
        own = demo[0].generation_config
        before = (own.do_sample, own.temperature, own.max_new_tokens)
        try:
            own.do_sample, own.temperature, own.max_new_tokens = True, 2.0, 6
            out = ours(demo, first(batch), method="cot", max_new_tokens=None)
            assert torch.equal(out, theirs(demo, first(batch), max_new_tokens=6, temperature=None))
        finally:
            own.do_sample, own.temperature, own.max_new_tokens = before

    def test_the_model_stays_as_it_was(self, demo, batch):
        model = demo[0].train()
        try:
            ours(demo, first(batch), method="cot")
            assert model.training
        finally:
            model.eval()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"tokenizer": None}, "expected the model's tokenizer, got none; add tokenizer=tokenizer"),
            ({"num_beams": 4}, "got num_beams=4, which has no effect here"),
            ({"repetition_penalty": 1.3}, "got repetition_penalty=1.3"),
            ({"colour": "red"}, "got colour='red'"),
            ({"temperature": 0.5}, "expected do_sample=True with temperature"),
            ({"method": "cot", "do_sample": True}, "expected a method that samples with do_sample=True"),
            (
                {"method": "self_consistency", "do_sample": False},
                "is greedy with do_sample=False",
            ),
            ({"method": "cot", "k": 3}, "k: expected a method that has it, got method=cot"),
            ({"generation_config": 5}, "expected a GenerationConfig"),
            ({"attention_mask": torch.ones(1, 2)}, "expected an attention_mask"),
            ({"max_new_tokens": 0}, "max_new_tokens: expected a whole number of at least 1"),
        ],
    )
    def test_what_cannot_act_is_refused(self, call, options, message):
        with pytest.raises(UserError, match=message) as error:
            call(**options)
        assert len(str(error.value).splitlines()) == 1

    def test_holes_in_a_mask_are_refused(self, demo, batch):
        for mask in ([[1, 0, 1, 1]], [[0, 1, 1, 0]], [[0, 0, 0, 0]]):
            inputs = {"input_ids": torch.tensor([[1, 5, 6, 7]]), "attention_mask": torch.tensor(mask)}
            with pytest.raises(UserError, match="expected row 0 to be padded on the left or the right alone"):
                ours(demo, inputs)

    @pytest.mark.parametrize("ids", [torch.tensor([1, 2]), torch.zeros(1, 3), torch.zeros(0, 3).long()])
    def test_what_are_no_ids_is_refused(self, demo, ids):
        with pytest.raises(UserError, match="expected token ids \\(b, n\\) as input_ids"):
            ours(demo, {"input_ids": ids})


def test_inputs_may_be_given_by_place(demo, batch):
    ids = first(batch)["input_ids"]
    options = {"tokenizer": demo[1], "method": "cot", "max_new_tokens": 5}
    found = demo[0].generate(ids, custom_generate=FOLDER, trust_remote_code=True, **options)
    assert torch.equal(found, theirs(demo, {"input_ids": ids}, max_new_tokens=5))
    for given, named in (((ids,), {"input_ids": ids}), ((), {})):
        with pytest.raises(UserError, match="expected input_ids, or inputs, and not both"):
            demo[0].generate(*given, **named, custom_generate=FOLDER, trust_remote_code=True, **options)


@pytest.mark.slow
def test_the_script_of_the_documentation():
    script = ROOT / "docs" / "scripts" / "custom_generate.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    *rows, answers = done.stdout.strip().splitlines()
    assert len(rows) >= 2 and len(json.loads(answers)) == 2
