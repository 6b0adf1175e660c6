"""Weights of rows: integer weights equal repeated rows, and a weight of 0 equals leaving it out."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import domainwise as dw
from domainwise import selection
from domainwise.algebra.kernels.functions import resolve_gamma
from domainwise.datasets import make_synthetic
from domainwise.estimators.projections import exact

DATA = make_synthetic(n_domains=4, n_per_domain=25, random_state=0)
X, CLASSES, DOMAIN = DATA.data, DATA.target, DATA.sample_domain
RNG = np.random.default_rng(0)
NUMBERS = X[:, 0] + 0.1 * RNG.normal(size=len(X))
NOISY = NUMBERS + 2.0 * np.random.default_rng(1).normal(size=len(X))
WEIGHTS = RNG.integers(0, 4, len(X))
COPIES = np.repeat(np.arange(len(X)), WEIGHTS)
LANDMARKS = X[::4]

PROJECTIONS = {
    "DCM": (dw.DCM(), CLASSES),
    "DCM within classes": (dw.DCM(conditional=True), CLASSES),
    "DCM without a target": (dw.DCM(), None),
    "DCM with numbers": (dw.DCM(target_gamma=0.5), NUMBERS),
    "DCM with extra components": (dw.DCM(n_components=3), CLASSES),
    "DCM by LAPACK": (dw.DCM(ridge=0.1, solver="dense"), CLASSES),
    "symmetric DCM": (dw.DCM(ridge=np.inf), CLASSES),
    "COIR": (dw.COIR(), CLASSES),
    "DICA": (dw.DICA(), CLASSES),
    "DICA without a target": (dw.DICA(), None),
    "KPCA": (dw.KPCA(n_components=3), None),
    "SCA": (dw.SCA(n_components=3), CLASSES),
    "SCA of classes": (dw.SCA(between=1.0), CLASSES),
    "MDA": (dw.MDA(), CLASSES),
    "MIDA": (dw.MIDA(n_components=2, domain_weight=1e-3), None),
}


def take(y, rows):
    return None if y is None else y[rows]


def fitted_pair(model, y):
    """Return models fitted to weighted rows and to repeated rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        weighted = clone(model).fit(X, y, sample_domain=DOMAIN, sample_weight=WEIGHTS)
        repeated = clone(model).fit(X[COPIES], take(y, COPIES), sample_domain=DOMAIN[COPIES])
    return weighted, repeated


def fast(model, y):
    cls = getattr(dw, f"Fast{type(model).__name__}")
    names = cls().get_params()
    params = {name: value for name, value in model.get_params().items() if name in names}
    if y is NUMBERS:
        params["target_landmarks"] = np.linspace(y.min(), y.max(), 20)
    return cls(**params).set_params(landmarks=LANDMARKS)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("kind", ["exact", "streamed", "fast"])
def test_projections_of_weighted_rows_equal_those_of_repeated_rows(name, kind, monkeypatch):
    model, y = PROJECTIONS[name]
    if kind == "streamed":
        monkeypatch.setattr(exact, "DENSE_ROWS", 10)
    if kind != "fast":
        model = clone(model).set_params(tol=1e-11)
    model = (fast(model, y) if kind == "fast" else model).set_params(gamma=0.1)
    weighted, repeated = fitted_pair(model, y)
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), atol=1e-8)
    np.testing.assert_allclose(weighted.eigenvalues_, repeated.eigenvalues_, rtol=1e-8)
    if kind != "fast":
        expected = weighted.transform(X[WEIGHTS > 0])
        np.testing.assert_allclose(weighted.embedding_, expected, atol=1e-10)


@pytest.mark.parametrize("name", ["DCM", "DCM with numbers", "KPCA", "MDA"])
def test_batches_with_weights_equal_one_fit(name):
    model, y = PROJECTIONS[name]
    model = fast(model, y).set_params(gamma=0.1)
    expected = clone(model).fit(X, y, sample_domain=DOMAIN, sample_weight=WEIGHTS)
    batches = np.array_split(RNG.permutation(len(X)), 3)
    for rows in batches:
        labels = {"sample_domain": DOMAIN[rows], "sample_weight": WEIGHTS[rows]}
        model.partial_fit(X[rows], take(y, rows), **labels)
    np.testing.assert_allclose(model.transform(X), expected.transform(X), atol=1e-7)
    assert model.n_samples_seen_ == (WEIGHTS > 0).sum()


