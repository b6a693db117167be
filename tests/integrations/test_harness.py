"""lm-evaluation-harness with the model soft_reasoning, beside its own model hf."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

lm_eval = pytest.importorskip("lm_eval", reason="needs the extra [lm-eval]")

from lm_eval.api.instance import Instance  # noqa: E402
from lm_eval.tasks import TaskManager  # noqa: E402

from soft_reasoning.answers import Grader  # noqa: E402
from soft_reasoning.engines.paths import DEMO_FOLDER  # noqa: E402
from soft_reasoning.integrations.harness import command, model  # noqa: E402
from soft_reasoning.solution import Solution  # noqa: E402
from soft_reasoning.types import Candidate, UserError  # noqa: E402
from tests.chat_templates import tokenizer_of  # noqa: E402
from tests.engines.models import tiny  # noqa: E402

ROWS = [json.loads(line) for line in (DEMO_FOLDER.parent / "test.jsonl").read_text().splitlines()]
DEMO = str(DEMO_FOLDER)
ROOT = Path(__file__).parents[2]
ANSWER = {
    "name": "strict-match",
    "filter": [{"function": "regex", "regex_pattern": "Answer: (-?[0-9]+)"}, {"function": "take_first"}],
}


@pytest.fixture(scope="module")
def manager():
    command.register()
    return TaskManager(include_defaults=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("lm_eval")


def task(folder, rows=ROWS[:60], **changes):
    """The bundled problems as a task; the rows are those of ``rows``."""
    files = {}
    for split, some in (("train", ROWS[100:110]), ("test", rows)):
        path = folder / f"{split}-{len(list(folder.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
        files[split] = str(path)
    return {
        "task": "demo",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": files, "cache_dir": str(folder / "cache")},
        "output_type": "generate_until",
        "test_split": "test",
        "fewshot_split": "train",
        "doc_to_text": "Question:\n{{question}}\nThought:\n",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["Question:"], "do_sample": False, "max_gen_toks": 300},
        "filter_list": [ANSWER],
        "metric_list": [{"metric": "exact_match"}],
        **changes,
    }


def evaluate(name, manager, asked, limit=4, options=None, **arguments):
    """The harness's results and samples of one task."""
    evaluation = lm_eval.simple_evaluate(
        name,
        model_args={"pretrained": DEMO, **arguments},
        tasks=[asked],
        task_manager=manager,
        limit=limit,
        device="cpu",
        bootstrap_iters=0,
        **(options or {}),
    )
    return evaluation["results"][asked["task"]], evaluation["samples"][asked["task"]]


def assert_equal_to_hf(manager, asked, arguments=None, **others):
    """Each row of ``method=cot`` is that of ``hf``; return the rows."""
    arguments = arguments or {}
    scores, rows = evaluate("hf", manager, asked, **arguments, **others)
    our_scores, our_rows = evaluate("soft_reasoning", manager, asked, method="cot", **arguments, **others)
    assert our_rows == rows
    different = [key for key in scores if not key.startswith("alias") and our_scores[key] != scores[key]]
    assert not different
    return our_rows


@pytest.mark.slow
def test_greedy_rows_and_scores_are_those_of_hf(manager, folder):
    rows = assert_equal_to_hf(manager, task(folder), limit=8)
    assert_equal_to_hf(manager, task(folder), {"max_length": 400}, limit=1, options={"num_fewshot": 3})  # cut
    assert len(rows) == 8 and len({row["resps"][0][0] for row in rows}) == 8
    assert 0 < sum(row["exact_match"] for row in rows) < 8


@pytest.mark.slow
def test_generation_arguments_are_those_of_hf(manager, folder):
    """Stop strings, a bound of tokens, and hf's own arguments."""
    rows = assert_equal_to_hf(manager, task(folder), limit=16)
    for arguments in ({"until": ["\n", "="]}, {"max_gen_toks": 7}):
        shorter = assert_equal_to_hf(manager, task(folder, generation_kwargs=arguments), limit=2)
        pairs = zip(shorter, rows, strict=False)
        assert all(len(row["resps"][0][0]) < len(whole["resps"][0][0]) for row, whole in pairs)
    assert rows != assert_equal_to_hf(manager, task(folder), {"add_bos_token": False}, limit=16)


