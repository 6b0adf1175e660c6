"""Declarations of the paper's experiments: metrics, cases, tables, and the paper's numbers.

A table is a set of cases. A case is a data set, a rule that splits its domains, and the methods to
compare. The tables are in ``protocols.toml``, the paper's numbers in ``printed.toml``.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score, recall_score, roc_auc_score, root_mean_squared_error

from domainwise.metrics import g_mean_score

SETTINGS = ("paper", "tuned")  #: the paper's parameters, or tuned ones (theory 10.2)


# Metrics ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Metric:
    """A metric in the tables, with the number of decimals that the paper prints."""

    key: str
    label: str
    decimals: int
    score: Callable[[NDArray, NDArray], float]  #: function of targets and predictions
    greater_is_better: bool = True
    binary_only: bool = False  #: whether it is defined only for two classes
    uses_decision: bool = False  #: whether it takes decision values instead of predictions

    def format(self, mean: float, deviation: float | None = None) -> str:
        """Return "mean ± standard deviation" with the paper's number of decimals."""
        if not np.isfinite(mean):
            return "–"
        text = f"{mean:.{self.decimals}f}"
        if deviation is None or not np.isfinite(deviation):
            return text
        return f"{text} ± {deviation:.{self.decimals}f}"


def mean_recall(y_true: NDArray, y_pred: NDArray) -> float:
    """Return the balanced accuracy, without a warning if ``y_true`` lacks a predicted class."""
    return float(recall_score(y_true, y_pred, labels=np.unique(y_true), average="macro"))


METRICS = {
    metric.key: metric
    for metric in (
        Metric("accuracy", "accuracy (%)", 2, lambda y, p: 100.0 * accuracy_score(y, p)),
        # The paper computes the AUC from predicted labels, so it equals the balanced accuracy.
        Metric("label_auc", "AUC (labels)", 4, mean_recall, binary_only=True),
        Metric("g_mean", "G-mean", 4, g_mean_score),
        Metric("score_auc", "AUC (scores)", 4, roc_auc_score, binary_only=True, uses_decision=True),
        Metric("balanced_accuracy", "balanced accuracy", 4, mean_recall),
        Metric("rmse", "RMSE", 2, root_mean_squared_error, greater_is_better=False),
    )
}


def score_predictions(
    metric_keys: Iterable[str], y_true: NDArray, y_pred: NDArray, y_score: NDArray | None = None
) -> dict[str, float]:
    """Compute the metrics with these keys in ``METRICS``; ``y_score`` contains decision values.

    Metrics that cannot be computed are omitted, for example the AUC if there is only one class.

    >>> import numpy as np
    >>> y = np.array([0, 0, 1, 1])
    >>> score_predictions(["accuracy", "label_auc"], y, np.array([0, 1, 1, 1]))
    {'accuracy': 75.0, 'label_auc': 0.75}
    """
    scores: dict[str, float] = {}
    is_binary = len(np.unique(y_true)) == 2
    for metric in (METRICS[key] for key in metric_keys):
        outputs = y_score if metric.uses_decision else y_pred
        if outputs is not None and (is_binary or not metric.binary_only):
            scores[metric.key] = float(metric.score(y_true, outputs))
    return scores


# The paper's numbers ------------------------------------------------------------------------------

PROVENANCE = "dcm.tex, the LaTeX source of 'Domain-based Covariance Minimization'"


def read_toml(file_name: str) -> dict[str, Any]:
    """Read a TOML file in this package."""
    return tomllib.loads((files("reproduction") / file_name).read_text(encoding="utf-8"))


#: The paper's numbers by case and method: mean and standard deviation by metric, and "seconds".
PAPER_NUMBERS: dict[str, dict[str, dict[str, Any]]] = read_toml("printed.toml")


