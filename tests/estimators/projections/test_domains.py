"""Checks of sample_domain, which scikit-learn's own checks do not cover."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import NotFittedError, check_is_fitted

from domainwise import COIR, DCM, DICA, KPCA

MODELS = [
    pytest.param(DCM(), id="dcm"),
    pytest.param(COIR(), id="coir"),
    pytest.param(DICA(lam=0.01), id="dica"),
    pytest.param(KPCA(n_components=3), id="kpca"),
]
each_model = pytest.mark.parametrize("model", MODELS)

rng = np.random.default_rng(0)
N = 80
CODES = rng.permutation(np.arange(N) % 4)
Y = rng.integers(0, 3, size=N)
X = rng.normal(size=(N, 4)) + 0.8 * rng.normal(size=(4, 4))[CODES] + rng.normal(size=(3, 4))[Y]
NEW = rng.normal(size=(9, 4))
NAMES = np.array(["bern", "aachen", "delft", "caen"])


def fitted(model, domains, X=X, y=Y):
    return clone(model).fit(X, y, sample_domain=domains)


# kinds of domain labels ---------------------------------------------------------------------------

KINDS = {
    "strings": NAMES[CODES],
    "objects": NAMES[CODES].astype(object),
    "list of strings": NAMES[CODES].tolist(),
    "tuple of strings": tuple(NAMES[CODES]),
    "bytes": NAMES[CODES].astype(bytes),
    "whole floats": CODES.astype(float),
    "float32": CODES.astype(np.float32),
    "small ints": CODES.astype(np.int8),
    "unsigned": CODES.astype(np.uint64),
    "far apart ints": CODES * 10**9 - 3,
    "list of ints": CODES.tolist(),
    "object ints": CODES.astype(object),
    "pandas strings": pd.Series(NAMES[CODES]),
    "pandas string dtype": pd.Series(NAMES[CODES], dtype="string"),
    "pandas categorical": pd.Series(pd.Categorical(NAMES[CODES])),
    "pandas bare categorical": pd.Categorical(NAMES[CODES]),
    "pandas ordered categorical of ints": pd.Series(
        pd.Categorical(CODES, categories=[3, 1, 0, 2], ordered=True)
    ),
    "pandas nullable ints": pd.Series(CODES, dtype="Int64"),
    "pandas index": pd.Index(NAMES[CODES]),
    "pandas odd index": pd.Series(NAMES[CODES], index=np.arange(N)[::-1]),
    "polars strings": pl.Series(NAMES[CODES].tolist()),
    "polars categorical": pl.Series(NAMES[CODES].tolist(), dtype=pl.Categorical),
    "polars enum": pl.Series(NAMES[CODES].tolist(), dtype=pl.Enum(NAMES.tolist())),
    "polars ints": pl.Series(CODES.tolist()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_domain_labels_gives_the_same_projection(kind):
    expected = fitted(DCM(), CODES)
    model = fitted(DCM(), KINDS[kind])
    np.testing.assert_allclose(model.transform(NEW), expected.transform(NEW), atol=1e-9)
    assert len(model.domains_) == 4
    assert list(model.domains_) == sorted(model.domains_)


@pytest.mark.parametrize(
    "kind", ["strings", "pandas categorical", "pandas string dtype", "polars enum"]
)
def test_domains_are_listed_by_name_in_sorted_order(kind):
    model = fitted(DCM(), KINDS[kind])
    assert model.domains_.tolist() == ["aachen", "bern", "caen", "delft"]


@pytest.mark.parametrize(
    "flags",
    [
        CODES > 1,
        (CODES > 1).tolist(),
        (CODES > 1).astype(object),
        pd.Series(CODES > 1, dtype="boolean"),
        pl.Series((CODES > 1).tolist()),
    ],
    ids=["numpy", "list", "objects", "pandas", "polars"],
)
def test_booleans_are_two_domains(flags):
    expected = fitted(DCM(), (CODES > 1).astype(int))
    model = fitted(DCM(), flags)
    np.testing.assert_allclose(model.transform(NEW), expected.transform(NEW), atol=1e-9)
    assert model.domains_.tolist() == [0, 1]


def test_an_unused_category_is_not_a_domain():
    unused = pd.Series(pd.Categorical(NAMES[CODES], categories=[*NAMES, "nowhere"]))
    assert fitted(DCM(), unused).domains_.tolist() == sorted(NAMES)


DESCRIPTORS = [CODES + 0.25 * X[:, 0], X[:, :2], pd.DataFrame(X[:, :2])]


@pytest.mark.parametrize("descriptors", DESCRIPTORS, ids=["fractions", "columns", "frame"])
def test_fractional_floats_and_several_columns_are_descriptors_not_labels(descriptors):
    for model in (DCM(), COIR(), KPCA()):
        assert fitted(model, descriptors).domains_ is None
    with pytest.raises(ValueError, match="sample_domain must contain labels.*descriptors"):
        fitted(DICA(), descriptors)


# invalid domain labels ----------------------------------------------------------------------------


def spoiled(value, values=NAMES[CODES]):
    labels = np.array(values, dtype=object)
    labels[7] = value
    return labels


MISSING = {
    "None": spoiled(None),
    "NaN among strings": spoiled(np.nan),
    "NaN in a list of strings": spoiled(np.nan).tolist(),
    "None in a list of strings": spoiled(None).tolist(),
    "NaN in a tuple of strings": tuple(spoiled(float("nan"))),
    "NaN among ints": spoiled(np.nan, CODES),
    "None among ints": spoiled(None, CODES).tolist(),
    "NaN among floats": np.where(np.arange(N) == 7, np.nan, CODES),
    "infinity": np.where(np.arange(N) == 7, np.inf, CODES),
    "pandas NA in strings": pd.Series(spoiled(pd.NA), dtype="string"),
    "pandas NaN in str": pd.Series(spoiled(np.nan).tolist()),
    "pandas NA in ints": pd.Series(spoiled(pd.NA, CODES), dtype="Int64"),
    "pandas NA in booleans": pd.Series(spoiled(pd.NA, CODES > 1), dtype="boolean"),
    "pandas missing category": pd.Series(pd.Categorical(spoiled(None))),
    "polars null in strings": pl.Series(spoiled(None).tolist()),
    "polars null in ints": pl.Series(spoiled(None, CODES).tolist()),
    "polars null in booleans": pl.Series(spoiled(None, CODES > 1).tolist()),
    "polars null category": pl.Series(spoiled(None).tolist(), dtype=pl.Categorical),
}


@pytest.mark.parametrize("kind", MISSING)
def test_a_missing_domain_is_an_error_that_names_sample_domain(kind):
    with pytest.raises(ValueError, match="sample_domain.*(missing|NaN|infinity)"):
        fitted(DCM(), MISSING[kind])


@each_model
def test_a_missing_domain_is_an_error_for_methods_that_ignore_domains_too(model):
    with pytest.raises(ValueError, match="sample_domain contains missing values"):
        fitted(model, spoiled(None))


@pytest.mark.parametrize(
    "mixed",
    [spoiled(3), spoiled(3).tolist(), spoiled(3.5), spoiled(b"bern"), spoiled((1, 2))],
    ids=["int", "int in a list", "float", "bytes", "tuple"],
)
def test_labels_of_mixed_types_are_an_error_that_names_the_types(mixed):
    with pytest.raises(ValueError, match="sample_domain mixes labels of different types"):
        fitted(DCM(), mixed)


def test_objects_and_complex_numbers_are_not_domain_labels():
    with pytest.raises(ValueError, match="sample_domain contains object objects"):
        fitted(DCM(), np.array([object() for _ in range(N)]))
    with pytest.raises(ValueError, match="sample_domain.*complex"):
        fitted(DCM(), CODES.astype(complex))


def test_dates_are_an_error_with_advice():
    days = np.datetime64("2024-01-01") + CODES.astype("timedelta64[D]")
    for dates in (days, pd.Series(days), pl.Series(days.tolist())):
        with pytest.raises(ValueError, match="sample_domain contains dates or durations. Convert"):
            fitted(DCM(), dates)


# metadata routing ---------------------------------------------------------------------------------


@each_model
def test_sample_domain_is_requested_by_fit_by_default(model):
    # As in scikit-learn, weights are routed only after set_fit_request(sample_weight=True).
    requests = {"sample_domain": True, "sample_weight": None}
    assert get_routing_for_object(model).fit.requests == requests
    assert get_routing_for_object(model).transform.requests == {}


@each_model
def test_a_request_can_be_changed(model):
    with config_context(enable_metadata_routing=True):
        changed = clone(model).set_fit_request(sample_domain="site")
    assert get_routing_for_object(changed).fit.requests["sample_domain"] == "site"


def pipeline(model=None):
    return make_pipeline(StandardScaler(), model or DCM(), LogisticRegression())


def by_hand(X_train, y_train, d_train, X_test, model=None):
    scaler = StandardScaler().fit(X_train)
    dcm = clone(model or DCM()).fit(scaler.transform(X_train), y_train, sample_domain=d_train)
    last = LogisticRegression().fit(dcm.embedding_, y_train)
    return last.predict_proba(dcm.transform(scaler.transform(X_test)))


@each_model
def test_a_pipeline_passes_domains_on_with_and_without_routing(model):
    expected = by_hand(X, Y, CODES, NEW, model)
    name = type(model).__name__.lower()
    reference = pipeline(clone(model)).fit(X, Y, **{f"{name}__sample_domain": CODES})
    np.testing.assert_allclose(reference.predict_proba(NEW), expected, atol=1e-10)
    with config_context(enable_metadata_routing=True):
        routed = pipeline(clone(model)).fit(X, Y, sample_domain=CODES)
        np.testing.assert_allclose(routed.predict_proba(NEW), expected, atol=1e-10)


def test_domains_change_what_a_pipeline_learns():
    without = pipeline().fit(X, Y).predict_proba(NEW)
    with_domains = by_hand(X, Y, CODES, NEW)
    assert np.abs(without - with_domains).max() > 1e-3


def test_a_pipeline_that_ends_in_a_projection_passes_domains_on():
    expected = DCM().fit_transform(StandardScaler().fit_transform(X), Y, sample_domain=CODES)
    unrouted = make_pipeline(StandardScaler(), DCM())
    np.testing.assert_allclose(unrouted.fit_transform(X, Y, dcm__sample_domain=CODES), expected)
    with config_context(enable_metadata_routing=True):
        routed = make_pipeline(StandardScaler(), DCM())
        np.testing.assert_allclose(routed.fit_transform(X, Y, sample_domain=CODES), expected)
        np.testing.assert_allclose(
            routed.fit(X, Y, sample_domain=CODES).transform(X), expected, atol=1e-8
        )


@pytest.mark.parametrize("domains", [CODES, NAMES[CODES], pd.Series(NAMES[CODES])])
def test_cross_validate_slices_domains_like_rows(domains):
    with config_context(enable_metadata_routing=True):
        scores = cross_validate(
            pipeline(),
            X,
            Y,
            cv=LeaveOneGroupOut().set_split_request(groups="sample_domain"),
            params={"sample_domain": domains},
            scoring="neg_log_loss",
            error_score="raise",
        )["test_score"]
    expected = []
    for held_out in np.unique(np.asarray(domains)):
        test = np.asarray(domains) == held_out
        proba = by_hand(X[~test], Y[~test], np.asarray(domains)[~test], X[test])
        expected.append(np.log(proba[np.arange(test.sum()), Y[test]]).mean())
    np.testing.assert_allclose(scores, expected, rtol=1e-8)


def test_cross_validate_without_routing_slices_domains_of_a_step():
    params = {"dcm__sample_domain": CODES}
    scores = cross_validate(
        pipeline(), X, Y, cv=KFold(4), params=params, scoring="neg_log_loss", error_score="raise"
    )["test_score"]
    expected = []
    for train, test in KFold(4).split(X):
        proba = by_hand(X[train], Y[train], CODES[train], X[test])
        expected.append(np.log(proba[np.arange(len(test)), Y[test]]).mean())
    np.testing.assert_allclose(scores, expected, rtol=1e-8)


@pytest.mark.parametrize("routing", [True, False])
def test_a_grid_search_over_held_out_domains_equals_explicit_loops(routing):
    grid = {"dcm__domain_weight": [0.0, 1.0], "dcm__ridge": [1e-3, 1.0]}
    with config_context(enable_metadata_routing=routing):
        if routing:
            cv = LeaveOneGroupOut().set_split_request(groups="sample_domain")
            search = GridSearchCV(pipeline(), grid, cv=cv, scoring="neg_log_loss")
            search.fit(X, Y, sample_domain=CODES)
        else:
            search = GridSearchCV(pipeline(), grid, cv=LeaveOneGroupOut(), scoring="neg_log_loss")
            search.fit(X, Y, groups=CODES, dcm__sample_domain=CODES)
    expected = []
    for params in search.cv_results_["params"]:
        folds = []
        for g in range(4):
            test = g == CODES
            model = DCM(**{key.removeprefix("dcm__"): value for key, value in params.items()})
            proba = by_hand(X[~test], Y[~test], CODES[~test], X[test], model)
            folds.append(np.log(proba[np.arange(test.sum()), Y[test]]).mean())
        expected.append(np.mean(folds))
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], expected, rtol=1e-8)
    assert search.best_params_ == search.cv_results_["params"][int(np.argmax(expected))]


def test_a_grid_search_slices_rows_and_columns_of_a_precomputed_kernel():
    K = rbf_kernel(X, gamma=0.1)
    grid = {"dcm__domain_weight": [0.0, 1.0]}
    results = []
    for kernel, data in (("precomputed", K), ("rbf", X)):
        steps = [("dcm", DCM(kernel=kernel, gamma=0.1)), ("clf", LogisticRegression())]
        search = GridSearchCV(Pipeline(steps), grid, cv=LeaveOneGroupOut(), scoring="neg_log_loss")
        search.fit(data, Y, groups=CODES, dcm__sample_domain=CODES)
        results.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(*results, rtol=1e-6)


# output -------------------------------------------------------------------------------------------


@each_model
def test_output_can_be_a_pandas_or_polars_frame_with_named_columns(model):
    reference = fitted(model, CODES)
    names = [f"{type(model).__name__.lower()}{i}" for i in range(reference.embedding_.shape[1])]
    assert reference.get_feature_names_out().tolist() == names
    for kind, frame in (("pandas", pd.DataFrame), ("polars", pl.DataFrame)):
        framed = clone(model).set_output(transform=kind)
        Z = framed.fit_transform(X, Y, sample_domain=CODES)
        assert isinstance(Z, frame)
        assert list(Z.columns) == names
        np.testing.assert_array_equal(Z.to_numpy(), reference.embedding_)
        np.testing.assert_array_equal(framed.transform(NEW).to_numpy(), reference.transform(NEW))
        assert isinstance(framed.embedding_, np.ndarray)


def test_pandas_output_keeps_the_index_of_its_input():
    frame = pd.DataFrame(X, columns=list("abcd"), index=[f"row{i}" for i in range(N)])
    Z = DCM().set_output(transform="pandas").fit_transform(frame, Y, sample_domain=CODES)
    assert Z.index.tolist() == frame.index.tolist()


@each_model
def test_data_frames_and_their_values_give_the_same_projection(model):
    expected = fitted(model, CODES)
    columns = list("abcd")
    for frame, new, y, d in (
        (
            pd.DataFrame(X, columns=columns),
            pd.DataFrame(NEW, columns=columns),
            pd.Series(Y),
            pd.Series(CODES),
        ),
        (
            pl.DataFrame(X, schema=columns),
            pl.DataFrame(NEW, schema=columns),
            pl.Series(Y),
            pl.Series(CODES),
        ),
    ):
        model = clone(model).fit(frame, y, sample_domain=d)
        np.testing.assert_allclose(model.transform(new), expected.transform(NEW), atol=1e-10)
        assert model.feature_names_in_.tolist() == columns
        assert model.n_features_in_ == 4


@each_model
def test_columns_in_another_order_are_an_error(model):
    frame = pd.DataFrame(X, columns=list("abcd"))
    model = fitted(model, CODES, X=frame)
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(frame[list("bacd")])


def test_classes_are_listed_for_classification_only():
    names = np.array(["low", "mid", "high"])[Y]
    assert fitted(DCM(), CODES, y=names).classes_.tolist() == ["high", "low", "mid"]
    model = fitted(DCM(), CODES)
    assert model.classes_.tolist() == [0, 1, 2]
    assert not hasattr(model.fit(X, X[:, 0], sample_domain=CODES), "classes_")


@pytest.mark.parametrize(
    "y",
    [
        np.array(["a", "b", "c"])[Y].tolist(),
        pd.Series(pd.Categorical(np.array(["a", "b", "c"])[Y])),
        pd.Series(Y, dtype="Int64"),
        pl.Series(np.array(["a", "b", "c"])[Y].tolist()),
        Y.astype(float),
        Y.astype(object),
    ],
    ids=["list", "categorical", "nullable", "polars", "floats", "objects"],
)
def test_every_type_of_class_labels_gives_the_same_projection(y):
    expected = fitted(DCM(), CODES)
    np.testing.assert_allclose(
        fitted(DCM(), CODES, y=y).transform(NEW), expected.transform(NEW), atol=1e-9
    )


# copies, refits and inputs ------------------------------------------------------------------------


@each_model
def test_only_a_precomputed_kernel_is_pairwise(model):
    assert not get_tags(model).input_tags.pairwise
    assert get_tags(clone(model).set_params(kernel="precomputed")).input_tags.pairwise
    assert get_tags(model).target_tags.required == isinstance(model, COIR)


@each_model
def test_copies_give_the_same_projection_and_a_clone_is_not_fitted(model):
    one = fitted(model, NAMES[CODES])
    for twin in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        np.testing.assert_array_equal(twin.transform(NEW), one.transform(NEW))
        assert twin.get_params() == one.get_params()
        assert twin.domains_.tolist() == one.domains_.tolist()
    fresh = clone(one)
    assert fresh.get_params() == one.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(fresh)


def test_a_pipeline_with_domains_can_be_pickled():
    model = pipeline().fit(X, Y, dcm__sample_domain=NAMES[CODES])
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(NEW), model.predict_proba(NEW))


@each_model
def test_the_html_representation_shows_the_estimator(model):
    name = type(model).__name__
    assert name in model._repr_html_()
    assert name in fitted(model, CODES)._repr_html_()
    assert name in pipeline(clone(model))._repr_html_()


@each_model
def test_refitting_discards_the_first_fit(model):
    renamed = fitted(model, NAMES[CODES], y=np.array(["x", "y", "z"])[Y])
    renamed.fit(X[:50, :3], Y[:50], sample_domain=CODES[:50])
    fresh = clone(model).fit(X[:50, :3], Y[:50], sample_domain=CODES[:50])
    assert vars(renamed).keys() == vars(fresh).keys()
    np.testing.assert_array_equal(renamed.transform(NEW[:, :3]), fresh.transform(NEW[:, :3]))
    precomputed = fitted(model, CODES).set_params(kernel="precomputed")
    precomputed.fit(rbf_kernel(X), Y, sample_domain=CODES)
    assert precomputed.n_features_in_ == N
    assert not hasattr(precomputed, "X_fit_")


@each_model
def test_fitting_changes_no_argument_and_no_input(model):
    callable_kernel = clone(model).set_params(kernel=rbf_kernel, kernel_params={"gamma": 0.1})
    params = {"gamma": 0.1}
    for candidate in (clone(model), callable_kernel):
        before = candidate.get_params()
        X_copy, y_copy, d_copy = X.copy(), Y.copy(), NAMES[CODES].copy()
        candidate.fit(X, Y, sample_domain=NAMES[CODES])
        assert candidate.get_params() == before
        np.testing.assert_array_equal(X, X_copy)
        np.testing.assert_array_equal(Y, y_copy)
        np.testing.assert_array_equal(NAMES[CODES], d_copy)
    assert callable_kernel.kernel_params == params


def test_changing_the_input_after_fit_does_not_change_the_model():
    data = X.copy()
    model = fitted(DCM(), CODES, X=data)
    before = model.transform(NEW)
    data[:] = 0
    np.testing.assert_array_equal(model.transform(NEW), before)


@each_model
def test_methods_that_ignore_domains_give_the_same_result_without_them(model):
    with_domains, without = fitted(model, CODES), clone(model).fit(X, Y)
    same = np.allclose(with_domains.transform(NEW), without.transform(NEW), atol=1e-10)
    assert same == isinstance(model, COIR | KPCA)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_model
def test_output_has_the_precision_of_its_input(model, dtype):
    single = fitted(model, CODES, X=X.astype(dtype))
    assert single.embedding_.dtype == dtype
    for new_dtype in (np.float32, np.float64):
        assert single.transform(NEW.astype(new_dtype)).dtype == new_dtype
    assert fitted(model, CODES, X=(X * 10).astype(int)).embedding_.dtype == np.float64
