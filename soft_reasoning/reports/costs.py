"""What methods cost relative to one of them (paper, Section "Efficiency and Performance Analysis")."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from soft_reasoning.reports.cells import Cell, datasets_of
from soft_reasoning.reports.tables import MISSING, Table, count, duration, memory, percent
from soft_reasoning.types import UserError

ALL = "all"


@dataclass(frozen=True)
class Cost:
    """One column: its path in results.json and its format."""

    name: str
    path: tuple[str, ...]
    show: Callable[[float | None], str]


COSTS = (
    Cost("prompt tokens", ("tokens", "total", "prompt"), count),
    Cost("generated tokens", ("tokens", "total", "generated"), count),
    Cost("sequences", ("tokens", "total", "sequences"), count),
    Cost("time", ("seconds", "total"), duration),
    Cost("keys and values, mean", ("mean_bytes", "kv"), memory),
    Cost("keys and values, peak", ("peak_bytes", "kv"), memory),
    Cost("activations, mean", ("mean_bytes", "activations"), memory),
    Cost("activations, peak", ("peak_bytes", "activations"), memory),
)


def cost_tables(cells: Sequence[Cell], reference: str | None) -> tuple[Table, Table, str] | None:
    """Return the cost of every setting on each data set, the same relative to ``reference``, and its label.

    The share over all data sets is that of their sums (memory: means), as in the paper. None if
    all cells are of one setting.

    Args:
        cells: The cells.
        reference: A cell's label; None takes ``soft_reasoning``, else the first.

    Raises:
        UserError: If the reference is none of the settings.
    """
    labels = list(dict.fromkeys(cell.label for cell in cells))
    if reference is not None and reference not in labels:
        raise UserError(f"reference: expected one of {', '.join(labels)}, got {reference}")
    if len(labels) < 2:
        return None
    ours = [cell.label for cell in cells if cell.method == "soft_reasoning"]
    base = reference or [*ours, *labels][0]
    known = [cost for cost in COSTS if any(cell.each(*cost.path) for cell in cells)]
    groups: dict[tuple[str, int], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.shots), []).append(cell)
    plain: list[list[str]] = []
    shares: list[list[str]] = []
    for (model, shots), group in groups.items():
        for label in labels:
            own = {cell.dataset: cell for cell in group if cell.label == label}
            if not own:
                continue
            head = [model, str(shots), label]
            for dataset in datasets_of(list(own.values())):
                shown = [cost.show(own[dataset].mean(*cost.path)) for cost in known]
                plain.append([*head, dataset, *shown])
            others = {cell.dataset: cell for cell in group if cell.label == base}
            if label != base and others:
                shares += _shares(head, own, others, known)
    columns = ["model", "shots", "method", "data set"]
    names = [cost.name for cost in known]
    return (
        Table([*columns, *names], plain, labels=4),
        _without_empty(Table([*columns, *(f"{name} %" for name in names)], shares, labels=4)),
        base,
    )


def _shares(
    head: Sequence[str], own: dict[str, Cell], others: dict[str, Cell], known: Sequence[Cost]
) -> list[list[str]]:
    """A row per data set that both have, and one over all of them."""
    common = [dataset for dataset in datasets_of(list(own.values())) if dataset in others]
    places = [[dataset] for dataset in common] + ([common] if len(common) > 1 else [])
    rows = []
    for datasets in places:
        row = [*head, datasets[0] if len(datasets) == 1 else ALL]
        for cost in known:
            pairs = [(own[d].mean(*cost.path), others[d].mean(*cost.path)) for d in datasets]
            row.append(_ratio(pairs))
        rows.append(row)
    return rows


def _ratio(pairs: Sequence[tuple[float | None, float | None]]) -> str:
    ours = [a for a, _ in pairs if a is not None]
    theirs = [b for _, b in pairs if b is not None]
    if len(ours) < len(pairs) or len(theirs) < len(pairs) or sum(theirs) == 0:
        return MISSING
    return percent(sum(ours) / sum(theirs), 2)


def _without_empty(table: Table) -> Table:
    """``table`` without empty columns."""
    keep = [
        j
        for j in range(len(table.columns))
        if j < table.labels or any(row[j] != MISSING for row in table.rows)
    ]
    return Table(
        [table.columns[j] for j in keep], [[row[j] for j in keep] for row in table.rows], labels=table.labels
    )
