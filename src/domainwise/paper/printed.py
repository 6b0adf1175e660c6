"""The numbers the paper prints, which stand in ``printed.toml``.

Methods and metrics carry the keys of :mod:`domainwise.paper.methods` and
:mod:`domainwise.paper.scores`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

#: Where the numbers come from.
PROVENANCE = "dcm.tex, the LaTeX source of 'Domain-based Covariance Minimization'"

Cell = tuple[float, float]


@dataclass(frozen=True)
class PaperRow:
    """One method of one table of the paper: cells by metric, and the time it reports."""

    cells: Mapping[str, Cell]
    seconds: float | None = None


@dataclass(frozen=True)
class PaperCase:
    """What the paper prints for one case: rows by method, and the table's label in the source."""

    label: str
    rows: Mapping[str, PaperRow] = field(default_factory=dict)

    def cell(self, method: str, metric: str) -> Cell | None:
        """Mean and standard deviation of a method, None where the paper has no such cell."""
        row = self.rows.get(method)
        return None if row is None else row.cells.get(metric)


def _row(seconds: float | None = None, **cells: Sequence[float]) -> PaperRow:
    return PaperRow({metric: (mean, spread) for metric, (mean, spread) in cells.items()}, seconds)


def _case(label: str, **rows: Mapping[str, Any]) -> PaperCase:
    return PaperCase(label, {method: _row(**row) for method, row in rows.items()})


_TEXT = (files("domainwise.paper") / "printed.toml").read_text(encoding="utf-8")
PAPER: Mapping[str, PaperCase] = {key: _case(**case) for key, case in tomllib.loads(_TEXT).items()}
