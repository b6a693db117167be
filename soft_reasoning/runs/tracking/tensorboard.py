"""Runs as TensorBoard's event files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from soft_reasoning.runs.tracking.base import Tracked, library


class TensorBoard:
    """Writes event files, which ``tensorboard --logdir runs`` shows.

    Scalars are the running figures and, under ``final/``, the metrics. Texts are the configuration and
    ``report.md``; images are the plots.

    Args:
        folder: Holds a folder for each run; None puts the files into ``tensorboard`` in the run's own folder.

    Raises:
        UserError: If TensorBoard is not installed.
    """

    name = "tensorboard"

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder
        library("tensorboard", self.name)

    def begin(self, run: Tracked) -> TensorBoardRun:
        if self._folder is None:
            return TensorBoardRun(run.folder / "tensorboard", run)
        return TensorBoardRun(Path(self._folder) / run.group / run.name, run)


class TensorBoardRun:
    """One run's event files."""

    def __init__(self, folder: Path, run: Tracked) -> None:
        from torch.utils.tensorboard import SummaryWriter  # imports tensorboard

        self.id: str = str(folder)
        # What an earlier run in this folder logged after the problems that are stored is hidden.
        self._writer: Any = SummaryWriter(str(folder), purge_step=run.done + 1, flush_secs=10)
        config = yaml.safe_dump(dict(run.config), sort_keys=False)
        self._writer.add_text("config", f"```yaml\n{config}```", run.done + 1)

    def log(self, figures: Mapping[str, float], step: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, metrics: Mapping[str, float], files: Sequence[Path], step: int) -> None:
        import numpy
        from PIL import Image  # as TensorBoard itself does

        for name, value in metrics.items():
            self._writer.add_scalar(f"final/{name}", value, step)
        for file in files:
            if file.suffix == ".md":
                self._writer.add_text(file.stem, file.read_text(encoding="utf-8"), step)
            elif file.suffix == ".png":
                image = numpy.asarray(Image.open(file).convert("RGB"))
                self._writer.add_image(file.stem, image, step, dataformats="HWC")
        self._writer.close()

    def interrupt(self) -> None:
        self._writer.close()
