"""Plots of the neuron analysis: activation rates by layer, and those of key neurons by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from soft_reasoning.reports.plots import COLORS, panels

SOURCES = {"self_consistency": "#2f6db3", "soft_reasoning": "#e0812c", "random_embedding": "#9a9a9a"}


def activation_rates(rates: Mapping[tuple[str, bool], Sequence[float]], path: Path) -> None:
    """Plot rates in percent by layer for each (source, right) pair, wrong answers with broken lines."""
    with panels(path, height=4.4) as axes_of:
        axes = axes_of[0][0]
        for (source, right), values in rates.items():
            style, of = ("o-", "right") if right else ("o--", "wrong")
            axes.plot(
                range(len(values)), [100 * v for v in values], style, markersize=4, color=SOURCES[source],
                label=f"{source}, {of}",
            )  # fmt: skip
        axes.set_xlabel("layer")
        axes.set_ylabel("active neurons (%)")
        axes.set_title("Activation rate over the first five answer tokens")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.figure.legend(loc="outside lower center", ncols=2, fontsize=9)


def key_rates(rounds: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """Plot rates of key neurons in percent by layer, a panel per source and a line per round."""
    with panels(path, columns=len(rounds), width=4.2 * len(rounds), height=4.0) as axes_of:
        for axes, (source, lines) in zip(axes_of[0], rounds.items(), strict=True):
            for number, values in enumerate(lines):
                label = "initial" if number == 0 else f"round {number}"
                axes.plot(
                    range(len(values)), [100 * v for v in values], "o-", markersize=4,
                    color=COLORS[number % len(COLORS)], label=label,
                )  # fmt: skip
            axes.set_title(source)
            axes.set_xlabel("layer")
            axes.xaxis.get_major_locator().set_params(integer=True)
        axes_of[0][0].set_ylabel("active key neurons (%)")
        limits = [axes.get_ylim() for axes in axes_of[0]]
        for axes in axes_of[0]:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
        drawn = axes_of[0][0].figure
        drawn.suptitle("Activation rate of key neurons by round")
        handles, labels = axes_of[0][0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc="outside lower center", ncols=min(6, len(labels)), fontsize=9)