@pytest.mark.slow
def test_log_likelihoods_are_those_of_hf(manager, folder):
    choices = task(
        folder,
        output_type="multiple_choice",
        doc_to_choice=["3", "5", "92"],
        doc_to_target=2,
        filter_list=None,
        generation_kwargs=None,
        metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}],
    )
    rolling = task(
        folder,
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{question}}",
        filter_list=None,
        generation_kwargs=None,
        metric_list=[{"metric": "word_perplexity"}],
    )
    for asked in (choices, rolling):
        scores, rows = evaluate("hf", manager, asked)
        our_scores, our_rows = evaluate("soft_reasoning", manager, asked)
        assert our_scores == scores and [row["resps"] for row in our_rows] == [row["resps"] for row in rows]


@pytest.mark.slow
def test_chat_templates_are_those_of_hf(manager, folder, tmp_path):
    """The template's headers, examples as turns, a system message, and a special token as a stop string."""
    tokenizer = tokenizer_of("qwen2.5")
    tokenizer.eos_token = tokenizer.decode([5])
    sizes = {"vocab_size": len(tokenizer), "eos_token_id": 5, "max_position_embeddings": 2048}
    tiny("qwen2", **sizes).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    asked = task(folder, generation_kwargs={"until": ["<|im_end|>"], "max_gen_toks": 24, "do_sample": False})
    options = {"apply_chat_template": True, "num_fewshot": 2, "system_instruction": "Be brief."}
    pretrained = {"pretrained": str(tmp_path)}
    rows = assert_equal_to_hf(manager, asked, pretrained, options=options)
    prompt = rows[0]["arguments"][0][0]
    assert prompt.count("user") == 3 and "Be brief." in prompt and rows[0]["resps"][0][0]


@pytest.mark.slow
def test_the_harnesss_clients_of_a_server(manager, folder):
    """Its completions get the rows of ``hf``; its chats get what ``solve`` answers."""
    serving = pytest.importorskip("tests.integrations.serving", reason="needs the extra [serve]")
    until = {"until": ["\n"], "max_gen_toks": 60}
    asked = task(folder, generation_kwargs=until, doc_to_text="{{question}}")
    options = {"tasks": [asked], "task_manager": manager, "limit": 2, "bootstrap_iters": 0}
    with model.SoftReasoner.from_pretrained("demo") as reasoner, serving.served(reasoner) as running:

        def answers(kind, path, name, **more):
            arguments = {"model": name, "base_url": f"{running.url}/{path}", "tokenizer": DEMO}
            evaluation = lm_eval.simple_evaluate(kind, model_args=arguments, **options, **more)
            return [row["resps"][0][0] for row in evaluation["samples"]["demo"]]

        texts = answers("local-completions", "completions", "cot-demo")
        assert texts == [row["resps"][0][0] for row in evaluate("hf", manager, asked, limit=2)[1]]
        texts = answers("local-chat-completions", "chat/completions", "demo", apply_chat_template=True)
        limits = {"max_new_tokens": 60, "stop": ["\n"], "temperature": 0.0, "seed": 1234}
        assert texts == [reasoner.solve(row["question"], **limits).text for row in ROWS[:2]]


