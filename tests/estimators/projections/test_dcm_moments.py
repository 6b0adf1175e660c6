"""FastDCMCV from moments equals separate fits, and the search with rows in memory."""

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold, RepeatedKFold
from sklearn.pipeline import make_pipeline

from domainwise import FastDCM
from domainwise.selection import FastDCMCV, LeaveDomainsOut

GRID = {"gammas": [0.05, 0.3], "ridges": [1e-4, 0.1, np.inf], "domain_weights": [0.0, 0.1, 2.0]}
TARGETS = {"target_gamma": 0.4, "target_landmarks": np.linspace(-2, 6, 25)}


def make_rows(n=260, n_domains=6, seed=0):
    rng = np.random.default_rng(seed)
    d = rng.choice(n_domains, n, p=np.arange(1, n_domains + 1) / np.arange(1, n_domains + 1).sum())
    X = rng.standard_normal((n, 4)) + 0.4 * d[:, None]
    t = np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.2 * d + 0.3 * rng.standard_normal(n)
    within = X[:, 0] - 0.4 * d + 0.4 * rng.standard_normal(n)  # all classes in all domains
    return X, np.array(["a", "b", "c"])[np.digitize(within, [-0.5, 0.5])], t, d


def split_scores(model):
    results = model.cv_results_
    return np.column_stack([results[f"split{i}_test_score"] for i in range(model.n_splits_)])


def both_split_scores(search, X, y, d, monkeypatch):
    """Scores of the splits from moments, and from rows in memory."""
    held = clone(search).fit(X, y, sample_domain=d)
    monkeypatch.setattr("domainwise.estimators.projections.dcmcv.MAX_ROWS_FOR_SPLIT_LANDMARKS", 0)
    moments = clone(search).fit(X, y, sample_domain=d)
    assert moments.best_params_ == held.best_params_
    np.testing.assert_array_equal(moments.transform(X), held.transform(X))
    return split_scores(moments), split_scores(held)


@pytest.mark.parametrize("continuous", [False, True])
def test_scores_equal_those_of_separate_fits(continuous, monkeypatch):
    X, y, t, d = make_rows()
    monkeypatch.setattr("domainwise.estimators.projections.dcmcv.MAX_ROWS_FOR_SPLIT_LANDMARKS", 0)
    search, model, head = FastDCMCV(**GRID, conditionals=(False, True)), FastDCM(), None
    if continuous:
        y, head, scoring = t, Ridge(), "neg_root_mean_squared_error"
        search, model = FastDCMCV(**GRID, **TARGETS), FastDCM(**TARGETS)
    else:
        head, scoring = LinearDiscriminantAnalysis(), "balanced_accuracy"
        search.set_params(scoring=scoring)
    search.set_params(landmarks=X[::7]).fit(X, y, sample_domain=d)
    expected = []
    with sklearn.config_context(enable_metadata_routing=True):
        for point in search.cv_results_["params"]:
            pipeline = make_pipeline(clone(model).set_params(landmarks=X[::7], **point), head)
            one = GridSearchCV(pipeline, {}, cv=LeaveDomainsOut(), scoring=scoring)
            expected.append(one.fit(X, y, sample_domain=d).best_score_)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-8)


@pytest.mark.filterwarnings("ignore:The groups parameter is ignored")
@pytest.mark.parametrize(
    "cv",
    [
        None,
        LeaveDomainsOut(2),
        KFold(3, shuffle=True, random_state=0),
        RepeatedKFold(n_splits=2, n_repeats=3, random_state=1),
    ],
)
@pytest.mark.parametrize("scoring", ["roc_auc_ovr", "neg_log_loss"])
def test_moments_and_rows_in_memory_agree(monkeypatch, cv, scoring):
    X, y, _, d = make_rows()
    search = FastDCMCV(**GRID, cv=cv, landmarks=X[::7], scoring=scoring, n_components=1)
    by_moments, expected = both_split_scores(search, X, y, d, monkeypatch)
    np.testing.assert_allclose(by_moments, expected, rtol=1e-8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"feature_map": "fourier", "n_landmarks": 40, "kernel": "laplacian"},
        {"kernel": "poly", "degree": 2, "epsilons": (1e-3, 1e-1)},
        {"kernel": "linear", "gammas": [1.0]},
    ],
)
def test_any_kernel_and_features(monkeypatch, arguments):
    X, y, _, d = make_rows()
    landmarks = {} if "feature_map" in arguments else {"landmarks": X[::9]}
    search = FastDCMCV(**(GRID | landmarks | arguments), scoring="neg_log_loss")
    by_moments, expected = both_split_scores(search, X, y, d, monkeypatch)
    np.testing.assert_allclose(by_moments, expected, rtol=1e-7)


