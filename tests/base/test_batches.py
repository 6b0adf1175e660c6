"""All batches passed to partial_fit need the same arguments, and all or none need domains."""

import numpy as np
import pytest
from sklearn.base import clone

import domainwise as dw
from domainwise import selection
from domainwise.base.signatures import batch_record, check_batch

X = np.random.default_rng(0).normal(size=(60, 3))
Y = np.arange(60) % 2
DOMAIN = np.arange(60) // 20

#: Every public class with partial_fit, with one of its arguments and a new value for it.
IN_BATCHES = {
    dw.FastDCM: ("epsilon", 0.5),
    dw.FastCOIR: ("gamma", 0.5),
    dw.FastDICA: ("lam", 0.5),
    dw.FastKPCA: ("kernel", "laplacian"),
    dw.FastSCA: ("between", 0.1),
    dw.FastMDA: ("within_weight", 2.0),
    dw.FastMIDA: ("feature_map", "fourier"),
    dw.InvariantFeatures: ("domain_weight", 0.5),
    dw.InvariantRidgeClassifierCV: ("kernels", ("linear",)),
    dw.InvariantRidgeCV: ("alphas", [0.5]),
    dw.DomainContext: ("clip", 2.0),
}


def model_of(kind):
    small = {"n_landmarks": 10} if hasattr(kind(), "n_landmarks") else {}
    return kind(**small)


def test_every_class_with_partial_fit_is_listed_here():
    names = [getattr(module, name) for module in (dw, selection) for name in module.__all__]
    classes = {cls for cls in names if isinstance(cls, type) and hasattr(cls, "get_params")}
    with_partial_fit = {cls for cls in classes if callable(getattr(cls, "partial_fit", None))}
    assert with_partial_fit == set(IN_BATCHES)


@pytest.mark.parametrize("kind", IN_BATCHES, ids=lambda kind: kind.__name__)
def test_changing_an_argument_between_batches_is_an_error(kind):
    name, value = IN_BATCHES[kind]
    model = model_of(kind).partial_fit(X, Y, sample_domain=DOMAIN)
    before = getattr(model, name)
    model.set_params(**{name: value})
    with pytest.raises(
        ValueError, match=f"now has {name}=.* first batch .* {name}=.*restore {name}"
    ):
        model.partial_fit(X, Y, sample_domain=DOMAIN)
    model.set_params(**{name: before}).partial_fit(X, Y, sample_domain=DOMAIN)


@pytest.mark.parametrize("kind", IN_BATCHES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("first", [DOMAIN, None], ids=["missing", "given"])
def test_passing_domains_with_only_some_batches_is_an_error(kind, first):
    second = DOMAIN if first is None else None
    word = "missing" if second is None else "given"
    model = model_of(kind).partial_fit(X, Y, sample_domain=first)
    with pytest.raises(ValueError, match=f"sample_domain is {word} in this batch.* every batch"):
        model.partial_fit(X, Y, sample_domain=second)
    model.partial_fit(X, Y, sample_domain=first)


def test_batches_after_fit_follow_the_same_rule():
    model = dw.FastDCM(n_landmarks=10).fit(X, Y, sample_domain=DOMAIN)
    with pytest.raises(ValueError, match="sample_domain is missing in this batch"):
        model.partial_fit(X, Y)
    with pytest.raises(
        ValueError, match="gamma=0.5, but the first batch was fitted with gamma='median'"
    ):
        model.set_params(gamma=0.5).partial_fit(X, Y, sample_domain=DOMAIN)


def test_arguments_can_be_changed_before_fit():
    model = dw.FastDCM(n_landmarks=10).partial_fit(X, Y, sample_domain=DOMAIN)
    model.set_params(gamma=0.5).fit(X, Y).partial_fit(X, Y)
    assert model.gamma_ == 0.5


def test_changing_gammas_after_the_last_batch_is_an_error():
    model = dw.InvariantRidgeCV(gammas=[0.1], n_landmarks=10)
    model.partial_fit(X, X[:, 0], sample_domain=DOMAIN).set_params(gammas=[0.2])
    with pytest.raises(ValueError, match=r"gammas=\[0.2\], but .* with gammas=\[0.1\]"):
        model.predict(X)


@pytest.mark.parametrize(
    ("one", "same", "other"),
    [
        ([0.1, 0.2], (np.float64(0.1), 0.2), [0.1, 0.3]),
        (X[:20], X[:20].tolist(), X[1:21]),
        (X[::3], np.array(X[::3]), X[1::3]),
        (X[:5, 0], X[:5, 0].tolist(), X[1:6, 0]),
        ({"gamma": 1.0}, {"gamma": np.float64(1.0)}, {"gamma": 2.0}),
        (np.sum, np.sum, np.mean),
        (None, None, 0),
        (np.random.RandomState(0), np.random.RandomState(0), 0),
    ],
)
def test_equal_values_in_other_containers_are_accepted(one, same, other):
    model = dw.FastDCM(kernel_params=one)
    first = batch_record(model, DOMAIN)
    check_batch(clone(model).set_params(kernel_params=same), first, DOMAIN)
    with pytest.raises(ValueError, match="kernel_params"):
        check_batch(clone(model).set_params(kernel_params=other), first, DOMAIN)


def test_n_jobs_and_verbose_may_change_between_batches():
    model = dw.InvariantRidgeCV(gammas=[0.1], n_landmarks=10)
    model.partial_fit(X, X[:, 0], sample_domain=DOMAIN).set_params(n_jobs=2)
    model.partial_fit(X, X[:, 0], sample_domain=DOMAIN)
