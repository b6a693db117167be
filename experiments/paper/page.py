"""Writes results/paper.md by running the commands in it: python -m experiments.paper.page [--only NAME]

It runs every item of the paper on 4 to 40 problems of the bundled model. The page shows what the commands
print and says little about the paper's models. --only runs some experiments again and reads other results
from --work.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("model=demo", "dataset=demo", "dataset.shots=0", "limit=10")
ONE, TWO = (*SMALL, "seed=0"), (*SMALL, "seed=0,1")
FEW, MORE = ((*SMALL[:-1], f"limit={limit}", "seed=0") for limit in (4, 40))
OTHER = ("prompt=paper", "prompt.wording.head=", "prompt.wording.cue=")
"""The bundled model's wording of questions, with the verifiers' prompts of prompt=paper."""
TABLE, ROUNDS = "By data set", "Rounds to termination"
ITEMS: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "paper_main_result": ("tab:main_result (also exp_main_full, exp_coverage_full, 70b)", ONE, [TABLE]),
    "paper_acquisition": ("tab:acquisition", ONE, [TABLE]),
    "paper_optim_scope": ("tab:optim_scope", ONE, [TABLE]),
    "paper_dimension": ("fig:dimention", ONE, [TABLE]),
    "paper_sample_times": ("fig:sample_times", ONE, [TABLE]),
    "paper_delta": ('delta (Appendix "Adaptive Expected Improvement")', ONE, [TABLE]),
    "paper_epsilon": ('epsilon (Appendix "Setting the Convergence Threshold")', ONE, [TABLE]),
    "paper_combined_results_coverage": ("tab:combined-results-coverage", ONE, [TABLE]),
    "paper_llama_coverage": ("tab:llama-coverage", TWO, [TABLE, ROUNDS]),
    "paper_computation2": (
        "tab:llama-comparison, tab:computation, tab:computation2",
        ONE,
        ["Cost", "Cost relative to rap"],
    ),
    "paper_llama_binary_verifier": ("tab:llama-binary-verifier", MORE, [TABLE]),
    "paper_llama_binary_verifier-prompt": ("The same with the printed templates", (*MORE, *OTHER), [TABLE]),
    "paper_llama_verifier_updated": ("tab:llama-Verifier-updated", FEW, [TABLE]),
    "paper_reduction": ("fig:Reduction", (*FEW, "embedding.seed=range(4)"), [TABLE]),
    "paper_controlled_gen": ("tab:controlled_gen, without the fine-tuned model", FEW, [TABLE]),
}
"""By experiment (before "-"): the paper's label, overrides for a small run, and sections of comparison.md."""
NEURONS = (
    *("--preset", "paper", "--questions", "3", "--samples", "40", "--masked", "20"),
    *("+experiment=paper_neurons", *SMALL[:-1], "limit=12"),
)
HEAD = """\
# The paper's tables and figures

`python -m experiments.paper.page` runs a small version of every item of the paper and writes this page. All
runs are of the bundled model on a few of its word problems. So the tables show what a command prints, and
they say little about the paper's models. A command without its options from `model=` on has the paper's own
setting; `python -m experiments.paper.beside FOLDER` prints the paper's figures next to those of such a run.
The times are of a busy machine.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/paper_page"), help="where the runs go")
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results" / "paper.md")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run these; others are read from --work")
    parser.add_argument("--made", action="store_true", help="leave out what --work does not hold")
    args = parser.parse_args()
    pictures = args.out.parent / "paper"
    pictures.mkdir(parents=True, exist_ok=True)
    parts = [HEAD.rstrip()]
    for name, (label, changes, sections) in ITEMS.items():
        words, folder = [f"+experiment={name.partition('-')[0]}", *changes], args.work / name
        command = ["-m", "soft_reasoning.run", *words, "progress=false", f"hydra.sweep.dir={folder}", "-m"]
        if ready(name, folder / "comparison.md", command, args):
            parts += [f"## {label}", f"`python -m soft_reasoning.run {shlex.join(words)} -m`"]
            parts += read_sections(folder / "comparison.md", sections)
            if label.startswith("fig:"):
                shutil.copy(folder / "sweep.svg", pictures / f"{name}.svg")
                parts.append(f"![{label}](paper/{name}.svg)")
    words, folder = ["+experiment=paper_correlation", *FEW], args.work / "correlation"
    command = ["-m", "soft_reasoning.run", *words, "progress=false", f"hydra.run.dir={folder}"]
    if ready("paper_correlation", folder / "report.md", command, args):
        table = run("-m", "experiments.paper.correlation", str(folder)).strip()
        shutil.copy(folder / "correlation.png", pictures)
        commands = f"`python -m soft_reasoning.run {shlex.join(words)} hydra.run.dir=runs/correlation`"
        commands += " and `python -m experiments.paper.correlation runs/correlation`"
        parts += ["## fig:low", commands, table, "![fig:low](paper/correlation.png)"]
    for module, arguments in (("neurons.run", NEURONS), ("paper.theorems", ()), ("paper.placement", ())):
        name = module.removesuffix(".run").rpartition(".")[2]
        folder = args.work / name
        command = ["-m", f"experiments.{module}", *arguments, "--out", str(folder)]
        if ready(name, folder / f"{name}.md", command, args):
            text = (folder / f"{name}.md").read_text(encoding="utf-8")
            text = text.replace("\n## ", "\n### ").replace("# ", "## ", 1)
            for picture in folder.glob("*.png"):
                shutil.copy(picture, pictures)
                text = text.replace(f"({picture.name})", f"(paper/{picture.name})")
            parts.append(text.strip())
    args.out.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def read_sections(path: Path, sections: Sequence[str]) -> list[str]:
    """The sections of a sweep's page, without its picture."""
    text = path.read_text(encoding="utf-8")
    bodies = {title: body.strip() for title, _, body in (p.partition("\n") for p in text.split("\n## "))}
    parts = []
    for title in sections:
        body = bodies[title]
        parts += [] if title == TABLE else [f"**{title}**"]
        parts.append("\n\n".join(p for p in body.split("\n\n") if not p.startswith("![")).strip())
    return parts


def ready(name: str, result: Path, command: Sequence[str], args: argparse.Namespace) -> bool:
    """Whether an item has a result; run it first if --only names it, or without a result and --made."""
    if name in (args.only or ()) or not (result.exists() or args.made):
        run(*command)
    return result.exists()


def run(*words: str) -> str:
    """Run python with ``words`` and return its standard output; exit on an error."""
    print("python", *words, flush=True)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    process = subprocess.run([sys.executable, *words], env=env, stdout=subprocess.PIPE, text=True)
    if process.returncode:
        sys.exit(process.returncode)
    return process.stdout


if __name__ == "__main__":
    main()
