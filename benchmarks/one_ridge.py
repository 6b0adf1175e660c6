"""Should the ensemble's ridge member and the method InvariantRidge have the same settings?

The member and the method have different grids and numbers of landmarks. Each is compared with a
variant that has the settings of the other, on the outer folds of the development sets.

    python benchmarks/leaderboard.py prepare
    python benchmarks/one_ridge.py run --workers 2       about ten minutes
    python benchmarks/one_ridge.py report                writes ONE_RIDGE.md
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from leaderboard_data import DATA_SETS, domain_scores, tasks
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from domainwise import (
    DomainEnsembleClassifier,
    DomainEnsembleRegressor,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
)
from domainwise.ensemble.members import MEMBER_TYPES
from domainwise.ridge import base
from domainwise.search import grids

MEMBER: Any = MEMBER_TYPES["invariant_ridge"]
#: Settings that differ: domain weights other than 0, penalties, and numbers of landmarks.
METHOD_GRID = (grids.RIDGE_WEIGHTS[1:], grids.RIDGE_ALPHAS)
MEMBER_GRID = (grids.RIDGE_MEMBER_WEIGHTS, grids.RIDGE_MEMBER_ALPHAS)
METHOD_LANDMARKS = (base.SEARCH_LANDMARKS, base.AUTO_LANDMARKS)
MEMBER_LANDMARKS = (MEMBER.SEARCH_LANDMARKS, MEMBER.LANDMARKS)
VARIANTS = {
    "ensemble": ("ensemble", MEMBER_GRID, MEMBER_LANDMARKS),
    "ensemble, grid of the method": ("ensemble", METHOD_GRID, MEMBER_LANDMARKS),
    "ensemble, grid and landmarks of the method": ("ensemble", METHOD_GRID, METHOD_LANDMARKS),
    "InvariantRidge": ("method", METHOD_GRID, METHOD_LANDMARKS),
    "InvariantRidge, grid of the member": ("method", MEMBER_GRID, METHOD_LANDMARKS),
    "InvariantRidge, grid and landmarks of the member": ("method", MEMBER_GRID, MEMBER_LANDMARKS),
}


def fit_ensemble(task: Any, grid: Any, landmarks: Any) -> Any:
    """Fit an ensemble whose ridge member has these settings, and predict the held-out domains."""
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        model = DomainEnsembleClassifier(class_weight="balanced", random_state=0)
    with (
        patch.object(grids, "RIDGE_MEMBER_WEIGHTS", grid[0]),
        patch.object(grids, "RIDGE_MEMBER_ALPHAS", grid[1]),
        patch.object(MEMBER, "SEARCH_LANDMARKS", landmarks[0]),
        patch.object(MEMBER, "LANDMARKS", landmarks[1]),
    ):
        model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
    return model.predict(task.X_new)


def fit_method(task: Any, grid: Any, landmarks: Any) -> Any:
    """Fit InvariantRidge with these settings to standardized rows, and predict."""
    X, y = task.X[task.learn], task.y[task.learn]
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    prepare = make_pipeline(imputer, StandardScaler())
    options: Any = {"domain_weights": (0.0, *grid[0]), "random_state": 0}
    model: Any = InvariantRidgeCV(**options)
    if task.n_classes:
        model = InvariantRidgeClassifierCV(class_weight="balanced", **options)
    with (
        patch.object(base, "RIDGE_ALPHAS", grid[1]),
        patch.object(base, "SEARCH_LANDMARKS", landmarks[0]),
        patch.object(base, "AUTO_LANDMARKS", landmarks[1]),
    ):
        model.fit(prepare.fit_transform(X), y, sample_domain=task.domain[task.learn])
    return model.predict(prepare.transform(task.X_new))


def fold(item: tuple[str, str, int, Path]) -> dict[str, Any] | None:
    """Scores by domain, and CPU seconds, of a variant on an outer fold; None if there is none."""
    variant, name, number, data = item
    folds = tasks(name, data)
    if number >= len(folds):
        return None
    warnings.simplefilter("ignore")
    task, (model, *settings) = folds[number], VARIANTS[variant]
    started = time.process_time()
    predicted = (fit_ensemble if model == "ensemble" else fit_method)(task, *settings)
    seconds = time.process_time() - started
    scores = domain_scores(task, predicted[task.scored])
    return {
        "variant": variant,
        "set": name,
        "classes": task.n_classes,
        "seconds": seconds,
        "scores": {f"{number}/{domain}": score for domain, score in scores.items()},
    }


def run(arguments: argparse.Namespace) -> None:
    """Run all variants on all folds."""
    sets = DATA_SETS["development"]
    items = [(v, name, k, arguments.data) for name in sets for k in range(8) for v in VARIANTS]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.workers) as pool, arguments.out.open("w") as lines:
        for result in pool.map(fold, items):
            if result is not None:
                lines.write(json.dumps(result) + "\n")


def report(arguments: argparse.Namespace) -> None:
    """Write gains over the settings in use, by data set, with standard errors over domains."""
    results = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    sets = list(DATA_SETS["development"])
    classes = {result["set"]: result["classes"] for result in results}
    scores: dict[tuple[str, str], dict[str, float]] = {}
    seconds: dict[str, list[float]] = {}
    for result in results:
        scores.setdefault((result["variant"], result["set"]), {}).update(result["scores"])
        seconds.setdefault(result["variant"], []).append(result["seconds"])
    lines = []
    for variant, (model, *_) in VARIANTS.items():
        reference = "ensemble" if model == "ensemble" else "InvariantRidge"
        cells = [variant, f"{np.mean(seconds[variant]):.1f}"]
        for name in sets:
            now, other = scores[reference, name], scores[variant, name]
            old, new = (np.array([by_domain[d] for d in now]) for by_domain in (now, other))
            if variant == reference:
                cells.append(f"{old.mean():.3f}")
                continue
            gain = 100 * (new - old if classes[name] else (old - new) / old.mean())
            cells.append(f"{gain.mean():+.2f} ± {gain.std(ddof=1) / np.sqrt(len(gain)):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    text = [
        "# Settings of the ridge member and of InvariantRidge",
        "",
        "Written by `python benchmarks/one_ridge.py run`, then `report`. The *member* is the ridge "
        "member of the ensemble, and the *method* is InvariantRidge. The first row of each model "
        "shows its score (balanced accuracy, or RMSE). The other rows show the change with "
        "settings of the other, in percentage points or percent of RMSE, with the standard error "
        "over domains; positive is better. CPU seconds are for one fold. Both keep their settings, "
        "because each loses more than a standard error on several sets with those of the other.",
        "",
        "| | CPU s | " + " | ".join(sets) + " |",
        "| --- |" + " ---: |" * (1 + len(sets)),
        *lines,
    ]
    arguments.report.write_text("\n".join(text) + "\n")
    print("\n".join(text[4:]))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    parser.add_argument("--out", type=Path, default=Path("build/one_ridge.jsonl"))
    parser.add_argument("--report", type=Path, default=Path(__file__).with_name("ONE_RIDGE.md"))
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    (run if arguments.what == "run" else report)(arguments)


if __name__ == "__main__":
    main()
