"""The effect of a feature that is shifted or in another unit: writes ENSEMBLE_STRESS.md.

    python benchmarks/leaderboard.py prepare --sets communities bike parkinsons gvhd facies
    python benchmarks/ensemble_stress.py

The first outer fold of the development sets is used, as in `leaderboard.py`. In the held-out
domains, at most ten features, one at a time, are shifted by five standard deviations of the source
domains, or multiplied by 1000. Models are fitted once; only the new rows change.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from leaderboard import domain_scores, fitted
from leaderboard_data import Task, tasks
from threadpoolctl import threadpool_limits

from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

SETS = ("facies", "gvhd", "parkinsons", "bike", "communities")
MOST_FEATURES = 10
CHANGES = {
    "+ 5 standard deviations": lambda values, sources: values + 5 * np.nanstd(sources),
    "times 1000": lambda values, sources: 1000 * values,
}
ABOUT = (
    "# A feature in another unit",
    "Written by `python benchmarks/ensemble_stress.py`. In the held-out domains, one feature is "
    "shifted by five standard deviations of the source domains, or multiplied by 1000. The table "
    "shows the worst score over ten features, or over all features if there are fewer. Scores are "
    "balanced accuracy, or RMSE, on the first outer fold of the leaderboard, with the same rows. "
    "Models are fitted once, and only the new rows change.",
    "The ensemble clips values that lie farther outside the range of the source domains than the "
    "outermost source domain lies outside the range of the others. Up to this distance, members "
    "have been scored on held-out domains. In the ensemble *without clipping*, the linear member "
    "dominates the average. Clipping cannot restore the information in the feature: on facies and "
    "GvHD, the scores of all methods drop a lot; on facies, boosting loses least.",
)
Rule = Callable[[np.ndarray], np.ndarray]


def ensemble_rules(task: Task) -> dict[str, Rule]:
    """The ensemble with and without clipping of features."""
    model: Any = DomainEnsembleRegressor(random_state=0)
    if task.n_classes:
        model = DomainEnsembleClassifier(class_weight="balanced", random_state=0)
    model.fit(task.X, task.y, sample_domain=task.domain, learn_from=task.learn)
    reach = model._reach

    def rule(limits: np.ndarray, together: bool) -> Rule:
        def predict(X: np.ndarray) -> np.ndarray:
            model._reach = limits
            if not together:
                return np.asarray(model.predict(X[task.scored]))
            return np.asarray(model.predict(X, sample_domain=task.domain_new)[task.scored])

        return predict

    no_limits = np.outer([-np.inf, np.inf], np.ones(task.X.shape[1]))
    return {
        "ensemble without clipping": rule(no_limits, False),
        "ensemble": rule(reach, False),
        "ensemble with context": rule(reach, True),
    }


def baseline(name: str, task: Task) -> Rule:
    """Another method, tuned on held-out source domains."""
    model = fitted(name, task)
    return lambda X: model(X[task.scored])


def score(task: Task, predicted: np.ndarray) -> float:
    """Mean over the held-out domains."""
    return float(np.mean(list(domain_scores(task, predicted).values())))


def table_lines(data_set: str, task: Task) -> list[str]:
    """Rows of the table: the score of each method on unchanged rows, and its worst scores."""
    worst_of, metric_note = (min, "") if task.n_classes else (max, " (RMSE)")
    numeric = [j for j, x in enumerate(task.X.T) if len(np.unique(x[~np.isnan(x)])) > 2]
    features = np.random.default_rng(0).permutation(numeric)[:MOST_FEATURES]
    rules = {name: baseline(name, task) for name in ("linear", "svm", "boosting")}
    lines = []
    for method, rule in {**rules, **ensemble_rules(task)}.items():
        scores = [score(task, rule(task.X_new))]
        for change in CHANGES.values():
            changed_scores = []
            for j in features:
                X = task.X_new.copy()
                X[:, j] = change(X[:, j], task.X[:, j])
                changed_scores.append(score(task, rule(X)))
            scores.append(worst_of(changed_scores))
        cells = " | ".join(f"{value:.3f}" for value in scores)
        lines.append(f"| {data_set}{metric_note} | {method} | {cells} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--data", type=Path, default=Path("build/leaderboard"))
    arguments = parser.parse_args()
    lines = [
        f"| set | method | unchanged | {' | '.join(CHANGES)} |",
        "| --- | --- |" + " ---: |" * (1 + len(CHANGES)),
    ]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in arguments.sets:
            lines += table_lines(name, tasks(name, arguments.data)[0])
    page = "\n\n".join([*ABOUT, "\n".join(lines)])
    Path(__file__).with_name("ENSEMBLE_STRESS.md").write_text(page + "\n")


if __name__ == "__main__":
    main()
