"""Fine-tune a model, without a run: python -m soft_reasoning.finetune [group=choice] [key=value].

Trains the adapter that python -m soft_reasoning.run method=constrained_finetuning with the same arguments
would train first, and prints its folder. A killed training goes on from where it was.

    python -m soft_reasoning.finetune seed=1 finetuning.epochs=5
    python -m soft_reasoning.finetune model=qwen2_7b dataset=gsm8k
    python -m soft_reasoning.run method=cot model.adapter=FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from soft_reasoning.build import build_adapter
from soft_reasoning.config import compose_config
from soft_reasoning.run import one_line_errors


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    with one_line_errors():
        print(build_adapter(compose_config(["method=constrained_finetuning", *arguments])))


if __name__ == "__main__":
    main()
