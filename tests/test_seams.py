"""A third engine, a method and a verifier, each by files alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.fake import FakeTokenizer
from tests.contracts.engine import EngineContract
from tests.engine.models import random_ids, tiny


class OneByOne(Engine):
    """A third engine: transformers' own model, a whole pass for each token of one request after the other."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self.model, self.tokenizer, self.eos_ids = model, tokenizer, frozenset([tokenizer.eos_token_id])
        lookup = model.get_input_embeddings()
        self.set_embeddings(lookup, lookup.weight.detach())
        self.context_length = model.config.max_position_embeddings

    @torch.no_grad()
    def advance(self):
        outcomes = {}
        for row in self.queued.values():
            head, soft, tail = row.head, row.soft, row.tail
            parts = [
                self.embed(head),
                self.embed([]) if soft is None else soft,
                self.embed((*tail, *row.ids)),
            ]
            logits = self.model(inputs_embeds=torch.cat(parts).unsqueeze(0)).logits[0, -1].float()
            outcomes |= self.extend([row], logits[None])
        return outcomes.items()


class TestAThirdEngine(EngineContract):
    @pytest.fixture(scope="class")
    def engine(self):
        return OneByOne(tiny("llama"), FakeTokenizer())

    @pytest.fixture(scope="class")
    def prompts(self):
        return [random_ids(length, seed) for seed, length in enumerate((20, 12, 16))]


NEW_METHOD = {
    "twice.py": """
from dataclasses import dataclass
from soft_reasoning.method.base import SampledMethod, majority_vote
from soft_reasoning.schedule.solutions import solution_request
from soft_reasoning.types import Generate

@dataclass(frozen=True, kw_only=True)
class Twice(SampledMethod):
    name: str = "twice"

    def solve(self, problem, context):
        requests = [
            solution_request(problem, context, self.max_new_tokens, index=i, sampling=self.sampling)
            for i in range(2)
        ]
        return majority_vote((yield Generate(requests)), problem, context)
""",
    "conf/method/twice.yaml": "_target_: twice.Twice\nmax_new_tokens: ${max_new_tokens}\n",
}
NEW_VERIFIER = {
    "briefest.py": """
from soft_reasoning.judge.verifier import Verdict

class Briefest:
    name = "briefest"

    def verify(self, problem, candidates, context, earlier):
        least = min(len(candidate.text) for candidate in candidates)
        return Verdict(tuple(float(len(candidate.text) == least) for candidate in candidates))
""",
    "conf/verifier/briefest.yaml": "_target_: briefest.Briefest\n",
}


@pytest.mark.parametrize(
    ("files", "options"),
    [
        (NEW_METHOD, ["method=twice"]),
        (NEW_VERIFIER, ["verifier=briefest", "rounds=0"]),
    ],
    ids=["method", "verifier"],
)
def test_a_new_part_is_a_class_and_a_yaml_file(files, options, tmp_path):
    """The files listed are all that is touched."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    words = [f"--config-dir={tmp_path / 'conf'}", *options, "engine=fake", "limit=2", "max_new_tokens=20"]
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(tmp_path)])
    subprocess.run(
        [sys.executable, "-m", "soft_reasoning.run", *words, "hydra.run.dir=out", "progress=false"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        capture_output=True,
    )
    records = [json.loads(line) for line in (tmp_path / "out" / "samples.jsonl").read_text().splitlines()]
    assert [len(record["candidates"]) for record in records] == ([2, 2] if files is NEW_METHOD else [5, 5])
    for record in records if files is NEW_VERIFIER else ():
        lengths = [len(text) for text in record["resps"][0]]
        scores = [candidate["verified"] for candidate in record["candidates"]]
        assert scores == [float(length == min(lengths)) for length in lengths]
