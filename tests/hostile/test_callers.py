"""What a caller passes is read as it is, or refused, and never changed, whatever happens to it."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import domainwise as dw
from domainwise.selection import DomainConformal, InvariantSearchCV, domain_cross_validate

pandas = pytest.importorskip("pandas")

N = 48
X = np.random.default_rng(0).normal(size=(N, 3)) * 10 + 50
D = np.arange(N) % 4
Y = X[:, 0] + np.random.default_rng(1).normal(size=N)
CLASSES = (Y > 50).astype(int)
WEIGHTS = np.random.default_rng(2).integers(1, 4, N).astype(float)


def overwriting(copy=False):
    """Return scikit-learn steps that overwrite the rows they are given, if these can be changed."""
    return make_pipeline(StandardScaler(copy=copy), Ridge(copy_X=copy))


USES = {
    "ensemble": lambda model: dw.DomainEnsembleRegressor([("own", model), "linear"]),
    "adapter": dw.SiteAdapter,
    "conformal": DomainConformal,
}


@pytest.mark.parametrize("use", USES)
def test_an_estimator_that_overwrites_rows_changes_no_result_and_no_rows(use):
    expected = USES[use](overwriting(copy=True)).fit(X, Y, sample_domain=D).predict(X)
    rows, targets = np.asfortranarray(X), Y.copy()
    model = USES[use](overwriting()).fit(rows, targets, sample_domain=D)
    for _ in range(2):
        np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-10)
    np.testing.assert_array_equal(rows, X)
    np.testing.assert_array_equal(targets, Y)


class Careless(RegressorMixin, BaseEstimator):
    """Writes to what it is given."""

    def __init__(self, part="rows"):
        self.part = part

    def fit(self, X, y):
        if self.part == "targets":
            y[:] = 0.0
        elif isinstance(X, pandas.DataFrame):
            X["a"] = 0.0
            del X["b"]
        else:
            X[:] = 0.0
        return self

    def predict(self, X):
        return np.zeros(len(X))


@pytest.mark.parametrize("rows", [X, pandas.DataFrame(X, columns=list("abc"))], ids=["X", "frame"])
@pytest.mark.parametrize("part", ["rows", "targets"])
def test_an_estimator_that_writes_to_its_arguments_does_not_change_the_callers(rows, part):
    model, targets, before = Careless(part), Y.copy(), np.array(rows)
    uses = [
        lambda: dw.SiteAdapter(model).fit(rows, targets, sample_domain=D),
        lambda: DomainConformal(model).fit(rows, targets, sample_domain=D),
        lambda: domain_cross_validate(model, rows, targets, D),
        lambda: dw.evaluate(
            *(rows, targets, D), methods=[("own", model)], prepare=False, progress=False
        ).fit("own"),
    ]
    for use in uses:
        try:
            use()
        except ValueError as error:
            assert "read-only" in str(error)  # noqa: PT017 (it may also work)
        np.testing.assert_array_equal(np.array(rows), before)
        np.testing.assert_array_equal(targets, Y)


WEIGHTED = {
    "projection": (dw.DCM(), CLASSES),
    "kernel": (dw.InvariantKernel(), CLASSES),
    "machine": (dw.InvariantSVC(), CLASSES),
    "ridge": (dw.InvariantRidgeCV(), Y),
    "search": (InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}), CLASSES),
    "ensemble": (dw.DomainEnsembleRegressor(["linear"]), Y),
    "adapter": (dw.SiteAdapter(LogisticRegression()), CLASSES),
}


@pytest.mark.parametrize("model", WEIGHTED)
@pytest.mark.parametrize(
    "weights, reason",
    [
        (np.ma.masked_array(WEIGHTS, WEIGHTS > 2), "masked entries"),
        (WEIGHTS + 1j, "must contain numbers"),
        (WEIGHTS.astype("M8[s]"), "must contain numbers"),
        (WEIGHTS.astype("m8[s]"), "must contain numbers"),
        (WEIGHTS.astype(str), "must contain numbers"),
        (WEIGHTS * 1e300, r"beyond 1e\+150"),
    ],
    ids=["masked", "complex", "dates", "durations", "text", "huge"],
)
def test_weights_that_are_no_numbers_are_refused(model, weights, reason):
    estimator, y = WEIGHTED[model]
    with pytest.raises(ValueError, match=f"sample_weight .*{reason}"):
        estimator.fit(X, y, sample_domain=D, sample_weight=weights)


def test_masked_targets_of_a_ridge_are_refused():
    with pytest.raises(ValueError, match="y contains missing values"):
        dw.InvariantRidgeCV().fit(X, np.ma.masked_array(Y, Y > 60), sample_domain=D)


def test_descriptors_that_are_all_equal_are_one_domain():
    with pytest.warns(UserWarning, match="contains only one domain"):
        dw.InvariantFeatures().fit(X, sample_domain=[(1.0, 2.0)] * N)


@pytest.mark.parametrize("values", [[[1.0]], [[0.2, 0.3, 0.5]], [["a", "b"]]])
def test_probabilities_of_a_custom_model_have_a_column_for_each_class(values):
    class Own(LogisticRegression):
        def predict_proba(self, X):
            return np.array(values * len(X))

    methods = ["constant", ("own", Own())]
    evaluation = dw.evaluate(X, CLASSES, D, methods=methods, progress=False)
    assert "for 2 classes" in evaluation.left_out["own"]
