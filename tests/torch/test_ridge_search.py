"""Ridge searches on tensors equal those on arrays, and stay on the device of the tensors."""

import copy

import numpy as np
import pytest
from sklearn.base import clone

from domainwise import InvariantRidgeClassifierCV, InvariantRidgeCV, load, precision, save

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

GRID = {"gammas": [0.05, 0.3], "alphas": [0.1, 2.0], "domain_weights": [0.0, 3.0], "n_average": 5}
SCORES = "split0_test_score", "split3_test_score", "mean_test_score"


def tensors(*arrays):
    return tuple(torch.from_numpy(array) for array in arrays)


@pytest.mark.parametrize("scoring", [None, "balanced_accuracy"])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_searches_on_tensors_and_on_arrays_are_equal(data, class_weight, scoring):
    X, y, domain = data
    model = InvariantRidgeClassifierCV(
        landmarks=X[::5], class_weight=class_weight, scoring=scoring, **GRID
    )
    arrays = clone(model).fit(X, y, sample_domain=domain)
    tensor, labels, domains = tensors(X, y, domain)
    there = clone(model).fit(tensor, labels, sample_domain=domains)
    assert there.members_ == arrays.members_
    for name in SCORES:
        np.testing.assert_allclose(there.cv_results_[name], arrays.cv_results_[name], rtol=1e-8)
    values = there.decision_function(tensor)
    assert isinstance(values, torch.Tensor)
    np.testing.assert_allclose(values.numpy(), arrays.decision_function(X), atol=1e-8)
    np.testing.assert_array_equal(there.predict(tensor).numpy(), arrays.predict(X))
    expected = arrays.predict_proba(X)
    np.testing.assert_allclose(there.predict_proba(tensor).numpy(), expected, atol=1e-6)


def test_numbers_with_an_offset_and_float32_rows(data):
    X, _, domain = data
    t = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 1e4
    model = InvariantRidgeCV(landmarks=X[::5], **GRID)
    arrays = clone(model).fit(X, t, sample_domain=domain)
    tensor, target, domains = tensors(X, t, domain)
    np.testing.assert_allclose(
        clone(model).fit(tensor, target, sample_domain=domains).predict(tensor).numpy(),
        arrays.predict(X),
        rtol=1e-9,
    )
    single = clone(model).fit(tensor.float(), target, sample_domain=domains)
    for name in SCORES:
        np.testing.assert_allclose(single.cv_results_[name], arrays.cv_results_[name], rtol=1e-3)


def test_row_folds_and_names_of_classes_work_on_tensors(data):
    X, y, domain = data
    names = np.array(["no", "yes"])[y]
    model = InvariantRidgeClassifierCV(landmarks=X[::5], cv=3, **GRID)
    arrays = clone(model).fit(X, names, sample_domain=domain)
    there = clone(model).fit(torch.from_numpy(X), names, sample_domain=domain)
    assert there.predict(torch.from_numpy(X)).tolist() == arrays.predict(X).tolist()


def test_batches_of_tensors_equal_one_fit(data):
    tensor, labels, domains = tensors(*data)
    model = InvariantRidgeClassifierCV(landmarks=data[0][::5], **GRID)
    whole = clone(model).fit(tensor, labels, sample_domain=domains)
    parts = clone(model)
    for batch in torch.randperm(len(tensor)).split(70):
        parts.partial_fit(tensor[batch], labels[batch], sample_domain=domains[batch])
    np.testing.assert_allclose(
        parts.decision_function(tensor), whole.decision_function(tensor), atol=1e-9
    )


def test_sums_of_tensors_and_of_arrays_can_be_merged(data):
    tensor, labels, domains = tensors(*data)
    X, y, domain = data
    model = InvariantRidgeClassifierCV(landmarks=X[::5], **GRID)
    whole = clone(model).fit(X, y, sample_domain=domain)
    of_tensors = clone(model).partial_fit(tensor[:70], labels[:70], sample_domain=domains[:70])
    of_arrays = clone(model).partial_fit(X[70:], y[70:], sample_domain=domain[70:])
    for first, second in ((of_tensors, of_arrays), (of_arrays, of_tensors)):
        values = copy.deepcopy(first).merge(second).decision_function(X)
        np.testing.assert_allclose(values, whole.decision_function(X), atol=1e-9)


def test_a_model_moves_and_is_saved(data, tmp_path):
    pytest.importorskip("skops")
    tensor, labels, domains = tensors(*data)
    model = InvariantRidgeClassifierCV(n_landmarks=40, **GRID)
    model.partial_fit(tensor, labels, sample_domain=domains)
    values = model.decision_function(tensor)
    with pytest.raises(TypeError, match="X is not a tensor, but this model is on cpu"):
        model.predict(data[0])
    save(model, tmp_path / "model.skops")
    again = load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.decision_function(tensor), values)
    again.partial_fit(tensor, labels, sample_domain=domains)
    assert isinstance(again.decision_function(tensor), torch.Tensor)
    model.to("numpy")
    np.testing.assert_allclose(model.decision_function(data[0]), values, atol=1e-10)
    with pytest.raises(TypeError, match="contains NumPy arrays"):
        model.predict(tensor)
    np.testing.assert_allclose(model.to("cpu").decision_function(tensor), values, atol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_searches_on_a_gpu_and_on_arrays_are_equal(data):
    X, y, domain = data
    model = InvariantRidgeClassifierCV(landmarks=X[::5], **GRID)
    arrays = clone(model).fit(X, y, sample_domain=domain)
    tensor, labels, domains = (part.cuda() for part in tensors(X, y, domain))
    there = clone(model).fit(tensor, labels, sample_domain=domains)
    assert there.expansions_[0].dual.device.type == "cuda"
    for name in SCORES:
        np.testing.assert_allclose(there.cv_results_[name], arrays.cv_results_[name], rtol=1e-8)
    for name, error in (("tf32", 1e-1), ("ieee", 1e-3)):
        with precision(name):
            single = clone(model).fit(tensor.float(), labels, sample_domain=domains)
        np.testing.assert_allclose(
            single.cv_results_["mean_test_score"], arrays.cv_results_["mean_test_score"], rtol=error
        )
