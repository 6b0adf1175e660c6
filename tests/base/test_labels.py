"""Labels in many containers: missing labels are errors, and large integers are not rounded.

This file tests the shared checks and functions that use them; ``tests/test_common.py`` tests that
estimators use them. To add a container, add a line to ``WAYS``.
"""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import domainwise as dw
from domainwise import metrics
from domainwise.base import inputs
from domainwise.held_out.scoring.measures import default_scoring
from domainwise.selection import (
    DomainConformal,
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
#: The shared checks.
CHECKS = {
    "sample_domain": lambda labels: inputs.check_sample_domain(labels, len(labels)),
    "y": lambda labels: inputs.check_target(labels, len(labels), "auto"),
    "classes": lambda labels: inputs.check_classes(labels, len(labels)),
    "measures": lambda labels: inputs.checked_labels(labels, "y_true"),
}
each_check = pytest.mark.parametrize("check", CHECKS)
#: Missing values in containers of Python objects; Arrow and polars have only None.
MISSING = {"None": None, "NaN": float("nan"), "NA": pandas.NA}


def missing_cases():
    for way in WAYS:
        plain = way in ("list", "tuple", "objects", "Series of objects")
        for word in MISSING if plain else ("None",):
            for kind, names in (("text", ["a", "b"]), ("whole", [1, 2])):
                if not (kind == "whole" and word == "NA" and way == "Series of objects"):
                    yield pytest.param(way, word, names, id=f"{way}-{word}-{kind}")


@pytest.mark.parametrize("way, word, names", [*missing_cases()])
def test_missing_labels_are_neither_a_class_nor_a_domain(way, word, names):
    labels = WAYS[way]([*names, MISSING[word]] * 8)
    for check in CHECKS.values():
        with pytest.raises(ValueError, match=r"missing|NaN|None|infinite"):
            check(labels)


@each_check
def test_labels_that_conversion_would_change_are_errors(check, hostile_labels):
    for labels, words in hostile_labels.values():
        with pytest.raises(ValueError, match=words):
            CHECKS[check](labels)


#: Functions with an argument for labels.
FUNCTIONS = {
    "splitter": lambda labels: list(LeaveDomainsOut().split(X, groups=labels)),
    "g_mean_score": lambda labels: metrics.g_mean_score(labels, OTHER),
    "worst_domain_score": lambda labels: metrics.worst_domain_score(
        OTHER, OTHER, labels, metrics.g_mean_score
    ),
    "mmd": lambda labels: metrics.mmd(X, labels),
    "invariance_report": lambda labels: metrics.invariance_report(X, OTHER, labels),
    "hsic": lambda labels: metrics.hsic(X, labels, kernel_b="delta"),
    "domain_cross_validate": lambda labels: domain_cross_validate(
        LogisticRegression(), X, OTHER, labels
    ),
    "default_scoring": lambda labels: default_scoring(OTHER, True, labels),
    "evaluate": lambda labels: dw.evaluate(X, OTHER, labels, methods=["constant"]),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_public_functions_check_labels(function, hostile_labels):
    for labels, words in hostile_labels.values():
        with pytest.raises(ValueError, match=words):
            FUNCTIONS[function](labels)


@pytest.mark.parametrize("check", ["sample_domain", "y", "classes"])
def test_a_frame_with_one_column_is_treated_as_a_column(check):
    sites = pandas.DataFrame({"site": ROWS % 3})
    for frame in (sites, polars.from_pandas(sites), sites.astype("string")):
        assert CHECKS[check](frame).n_categories == 3


@pytest.mark.parametrize("check", ["sample_domain", "y", "classes"])
def test_labels_keep_their_type(check):
    for labels, kind in (
        (objects((OTHER > 0).tolist()), "b"),
        (np.array(list("ab"), np.dtypes.StringDType())[OTHER], "U"),
    ):
        assert CHECKS[check](labels).names.dtype.kind == kind


LARGE = {
    "uint64": [1, 2**63, 2**63 + 1],
    "beyond int64": [2**63, 2**63 + 1, 2**64 - 1],
    "beyond float64": [5, 2**53, 2**53 + 1],
    "negative": [-(2**63), -(2**63) + 1, 7],
}


@pytest.mark.parametrize("check", ["sample_domain", "y", "classes"])
@pytest.mark.parametrize("way", ["array", "list", "objects", "nullable Series", "Categorical"])
def test_large_integers_are_not_rounded(check, way):
    for names in LARGE.values():
        dtype = np.uint64 if min(names) > 0 else np.int64
        labels = np.array(names, dtype)[ROWS % 3]
        labels = labels if way == "array" else WAYS[way](labels.tolist())
        checked = CHECKS[check](labels)
        assert [int(name) for name in checked.names] == names
        np.testing.assert_array_equal(checked.codes, ROWS % 3)


@pytest.mark.parametrize("values", [[2**64, 1], [2**63, -1], [2**53 + 1, 0.5]])
@pytest.mark.parametrize("container", [list, objects])
def test_numbers_that_fit_no_type_are_errors(values, container):
    for use in (
        lambda labels: dw.DCM(domain_kernel="delta").fit(X, OTHER, sample_domain=labels),
        lambda labels: dw.FastDCM(domain_kernel="delta").fit(X, OTHER, sample_domain=labels),
        lambda labels: list(LeaveDomainsOut().split(X, groups=labels)),
        lambda labels: metrics.mmd(X, labels),
    ):
        with pytest.raises(ValueError, match="integers of more than"):
            use(container(values * 12))


#: Calls with arguments that do not match, and parts of the error messages.
COMPARED = [
    (lambda: metrics.g_mean_score(["0", "1"], [0, 1]), "y_pred contains labels of type number"),
    (lambda: metrics.g_mean_score([0, 1], ["0", "1"]), "y_pred contains labels of type string"),
    (
        lambda: metrics.g_mean_score([b"a", b"b"], ["a", "b"]),
        "y_true contains labels of type bytes",
    ),
    (lambda: metrics.g_mean_score([0, 1, 1], [0, 1]), "y_pred has 2 entries, but y_true has 3"),
    (lambda: metrics.g_mean_score([0.5, 1.5], [0, 1]), "must contain class labels"),
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
    (lambda: metrics.hsic(X, OTHER[:20]), "B has 20 rows, but A has 24"),
    (lambda: metrics.hsic(X[:20], OTHER), "B has 24 rows, but A has 20"),
    (lambda: metrics.mmd(X, OTHER[:20]), "sample_domain has 20 entries, but Z has 24 rows"),
    (lambda: metrics.mmd(X[:, 0], OTHER), "2D array"),
    (lambda: metrics.invariance_report(X, OTHER[:20], OTHER), "y has 20 entries"),
    (lambda: metrics.invariance_report(X, OTHER, OTHER[:20]), "sample_domain has 20 entries"),
    (lambda: list(LeaveDomainsOut().split(X, OTHER[:20], OTHER)), "y has 20 entries.*24 rows"),
    (lambda: list(LeaveDomainsOut().split(X[:20], None, OTHER)), "24 entries.*20 rows"),
    (lambda: list(LeaveDomainsOut().split(X, None, 3)), "groups must contain the domain of"),
    (lambda: list(LeaveDomainsOut().split(X, None, np.array("a"))), "groups must contain the"),
    (lambda: list(LeaveDomainsOut().split(X, None, X)), "must contain one label per row"),
    (lambda: list(LeaveDomainsOut().split(3, None, OTHER)), "Expected sequence or array-like"),
]


@pytest.mark.parametrize("call, message", COMPARED)
def test_different_lengths_and_types_are_errors(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


@pytest.mark.torch
@pytest.mark.parametrize("cls", [dw.DCM, dw.FastDCM, dw.InvariantFeatures])
def test_labels_in_tensors_are_accepted(cls):
    torch = pytest.importorskip("torch")
    rows = torch.tensor(X)
    names = [5, 2**53, 2**53 + 1]
    labels = torch.tensor([names[row % 3] for row in ROWS])
    model = cls().fit(rows, torch.tensor(OTHER), sample_domain=labels)
    assert model.domains_.tolist() == names
    missing = torch.tensor([0.0, 1.0, float("nan")] * 8)
    with pytest.raises(ValueError, match="NaN"):
        cls().fit(rows, torch.tensor(OTHER), sample_domain=missing)
    with pytest.raises(ValueError, match="missing"):
        cls().fit(rows, torch.tensor(OTHER), sample_domain=["a", None, "b"] * 8)


def test_rows_of_zero_probabilities_are_errors():
    with pytest.raises(ValueError, match="infinite or negative values, or rows of zeros"):
        adapt_class_shares(np.zeros((3, 2)), [0.5, 0.5])


@pytest.mark.parametrize("kind", [complex, object, str])
@pytest.mark.parametrize("cls", [dw.DCM, dw.FastDCM, dw.InvariantSVC])
def test_a_kernel_function_must_return_numbers(cls, kind):
    with pytest.raises(ValueError, match="Return real numbers"):
        cls(kernel=lambda a, b: (a @ b.T).astype(kind)).fit(X, OTHER, sample_domain=ROWS % 3)


def test_masked_arrays_are_errors_in_every_argument():
    rows = np.ma.masked_array(X, mask=X > 1)
    fitted = DomainConformal(LogisticRegression()).fit(X, OTHER, sample_domain=ROWS % 3)
    for use in (
        lambda: fitted.predict(rows),
        lambda: domain_cross_validate(LogisticRegression(), rows, OTHER, ROWS % 3),
        lambda: metrics.mmd(rows, OTHER),
    ):
        with pytest.raises(ValueError, match="masked"):
            use()
