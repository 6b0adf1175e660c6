"""Labels through every way in: those that are missing are refused, large ones stay themselves.

To add a way, add a line to ``WAYS``; to add an estimator, one to ``MODELS``.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import domainwise as dw
from domainwise import metrics
from domainwise.scoring.measures import default_scoring
from domainwise.selection import (
    DomainConformal,
    InvariantSearchCV,
    LeaveDomainsOut,
    adapt_class_shares,
    domain_cross_validate,
)

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow")

ROWS = np.arange(24)
X = np.random.default_rng(0).normal(size=(24, 3))
OTHER = ROWS // 3 % 2


def objects(values):
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


WAYS = {
    "list": list,
    "tuple": tuple,
    "objects": objects,
    "Series": lambda values: pandas.Series(values),
    "Series of objects": lambda values: pandas.Series(values, dtype=object),
    "Series of Arrow": lambda values: pandas.Series(arrow.array(values).to_pandas()),
    "nullable Series": lambda values: pandas.Series(values).convert_dtypes(),
    "Categorical": lambda values: pandas.Categorical(values),
    "Arrow": arrow.array,
    "chunked Arrow": lambda values: arrow.chunked_array([arrow.array(values)]),
    "polars": lambda values: polars.Series(values, strict=False),
}
MODELS = {
    "DCM": dw.DCM,
    "KPCA": dw.KPCA,
    "SCA": dw.SCA,
    "FastDCM": dw.FastDCM,
    "FastSCA": dw.FastSCA,
    "InvariantKernel": lambda: dw.InvariantKernel(conditional=True),
    "InvariantFeatures": lambda: dw.InvariantFeatures(conditional=True),
    "InvariantSVC": dw.InvariantSVC,
    "ridge": lambda: dw.InvariantRidgeClassifierCV(kernels=["linear"], alphas=[1.0]),
    "search": lambda: InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}),
    "conformal": lambda: DomainConformal(LogisticRegression()),
    "ensemble": lambda: dw.DomainEnsembleClassifier(members=["linear"]),
}
IGNORES_TARGET = {"KPCA"}
#: Of Python objects; Arrow's types know None only, and so does polars.
MISSING = {"None": None, "NaN": float("nan"), "NA": pandas.NA}

each_model = pytest.mark.parametrize("model", MODELS)


def missing_cases():
    for way in WAYS:
        plain = way in ("list", "tuple", "objects", "Series of objects")
        for word in MISSING if plain else ("None",):
            for kind, names in (("text", ["a", "b"]), ("whole", [1, 2])):
                if not (kind == "whole" and word == "NA" and way == "Series of objects"):
                    yield pytest.param(way, word, names, id=f"{way}-{word}-{kind}")


@each_model
@pytest.mark.parametrize("role", ["y", "sample_domain"])
@pytest.mark.parametrize("way, word, names", [*missing_cases()])
def test_no_class_and_no_domain_is_made_of_what_is_missing(model, role, way, word, names):
    if role == "y" and model in IGNORES_TARGET:
        return
    labels = WAYS[way]([*names, MISSING[word]] * 8)
    given = {"y": OTHER, "sample_domain": OTHER, role: labels}
    with pytest.raises(ValueError, match=r"missing|NaN|None|infinite"):
        MODELS[model]().fit(X, **given)


@pytest.mark.parametrize("way, word, names", [*missing_cases()])
def test_nor_by_splitters_and_measures(way, word, names):
    labels = WAYS[way]([*names, MISSING[word]] * 8)
    for use in (
        lambda: list(LeaveDomainsOut().split(X, groups=labels)),
        lambda: metrics.g_mean_score(labels, OTHER),
        lambda: metrics.worst_domain_score(OTHER, OTHER, labels, metrics.g_mean_score),
        lambda: metrics.mmd(X, labels),
        lambda: metrics.invariance_report(X, OTHER, labels),
        lambda: metrics.hsic(X, labels, kernel_b="delta"),
        lambda: dw.DomainContext().fit(X, sample_domain=labels),
        lambda: dw.ShiftWatch().fit(X, sample_domain=labels),
        lambda: dw.evaluate(X, OTHER, labels, methods=["constant"]),
    ):
        with pytest.raises(ValueError, match=r"missing|NaN|None|infinite"):
            use()


#: Labels that would not stay themselves, and what the refusal says.
CHANGED = {
    "masked": (np.ma.masked_array(ROWS % 3, mask=ROWS < 3), "missing values.*masked"),
    "no day": (np.array(["2024-01-01", "NaT", "2024-01-02"] * 8, "M8[D]"), "dates or durations"),
    "durations": (np.array([1, 2, 3] * 8, "m8[s]"), "dates or durations"),
    "records": (np.array([(1,), (2,), (3,)] * 8, [("site", int)]), "records"),
    "text that ends in a zero byte": (["a", "a\0", "b"] * 8, "zero byte"),
    "bytes that do": (objects([b"a", b"a\0", b"b"] * 8), "zero byte"),
    "lists of several lengths": ([[1], [1, 2], [3]] * 8, "one value for each row"),
    "NumPy's own text, missing": (
        np.array(["a", None, "b"] * 8, np.dtypes.StringDType(na_object=None)),
        "missing",
    ),
}


@each_model
@pytest.mark.parametrize("role", ["y", "sample_domain"])
@pytest.mark.parametrize("case", CHANGED)
def test_labels_that_would_change_on_the_way_are_refused(model, role, case):
    if role == "y" and model in IGNORES_TARGET:
        return
    labels, words = CHANGED[case]
    given = {"y": OTHER, "sample_domain": OTHER, role: labels}
    with pytest.raises(ValueError, match=words):
        MODELS[model]().fit(X, **given)


@each_model
def test_a_frame_of_one_column_is_that_column(model):
    sites = pandas.DataFrame({"site": ROWS % 3})
    for frame in (sites, polars.from_pandas(sites), sites.astype("string")):
        found = MODELS[model]().fit(X, OTHER, sample_domain=frame)
        assert len(getattr(found, "domains_", (0, 1, 2))) == 3


@each_model
def test_classes_keep_their_kind(model):
    for labels, kind in (
        (objects((OTHER > 0).tolist()), "b"),
        (np.array(list("ab"), np.dtypes.StringDType())[OTHER], "U"),
    ):
        if model not in IGNORES_TARGET:
            found = MODELS[model]().fit(X, labels, sample_domain=ROWS % 3)
            assert found.classes_.dtype.kind == kind


LARGE = {
    "uint64": [1, 2**63, 2**63 + 1],
    "beyond int64": [2**63, 2**63 + 1, 2**64 - 1],
    "beyond float64": [5, 2**53, 2**53 + 1],
    "negative": [-(2**63), -(2**63) + 1, 7],
}
#: One way in is enough for these.
SLOW = {"ensemble", "search", "conformal", "ridge"}


@each_model
@pytest.mark.parametrize("large", LARGE)
@pytest.mark.parametrize("way", ["array", "list", "objects", "nullable Series", "Categorical"])
def test_large_whole_numbers_stay_themselves(model, large, way):
    names = LARGE[large]
    if model in SLOW and way != "list":
        return
    labels = [names[row % 3] for row in ROWS]
    labels = np.array(labels, np.uint64 if min(names) > 0 else np.int64) if way == "array" else (
        WAYS[way](labels)
    )  # fmt: skip
    found = MODELS[model]().fit(X, OTHER, sample_domain=labels)
    for seen in (getattr(found, "domains_", None), getattr(found, "calibration_domains_", None)):
        assert seen is None or [int(name) for name in seen] == names
    if model in IGNORES_TARGET:
        return
    found = MODELS[model]().fit(X, labels, sample_domain=OTHER)
    assert [int(name) for name in found.classes_] == names
    if hasattr(found, "predict"):
        assert {int(name) for name in found.predict(X)} <= set(names)


@pytest.mark.parametrize("values", [[2**64, 1], [2**63, -1], [2**53 + 1, 0.5]])
@pytest.mark.parametrize("container", [list, objects])
def test_numbers_that_no_type_holds_are_refused(values, container):
    for use in (
        lambda given: dw.DCM(domain_kernel="delta").fit(X, OTHER, sample_domain=given),
        lambda given: dw.FastDCM(domain_kernel="delta").fit(X, OTHER, sample_domain=given),
        lambda given: list(LeaveDomainsOut().split(X, groups=given)),
        lambda given: metrics.mmd(X, given),
    ):
        with pytest.raises(ValueError, match="whole numbers of more than"):
            use(container(values * 12))


#: What is compared, and what the refusal says.
COMPARED = [
    (lambda: metrics.g_mean_score(["0", "1"], [0, 1]), "y_pred holds labels of type number"),
    (lambda: metrics.g_mean_score([0, 1], ["0", "1"]), "y_pred holds labels of type string"),
    (lambda: metrics.g_mean_score([b"a", b"b"], ["a", "b"]), "y_true of bytes"),
    (lambda: metrics.g_mean_score([0, 1, 1], [0, 1]), "y_pred has 2 entries but y_true has 3"),
    (lambda: metrics.g_mean_score([0.5, 1.5], [0, 1]), "must hold class labels"),
    (lambda: metrics.g_mean_score([], []), "empty"),
    (lambda: metrics.g_mean_score([[0], [1]], [0, 1]), "must be 1-D"),
    (lambda: metrics.g_mean_score([0, "1"], [0, 1]), "mixes labels of different types"),
    (
        lambda: metrics.worst_domain_score([0, 1], [0, 1, 1], [0, 1], metrics.g_mean_score),
        "y_pred has 3 entries",
    ),
    (
        lambda: metrics.worst_domain_score([0, 1], [0, 1], [0, 1, 1], metrics.g_mean_score),
        "sample_domain has 3 entries",
    ),
    (lambda: metrics.hsic(X, OTHER[:20]), "B has 20 rows but A has 24"),
    (lambda: metrics.hsic(X[:20], OTHER), "B has 24 rows but A has 20"),
    (lambda: metrics.mmd(X, OTHER[:20]), "sample_domain has 20 entries but Z has 24 rows"),
    (lambda: metrics.mmd(X[:, 0], OTHER), "2D array"),
    (lambda: metrics.invariance_report(X, OTHER[:20], OTHER), "y has 20 entries"),
    (lambda: metrics.invariance_report(X, OTHER, OTHER[:20]), "sample_domain has 20 entries"),
    (lambda: list(LeaveDomainsOut().split(X, OTHER[:20], OTHER)), "y has 20 entries.*24 rows"),
    (lambda: list(LeaveDomainsOut().split(X[:20], None, OTHER)), "24 entries.*20 rows"),
    (lambda: list(LeaveDomainsOut().split(X, None, 3)), "Expected sequence or array-like"),
    (lambda: list(LeaveDomainsOut().split(X, None, X)), "one column of labels"),
    (lambda: list(LeaveDomainsOut().split(3, None, OTHER)), "Expected sequence or array-like"),
]


@pytest.mark.parametrize("case, says", COMPARED)
def test_lengths_and_types_are_compared(case, says):
    with pytest.raises((ValueError, TypeError), match=says):
        case()


@pytest.mark.torch
@pytest.mark.parametrize("cls", [dw.DCM, dw.FastDCM, dw.InvariantFeatures])
def test_tensors_of_labels(cls):
    torch = pytest.importorskip("torch")
    rows = torch.tensor(X)
    names = [5, 2**53, 2**53 + 1]
    labels = torch.tensor([names[row % 3] for row in ROWS])
    found = cls().fit(rows, torch.tensor(OTHER), sample_domain=labels)
    assert found.domains_.tolist() == names
    missing = torch.tensor([0.0, 1.0, float("nan")] * 8)
    with pytest.raises(ValueError, match="NaN"):
        cls().fit(rows, torch.tensor(OTHER), sample_domain=missing)
    with pytest.raises(ValueError, match="missing"):
        cls().fit(rows, torch.tensor(OTHER), sample_domain=["a", None, "b"] * 8)


@pytest.mark.parametrize("case", CHANGED)
def test_nor_by_splits_and_scores(case):
    labels, words = CHANGED[case]
    for use in (
        lambda: domain_cross_validate(LogisticRegression(), X, OTHER, labels),
        lambda: default_scoring(OTHER, True, labels),
        lambda: list(LeaveDomainsOut().split(X, groups=labels)),
        lambda: metrics.mmd(X, labels),
    ):
        with pytest.raises(ValueError, match=words):
            use()


def test_rows_without_any_probability_are_refused():
    with pytest.raises(ValueError, match="zero all over"):
        adapt_class_shares(np.zeros((3, 2)), [0.5, 0.5])


@pytest.mark.parametrize("kind", [complex, object, str])
@pytest.mark.parametrize("cls", [dw.DCM, dw.FastDCM, dw.InvariantSVC])
def test_a_kernel_returns_numbers(cls, kind):
    with pytest.raises(ValueError, match="expected numbers"):
        cls(kernel=lambda a, b: (a @ b.T).astype(kind)).fit(X, OTHER, sample_domain=ROWS % 3)


def test_masked_rows_are_refused_wherever_they_come_in():
    rows = np.ma.masked_array(X, mask=X > 1)
    fitted = DomainConformal(LogisticRegression()).fit(X, OTHER, sample_domain=ROWS % 3)
    for use in (
        lambda: fitted.predict(rows),
        lambda: domain_cross_validate(LogisticRegression(), rows, OTHER, ROWS % 3),
        lambda: metrics.mmd(rows, OTHER),
    ):
        with pytest.raises(ValueError, match="masked"):
            use()
