"""Rows in every container: the same numbers give the same result.

To add a container, add a line to ``SAME``; to add an estimator, one to ``MODELS``.
"""

import warnings

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import domainwise as dw
from domainwise.selection import DCMCV, DomainConformal, InvariantSearchCV

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

N = 24
X = np.random.default_rng(0).normal(size=(N, 3))
D = np.arange(N) % 3
Y = (X[:, 0] > 0).astype(int)
FRAME = pandas.DataFrame(X, columns=list("abc"))
READ_ONLY = X.copy()
READ_ONLY.setflags(write=False)

MODELS = {
    "DCM": dw.DCM,
    "FastDCM": dw.FastDCM,
    "KPCA": dw.KPCA,
    "DCMCV": lambda: DCMCV(gammas=[0.1], ridges=[0.01], domain_weights=[1.0]),
    "InvariantFeatures": dw.InvariantFeatures,
    "InvariantSVC": dw.InvariantSVC,
    "ridge": lambda: dw.InvariantRidgeClassifierCV(gammas=[0.1], alphas=[1.0]),
    "search": lambda: InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}),
    "ensemble": lambda: dw.DomainEnsembleClassifier(members=["linear"]),
    "conformal": lambda: DomainConformal(LogisticRegression()),
    "context": dw.DomainContext,
    "watch": dw.ShiftWatch,
}
each_model = pytest.mark.parametrize("model", MODELS)

SAME = {
    "list": X.tolist(),
    "Fortran": np.asfortranarray(X),
    "read only": READ_ONLY,
    "every second column": np.repeat(X, 2, axis=1)[:, ::2],
    "other byte order": X.astype(">f8"),
    "objects": X.astype(object),
    "masked, but nothing is": np.ma.masked_array(X),
    "frame": FRAME,
    "frame of numbered columns": pandas.DataFrame(X),
    "nullable frame": FRAME.astype("Float64"),
    "frame of Arrow": FRAME.astype("double[pyarrow]"),
    "frame whose rows are all called 5": FRAME.set_axis([5] * N),
    "polars": polars.DataFrame(X, schema=list("abc"), orient="row"),
    "Arrow": arrow.table(FRAME),
}


def result(model, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = MODELS[model]().fit(rows, Y, sample_domain=D)
        for name in ("decision_function", "predict_proba", "transform"):
            if hasattr(fitted, name):
                return np.asarray(getattr(fitted, name)(rows), dtype=np.float64)
        return fitted.predict(rows)


@each_model
def test_the_same_numbers_give_the_same_result_in_any_container(model):
    expected = result(model, X)
    for way, rows in SAME.items():
        np.testing.assert_allclose(result(model, rows), expected, atol=1e-10, err_msg=way)


#: Estimator and rows whose numbers leave the range of numbers, or do not differ.
EXTREMES = {
    "linear, too large": (lambda: dw.SCA(kernel="linear"), X * 1e100, "linear kernel overflows"),
    "linear, float32": (
        lambda: dw.DCM(kernel="linear"),
        (X * 1e25).astype(np.float32),
        "linear kernel overflows",
    ),
    "rows that do not differ": (MODELS["DCMCV"], np.ones((N, 3)), "projection is constant"),
    "nor in this kernel": (MODELS["DCMCV"], X * 1e-300, "projection is constant"),
}


@pytest.mark.parametrize("case", EXTREMES)
def test_numbers_that_cannot_be_worked_with_are_refused_in_words(case):
    model, rows, words = EXTREMES[case]
    with pytest.raises(ValueError, match=words):
        model().fit(rows, Y, sample_domain=D)


def test_targets_whose_squares_overflow_are_refused():
    with pytest.raises(ValueError, match="y contains values beyond"):
        dw.DomainEnsembleRegressor(members=["linear"]).fit(X, X[:, 0] * 1e200, sample_domain=D)


def test_a_column_called_like_a_mask_is_a_column():
    named = FRAME.rename(columns={"a": "_mask"})
    np.testing.assert_allclose(result("DCM", named), result("DCM", X), atol=1e-10)
