"""merge: estimators fitted at several sites equal one fit on all rows."""

import copy
import functools
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

import domainwise as dw

PROJECTIONS = [dw.FastDCM, dw.FastCOIR, dw.FastDICA, dw.FastKPCA, dw.FastSCA, dw.FastMDA]
PROJECTIONS += [dw.FastMIDA, dw.InvariantFeatures]
RIDGES = [dw.InvariantRidgeClassifierCV, dw.InvariantRidgeCV]
RNG = np.random.default_rng(0)
N = 240
DOMAIN = np.repeat(np.array(["ash", "elm", "fir", "oak"]), N // 4)
# The sites share neither domains nor classes.
CLASSES = np.where(DOMAIN < "f", "ab", "cd")
CLASSES = np.array([pair[i % 2] for i, pair in enumerate(CLASSES)])
X = RNG.normal(size=(N, 4)) + (CLASSES == "b")[:, None] - (CLASSES == "c")[:, None]
TARGET = X[:, 0] - X[:, 1] ** 2 + RNG.normal(size=N)
SITES = np.flatnonzero(DOMAIN < "f"), np.flatnonzero(DOMAIN > "f")
NYSTROEM = {"landmarks": RNG.normal(size=(30, 4))}
FOURIER = {"feature_map": "fourier", "n_landmarks": 25, "random_state": 3}


def unfitted(method, y, maps=NYSTROEM, **changes):
    """Return an estimator whose sums can be merged."""
    arguments = dict(maps)
    if method in RIDGES:
        arguments |= {"gammas": (0.05, 0.2), "n_average": 3}
    else:
        arguments |= {"gamma": 0.1}
        if y.dtype.kind == "f" and "target_landmarks" in method().get_params():
            arguments |= {"target_gamma": 0.5, "target_landmarks": (-8.0, 5.0)}
    return method(**arguments | changes)


def y_for(method, kind="classes"):
    return TARGET if method is dw.InvariantRidgeCV or kind == "numbers" else CLASSES


def at_site(model, rows, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a site may have a single domain
        return model.partial_fit(X[rows], y[rows], sample_domain=DOMAIN[rows])


def merged(model, y, order=(0, 1), sites=SITES):
    parts = [at_site(clone(model), sites[i], y) for i in order]
    return parts[0].merge(parts[1])


def answers(model, rows=X):
    name = "decision_function" if is_classifier(model) else "predict"
    return getattr(model, name if hasattr(model, name) else "transform")(rows)


def arrays(sums):
    """Return all numbers in sums, by name."""
    if hasattr(sums, "maps"):
        cells = {(i, key): cell for i, cells in enumerate(sums.maps) for key, cell in cells.items()}
        return {(k, n): a for k, cell in cells.items() for n, a in arrays(cell).items()}
    groups = {(key, i): a for key, group in sums.groups.items() for i, a in enumerate(group)}
    return {"n": sums.n_samples, "mean": sums.mean, "second": sums.second, **groups}


CASES = [(method, "classes", maps) for method in PROJECTIONS for maps in (NYSTROEM, FOURIER)]
CASES += [(method, "numbers", NYSTROEM) for method in (dw.FastDCM, dw.FastCOIR, dw.FastDICA)]
CASES += [(method, "any", maps) for method in RIDGES for maps in (NYSTROEM, FOURIER)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["forward", "backward"])
@pytest.mark.parametrize(("method", "kind", "maps"), CASES)
def test_two_sites_equal_one_fit_on_all_rows(method, kind, maps, order):
    y = y_for(method, kind)
    model = unfitted(method, y, maps)
    total = merged(model, y, order)
    one_pass = arrays(at_site(clone(model), np.arange(N), y)._sums)
    parts = arrays(total._sums)
    assert parts.keys() == one_pass.keys()
    if not getattr(model, "_needs_moments", True):
        del parts["second"]  # not computed
    for name, value in parts.items():
        scale = np.abs(one_pass[name]).max()
        np.testing.assert_allclose(value, one_pass[name], rtol=0, atol=1e-12 * scale, err_msg=name)
    expected = clone(model).fit(X, y, sample_domain=DOMAIN)
    np.testing.assert_allclose(answers(total), answers(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", [dw.FastDCM, *RIDGES])
def test_sites_with_the_same_domains_and_batches_after_the_merge_count_too(method):
    y = y_for(method)
    halves = np.arange(0, N, 2), np.arange(1, N, 4)
    model = unfitted(method, y)
    total = at_site(merged(model, y, sites=halves), np.arange(3, N, 4), y)
    expected = clone(model).fit(X, y, sample_domain=DOMAIN)
    np.testing.assert_allclose(answers(total), answers(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", [dw.FastDCM, *RIDGES])
def test_merging_does_not_change_the_other_estimator(method):
    y = y_for(method)
    first, second = (at_site(unfitted(method, y), rows, y) for rows in SITES)
    before = copy.deepcopy(second)
    first.merge(second)
    answers(at_site(first, SITES[0], y))
    assert vars(second).keys() == vars(before).keys()
    for name, value in arrays(second._sums).items():
        np.testing.assert_array_equal(value, arrays(before._sums)[name])
    np.testing.assert_array_equal(answers(second), answers(before))


@pytest.mark.parametrize("method", [dw.FastDCM, *RIDGES])
def test_sums_are_exchanged_in_files(method, tmp_path):
    pytest.importorskip("skops")
    y = y_for(method)
    # Each site has one class and one domain, from which nothing can be fitted.
    labels = {"ash": "a", "elm": "b", "oak": "d"}
    sites = [np.flatnonzero((d == DOMAIN) & (c == CLASSES)) for d, c in labels.items()]
    model, rows = unfitted(method, y), np.concatenate(sites)
    for i, site in enumerate(sites):
        dw.save(at_site(clone(model), site, y), tmp_path / f"{i}.skops")
    first, *others = (dw.load(tmp_path / f"{i}.skops") for i in range(3))
    total = functools.reduce(method.merge, others, first)
    expected = clone(model).fit(X[rows], y[rows], sample_domain=DOMAIN[rows])
    np.testing.assert_allclose(answers(total), answers(expected), rtol=1e-9, atol=1e-9)


def test_saving_and_loading_sums_runs_no_search(tmp_path, monkeypatch):
    pytest.importorskip("skops")
    model = at_site(unfitted(RIDGES[0], CLASSES), np.arange(N), CLASSES)
    dw.save(model, tmp_path / "sums.skops")
    for one in (model, dw.load(tmp_path / "sums.skops")):
        assert not hasattr(one, "expansions_")
    dw.save(model.finalize(), tmp_path / "final.skops")
    loaded = dw.load(tmp_path / "final.skops")
    assert hasattr(loaded, "expansions_")
    np.testing.assert_allclose(answers(loaded), answers(model), rtol=1e-12)
    np.testing.assert_allclose(answers(loaded.merge(model)), answers(model.merge(model)), rtol=1e-9)


def test_a_classifier_of_merged_sums_says_that_it_has_no_probabilities():
    model = merged(unfitted(RIDGES[0], CLASSES), CLASSES)
    for one in (model, model.finalize()):
        assert not hasattr(one, "predict_proba")
        with pytest.raises(AttributeError, match="calibrated on held-out rows.*decision_function"):
            one.predict_proba(X)
    with pytest.raises(AttributeError, match="'predict_proba'$"):
        dw.InvariantRidgeCV().predict_proba  # noqa: B018


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"landmarks": X[:30]}, r"landmarks is array\(shape=\(30, 4\), digest=\w+\) in this"),
        ({"landmarks": X[:31]}, r"but array\(shape=\(31, 4\), digest=\w+\) in the other"),
        ({"gamma": 0.2}, r"gamma is \[0.1\] in this estimator, but \[0.2\] in the other"),
        ({"kernel": "laplacian"}, "kernel is 'rbf' in this estimator, but 'laplacian'"),
        ({"conditional": True}, "conditional is False in this estimator, but True"),
        (FOURIER | {"landmarks": "uniform"}, "feature_map is 'nystroem' in this .* but 'fourier'"),
    ],
)
def test_different_arguments_are_named(changes, difference):
    model = at_site(unfitted(dw.FastDCM, CLASSES), SITES[0], CLASSES)
    other = at_site(unfitted(dw.FastDCM, CLASSES, **changes), SITES[1], CLASSES)
    refuse(model, other, difference)


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        ({"gamma": "median", **NYSTROEM}, r"gamma is \[0\.\d+\] in this estimator, but \[0\.\d+\]"),
        ({"gamma": 0.1, "n_landmarks": 30}, "the array of landmarks for kernel 1 is array"),
        (
            {"kernel": "linear", **NYSTROEM},
            "the mean of the first batch, which kernel=.linear. subtracts, is",
        ),
        (
            {"gamma": 0.1, "feature_map": "fourier", "random_state": np.random.RandomState(0)},
            "the array of frequencies for kernel 1 is",
        ),
    ],
)
def test_what_is_chosen_from_rows_differs_between_sites(arguments, difference):
    # RandomState draws other numbers the second time.
    refuse(*(at_site(dw.FastDCM(**arguments), rows, CLASSES) for rows in SITES), difference)


