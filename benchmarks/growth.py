"""Which method is best at new sites, by number of training rows: writes GROWTH.md.

    python benchmarks/growth.py --out RUN.jsonl --sets development confirmation [--jobs 16]
    python benchmarks/growth.py --report RUN.jsonl --note "the machine" --write

A case is a data set, a number of training rows, a group of held-out domains and a method. Domains
are dealt at random into four groups, of which the first ``GROUPS`` are held out in turn. Models
learn from rows of the other domains, thinned evenly by domain to the given size, and predict at
most 500 rows of each held-out domain. Every choice is made on source domains. Classes are predicted
for balanced accuracy, from unweighted probabilities: the largest ratio of a probability to the
class's share, or what the library's rule makes of it. Each case runs in its own process on one
thread, and its result is appended to a JSON-lines file; the same command continues an interrupted
run. LightGBM and CatBoost take part if they are installed. With two files, ``--report`` compares
two versions instead.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import replace_part
from scipy.stats import studentized_range
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, recall_score, roc_auc_score
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

REPORT = Path(__file__).resolve().with_name("GROWTH.md")
Result = dict[str, Any]
Predict = Callable[[Any, Any], tuple[Any, Any]]  #: rows, domains -> predictions, probabilities

DEALT_GROUPS, SCORED_ROWS, RARE_SHARE = 4, 500, 0.07
#: A data set with fewer rows than this share of a size is left out at this size.
LEAST_SHARE = 0.8
SIZES = (600, 2000, 20_000)
#: Held-out groups that are run by default, by size; `evaluate` costs most and runs fewer.
GROUPS = {600: 4, 2000: 4, 20_000: 2}
EVALUATE_GROUPS = {600: 2, 2000: 2, 20_000: 1}
#: Smallest probability of a class in log losses.
SMALLEST = 1e-6
#: Tree sizes and numbers of rounds from which boosting is chosen.
LEAVES, ROUNDS, RATE = (7, 31), (25, 50, 100, 200), 0.1


@dataclass(frozen=True)
class Source:
    """Where a data set is: its file, target and columns that are not features."""

    file: str
    target: str
    drop: tuple[str, ...] = ()
    classes: bool = True
    rare: bool = False  #: whether events are thinned to ``RARE_SHARE`` within each domain


_PARKINSONS = ("subject#", "age", "sex", "test_time", "total_UPDRS")
DEVELOPMENT = {
    "facies": Source("facies_hugoton_wells", "Facies", ("Formation", "Well Name", "Depth")),
    "gvhd": Source("gvhd_flowcap1", "t_cell", ("label",)),
    "parkinsons": Source("parkinsons_telemonitoring", "motor_UPDRS", _PARKINSONS, classes=False),
    "synthetic": Source("", "label"),
    "adult": Source("adult_occupations", "over_50k"),
    "adult_rare": Source("adult_occupations", "over_50k", rare=True),
    "bike": Source("bike_seasons", "log_count", classes=False),
    "communities": Source("communities_states", "log_violent_crimes", classes=False),
    "heart": Source("heart_hospitals", "label"),
    "impact_trials": Source("impact_trials", "dead"),
    "impact_rare": Source("impact_trials", "dead", rare=True),
    "large_adult": Source("large_adult_occupations", "over_50k"),
    "large_bike": Source("large_bike_seasons", "log_count", classes=False),
    "large_airbnb": Source("large_airbnb_cities", "log_price", classes=False),
    "large_beijing": Source("large_beijing_stations", "log_pm25", classes=False),
    # Its held-out losses were read when boosting's rates and rounds were chosen.
    "large_kc_house": Source("large_kc_house_zipcodes", "log_price", classes=False),
}
CONFIRMATION = {
    "landmine": Source("landmine", "label"),
    "oilwells": Source("oilwell_3w_real_60s", "label"),
    "cytof": Source("cytof_multicenter16_sub5000", "label"),
    "hipc": Source("hipc_tcell_flow", "label", ("population", "center", "patient", "replicate")),
    "shoppers": Source("shoppers_months", "Revenue"),
    "kc_house": Source("kc_house_zipcodes", "log_price", classes=False),
}
ALL_SETS = DEVELOPMENT | CONFIRMATION


@dataclass(frozen=True)
class Case:
    """One fit: a data set, a size, a group of held-out domains, and a method."""

    data: str
    size: int
    group: int
    method: str

    @property
    def cost(self) -> float:
        """Rough CPU seconds, by which cases are ordered, the longest first."""
        seconds = COSTS[self.method][SIZES.index(min(SIZES, key=lambda s: abs(s - self.size)))]
        return seconds * SLOW_SETS.get(self.data, 1.0)


#: CPU seconds of a case at 600, 2,000 and 20,000 rows on one core, and factors of slow sets.
COSTS = {
    "ensemble": (3.0, 6.0, 15.0),
    "evaluate": (40.0, 90.0, 150.0),
    "ridge": (1.0, 1.5, 4.0),
    "boosting": (1.3, 2.5, 10.0),
    "lightgbm": (2.0, 4.0, 15.0),
    "catboost": (10.0, 15.0, 60.0),
    "linear": (0.1, 0.2, 2.0),
    "svm": (1.0, 8.0, 800.0),
    "coir": (0.5, 4.0, 60.0),
    "dcmcv": (1.0, 8.0, 120.0),
    "invariant": (2.0, 15.0, 1500.0),
}
SLOW_SETS = {"facies": 1.5, "hipc": 1.5, "cytof": 1.5, "communities": 1.5}


def make_synthetic() -> pd.DataFrame:
    """Domains of the paper: rotations and class frequencies differ, but not the rule."""
    from domainwise.datasets import make_synthetic

    bunch = make_synthetic(0.1, n_per_domain=300, random_state=0)
    frame = pd.DataFrame(bunch.data).add_prefix("x")
    return frame.assign(domain=bunch.sample_domain, label=bunch.target)


def read(name: str) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Features (text as strings), target and domains of a data set."""
    source = ALL_SETS[name]
    folder = Path(os.environ.get("DOMAINWISE_DATA", "../shared/data"))
    if not source.file:
        table = make_synthetic()
    elif (path := folder / f"{source.file}.csv.gz").exists():
        table = pd.read_csv(path, low_memory=False)
    else:
        table = pd.read_parquet(folder / f"{source.file}.parquet")
    table = table.dropna(subset=[source.target])
    if name == "facies":
        table = table[table["domain"] != "Recruit F9"]  # 80 rows of a single class
    if name == "oilwells":  # as load_oilwells in reproduction/data.py
        columns = [c for c in table if c.startswith(("P-TPT", "T-TPT"))]
        table = table[table["event_class"].isin((2, 6))][["domain", source.target, *columns]]
        table = table.dropna()
    if source.rare:
        table = table.iloc[rare_rows(table["domain"], table[source.target])]
    y = table[source.target].to_numpy()
    if source.classes:
        y = np.unique(y.astype(str) if y.dtype.kind not in "iu" else y, return_inverse=True)[1]
    X = table.drop(columns=["domain", source.target, *source.drop]).reset_index(drop=True)
    text = [c for c in X if X[c].dtype.kind not in "iufb"]
    X[text] = X[text].astype(object)
    return X, y, table["domain"].astype(str).to_numpy()