@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_several_targets_and_domain_descriptors(monkeypatch, offset):
    X, _, t, d = make_rows()
    Y = np.column_stack([t, X[:, 2] ** 2]) + offset
    time = d[:, None] + np.random.default_rng(1).standard_normal((len(d), 1))
    targets = {"target_kernel": "linear", "domain_kernel": "linear", "cv": 3}
    search = FastDCMCV(**GRID, **targets, landmarks=X[::7], scoring="r2")
    by_moments, expected = both_split_scores(search, X, Y, time, monkeypatch)
    np.testing.assert_allclose(by_moments, expected, rtol=1e-6, atol=1e-8)


ODD = {
    "one row in a domain": lambda y, d: (y, np.where(np.arange(len(d)) == 3, 7, d)),
    "a class in one fold only": lambda y, d: (np.where((y == "a") & (d != 2), "b", y), d),
    "a fold that is all of a class": lambda y, d: (np.where(d == 2, "z", y), d),
    "a class of one row": lambda y, d: (np.where(np.arange(len(d)) == 5, "q", y), d),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_domains_and_classes(monkeypatch, odd):
    X, y, _, d = make_rows(120)
    y, d = ODD[odd](y, d)
    X[10:20] = X[10]  # duplicates
    search = FastDCMCV(**GRID, landmarks=X[::4], conditionals=(False, True))
    by_moments, expected = both_split_scores(search, X, y, d, monkeypatch)
    np.testing.assert_allclose(by_moments, expected, rtol=1e-8)


def test_another_predictor_gets_the_rows(monkeypatch):
    X, y, _, d = make_rows()
    search = FastDCMCV(**GRID, landmarks=X[::7], estimator=LinearDiscriminantAnalysis())
    monkeypatch.setattr("domainwise.estimators.projections.path.sum_training_rows", None)
    by_moments, expected = both_split_scores(search, X, y, d, monkeypatch)
    np.testing.assert_array_equal(by_moments, expected)


def test_workers_and_float32_rows(monkeypatch):
    X, y, _, d = make_rows()
    monkeypatch.setattr("domainwise.estimators.projections.dcmcv.MAX_ROWS_FOR_SPLIT_LANDMARKS", 0)
    search = FastDCMCV(**GRID, landmarks=X[::7], scoring="neg_log_loss")
    serial = clone(search).fit(X, y, sample_domain=d)
    two = clone(search).set_params(n_jobs=2).fit(X, y, sample_domain=d)
    np.testing.assert_allclose(split_scores(two), split_scores(serial), rtol=1e-9)
    single = clone(search).fit(X.astype(np.float32), y, sample_domain=d)
    np.testing.assert_allclose(split_scores(single), split_scores(serial), rtol=1e-3)


def test_moments_that_exceed_memory_are_an_error_with_advice(monkeypatch):
    X, y, _, d = make_rows()
    monkeypatch.setattr("domainwise.estimators.projections.dcmcv.MAX_ROWS_FOR_SPLIT_LANDMARKS", 0)
    monkeypatch.setattr("domainwise.algebra.gram.sums.available_memory", lambda *_: 10_000)
    with pytest.raises(MemoryError, match="groups of rows, for 1 kernel.*a smaller n_landmarks"):
        FastDCMCV(**GRID, n_landmarks=50).fit(X, y, sample_domain=d)