def test_a_continuous_target_needs_target_landmarks_and_a_number_as_target_gamma():
    def sites(**changes):
        model = unfitted(dw.FastDCM, TARGET, **changes)
        return (at_site(clone(model), rows, TARGET) for rows in SITES)

    refuse(*sites(target_landmarks=None), "target_landmarks is array")
    refuse(*sites(target_gamma="median"), "target_gamma is 0")


def test_rows_and_labels_must_be_of_the_same_kind():
    pandas = pytest.importorskip("pandas")
    model = at_site(unfitted(dw.FastDCM, CLASSES), SITES[0], CLASSES)
    y, d, rows = CLASSES[SITES[1]], DOMAIN[SITES[1]], X[SITES[1]]

    def other(rows=rows, y=y, d=d, **changes):
        model = unfitted(dw.FastDCM, CLASSES, **changes)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.partial_fit(rows, y, sample_domain=d)

    refuse(model, other(rows[:, :3], landmarks=X[:30, :3]), "the number of columns is 4 .* but 3")
    named = pandas.DataFrame(rows, columns=list("pqrs"))
    refuse(model, other(named), "the list of column names is None .* but ..p., .q., .r., .s")
    refuse(
        model, other(y=(y == "c").astype(int)), "content of y is string labels .* numeric labels"
    )
    refuse(model, other(y=TARGET[SITES[1]]), "content of y is string labels .* but continuous")
    refuse(model, other(d=None), "sample_domain is given in this estimator, but missing")
    refuse(model, other(rows.astype(np.float32)), r"landmarks.* is .* but")


