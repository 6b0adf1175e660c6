"""Invalid data and arguments that were once accepted silently raise errors in all estimators."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import HalvingGridSearchCV

import domainwise as dw
from domainwise import selection
from domainwise.base.inputs import refuse_masked_targets
from domainwise.models.tuning import MethodSearch
from domainwise.selection import LeaveDomainsOut, domain_cross_validate

ESTIMATORS = runpy.run_path(str(Path(__file__).parents[1] / "test_common.py"))["ESTIMATORS"]

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.arange(60) % 2
DOMAIN = np.array([1, 2, -3])[np.arange(60) // 20]
MASKED = np.where(DOMAIN < 0, -1, Y)
IGNORE_Y = (dw.DomainContext, dw.ShiftWatch, dw.InvariantKernel, dw.InvariantFeatures)

each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)


@each_estimator
def test_labels_that_skada_has_masked_are_errors(estimator):
    model = clone(estimator)
    if isinstance(model, IGNORE_Y) or not getattr(model, "_uses_target", True):
        model.fit(X, MASKED, sample_domain=DOMAIN)  # y is not used
        return
    with pytest.raises(ValueError, match=r"y is -1 exactly .* in 20 of 60 rows.* Drop these rows"):
        model.fit(X, MASKED, sample_domain=DOMAIN)


@pytest.mark.parametrize(
    ("y", "domain"),
    [
        (Y, DOMAIN),  # negative domains with labels
        (np.where(Y == 1, 1, -1), np.abs(DOMAIN)),  # a class -1
        (np.where(Y == 1, 1, -1), DOMAIN),  # both
        (MASKED.astype(str), DOMAIN),
        (MASKED, DOMAIN.astype(str)),
        (MASKED, None),
        (None, DOMAIN),
        (MASKED[:-1], DOMAIN),  # other checks reject different lengths
        (["a", 1], [1, None]),
    ],
)
def test_negative_domains_and_targets_that_are_not_masks_are_accepted(y, domain):
    refuse_masked_targets(y, domain)


def test_masked_labels_in_lists_and_floats_are_errors():
    for y, domain in ((MASKED.tolist(), DOMAIN.tolist()), (MASKED.astype(float), DOMAIN * 1.0)):
        with pytest.raises(ValueError, match="skada masks labels"):
            refuse_masked_targets(y, domain)


def test_a_batch_with_masked_labels_is_an_error():
    source = DOMAIN > 0
    model = dw.FastDCM(n_landmarks=10).partial_fit(X[source], Y[source], DOMAIN[source])
    with pytest.raises(ValueError, match="skada masks labels"):
        model.partial_fit(X[~source], MASKED[~source], DOMAIN[~source])
    ridge = dw.InvariantRidgeClassifierCV(n_landmarks=10)
    for rows in (source, ~source):
        ridge.partial_fit(X[rows], MASKED[rows], DOMAIN[rows])
    with pytest.raises(ValueError, match="skada masks labels"):
        ridge.finalize()


@pytest.mark.parametrize("fit", ["fit", "partial_fit"])
@pytest.mark.parametrize("kind", ["InvariantRidgeClassifierCV", "InvariantRidgeCV"])
def test_the_error_about_missing_values_names_the_step_to_add(kind, fit):
    holes = np.where(X > 2, np.nan, X)
    ensemble = "DomainEnsembleClassifier" if "Classifier" in kind else "DomainEnsembleRegressor"
    message = rf"X contains NaN.*make_pipeline\(SimpleImputer\(\), {kind}\(\)\), or use {ensemble}"
    with pytest.raises(ValueError, match=message):
        getattr(getattr(dw, kind)(), fit)(holes, Y, sample_domain=DOMAIN)


def test_the_error_of_a_transformer_about_missing_values_names_only_the_imputer():
    with pytest.raises(ValueError, match=r"make_pipeline\(SimpleImputer\(\), DCM\(\)\)\.$"):
        dw.DCM().fit(np.full((60, 3), np.nan), Y, sample_domain=DOMAIN)


@pytest.mark.parametrize(
    "estimator",
    [model for model in ESTIMATORS if "class_weight" in model.get_params(deep=False)],
    ids=lambda e: type(e).__name__,
)
def test_weights_for_classes_that_do_not_exist_are_errors(estimator):
    model = clone(estimator).set_params(class_weight={0: 1.0, 1: 2.0, 5: 3.0})
    with pytest.raises(ValueError, match="class_weight contains 5, which is not a class of y"):
        model.fit(X, Y, sample_domain=DOMAIN)


def test_weights_for_classes_that_are_in_no_batch_are_errors():
    model = dw.InvariantRidgeClassifierCV(class_weight={0: 1.0, 5: 2.0}, n_landmarks=10)
    model.partial_fit(X, Y, sample_domain=DOMAIN)
    with pytest.raises(ValueError, match="class_weight contains 5, which is not a class of y"):
        model.predict(X)


@pytest.mark.parametrize(
    "fit",
    [
        dw.DomainEnsembleClassifier(["linear"], scoring="r2").fit,
        dw.InvariantRidgeClassifierCV(scoring="r2").fit,
        selection.InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}, scoring="r2").fit,
        MethodSearch(LogisticRegression(), {"C": [1.0, 2.0]}, scoring="r2").fit,
        lambda X, y, sample_domain: domain_cross_validate(
            LogisticRegression(), X, y, sample_domain, scoring="r2"
        ),
    ],
    ids=["ensemble", "ridge", "search", "method", "cross_validate"],
)
@pytest.mark.parametrize("names", [np.array([0, 1]), np.array(["no", "yes"])], ids=["0/1", "text"])
def test_regression_scorers_are_errors_for_classes(fit, names):
    with pytest.raises(ValueError, match="scoring='r2' is for a continuous target.*Choose"):
        fit(X, names[Y], sample_domain=DOMAIN)


def test_a_scorer_that_fails_on_all_domains_is_an_error_in_the_ensemble():
    model = dw.DomainEnsembleClassifier(["linear"], scoring=get_scorer("r2"))
    with pytest.raises(ValueError, match="not defined on any held-out domain.*another scorer"):
        model.fit(X, np.array(["no", "yes"])[Y], sample_domain=DOMAIN)


@pytest.mark.parametrize("cv", [LeaveDomainsOut(), LeaveDomainsOut(n_repeats=4)])
def test_halving_searches_accept_our_splitters_without_a_seed(cv):
    grid = HalvingGridSearchCV(LogisticRegression(), {"C": [0.1, 1.0, 10.0]}, cv=cv)
    assert grid.fit(X, Y, groups=DOMAIN).best_params_["C"] in (0.1, 1.0, 10.0)
