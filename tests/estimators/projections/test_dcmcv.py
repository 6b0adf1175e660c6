"""The search equals a brute-force search, with fewer matrix products."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import domainwise.estimators.projections.exact as base
from domainwise import DCM, FastDCM
from domainwise.algebra.gram.iterative import StreamedGram
from domainwise.datasets import make_synthetic
from domainwise.estimators.projections.dcmcv import RULES
from domainwise.held_out.search import scores as heads
from domainwise.selection import DCMCV, FastDCMCV, LeaveDomainsOut

GRID = {"gammas": [0.05, 0.2], "ridges": [1e-3, 0.1, np.inf], "domain_weights": [0.0, 0.1, 1.0]}


@pytest.fixture(scope="module")
def data():
    return make_synthetic(n_domains=5, n_per_domain=30, random_state=0)


def brute_force(model, head, data, y, scoring, points):
    """Mean score of each point over held-out domains, from separate fits."""
    scores = []
    with sklearn.config_context(enable_metadata_routing=True):
        for point in points:
            pipeline = make_pipeline(clone(model).set_params(**point), head)
            search = GridSearchCV(pipeline, {}, cv=LeaveDomainsOut(), scoring=scoring)
            search.fit(data.data, y, sample_domain=data.sample_domain)
            scores.append(search.best_score_)
    return np.array(scores)


@pytest.mark.parametrize(
    ("search", "model"),
    [
        (DCMCV(**GRID, conditionals=(False, True)), DCM()),
        (FastDCMCV(**GRID, conditionals=(False, True), n_landmarks=40), FastDCM(n_landmarks=40)),
        (
            FastDCMCV(**GRID, conditionals=(False, True), n_landmarks=40, feature_map="fourier"),
            FastDCM(n_landmarks=40, feature_map="fourier"),
        ),
    ],
    ids=["exact", "fast", "fourier"],
)
def test_scores_equal_those_of_separate_fits(data, search, model):
    search = clone(search).set_params(scoring="balanced_accuracy")
    search.fit(data.data, data.target, sample_domain=data.sample_domain)
    expected = brute_force(
        model,
        LinearDiscriminantAnalysis(),
        data,
        data.target,
        "balanced_accuracy",
        search.cv_results_["params"],
    )
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, atol=1e-9)
    assert search.best_score_ == expected.max()
    assert len(expected) == 2 * 3 * 3 * 2


def test_a_continuous_target_is_scored_by_ridge_regression(data):
    y = data.data[:, 0] + data.data[:, 1] ** 2
    search = DCMCV(**GRID, epsilons=(1e-3, 1e-1)).fit(
        data.data, y, sample_domain=data.sample_domain
    )
    expected = brute_force(
        DCM(), Ridge(), data, y, "neg_root_mean_squared_error", search.cv_results_["params"]
    )
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-6)


def test_the_streamed_operator_gives_the_same_choice(data, monkeypatch):
    args = data.data, data.target
    dense = DCMCV(**GRID).fit(*args, sample_domain=data.sample_domain)
    monkeypatch.setattr(base, "DENSE_ROWS", 0)
    streamed = DCMCV(**GRID).fit(*args, sample_domain=data.sample_domain)
    assert streamed.solver_info_["operator"] == "StreamedGram"
    assert streamed.best_params_ == dense.best_params_
    np.testing.assert_allclose(
        streamed.cv_results_["mean_test_score"], dense.cv_results_["mean_test_score"], atol=0.02
    )


def test_a_path_shares_its_products(data, monkeypatch):
    """All weights and ridges of a split share one product with K, besides those of the solver."""
    monkeypatch.setattr(base, "DENSE_ROWS", 0)
    columns = []
    original = StreamedGram.uncentred_product
    monkeypatch.setattr(
        StreamedGram,
        "uncentred_product",
        lambda self, V: columns.append(V.shape[1]) or original(self, V),
    )
    weights = [0.0, 0.01, 0.1, 1.0, 10.0]
    DCMCV(gammas=[0.1], ridges=[np.inf], domain_weights=weights, cv=LeaveDomainsOut()).fit(
        data.data, data.target, sample_domain=data.sample_domain
    )
    assert len(columns) == 5 + 1  # a product per split, and one for the final fit


def test_the_fitted_search_is_its_best_model(data):
    search = DCMCV(**GRID).fit(data.data, data.target, sample_domain=data.sample_domain)
    best = DCM(**search.best_params_).fit(data.data, data.target, sample_domain=data.sample_domain)
    for name in ("eigenvalues_", "embedding_", "dual_coef_", "gamma_", "domains_", "classes_"):
        np.testing.assert_array_equal(getattr(search, name), getattr(best, name))
    np.testing.assert_array_equal(search.transform(data.data[:5]), best.transform(data.data[:5]))
    assert list(search.get_feature_names_out()) == ["dcmcv0"]
    assert search.n_splits_ == 5


def test_fitted_attributes_are_stored_once(data):
    search = DCMCV(**GRID)
    with pytest.raises(AttributeError, match="eigenvalues_|best_estimator_"):
        search.eigenvalues_  # noqa: B018
    search.fit(data.data, data.target, sample_domain=data.sample_domain)
    assert "dual_coef_" not in vars(search)


def test_many_domains_are_held_out_in_ten_groups():
    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((120, 3)), np.repeat(np.arange(24), 5)
    y = (X[:, 0] > 0).astype(int)
    search = DCMCV(gammas=[0.1], ridges=[0.1], domain_weights=[0.0])
    assert search.fit(X, y, sample_domain=domain).n_splits_ == 10


def test_without_domains_rows_are_held_out_with_a_warning(data):
    search = DCMCV(gammas=[0.1], ridges=[0.1], domain_weights=[0.0])
    with pytest.warns(UserWarning, match="no domain to hold out"):
        search.fit(data.data, data.target)
    assert search.n_splits_ == 5
    assert search.set_params(cv=KFold(3)).fit(data.data, data.target).n_splits_ == 3


def test_a_domain_with_all_rows_of_a_class_is_not_held_out():
    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((60, 3)), np.repeat([0, 1, 2], 20)
    y = (domain == 0).astype(int)
    y[:5] = 0  # class 1 occurs in domain 0 only
    search = DCMCV(gammas=[0.1], ridges=[0.1], domain_weights=[0.0])
    assert search.fit(X, y, sample_domain=domain).n_splits_ == 2


@pytest.mark.parametrize("search", [DCMCV(gammas=[0.1]), FastDCMCV(gammas=[0.1], n_landmarks=6)])
@pytest.mark.parametrize("lost", [0, 1])  # depends on the version of scikit-learn
def test_classes_with_one_row_each_are_accepted(search, lost, monkeypatch):
    monkeypatch.setattr(heads, "lost_degrees_of_freedom", lambda: lost)
    X, y = np.random.default_rng(0).normal(size=(12, 3)), np.tile(np.arange(6), 2)
    search = clone(search).fit(X, y, sample_domain=np.repeat([0, 1], 6))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_another_predictor_and_scorer_can_be_used(data):
    search = DCMCV(**GRID, estimator=SVC(), scoring="accuracy")
    search.fit(data.data, data.target, sample_domain=data.sample_domain)
    expected = brute_force(
        DCM(), SVC(), data, data.target, "accuracy", search.cv_results_["params"]
    )
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, atol=1e-9)


def test_one_standard_error_prefers_more_regularization():
    points = [
        {"ridge": r, "domain_weight": w, "gamma": g}
        for r, w, g in [(0.1, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 0.5)]
    ]
    scores = np.array([[0.9, 0.8], [0.85, 0.84], [0.80, 0.89], [0.2, 0.1]])
    assert RULES["best"](points, scores) == [0]
    assert RULES["1se"](points, scores) == [2]
    # Differences of 0.1 and -0.004: a mean of 0.048, and a standard error of 0.104 / 2.
    near = np.array([[0.9, 0.8], [0.8, 0.804], [0.2, 0.1], [0.2, 0.1]])
    assert RULES["1se"](points, near) == [1]
    assert RULES["1se"](points, near - [[0.0], [0.005], [0.0], [0.0]]) == [0]


def test_workers_do_not_change_the_scores(data):
    one, two = (
        DCMCV(**GRID, n_jobs=n).fit(data.data, data.target, sample_domain=data.sample_domain)
        for n in (1, 2)
    )
    np.testing.assert_allclose(
        one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"], atol=1e-12
    )
    assert one.best_params_ == two.best_params_


def test_works_inside_a_routed_pipeline(data):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), DCMCV(**GRID), SVC())
        pipeline.fit(data.data, data.target, sample_domain=data.sample_domain)
    assert len(pipeline["dcmcv"].domains_) == 5


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"gammas": [0.0]}, "gammas"),
        ({"ridges": []}, "'ridges' .* Got \\[\\]"),
        ({"domain_weights": [-1.0]}, "'domain_weights' .* Got \\[-1.0\\]"),
        ({"rule": "2se"}, "'rule' parameter of DCMCV"),
        ({"scoring": "nonsense"}, "'scoring' parameter of DCMCV"),
        ({"kernel": "precomputed"}, "precomputed"),
        ({"estimator": 3}, "'estimator' parameter of DCMCV"),
    ],
)
def test_bad_arguments_are_named(data, params, message):
    with pytest.raises(ValueError, match=message):
        DCMCV(**params).fit(data.data, data.target, sample_domain=data.sample_domain)


def test_conditional_needs_classes(data):
    with pytest.raises(ValueError, match="y is continuous"):
        DCMCV(conditionals=(True,)).fit(
            data.data, data.data[:, 0], sample_domain=data.sample_domain
        )


@pytest.mark.parametrize(
    "arguments, continuous, match",
    [
        ({"scoring": "accuracy"}, True, "scoring='accuracy' is not for a continuous target"),
        ({"scoring": "r2"}, False, "scoring='r2' is for a continuous target"),
        ({"estimator": LogisticRegression()}, True, "estimator must be a regressor instance"),
        ({"estimator": Ridge()}, False, "estimator must be a classifier instance"),
        ({"estimator": Ridge}, True, "estimator must be a regressor instance"),
    ],
)
def test_wrong_kinds_are_refused_before_anything_is_scored(
    arguments, continuous, match, monkeypatch
):
    def refuse(*_, **__):
        raise AssertionError("candidates were scored")

    monkeypatch.setattr("domainwise.held_out.search.driver.search", refuse)
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] if continuous else (X[:, 0] > 0).astype(int)
    with pytest.raises(ValueError, match=match):
        DCMCV(**arguments).fit(X, y, sample_domain=np.repeat(np.arange(4), 10))
