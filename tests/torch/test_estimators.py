"""Estimators give the same results for tensors and for arrays."""

import copy
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

import domainwise
from domainwise import (
    COIR,
    DCM,
    DICA,
    KPCA,
    MDA,
    MIDA,
    SCA,
    FastCOIR,
    FastDCM,
    FastDICA,
    FastKPCA,
    FastMDA,
    FastMIDA,
    FastSCA,
)
from domainwise.estimators.projections import exact as exact_base

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

EXACT = [
    DCM(),
    DCM(ridge=np.inf),
    DCM(ridge=0.1, domain_weight=0.01, n_components=3),
    DCM(conditional=True),
    DCM(kernel="laplacian"),
    DCM(kernel="poly", degree=2),
    DCM(kernel="linear"),
    DCM(kernel="cosine"),
    DCM(solver="dense"),
    COIR(),
    DICA(lam=0.1),
    KPCA(n_components=3),
    SCA(n_components=3),
    SCA(n_components=1, between=1.0),
    MDA(),
    MDA(within_weight=300.0),
    MIDA(n_components=3, domain_weight=0.01),
]
FAST = [
    FastDCM(n_landmarks=40),
    FastDCM(n_landmarks=40, landmarks="stratified", ridge=np.inf),
    FastDCM(n_landmarks=40, landmarks="kmeans++", conditional=True),
    FastDCM(n_landmarks=40, landmarks="leverage", kernel="laplacian"),
    FastCOIR(n_landmarks=40),
    FastDICA(n_landmarks=40),
    FastKPCA(n_landmarks=40, n_components=3),
    FastSCA(n_landmarks=40, n_components=3),
    FastMDA(n_landmarks=40),
    FastMIDA(n_landmarks=40, n_components=3, domain_weight=0.01),
    FastDCM(n_landmarks=41, feature_map="fourier"),
    FastDCM(n_landmarks=500, feature_map="fourier", kernel="laplacian", conditional=True),
    FastKPCA(n_landmarks=40, feature_map="fourier", n_components=3),
]
FOURIER = FastDCM(n_landmarks=30, feature_map="fourier")


def tensors(X, *labels, dtype=None):
    return tuple(torch.as_tensor(a) for a in (X.astype(dtype or X.dtype), *labels))


def fitted(estimator, X, y, domain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return clone(estimator).fit(X, y, sample_domain=domain)


def assert_same(found, expected, X, tolerance):
    scale = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(found.eigenvalues_.numpy(), expected.eigenvalues_, **scale)
    new = X[:30] + 0.1
    Z = found.transform(torch.as_tensor(new))
    assert isinstance(Z, torch.Tensor)
    assert Z.numpy().dtype == new.dtype
    np.testing.assert_allclose(Z.numpy(), expected.transform(new), **scale)


@pytest.mark.parametrize("estimator", [*EXACT, *FAST], ids=repr)
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-9), ("float32", 2e-3)])
def test_tensors_and_arrays_give_the_same_result(estimator, dtype, tolerance, data):
    X, y, domain = data
    X = X.astype(dtype)
    expected = fitted(estimator, X, y, domain)
    found = fitted(estimator, *tensors(X, y, domain))
    assert_same(found, expected, X, tolerance)


@pytest.mark.parametrize("estimator", EXACT[:8] + EXACT[9:], ids=repr)
@pytest.mark.parametrize("dtype, tolerance", [("float64", 2e-5), ("float32", 5e-3)])
def test_streamed_tensors_and_arrays_agree(estimator, dtype, tolerance, data, monkeypatch):
    monkeypatch.setattr(exact_base, "DENSE_ROWS", 10)
    X, y, domain = data
    X = X.astype(dtype)
    expected = fitted(estimator, X, y, domain)
    found = fitted(estimator, *tensors(X, y, domain))
    assert found.solver_info_["operator"] == "TorchStreamedGram"
    linear = estimator.kernel in ("linear", "cosine")
    assert found.solver_info_["product"] == ("feature products" if linear else "blocked torch")
    assert_same(found, expected, X, tolerance)


@pytest.mark.parametrize("estimator", [DCM(), FastDCM(n_landmarks=30), FOURIER], ids=repr)
def test_continuous_targets_and_descriptors_give_the_same_result_as_arrays(estimator, data):
    X, _, _ = data
    y, time = X[:, 0] + X[:, 1] ** 2, np.linspace(0, 1, len(X))[:, None]
    expected = fitted(estimator, X, y, time)
    assert_same(fitted(estimator, *tensors(X, y, time)), expected, X, 1e-7)


@pytest.mark.parametrize("estimator", [DCM(n_components=3), FastDCM(n_landmarks=30)], ids=repr)
def test_without_a_target_tensors_and_arrays_give_the_same_result(estimator, data):
    X, _, domain = data
    expected = fitted(estimator, X, None, domain)
    T, d = tensors(X, domain)
    assert_same(fitted(estimator, T, None, d), expected, X, 1e-6)


def test_labels_can_be_lists_arrays_strings_or_tensors(data):
    X, y, domain = data
    T = torch.as_tensor(X)
    expected = DCM().fit(T, torch.as_tensor(y), sample_domain=torch.as_tensor(domain)).transform(T)
    names = np.array(["a", "b", "c", "d"])[domain]
    forms = [
        (y.tolist(), names),
        (y.astype(float), names.tolist()),
        (torch.as_tensor(y > 0), domain),
    ]
    for target, domains in forms:
        found = DCM().fit(T, target, sample_domain=domains)
        np.testing.assert_allclose(found.transform(T), expected, rtol=1e-10, atol=1e-12)
    assert DCM().fit(T, y.tolist(), sample_domain=names).domains_.tolist() == ["a", "b", "c", "d"]


