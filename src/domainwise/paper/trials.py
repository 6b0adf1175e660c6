"""One repeat of a case: fit every method on the sources, judge it on unseen domains."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from domainwise.jobs.runner import Row
from domainwise.jobs.store import ResultsError
from domainwise.metrics import invariance_report
from domainwise.paper.cases import SETTINGS, Case
from domainwise.paper.data import Split, make_split, seed_of
from domainwise.paper.methods import (
    METHODS,
    Method,
    Parameters,
    build_pipeline,
    paper_parameters,
)
from domainwise.paper.scores import score_predictions
from domainwise.paper.tuning import select
from domainwise.scoring.predictions import fit_with_domains

#: Invariance costs O(rows^2): it is measured in the first repeats, on at most this many rows.
INVARIANCE_REPEATS = 5
INVARIANCE_ROWS = 1000
INVARIANCE = ("domain_dependence", "target_dependence", "mean_mmd")

_PAPER_RULE = "the paper's parameters; where it gives none, ridge 1e-3, λ = N·ridge, C = 1"


@dataclass(frozen=True)
class Trial:
    """A unit of work: some methods, on one repeat of a case, in one setting."""

    case: Case
    setting: str
    repeat: int
    methods: tuple[str, ...]
    root_seed: int

    @property
    def cost(self) -> float:
        """Rough seconds, for the time left."""
        share = len(self.methods) / max(len(self.case.methods_of(self.setting)), 1)
        return share * (self.case.cost if self.setting == "paper" else self.case.tuned_cost)

    def run(self) -> list[Row]:
        """Results of all methods; one that fails gives a row that says so.

        BLAS gets one thread, since the order of its sums, and with it the last digits, depends on
        the number of threads.
        """
        with threadpool_limits(limits=1):
            split = make_split(self.case, self.root_seed, self.repeat)
            return [_run_method(self, METHODS[key], split) for key in self.methods]


def _run_method(trial: Trial, method: Method, split: Split) -> Row:
    case = trial.case
    sources, unseen = split.domains
    row: Row = {
        "kind": "result",
        "table": case.table,
        "case": case.key,
        "fingerprint": case.fingerprint(),
        "setting": trial.setting,
        "repeat": trial.repeat,
        "method": method.key,
        "n_train": len(split.X),
        "n_test": len(split.X_test),
        "train_domains": sources,
        "test_domains": unseen,
    }
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            row.update(_judge(trial, method, split))
            row["status"] = "ok"
        except (ValueError, ArithmeticError, MemoryError, np.linalg.LinAlgError) as error:
            row["status"] = "error"
            row["error"] = f"{type(error).__name__}: {error}"
    row["warnings"] = sorted({str(item.message)[:200] for item in caught})
    row["seconds"] = round(time.perf_counter() - started, 4)
    return row


def _judge(trial: Trial, method: Method, split: Split) -> Row:
    case = trial.case
    parameters, selection = choose_parameters(trial, method, split)
    pipeline = build_pipeline(case, method, parameters, impute=has_missing(split))
    fit_with_domains(pipeline, split.X, split.y, split.sample_domain)
    predicted = pipeline.predict(split.X_test)
    decision = None
    if "score_auc" in case.metrics and hasattr(pipeline, "decision_function"):
        decision = pipeline.decision_function(split.X_test)
    judged: Row = {
        "metrics": score_predictions(case.metrics, split.y_test, predicted, decision),
        "selection": selection,
    }
    projection = pipeline.named_steps.get("project")
    if projection is not None:
        judged["eigenvalues"] = [float(value) for value in projection.eigenvalues_[:12]]
    sees_features = projection is not None or method.key == "svm"
    if trial.setting == "paper" and trial.repeat < INVARIANCE_REPEATS and sees_features:
        judged["invariance"] = measure_invariance(pipeline, split)
    return judged


def choose_parameters(
    trial: Trial, method: Method, split: Split
) -> tuple[Parameters, dict[str, Any]]:
    """Parameters of a method in the trial's setting, and the record of how they were chosen."""
    seed = seed_of(trial.root_seed, trial.case.key, trial.repeat, "method")
    random_state = int(seed.generate_state(1)[0] % 2**31)
    if trial.setting != "tuned" or method.key == "majority":
        parameters = paper_parameters(trial.case, method, split.y, len(split.X), random_state)
        return parameters, {"rule": _PAPER_RULE, "parameters": parameters.shown(method)}
    # The same tuning rows and groups of domains for every method.
    rng = np.random.default_rng(seed_of(trial.root_seed, trial.case.key, trial.repeat, "tuning"))
    return select(trial.case, method, split, rng, random_state)


def has_missing(split: Split) -> bool:
    """Whether an imputer has to head the pipeline."""
    return bool(np.isnan(split.X).any() or np.isnan(split.X_test).any())


def measure_invariance(pipeline: Pipeline, split: Split) -> dict[str, float | None]:
    """Dependence of the features the predictor sees on unseen domains and on their targets."""
    rows = np.linspace(0, len(split.X_test) - 1, min(len(split.X_test), INVARIANCE_ROWS))
    rows = np.unique(rows.astype(int))
    features = split.X_test[rows]
    if len(pipeline) > 1:
        features = pipeline[:-1].transform(features)
    report = invariance_report(features, split.y_test[rows], split.test_domain[rows])
    return {name: getattr(report, name) for name in INVARIANCE}


def plan_trials(
    cases: Iterable[Case],
    done: Iterable[Row],
    *,
    root_seed: int,
    repeats: int | None = None,
    settings: Sequence[str] = SETTINGS,
) -> list[Trial]:
    """Trials that are still to do; those that failed in an earlier session are done again.

    ``repeats`` stands in place of each case's own number. Rows that another protocol made under the
    same name raise a ResultsError.
    """
    cases, done = list(cases), list(done)
    check_protocol(cases, done)
    finished = {
        (row["case"], row["setting"], row["repeat"], row["method"])
        for row in done
        if row["status"] == "ok"
    }
    trials = []
    for case in cases:
        for setting in settings:
            names = case.methods_of(setting)
            most = max((case.n_repeats(setting, name, repeats) for name in names), default=0)
            for repeat in range(most):
                todo = tuple(
                    name
                    for name in names
                    if repeat < case.n_repeats(setting, name, repeats)
                    and (case.key, setting, repeat, name) not in finished
                )
                if todo:
                    trials.append(Trial(case, setting, repeat, todo, root_seed))
    return trials


def check_protocol(cases: Iterable[Case], done: Iterable[Row]) -> None:
    """Refuse rows that another protocol has made under the same name."""
    made = {row["case"]: row["fingerprint"] for row in done}
    for case in cases:
        if made.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results of {case.key} in this folder come from another protocol; choose"
                " another folder"
            )
