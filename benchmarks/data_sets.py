"""Data sets as files of numbers, and their outer folds, for several benchmarks.

    python benchmarks/data_sets.py [NAME …]      writes build/data_sets; needs the data and pandas

Other benchmarks then need only NumPy and these files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import measuring  # noqa: F401  (lets Python find reproduction)
import numpy as np
from sklearn.utils import Bunch

from domainwise.held_out.folds import draw_rows
from domainwise.selection import LeaveDomainsOut
from reproduction import data as datasets

FOLDER = Path("build/data_sets")
TRAINING_ROWS = 600
#: Largest numbers of stored rows and of scored rows per domain.
STORED_ROWS, SCORED_ROWS = 1000, 300
OUTER_FOLDS = 8

DATA_SETS: dict[str, dict[str, Callable[[], Bunch]]] = {
    "development": {
        "facies": lambda: datasets.load_facies(missing="keep"),
        "gvhd": datasets.load_gvhd,
        "parkinsons": datasets.load_parkinsons,
        "synthetic": lambda: datasets.make_synthetic(0.1, n_per_domain=300, random_state=0),
        "adult": datasets.load_adult,
        "bike": datasets.load_bike,
        "communities": datasets.load_communities,
    },
    "confirmation": {
        "landmine": datasets.load_landmine,
        "oilwells": datasets.load_oilwells,
        "cytof": lambda: datasets.load_cytof(cofactor=5),
        "hipc": datasets.load_hipc,
        "shoppers": datasets.load_shoppers,
        "kc_house": datasets.load_kc_house,
    },
}
STAGE = {name: stage for stage, sets in DATA_SETS.items() for name in sets}


def prepare(names: list[str], folder: Path) -> None:
    """Write rows, targets and domains of data sets as arrays."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        bunch = DATA_SETS[STAGE[name]][name]()
        labels, codes = np.unique(bunch.sample_domain, return_inverse=True)
        rng = np.random.default_rng(0)
        selected_rows = []
        for code in range(len(labels)):
            rows = np.flatnonzero(codes == code)
            selected_rows.append(
                np.sort(rng.choice(rows, min(len(rows), STORED_ROWS), replace=False))
            )
        rows = np.concatenate(selected_rows)
        X, y = np.asarray(bunch.data)[rows].astype(np.float64), np.asarray(bunch.target)[rows]
        classes, y = np.unique(y, return_inverse=True) if y.dtype.kind in "iubUO" else ([], y)
        np.savez_compressed(
            folder / f"{name}.npz", X=X, y=y, domain=codes[rows], n_classes=len(classes)
        )
        target_text = f"{len(classes)} classes" if len(classes) else "a continuous target"
        print(
            f"{name}: {X.shape[0]} rows, {X.shape[1]} columns, {len(labels)} domains, {target_text}"
        )


@dataclass(frozen=True)
class Task:
    """One outer fold: all rows of the source domains, the training rows, and the held-out rows.

    Attributes
    ----------
    X, y, domain : ndarray
        Rows of the source domains. ``learn`` contains the indices of training rows; the other rows
        are used only as context.
    X_new, y_new, domain_new : ndarray
        Rows of the held-out domains. ``scored`` contains the indices of scored rows.
    n_classes : int
        0 for a continuous target.
    """

    X: np.ndarray
    y: np.ndarray
    domain: np.ndarray
    learn: np.ndarray
    X_new: np.ndarray
    y_new: np.ndarray
    domain_new: np.ndarray
    scored: np.ndarray
    n_classes: int


def tasks(name: str, folder: Path, rows: int = TRAINING_ROWS) -> list[Task]:
    """Outer folds of a prepared data set, with this number of training rows."""
    with np.load(folder / f"{name}.npz") as file:
        X, y, domain, n_classes = (file[key] for key in ("X", "y", "domain", "n_classes"))
    folds = []
    splitter = LeaveDomainsOut(max_splits=OUTER_FOLDS, random_state=0)
    for number, (train, test) in enumerate(splitter.split(X, y, domain)):
        _, codes = np.unique(domain[train], return_inverse=True)
        training_rows = draw_rows(codes, rows, number)
        order = np.random.default_rng(number).permutation(len(test))
        scored_rows = np.concatenate(
            [order[domain[test][order] == d][:SCORED_ROWS] for d in np.unique(domain[test])]
        )
        folds.append(
            Task(
                X[train],
                y[train],
                domain[train],
                training_rows,
                X[test],
                y[test],
                domain[test],
                np.sort(scored_rows),
                int(n_classes),
            )
        )
    return folds


def domain_scores(task: Task, predicted: np.ndarray) -> dict[int, float]:
    """Balanced accuracy, or RMSE, of the scored rows, by domain."""
    y, domains = task.y_new[task.scored], task.domain_new[task.scored]
    scores = {}
    for domain in np.unique(domains):
        rows = domains == domain
        if task.n_classes:
            # Predicted classes that do not occur in a domain count as errors for its true classes.
            scores[int(domain)] = float(
                np.mean([np.mean(predicted[rows & (y == c)] == c) for c in np.unique(y[rows])])
            )
        else:
            scores[int(domain)] = float(np.sqrt(np.mean((predicted[rows] - y[rows]) ** 2)))
    return scores


if __name__ == "__main__":
    prepare(sys.argv[1:] or list(STAGE), FOLDER)