def test_precomputed_and_callable_kernels_can_be_tensors(data):
    X, y, domain = data
    T = torch.as_tensor(X)

    def linear(A, B):
        return A @ B.T

    expected = DCM(kernel="linear").fit(X, y, sample_domain=domain).transform(X)
    called = DCM(kernel=linear).fit(T, y, sample_domain=domain).transform(T)
    np.testing.assert_allclose(called, expected, rtol=1e-6, atol=1e-8)
    stored = DCM(kernel="precomputed").fit(T @ T.T, y, sample_domain=domain).transform(T @ T.T)
    np.testing.assert_allclose(stored, expected, rtol=1e-6, atol=1e-8)


def test_fitted_arrays_have_the_device_and_precision_of_the_rows(data):
    T, y, domain = tensors(*data, dtype="float32")
    model = DCM().fit(T, y, sample_domain=domain)
    for name in ("X_fit_", "dual_coef_", "embedding_"):
        assert getattr(model, name).dtype == torch.float32
        assert getattr(model, name).device == T.device
    assert isinstance(model.eigenvalues_, torch.Tensor)
    np.testing.assert_allclose(model.fit_transform(T, y, domain), model.transform(T), atol=1e-4)
    T += 1  # the model contains a copy
    assert not torch.equal(model.X_fit_, T)


@pytest.mark.parametrize("estimator", [DCM(), FastDCM(n_landmarks=30), FOURIER], ids=repr)
def test_one_row_is_projected_like_many_rows(estimator, data):
    T, y, domain = tensors(*data)
    model = fitted(estimator, T, y, domain)
    many = model.transform(T[:20])
    one = torch.cat([model.transform(T[i : i + 1]) for i in range(20)])
    np.testing.assert_allclose(one, many, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("feature_map", ["nystroem", "fourier"])
def test_batches_of_tensors_give_the_same_result_as_one_pass(feature_map, data):
    T, y, domain = tensors(*data)
    landmarks = data[0][:30] if feature_map == "nystroem" else "uniform"
    model = FastDCM(landmarks=landmarks, gamma=0.1, feature_map=feature_map)
    whole = model.fit(T, y, sample_domain=domain).transform(T)
    parts = clone(model)
    for rows in (slice(0, 100), slice(100, 240)):
        parts.partial_fit(T[rows], y[rows], domain[rows])
    np.testing.assert_allclose(parts.transform(T), whole, rtol=1e-8, atol=1e-10)


def test_many_groups_and_batches_have_the_same_sums(data, monkeypatch):
    from domainwise.algebra.gram.torch import operator
    from domainwise.base import arrays as namespace

    T, y, domain = tensors(*data)
    expected = FastDCM(n_landmarks=30).fit(T, y, sample_domain=domain).transform(T)
    monkeypatch.setattr(namespace, "MAX_INDICATOR_GROUPS", 0)
    monkeypatch.setitem(operator.BATCH_BYTES, "cpu", 1)
    found = FastDCM(n_landmarks=30).fit(T, y, sample_domain=domain).transform(T)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("estimator", [DCM(), FastDCM(n_landmarks=30), FOURIER], ids=repr)
def test_models_are_pickled_copied_cloned_and_moved(estimator, data):
    X, y, domain = data
    T = torch.as_tensor(X)
    model = fitted(estimator, T, y, domain)
    expected = model.transform(T)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.to("cpu")):
        assert torch.equal(other.transform(T), expected)
    assert not hasattr(clone(model), "dual_coef_")
    host = copy.deepcopy(model).to("numpy")
    assert isinstance(host.dual_coef_, np.ndarray)
    np.testing.assert_allclose(host.transform(X), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(host.to("cpu").transform(T), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("estimator", [DCM(), FastDCM(n_landmarks=30), FOURIER], ids=repr)
def test_models_are_saved_and_loaded(estimator, data, tmp_path):
    pytest.importorskip("skops")
    T, y, domain = tensors(*data)
    model = fitted(estimator, T, y, domain)
    domainwise.save(model, tmp_path / "model.skops")
    again = domainwise.load(tmp_path / "model.skops")
    assert torch.equal(again.transform(T), model.transform(T))


def test_a_model_saved_on_an_unavailable_device_is_loaded_on_the_cpu(data):
    T, y, domain = tensors(*data)
    model = DCM().fit(T, y, sample_domain=domain)
    state = model.__getstate__()
    state["dual_coef_"] = {**state["dual_coef_"], "domainwise tensor": "cuda:77"}
    other = DCM()
    with pytest.warns(UserWarning, match="cuda:77, which is not available"):
        other.__setstate__(state)
    assert other.dual_coef_.device.type == "cpu"


def test_gradients_are_detached(data):
    T, y, domain = tensors(*data)
    model = DCM().fit(T.clone().requires_grad_(), y, sample_domain=domain)
    Z = model.transform(T.clone().requires_grad_())
    assert not Z.requires_grad
    assert not model.X_fit_.requires_grad


def test_importing_domainwise_does_not_import_torch():
    code = "import sys, domainwise; domainwise.precision; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_moving_a_search_moves_its_selected_model(data):
    X, y, domain = data
    search = domainwise.DCMCV(gammas=[0.1], ridges=[0.1], domain_weights=[1.0])
    expected = search.fit(X, y, sample_domain=domain).transform(X[:5])
    Z = search.to("cpu").transform(torch.as_tensor(X[:5]))
    assert isinstance(Z, torch.Tensor)
    assert isinstance(search.dual_coef_, torch.Tensor)
    np.testing.assert_allclose(Z, expected, rtol=1e-10)
    np.testing.assert_array_equal(search.to("numpy").transform(X[:5]), expected)
