"""One repeat of a case: sample domains, choose parameters, fit, and score on unseen domains.

In the tuned setting, scikit-learn's grid search chooses parameters on held-out source domains,
never on unseen domains. The numbers in the tables depend on the grids, on the order of the
candidates (which breaks ties), on the rows sampled for tuning, and on the held-out groups.
"""

from __future__ import annotations

import itertools
import time
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

from domainwise.algebra.kernels.functions import resolve_gamma
from domainwise.base.arrays import Array, evenly_spaced
from domainwise.base.process import Row
from domainwise.datasets import make_synthetic
from domainwise.held_out.scoring.predictions import fit_with_domains
from domainwise.metrics import invariance_report
from reproduction import data
from reproduction.methods import METHODS, Method, Parameters, build_pipeline, paper_parameters
from reproduction.protocols import METRICS, SETTINGS, Case, score_predictions

# Source and unseen domains ------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """Rows from source domains and from unseen domains."""

    X: Array
    y: Array
    sample_domain: Array
    X_test: Array
    y_test: Array
    test_domain: Array

    @property
    def has_nan(self) -> bool:
        """Whether any feature is missing, so that the pipeline needs an imputer."""
        return bool(np.isnan(self.X).any() or np.isnan(self.X_test).any())


def derive_seed(root_seed: int, *names: object) -> np.random.SeedSequence:
    """Return a seed that depends only on the root seed and these names.

    Random numbers are therefore independent of the order of the jobs and the number of workers.
    """
    spawn_key = tuple(zlib.crc32(str(name).encode()) for name in names)
    return np.random.SeedSequence(root_seed, spawn_key=spawn_key)


def make_split(case: Case, root_seed: int, repeat: int) -> Split:
    """Sample the domains and rows of a repeat; they are the same for all methods and settings."""
    rng = np.random.default_rng(derive_seed(root_seed, case.key, repeat))
    if case.source == "synthetic":
        seed = int(rng.integers(2**31 - 1))
        bunch = make_synthetic(random_state=seed, **case.source_params)
    else:
        bunch = _load_data(case.source, tuple(sorted(case.source_params.items())))
    return split_domains(bunch, case, rng)


def split_domains(bunch: Bunch, case: Case, rng: np.random.Generator) -> Split:
    """Sample source and unseen domains, and rows from each domain."""
    domains = np.unique(bunch.sample_domain)
    n_required = case.train_domains + case.test_domains
    if len(domains) < n_required:
        raise ValueError(
            f"{case.key} requires {n_required} domains, but the data have {len(domains)}; check"
            " that the data file is complete"
        )
    sample = partial(sample_rows, stratified=case.stratified, rng=rng)
    domain_rows = [
        sample(np.flatnonzero(bunch.sample_domain == domain), bunch.target, case.rows_per_domain)
        for domain in rng.permutation(domains)[:n_required]
    ]
    train_rows = np.concatenate(domain_rows[: case.train_domains])
    test_rows = np.concatenate(domain_rows[case.train_domains :])
    arrays = (bunch.data, bunch.target, bunch.sample_domain)
    return Split(*(array[indices] for indices in (train_rows, test_rows) for array in arrays))


def sample_rows(
    rows: Array, target: Array, max_rows: int | None, *, stratified: bool, rng: np.random.Generator
) -> Array:
    """Sample at most ``max_rows`` of the row indices; ``stratified`` preserves the class ratio."""
    if max_rows is None or len(rows) <= max_rows:
        return rows
    if not stratified:
        return np.sort(rng.choice(rows, max_rows, replace=False))
    classes, class_sizes = np.unique(target[rows], return_counts=True)
    # Counts with the largest remainders are rounded up, so that the sum is ``max_rows``.
    exact_counts = class_sizes * max_rows / len(rows)
    sample_counts = np.floor(exact_counts).astype(int)
    order = np.argsort(sample_counts - exact_counts, kind="stable")
    sample_counts[order[: max_rows - sample_counts.sum()]] += 1
    samples = [
        rng.choice(rows[target[rows] == label], sample_count, replace=False)
        for label, sample_count in zip(classes, sample_counts, strict=True)
    ]
    return np.sort(np.concatenate(samples))