# Cases and tables ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A data set, a rule that splits its domains, and the methods to compare."""

    key: str  #: ``table/case``, as in results files
    title: str
    source: str  #: data set in :mod:`domainwise.datasets`, or "synthetic"
    train_domains: int  #: number of source domains
    test_domains: int  #: number of unseen domains
    metrics: tuple[str, ...]  #: the first one ranks the methods
    #: RBF parameter in the paper setting, for the projection and for the SVM; "median_target" is
    #: the median target in the source domains, as in the paper.
    gamma: float | str
    epsilon: float  #: regularization of the label kernels in the paper setting
    methods: tuple[str, ...]
    tuned_methods: tuple[str, ...]
    source_params: Mapping[str, Any] = field(default_factory=dict)  #: arguments for the loader
    repeats: int = 20
    tuned_repeats: int = 10  #: in the tuned setting, with the first splits of the paper setting
    task: str = "classification"  #: or "regression"
    n_components: int | None = None  #: None if the paper does not give it
    m: int | None = None  #: the paper's M, which determines the number of landmarks of fast methods
    rows_per_domain: int | None = None  #: number sampled in each repeat; None for all rows
    quick_rows: int | None = None  #: ``rows_per_domain`` in quick runs; None for the same number
    stratified: bool = False  #: whether samples preserve the class ratio of the domain
    scaling: str = "none"  #: or "minmax" or "standard"; fitted to the source domains
    tuning_rows: int = 60  #: maximum number of rows per source domain for tuning
    tuning_folds: int = 5  #: number of groups of source domains, held out in turn
    repeats_of: Mapping[str, int] = field(default_factory=dict)  #: fewer repeats, for slow methods
    cost: float = 3.0  #: approximate seconds per repeat, to estimate the remaining time
    tuned_cost: float = 6.0  #: the same, in the tuned setting

    @property
    def table(self) -> str:
        """Key of the table that contains the case."""
        return self.key.split("/")[0]

    @property
    def paper_numbers(self) -> dict[str, dict[str, Any]]:
        """The paper's numbers for the case, by method; empty if there are none."""
        return PAPER_NUMBERS.get(self.key, {})

    def quick(self) -> Case:
        """Return a small version of the case, so that all cases run in a few minutes."""
        return replace(
            self,
            repeats=3,
            tuned_repeats=1,
            rows_per_domain=self.quick_rows or self.rows_per_domain,
            tuning_rows=min(self.tuning_rows, 30),
            tuning_folds=3,
            repeats_of=dict.fromkeys(("algorithm1", "algorithm2", "algorithm2_count"), 1),
        )

    def methods_of(self, setting: str) -> tuple[str, ...]:
        """Return the methods that are compared in a setting."""
        return self.methods if setting == "paper" else self.tuned_methods

    def planned_repeats(self, setting: str) -> int:
        """Return the number of repeats in a setting."""
        return self.repeats if setting == "paper" else self.tuned_repeats

    def fingerprint(self) -> str:
        """Return a hash of all fields on which the result of one method in one repeat depends."""
        fields = asdict(self)
        ignored_fields = ["title", "methods", "tuned_methods", "quick_rows", "cost", "tuned_cost"]
        for name in (*ignored_fields, "repeats", "tuned_repeats", "repeats_of"):
            del fields[name]
        fields_json = json.dumps(fields, sort_keys=True, default=str)
        return hashlib.sha256(fields_json.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Table:
    """A table in the paper.

    ``stand_in`` describes the data that replace the paper's, and is part of every output; it is
    empty if the paper's data are used. ``data_files`` are names from ``list_datasets``.
    """

    key: str
    title: str
    cases: tuple[Case, ...]
    about: str
    stand_in: str = ""
    data_files: Sequence[str] = ()


def _build_tables(groups: Mapping[str, list[str]], tables: Mapping[str, Any]) -> dict[str, Table]:
    """Build the declared tables; ``*group`` in a list is replaced with the names in the group."""
    tables_by_key = {}
    for key, declaration in tables.items():
        cases, shared_fields = [], declaration.pop("shared")
        for case_name, fields in declaration.pop("cases").items():
            fields = shared_fields | fields
            for field_name in ("metrics", "methods", "tuned_methods"):
                names = fields[field_name]
                name_lists = (groups.get(name.removeprefix("*"), [name]) for name in names)
                fields[field_name] = tuple(chain.from_iterable(name_lists))
            cases.append(Case(key=f"{key}/{case_name}", **fields))
        tables_by_key[key] = Table(key=key, cases=tuple(cases), **declaration)
    return tables_by_key


TABLES: dict[str, Table] = _build_tables(**read_toml("protocols.toml"))


def select_tables(name: str) -> tuple[Table, ...]:
    """Return the table with this name, or all tables for "all"."""
    if name == "all":
        return tuple(TABLES.values())
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}; choose {', '.join(TABLES)} or all")
    return (TABLES[name],)


def find_case(key: str) -> Case:
    """Return the case with this key (the full version, not the quick one)."""
    return {case.key: case for table in TABLES.values() for case in table.cases}[key]