def test_fractional_weights_are_those_of_a_weighted_kernel_matrix():
    w = RNG.uniform(0.2, 3.0, len(X))
    model = dw.KPCA(n_components=2, gamma=0.1).fit(X, sample_weight=w)
    K = np.exp(-0.1 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    H = np.eye(len(X)) - w / w.sum()  # subtracts weighted means
    root = np.sqrt(w)[:, None]
    eigenvalues = np.linalg.eigvalsh(root * (H @ K @ H.T) * root.T)[::-1]
    np.testing.assert_allclose(model.eigenvalues_, eigenvalues[:2], rtol=1e-9)


def test_fit_transform_returns_all_rows_and_equals_transform():
    model = dw.DCM(gamma=0.1)
    with pytest.warns(UserWarning, match="sample_domain is missing"):
        Z = model.fit_transform(X, CLASSES, sample_weight=WEIGHTS)
    np.testing.assert_allclose(Z, model.transform(X), atol=1e-12)


SEARCHES = {
    "DCMCV": (
        selection.DCMCV(gammas=[0.1, 0.5], ridges=[1e-2], domain_weights=[0.0, 1.0]),
        CLASSES,
    ),
    "DCMCV with numbers": (
        selection.DCMCV(gammas=[0.1], ridges=[1e-3, 0.1], domain_weights=[0.0], target_gamma=0.5),
        NUMBERS,
    ),
    "FastDCMCV": (
        selection.FastDCMCV(
            gammas=[0.1, 0.5], ridges=[1e-2], domain_weights=[0.0, 1.0], landmarks=LANDMARKS
        ),
        CLASSES,
    ),
    "DCMCV by accuracy": (
        selection.DCMCV(
            gammas=[0.1, 0.5], ridges=[1e-2], domain_weights=[0.0, 1.0], scoring="accuracy"
        ),
        CLASSES,
    ),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_score_weighted_rows_like_repeated_rows(name):
    weighted, repeated = fitted_pair(*SEARCHES[name])
    scores = [search.cv_results_["mean_test_score"] for search in (weighted, repeated)]
    np.testing.assert_allclose(*scores, rtol=1e-6)
    assert weighted.best_params_ == repeated.best_params_
    np.testing.assert_allclose(weighted.transform(X), repeated.transform(X), atol=1e-8)


def test_moments_of_all_splits_are_weighted(monkeypatch):
    monkeypatch.setattr("domainwise.estimators.projections.dcmcv.MAX_ROWS_FOR_SPLIT_LANDMARKS", 10)
    for name in ("FastDCMCV",):
        weighted, repeated = fitted_pair(*SEARCHES[name])
        scores = [search.cv_results_["mean_test_score"] for search in (weighted, repeated)]
        np.testing.assert_allclose(*scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.where(np.arange(len(X)) == 3, -1.0, 1.0), "negative, missing or infinite .*row 3"),
        (np.where(np.arange(len(X)) == 3, np.nan, 1.0), "negative, missing or infinite"),
        (np.where(np.arange(len(X)) == 3, np.inf, 1.0), "negative, missing or infinite"),
        (np.zeros(len(X)), "sample_weight is zero for all rows"),
        (np.ones(len(X) - 1), r"sample_weight.shape == .*expected"),
        (np.ones((len(X), 1)), r"sample_weight.shape"),
        (["heavy"] * len(X), "sample_weight must contain numbers"),
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        dw.DCM(),
        dw.FastDCM(),
        dw.DCMCV(),
        dw.InvariantSVC(),
        dw.InvariantSVR(),
        selection.InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}),
        dw.InvariantRidgeCV(),
        dw.InvariantRidgeClassifierCV(),
        dw.DomainEnsembleClassifier(["linear"]),
        dw.SiteAdapter(LogisticRegression()),
        selection.DomainConformal(LogisticRegression()),
    ],
    ids=lambda m: type(m).__name__,
)
def test_invalid_weights_are_rejected(model, weights, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, CLASSES, sample_domain=DOMAIN, sample_weight=weights)


def test_weights_that_are_not_supported_are_rejected():
    K = X @ X.T
    with pytest.raises(ValueError, match="contains zeros"):
        dw.DCM(kernel="precomputed").fit(K, CLASSES, DOMAIN, sample_weight=WEIGHTS)
    not_a_kernel = pytest.warns(UserWarning, match="not a kernel")
    with not_a_kernel, pytest.raises(ValueError, match="positive semi-definite"):
        dw.KPCA(kernel="precomputed").fit(-K, sample_weight=WEIGHTS + 1.0)


