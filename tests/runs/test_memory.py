"""A kept engine counts each run's memory by itself."""

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.runs.local import LocalLauncher
from tests.runs.world import OPTIONS


class Counting(FakeEngine):
    peak_bytes = {"kv": 0}

    def begin_run(self):
        self.peak_bytes = {"kv": 0}


def test_a_kept_engine_counts_each_run_by_itself():
    config = compose_config([*OPTIONS, "engine._target_=tests.runs.test_memory.Counting"])
    launcher = LocalLauncher()
    first = launcher.start(config, ())
    first.context.engine.peak_bytes["kv"] = 7
    assert first.peaks() == {"kv": 7}
    second = launcher.start(config, ())
    assert second.context.engine is first.context.engine and second.peaks() == {"kv": 0}
