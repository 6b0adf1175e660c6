"""Backends are looked up once per call, fit the type of X, and replace all NumPy functions."""

import numpy as np
import pytest

from domainwise import DCM, FastDCM
from domainwise.algebra.backends import Backend, backend_of
from domainwise.datasets import make_synthetic


@pytest.fixture
def data():
    return make_synthetic(n_domains=3, n_per_domain=20, random_state=0)


@pytest.fixture
def lookups(monkeypatch):
    """Types of X for which backends were looked up."""
    types = []

    def recorded(X):
        types.append(type(X))
        return backend_of(X)

    for module in ("projection", "fast"):
        monkeypatch.setattr(f"domainwise.estimators.projections.{module}.backend_of", recorded)
    return types


@pytest.mark.parametrize("model", [DCM(), FastDCM(n_landmarks=20)], ids=["exact", "fast"])
def test_a_call_looks_up_its_backend_once(model, data, lookups):
    model.fit(data.data, data.target, sample_domain=data.sample_domain)
    assert len(lookups) == 1
    model.transform(data.data)
    assert len(lookups) == 2


def test_a_batch_looks_up_its_backend_once(data, lookups):
    FastDCM(n_landmarks=20).partial_fit(data.data, data.target, sample_domain=data.sample_domain)
    assert len(lookups) == 1


def test_lists_and_data_frames_use_the_numpy_backend():
    pandas = pytest.importorskip("pandas")
    for X in ([[1.0]], np.ones((1, 1)), pandas.DataFrame({"a": [1.0]})):
        assert type(backend_of(X)) is Backend


#: Functions that work for both arrays and tensors, or that are not called for tensors.
SHARED = {
    "check_precomputed", "kernel_matrix", "labels_in_memory", "partitions", "predict",
    "resolve_kernel", "split_labels", "transform",
}  # fmt: skip


@pytest.mark.torch
def test_tensors_are_not_passed_to_functions_for_arrays():
    pytest.importorskip("torch")
    from domainwise.algebra.backends.torch import TorchBackend

    public = {name for name in vars(Backend) if not name.startswith("_")}
    assert public - SHARED <= vars(TorchBackend).keys()
    assert not SHARED & vars(TorchBackend).keys()


def test_an_estimator_without_a_method_cannot_be_created():
    from domainwise.estimators.projections.exact import KernelProjection

    class Incomplete(KernelProjection):
        pass

    with pytest.raises(TypeError, match="_method"):
        Incomplete()
