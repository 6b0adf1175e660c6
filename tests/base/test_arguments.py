"""Shared constraints on arguments, and functions that use them.

``tests/test_common.py`` tests that estimators use them, too. To add a case, add a value or an
argument to one of the kinds below.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score
from sklearn.model_selection import KFold

import domainwise as dw
from domainwise import datasets, metrics, selection
from domainwise.base.arguments import (
    CONSTRAINTS,
    INVARIANCE_CONSTRAINTS,
    SVM_CONSTRAINTS,
    check_arguments,
)

NAN, INF = float("nan"), float("inf")

#: Values that arguments of each kind must reject.
REFUSED = {
    "truth": ["False", 1, 0.0, None],  # non-empty strings are true in Python
    "count": [True, NAN, 2.5, "3", 0, -1, [2]],  # True equals 1, and comparisons with NaN are False
    "number": [True, NAN, "0.5", -1.0, 1j, np.array([0.5])],
    "seed": [True, -1, "0", 0.5, NAN],
    "workers": [True, 0, 1.5, "2", NAN],
    "numbers": ["scale", [], [NAN], [-1.0], ["1"], [True], 0.5, {"a": 1.0}],
    "truths": [["False"], [1], "no", [], True],
    "decision": [True, NAN, "best", "0.5", -0.1, 0, 1.0, None, [0.5]],
    "weights": [{0: -1.0}, {0: NAN}, {0: INF}, {0: True}, {0: "1"}, {}, "equal", [1.0, 2.0]],
    "choice": ["nothing such", 1, True],
    "rows": ["nothing such", b"no", 3, {"a": 1}],
}
#: Arguments by kind.
KINDS = {
    "truth": ["conditional", "probability", "relative", "summary", "prepare", "quick", "force",
              "greater_is_better", "normalize", "as_frame"],
    "count": ["n_components", "max_iter", "n_average", "n_test_domains", "n_repeats", "max_splits",
              "max_rows", "block_size"],
    "number": ["gamma", "degree", "epsilon", "domain_weight", "domain_epsilon", "domain_gamma",
               "target_gamma", "ridge", "lam", "between", "within_weight", "tol", "C", "shrinkage",
               "clip", "time_budget", "n_landmarks", "coverage"],
    "seed": ["random_state"],
    "workers": ["n_jobs"],
    "numbers": ["gammas", "alphas", "ridges", "domain_weights", "epsilons"],
    "truths": ["conditionals"],
    "decision": ["decision"],
    "weights": ["class_weight"],
    "choice": ["solver", "rule", "calibration", "feature_map"],
    "rows": ["landmarks", "target_landmarks"],
}  # fmt: skip
#: Values that arguments of each kind must accept, such as NumPy scalars.
TAKEN = {
    "truth": [np.True_, np.False_],
    "count": [np.int64(2), np.uint8(2)],
    "number": [np.float64(0.5), np.float32(0.5)],
    "seed": [np.int64(3), np.random.RandomState(0), None],
    "workers": [np.int64(1), -1, None],
    "numbers": [np.array([0.5, 1.0]), (np.float32(0.5),)],
    "truths": [np.array([True, False])],
    "weights": [{0: np.float64(2.0), 1: np.int64(1)}, "balanced", None],
    "decision": ["auto", "argmax", "balanced", 0.1, np.float32(0.5)],
    "rows": [np.zeros((2, 2)), [[0.0]]],
}
#: Further values to reject and to accept, by argument: ends of ranges, and other kinds.
OF_A_NAME = {
    "lam": ([0, 0.0, INF], [1e-300]),
    "gamma": ([0, "mean", INF], ["median", "scale"]),
    "target_gamma": ([0], ["median"]),
    "domain_gamma": ([0.0], ["scale"]),
    "tol": ([0.0], [1e-12]),
    "C": ([0.0, INF], [1e-3]),
    "clip": ([0.0], [6]),
    "time_budget": ([0.0, "1h"], [None]),
    "ridge": (["small"], [0, INF]),
    "ridges": ([], [[0.0, INF], "auto"]),
    "gammas": ([[0.0]], ["auto"]),
    "alphas": ([[0.0]], ["auto"]),
    "epsilon": ([INF], [0.0]),
    "domain_weight": ([INF], [0.0]),
    "domain_weights": ([[INF]], [[0.0], "auto"]),
    "domain_epsilon": ([INF], [0]),
    "between": ([1.0001], [0.0, 1.0]),
    "degree": ([], [0, 2.5]),
    "n_landmarks": ([0, 1.5, "many"], ["auto", 1, 1.0]),
    "n_components": ([], [None]),
    "n_jobs": ([], [-2]),
    "random_state": ([2**32], [2**32 - 1]),
    "max_rows": (["all"], ["auto", None]),
    "n_repeats": ([], [None]),
    "max_splits": ([], [None]),
    "coverage": ([0.0, 1.0, 90], [0.999]),
    "landmarks": ([], ["uniform", "kmeans++"]),
    "target_landmarks": ([], [None]),
    "solver": ([], ["auto", "exact", "dense"]),
    "rule": ([], ["best", "1se"]),
    "calibration": ([], ["cv", "split"]),
    "feature_map": ([], ["nystroem", "fourier"]),
    "kernel": (["gaussian", 1, None], ["rbf", "precomputed", np.dot]),
    "coef0": (["1", NAN, True], [-1, 0.0]),
    "kernel_params": ([3, "a"], [{}, None]),
    "target_kernel": (["precomputed", None], ["auto", "delta", np.dot]),
    "domain_kernel": (["precomputed", None], ["auto", "delta", np.dot]),
    "verbose": (["yes", -1], [0, 1, True]),
    "kernels": (["rbf", [], ["precomputed"], [3]], [["rbf"], ("linear", "poly")]),
    "cv": (["five", 0.5], [3, None, KFold(), [([0], [1])]]),
    "scoring": (["no such score", 1], ["accuracy", accuracy_score, None]),
    "estimator": ([3, "ridge"], [Ridge(), None]),
    "members": (["linear", None, 1], ["auto", ["linear"], ()]),
    "context": (["yes", 1, None], ["auto", True, False]),
    "progress": (["no", 1, None], [True, print]),
    "metric": (["accuracy", None], [accuracy_score]),
}
OF_A_KIND = {name: kind for kind, names in KINDS.items() for name in names}

X = np.random.default_rng(0).normal(size=(12, 2))
Y, D = np.arange(12) // 3 % 2, np.arange(12) % 3


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constraint_rejects_invalid_values_by_name_and_accepts_documented_ones(name):
    kind = OF_A_KIND.get(name, "")
    refused, accepted = OF_A_NAME.get(name, ([], []))
    for value in [*REFUSED.get(kind, []), *refused]:
        with pytest.raises(ValueError, match=f"'{name}' parameter of fit must be .* Got"):
            check_arguments("fit", **{name: value})
    for value in [*TAKEN.get(kind, []), *accepted]:
        check_arguments("fit", **{name: value})
    assert kind or refused, "what this argument may be is not tested"


def test_constraints_of_single_estimators_override_the_shared_ones():
    check_arguments("fit", INVARIANCE_CONSTRAINTS, domain_weight=INF)
    for rules in (INVARIANCE_CONSTRAINTS, SVM_CONSTRAINTS):
        for value in REFUSED["number"]:
            with pytest.raises(ValueError, match="'domain_weight' parameter"):
                check_arguments("fit", rules, domain_weight=value)
    check_arguments("fit", SVM_CONSTRAINTS, solver="fast")
    with pytest.raises(ValueError, match="'solver' parameter"):
        check_arguments("fit", SVM_CONSTRAINTS, solver="dense")


@pytest.mark.parametrize("name", ["n_test_domains", "n_repeats", "max_splits", "random_state"])
def test_a_splitter_names_invalid_arguments(name):
    splitter = selection.LeaveDomainsOut(**{name: "2"})
    for use in (splitter.get_n_splits, lambda *arguments: next(splitter.split(*arguments))):
        with pytest.raises(ValueError, match=f"'{name}' parameter of LeaveDomainsOut"):
            use(X, Y, D)


FITTED = selection.DomainConformal(LogisticRegression()).fit(X, Y, sample_domain=D)


def worst(**options):
    return metrics.worst_domain_score(Y, Y, D, **{"metric": accuracy_score, **options})


#: Function, one of its arguments, and values that it must reject.
FUNCTIONS = [
    (lambda **o: dw.evaluate(X, Y, D, **o), "n_jobs", REFUSED["workers"]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "random_state", [*REFUSED["seed"], None]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "progress", ["no", 1, None]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "max_rows", [*REFUSED["count"], "all"]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "prepare", REFUSED["truth"]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "quick", REFUSED["truth"]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "force", REFUSED["truth"]),
    (lambda **o: dw.evaluate(X, Y, D, **o), "task", ["classes"]),
    (
        lambda **o: selection.domain_cross_validate(LogisticRegression(), X, Y, D, **o),
        "n_jobs",
        REFUSED["workers"],
    ),
    (worst, "greater_is_better", REFUSED["truth"]),
    (worst, "metric", ["accuracy", None]),
    *(
        (lambda **o: metrics.hsic(X, Y, **o), name, refused)
        for name, refused in [
            ("normalize", REFUSED["truth"]),
            ("block_size", REFUSED["count"]),
            ("gamma_a", REFUSED["number"]),
            ("gamma_b", REFUSED["number"]),
            ("kernel_a", REFUSED["choice"]),
            ("kernel_b", REFUSED["choice"]),
        ]
    ),
    (lambda **o: metrics.mmd(X, D, **o), "gamma", [*REFUSED["number"], "scale"]),
    (lambda **o: metrics.mmd(X, D, **o), "block_size", REFUSED["count"]),
    (lambda **o: metrics.invariance_report(X, Y, D, **o), "gamma", REFUSED["number"]),
    (lambda **o: metrics.invariance_report(X, Y, D, **o), "target_gamma", REFUSED["number"]),
    (lambda **o: metrics.invariance_report(X, Y, D, **o), "block_size", REFUSED["count"]),
    *(
        (datasets.make_synthetic, name, REFUSED[kind])
        for name, kind in [
            ("eta", "number"),
            ("n_per_domain", "number"),
            ("n_domains", "count"),
            ("n_features", "count"),
            ("random_state", "seed"),
        ]
    ),
    (datasets.make_synthetic, "c", [True, NAN, INF, "2"]),
    (datasets.load_heart, "as_frame", ["False", 1]),
    (lambda **o: dw.save(**{"model": FITTED, "path": "m.skops", **o}), "info", ["a", [1], True]),
    (lambda **o: dw.save(**{"model": FITTED, **o}), "path", [3, None, True]),
    (lambda **o: FITTED.predict_set(X, **o), "coverage", [True, NAN, "0.5", 0.0, 1.0, 90]),
]


@pytest.mark.parametrize(
    "function, name, values",
    FUNCTIONS,
    ids=[f"{index}-{name}" for index, (_, name, _) in enumerate(FUNCTIONS)],
)
def test_functions_name_invalid_arguments(function, name, values):
    for value in values:
        with pytest.raises(ValueError, match=f"'{name}' parameter|{name}=|^{name} must be "):
            function(**{name: value})
