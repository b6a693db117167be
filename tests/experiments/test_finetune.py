"""experiments/finetune.py: the objective against its hand-written gradient; an adapter that loads."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import soft_reasoning
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import UserError
from tests.contracts.engine import logits_after

peft = pytest.importorskip("peft")
from experiments import finetune as script  # noqa: E402
from experiments.finetune import strengths, token_losses  # noqa: E402


def test_the_gradient_is_that_of_weighted_cross_entropy():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(12, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    targets, rows = torch.randint(0, 7, (12,), generator=generator), torch.arange(12)
    reference = torch.randn(12, 7, generator=generator, dtype=torch.float64).log_softmax(-1)[rows, targets]
    b = strengths(torch.ones(1, 12).bool()).double()
    loss = token_losses(logits.log_softmax(-1)[rows, targets], reference, b).sum()
    [got] = torch.autograd.grad(loss, logits)
    probabilities = logits.detach().softmax(-1)
    ratio = probabilities[rows, targets].log() - reference
    weight = 2 * (1 - torch.sigmoid(b * ratio))
    one_hot = torch.nn.functional.one_hot(targets, 7)  # d(-log softmax)/d logit = p - 1{target}
    assert torch.allclose(got, weight[:, None] * (probabilities - one_hot), atol=1e-6)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The folder of a random model with the bundled model's tokenizer."""
    folder = tmp_path_factory.mktemp("base")
    shipped = Path(soft_reasoning.__file__).parent / "demo" / "model"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(shipped / name, folder)
    vocabulary = json.loads((shipped / "tokenizer.json").read_text())["model"]["vocab"]
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("row", "thought"),
    [
        ({"question": "q", "answer": "It is <<3*4=12>>12.\n#### 12"}, "It is 12."),
        ({"Body": "b", "Equation": "( 3.0 * 4.0 )", "Answer": "12"}, "( 3 * 4 ) = 12."),
        ({"question": "q", "facts": ["One\nfact.", "Another."], "answer": True}, "One fact. Another."),
        ({"question": "q", "thought": "So 12.", "answer": 12}, "So 12."),
    ],
)
def test_the_reasoning_of_a_training_row(row, thought):
    assert script.reasoning(row, "12") == thought


def test_training_rows_of_the_bundled_problems_are_in_no_other_split():
    rows = script.read_training(["dataset=demo", "limit=5"], None)
    assert len(rows) == 500 and all(row.thought and row.answer for row in rows)
    more = build_dataset(compose_config(["dataset=demo", "dataset.split=validation"])).problems()
    assert not {problem.question for problem in more} & {row.question for row in rows}


def test_rows_are_the_runs_prompt_and_the_solution_and_long_ones_are_left_out():
    config = compose_config(["engine=fake", "prompt=math"])
    prompts = build_context(config, build_engine(config)).prompts
    rows = [Exemplar("How many?", "3 + 4 = 7.", "7"), Exemplar("How many?", "then " * 2000, "7")]
    [row] = script.training_rows(rows, prompts, max_length=800)
    learnt = [id for id, label in zip(row["input_ids"], row["labels"], strict=True) if label == id]
    assert prompts.tokenizer.decode(learnt) == " 3 + 4 = 7.\nAnswer: 7\n</s>"
    with pytest.raises(UserError, match="expected rows of up to 5 tokens, got none of 2"):
        script.training_rows(rows, prompts, max_length=5)


@pytest.mark.slow
def test_training_lowers_the_loss_and_the_adapter_loads_and_generates(base, tmp_path, monkeypatch):
    rows = [
        {"question": f"Ann has {n} pens.", "thought": f"So {n} + 1 = {n + 1}.", "answer": n + 1}
        for n in range(2, 18)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "asked.jsonl").write_text(json.dumps({"question": "How few?", "answer": 1}))
    run = [f"model={base}", "dataset=custom", f"dataset.path={tmp_path / 'asked.jsonl'}", "prompt=demo"]
    folder = tmp_path / "adapter"
    trained = "--epochs 20 --batch-size 8 --learning-rate 0.01 --warmup-steps 2".split()
    trained += ["--rows", str(tmp_path / "rows.jsonl"), "--out", str(folder)]
    monkeypatch.setattr(sys, "argv", ["finetune.py", *trained, *run])
    script.main()
    state = json.loads(next(folder.glob("checkpoint-*/trainer_state.json")).read_text())
    losses = [entry["loss"] for entry in state["log_history"] if "loss" in entry]
    assert losses[-1] < 0.9 * losses[0]

    tuned, frozen = (
        build_engine(compose_config([*run, *more])) for more in ([f"model.adapter={folder}"], [])
    )
    beside = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), folder).eval()
    prompt = tuple(range(5, 30))
    with torch.no_grad():
        expected = beside(torch.tensor([prompt])).logits[0, -1]
    assert torch.allclose(logits_after(tuned, [prompt])[0], expected, atol=1e-3)
    assert not torch.allclose(logits_after(frozen, [prompt])[0], expected, atol=0.1)


def test_a_foreign_adapter_and_a_missing_package_are_one_line(base, tmp_path, monkeypatch):
    config = compose_config([f"model={base}", f"model.adapter={tmp_path}"])
    with pytest.raises(Exception, match="adapter: expected"):
        build_engine(config)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SystemExit, match="pip install peft"):
        runpy.run_path(script.__file__)
    with pytest.raises(Exception, match="pip install peft"):
        build_engine(config)
