"""Fine-tunes a LoRA adapter with the token-wise constrained objective (Qi et al., 2024).

    python experiments/finetune.py --out runs/adapters/gsm8k model=llama3_8b dataset=gsm8k
    soft-reasoning run method=cot model.adapter=runs/adapters/gsm8k model=llama3_8b dataset=gsm8k

The options are those of a run: its model, its prompt and its data set, of which the split "train" is learnt
(GSM-Hard has none: train with dataset=gsm8k), or the rows of the file ``--rows``. The objective of
"Safety Alignment Should Be Made More Than Just a Few Tokens Deep" is

    loss = - sum_t (2 / b_t) log sigmoid(b_t * log[pi(y_t | .) / pi_ref(y_t | .)]),

whose gradient is that of cross-entropy with token t weighted by 2 (1 - sigmoid(b_t * log-ratio_t)). A large
b keeps a token near the reference; b -> 0 is plain fine-tuning. The reference is the same model with its
adapter switched off. The same command continues a killed training from its last epoch.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_prompts
from soft_reasoning.engine.paths import resolve
from soft_reasoning.lab.data import build_dataset, fields
from soft_reasoning.prompts import Exemplar, Prompts
from soft_reasoning.types import Problem, UserError

try:
    import accelerate  # pyright: ignore[reportUnusedImport]  # noqa: F401  (transformers' Trainer needs it)
    from peft import LoraConfig, get_peft_model
except ImportError as error:
    raise SystemExit(
        f"finetune.py: expected peft and accelerate, got none ({error}); pip install peft accelerate"
    ) from error

IGNORED = -100
"""The label of a token that is not learnt."""
RESPONSE = "{thought}\nAnswer: {answer}\n"
FIRST, EARLY, REST, EARLY_TOKENS = 0.5, 2.0, 0.1, 5
"""b of a response's first token, of the next up to ``EARLY_TOKENS``, and of the rest, as in the paper, where
the first is smaller for numerical stability."""


def token_losses(logprobs: Tensor, reference: Tensor, b: Tensor) -> Tensor:
    """Losses (n,) of n tokens; only ``logprobs`` is differentiated."""
    return -(2 / b) * F.logsigmoid(b * (logprobs - reference.detach()))


def strengths(responses: Tensor) -> Tensor:
    """b (n,) of the tokens where ``responses`` (rows, t) is true, row by row."""
    place = responses.cumsum(dim=1)[responses]
    return torch.where(place == 1, FIRST, torch.where(place <= EARLY_TOKENS, EARLY, REST))


def response_logprobs(model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """Float32 log-probabilities (n,) of the labelled tokens, row by row.

    Padding is on the right, where causal attention never looks, so it needs no mask.
    """
    logits, wanted = model(input_ids=ids, use_cache=False).logits[:, :-1], labels[:, 1:] != IGNORED
    return -F.cross_entropy(logits[wanted].float(), labels[:, 1:][wanted], reduction="none")


class ConstrainedTrainer(Trainer):
    """A trainer with the constrained objective, its mean taken over the labelled tokens of a step."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        ids, labels = inputs["input_ids"], inputs["labels"]
        with torch.no_grad(), self.accelerator.unwrap_model(model).disable_adapter():
            reference = response_logprobs(model, ids, labels)
        logprobs = response_logprobs(model, ids, labels)
        losses = token_losses(logprobs, reference, strengths(labels[:, 1:] != IGNORED))
        loss = losses.sum() / (len(losses) if num_items_in_batch is None else num_items_in_batch)
        return (loss, None) if return_outputs else loss


def reasoning(row: Mapping[str, Any], answer: str) -> str:
    """The reasoning of a training row: its ``thought``, or as GSM8K, SVAMP and StrategyQA have it."""
    if "thought" in row:
        return fields.text(row, "thought")
    if "Equation" in row:
        return f"{fields.text(row, 'Equation').replace('.0', '')} = {answer}."
    if "facts" in row:
        facts = fields.value(row, "facts")
        return " ".join(
            " ".join(str(fact).split()) for fact in ([facts] if isinstance(facts, str) else facts)
        )
    solution = fields.text(row, "answer").rpartition("####")[0].strip()
    return re.sub(r"<<[^<>]*>>", "", solution)  # the marks of a calculator: <<3*4=12>>


