"""llama.cpp's server on a small real model: the contract, its end, and its messages."""

import subprocess
import sys

import psutil
import pytest

from soft_reasoning.engine.paths import DEMO_FOLDER, resolve
from soft_reasoning.engine.served import llamacpp, served
from soft_reasoning.types import Request, UserError
from tests.contracts.engine import EngineContract

pytest.importorskip("xllamacpp")
try:
    resolve("smollm2_135m")
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def engine():
    engine = llamacpp("smollm2_135m", threads=1, context=512, parallel=4)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prompts(engine):
    texts = ("The capital of France is", "1 + 1 =", "Once upon a time there was a", "A day has 24")
    return [tuple(engine.tokenizer.encode(text)) for text in texts]


class TestLlamaCpp(EngineContract):
    rounding = 1e-3  # a quantised model's sums depend on the batch

    def test_text_is_cut_before_the_earliest_stop_string(self, engine, prompts):
        """llama.cpp leaves out the tokens of the stop string."""
        text = self.greedy(engine, prompts[0]).text
        for length in (1, 2, 3):
            stop = text[2 : 2 + length]
            run = self.greedy(engine, prompts[0], stop=("never written", stop))
            assert (run.text, run.finish_reason) == (text[: text.index(stop)], "stop")


def test_the_tokenizer_of_another_model_is_refused(engine):
    with pytest.raises(UserError, match="model.tokenizer: expected the tokenizer of the served model"):
        served(str(engine.server._client.base_url), tokenizer=str(DEMO_FOLDER))


def servers(process):
    """The servers that ``process`` started."""
    return [
        child
        for child in process.children(recursive=True)
        if "llamacpp_server.py" in " ".join(child.cmdline())
    ]


@pytest.mark.slow
def test_a_server_that_dies_ends_the_run_in_one_line():
    engine = llamacpp("smollm2_135m", threads=1, context=512, parallel=1)
    prompt = tuple(engine.tokenizer.encode("Once upon a time"))
    [ticket] = engine.add([Request(prompt, max_new_tokens=400, min_new_tokens=400)])
    for server in servers(psutil.Process()):
        server.kill()
    with pytest.raises(UserError, match="the server cannot be reached.*the same command continues") as error:
        while not engine.step([ticket]):
            pass
    assert "\n" not in str(error.value)
    engine.close()


@pytest.mark.slow
def test_a_server_ends_with_a_process_that_is_killed():
    code = "from soft_reasoning.engine.served import llamacpp\n"
    code += "e = llamacpp('smollm2_135m', threads=1, context=512)\nprint('ready', flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as run:
        assert run.stdout.readline() == "ready\n"
        started = servers(psutil.Process(run.pid))
        assert started
        run.kill()
        psutil.wait_procs(started)


def test_a_field_that_llama_cpp_lacks_is_shown_with_its_last_lines():
    with pytest.raises(
        UserError, match="engine=llamacpp: expected a server that starts.*no_such_field"
    ) as error:
        llamacpp("smollm2_135m", no_such_field=1)
    assert "\n" not in str(error.value)