@pytest.mark.parametrize("method", RIDGES)
def test_arguments_of_the_search_may_differ_and_those_of_the_sums_may_not(method):
    y = y_for(method)
    model = at_site(unfitted(method, y, n_average=1, alphas=[0.5]), SITES[0], y)
    total = copy.deepcopy(model).merge(at_site(unfitted(method, y), SITES[1], y))
    expected = clone(model).fit(X, y, sample_domain=DOMAIN)
    assert total.finalize().members_ == expected.members_
    for changes, difference in (
        ({"gammas": [0.05]}, r"gammas is \[0.05, 0.2\] in this estimator, but \[0.05\]"),
        ({"landmarks": "kmeans++"}, "landmarks is array.* but 'kmeans.*'"),
    ):
        refuse(model, at_site(unfitted(method, y, **changes), SITES[1], y), difference)
    automatic = (at_site(unfitted(method, y, gammas="auto"), rows, y) for rows in SITES)
    refuse(*automatic, r"gamma is \[0")


def test_only_fitted_estimators_of_the_same_class_can_be_merged():
    model = at_site(unfitted(dw.FastDCM, CLASSES), SITES[0], CLASSES)
    with pytest.raises(TypeError, match="a FastKPCA cannot be merged into a FastDCM"):
        model.merge(dw.FastKPCA())
    with pytest.raises(
        ValueError, match=r"the other estimator contains no sums\. Call partial_fit"
    ):
        model.merge(clone(model))
    with pytest.raises(ValueError, match="this estimator contains no sums"):
        clone(model).merge(model)


def refuse(model, other, difference):
    """Check that a merge names the difference, and changes nothing."""
    before = arrays(model._sums)
    with pytest.raises(ValueError, match=f"cannot be merged: .*{difference}"):
        model.merge(other)
    for name, value in arrays(model._sums).items():
        np.testing.assert_array_equal(value, before[name])
