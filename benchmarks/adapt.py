"""What a few labels of a new site gain, on every data set of the leaderboard.

    python benchmarks/leaderboard.py prepare                    needs the data and pandas
    python benchmarks/adapt.py run --workers 2                  fits ensembles, keeps their outputs
    python benchmarks/adapt.py report                           writes ADAPT.md

Ensembles learn from 600 rows, as on the leaderboard, with default class weights and with balanced
ones. Each domain of a held-out fold plays the new site: labels are drawn at random (20 draws), or
are the first rows in table order, and the other rows of the domain are scored. A run that is
started again goes on where it stopped.
"""

from __future__ import annotations

import os
import warnings
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard_data import STAGE, tasks
from scipy.special import xlogy

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
from domainwise.adaptation.corrections import ClassPrior, LinePrior, SiteLabels, SourceOutputs
from domainwise.adaptation.gain import LABEL_COUNTS, SiteQuantiles, domain_scores, label_gain

HERE = Path(__file__).parent
DRAWS = 20
#: Rows of a site that are scored, at least.
FEWEST_SCORED = 10


def fit_job(job: tuple[str, int, bool, Path, Path]) -> str:
    """Fit an ensemble to one fold, and keep its held-out outputs and those for the new domains."""
    name, fold, balanced, data, out = job
    file = out / f"{name}.{fold}.{'balanced' if balanced else 'default'}.npz"
    if file.exists():
        return f"{file.name} is there"
    task = tasks(name, data)[fold]
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        weight = "balanced" if balanced else None
        model = DomainEnsembleClassifier(class_weight=weight, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
        kinds = {"plain": None, "context": task.domain_new}
        new = {
            f"{kind}_new": model.predict_proba(task.X_new, sample_domain=given)
            if task.n_classes
            else model.predict(task.X_new, sample_domain=given)[:, None]
            for kind, given in kinds.items()
        }
    arrays = {"y_new": task.y_new, "domain_new": task.domain_new, "n_classes": task.n_classes}
    for kind, held_out in model.held_out_.items():
        arrays |= {f"{kind}_{key}": value for key, value in vars(held_out).items()}
    np.savez_compressed(file, **arrays, **new)
    return file.name


def run(data: Path, out: Path, workers: int) -> None:
    """Fit ensembles to all folds of all data sets."""
    out.mkdir(parents=True, exist_ok=True)
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    jobs = []
    for name in STAGE:
        folds = tasks(name, data)
        weights = (False, True) if folds[0].n_classes else (False,)
        jobs += [(name, fold, w, data, out) for fold in range(len(folds)) for w in weights]
    with get_context("spawn").Pool(workers) as pool:
        for number, done in enumerate(pool.imap_unordered(fit_job, jobs), 1):
            print(f"{number} of {len(jobs)}: {done}", flush=True)


def folds_of(name: str, setting: str, out: Path) -> Iterator[dict[str, Any]]:
    """Kept arrays of the folds of a data set."""
    for file in sorted(out.glob(f"{name}.*.{setting}.npz")):
        with np.load(file) as arrays:
            yield dict(arrays)


def measures(outputs: np.ndarray, y: np.ndarray, n_classes: int) -> np.ndarray:
    """RMSE; or accuracy, balanced accuracy and log loss."""
    if not n_classes:
        return np.array([np.sqrt(np.mean((outputs[:, 0] - y) ** 2))])
    right = outputs.argmax(axis=1) == y
    recalls = [right[y == code].mean() for code in np.unique(y)]
    likely = np.maximum(outputs[np.arange(len(y)), y], 1e-15)
    return np.array([right.mean(), np.mean(recalls), -xlogy(1.0, likely).mean()])


def own_score(outputs: np.ndarray, y: np.ndarray) -> float:
    """The score of an ensemble: balanced accuracy, or negative RMSE."""
    if outputs.shape[1] == 1:
        return -float(measures(outputs, y, 0)[0])
    return float(measures(outputs, y, outputs.shape[1])[1])


class Site:
    """One held-out domain of a fold, with what the model knows of sites."""

    def __init__(self, fold: dict[str, Any], code: Any, kind: str, balanced: bool) -> None:
        self.n_classes = int(fold["n_classes"])
        rows = fold["domain_new"] == code
        self.outputs, self.y = fold[f"{kind}_new"][rows].astype(np.float64), fold["y_new"][rows]
        self.held_out = SourceOutputs(
            fold[f"{kind}_y"], fold[f"{kind}_domain"], fold[f"{kind}_outputs"].astype(np.float64)
        )
        self.options = {"balanced": balanced, "seed": 0} if self.n_classes else {}

    def scores(self, prior: Any, n_labels: int, order: str, rng: Any) -> tuple[Any, Any]:
        """Mean measures without labels and with them, on the same rows."""
        n = len(self.y)
        orders = [np.arange(n)] if order == "first" else [rng.permutation(n) for _ in range(DRAWS)]
        before, after = [], []
        for rows in orders:
            labelled, rest = rows[:n_labels], rows[n_labels:]
            labels = SiteLabels.sorted(self.outputs[labelled], self.y[labelled])
            corrected = prior.apply(self.outputs[rest], labels.correction(prior))
            before.append(measures(self.outputs[rest], self.y[rest], self.n_classes))
            after.append(measures(corrected, self.y[rest], self.n_classes))
        return np.mean(before, axis=0), np.mean(after, axis=0)

    def coverage(self, prior: Any, n_labels: int, rng: Any) -> tuple[float, float, float, float]:
        """Coverage and size of 90 % sets or intervals, without labels and with them."""
        found: list[float] = []
        rows = rng.permutation(len(self.y))
        for k in (0, n_labels):
            labelled, rest = rows[:k], rows[n_labels:]
            labels = SiteLabels.sorted(self.outputs[labelled], self.y[labelled])
            quantiles = SiteQuantiles.of(
                self.held_out, prior, labels, classes=bool(self.n_classes), **self.options
            )
            corrected = prior.apply(self.outputs[rest], labels.correction(prior))
            if self.n_classes:
                sets = quantiles.sets(1.0 - corrected, 0.9)
                found += [sets[np.arange(len(rest)), self.y[rest]].mean(), sets.sum(1).mean()]
            else:
                ends = quantiles.intervals(corrected[:, 0], 0.9)
                inside = (ends[:, 0] <= self.y[rest]) & (self.y[rest] <= ends[:, 1])
                found += [inside.mean(), np.median(ends[:, 1] - ends[:, 0]) / 2]
        return tuple(found)  # type: ignore[return-value]


def study(name: str, setting: str, kind: str, out: Path) -> dict[str, Any]:
    """All that is reported of a data set."""
    balanced = setting == "balanced"
    scores: dict[Any, list[Any]] = defaultdict(list)
    coverage, gains, n_sources = [], [], []
    for number, fold in enumerate(folds_of(name, setting, out)):
        rng = np.random.default_rng(number)
        if f"{kind}_y" not in fold:
            kind = "plain"
        codes = np.unique(fold["domain_new"])
        site = Site(fold, codes[0], kind, balanced)
        classes = bool(site.n_classes)
        prior = (ClassPrior if classes else LinePrior).learn(site.held_out, **site.options)
        n_domains = int(site.held_out.domain.max()) + 1
        table, _ = label_gain(
            site.held_out,
            domain_scores(site.held_out, own_score, n_domains),
            own_score,
            classes=classes,
            **({"seed": 0} | site.options),
        )
        gains.append(table)
        n_sources.append(len(np.unique(site.held_out.domain)))
        for code in codes:
            site = Site(fold, code, kind, balanced)
            for k in LABEL_COUNTS[1:]:
                if len(site.y) < k + FEWEST_SCORED:
                    continue
                for order in ("random", "first"):
                    scores[k, order].append(site.scores(prior, k, order, rng))
            if len(site.y) >= 20 + FEWEST_SCORED:
                coverage.append(site.coverage(prior, 20, rng))
    return {
        "classes": classes,
        "scores": {key: np.array(value) for key, value in scores.items()},
        "coverage": np.array(coverage),
        "gains": gains,
        "n_sources": min(n_sources),
    }


def change(pairs: np.ndarray, column: int) -> tuple[float, float, float]:
    """Mean without labels, mean difference with them, and its standard error over sites."""
    before, after = pairs[:, 0, column], pairs[:, 1, column]
    difference = after - before
    error = difference.std(ddof=1) / np.sqrt(len(difference)) if len(difference) > 1 else np.nan
    return float(before.mean()), float(difference.mean()), float(error)
