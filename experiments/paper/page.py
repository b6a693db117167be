"""Writes results/paper.md by running the commands it lists: python -m experiments.paper.page --data FOLDER

FOLDER holds gsm8k.jsonl, gsm_hard.jsonl, svamp.jsonl and strategyqa.jsonl in the original layout.
Everything is small. Most items run on a few problems of the bundled model and show what a command makes,
but little about the paper. Items over several data sets run with the fake engine and show only the form.
--only NAME runs one experiment again and reads the results of the others from --work.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("model=demo", "dataset=demo", "dataset.shots=0", "limit=10")
TWO, ONE = ("seed=0,1",), ("seed=0",)
FORM = ("engine=fake", "limit=3", "max_new_tokens=30", "dataset.path=FOLDER/${.name}.jsonl")
METHODS = "methods=[cot,self_consistency,verified_sampling,[soft_reasoning,'preset=paper']]"
TABLE = "Sweep"


@dataclass(frozen=True)
class Item:
    """One of the paper's items: its label, its experiment, what is changed to make it small, and which
    sections of sweep.md are shown."""

    label: str
    experiment: str
    changes: Sequence[str]
    sections: Sequence[str] = (TABLE,)


ITEMS = (
    Item("tab:main_result, four data sets", "paper_main_result",
         (*FORM, "model=llama3_8b", METHODS, *TWO), (TABLE, "Rounds to termination")),
    Item("tab:main_result", "paper_main_result", (*SMALL, *ONE)),
    Item("tab:exp_main_full, tab:exp_coverage_full", "paper_exp_main_full",
         (*FORM, "model=qwen2_7b", "dataset=gsm8k", "dataset.shots=0,1,8", METHODS, *ONE)),
    Item("tab:70b", "paper_70b", (*FORM, "dataset=gsm8k", "dataset.shots=0,8", METHODS, *ONE)),
    Item("tab:acquisition", "paper_acquisition", (*SMALL, *ONE)),
    Item("tab:optim_scope", "paper_optim_scope", (*SMALL, *ONE)),
    Item("fig:dimention", "paper_dimension", (*SMALL, *ONE)),
    Item("fig:sample_times", "paper_sample_times", (*SMALL, *ONE)),
    Item("delta (Appendix \"Adaptive Expected Improvement\")", "paper_delta", (*SMALL, *ONE)),
    Item("epsilon (Appendix \"Setting the Convergence Threshold\")", "paper_epsilon", (*SMALL, *ONE)),
    Item("tab:combined-results-coverage", "paper_combined_results_coverage", (*SMALL, *ONE)),
    Item("tab:llama-coverage", "paper_llama_coverage", (*SMALL, *TWO), ("Rounds to termination",)),
    Item("tab:llama-comparison, tab:computation, tab:computation2", "paper_computation2", (*SMALL, *ONE),
         ("Cost", "Cost relative to rap")),
    Item("tab:llama-binary-verifier", "paper_llama_binary_verifier", (*SMALL, *ONE)),
    Item("tab:llama-Verifier-updated", "paper_llama_verifier_updated", (*SMALL, *ONE)),
    Item("fig:Reduction", "paper_reduction", (*SMALL, "embedding.seed=range(8)", *ONE)),
    Item("tab:controlled_gen, without the fine-tuned model", "paper_controlled_gen",
         (*SMALL, *ONE)),
)  # fmt: skip
CORRELATION = ("+experiment=paper_correlation", *SMALL)
HEAD = """\
# The paper's tables and figures