def test_weights_reach_a_projection_in_a_pipeline():
    pipeline = make_pipeline(StandardScaler(), dw.DCM(gamma=0.1))
    arguments = {"dcm__sample_domain": DOMAIN, "dcm__sample_weight": WEIGHTS}
    pipeline.fit(X, CLASSES, **arguments)
    Z = StandardScaler().fit_transform(X)
    expected = dw.DCM(gamma=0.1).fit(Z, CLASSES, DOMAIN, WEIGHTS)
    np.testing.assert_array_equal(pipeline.transform(X), expected.transform(Z))


def test_weights_are_routed_by_metadata_requests():
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        step = dw.DCM(gamma=0.1).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, step)
        pipeline.fit(X, CLASSES, sample_domain=DOMAIN, sample_weight=WEIGHTS)
        Z = StandardScaler().fit(X, sample_weight=WEIGHTS).transform(X)
        expected = dw.DCM(gamma=0.1).fit(Z, CLASSES, DOMAIN, WEIGHTS)
        np.testing.assert_array_equal(pipeline.transform(X), expected.transform(Z))


def test_a_grid_search_passes_weights_to_fits_and_scores():
    from sklearn import config_context

    with config_context(enable_metadata_routing=True):
        step = dw.InvariantSVC(gamma=0.1).set_fit_request(sample_weight=True)
        step.set_score_request(sample_weight=True)
        search = GridSearchCV(step, {"C": [0.1, 10.0]}, cv=selection.LeaveDomainsOut())
        search.fit(X, CLASSES, sample_domain=DOMAIN, sample_weight=WEIGHTS)
    train, test = next(iter(selection.LeaveDomainsOut().split(X, CLASSES, DOMAIN)))
    model = clone(step).set_params(C=0.1)
    model.fit(X[train], CLASSES[train], DOMAIN[train], WEIGHTS[train])
    score = model.score(X[test], CLASSES[test], sample_weight=WEIGHTS[test])
    assert search.cv_results_["split0_test_score"][0] == pytest.approx(score)


RIDGE = {"gammas": [0.1], "landmarks": LANDMARKS, "alphas": [0.1, 1.0, 10.0]}
RIDGES = {
    "classes": (dw.InvariantRidgeClassifierCV(**RIDGE), CLASSES),
    "class weights": (dw.InvariantRidgeClassifierCV(**RIDGE, class_weight="balanced"), CLASSES),
    "numbers": (dw.InvariantRidgeCV(**RIDGE), NUMBERS),
    "scored by accuracy": (
        dw.InvariantRidgeClassifierCV(**RIDGE, scoring="balanced_accuracy"),
        CLASSES,
    ),
    "scored by the absolute error": (
        dw.InvariantRidgeCV(**RIDGE, scoring="neg_mean_absolute_error"),
        NUMBERS,
    ),
    "scored by AUC": (dw.InvariantRidgeClassifierCV(**RIDGE, scoring="roc_auc"), CLASSES),
    "scored by R2": (dw.InvariantRidgeCV(**RIDGE, scoring="r2"), NUMBERS),
}


@pytest.mark.parametrize("name", RIDGES)
def test_a_ridge_of_weighted_rows_equals_that_of_repeated_rows(name):
    weighted, repeated = fitted_pair(*RIDGES[name])
    scores = [search.cv_results_["mean_test_score"] for search in (weighted, repeated)]
    np.testing.assert_allclose(*scores, rtol=1e-9)
    assert weighted.members_ == repeated.members_
    method = "predict" if RIDGES[name][1] is NUMBERS else "predict_proba"
    outputs = [getattr(model, method)(X) for model in (weighted, repeated)]
    np.testing.assert_allclose(*outputs, atol=1e-8)
    if method == "predict_proba":
        assert abs(weighted.decision_threshold_ - repeated.decision_threshold_) < 1e-12


@pytest.mark.parametrize("name", ["classes", "numbers"])
def test_a_ridge_of_batches_uses_weights(name):
    model, y = RIDGES[name]
    weighted, repeated = clone(model), clone(model)
    for rows in (np.arange(0, len(X), 2), np.arange(1, len(X), 2)):
        labels = {"sample_domain": DOMAIN[rows], "sample_weight": WEIGHTS[rows]}
        weighted.partial_fit(X[rows], y[rows], **labels)
    repeated.partial_fit(X[COPIES], y[COPIES], sample_domain=DOMAIN[COPIES])
    method = "decision_function" if name == "classes" else "predict"
    outputs = [getattr(fitted, method)(X) for fitted in (weighted, repeated)]
    np.testing.assert_allclose(*outputs, atol=1e-8)


