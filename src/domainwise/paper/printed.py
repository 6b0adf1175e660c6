"""The numbers the paper prints, as data.

Everything here is copied from the tables of ``dcm.tex`` (labels ``synthetictable``,
``parkinsontable``, ``gvhdtable``, ``landminetable``, ``oiltable``) and from nowhere else. A cell is
``(mean, standard deviation)`` over the paper's repetitions; seconds are its column "Time (s)".
Methods and metrics carry the keys of :mod:`domainwise.paper.methods` and
:mod:`domainwise.paper.scores`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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


def _accuracy(svm: Cell, coir: Cell, dica: Cell, dcm: Cell) -> PaperCase:
    cells = {"svm": svm, "coir": coir, "dica": dica, "dcm": dcm}
    return PaperCase(
        "synthetictable", {name: PaperRow({"accuracy": cell}) for name, cell in cells.items()}
    )


def _detection(label: str, rows: Mapping[str, tuple[Cell, Cell, float | None]]) -> PaperCase:
    """Rows of (AUC, G-mean, seconds); the paper's AUC is that of hard labels (theory 10.2)."""
    return PaperCase(
        label,
        {
            name: PaperRow({"label_auc": auc, "g_mean": g_mean}, seconds)
            for name, (auc, g_mean, seconds) in rows.items()
        },
    )


def _rmse(rows: Mapping[str, tuple[Cell, float | None]]) -> PaperCase:
    return PaperCase(
        "parkinsontable",
        {name: PaperRow({"rmse": cell}, seconds) for name, (cell, seconds) in rows.items()},
    )


PAPER: Mapping[str, PaperCase] = {
    "synthetic/eta0.1-gamma0.1": _accuracy(
        (69.96, 5.81), (69.89, 5.27), (69.89, 5.30), (70.31, 4.91)
    ),
    "synthetic/eta0.5-gamma0.1": _accuracy(
        (71.51, 4.12), (71.80, 4.75), (71.82, 4.80), (72.46, 4.21)
    ),
    "synthetic/eta0.1-gamma0.5": _accuracy(
        (64.87, 6.81), (66.12, 5.94), (66.10, 5.94), (66.76, 6.11)
    ),
    "synthetic/eta0.2-gamma0.5": _accuracy(
        (59.63, 4.00), (62.58, 4.06), (62.58, 4.07), (63.03, 4.46)
    ),
    "synthetic/eta0.5-gamma0.5": _accuracy(
        (53.44, 3.63), (57.61, 3.87), (57.61, 3.87), (59.06, 4.25)
    ),
    # The paper gives one time per method for both scores; it stands beside each.
    "parkinsons/motor": _rmse(
        {
            "svm": ((9.03, 0.84), None),
            "coir": ((9.42, 0.79), 218.75),
            "dica": ((9.07, 0.79), 408.25),
            "dcm": ((8.61, 0.98), 101.96),
            "fastcoir": ((9.13, 0.79), 9.41),
            "fastdcm": ((8.65, 0.91), 11.52),
        }
    ),
    "parkinsons/total": _rmse(
        {
            "svm": ((11.41, 1.39), None),
            "coir": ((12.23, 1.46), 218.75),
            "dica": ((12.35, 1.48), 408.25),
            "dcm": ((10.71, 1.53), 101.96),
            "fastcoir": ((11.68, 1.46), 9.41),
            "fastdcm": ((10.76, 1.52), 11.52),
        }
    ),
    "gvhd/n200": _detection(
        "gvhdtable",
        {
            "svm": ((0.8904, 0.0161), (0.8869, 0.0175), None),
            "coir": ((0.9058, 0.0134), (0.9038, 0.0143), 49.84),
            "dica": ((0.9059, 0.0136), (0.9039, 0.0145), 133.34),
            "dcm": ((0.9065, 0.0136), (0.9046, 0.0146), 57.76),
        },
    ),
    "gvhd/n1000": _detection(
        "gvhdtable",
        {
            "svm": ((0.9020, 0.0178), (0.8992, 0.0196), None),
            "fastcoir": ((0.9035, 0.0147), (0.9013, 0.0160), 91.44),
            "fastdcm": ((0.9043, 0.0145), (0.9021, 0.0158), 130.59),
        },
    ),
    "landmine/n200": _detection(
        "landminetable",
        {
            "svm": ((0.5076, 0.0069), (0.1061, 0.0704), None),
            "coir": ((0.5594, 0.0195), (0.3671, 0.0564), 45.91),
            "dica": ((0.5595, 0.0195), (0.3671, 0.0563), 103.08),
            "dcm": ((0.5640, 0.0195), (0.3853, 0.0580), 65.32),
        },
    ),
    "landmine/full": _detection(
        "landminetable",
        {
            "svm": ((0.5141, 0.0053), (0.1677, 0.0297), None),
            "fastcoir": ((0.5450, 0.0110), (0.3084, 0.0411), 194.26),
            "fastdcm": ((0.5496, 0.0101), (0.3233, 0.0360), 355.52),
        },
    ),
    "oil/wells": _detection(
        "oiltable",
        {
            "svm": ((0.5187, 0.000), (0.1963, 0.0000), None),
            "fastcoir": ((0.5783, 0.0106), (0.3941, 0.0271), 132.14),
            "fastdcm": ((0.5907, 0.0123), (0.4248, 0.0270), 216.43),
        },
    ),
}