def read_training(words: Sequence[str], file: str | None) -> list[Exemplar]:
    """The training rows of a run's data set in a drawn order, without its own questions and exemplars."""
    words = [*words, "dataset.limit=null", "dataset.offset=0"]
    config = compose_config(words)
    split = "dataset.split=train" if "split" in config.dataset else "dataset.hub.split=train"
    source = ["dataset.path=null", split] if file is None else [f"dataset.path={file}"]
    drawn = compose_config([*words, "dataset.sample=random", *source])
    dataset = build_dataset(config)
    known = {row.question for row in [*dataset.problems(), *dataset.exemplars()]}
    return [
        Exemplar(problem.question, reasoning(problem.doc, problem.gold or ""), problem.gold or "")
        for problem in build_dataset(drawn).problems()
        if problem.question not in known
    ]


def training_rows(rows: Sequence[Exemplar], prompts: Prompts, max_length: int) -> list[dict[str, list[int]]]:
    """Token ids and labels of each row: the run's prompt, then the solution and the end of the sequence.

    Rows of more than ``max_length`` tokens are left out, since truncated rows would teach not to end. After a
    prompt's cue the response begins with a space.
    """
    tokenizer, cue = prompts.tokenizer, prompts.wording.cue
    space = " " if cue and not cue[-1].isspace() else ""
    examples = []
    for row in rows:
        prompt = list(prompts.solve(Problem(row.question, row.question)).ids)
        text = space + RESPONSE.format(thought=row.thought, answer=row.answer)
        response = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
        if len(prompt) + len(response) <= max_length:
            examples.append({"input_ids": prompt + response, "labels": [IGNORED] * len(prompt) + response})
    if not examples:
        raise UserError(f"--max-length: expected rows of up to {max_length} tokens, got none of {len(rows)}")
    return examples


def pad(rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Rows of the same length, pad on the right."""
    width = max(len(row["input_ids"]) for row in rows)
    return {
        key: torch.tensor([row[key] + [fill] * (width - len(row[key])) for row in rows])
        for key, fill in (("input_ids", 0), ("labels", IGNORED))
    }


def with_adapter(model: Any, rank: int, alpha: float, seed: int) -> Any:
    """``model`` with a new LoRA adapter on every linear layer, initially without effect; no dropout."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    set_seed(seed)  # PEFT draws from global state
    settings = LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear", r=rank, lora_alpha=int(alpha))
    return get_peft_model(model, settings)


def train(args: argparse.Namespace) -> None:
    config = compose_config(args.overrides)
    if config.model.adapter:
        raise UserError(f"expected a model without an adapter, got model.adapter={config.model.adapter}")
    rows = read_training(args.overrides, args.rows)[: args.examples]
    exemplars = build_dataset(config).exemplars()
    path, source = resolve(config.model.path), {"revision": config.model.revision}
    tokenizer = AutoTokenizer.from_pretrained(path, **source)
    engine: Any = SimpleNamespace(tokenizer=tokenizer, max_new_tokens=None, context_length=args.max_length)
    prompts = build_prompts(config["prompt"], engine, exemplars)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=config.model.dtype, **source)
    trainer = ConstrainedTrainer(
        with_adapter(model, args.rank, args.alpha, config.seed),
        TrainingArguments(
            output_dir=str(args.out),
            num_train_epochs=args.epochs,
            per_device_train_batch_size=args.batch_size,
            gradient_accumulation_steps=args.accumulate,
            learning_rate=args.learning_rate,
            adam_beta1=0.5,
            weight_decay=0.0,
            warmup_steps=args.warmup_steps,
            max_grad_norm=1.0,
            seed=config.seed,
            save_strategy="epoch",
            save_total_limit=1,
            logging_steps=10,
            report_to="none",
            remove_unused_columns=False,
            dataloader_pin_memory=False,
        ),
        data_collator=pad,
        train_dataset=training_rows(rows, prompts, args.max_length),
    )
    args.out.mkdir(parents=True, exist_ok=True)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(args.out)))
    trainer.save_model(str(args.out))
    print(f"soft-reasoning run method=cot model.adapter={args.out} {' '.join(args.overrides)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the adapter's folder")
    parser.add_argument("--rows", help="a file of training rows, instead of the data set's split train")
    parser.add_argument("--examples", type=int, help="training rows; all by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16, help="rows of a pass")
    parser.add_argument("--accumulate", type=int, default=1, help="passes of a step")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--warmup-steps", type=int, default=10)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--alpha", type=float, default=32)
    parser.add_argument("--max-length", type=int, default=512, help="tokens; longer rows are left out")
    parser.add_argument("overrides", nargs="*", help="configuration, as on the command line of a run")
    try:
        train(parser.parse_args())
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
