"""The paper's experiments: what each composes to, also with other choices on the command line."""

import pytest

from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.types import Problem

MODELS = {
    "llama": "meta-llama/Meta-Llama-3-8B-Instruct",
    "qwen": "Qwen/Qwen2-7B-Instruct",
    "mistral": "mistralai/Mistral-7B-Instruct-v0.3",
}
BENCHMARKS = ("gsm8k", "gsm_hard", "svamp", "strategyqa", "aime_2024")


@pytest.mark.parametrize("who", MODELS)
@pytest.mark.parametrize(("kind", "shots"), [("zero", 0), ("few", 8)])
def test_the_papers_setting(who, kind, shots):
    config = compose_config([f"+experiment={who}_{kind}"])
    assert config.engine.path == MODELS[who]
    assert (config.dataset.name, config.dataset.limit, config.dataset.shots) == ("gsm8k", 200, shots)
    assert config.method.max_new_tokens == config.verifier.max_new_tokens == 300
    assert config.search.stopping.threshold == 0.01
    assert (config.search.candidates, config.embedding.dim, config.acquisition.delta) == (5, 50, 0.1)


def test_the_large_model_on_competition_problems():
    config = compose_config(["+experiment=qwen72b_aime"])
    assert (config.engine.path, config.engine.device_map) == ("Qwen/Qwen2-72B-Instruct", "auto")
    assert (config.dataset.name, config.dataset.limit) == ("aime_2024", 200)  # all of its 30
    assert (config.dataset.shots, config.max_new_tokens) == (0, 300)


@pytest.mark.parametrize("shots", [0, 1, 2, 4, 8])
def test_so_many_exemplars_stand_in_the_prompt(shots):
    for name in BENCHMARKS:
        config = compose_config([f"dataset={name}", "engine=fake", f"dataset.shots={shots}"])
        context = build_context(config, build_engine(config), build_dataset(config).exemplars())
        prompt = context.prompts.solve(Problem("p", "How many are left?"))
        text = context.engine.tokenizer.decode(prompt.ids)
        assert text.count("Question:") == shots + 1 and text.count("\nAnswer: ") == shots
        assert text.rindex("Question:") > text.rfind("\nAnswer: ")