SVC, SVR = (
    {"gamma": 0.1, "tol": 1e-8},
    {"gamma": 0.1, "tol": 1e-8, "C": 2.0},
)
MACHINES = {
    "SVC": (dw.InvariantSVC(**SVC), CLASSES),
    "SVC within classes": (dw.InvariantSVC(**SVC, conditional=True), CLASSES),
    "SVC with probabilities": (dw.InvariantSVC(**SVC, probability=True), CLASSES),
    "SVC of features": (dw.InvariantSVC(**SVC, solver="fast"), CLASSES),
    "SVR": (dw.InvariantSVR(**SVR), NUMBERS),
    "SVR of features": (dw.InvariantSVR(**SVR, solver="fast"), NUMBERS),
    "search": (
        selection.InvariantSearchCV(
            dw.InvariantSVC(**SVC), {"C": [0.1, 1.0], "domain_weight": [0.0, 1.0]}
        ),
        CLASSES,
    ),
    "search in a pipeline": (
        selection.InvariantSearchCV(
            make_pipeline(StandardScaler(), dw.InvariantSVC(**SVC)),
            {"invariantsvc__C": [0.1, 1.0]},
            n_average=2,
        ),
        CLASSES,
    ),
    "search by a scorer": (
        selection.InvariantSearchCV(dw.InvariantSVR(**SVR), {"C": [0.1, 1.0]}),
        NUMBERS,
    ),
}


@pytest.mark.parametrize("name", MACHINES)
def test_machines_of_weighted_rows_are_close_to_those_of_repeated_rows(name, monkeypatch):
    features = "domainwise.algebra.kernels.approximations.choose_landmarks"
    if "features" in name:  # the same landmarks for repeated rows
        monkeypatch.setattr(features, lambda _, rows, *args: first_copies(rows))
    weighted, repeated = fitted_pair(*MACHINES[name])
    method = "predict" if MACHINES[name][1] is NUMBERS else "decision_function"
    if hasattr(weighted, "predict_proba"):
        method = "predict_proba"
    outputs = [getattr(model, method)(X) for model in (weighted, repeated)]
    np.testing.assert_allclose(*outputs, atol=2e-4)
    if "search" in name:
        scores = [search.cv_results_["mean_test_score"] for search in (weighted, repeated)]
        np.testing.assert_allclose(*scores, rtol=1e-3)


def first_copies(rows):
    return np.sort(np.unique(rows, axis=0, return_index=True)[1])


def test_steps_of_a_pipeline_get_the_weights_that_they_accept():
    model = selection.InvariantSearchCV(
        make_pipeline(StandardScaler(), dw.InvariantSVC(gamma=0.1)), {"invariantsvc__C": [1.0]}
    )
    model.fit(X, CLASSES, sample_domain=DOMAIN, sample_weight=WEIGHTS)
    expected = StandardScaler().fit(X, sample_weight=WEIGHTS)
    np.testing.assert_allclose(model.best_estimator_[0].mean_, expected.mean_)


@pytest.mark.parametrize("gamma", ["median", "scale"])
@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_gamma_of_weighted_rows_is_that_of_repeated_rows(kernel, gamma):
    rows, weights = X[:30], WEIGHTS[:30].astype(float)
    expected = resolve_gamma(gamma, kernel, np.repeat(rows, WEIGHTS[:30], axis=0))
    assert resolve_gamma(gamma, kernel, rows, weights) == pytest.approx(expected, rel=1e-12)
    assert resolve_gamma(gamma, kernel, rows, np.full(30, 0.1)) == pytest.approx(
        resolve_gamma(gamma, kernel, rows), rel=1e-12
    )


def test_splits_given_as_indices_refer_to_all_rows():
    model = dw.InvariantRidgeCV(**RIDGE)
    splits = list(selection.LeaveDomainsOut().split(X, groups=DOMAIN))
    by_index = clone(model).set_params(cv=splits)
    models = [m.fit(X, NUMBERS, DOMAIN, sample_weight=WEIGHTS) for m in (model, by_index)]
    np.testing.assert_allclose(*(m.cv_results_["mean_test_score"] for m in models), rtol=1e-12)


