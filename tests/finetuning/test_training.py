"""Training adapters on a tiny random model: it learns, it can be killed, and engines load what it wrote."""

import json
import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import soft_reasoning
from soft_reasoning.commands import run
from soft_reasoning.configuration import build
from soft_reasoning.configuration.build import build_adapter, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.finetuning import training
from soft_reasoning.finetuning.examples import Example, examples_of, parts
from soft_reasoning.finetuning.training import Finetuning, backward, response_logprobs, with_adapters
from soft_reasoning.types import Request, UserError
from tests.contracts.engine import logits_after

peft = pytest.importorskip("peft")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
QUICK = ["finetuning.examples=24", "finetuning.epochs=2", "finetuning.batch_size=8", "progress=false"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a random model with the bundled one's tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    shipped = Path(soft_reasoning.__file__).parent / "demo" / "model"
    for name in TOKENIZER_FILES:
        shutil.copy(shipped / name, folder)
    vocabulary = json.loads((shipped / "tokenizer.json").read_text())["model"]["vocab"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512, initializer_range=0.2,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def configure(base, tmp_path):
    def compose(*overrides):
        here = [f"model.path={base}", f"finetuning.folder={tmp_path / 'adapters'}"]
        # A copy of the bundled model is any model to the configuration, with the prompt of its data.
        prompt = [] if any(one.startswith("dataset=") for one in overrides) else ["prompt=demo"]
        return compose_config(["method=constrained_finetuning", *here, *prompt, *QUICK, *overrides])

    return compose


@pytest.fixture
def examples(configure):
    config = configure()
    dataset = build.build_dataset(config)
    engine = build_engine(compose_config(["model.path=" + config.model.path]))
    prompts = build.build_context(config, engine).prompts
    return examples_of(dataset.training(0, 24), prompts, response=Finetuning.response, max_length=512)


def weights(folder) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(Path(folder) / "adapter_model.safetensors")


def said(folder) -> dict:
    return json.loads((Path(folder) / "training.json").read_text())


def test_examples_are_the_runs_prompt_and_the_solution(configure, examples, base):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    row = build.build_dataset(configure()).training(0, 1)[0]
    example = examples[0]
    assert tokenizer.decode(example.ids[1 : example.start]) == f"Question:\n{row.question}\nThought:\n"
    assert tokenizer.decode(example.ids[example.start : -1]) == f"{row.thought}\nAnswer: {row.answer}\n"
    assert example.ids[-1] == tokenizer.eos_token_id


def test_a_response_follows_the_cue_after_a_space_and_long_rows_are_left_out():
    config = compose_config(["engine=fake", "prompt=math"])
    prompts = build.build_context(config, build_engine(config)).prompts
    rows = [Exemplar("How many?", "3 + 4 = 7.", "7"), Exemplar("How many?", "then " * 2000, "7")]
    [example] = examples_of(rows, prompts, response=Finetuning.response, max_length=800)
    written = prompts.tokenizer.decode(example.ids[example.start :])
    assert written == " 3 + 4 = 7.\nAnswer: 7\n</s>"


def test_parts_hold_every_row_once_within_the_bound():
    batch = [Example(tuple(range(1, n + 1)), n // 2) for n in (9, 4, 7, 4, 30)]
    seen = []
    for ids, response in parts(batch, 20):
        assert ids.numel() <= 20 or len(ids) == 1
        for row, mask in zip(ids, response, strict=True):
            real = tuple(row[row > 0].tolist())
            seen.append(Example(real, len(real) - int(mask.sum())))
            assert mask.nonzero().max() == len(real) - 1
    assert sorted(seen, key=str) == sorted(batch, key=str)


def test_untrained_adapters_weigh_every_token_one(base, examples):
    model = with_adapters(AutoModelForCausalLM.from_pretrained(base), Finetuning(), seed=0)
    first = backward(model, examples[:4], Finetuning())
    assert first["weight"] == pytest.approx(1.0, abs=1e-6)
    counts = [len(e.ids) - e.start for e in examples[:4]]
    expected = sum(2 * math.log(2) * (1 / 0.5 + 4 / 2.0 + (n - 5) / 0.1) for n in counts) / sum(counts)
    assert first["loss"] == pytest.approx(expected, rel=1e-5)
    trained = {
        name.split(".lora_")[0].split(".")[-1] for name, p in model.named_parameters() if p.requires_grad
    }
    assert trained == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_padding_and_parts_change_no_gradient(base, examples):
    model = with_adapters(AutoModelForCausalLM.from_pretrained(base), Finetuning(), seed=0)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.add_(0.1)
    grads = []
    for part_tokens in (10_000, 150):
        model.zero_grad()
        backward(model, examples[:8], Finetuning(part_tokens=part_tokens))
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(*grads, atol=1e-5 * float(grads[0].abs().max()))
    alone = torch.tensor([examples[0].ids])
    mask = torch.arange(alone.shape[1])[None] >= examples[0].start
    [(ids, response)] = parts(examples[:8], 10_000)
    place = next(i for i, row in enumerate(ids.tolist()) if tuple(row[: alone.shape[1]]) == examples[0].ids)
    before = int(response[:place].sum())
    together = response_logprobs(model, ids, response)[before : before + int(mask.sum())]
    assert torch.allclose(together, response_logprobs(model, alone, mask), atol=1e-4)


def test_training_lowers_the_loss_and_the_adapter_loads_and_generates(configure, base):
    config = configure("finetuning.epochs=6", "finetuning.learning_rate=0.01", "finetuning.warmup_steps=2")
    folder = build_adapter(config)
    log = said(folder)
    assert log["steps"] == len(log["loss"]) == 18
    assert sum(log["cross_entropy"][-3:]) < 0.8 * sum(log["cross_entropy"][:3])
    assert sum(log["loss"][-3:]) < sum(log["loss"][:3])
    assert log["weight"][0] == pytest.approx(1.0, abs=1e-6) and log["made_with"]["seed"] == 0

    tuned = build_engine(config)
    plain = build_engine(compose_config([f"model.path={base}"]))
    beside = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval()
    prompt = tuple(range(5, 30))
    got = logits_after(tuned, [prompt])[0]
    with torch.no_grad():
        expected = beside(torch.tensor([prompt])).logits[0, -1]
    assert torch.allclose(got, expected, atol=1e-3)
    assert not torch.allclose(got, logits_after(plain, [prompt])[0], atol=0.1)
    assert tuned.generate([Request(prompt, max_new_tokens=4)])[0].token_ids
    chosen = build_engine(compose_config([f"model.path={base}", f"model.adapter={folder}", "method=cot"]))
    assert torch.equal(logits_after(chosen, [prompt])[0], got)


def test_an_adapter_is_found_again_and_anything_that_changes_it_makes_another(configure, monkeypatch):
    trained = []
    monkeypatch.setattr(build, "train", lambda *_, **__: trained.append(1) or {})
    folder = build_adapter(configure())
    assert build_adapter(configure("limit=3", "max_new_tokens=9")) == folder and len(trained) == 1
    others = {build_adapter(configure(change)) for change in ("seed=1", "finetuning.b_rest=0.2")}
    assert len(others | {folder}) == 3 == len(trained)
    monkeypatch.setattr(build, "weights_mark", lambda *_: "retrained")
    assert build_adapter(configure()) not in others | {folder}


def test_no_row_is_trained_on_that_its_own_prompt_solves(configure, monkeypatch, tmp_path):
    file, asked, seen = tmp_path / "rows.jsonl", tmp_path / "asked.jsonl", []
    rows = [{"question": f"How many are {n}?", "thought": f"Just {n}.", "answer": n} for n in range(13)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked.write_text(json.dumps({"question": "How few?", "answer": 1}) + "\n", encoding="utf-8")
    monkeypatch.setattr(build, "train", lambda *_, **__: {})
    monkeypatch.setattr(
        build, "examples_of", lambda rows, prompts, **_: seen.append((rows, prompts.exemplars)) or rows
    )
    data = ["dataset=custom", f"dataset.path={asked}", f"dataset.train.path={file}"]
    for shots, count, expected in ((4, 5, 5), (4, "null", 9), (4, 12, 9), (0, 5, 5), (0, "null", 13)):
        few = [f"dataset.shots={shots}", "dataset.exemplar_source=train", f"finetuning.examples={count}"]
        build_adapter(configure(*data, *few))
        rows, shown = seen.pop()
        assert (len(rows), len(shown)) == (expected, shots) and not set(rows) & set(shown)


def test_a_killed_training_leaves_no_adapter_and_goes_on_to_the_same_one(configure, monkeypatch, tmp_path):
    whole = build_adapter(configure(f"finetuning.folder={tmp_path / 'whole'}"))
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    config, real, left = configure(), training.backward, [4]

    def killed(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(training, "backward", killed)
    with pytest.raises(KeyboardInterrupt):
        build_adapter(config)
    root = tmp_path / "adapters"
    assert not list(root.glob("*/training.json")) and not list(root.glob("*/adapter_*"))
    assert [path.name for path in root.glob("*.part/*")] == ["state.pt"]

    left[0] = 2  # the rest of its six steps, and no more
    folder = build_adapter(config)
    assert folder.name == whole.name and not list(root.glob("*.part"))
    assert not (folder / "state.pt").exists()
    one, other = weights(folder), weights(whole)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert said(folder)["loss"] == said(whole)["loss"]


def test_it_stands_in_one_table_with_methods_of_the_frozen_model(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuned = "[constrained_finetuning,'finetuning.examples=24','finetuning.learning_rate=0.01']"
    command = ["limit=2", f"model.path={base}", "max_new_tokens=12", "progress=false", "hydra.run.dir=out"]
    monkeypatch.setattr(sys, "argv", ["soft_reasoning.run", f"methods=[cot,{tuned}]", *command])
    run.main()
    report = (tmp_path / "out" / "comparison.md").read_text()
    assert report.index("cot") < report.index("constrained_finetuning")
    texts = {}
    for path in (tmp_path / "out").glob("*/samples.jsonl"):
        lines = path.read_text().splitlines()
        texts[path.parent.name[:3]] = [json.loads(line)["resps"][0][0] for line in lines]
    assert len(texts) == 2 and texts["cot"] != texts["con"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["engine=fake"], "no fine-tuned models.*engine=hf"),
        (["model.adapter=/some/where"], "adapter of its own.*method=cot"),
        (["dataset=aime_2024"], "no training rows"),
        (["finetuning.max_length=5"], "finetuning.max_length: expected"),
        (["finetuning.learning_rate=0"], "finetuning.learning_rate: expected"),
        (["finetuning.epochs=0"], "finetuning.epochs: expected"),
        (["finetuning.epochs=abc"], "finetuning.epochs: expected a whole number of at least 1, got 'abc'"),
        (["finetuning.rank=2.5"], "finetuning.rank: expected a whole number"),
        (["finetuning.examples=2.5"], "finetuning.examples: expected a whole number"),
        (["finetuning.early_tokens=-1"], "finetuning.early_tokens: expected a whole number"),
        (["finetuning.alpha=0"], "finetuning.alpha: expected a finite number above 0"),
        (["finetuning.beta1=1.5"], "finetuning.beta1: expected a finite number at least 0 below 1, got 1.5"),
        (["finetuning.response='{thougth} {answer}'"], "finetuning.response: expected a text with {answer}"),
        (["finetuning.response='{thought}'"], "finetuning.response: expected a text with {answer}"),
    ],
)
def test_what_cannot_be_trained_is_one_line(configure, overrides, message):
    with pytest.raises(Exception, match=message) as error:
        build_engine(configure(*overrides))
    assert "\n" not in one_line(error.value)


def test_a_missing_or_foreign_adapter_and_a_missing_package_are_one_line(base, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for adapter in ("/no/where", str(tmp_path / "empty")):
        with pytest.raises(Exception, match="model.adapter: expected"):
            build_engine(compose_config([f"model.path={base}", f"model.adapter={adapter}"]))
    with pytest.raises(UserError, match="takes no adapters"):
        build_engine(compose_config(["engine=fake", "model.adapter=x"]))
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(Exception, match=r"pip install 'soft-reasoning\[finetuning\]'"):
        build_engine(compose_config([f"model.path={base}", f"model.adapter={tmp_path}"]))