@lru_cache(maxsize=4)
def _load_data(name: str, params: tuple[tuple[str, Any], ...]) -> Any:
    return getattr(data, f"load_{name}")(**dict(params))


# Tuned parameters ---------------------------------------------------------------------------------

#: Values in the grids; gammas are multiples of the gamma from the median rule.
GAMMAS = (0.3, 1.0, 3.0)
SVM_GAMMAS = (0.1, 0.3, 1.0, 3.0)
SVM_COSTS = (0.1, 1.0, 10.0, 100.0)
RIDGES = (1e-3, 1e-1, float("inf"))
DOMAIN_WEIGHTS = (0.01, 1.0)
INVARIANT_WEIGHTS = (0.01, 0.1, 1.0)  #: searched after C and gamma, which are chosen with weight 0
MIDA_WEIGHTS = (0.1, 1.0, 10.0)  #: divided by the number of rows
_SCATTER_GRID = {"ridge": (1e-4, 1e-2, 1.0), "domain_weight": DOMAIN_WEIGHTS}
#: Grids of projections, without gamma; a fast method has the grid of its exact version.
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "kpca": {"n_components": (2, 10)},
    "coir": {"ridge": RIDGES},
    "dcm": {"ridge": RIDGES, "domain_weight": DOMAIN_WEIGHTS},
    "dica": {"lam": (1e-3, 1e-1, 10.0)},
    "sca": _SCATTER_GRID,
    "mda": _SCATTER_GRID,
}


