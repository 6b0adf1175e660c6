"""Constraints on arguments of estimators, splitters and functions, in scikit-learn's notation.

Unlike in scikit-learn, booleans are not accepted as numbers.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer_names
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    StrOptions,
    make_constraint,
    validate_parameter_constraints,
)

KERNEL_NAMES = ("rbf", "linear", "poly", "laplacian", "cosine", "precomputed")
LANDMARK_RULES = ("uniform", "stratified", "kmeans++", "leverage")


class Number(Interval):
    """An interval of numbers that does not accept booleans."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether a value is a number in the interval."""
        return not isinstance(val, bool | np.bool_) and bool(super().is_satisfied_by(val))


class SequenceOf(HasMethods):
    """A non-empty sequence (with ``of_dict``, a dict) whose values all satisfy one constraint."""

    def __init__(self, constraint: Any, *, of_dict: bool = False) -> None:
        super().__init__("__iter__")
        self.constraint, self.of_dict = make_constraint(constraint), of_dict

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether all values satisfy the constraint."""
        if isinstance(val, str | bytes) or isinstance(val, dict) != self.of_dict:
            return False
        if not super().is_satisfied_by(val) or getattr(val, "ndim", 1) == 0:
            return False
        values = list(val.values() if isinstance(val, dict) else val)
        return bool(values) and all(self.constraint.is_satisfied_by(value) for value in values)

    def __str__(self) -> str:
        container = "dict" if self.of_dict else "sequence"
        return f"a non-empty {container} in which each value is {self.constraint}"


class ArrayOrSequence(HasMethods):
    """An array or a sequence, but not a string or a dict."""

    def __init__(self) -> None:
        super().__init__("__len__")

    def is_satisfied_by(self, val: Any) -> bool:
        """Return whether a value is such an array or sequence."""
        if isinstance(val, str | bytes | dict) or getattr(val, "ndim", 1) == 0:
            return False
        return bool(super().is_satisfied_by(val))

    def __str__(self) -> str:
        return "an array-like"


POSITIVE = Number(Real, 0, None, closed="neither")
NON_NEGATIVE = Number(Real, 0, None, closed="left")
NON_NEGATIVE_OR_INF = Number(Real, 0, np.inf, closed="both")
COUNT = Number(Integral, 1, None, closed="left")
SEED = Number(Integral, 0, 2**32 - 1, closed="both")

_LABEL_KERNEL = StrOptions({"auto", "delta", "rbf", "linear"})
AUTO = StrOptions({"auto"})


def _all_accept(joined_names: str, *constraints: Any) -> dict[str, list[Any]]:
    """Return the same constraints for several arguments; their names are separated by spaces."""
    return {name: list(constraints) for name in joined_names.split()}


#: Constraints by argument name; almost all estimators use them unchanged.
CONSTRAINTS: dict[str, list[Any]] = {
    **_all_accept("conditional probability relative summary prepare quick force", "boolean"),
    **_all_accept("greater_is_better normalize as_frame", "boolean"),
    **_all_accept(
        "degree domain_epsilon domain_weight epsilon within_weight shrinkage", NON_NEGATIVE
    ),
    **_all_accept("lam tol C clip", POSITIVE),
    **_all_accept("max_iter n_average n_test_domains block_size", COUNT),
    **_all_accept("n_components n_repeats max_splits", COUNT, None),
    **_all_accept("gamma target_gamma domain_gamma", StrOptions({"median", "scale"}), POSITIVE),
    **_all_accept("target_kernel domain_kernel", _LABEL_KERNEL, callable),
    "kernel": [StrOptions(set(KERNEL_NAMES)), callable],
    "coef0": [Number(Real, None, None, closed="neither")],
    "kernel_params": [dict, None],
    "ridge": [NON_NEGATIVE_OR_INF],
    "between": [Number(Real, 0, 1, closed="both")],
    "solver": [StrOptions({"auto", "exact", "dense"})],
    "random_state": [SEED, np.random.RandomState, None],
    "verbose": ["verbose"],
    # Estimators with landmarks.
    "n_landmarks": [AUTO, COUNT, Number(Real, 0, 1, closed="right")],
    "landmarks": [StrOptions(set(LANDMARK_RULES)), ArrayOrSequence()],
    "feature_map": [StrOptions({"nystroem", "fourier"})],
    "target_landmarks": [ArrayOrSequence(), None],
    # Searches.
    **_all_accept("gammas alphas", AUTO, SequenceOf(POSITIVE)),
    "ridges": [AUTO, SequenceOf(NON_NEGATIVE_OR_INF)],
    "domain_weights": [AUTO, SequenceOf(NON_NEGATIVE)],
    "kernels": [SequenceOf(StrOptions(set(KERNEL_NAMES) - {"precomputed"}))],
    "conditionals": [SequenceOf("boolean")],
    "epsilons": [SequenceOf(NON_NEGATIVE)],
    "cv": ["cv_object"],
    "scoring": [StrOptions(set(get_scorer_names())), callable, None],
    "estimator": [HasMethods(["fit", "predict"]), None],
    "rule": [StrOptions({"best", "1se"})],
    "n_jobs": [Number(Integral, None, -1, closed="right"), COUNT, None],
    # Support vector machines and ensembles.
    "class_weight": [StrOptions({"balanced"}), SequenceOf(NON_NEGATIVE, of_dict=True), None],
    "decision": [StrOptions({"auto", "argmax", "balanced"}), Number(Real, 0, 1, closed="neither")],
    "members": [AUTO, list, tuple],
    "context": [AUTO, "boolean"],
    "calibration": [StrOptions({"cv", "split"})],
    "time_budget": [POSITIVE, None],
    # Functions.
    "max_rows": [AUTO, COUNT, None],
    "progress": ["boolean", callable],
    "metric": [callable],
    "coverage": [Number(Real, 0, 1, closed="neither")],
}
#: Constraints for estimators in which ``domain_weight`` may be infinite.
INVARIANCE_CONSTRAINTS = {"domain_weight": [NON_NEGATIVE_OR_INF]}
#: Constraints for InvariantSVC and InvariantSVR.
SVM_CONSTRAINTS: dict[str, list[Any]] = {
    **INVARIANCE_CONSTRAINTS,
    "solver": [StrOptions({"auto", "exact", "fast"})],
}
#: Constraints for the functions in :mod:`domainwise.metrics`.
METRIC_CONSTRAINTS: dict[str, list[Any]] = {
    **_all_accept("kernel_a kernel_b", _LABEL_KERNEL),
    **_all_accept("gamma_a gamma_b gamma target_gamma", StrOptions({"median"}), POSITIVE),
}


def check_arguments(
    caller: str, constraints: dict[str, list[Any]] | None = None, **arguments: Any
) -> None:
    """Check the arguments of a function; ``constraints`` override the shared ones."""
    validate_parameter_constraints(CONSTRAINTS | (constraints or {}), arguments, caller)


def validate_arguments(estimator: Any) -> None:
    """Check the arguments of an estimator as its ``fit`` does."""
    estimator._validate_params()