def rare_rows(domain: pd.Series, target: pd.Series) -> np.ndarray:
    """Indices of rows after thinning the rarer class to ``RARE_SHARE`` of each domain."""
    rng = np.random.default_rng(0)
    counts = target.value_counts()
    is_event = (target == counts.index[-1]).to_numpy()
    kept = ~is_event
    for label in pd.unique(domain):
        rows = (domain == label).to_numpy()
        events, n_others = np.flatnonzero(rows & is_event), int((rows & ~is_event).sum())
        most = round(RARE_SHARE / (1 - RARE_SHARE) * n_others)
        kept[rng.permutation(events)[:most]] = True
    return np.flatnonzero(kept)


def thin(domain: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of at most ``most`` rows, the same number from each domain as far as possible."""
    counts = dict(zip(*np.unique(domain, return_counts=True), strict=True))
    left, quota = most, {}
    for number, label in enumerate(sorted(counts, key=counts.__getitem__)):
        quota[label] = min(counts[label], left // (len(counts) - number))
        left -= quota[label]
    drawn = [
        rng.permutation(np.flatnonzero(domain == label))[:rows] for label, rows in quota.items()
    ]
    return np.sort(np.concatenate(drawn))


@dataclass(frozen=True)
class Task:
    """Rows of one case; ``numbers`` are features as numbers, with text as indicator columns."""

    frame: pd.DataFrame
    numbers: np.ndarray
    y: np.ndarray
    domain: np.ndarray
    train: np.ndarray
    test: np.ndarray
    n_classes: int  #: 0 for a continuous target
    event: int  #: the rarest class

    @property
    def sources(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Training rows as numbers, their targets and domains."""
        return self.numbers[self.train], self.y[self.train], self.domain[self.train]


def make_task(case: Case) -> Task | None:
    """Rows of a case; None if the data set is too small for its size."""
    frame, y, domain = read(case.data)
    if len(y) < LEAST_SHARE * case.size:
        return None
    labels = np.unique(domain)
    order = np.random.default_rng(7).permutation(labels)
    held_out = order[case.group :: DEALT_GROUPS]
    rng = np.random.default_rng([case.group, case.size])
    is_test = np.isin(domain, held_out)
    if not len(held_out) or len(labels) - len(held_out) < 2:
        return None
    train, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    train = train[thin(domain[train], case.size, rng)]
    scored_rng = np.random.default_rng(case.group)  # the same rows are scored at all sizes
    parts = [
        scored_rng.permutation(test[domain[test] == label])[:SCORED_ROWS] for label in held_out
    ]
    numbers = pd.get_dummies(frame).to_numpy(dtype=np.float64)
    counts = np.bincount(y) if ALL_SETS[case.data].classes else np.zeros(0)
    event = int(np.argmin(counts)) if len(counts) else 0
    arguments = (train, np.sort(np.concatenate(parts)), len(counts), event)
    return Task(frame, numbers, y, domain, *arguments)


# ------------------------------------------------------------------------------------- scores


def domain_scores(task: Task, predict: Predict, rows: Any, *, context: bool) -> dict[str, Result]:
    """Scores on each held-out domain; ``rows`` are the features of the test rows."""
    y, domain = task.y[task.test], task.domain[task.test]
    predicted, p = predict(rows, domain if context else None)
    return {
        str(label): (
            class_scores(task, y[at], predicted[at], None if p is None else p[at])
            if task.n_classes
            else number_scores(y[at], predicted[at])
        )
        for label in np.unique(domain)
        for at in [domain == label]
    }


def number_scores(y: np.ndarray, predicted: np.ndarray) -> Result:
    """RMSE, R² and bias on one domain."""
    errors = predicted - y
    rmse, variance = float(np.sqrt(np.mean(errors**2))), float(np.var(y))
    r2 = 1 - rmse**2 / variance if variance else math.nan
    mae = float(np.mean(np.abs(errors)))
    return {"n": len(y), "rmse": rmse, "mae": mae, "r2": r2, "bias": float(np.mean(errors))}


def class_scores(task: Task, y: np.ndarray, predicted: np.ndarray, p: np.ndarray | None) -> Result:
    """Scores of predicted classes and probabilities on one domain; NaN where undefined."""
    present = np.unique(y)
    several, balanced = len(present) > 1, math.nan
    if several:
        recall = recall_score(y, predicted, labels=present, average="macro", zero_division=0)
        balanced = float(recall)
    scores: Result = {
        "n": len(y),
        "accuracy": float(accuracy_score(y, predicted)),
        "balanced_accuracy": balanced,
        "observed": float(np.mean(y == task.event)),
    }
    if p is None:
        return scores
    p = np.clip(p, SMALLEST, None)
    p = p / p.sum(axis=1, keepdims=True)
    indicators = np.eye(task.n_classes)[y]
    scores["log_loss"] = float(-np.mean(np.log(p[np.arange(len(y)), y])))
    scores["brier"] = float(np.mean(np.sum((p - indicators) ** 2, axis=1)))
    scores["mean_p"] = float(np.mean(p[:, task.event]))
    scores["auc"] = math.nan
    if task.n_classes == 2:
        scores["brier"] /= 2
        if several:
            scores["auc"] = float(roc_auc_score(y == task.event, p[:, task.event]))
    return scores


def source_shares(task: Task) -> np.ndarray:
    """Mean over source domains of the share of each class."""
    _, y, domain = task.sources
    shares = [np.bincount(y[domain == d], minlength=task.n_classes) for d in np.unique(domain)]
    return np.maximum(np.mean([s / s.sum() for s in shares], axis=0), SMALLEST)


def all_columns(p: Any, classes: Any, n_classes: int) -> np.ndarray:
    """Probabilities of all classes, 0 for classes that the model has not seen."""
    complete = np.zeros((len(p), n_classes))
    complete[:, np.asarray(classes, dtype=int)] = p
    return complete


def coverage(scores: dict[str, Result], ends: Any, metric: str) -> list[bool] | None:
    """Whether each held-out domain's score is within the expected range."""
    if ends is None or metric not in next(iter(scores.values())):
        return None
    low, high = sorted(map(float, ends))
    return [low <= s[metric] <= high for s in scores.values() if math.isfinite(s[metric])]


# -------------------------------------------------------------------------------------- models


def ours(model: Any, task: Task) -> Predict:
    """Predictions of a model of domainwise, with or without domains."""

    def predict(rows: Any, domain: Any) -> tuple[Any, Any]:
        options = {} if domain is None else {"sample_domain": domain}
        predicted, p = np.asarray(model.predict(rows, **options)), None
        if task.n_classes and hasattr(model, "predict_proba"):
            p = all_columns(
                np.asarray(model.predict_proba(rows, **options)), model.classes_, task.n_classes
            )
        return predicted, p

    return predict


def run_ensemble(task: Task) -> dict[str, Result]:
    """The ensemble with its defaults, row by row and with context."""
    from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor

    X, y, domain = task.sources
    model: Any = DomainEnsembleRegressor()
    if task.n_classes:
        model = DomainEnsembleClassifier(decision="balanced")
    model.fit(X, y, sample_domain=domain)
    results = {}
    for name, prefix in (("ensemble", ""), ("ensemble+context", "context_")):
        scores = domain_scores(
            task, ours(model, task), task.numbers[task.test], context=bool(prefix)
        )
        expected = np.asarray(getattr(model, f"{prefix}expected_score_"), dtype=float)
        ends = getattr(model, f"{prefix}expected_range_")
        metric = "balanced_accuracy" if task.n_classes else "rmse"
        if task.n_classes and expected[0] < 0:
            metric = "log_loss"
        if ends is not None and metric in ("rmse", "log_loss"):
            ends = np.abs(ends)  # losses may be reported as negative scores
        weights = getattr(model, f"{prefix}weights_")
        results[name] = {
            "domains": scores,
            "weights": {key: float(weight) for key, weight in weights.items()},
            "expected": expected.tolist(),
            "range": None if ends is None else [float(end) for end in ends],
            "range_metric": metric,
            "inside": coverage(scores, ends, metric),
        }
    return results


def run_ridge(task: Task) -> dict[str, Result]:
    """``InvariantRidge…CV`` with its defaults, on standardized columns."""
    from domainwise.selection import InvariantRidgeClassifierCV, InvariantRidgeCV

    _, y, domain = task.sources
    Z, Z_test = standardized(task)
    model: Any = InvariantRidgeCV()
    if task.n_classes:
        model = InvariantRidgeClassifierCV(decision="balanced")
    model.fit(Z, y, sample_domain=domain)
    return {"ridge": {"domains": domain_scores(task, ours(model, task), Z_test, context=False)}}


def run_method(task: Task, name: str) -> dict[str, Result]:
    """A method of ``evaluate``, with its search, on standardized columns."""
    from domainwise.models.registry import METHODS, Setting

    _, y, domain = task.sources
    Z, Z_test = standardized(task)
    metric = "balanced_accuracy" if task.n_classes else "neg_root_mean_squared_error"
    model = METHODS[name].make(Setting(bool(task.n_classes), len(y), metric=metric))
    model.fit(Z, y, sample_domain=domain)
    return {name: {"domains": domain_scores(task, ours(model, task), Z_test, context=False)}}


#: Names of measured scores, by the names of scikit-learn's scorers.
METRICS = {
    "neg_root_mean_squared_error": "rmse",
    "neg_mean_absolute_error": "mae",
    "roc_auc": "auc",
    "neg_log_loss": "log_loss",
    "neg_brier_score": "brier",
}


def run_evaluate(task: Task) -> dict[str, Result]:
    """``evaluate`` with its defaults; then the recommended method, fitted to all training rows."""
    from domainwise import evaluate

    y, domain = task.y[task.train], task.domain[task.train]
    rows = task.frame.iloc[task.train].reset_index(drop=True)
    started = time.perf_counter()
    evaluation = evaluate(rows, y, domain, progress=False, n_jobs=1, task=task_name(task))
    seconds = time.perf_counter() - started
    content = evaluation.to_dict()
    recommended = content["recommended"]
    model = evaluation.fit()
    context = "context" in recommended
    scores = domain_scores(
        task, ours(model, task), task.frame.iloc[task.test].reset_index(drop=True), context=context
    )
    name = content["measure"]["name"]
    metric = METRICS.get(name, name)
    answer = content["answer"]
    ends = answer.get("range")
    ends = None if ends is None or None in ends else [float(end) for end in ends]
    means = {m["key"]: m["mean"] for m in content["methods"]}
    result = {
        "domains": scores,
        "recommended": recommended,
        "means": means,
        "expected": [means.get(recommended)],
        "range": ends,
        "range_metric": metric,
        "inside": coverage(scores, ends, metric),
        "evaluate_seconds": seconds,
    }
    return {"evaluate": result}


def task_name(task: Task) -> str:
    """Name of the task in ``evaluate``."""
    return "classification" if task.n_classes else "regression"


def standardized(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows with source means in place of gaps, standardized."""
    X = task.numbers[task.train]
    means = np.nanmean(X, axis=0)
    fill = np.where(np.isfinite(means), means, 0.0)
    parts = [np.where(np.isnan(part), fill, part) for part in (X, task.numbers[task.test])]
    scaler = StandardScaler().fit(parts[0])
    return scaler.transform(parts[0]), scaler.transform(parts[1])


def loss(y: np.ndarray, output: np.ndarray) -> float:
    """Log loss of probabilities (with classes as columns), or mean squared error."""
    if output.ndim == 1:
        return float(np.mean((output - y) ** 2))
    p = np.clip(output[np.arange(len(y)), y], SMALLEST, None)
    return float(-np.mean(np.log(p)))


Fitted = Callable[[np.ndarray], list[np.ndarray]]  #: rows -> outputs, one for each candidate


def tuned(
    task: Task, X: np.ndarray, rows: np.ndarray, fits: Sequence[Callable[..., Fitted]]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Outputs for ``rows`` by the candidate that is best on five groups of held-out domains.

    Each function in ``fits`` is fitted once and gives several candidates. Classes are decided by
    the largest ratio of a probability to the class's mean share in the source domains.
    """
    _, y, domain = task.sources
    folds = GroupKFold(min(5, len(np.unique(domain))))
    losses: list[np.ndarray] = []
    for fit in fits:
        totals = []
        for train, test in folds.split(X, y, domain):
            outputs = fit(task, X[train], y[train])(X[test])
            totals.append([loss(y[test], output) * len(test) for output in outputs])
        losses.append(np.sum(totals, axis=0))
    best = min(range(len(fits)), key=lambda i: losses[i].min())
    output = fits[best](task, X, y)(rows)[int(np.argmin(losses[best]))]
    if not task.n_classes:
        return output, None
    return np.argmax(output / source_shares(task), axis=1), output


def run_rival(task: Task, name: str) -> dict[str, Result]:
    """A standard method, tuned on groups of source domains."""
    if name == "linear":
        X, rows = standardized(task)
        fits: list[Any] = [linear_fit]
    else:
        X, rows = task.numbers[task.train], task.numbers[task.test]
        make = {"boosting": boosting_fit, "lightgbm": lightgbm_fit, "catboost": catboost_fit}[name]
        fits = [make(leaves) for leaves in LEAVES]
    outputs = tuned(task, X, rows, fits)
    return {name: {"domains": domain_scores(task, lambda *_: outputs, rows, context=False)}}


def linear_fit(task: Task, X: np.ndarray, y: np.ndarray) -> Fitted:
    """Logistic or ridge regression with four penalties."""
    if not task.n_classes:
        models = [Ridge(alpha).fit(X, y) for alpha in (1.0, 10.0, 100.0, 1000.0)]
        return lambda rows: [model.predict(rows) for model in models]
    logistic = [LogisticRegression(C=c, max_iter=300).fit(X, y) for c in (0.01, 0.1, 1.0, 10.0)]
    return lambda rows: [
        all_columns(m.predict_proba(rows), m.classes_, task.n_classes) for m in logistic
    ]


def boosting_fit(leaves: int) -> Callable[..., Fitted]:
    """Scikit-learn's boosting after several numbers of rounds."""

    def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Fitted:
        options: Any = {"max_leaf_nodes": leaves, "max_iter": ROUNDS[-1], "learning_rate": RATE}
        options |= {"early_stopping": False, "random_state": 0}
        if not task.n_classes:
            model: Any = HistGradientBoostingRegressor(**options).fit(X, y)
            stages: Any = model.staged_predict
        else:
            model = HistGradientBoostingClassifier(**options).fit(X, y)
            stages = model.staged_predict_proba

        def outputs(rows: np.ndarray) -> list[np.ndarray]:
            kept = [o for i, o in enumerate(stages(rows), start=1) if i in ROUNDS]
            if not task.n_classes:
                return kept
            return [all_columns(o, model.classes_, task.n_classes) for o in kept]

        return outputs

    return fit


def lightgbm_fit(leaves: int) -> Callable[..., Fitted]:
    """LightGBM after several numbers of rounds."""

    def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Fitted:
        import lightgbm

        model_type = lightgbm.LGBMClassifier if task.n_classes else lightgbm.LGBMRegressor
        model = model_type(
            num_leaves=leaves, n_estimators=ROUNDS[-1], learning_rate=RATE, n_jobs=1, verbose=-1
        ).fit(X, y)
        return lambda rows: staged(task, model, rows, "num_iteration")

    return fit


def catboost_fit(leaves: int) -> Callable[..., Fitted]:
    """CatBoost with trees of about this many leaves, after several numbers of rounds."""

    def fit(task: Task, X: np.ndarray, y: np.ndarray) -> Fitted:
        import catboost

        model_type = catboost.CatBoostClassifier if task.n_classes else catboost.CatBoostRegressor
        options = {"depth": leaves.bit_length(), "iterations": ROUNDS[-1], "learning_rate": RATE}
        model = model_type(**options, thread_count=1, verbose=0, allow_writing_files=False)
        return lambda rows: staged(task, model.fit(X, y), rows, "ntree_end")

    return fit


def staged(task: Task, model: Any, rows: np.ndarray, argument: str) -> list[np.ndarray]:
    """Outputs of a model after each number of rounds."""
    if not task.n_classes:
        return [np.asarray(model.predict(rows, **{argument: n})) for n in ROUNDS]
    return [
        all_columns(model.predict_proba(rows, **{argument: n}), model.classes_, task.n_classes)
        for n in ROUNDS
    ]


#: Columns of tables.
ORDER = ("linear", "svm", "boosting", "lightgbm", "catboost", "coir", "dcmcv", "invariant", "ridge")
ORDER += ("ensemble", "ensemble+context")
OURS = {"ensemble": run_ensemble, "ridge": run_ridge, "evaluate": run_evaluate}
RIVALS = ("boosting", "lightgbm", "catboost", "linear")
#: Methods of ``evaluate`` that cannot use many rows; they are run up to 2,000 rows.
SMALL = ("svm", "coir", "dcmcv", "invariant")
ONLY = {
    "ensemble": ("ensemble", "ridge"),
    "evaluate": ("evaluate",),
    "rivals": RIVALS,
    "small": SMALL,
}


# --------------------------------------------------------------------------------------- runs


def run_case(case: Case, path: Path) -> None:
    """Run a case, and append its result (or the error) to the file."""
    warnings.simplefilter("ignore")
    line: Result = dict(vars(case))
    try:
        task = make_task(case)
        if task is None:
            line["skipped"] = True
        else:
            line |= {"n_train": len(task.train), "n_sources": len(np.unique(task.sources[2]))}
            started, cpu = time.perf_counter(), cpu_seconds()
            run = OURS.get(case.method)
            by_name = run_method if case.method in SMALL else run_rival
            line["results"] = run(task) if run else by_name(task, case.method)
            line["seconds"] = time.perf_counter() - started
            line["cpu"] = cpu_seconds() - cpu
            line["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    except Exception:
        line["error"] = traceback.format_exc()
    text = json.dumps(line, default=float) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, text.encode())
    os.close(descriptor)
    status = "error" if "error" in line else "skipped" if "skipped" in line else "done"
    print(f"{status} {line.get('seconds', 0):6.1f} s  {vars(case)}", flush=True)


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def read_lines(path: Path) -> list[Result]:
    """Finished cases of a file; a line that was cut off is ignored."""
    lines = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def key_of(line: Result) -> tuple[Any, ...]:
    """What identifies a case."""
    return tuple(line[name] for name in ("data", "size", "group", "method"))


def run_all(cases: Sequence[Case], path: Path, jobs: int, limit: float) -> None:
    """Run cases in processes of their own, the longest first, until the time limit.

    Processes are forked, so that imports are not repeated; those that still run at the limit end.
    """
    done = {key_of(line) for line in read_lines(path) if "error" not in line}
    waiting = [case for case in cases if tuple(vars(case).values()) not in done]
    waiting.sort(key=lambda case: case.cost)
    print(f"{len(waiting)} cases, about {sum(c.cost for c in waiting):.0f} CPU seconds", flush=True)
    threadpool_limits(1)
    started, running = time.perf_counter(), set[int]()
    import domainwise.selection  # noqa: F401  (imported once, before the forks)

    while waiting or running:
        if time.perf_counter() - started > limit:
            print(f"stopped; {len(waiting) + len(running)} cases are missing", flush=True)
            for child in running:
                os.kill(child, 9)
                os.waitpid(child, 0)
            return
        while waiting and len(running) < jobs:
            child = os.fork()
            if child == 0:
                run_case(waiting[-1], path)
                sys.stdout.flush()
                os._exit(0)
            waiting.pop()
            running.add(child)
        time.sleep(0.05)
        running -= {child for child in running if os.waitpid(child, os.WNOHANG)[0]}


def plan(arguments: argparse.Namespace) -> Iterator[Case]:
    """Cases of a run."""
    methods = [m for name in arguments.only for m in ONLY[name]]
    missing = [m for m in ("lightgbm", "catboost") if find_spec(m) is None]
    for name in arguments.sets:
        for size in arguments.sizes:
            for method in methods:
                groups = (EVALUATE_GROUPS if method == "evaluate" else GROUPS).get(size, 4)
                too_large = size > 2000 and (name == "landmine" or method in SMALL)
                if method not in missing and not too_large:
                    n_groups = min(arguments.groups or groups, DEALT_GROUPS)
                    yield from (Case(name, size, group, method) for group in range(n_groups))


# -------------------------------------------------------------------------------------- report


@dataclass(frozen=True)
class Summary:
    """All measured domains of one method on one data set at one size."""

    domains: dict[tuple[int, str], Result]  #: scores by group and domain
    cpu: float
    seconds: float
    peak: float
    inside: list[bool]
    choices: list[str]  #: recommended methods, for `evaluate`

    def values(self, metric: str) -> dict[tuple[int, str], float]:
        """Defined values of a metric by domain."""
        values = {key: s.get(metric) for key, s in self.domains.items()}
        return {k: v for k, v in values.items() if v is not None and math.isfinite(v)}

    def mean(self, metric: str) -> float:
        """Mean over domains; NaN if undefined everywhere."""
        values = self.values(metric).values()
        return statistics.fmean(values) if values else math.nan

    def worst(self, metric: str) -> float:
        """Score on the worst domain."""
        worst = max if metric == "rmse" else min
        return worst(self.values(metric).values(), default=math.nan)

    def error(self, metric: str) -> float:
        """Standard error of the mean over domains."""
        return standard_error(list(self.values(metric).values()))

    @property
    def ratio(self) -> float:
        """Mean predicted probability of the event over its observed share."""
        observed = self.mean("observed")
        return self.mean("mean_p") / observed if observed else math.nan


def standard_error(values: Sequence[float]) -> float:
    """Standard error of a mean."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


Key = tuple[str, int, str]  #: data set, size, method


def finished(path: Path) -> dict[tuple[Any, ...], Result]:
    """Finished cases of a file."""
    return {key_of(line): line for line in read_lines(path) if "results" in line}


def complete(cases: Iterable[Result]) -> list[Result]:
    """Cases of groups that all methods of a size have finished."""
    kept, methods, finished_by = [*cases], defaultdict(set), defaultdict(set)
    for line in kept:
        methods[line["size"]].add(line["method"])
        finished_by[line["data"], line["size"], line["group"]].add(line["method"])
    return [
        line
        for line in kept
        if finished_by[line["data"], line["size"], line["group"]] >= methods[line["size"]]
    ]


def summarize(cases: Iterable[Result]) -> dict[Key, Summary]:
    """Summaries by data set, size and method; context shares the ensemble's cost."""
    lines: dict[Key, list[tuple[Result, Result]]] = defaultdict(list)
    for line in cases:
        for method, result in line["results"].items():
            lines[line["data"], line["size"], method].append((line, result))
    return {
        key: Summary(
            {(ln["group"], d): s for ln, result in pairs for d, s in result["domains"].items()},
            statistics.fmean(ln["cpu"] for ln, _ in pairs),
            statistics.fmean(ln["seconds"] for ln, _ in pairs),
            max(ln["peak"] for ln, _ in pairs),
            [flag for _, result in pairs for flag in result.get("inside") or ()],
            [result["recommended"] for _, result in pairs if "recommended" in result],
        )
        for key, pairs in lines.items()
    }


def main_metric(data: str) -> str:
    """The metric by which methods are ranked."""
    return "balanced_accuracy" if ALL_SETS[data].classes else "rmse"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float, form: str = ".3f") -> str:
    """A number as text, or a dash if it is undefined."""
    return format(value, form) if math.isfinite(value) else "–"


def share(flags: Sequence[bool]) -> str:
    """Share of domains inside their range, with the number of domains."""
    return f"{statistics.fmean(flags):.2f} of {len(flags)}" if flags else "–"


def overview(runs: Sequence[dict[Key, Summary]], names: Sequence[str]) -> str:
    """Means over data sets by size and method, for each run."""
    rows = []
    keys = sorted({(size, method) for run in runs for _, size, method in run})
    for size, method in keys:
        for run, name in zip(runs, names, strict=True):
            found = {d: s for (d, n, m), s in run.items() if (n, m) == (size, method)}
            ratios = [s.ratio for s in found.values() if s.ratio > 0]
            extremes = "–"
            if ratios:
                center = math.exp(statistics.fmean(map(math.log, ratios)))
                extremes = f"{center:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            classes = [s for s in found.values() if s.ratio > 0]
            cells = [f"{size:,}", method, name, str(len(found))]
            cells += [number(mean_of(classes, m)) for m in ("balanced_accuracy", "auc", "log_loss")]
            cells += [extremes, share([f for s in found.values() for f in s.inside])]
            cells += [f"{sum(s.cpu for s in found.values()):,.0f}"] if found else ["–"]
            rows.append(cells)
    header = ["rows", "method", "run", "sets", "balanced accuracy", "AUC", "log loss"]
    return table([*header, "mean p / observed", "inside range", "CPU s, all sets"], rows)


def mean_of(summaries: Sequence[Summary], metric: str) -> float:
    """Mean over data sets of the mean over domains."""
    values = [v for s in summaries if math.isfinite(v := s.mean(metric))]
    return statistics.fmean(values) if values else math.nan


#: Names in tables.
LABELS = {
    "ensemble+context": "ensemble with context",
    "ridge": "InvariantRidge",
    "invariant": "InvariantSVC/SVR",
    "dcmcv": "DCMCV",
    "coir": "COIR",
    "svm": "SVM",
    "lightgbm": "LightGBM",
    "catboost": "CatBoost",
}


def ranked_sets(run: dict[Key, Summary], size: int, names: Iterable[str]) -> tuple[Any, Any]:
    """Methods at a size, and the data sets among ``names`` that all of them have finished."""
    methods = sorted({m for _, n, m in run if n == size and m != "evaluate"})
    sets = [d for d in names if all((d, size, m) in run for m in methods)]
    return methods, sets


@dataclass
class Standing:
    """A method at a size: its average ranks, gains over boosting by data set, and cost."""

    rank: float
    worst_rank: float
    gains: dict[str, list[float]]  #: "points", "rmse" and "log_loss", the last two in per cent
    cpu: float


@dataclass
class Standings:
    """All methods at a size, the best first."""

    methods: dict[str, Standing]
    sets: list[str]

    @property
    def n_ranked(self) -> int:
        """Number of methods that are ranked together."""
        return len(self.methods) - ("ensemble+context" in self.methods)

    @property
    def critical(self) -> float:
        """Critical difference of average ranks (Nemenyi, 5 %)."""
        k = self.n_ranked
        quantile = studentized_range.ppf(0.95, k, np.inf)
        return float(quantile * math.sqrt(k * (k + 1) / (12 * len(self.sets))))


def standings(run: dict[Key, Summary], size: int, names: Iterable[str]) -> Standings:
    """Rank methods, each variant of the ensemble without the other, and compare with boosting."""
    methods, sets = ranked_sets(run, size, names)
    columns: dict[str, list[tuple[float, float]]] = defaultdict(list)
    gains: dict[str, dict[str, list[float]]] = {m: defaultdict(list) for m in methods}
    for data in sets:
        is_error = not ALL_SETS[data].classes
        sign, metric = (-1 if is_error else 1), main_metric(data)
        of = {m: run[data, size, m] for m in methods}
        means = {m: sign * of[m].mean(metric) for m in methods}
        worst = {m: sign * of[m].worst(metric) for m in methods}
        for method in methods:
            twin = {"ensemble": "ensemble+context", "ensemble+context": "ensemble"}.get(method)
            by_mean, by_worst = (
                rank({m: v for m, v in values.items() if m != twin}, method)
                for values in (means, worst)
            )
            columns[method].append((by_mean, by_worst))
            scale = 100 / abs(means["boosting"]) if is_error else 100
            kind = "rmse" if is_error else "points"
            gains[method][kind].append(scale * (means[method] - means["boosting"]))
            if not is_error and math.isfinite(of[method].mean("log_loss")):
                change = of[method].mean("log_loss") / of["boosting"].mean("log_loss") - 1
                gains[method]["log_loss"].append(100 * change)
    by_method = {}
    for method in methods:
        by_mean, by_worst = (statistics.fmean(c) for c in zip(*columns[method], strict=True))
        seconds = statistics.median(run[d, size, method].cpu for d in sets)
        by_method[method] = Standing(by_mean, by_worst, gains[method], seconds)
    order = sorted(by_method, key=lambda m: by_method[m].rank)
    return Standings({m: by_method[m] for m in order}, sets)


def ranks(found: Standings) -> str:
    """Average ranks, and gains over boosting, at a size."""
    rows = []
    for method, standing in found.methods.items():
        cells = [LABELS.get(method, method), f"{standing.rank:.1f}", f"{standing.worst_rank:.1f}"]
        gains = [gain_text(standing.gains[kind]) for kind in ("points", "rmse", "log_loss")]
        cells += gains if method != "boosting" else [""] * 3
        rows.append([*cells, f"{standing.cpu:.1f}"])
    header = ["", "average rank", "rank by worst domain", "balanced accuracy, points"]
    header += ["reduction of RMSE, %", "log loss, %", "CPU s"]
    n_classes = sum(ALL_SETS[data].classes for data in found.sets)
    caption = (
        f"{found.n_ranked} methods on {n_classes} data sets with classes and "
        f"{len(found.sets) - n_classes} with a continuous target. Average ranks that differ by "
        f"less than {found.critical:.1f} (the critical difference) do not differ significantly."
    )
    return f"{table(header, rows)}\n\n{caption}"


def signed(value: float) -> str:
    """A number with its sign and one decimal, without a negative zero."""
    return f"{round(value, 1) + 0.0:+.1f}"


def gain_text(gains: Sequence[float]) -> str:
    """Median of gains; from five data sets on, with a 95 % bootstrap interval of the median."""
    if not gains:
        return "–"
    median = signed(statistics.median(gains))
    if len(gains) < 5:
        return median
    draws = np.random.default_rng(0).choice(gains, (2000, len(gains)))
    low, high = np.quantile(np.median(draws, axis=1), [0.025, 0.975])
    return f"{median} ({signed(low)} to {signed(high)})"


def summary_table(by_size: dict[int, Standings]) -> str:
    """Average ranks and median gains at all sizes; README shows this table."""
    largest = by_size[max(by_size)]
    first = next(iter(by_size.values()))
    methods = sorted(first.methods, key=lambda m: (m not in largest.methods, first.methods[m].rank))
    rows = []
    for method in methods:
        cells = [LABELS.get(method, method)]
        for found in by_size.values():
            standing = found.methods.get(method)
            if standing is None:
                cells.append("–")
                continue
            points, rmse = (
                signed(statistics.median(standing.gains[kind])) for kind in ("points", "rmse")
            )
            gain = "" if method == "boosting" else f" ({points} points, {rmse} %)"
            cells.append(f"{standing.rank:.1f}{gain}")
        rows.append(cells)
    rows.append(["critical difference", *(f"{found.critical:.1f}" for found in by_size.values())])
    header = ["", *(f"{n:,} rows, {len(f.sets)} data sets" for n, f in by_size.items())]
    return table(header, rows)


def answer(by_size: dict[int, Standings]) -> str:
    """The first sentence of the report."""
    texts, n_significant = [], 0
    for size, found in by_size.items():
        ensembles = [m for m in found.methods if m.startswith("ensemble")]
        best, other = [m for m in found.methods if m not in ensembles[1:]][:2]
        ranks_of = {m: found.methods[m].rank for m in (best, other)}
        names = [f"{LABELS.get(m, m)} ({r:.1f})" for m, r in ranks_of.items()]
        n_significant += ranks_of[other] - ranks_of[best] >= found.critical
        texts.append(f"{' and '.join(names)} with {size:,} rows")
    chance = "None" if not n_significant else f"{n_significant} of {len(texts)}"
    return (
        f"By average rank, the two best methods are {'; '.join(texts)}. {chance} of these "
        "differences is larger than chance would give."
    )


def rank(scores: dict[str, float], method: str) -> float:
    """Rank of a method, 1 for the largest score; equal scores share a rank."""
    values, own = list(scores.values()), scores[method]
    return sum(v > own for v in values) + (sum(v == own for v in values) + 1) / 2


def one_run(run: dict[Key, Summary]) -> Iterator[str]:
    """A table of scores for each size: a row for each data set, a column for each method."""
    for size in sorted({n for _, n, _ in run}):
        methods = [m for m in ORDER if any((d, size, m) in run for d in ALL_SETS)]
        for title, read_score in (
            ("Means over domains", Summary.mean),
            ("Worst domains", Summary.worst),
        ):
            rows = []
            for data in ALL_SETS:
                metric, found = main_metric(data), {m: run.get((data, size, m)) for m in methods}
                if not any(found.values()):
                    continue
                scores = {m: read_score(s, metric) for m, s in found.items() if s}
                best = (min if metric == "rmse" else max)(scores.values())
                cells = [f"{data} (RMSE)" if metric == "rmse" else data]
                for method in methods:
                    text = number(scores.get(method, math.nan))
                    cells.append(f"**{text}**" if scores.get(method) == best else text)
                rows.append(cells)
            header = [f"{size:,} rows", *(LABELS.get(m, m) for m in methods)]
            yield f"{title}:\n\n{table(header, rows)}"


def by_set(runs: Sequence[dict[Key, Summary]], names: Sequence[str]) -> Iterator[str]:
    """One table for each data set and size; the second run also shows its paired difference."""
    for data, size in sorted({(d, n) for run in runs for d, n, _ in run}):
        metric, rows = main_metric(data), []
        for method in sorted({m for run in runs for d, n, m in run if (d, n) == (data, size)}):
            for run, name in zip(runs, names, strict=True):
                if (data, size, method) not in run:
                    continue
                summary = run[data, size, method]
                score = f"{number(summary.mean(metric))} ± {number(summary.error(metric))}"
                cells = [method, name, score]
                cells += [number(summary.worst(metric))]
                cells += (
                    [difference(runs, (data, size, method), metric)] if run is runs[-1] else [""]
                )
                cells += [number(summary.mean(m)) for m in ("auc", "log_loss", "brier")]
                cells += [number(summary.mean("mean_p")), number(summary.mean("observed"))]
                cells += [
                    share(summary.inside),
                    f"{summary.cpu:.1f}",
                    f"{summary.seconds:.1f}",
                    f"{summary.peak / 2**20:.0f}",
                ]
                rows.append([*cells, " ".join(summary.choices)])
        title = "RMSE" if metric == "rmse" else "balanced accuracy"
        header = ["method", "run", title, "worst domain", "change", "AUC", "log loss", "Brier"]
        header += ["mean p", "observed", "inside range", "CPU s", "s", "MiB", "recommended"]
        yield f"### {data}, {size:,} rows\n\n{table(header, rows)}"


def difference(runs: Sequence[dict[Key, Summary]], key: Key, metric: str) -> str:
    """Mean paired difference of the second run from the first, with its standard error."""
    if len(runs) < 2 or any(key not in run for run in runs):
        return "–"
    before, after = (run[key].values(metric) for run in runs)
    changes = [after[domain] - before[domain] for domain in before if domain in after]
    if not changes:
        return "–"
    return f"{statistics.fmean(changes):+.3f} ± {number(standard_error(changes))}"


HOW = """Methods choose their parameters by holding out source domains. Scores are balanced accuracy
or RMSE, as means over held-out domains. *Boosting* is scikit-learn's, to which gains are relative:
medians over data sets, with a 95 % bootstrap interval. Points and per cent are not averaged
together. Log loss is lower for better probabilities. The variant *with context* predicts all rows
of a new domain together; each variant of the ensemble is ranked without the other. CPU seconds are
medians for one search and fit on one core (both variants of the ensemble together). Some data sets
are parts of others (adult, bike, kc_house) or have rarer events (adult_rare, impact_rare), so they
are not independent."""


def render(run: dict[Key, Summary], cases: Iterable[Result], note: str) -> list[str]:
    """The parts of the report on one run; the first contains the title."""
    sizes = sorted({n for _, n, _ in run})
    counts = [len({(c["data"], c["group"]) for c in cases if c["size"] == n}) for n in sizes]
    groups = ", ".join(f"{c} with {n:,} rows" for n, c in zip(sizes, counts, strict=True))
    by_size = {size: standings(run, size, ALL_SETS) for size in sizes}
    parts = [
        "# Which method is best at new sites, with 600, 2,000 and 20,000 rows?\n\n"
        f"{answer(by_size)} The table shows average ranks and, in brackets, median gains over "
        f"boosting.\n\n{summary_table(by_size)}\n\n{HOW}\n\nWritten by `python "
        f"benchmarks/growth.py --report`. Held-out groups of "
        f"domains, of {DEALT_GROUPS} for each data set: {groups}. {note}"
    ]
    for title, names in (("All data sets", ALL_SETS), ("Confirmation sets", CONFIRMATION)):
        found = {size: standings(run, size, names) for size in sizes}
        tables = [f"### {n:,} rows\n\n{ranks(f)}" for n, f in found.items() if len(f.sets) > 1]
        intro = (
            "Nothing was chosen on these data sets, except that kc_house is a part of "
            "large_kc_house, whose losses were read when rates and rounds of boosting were chosen."
        )
        tables = [intro, *tables] if names is CONFIRMATION else tables
        parts.append(f"## {title}\n\n" + "\n\n".join(tables))
    return [*parts, "## Scores\n\n" + "\n\n".join(one_run(run))]


def compare(paths: Sequence[Path], note: str) -> str:
    """The report on two runs, which compares two versions."""
    files_of_cases = [finished(path) for path in paths]
    shared = set.intersection(*map(set, files_of_cases))
    runs = [summarize(line for key, line in f.items() if key in shared) for f in files_of_cases]
    names = [path.stem for path in paths]
    parts = [
        f"# Two versions: {' and '.join(names)}",
        "Means and standard errors are over held-out domains, then means over data sets. The event "
        "is the rarest class. *Mean p / observed* is the mean over sites of its mean predicted "
        "probability, divided by the mean over sites of its share: geometric mean over data sets, "
        "smallest and largest. *Inside range* is the share of held-out domains whose score is in "
        "the range that the model or `evaluate` stated (nominally 0.90). CPU seconds are the mean "
        "over held-out groups, on one core. Only cases of both runs count. " + note,
        overview(runs, names),
    ]
    return "\n\n".join([*parts, *by_set(runs, names)]) + "\n"


def change_part(paths: Sequence[Path], note: str) -> str:
    """The part of the report on the ensemble in two versions, paired by held-out domain."""
    files = [finished(path) for path in paths]
    shared = set.intersection(*map(set, files))
    runs = [summarize(line for key, line in file.items() if key in shared) for file in files]
    rows, gains = [], defaultdict(list)
    for size, data in sorted({(n, d) for d, n, _ in runs[0]}):
        metric, cells = main_metric(data), [f"{data}, {size:,} rows"]
        for method in ("ensemble", "ensemble+context"):
            before, after = (run[data, size, method] for run in runs)
            cells += [number(before.mean(metric)), number(after.mean(metric))]
            cells += [difference(runs, (data, size, method), metric)]
            gain = 100 * (after.mean(metric) - before.mean(metric))
            gain = -gain / before.mean(metric) if metric == "rmse" else gain
            gains[size, method, "% of RMSE" if metric == "rmse" else "points"].append(gain)
        rows.append([*cells, f"{before.cpu:.1f} → {after.cpu:.1f}"])
    means = [
        f"{LABELS.get(method, method)}, {size:,} rows: {signed(statistics.fmean(values))} ± "
        f"{standard_error(values):.1f} {unit} ({len(values)} data sets)"
        for (size, method, unit), values in sorted(gains.items())
    ]
    header = ["data set", "before", "after", "change", "with context, before", "after", "change"]
    return (
        f"## The ensemble in two versions\n\n{note} RMSE or balanced accuracy on the first group "
        "of held-out domains; changes are means over domains ± standard errors. Mean gains over "
        f"data sets ± standard errors: {'; '.join(means)}.\n\n" + table([*header, "CPU s"], rows)
    )


# --------------------------------------------------------------------------- planted outliers


#: Outliers by their description.
PLANTS = {
    "one row 20 deviations away": "rows",
    "a domain with values twice as large": "domain",
    "ten rare indicator columns": "columns",
    "one absurd target": "target",
}


def planted(task: Task, kind: str) -> Task:
    """The task with an outlier among the training rows and, except for targets, the test rows."""
    rng = np.random.default_rng(0)
    numbers, y, train, test = task.numbers.copy(), task.y.copy(), task.train, task.test
    row, new_row = rng.choice(train), rng.choice(test)
    if kind == "rows":
        for i in (row, new_row):
            numbers[i] += 20 * np.nanstd(numbers[train], axis=0) * rng.choice([-1, 1])
    elif kind == "domain":
        numbers[np.isin(task.domain, task.domain[[row, new_row]])] *= 2
    elif kind == "columns":
        rare = np.zeros((len(numbers), 10))
        for column in rare.T:  # two training rows of one domain, and every twentieth test row
            column[rng.choice(train[task.domain[train] == task.domain[row]], 2)] = 1
            column[rng.choice(test, len(test) // 20, replace=False)] = 1
        numbers = np.hstack([numbers, rare])
    else:
        y[row] = y[train].mean() + 1000 * y[train].std()
    return replace(task, numbers=numbers, y=y)


def outliers(groups: int) -> str:
    """The part of the report on planted outliers: RMSE relative to that without them."""
    rows = []
    runs: dict[str, Callable[[Task], dict[str, Result]]] = {
        "linear": lambda task: run_rival(task, "linear"),
        "boosting": lambda task: run_rival(task, "boosting"),
        "ensemble": run_ensemble,
    }
    for data in ("communities", "bike"):
        changes: dict[str, dict[str, list[float]]] = {}
        for group in range(groups):
            task = make_task(Case(data, SIZES[0], group, "ensemble"))
            assert task is not None
            clean: dict[str, float] = {}
            for plant, kind in {"": "", **PLANTS}.items():
                for method, run in runs.items():
                    result = run(planted(task, kind) if kind else task)[method]
                    rmse = statistics.fmean(s["rmse"] for s in result["domains"].values())
                    if not kind:
                        clean[method] = rmse
                    else:
                        found = changes.setdefault(plant, {}).setdefault(method, [])
                        found.append(100 * (rmse / clean[method] - 1))
        for plant, by_method in changes.items():
            cells = [f"{statistics.fmean(by_method[m]):+.0f} %" for m in runs]
            rows.append([f"{data}: {plant}", *cells])
    return (
        "## Planted outliers\n\n"
        "Increase of the RMSE on held-out domains if an outlier is planted in the training rows "
        f"(of {SIZES[0]}) and in the held-out rows; targets of held-out rows are unchanged. Means "
        f"over {groups} groups of held-out domains. Written by `python benchmarks/growth.py "
        f"--outliers {groups}`.\n\n" + table(["", *runs], rows)
    )


# -------------------------------------------------------------------------- weights of members


def weight_rules(score: Any, predictions: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Weights of members by the rule in use and by others, from predictions for held-out rows."""
    from domainwise.estimators.ensemble.held_out import paired_deficits

    losses = np.array([score.losses(p) for p in predictions.values()])
    deficits, _ = paired_deficits(losses[:, np.isfinite(losses).all(axis=0)])
    softmax = np.exp(-deficits / 0.02)
    return {
        "standard errors": np.array(list(score.mix_predictions(predictions)[0].values())),
        "0.02": softmax / softmax.sum(),
        "best member alone": np.eye(len(deficits))[deficits.argmin()],
        "equal weights": np.full(len(deficits), 1 / len(deficits)),
    }


def run_weights(task: Task) -> dict[str, dict[str, Result]]:
    """Scores of one search and fit of all members without context, weighted by several rules."""
    from domainwise import DomainEnsembleClassifier, DomainEnsembleRegressor
    from domainwise.estimators.ensemble.fitting import prepare, search_members

    X, y, domain = task.sources
    model: Any = DomainEnsembleRegressor(context=False)
    if task.n_classes:
        model = DomainEnsembleClassifier(context=False)
    model._validate_params()
    model._seed, table = 0, model._table(X, y, domain, None)
    problem = prepare(model, table, *model._learn_target(table))
    search = search_members(problem)
    rows = problem.features.context._standardized(task.numbers[task.test])
    features = problem.features.plain(rows)
    members = [c.kind.fit_member(c.member, problem.final_data) for c in search.candidates.values()]
    outputs = np.stack([member.predict(features) for member in members])
    results = {}
    for rule, weights in weight_rules(problem.scores[False], search.predictions(False)).items():
        p = np.tensordot(weights, outputs, 1)
        predicted = (p / source_shares(task)).argmax(axis=1) if task.n_classes else None
        pair = (
            (predicted, p) if task.n_classes else (model._mean + model._deviation * p[:, 0], None)
        )
        results[rule] = domain_scores(task, lambda *_, pair=pair: pair, rows, context=False)
    return results


def compare_weights(path: Path, groups: int) -> str:
    """The part of the report on weights of members; finished cases are kept in a file."""
    names = [name for name in DEVELOPMENT if name != "large_kc_house"]
    done = {(line["data"], line["size"], line["group"]): line for line in read_lines(path)}
    cases = [(d, n, g) for n in SIZES[:2] for d in names for g in range(groups)]
    for data, size, group in cases:
        if (data, size, group) not in done and (task := make_task(Case(data, size, group, ""))):
            line = {"data": data, "size": size, "group": group, "results": run_weights(task)}
            done[data, size, group] = line
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, default=float) + "\n")
            print(data, size, group, flush=True)
    rows = []
    for size in SIZES[:2]:
        changes: dict[str, dict[str, list[float]]] = {}
        for data, _, _ in (key for key in cases if key in done and key[1] == size):
            lines = [line for key, line in done.items() if key[:2] == (data, size)]
            means = {
                rule: {
                    metric: statistics.fmean(v for v in values if v is not None and v == v)
                    for metric in (main_metric(data), *(["log_loss"] * ALL_SETS[data].classes))
                    for values in [[s[metric] for r in lines for s in r["results"][rule].values()]]
                }
                for rule in lines[0]["results"]
            }
            base = means["standard errors"]
            for rule, scores in means.items():
                found = changes.setdefault(rule, defaultdict(list))
                for metric, score in scores.items():
                    is_loss = metric != "balanced_accuracy"
                    ratio = 100 * (1 - score / base[metric])
                    found[metric].append(ratio if is_loss else 100 * (score - base[metric]))
        for rule, found in changes.items():
            if rule == "standard errors":
                continue
            cells = [
                f"{signed(statistics.fmean(found[m]))} ± {standard_error(found[m]):.1f}"
                for m in ("balanced_accuracy", "rmse", "log_loss")
            ]
            n_sets = len(found["balanced_accuracy"]) + len(found["rmse"])
            rows.append([f"{size:,} rows, {n_sets} data sets: {rule}", *cells])
    header = ["", "balanced accuracy, points", "reduction of RMSE, %", "reduction of log loss, %"]
    return (
        "## Weights of members\n\n"
        "Weights exp(-d / t) follow from the deficit d of a member on held-out domains (half the "
        "logarithm of a ratio of losses). In use is the standard error of the paired difference as "
        "t, at least 0.02; members more than two standard errors behind are dropped. The table "
        "shows what other rules gain over it on held-out domains, with the same members without "
        "context: means over development sets ± standard errors. Written by `python "
        f"benchmarks/growth.py --weights {groups}`.\n\n" + table(header, rows)
    )


def main() -> None:
    """Run cases, or report on files of finished cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("growth.jsonl"))
    parser.add_argument("--sets", nargs="+", default=["development"], help="names, or a group")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--only", nargs="+", choices=list(ONLY), default=list(ONLY))
    parser.add_argument("--groups", type=int, help="number of held-out groups, at most 4")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--limit-seconds", type=float, default=math.inf)
    parser.add_argument("--report", nargs="+", type=Path, help="one or two files of results")
    parser.add_argument("--note", default="", help="the machine and versions, for the report")
    parser.add_argument("--write", action="store_true", help="write the report, or a part of it")
    parser.add_argument("--outliers", type=int, help="plant outliers, with so many held-out groups")
    parser.add_argument("--weights", type=int, help="compare weights, with so many held-out groups")
    arguments = parser.parse_args()
    if arguments.outliers:
        warnings.simplefilter("ignore")
        replace_part(REPORT, outliers(arguments.outliers))
        return
    if arguments.weights:
        warnings.simplefilter("ignore")
        threadpool_limits(1)
        replace_part(REPORT, compare_weights(arguments.out, arguments.weights))
        return
    if arguments.report and len(arguments.report) > 1:
        if arguments.write:
            replace_part(REPORT, change_part(arguments.report, arguments.note))
        else:
            print(compare(arguments.report, arguments.note))
        return
    if arguments.report:
        cases = complete(finished(arguments.report[0]).values())
        opening, *parts = render(summarize(cases), cases, arguments.note)
        if not arguments.write:
            print("\n\n".join([opening, *parts]))
            return
        old = REPORT.read_text(encoding="utf-8").partition("\n## ")
        REPORT.write_text(opening + "\n\n## " + old[2], encoding="utf-8")
        for part in parts:
            replace_part(REPORT, part)
        return
    together = {"development": DEVELOPMENT, "confirmation": CONFIRMATION}
    arguments.sets = [s for name in arguments.sets for s in together.get(name, [name])]
    run_all(list(plan(arguments)), arguments.out, arguments.jobs, arguments.limit_seconds)


if __name__ == "__main__":
    main()