Made by `python -m experiments.paper.page --data FOLDER`, which runs every command below on one core. Each
command without its changes (from `model=` or `engine=` on) is the paper's own setting. **The bundled model**
(`model=demo`) is tiny and solves generated word problems, ten here: its tables say what a command makes, and
little about the paper's models. **The fake engine** (`engine=fake`) has no weights: its tables show the form
alone. The paper's figures stand beside ours where it has any for that model and data set.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="a folder of local benchmark files")
    parser.add_argument("--work", type=Path, default=Path("runs/paper_page"), help="where the runs go")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results" / "paper.md")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these; others are read from --work")
    args = parser.parse_args()
    pictures = args.out.parent / "paper"
    pictures.mkdir(exist_ok=True)
    parts = [HEAD.rstrip()]
    for number, item in enumerate(ITEMS):
        name = f"{item.experiment}_{number}" if item.label.endswith("four data sets") else item.experiment
        parts += sweep(item, name, args, pictures)
    parts += correlation(args, pictures)
    parts += neurons(args, pictures)
    if not args.only:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        minutes = (spent.ru_utime + spent.ru_stime) / 60
        parts.append(f"All commands together took {minutes:.1f} minutes of one core.")
    args.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def sweep(item: Item, name: str, args: argparse.Namespace, pictures: Path) -> list[str]:
    """Runs the item's sweep; its sections and picture."""
    folder = args.work / name
    words = [f"+experiment={item.experiment}", *item.changes]
    if wanted(item.experiment, args, folder / "sweep.md"):
        shutil.rmtree(folder, ignore_errors=True)
        given = [word.replace("FOLDER", str(args.data.resolve())) for word in words]
        run("-m", "soft_reasoning.run", *given, "progress=false", f"hydra.sweep.dir={folder}", "-m")
    text = (folder / "sweep.md").read_text(encoding="utf-8")
    titles = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    sections = dict(zip((TABLE, *titles), text.removeprefix("# Sweep\n\n").split("\n## "), strict=True))
    parts = [f"## {item.label}", f"`python -m soft_reasoning.run {quoted(words)} -m`"]
    for title in item.sections:
        body = sections[title] if title == TABLE else sections[title].partition("\n")[2].strip()
        parts += [] if title == TABLE else [f"**{title}**"]
        parts.append("\n\n".join(p for p in body.split("\n\n") if not p.startswith("![")).strip())
    if TABLE in item.sections:
        shutil.copy(folder / "sweep.png", pictures / f"{name}.png")
        parts.append(f"![{item.label}](paper/{name}.png)")
    return parts


def correlation(args: argparse.Namespace, pictures: Path) -> list[str]:
    """The figure of correlations by round."""
    folder = args.work / "correlation"
    if wanted("paper_correlation", args, folder / "report.md"):
        shutil.rmtree(folder, ignore_errors=True)
        run("-m", "soft_reasoning.run", *CORRELATION, "progress=false", f"hydra.run.dir={folder}")
    shown = run("-m", "experiments.paper.correlation", str(folder))
    shutil.copy(folder / "correlation.png", pictures / "correlation.png")
    command = f"`python -m experiments.paper.correlation {quoted(CORRELATION)}`"
    return ["## fig:low", command, shown.strip(), "![fig:low](paper/correlation.png)"]


def neurons(args: argparse.Namespace, pictures: Path) -> list[str]:
    """Both figures and the tables of the neuron analysis."""
    folder = args.work / "neurons"
    if wanted("paper_neurons", args, folder / "neurons.md"):
        run("-m", "experiments.neurons.run", "--questions", "20", "--out", str(folder))
    text = (folder / "neurons.md").read_text(encoding="utf-8").removeprefix("# Neurons\n\n")
    for name in ("activation_rate", "activation_iterative"):
        shutil.copy(folder / f"{name}.png", pictures / f"{name}.png")
        text = text.replace(f"({name}.png)", f"(paper/{name}.png)")
    title = "## fig:activation_rate, fig:activation_iterative, masking"
    return [title, text.replace("\n## ", "\n### ").strip()]


def wanted(name: str, args: argparse.Namespace, made: Path) -> bool:
    """Whether to run an item: named by --only, or not there yet."""
    return name in args.only if args.only and made.exists() else True


def run(*words: str) -> str:
    """Runs python with ``words``; its standard output. A fault ends the page."""
    print("python", *words, flush=True)
    one = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], env=os.environ | one, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def quoted(words: Sequence[str]) -> str:
    """Words as a shell reads them."""
    marks = ['"' if "'" in word else "'" if set(word) & set("[]$()") else "" for word in words]
    return " ".join(f"{mark}{word}{mark}" for mark, word in zip(marks, words, strict=True))


if __name__ == "__main__":
    main()
