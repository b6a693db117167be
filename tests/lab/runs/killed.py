"""A run in a process of its own, which may be killed while it works."""

import json
import os
import signal
import sys

from soft_reasoning.cli.compose import compose_config, plain
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.engine.completions import CompletionStore
from soft_reasoning.engine.fake import FakeEngine
from tests.lab.runs.world import problems, solve

KILLED = {
    "step": (FakeEngine, "advance", True),  # at the beginning of a step
    "computed": (FakeEngine, "advance", False),  # when its completions are not stored
    "writing": (CompletionStore, "_size", True),  # when they are written and not committed
    "stored": (CompletionStore, "keep", False),  # when they are stored and nobody knows them
}


def kill_at(place, number):
    """Kill this process at the ``number``-th call of a function, before or after it."""
    owner, name, before = KILLED[place]
    function, left = getattr(owner, name), [number]

    def dying(self, *arguments):
        left[0] -= 1
        if before and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(self, *arguments)
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)


def main(folder, options, count=8, fresh=False):
    config = compose_config(["engine=fake", "max_new_tokens=30", "stopping=improvement", *options])
    method, context = build_method(config), build_context(config, build_engine(config))
    solve(problems(count), method, context, folder, plain(config) | {"fresh": fresh}, max_live=4)


if __name__ == "__main__":
    folder, options, place, number = sys.argv[1:]
    if place:
        kill_at(place, int(number))
    main(folder, json.loads(options))