WRAPPERS = {
    "DomainConformal of classes": (
        selection.DomainConformal(LogisticRegression(tol=1e-10)),
        CLASSES,
    ),
    "DomainConformal of numbers": (selection.DomainConformal(Ridge()), NUMBERS),
    "split conformal": (
        selection.DomainConformal(Ridge(), calibration="split", cv=selection.LeaveDomainsOut()),
        NUMBERS,
    ),
    "SiteAdapter of classes": (dw.SiteAdapter(LogisticRegression(tol=1e-10)), CLASSES),
    "SiteAdapter of an SVM": (dw.SiteAdapter(LinearSVC(tol=1e-10, max_iter=100_000)), CLASSES),
    "SiteAdapter of numbers": (dw.SiteAdapter(Ridge()), NUMBERS),
    "ensemble of classes": (
        dw.DomainEnsembleClassifier([("linear", LogisticRegression(tol=1e-10))], context=False),
        CLASSES,
    ),
    "ensemble scored by AUC": (
        dw.DomainEnsembleClassifier(
            [("linear", LogisticRegression(tol=1e-10))], context=False, scoring="roc_auc"
        ),
        CLASSES,
    ),
    "ensemble of numbers": (
        dw.DomainEnsembleRegressor([("ridge", Ridge()), ("mean", Ridge(1e6))], context=False),
        NUMBERS,
    ),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_scores_and_calibration_of_weighted_rows_equal_those_of_repeated_rows(name):
    weighted, repeated = fitted_pair(*WRAPPERS[name])
    is_class = WRAPPERS[name][1] is CLASSES
    method = "predict_proba" if is_class else "predict"
    outputs = [getattr(model, method)(X) for model in (weighted, repeated)]
    np.testing.assert_allclose(*outputs, atol=1e-6)
    method = "predict_set" if is_class else "predict_interval"
    sets = [getattr(model, method)(X, coverage=0.5) for model in (weighted, repeated)]
    np.testing.assert_allclose(*sets, atol=1e-6)
    if hasattr(weighted, "domain_scores_"):
        np.testing.assert_allclose(weighted.domain_scores_, repeated.domain_scores_, atol=1e-6)
        np.testing.assert_allclose(weighted.expected_score_, repeated.expected_score_, atol=1e-6)
    if isinstance(weighted, dw.DomainEnsembleClassifier | dw.DomainEnsembleRegressor):
        assert weighted.weights_ == pytest.approx(repeated.weights_, abs=1e-6)


@pytest.mark.parametrize("members", [["boosting"], ["extra_trees"], ["invariant_svm"],
                                     ["invariant_ridge"], ["linear"]])  # fmt: skip
@pytest.mark.parametrize("y", [CLASSES, NOISY], ids=["classes", "numbers"])
def test_members_of_an_ensemble_are_fitted_to_weights(members, y):
    cls = dw.DomainEnsembleClassifier if y is CLASSES else dw.DomainEnsembleRegressor
    model = cls(members, context=False)
    # Rows with a target above the median count a hundred times.
    weights = np.where(y > np.median(y) if y is NOISY else y == y.max(), 100.0, 1.0)
    plain, weighted = clone(model).fit(X, y, DOMAIN), model.fit(X, y, DOMAIN, weights)
    method = "predict" if y is NOISY else "predict_proba"
    outputs = [getattr(m, method)(X) for m in (plain, weighted)]
    means = [o.mean() if y is NOISY else o[:, -1].mean() for o in outputs]
    assert means[1] > means[0] + 0.05 * (1.0 if y is CLASSES else y.std())


def test_an_estimator_without_weights_is_named():
    from sklearn.neighbors import KNeighborsClassifier

    for model in (
        dw.DomainEnsembleClassifier([("neighbours", KNeighborsClassifier())]),
        dw.SiteAdapter(KNeighborsClassifier()),
    ):
        with pytest.raises(ValueError, match="KNeighborsClassifier does not accept sample_weight"):
            model.fit(X, CLASSES, DOMAIN, sample_weight=WEIGHTS)


def test_an_ensemble_with_context_and_weights_predicts():
    model = dw.DomainEnsembleClassifier(["boosting"]).fit(X, CLASSES, DOMAIN, WEIGHTS)
    assert model.uses_context
    assert np.isfinite(model.predict_proba(X, sample_domain=DOMAIN)).all()
    kept = WEIGHTS > 0
    removed = clone(model).fit(X[kept], CLASSES[kept], DOMAIN[kept], WEIGHTS[kept])
    np.testing.assert_array_equal(model.predict_proba(X), removed.predict_proba(X))
