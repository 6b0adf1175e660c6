"""Arguments that look like something else: refused by name, before any work.

To add a case, add a value to a kind, or an argument to the kind it is of.
"""

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score

import domainwise as dw
from domainwise import datasets, metrics, selection

NAN, INF = float("nan"), float("inf")

#: What is refused in arguments of a kind, and why.
REFUSED = {
    "truth": ["False", 1, 0.0, None],  # a string is true whatever it says
    "count": [True, NAN, 2.5, "3", 0, -1, [2]],  # True is one, and NaN smaller than nothing
    "number": [True, NAN, "0.5", -1.0, 1j, np.array([0.5])],
    "seed": [True, -1, "0", 0.5, NAN],
    "workers": [True, 0, 1.5, "2", NAN],
    "numbers": ["scale", [], [NAN], [-1.0], ["1"], [True], 0.5, {"a": 1.0}],
    "truths": [["False"], [1], "no", [], True],
    "weights": [{0: -1.0}, {0: NAN}, {0: INF}, {0: True}, {0: "1"}, {}, "equal", [1.0, 2.0]],
    "choice": ["nothing such", 1, True],
    "rows": ["nothing such", b"no", 3, {"a": 1}],
}
#: Arguments by kind. What an estimator does not have is not tried there.
KINDS = {
    "truth": ["conditional", "probability", "relative", "summary"],
    "count": ["n_components", "max_iter", "n_average", "n_test_domains", "n_repeats", "max_splits"],
    "number": ["gamma", "degree", "epsilon", "domain_weight", "domain_epsilon", "domain_gamma",
               "target_gamma", "ridge", "lam", "between", "within_weight", "tol", "C", "shrinkage",
               "clip", "time_budget", "n_landmarks"],
    "seed": ["random_state"],
    "workers": ["n_jobs"],
    "numbers": ["gammas", "alphas", "ridges", "domain_weights", "epsilons"],
    "truths": ["conditionals"],
    "weights": ["class_weight"],
    "choice": ["solver", "rule", "calibration", "context"],
    "rows": ["landmarks"],
}  # fmt: skip
#: What such arguments take as well, as NumPy's scalars.
TAKEN = {
    "truth": [np.True_, np.False_],
    "count": [np.int64(2), np.uint8(2)],
    "number": [np.float64(0.5), np.float32(0.5)],
    "seed": [np.int64(3)],
    "workers": [np.int64(1)],
    "numbers": [np.array([0.5, 1.0]), (np.float32(0.5),)],
    "truths": [np.array([True, False])],
    "weights": [{0: np.float64(2.0), 1: np.int64(1)}],
}

X = np.random.default_rng(0).normal(size=(12, 2))
Y, D = np.arange(12) // 3 % 2, np.arange(12) % 3


def estimators():
    """Every public estimator, and those that need another one."""
    public = [getattr(dw, name) for name in dw.__all__]
    public += [getattr(selection, name) for name in selection.__all__]
    plain = {c for c in public if inspect.isclass(c) and issubclass(c, BaseEstimator)}
    for cls in sorted(plain, key=lambda cls: cls.__name__):
        if "estimator" in inspect.signature(cls).parameters and not hasattr(cls, "searched"):
            inner = dw.InvariantSVC() if "Invariant" in cls.__name__ else LogisticRegression()
            grid = {"param_grid": {"C": [1.0]}} if "Search" in cls.__name__ else {}
            yield cls(inner, **grid)
        else:
            yield cls()


def cases(values):
    for model in [*estimators(), selection.LeaveDomainsOut()]:
        own = inspect.signature(type(model)).parameters
        for kind, names in KINDS.items():
            for name in (name for name in names if name in own):
                for value in values.get(kind, ()):
                    optional = own[name].default is None and value is None
                    if optional or (name == "context" and value is True):
                        continue
                    yield pytest.param(
                        model, name, value, id=f"{type(model).__name__}-{name}-{value!r}"
                    )


@pytest.mark.parametrize("model, name, value", [*cases(REFUSED)])
def test_what_an_argument_cannot_be_is_refused_by_its_name(model, name, value):
    model = type(model)(**{**vars(model), name: value})
    use = getattr(model, "fit", None) or model.get_n_splits
    with pytest.raises(ValueError, match=f"'{name}' parameter of {type(model).__name__}"):
        use(X, Y, D)


@pytest.mark.parametrize("model, name, value", [*cases(TAKEN)])
def test_scalars_of_numpy_are_what_they_look_like(model, name, value):
    model = type(model)(**{**vars(model), name: value})
    if isinstance(model, BaseEstimator):
        model._validate_params()
    else:
        assert list(model.split(X, Y, D))


FITTED = selection.DomainConformal(LogisticRegression()).fit(X, Y, sample_domain=D)


def worst(**options):
    return metrics.worst_domain_score(Y, Y, D, **{"metric": accuracy_score, **options})


#: Function with arguments that it takes, one of its arguments, and what is refused there.
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
    (datasets.load_gvhd, "ungated", REFUSED["truth"]),
    (datasets.load_facies, "recruit", REFUSED["truth"]),
    (datasets.load_cytof, "cofactor", REFUSED["number"]),
    *(
        (getattr(datasets, name), "as_frame", ["False", 1])
        for name in datasets.__all__
        if name.startswith("load_")
    ),
    (lambda **o: dw.save(**{"model": FITTED, "path": "m.skops", **o}), "info", ["a", [1], True]),
    (lambda **o: dw.save(**{"model": FITTED, **o}), "path", [3, None, True]),
    (lambda **o: FITTED.predict_set(X, **o), "coverage", [True, NAN, "0.5", 0.0, 1.0, 90]),
]


@pytest.mark.parametrize(
    "function, name, value",
    [
        pytest.param(function, name, value, id=f"{place}-{name}-{value!r}")
        for place, (function, name, values) in enumerate(FUNCTIONS)
        for value in values
    ],
)
def test_functions_refuse_such_arguments_by_name_too(function, name, value):
    with pytest.raises(ValueError, match=f"'{name}' parameter|{name}="):
        function(**{name: value})
