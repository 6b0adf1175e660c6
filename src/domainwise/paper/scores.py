"""The measures of the tables: how they are named, printed and computed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, roc_auc_score, root_mean_squared_error

from domainwise.metrics import g_mean_score


@dataclass(frozen=True)
class Metric:
    """One measure: its name in tables, its direction, and the digits the paper prints."""

    key: str
    label: str
    digits: int
    greater_is_better: bool = True

    def format(self, mean: float, deviation: float | None = None) -> str:
        """Mean ± standard deviation as the paper prints them."""
        if not np.isfinite(mean):
            return "–"
        text = f"{mean:.{self.digits}f}"
        if deviation is None or not np.isfinite(deviation):
            return text
        return f"{text} ± {deviation:.{self.digits}f}"


METRICS = {
    metric.key: metric
    for metric in (
        Metric("accuracy", "accuracy (%)", 2),
        # Of predicted labels, which is how the paper computed its AUC: balanced accuracy.
        Metric("label_auc", "AUC of labels", 4),
        Metric("g_mean", "G-mean", 4),
        Metric("score_auc", "AUC of scores", 4),
        Metric("balanced_accuracy", "balanced accuracy", 4),
        Metric("rmse", "RMSE", 2, greater_is_better=False),
    )
}


def score_predictions(
    metrics: Iterable[str], y_true: NDArray, y_pred: NDArray, decision: NDArray | None = None
) -> dict[str, float]:
    """Every asked-for measure of one set of predictions, by key of ``METRICS``.

    Measures that are not defined here (AUC where one class occurs, or without decision values) are
    left out.

    >>> import numpy as np
    >>> y = np.array([0, 0, 1, 1])
    >>> score_predictions(["accuracy", "label_auc"], y, np.array([0, 1, 1, 1]))
    {'accuracy': 75.0, 'label_auc': 0.75}
    """
    scores: dict[str, float] = {}
    binary = len(np.unique(y_true)) == 2
    for key in metrics:
        if key == "accuracy":
            scores[key] = 100.0 * float(accuracy_score(y_true, y_pred))
        elif key == "g_mean":
            scores[key] = g_mean_score(y_true, y_pred)
        elif key == "balanced_accuracy" or (key == "label_auc" and binary):
            scores[key] = _mean_recall(y_true, y_pred)
        elif key == "rmse":
            scores[key] = float(root_mean_squared_error(y_true, y_pred))
        elif key == "score_auc" and binary and decision is not None:
            scores[key] = float(roc_auc_score(y_true, decision))
        elif key not in METRICS:
            raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {key!r}")
    return scores


def _mean_recall(y_true: NDArray, y_pred: NDArray) -> float:
    """Balanced accuracy, which is also the AUC of hard labels.

    Written out because scikit-learn's warns when a predicted class does not occur in y_true, as
    happens in a small unseen domain.
    """
    return float(np.mean([np.mean(y_pred[y_true == c] == c) for c in np.unique(y_true)]))
