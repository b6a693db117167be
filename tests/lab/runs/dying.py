"""The fake engine in a process that is killed while it works."""

import os
import signal
from pathlib import Path

from soft_reasoning.engine.fake import FakeEngine


class Dying(FakeEngine):
    """Ends its process when requests come for the ``calls``-th time; the first process only that gets there,
    which leaves the file ``marker`` behind."""

    def __init__(self, marker: str, calls: int) -> None:
        super().__init__()
        self._marker, self._left = Path(marker), calls

    def add(self, requests):
        self._left -= 1
        if self._left == 0:
            try:
                self._marker.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().add(requests)
