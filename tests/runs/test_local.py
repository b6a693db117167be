"""One engine for several runs: whose memory is counted."""

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.runs import local
from tests.runs.world import OPTIONS


class Counting(FakeEngine):
    def __init__(self):
        super().__init__()
        self.peak_bytes = self.used_bytes = {"kv": 0}

    def begin_run(self):
        self.peak_bytes = {"kv": 0}


def test_a_kept_engine_counts_each_run_by_itself(monkeypatch):
    monkeypatch.setattr(local, "build_engine", lambda config: Counting())
    launcher = local.LocalLauncher()
    first = launcher.start(compose_config(OPTIONS), ())
    first.context.engine.peak_bytes["kv"] = 7
    assert first.peaks() == {"kv": 7}
    second = launcher.start(compose_config(OPTIONS), ())
    assert second.context.engine is first.context.engine and second.peaks() == {"kv": 0}