def tune(
    case: Case, method: Method, split: Split, rng: np.random.Generator, random_state: int
) -> tuple[Parameters, dict[str, Any]]:
    """Choose the parameters of a method on source domains, with rows and folds sampled by ``rng``.

    Also return a record of the rule, the parameters, their score and the number of candidates.
    """
    rows = sample_tuning_rows(split, case, rng)
    X, y, sample_domain = split.X[rows], split.y[rows], split.sample_domain[rows]
    held_out_masks = list(domain_folds(sample_domain, case.tuning_folds, rng))
    metric = METRICS[tuning_metric(case)]
    has_nan = bool(np.isnan(X).any())

    def select_best(candidates: list[Parameters]) -> tuple[Parameters, float]:
        """Return the candidate with the best mean score (in a tie, the first), and the score."""
        pipelines = [build_pipeline(case, method, c, impute=has_nan) for c in candidates]
        search = GridSearchCV(
            Pipeline([("model", pipelines[0])]),
            {"model": pipelines},
            scoring=make_scorer(metric.score, greater_is_better=metric.greater_is_better),
            cv=[(np.flatnonzero(~mask), np.flatnonzero(mask)) for mask in held_out_masks],
            refit=False,
            error_score=-np.inf,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_with_domains(search, X, y, sample_domain)
        sign = 1.0 if metric.greater_is_better else -1.0
        return candidates[search.best_index_], sign * float(search.best_score_)

    candidates = list_candidates(case, method, _scale(case, X), random_state)
    best_candidate, score = select_best(candidates)
    if method.key == "invariant":
        weighted_candidates = [replace(best_candidate, domain_weight=w) for w in INVARIANT_WEIGHTS]
        candidates += weighted_candidates
        best_candidate, score = select_best([best_candidate, *weighted_candidates])
    n_folds = len(held_out_masks)
    is_per_domain = n_folds == len(np.unique(sample_domain))
    fold_text = "source domain" if is_per_domain else f"of {n_folds} groups of source domains"
    rule = (
        f"best mean {metric.label} with each {fold_text} held out in turn and"
        f" at most {case.tuning_rows} rows per domain, {len(candidates)} candidates"
    )
    parameters = replace(best_candidate, n_landmarks=method.n_landmarks(len(split.X), case.m))
    record = {"rule": rule, "parameters": parameters.used_by(method), "source_score": score}
    return parameters, {**record, "candidates": len(candidates)}


def tuning_metric(case: Case) -> str:
    """Return the tuning metric: the case's first, or balanced accuracy instead of the label AUC."""
    return "balanced_accuracy" if case.metrics[0] == "label_auc" else case.metrics[0]


def sample_tuning_rows(split: Split, case: Case, rng: np.random.Generator) -> Array:
    """Sample at most ``case.tuning_rows`` rows per source domain, with the domain's class ratio."""
    sample = partial(sample_rows, stratified=case.task == "classification", rng=rng)
    masks = (split.sample_domain == domain for domain in np.unique(split.sample_domain))
    return np.concatenate([sample(np.flatnonzero(m), split.y, case.tuning_rows) for m in masks])


def domain_folds(sample_domain: Array, n_folds: int, rng: np.random.Generator) -> Iterator[Array]:
    """Divide the domains into at most ``n_folds`` groups; yield the mask of each group's rows."""
    domains = rng.permutation(np.unique(sample_domain))
    for group in np.array_split(domains, min(n_folds, len(domains))):
        yield np.isin(sample_domain, group)


def list_candidates(case: Case, method: Method, X: Array, random_state: int) -> list[Parameters]:
    """Return a method's candidates; gammas are computed from the scaled source rows ``X``."""
    median_gamma = resolve_gamma("median", "rbf", X)
    defaults = Parameters(
        epsilon=case.epsilon,
        n_components=case.n_components,
        class_weight="balanced" if tuning_metric(case) == "balanced_accuracy" else None,
        predictor_gamma="scale",
        n_landmarks=method.n_landmarks(len(X), case.m),
        random_state=random_state,
    )
    grid: dict[str, Any]  # values by parameter
    if method.projection is None:
        grid = {"C": SVM_COSTS, "gamma": [median_gamma * factor for factor in SVM_GAMMAS]}
        defaults = replace(defaults, predictor_gamma=None, domain_weight=0.0)
    else:
        grid = {"gamma": [median_gamma * factor for factor in GAMMAS]}
        grid |= GRIDS.get(method.key.removeprefix("fast"), {})
        if method.key == "mida":
            grid["domain_weight"] = [weight / len(X) for weight in MIDA_WEIGHTS]
    combinations = itertools.product(*grid.values())
    return [replace(defaults, **dict(zip(grid, c, strict=True))) for c in combinations]


def _scale(case: Case, X: Array) -> Array:
    """Scale rows as the pipeline does, to compute gammas; missing values are then set to 0."""
    if case.scaling == "none":
        return X
    if case.scaling == "minmax":
        offset, scale = np.nanmin(X, axis=0), np.nanmax(X, axis=0) - np.nanmin(X, axis=0)
    else:
        offset, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
    return np.nan_to_num((X - offset) / np.where(scale > 0, scale, 1.0))


# A repeat -----------------------------------------------------------------------------------------

#: Measuring invariance takes quadratic time, so the numbers of repeats and rows are limited.
MAX_INVARIANCE_REPEATS, MAX_INVARIANCE_ROWS = 5, 1000
INVARIANCE_MEASURES = ("domain_dependence", "target_dependence", "mean_mmd")

_PAPER_RULE = "the paper's parameters; where the paper gives none, ridge 1e-3, λ = N·ridge, C = 1"


@dataclass(frozen=True)
class Trial:
    """A job that runs several methods on one repeat of a case, in one setting."""

    case: Case
    setting: str
    repeat: int
    methods: tuple[str, ...]
    root_seed: int

    @property
    def cost(self) -> float:
        """Approximate run time in seconds, to estimate the remaining time."""
        fraction = len(self.methods) / max(len(self.case.methods_of(self.setting)), 1)
        return fraction * (self.case.cost if self.setting == "paper" else self.case.tuned_cost)

    def run(self) -> list[Row]:
        """Return a row for each method; if a method fails, its row contains the error.

        BLAS uses one thread, because the last digits of its sums depend on the number of threads.
        """
        with threadpool_limits(limits=1):
            split = make_split(self.case, self.root_seed, self.repeat)
            return [self._compute_row(METHODS[key], split) for key in self.methods]

    def choose_parameters(self, method: Method, split: Split) -> tuple[Parameters, dict[str, Any]]:
        """Return a method's parameters in this setting, and a record of how they were chosen."""
        seed_arguments = (self.root_seed, self.case.key, self.repeat)
        random_state = int(derive_seed(*seed_arguments, "method").generate_state(1)[0] % 2**31)
        if self.setting != "tuned" or method.key == "majority":
            parameters = paper_parameters(self.case, method, split.y, len(split.X), random_state)
            return parameters, {"rule": _PAPER_RULE, "parameters": parameters.used_by(method)}
        # All methods use the same tuning rows and groups of domains.
        rng = np.random.default_rng(derive_seed(*seed_arguments, "tuning"))
        return tune(self.case, method, split, rng, random_state)

    def _compute_row(self, method: Method, split: Split) -> Row:
        row: Row = {
            "kind": "result",
            "table": self.case.table,
            "case": self.case.key,
            "fingerprint": self.case.fingerprint(),
            "setting": self.setting,
            "repeat": self.repeat,
            "method": method.key,
            "n_train": len(split.X),
            "n_test": len(split.X_test),
            "train_domains": list(map(str, np.unique(split.sample_domain))),
            "test_domains": list(map(str, np.unique(split.test_domain))),
        }
        start_seconds = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught_warnings:
            warnings.simplefilter("always")
            try:
                row |= self._fit_and_score(method, split)
                row["status"] = "ok"
            except (ValueError, ArithmeticError, MemoryError, np.linalg.LinAlgError) as error:
                row["status"] = "error"
                row["error"] = f"{type(error).__name__}: {error}"
        row["warnings"] = sorted({str(warning.message)[:200] for warning in caught_warnings})
        row["seconds"] = round(time.perf_counter() - start_seconds, 4)
        return row

    def _fit_and_score(self, method: Method, split: Split) -> Row:
        parameters, selection = self.choose_parameters(method, split)
        pipeline = build_pipeline(self.case, method, parameters, impute=split.has_nan)
        fit_with_domains(pipeline, split.X, split.y, split.sample_domain)
        predictions, decision_values = pipeline.predict(split.X_test), None
        if "score_auc" in self.case.metrics and hasattr(pipeline, "decision_function"):
            decision_values = pipeline.decision_function(split.X_test)
        scores = score_predictions(self.case.metrics, split.y_test, predictions, decision_values)
        row: Row = {"metrics": scores, "selection": selection}
        projection = pipeline.named_steps.get("project")
        if projection is not None:
            row["eigenvalues"] = [float(eigenvalue) for eigenvalue in projection.eigenvalues_[:12]]
        can_measure = projection is not None or method.key == "svm"
        if self.setting == "paper" and self.repeat < MAX_INVARIANCE_REPEATS and can_measure:
            # Measure on unseen domains how much the features depend on domain and target.
            indices = evenly_spaced(len(split.X_test), MAX_INVARIANCE_ROWS)
            features = split.X_test[indices]
            if len(pipeline) > 1:
                features = pipeline[:-1].transform(features)
            report = invariance_report(features, split.y_test[indices], split.test_domain[indices])
            row["invariance"] = {name: getattr(report, name) for name in INVARIANCE_MEASURES}
        return row


def plan_trials(
    cases: Iterable[Case],
    result_rows: Iterable[Row],
    *,
    root_seed: int,
    repeats: int | None = None,
    settings: Sequence[str] = SETTINGS,
) -> list[Trial]:
    """Plan the trials that have no results yet; methods that failed are run again.

    ``repeats`` overrides the number of repeats of each case.
    """
    finished_keys = {
        (row["case"], row["setting"], row["repeat"], row["method"])
        for row in result_rows
        if row["status"] == "ok"
    }
    trials = []
    for case, setting in itertools.product(cases, settings):
        n_repeats = case.planned_repeats(setting) if repeats is None else repeats
        for repeat in range(n_repeats):
            methods = tuple(
                name
                for name in case.methods_of(setting)
                if repeat < case.repeats_of.get(name, n_repeats)
                and (case.key, setting, repeat, name) not in finished_keys
            )
            if methods:
                trials.append(Trial(case, setting, repeat, methods, root_seed))
    return trials
