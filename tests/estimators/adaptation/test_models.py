"""The ``adapt`` method of ensembles and of InvariantRidge."""

import pickle

import numpy as np
import pytest
from sklearn.metrics import accuracy_score

import domainwise
from domainwise import (
    DomainEnsembleClassifier,
    DomainEnsembleRegressor,
    InvariantRidgeClassifierCV,
    InvariantRidgeCV,
)
from domainwise.datasets import make_synthetic

MODELS = {
    "ensemble of numbers": lambda: DomainEnsembleRegressor(
        ["linear", "extra_trees"], context=False
    ),
    "ridge of numbers": lambda: InvariantRidgeCV(kernels=["rbf"], gammas=[0.1]),
    "ensemble of classes": lambda: DomainEnsembleClassifier(
        ["linear", "extra_trees"], context=False
    ),
    "ridge of classes": lambda: InvariantRidgeClassifierCV(kernels=["rbf"], gammas=[0.1]),
}


def rows_of(name, n_domains=8):
    """Rows from sites that differ in level or in class shares."""
    data = make_synthetic(n_domains=n_domains, n_per_domain=40, random_state=0)
    rng, domain = np.random.default_rng(0), data.sample_domain
    X, level = data.data[:, 1:], 2.0 * rng.normal(size=n_domains)[domain]
    y = data.data[:, 0] + level
    if "classes" in name:
        y = np.where(X[:, 0] + level + 0.3 * rng.normal(size=len(y)) > 0, "yes", "no")
    return X, y, domain


@pytest.fixture(scope="module", params=MODELS)
def fitted(request):
    """A model that was fitted without one site, and the rows of that site."""
    X, y, domain = rows_of(request.param)
    new = domain == 7
    model = MODELS[request.param]().fit(X[~new], y[~new], sample_domain=domain[~new])
    return model, X[new], y[new]


def error(model, X, y):
    predicted = model.predict(X)
    if y.dtype.kind == "f":
        return np.sqrt(np.mean((predicted - y) ** 2))
    return 1.0 - accuracy_score(y, predicted)


def test_labels_improve_the_copy_and_do_not_change_the_model(fitted):
    model, X, y = fitted
    before = model.predict(X)
    site = model.adapt(X[:15], y[:15])
    assert error(site, X[15:], y[15:]) < error(model, X[15:], y[15:])
    assert (model.predict(X) == before).all()
    assert not hasattr(model, "n_site_labels_")
    assert site.n_site_labels_ == 15


def test_without_labels_predictions_are_identical(fitted):
    model, X, y = fitted
    assert (model.adapt(X[:0], y[:0]).predict(X) == model.predict(X)).all()


def test_labels_in_two_calls_give_identical_models(fitted):
    model, X, y = fitted
    in_one_call = model.adapt(X[:20], y[:20])
    in_two_calls = model.adapt(X[6:20], y[6:20]).adapt(X[:6], y[:6])
    method = "predict_proba" if y.dtype.kind == "U" else "predict"
    assert (getattr(in_one_call, method)(X) == getattr(in_two_calls, method)(X)).all()


def test_label_gain_and_expected_range_are_known_before_adapting(fitted):
    model, _, _ = fitted
    gain = model.label_gain_
    assert gain["n_labels"].tolist() == [0, 5, 10, 20, 50]
    assert gain["score"][3] > gain["score"][0]
    assert np.isnan(gain["score"][4])  # no source domain has a hundred rows
    low, high = model.expected_range_
    assert low < gain["score"][0] < high


def test_adapted_models_can_be_pickled(fitted):
    model, X, y = fitted
    site = pickle.loads(pickle.dumps(model.adapt(X[:5], y[:5])))
    assert (site.predict(X) == model.adapt(X[:5], y[:5]).predict(X)).all()


def test_fitting_an_adapted_model_again_forgets_the_site(fitted):
    model, X, y = fitted
    site = model.adapt(X[:5], y[:5])
    rows = rows_of("classes" if y.dtype.kind == "U" else "numbers")
    site.fit(rows[0], rows[1], sample_domain=rows[2])
    assert not hasattr(site, "n_site_labels_")


def test_probabilities_and_decisions_of_the_adapted_ridge_agree_with_its_classes():
    X, y, domain = rows_of("classes")
    new = domain == 7
    model = InvariantRidgeClassifierCV(kernels=["rbf"], gammas=[0.1])
    site = model.fit(X[~new], y[~new], sample_domain=domain[~new]).adapt(X[new][:9], y[new][:9])
    p = site.predict_proba(X)
    likeliest = site.classes_[p.argmax(axis=1)]
    decided = site.classes_[site.decision_rule_.codes(p)]
    assert (decided == site.predict(X)).all()
    assert ((site.decision_function(X) > 0) == (likeliest == "yes")).all()


def test_context_is_adapted_with_unlabelled_rows_of_the_site():
    X, y, domain = rows_of("numbers")
    new = domain == 7
    model = DomainEnsembleRegressor(["linear", "extra_trees"]).fit(
        X[~new], y[~new], sample_domain=domain[~new]
    )
    batch, one_domain = X[new], np.zeros(new.sum())
    with pytest.warns(UserWarning, match="X_site is missing"):
        without_context = model.adapt(batch[:10], y[new][:10])
    assert (
        without_context.predict(batch, sample_domain=one_domain) == without_context.predict(batch)
    ).all()
    site = model.adapt(batch[:10], y[new][:10], X_site=batch)
    together = site.predict(batch, sample_domain=one_domain)
    before = model.predict(batch, sample_domain=one_domain)
    assert np.mean((together - y[new]) ** 2) < np.mean((before - y[new]) ** 2)
    assert site.corrections_["context"] != pytest.approx(site.corrections_["plain"])


def test_intervals_of_the_adapted_ensemble_are_narrower():
    X, y, domain = rows_of("numbers", n_domains=12)
    new = domain == 11
    model = DomainEnsembleRegressor(["linear"], context=False)
    model.fit(X[~new], y[~new], sample_domain=domain[~new])
    site = model.adapt(X[new][:20], y[new][:20])
    widths = [np.ptp(m.predict_interval(X[new][:1])) for m in (model, site)]
    assert widths[1] < 0.6 * widths[0]


def test_models_fitted_from_sums_cannot_be_adapted():
    X, y, domain = rows_of("numbers")
    model = InvariantRidgeCV(kernels=["rbf"], gammas=[0.1]).partial_fit(X, y, domain)
    model.predict(X[:2])
    with pytest.raises(ValueError, match="has no held-out predictions"):
        model.adapt(X[:3], y[:3])


def test_adapted_models_can_be_saved_and_loaded(fitted, tmp_path):
    skops = pytest.importorskip("skops")
    assert skops
    model, X, y = fitted
    site = model.adapt(X[:5], y[:5])
    assert site.label_gain_["n_labels"][1] == 5  # computed before the model is saved
    domainwise.save(site, tmp_path / "site.skops")
    again = domainwise.load(tmp_path / "site.skops")
    assert (again.predict(X) == site.predict(X)).all()
    assert (again.adapt(X[5:9], y[5:9]).predict(X) == site.adapt(X[5:9], y[5:9]).predict(X)).all()


def test_models_with_several_targets_cannot_be_adapted():
    X, y, domain = rows_of("numbers")
    model = InvariantRidgeCV(kernels=["rbf"], gammas=[0.1])
    model.fit(X, np.column_stack([y, -y]), sample_domain=domain)
    assert not hasattr(model, "label_gain_")
    with pytest.raises(ValueError, match="requires a single target"):
        model.adapt(X[:3], y[:3])
