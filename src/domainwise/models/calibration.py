"""Prediction sets of tables' models: thresholds from left-out domains, as a file keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from domainwise.arrays import Array
from domainwise.calibration import quantiles
from domainwise.checks.warn import warn_caller
from domainwise.scoring.predictions import codes_of
from domainwise.tables.schema import TableError

#: Thresholds are kept for every whole per cent.
STEPS = 100


def calibrated(records: Sequence[Mapping[str, Any]], classes: Any) -> dict[str, Any]:
    """Sum up predictions for left-out domains, one record each, for sets on new domains.

    Records have ``domain``, ``target``, ``prediction`` and, of classes (in the order of columns),
    ``probabilities`` or ``decisions``. The result is for JSON: what is compared (``of``),
    thresholds for 1, 2 ... per cent as far as the number of domains allows, and the size of sets,
    or the width of intervals, at the usual coverage.
    """
    of, scores, of_target, domains = "value", [], [], []
    places: dict[Any, int] = {}
    for record in records:
        target = np.asarray(record["target"])
        if classes is None:
            mine = np.abs(target.astype(np.float64) - record["prediction"])[:, None]
            of_target.append(mine[:, 0])
        else:
            names = np.asarray(classes)
            of, mine = strangeness(record, names)
            of_target.append(mine[np.arange(len(target)), codes_of(target, names)])
        scores.append(mine)
        place = places.setdefault(record["domain"], len(places))
        domains.append(np.full(len(target), place))
    found = quantiles.DomainQuantiles.of(np.concatenate(of_target), np.concatenate(domains))
    n = found.n_domains
    allowed = [c for c in range(1, STEPS) if quantiles.needed_domains(c / STEPS) <= n]
    shown = quantiles.usual_coverage(n)
    reach = found.threshold(shown) if shown else np.inf
    size = 2 * reach
    if classes is not None:
        size = float(np.mean([(mine <= reach).sum(axis=1).mean() for mine in scores]))
    return {
        "promise": "approximate",
        "n_domains": n,
        "of": of,
        "thresholds": [found.threshold(c / STEPS) for c in allowed],
        "coverage": shown,
        "size": size if np.isfinite(size) else None,
    }


def strangeness(record: Mapping[str, Any], classes: Array) -> tuple[str, Array]:
    """How strange each class would be for each row, and what that is told from."""
    for of in ("probabilities", "decisions"):
        if record.get(of) is not None:
            return of, quantiles.class_scores(**{"probabilities": None, of: record[of]})
    return "prediction", 1.0 - np.eye(len(classes))[codes_of(record["prediction"], classes)]


def set_columns(
    calibration: Mapping[str, Any] | None, coverage: float, told: Mapping[str, Any], classes: Any
) -> dict[str, Array]:
    """Columns ``low`` and ``high`` of numbers, or ``in_set_...`` of each class.

    ``coverage`` is a whole number of per cent. ``told`` are functions without arguments, by name
    (``prediction``, ``probabilities``, ``decisions``), that return what the model says about the
    rows.
    """
    if calibration is None:
        raise TableError(
            "this model has no prediction sets: they come from its check on left-out domains, "
            "which was left out when it was fitted"
        )
    step = round(coverage * STEPS)
    needed, n = quantiles.needed_domains(coverage), calibration["n_domains"]
    if abs(coverage * STEPS - step) > 1e-6:
        raise ValueError(f"coverage={coverage} must be a whole number of per cent, such as 0.9")
    reach = np.inf
    if needed > n:
        warn_caller(
            f"coverage={coverage} needs {needed} domains that were left out, but there were {n}: "
            "everything is in the sets"
        )
    else:
        reach = float(calibration["thresholds"][step - 1])
    if classes is None:
        predicted = np.asarray(told["prediction"](), dtype=np.float64)
        return {"low": predicted - reach, "high": predicted + reach}
    of = calibration["of"]
    _, scores = strangeness({of: told[of]()}, np.asarray(classes))
    return {f"in_set_{c}": scores[:, i] <= reach for i, c in enumerate(classes)}


def sets_in_words(calibration: Mapping[str, Any]) -> str:
    """What prediction sets promise, and how large they are, in one line."""
    n, size, coverage = (calibration[name] for name in ("n_domains", "size", "coverage"))
    words = f"{calibration['promise']}, from {n} domains left out"
    if coverage is None or size is None:
        return words
    many = f"width {size:.3g}" if calibration["of"] == "value" else f"{size:.2g} classes"
    return f"{words}; {many} at {100 * coverage:.0f} %"