@pytest.mark.slow
def test_sampling(manager, folder):
    sampled = {"do_sample": True, "temperature": 1.5, "max_gen_toks": 12}
    asked = task(folder, generation_kwargs=sampled, repeats=3)
    many = {"method": "self_consistency", "k": 1}
    rows = evaluate("soft_reasoning", manager, asked, limit=2, **many)[1]
    assert all(len({*row["resps"][0]}) > 1 for row in rows)  # each repetition draws anew
    assert rows == evaluate("soft_reasoning", manager, asked, limit=2, **many)[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metod": "cot"}, "metod: expected a key or group .*; did you mean method"),
        ({"method": "cot", "k": 3}, "k: expected a method that has it"),
        ({"model.dtype": "float16"}, "model.dtype is not read: the harness's arguments load the model"),
        ({"pretrained": "./nowhere"}, "expected a folder with a model"),
        ({"think_end_token": 5}, "think_end_token: expected the token's text, got its id"),
    ],
)
def test_wrong_arguments_are_one_line(arguments, message):
    with pytest.raises(UserError, match=message) as error:
        model.SoftReasoningLM(**{"pretrained": "demo", **arguments})
    assert len(str(error.value).splitlines()) == 1


@pytest.fixture(scope="module")
def greedy():
    return model.SoftReasoningLM("demo", method="cot", device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_p": 0.9}, "expected until, max_gen_toks, do_sample, temperature, got top_p"),
        ({"until": [""]}, "expected stop to be a list of texts, none of them empty"),
        ({"max_gen_toks": 9000}, "expected max_gen_toks below the model's context of 1536 tokens, got 9000"),
        ({"do_sample": True, "temperature": 1.5}, "temperature: expected a method that has it, got method=c"),
    ],
)
def test_wrong_generation_arguments_are_one_line(greedy, arguments, message):
    request = Instance("generate_until", {"question": "Why?"}, ("Why?", arguments), 0)
    with pytest.raises(UserError, match=message) as error:
        greedy.generate_until([request], disable_tqdm=True)
    assert len(str(error.value).splitlines()) == 1


def test_a_verifier_sees_the_question_where_the_prompt_has_it():
    prompt = "Q: How many?\nA:"
    assert model.question_in({"question": " How many? "}, prompt, None) == "How many?"
    assert model.question_in({"input": "How many?", "answer": "7"}, prompt, None) == prompt
    assert model.question_in({"input": "How many?"}, prompt, "input") == "How many?"
    with pytest.raises(UserError, match="question_field: expected a column .*input.*, got problem"):
        model.question_in({"input": "How many?"}, prompt, "problem")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6 + 5 = 11\n#### 11", "So it is 12. Answer: 12\n#### 12"),
        ("6 + 5 = 11.\nThe answer is 11. Bye.", "So it is 12. Answer: 12\nThe answer is 12"),
        ("Nobody knows.", "So it is 12. Answer: 12"),
    ],
)
def test_an_answer_of_the_verifiers_takes_the_form_of_the_candidates(text, expected):
    grader = Grader()
    entry = {"verifier": {"answers": ["12"], "texts": ["So it is 12. Answer: 12"]}}
    candidate = Candidate(text, grader.extract(text, "number"), 0, reward=0.5)
    assert model.answer_text(Solution("12", (candidate,), (entry,)), grader, "number") == expected
    assert model.answer_text(Solution(candidate.answer, (candidate,), (entry,)), grader, "number") == text


def commands_of_the_page():
    """Those of docs/lm_eval.md that need no network."""
    page = (ROOT / "docs" / "lm_eval.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```bash\n(.*?)```", page, flags=re.DOTALL)).splitlines()
    return [shlex.split(line)[1:] for line in lines if "--include_path" in line]


@pytest.mark.slow
@pytest.mark.parametrize("words", commands_of_the_page(), ids=lambda words: words[-1])
def test_commands_of_the_page(tmp_path, words):
    words = [word.replace("runs/", f"{tmp_path}/") for word in words]
    words[words.index("--limit") + 1] = "2"
    code = "from soft_reasoning.commands.entry import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "soft_reasoning ({'pretrained': 'demo'" in done.stdout and "|exact_match|" in done.stdout
    if "--log_samples" in words:
        [path] = tmp_path.rglob("samples_demo_*.jsonl")
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        assert [row["doc"] for row in rows] == ROWS[:2]
