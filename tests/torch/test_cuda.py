"""Tests that need a CUDA device; they are skipped if there is none."""

import copy
import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import COIR, DCM, DICA, KPCA, FastDCM, precision
from domainwise.estimators.projections import exact as exact_base

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def on_cuda(X, *labels):
    return tuple(torch.as_tensor(a, device="cuda") for a in (X, *labels))


def fitted(estimator, X, y, domain):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return clone(estimator).fit(X, y, sample_domain=domain)


@pytest.mark.parametrize("dense_rows", [10, 3000])
@pytest.mark.parametrize("dtype, tolerance", [("float64", 1e-4), ("float32", 1e-2)])
@pytest.mark.parametrize(
    "estimator",
    [
        DCM(),
        DCM(ridge=np.inf),
        DCM(n_components=3),
        DCM(conditional=True, kernel="laplacian"),
        DCM(kernel="poly", degree=2),
        DCM(kernel="linear"),
        COIR(),
        DICA(lam=0.1),
        KPCA(n_components=3),
        FastDCM(n_landmarks=40),
        FastDCM(n_landmarks=40, feature_map="fourier", kernel="laplacian"),
    ],
    ids=repr,
)
def test_a_gpu_and_arrays_agree(estimator, dtype, tolerance, dense_rows, data, monkeypatch):
    monkeypatch.setattr(exact_base, "DENSE_ROWS", dense_rows)
    X, y, domain = data
    X, y, domain = (np.concatenate([part] * 4) for part in (X, y, domain))
    X = (X + 0.1 * np.random.default_rng(5).standard_normal(X.shape)).astype(dtype)
    expected = fitted(estimator, X, y, domain)
    found = fitted(estimator, *on_cuda(X, y, domain))
    new = X[:50] + X.dtype.type(0.1)
    Z = found.transform(torch.as_tensor(new, device="cuda"))
    assert Z.device.type == found.dual_coef_.device.type == "cuda"
    np.testing.assert_allclose(Z.cpu(), expected.transform(new), rtol=tolerance, atol=tolerance)


def test_solver_info_names_the_fused_product(data, monkeypatch):
    monkeypatch.setattr(exact_base, "DENSE_ROWS", 10)
    pytest.importorskip("triton")
    X, y, domain = on_cuda(data[0].astype(np.float32), *data[1:])
    with precision("tf32"):
        info = DCM().fit(X, y, sample_domain=domain).solver_info_
    assert info["product"] == "triton"
    assert info["precision"] == "tf32"
    assert info["residual"] < 1e-5
    assert DCM().fit(X.double(), y, sample_domain=domain).solver_info_["product"] == "blocked torch"


def test_mixed_devices_and_bad_values_are_refused(data):
    X, y, domain = on_cuda(*data)
    with pytest.raises(ValueError, match="y is on cpu, but X is on cuda:0"):
        DCM().fit(X, y.cpu(), sample_domain=domain)
    with pytest.raises(ValueError, match="sample_domain is on cpu, but X is on cuda:0"):
        DCM().fit(X, y, sample_domain=domain.cpu())
    with pytest.raises(ValueError, match="y is on cuda:0, but X is not a tensor on that device"):
        DCM().fit(data[0], y, sample_domain=data[2])
    model = DCM().fit(X, y, sample_domain=domain)
    with pytest.raises(ValueError, match="X is on cpu, but this model is on cuda:0"):
        model.transform(X.cpu())
    X[3, 2] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        model.transform(X)


def test_models_move_between_devices(data):
    X, y, domain = on_cuda(*data)
    model = DCM().fit(X, y, sample_domain=domain)
    expected = model.transform(X).cpu()
    again = pickle.loads(pickle.dumps(model))
    assert again.dual_coef_.device == X.device
    assert torch.equal(again.transform(X).cpu(), expected)
    host = copy.deepcopy(model).to("cpu")
    np.testing.assert_allclose(host.transform(X.cpu()), expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(host.to("cuda").transform(X).cpu(), expected, rtol=1e-8, atol=1e-10)


def test_a_model_from_a_gpu_is_loaded_on_a_machine_without_one(data, tmp_path):
    X, y, domain = on_cuda(*data)
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps(DCM().fit(X, y, sample_domain=domain)))
    code = (
        f"import pickle; model = pickle.loads(open({str(path)!r}, 'rb').read()); "
        "assert model.dual_coef_.device.type == 'cpu'"
    )
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_running_out_of_memory_says_what_to_change(data):
    X, y, domain = on_cuda(*data)
    model = DCM().fit(X, y, sample_domain=domain)
    rows = X.repeat(200_000, 1)  # 1.9 GB, and the product needs as much again
    limit = (torch.cuda.memory_reserved() + 2**28) / torch.cuda.get_device_properties(
        0
    ).total_memory
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        with pytest.raises(MemoryError, match="a smaller n_components"):
            model.transform(rows)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


def test_the_same_tensor_gives_the_same_bits(data, monkeypatch):
    monkeypatch.setattr(exact_base, "DENSE_ROWS", 10)
    X, y, domain = on_cuda(data[0].astype(np.float32), *data[1:])
    first, second = (DCM().fit(X, y, sample_domain=domain) for _ in range(2))
    assert torch.equal(first.dual_coef_, second.dual_coef_)
