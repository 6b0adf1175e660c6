"""Errors for tensors that are not accepted."""

import numpy as np
import pytest

import domainwise
from domainwise import DCM, FastDCM
from domainwise.base.process import matmul_precision

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def fitted(data):
    X, y, domain = data
    return DCM().fit(torch.as_tensor(X), y, sample_domain=domain)


@pytest.mark.parametrize("estimator", [DCM(), FastDCM(n_landmarks=20)], ids=repr)
@pytest.mark.parametrize(
    "spoil, error, message",
    [
        (lambda T: T.long(), TypeError, "torch.int64. Convert it with X.to"),
        (lambda T: T.half(), TypeError, "torch.float16. Convert it with X.to"),
        (lambda T: T.to(torch.complex64), ValueError, "Complex data not supported"),
        (lambda T: T.to_sparse(), TypeError, "sparse tensor"),
        (lambda T: T[:, 0], ValueError, "Expected a 2D tensor"),
        (lambda T: T[:1], ValueError, "1 sample"),
        (lambda T: T[:, :0], ValueError, "0 feature"),
        (lambda T: T.index_fill(0, torch.tensor([3]), float("nan")), ValueError, "NaN"),
        (lambda T: T.index_fill(0, torch.tensor([3]), float("inf")), ValueError, "infinity"),
        (lambda T: T.to("meta"), ValueError, "meta, but only CPU and CUDA devices"),
    ],
)
def test_bad_rows_are_refused(estimator, spoil, error, message, data):
    X, y, domain = data
    with pytest.raises(error, match=message):
        estimator.fit(spoil(torch.as_tensor(X)), y, sample_domain=domain)


def test_bad_labels_are_refused(data):
    X, y, domain = data
    T, t, d = (torch.as_tensor(a) for a in (X, y, domain))
    with pytest.raises(ValueError, match="y has 239 entries, but X has 240 rows"):
        DCM().fit(T, t[1:], sample_domain=d)
    with pytest.raises(ValueError, match="sample_domain has 239 entries, but X has 240 rows"):
        DCM().fit(T, t, sample_domain=d[1:])
    with pytest.raises(ValueError, match="only one class"):
        DCM().fit(T, torch.zeros(240), sample_domain=d)
    with pytest.raises(ValueError, match="NaN or infinity"):
        DCM().fit(T, t.double().index_fill(0, torch.tensor([3]), float("nan")), sample_domain=d)
    with pytest.raises(ValueError, match="y is on meta"):
        DCM().fit(T, t.to("meta"), sample_domain=d)
    with pytest.raises(ValueError, match="sample_domain is on meta, but X is not a tensor"):
        DCM().fit(X, y, sample_domain=d.to("meta"))


def test_a_model_on_another_device_is_refused(fitted, data):
    X, y, domain = data
    with pytest.raises(TypeError, match='call to\\("numpy"\\)'):
        fitted.transform(X)
    with pytest.raises(TypeError, match="Call to\\(X.device\\)"):
        DCM().fit(X, y, sample_domain=domain).transform(torch.as_tensor(X))
    with pytest.raises(ValueError, match="4 features"):
        fitted.transform(torch.as_tensor(X[:, :4]))


def test_an_unavailable_device_is_refused(fitted):
    with pytest.raises((RuntimeError, AssertionError), match="CUDA"):
        fitted.to("cuda:99")
    with pytest.raises(ValueError, match="cpu or cuda"):
        fitted.to("meta")


def test_precision_applies_only_to_its_block():
    from domainwise.algebra.kernels.functions import current_precision

    with domainwise.precision("tf32"):
        assert current_precision() == "tf32"
        with domainwise.precision("ieee"):
            assert current_precision() == "ieee"
        assert current_precision() == "tf32"
    assert current_precision() == "tf32x3"
    with (
        pytest.raises(ValueError, match="tf32, tf32x3, ieee; got 'half'"),
        domainwise.precision("half"),
    ):
        pass


def test_two_fits_to_the_same_tensor_have_the_same_bits(data):
    X, y, domain = data
    T = torch.as_tensor(X.astype(np.float32))
    first, second = (DCM().fit(T, y, sample_domain=domain) for _ in range(2))
    assert torch.equal(first.dual_coef_, second.dual_coef_)


@pytest.mark.parametrize("odd, message", [(float("nan"), "missing values"), (1, "mixes labels")])
def test_lists_of_labels_are_checked_before_conversion(data, odd, message):
    X, y, domain = data
    labels = ["a" if value else "b" for value in y]
    labels[0] = odd
    with pytest.raises(ValueError, match=message):
        DCM().fit(torch.as_tensor(X), labels, sample_domain=domain)
    with pytest.raises(ValueError, match=message):
        DCM().fit(torch.as_tensor(X), y, sample_domain=labels)


def test_the_precision_of_products_is_restored_after_blocks_that_overlap():
    before = torch.get_float32_matmul_precision()
    tf32, exact = (matmul_precision(torch.ones(1), allow_tf32=allow) for allow in (True, False))
    torch.set_float32_matmul_precision("medium")
    try:
        tf32.__enter__()
        assert torch.get_float32_matmul_precision() == "high"
        exact.__enter__()
        assert torch.get_float32_matmul_precision() == "highest"
        tf32.__exit__(None, None, None)
        with matmul_precision(torch.ones(1), allow_tf32=True):
            assert torch.get_float32_matmul_precision() == "highest"
        exact.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
