"""What holds for every estimator: scikit-learn's checks, and the use of the shared checks.

The shared checks themselves are tested in ``tests/base``. A new estimator needs a line in
``CONFIGURATIONS``; the first one of a class is that for our own tests.
"""

import inspect

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.utils.estimator_checks import check_estimator

import domainwise as dw
from domainwise import selection
from domainwise.base.arguments import CONSTRAINTS

SEARCHED = {"gammas": [0.5], "ridges": [0.1], "domain_weights": [0.0]}
RIDGE = {"gammas": [0.1], "alphas": [0.1, 1.0]}
CONFIGURATIONS = [
    dw.DCM(),
    dw.DCM(n_components=2),
    dw.DCM(ridge=np.inf, domain_weight=0.1),
    dw.DCM(ridge=0.1, solver="dense"),
    dw.DCM(kernel="linear"),
    dw.DCM(kernel="precomputed"),
    dw.COIR(),
    dw.COIR(kernel="poly", degree=2),
    dw.COIR(kernel="laplacian"),
    dw.DICA(),
    dw.DICA(n_components=2, lam=0.1),
    dw.KPCA(n_components=2),
    dw.KPCA(kernel="cosine"),
    dw.KPCA(kernel="precomputed"),
    dw.SCA(n_components=2),
    dw.SCA(n_components=1, between=1.0, within_weight=0.0),
    dw.SCA(n_components=2, kernel="precomputed"),
    dw.MDA(),
    dw.MDA(within_weight=300.0),
    dw.MDA(kernel="precomputed"),
    dw.MIDA(n_components=2),
    dw.MIDA(n_components=2, kernel="linear", domain_weight=0.01),
    dw.FastDCM(),
    dw.FastDCM(landmarks="kmeans++"),
    dw.FastDCM(feature_map="fourier", kernel="laplacian"),
    dw.FastCOIR(),
    dw.FastDICA(),
    dw.FastKPCA(),
    dw.FastSCA(),
    dw.FastMDA(),
    dw.FastMIDA(),
    dw.InvariantKernel(),
    dw.InvariantFeatures(),
    dw.InvariantFeatures(feature_map="fourier"),
    dw.InvariantSVC(),
    dw.InvariantSVC(solver="fast"),
    dw.InvariantSVR(),
    dw.InvariantSVR(solver="fast"),
    dw.InvariantRidgeClassifierCV(**RIDGE),
    dw.InvariantRidgeCV(**RIDGE),
    selection.DCMCV(**SEARCHED),
    selection.FastDCMCV(**SEARCHED),
    selection.DomainConformal(LogisticRegression()),
    selection.DomainConformal(Ridge()),
    selection.InvariantSearchCV(dw.InvariantSVC(), {"C": [1.0]}),
    dw.DomainEnsembleClassifier(["linear"]),
    dw.DomainEnsembleRegressor([("ridge", Ridge())]),
    dw.SiteAdapter(LogisticRegression()),
    dw.SiteAdapter(Ridge()),
    dw.DomainContext(),
    dw.DomainContext(relative=False, summary=True),
    dw.ShiftWatch(),
]
#: One of each class.
ESTIMATORS = list({type(model): model for model in reversed(CONFIGURATIONS)}.values())[::-1]
each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)

#: scikit-learn's checks that an estimator cannot pass, by its representation, with the reason.
REPEATED = "check_sample_weight_equivalence_on_dense_data"
EXPECTED_FAILURES: dict[str, dict[str, str]] = {
    "FastDCM(feature_map='fourier', kernel='laplacian')": {
        REPEATED: "the number of Fourier features depends on the number of rows"
    },
    "InvariantFeatures(feature_map='fourier')": {
        REPEATED: "the number of Fourier features depends on the number of rows"
    },
    "InvariantKernel()": {REPEATED: "it has one output per row, so rows cannot have weight 0"},
    "InvariantSVC()": {REPEATED: "the solver stops at a tolerance"},
    "InvariantSVR()": {REPEATED: "the solver stops at a tolerance"},
    "InvariantRidgeClassifierCV(alphas=[0.1, 1.0], gammas=[0.1])": {
        "check_classifiers_train": "classes are predicted from probabilities, not decision values",
        "check_class_weight_classifiers": "probabilities and decisions are corrected for weights",
    },
    "DomainEnsembleClassifier(members=['linear'])": {
        "check_class_weight_classifiers": "probabilities and decisions are corrected for weights",
    },
    "KPCA(kernel='cosine')": {
        "check_fit2d_1feature": "rows of one positive feature all have cosine 1: nothing to project"
    },
    "InvariantSearchCV(estimator=InvariantSVC(), param_grid={'C': [1.0]})": {
        "check_classifiers_regression_target": "its scores refuse such a target, in other words",
        "check_fit2d_predict1d": "one row is refused for its missing columns, in other words",
        REPEATED: "the solver stops at a tolerance",
    },
}

ROWS = np.arange(24)
X = np.random.default_rng(0).normal(size=(24, 3))
DOMAINS, CLASSES = ROWS % 3, ROWS // 3 % 2


def test_every_public_estimator_is_in_the_list():
    public = {getattr(module, name) for module in (dw, selection) for name in module.__all__}
    classes = {c for c in public if inspect.isclass(c) and issubclass(c, BaseEstimator)}
    assert classes == {type(estimator) for estimator in ESTIMATORS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("estimator", CONFIGURATIONS, ids=repr)
def test_scikit_learns_checks_pass(estimator):
    expected = EXPECTED_FAILURES.get(repr(estimator), {})
    results = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail=None
    )
    failed = {r["check_name"]: repr(r["exception"]) for r in results if r["status"] == "failed"}
    assert not failed
    assert {r["check_name"] for r in results if r["status"] == "xfail"} == set(expected)
    assert sum(r["status"] == "passed" for r in results) > 30


# Arguments ----------------------------------------------------------------------------------------

#: Arguments for which classes differ from the shared rules: what they refuse, and take.
OWN_RULES = {
    ("SCA", "MDA", "FastSCA", "FastMDA"): {"ridge": ([np.inf, -1.0, "0.1"], [0.0])},
    ("InvariantKernel", "InvariantFeatures", "InvariantSVC", "InvariantSVR"): {
        "domain_weight": ([-1.0, np.nan, True], [0.0, np.inf])
    },
    ("InvariantSVC", "InvariantSVR"): {"solver": (["dense", True], ["exact", "fast"])},
    ("InvariantRidgeCV", "InvariantRidgeClassifierCV"): {
        "domain_weights": (["auto", [], [-1.0], [np.inf]], [[0.0], (1.0,)]),
        "domain_epsilon": ([0.0, np.nan], [1e-3]),
    },
}
#: What a search or a wrapper is made for has no rule: it is looked at when it is used.
WITHOUT_RULE = {
    ("DomainConformal", "estimator"),
    ("SiteAdapter", "estimator"),
    ("InvariantSearchCV", "estimator"),
    ("InvariantSearchCV", "param_grid"),
}


@each_estimator
def test_fit_checks_every_argument_by_its_constraint(estimator):
    cls = type(estimator)
    own = {n: r for names, rules in OWN_RULES.items() if cls.__name__ in names
           for n, r in rules.items()}  # fmt: skip
    for name in inspect.signature(cls).parameters:
        if (cls.__name__, name) in WITHOUT_RULE:
            continue
        refused, taken = own.get(name, ([], []))
        assert name in own or cls._parameter_constraints[name] is CONSTRAINTS[name]
        for value in [object(), *refused]:
            model = clone(estimator)
            setattr(model, name, value)
            with pytest.raises(ValueError, match=f"'{name}' parameter of {cls.__name__}"):
                model.fit(X, CLASSES, sample_domain=DOMAINS)
        for value in taken:
            clone(estimator).set_params(**{name: value})._validate_params()


# Labels -------------------------------------------------------------------------------------------

IGNORE_TARGET = (dw.KPCA, dw.FastKPCA, dw.MIDA, dw.FastMIDA, dw.DomainContext, dw.ShiftWatch)


def takes_classes(estimator):
    """The estimator as it looks at classes; None where it does not."""
    if isinstance(estimator, IGNORE_TARGET) or is_regressor(estimator):
        return None
    conditional = isinstance(estimator, dw.InvariantKernel | dw.InvariantFeatures)
    return clone(estimator).set_params(conditional=True) if conditional else clone(estimator)


@each_estimator
def test_labels_that_conversion_would_change_are_refused(estimator, hostile_labels):
    for labels, words in hostile_labels.values():
        with pytest.raises(ValueError, match=words):
            clone(estimator).fit(X, CLASSES, sample_domain=labels)
        if (model := takes_classes(estimator)) is not None:
            with pytest.raises(ValueError, match=words):
                model.fit(X, labels, sample_domain=DOMAINS)


@each_estimator
def test_targets_that_are_missing_or_too_few_are_refused(estimator):
    if isinstance(estimator, IGNORE_TARGET):
        return
    missing = np.where(ROWS == 3, np.nan, X[:, 0])
    for y in (missing, missing.tolist(), np.where(ROWS == 3, None, CLASSES), CLASSES[:20]):
        with pytest.raises(ValueError, match=r"NaN|missing|20 entries|inconsistent|continuous"):
            (takes_classes(estimator) or clone(estimator)).fit(X, y, sample_domain=DOMAINS)
    with pytest.raises(ValueError, match=r"20 entries"):
        clone(estimator).fit(X, CLASSES, sample_domain=DOMAINS[:20])


@each_estimator
@pytest.mark.filterwarnings("ignore")
def test_labels_are_not_converted(estimator):
    names = [5, 2**53, 2**53 + 1]
    labels = [names[row % 3] for row in ROWS]
    model = clone(estimator).fit(X, CLASSES, sample_domain=labels)
    for domains in (getattr(model, "domains_", None), getattr(model, "calibration_domains_", None)):
        assert domains is None or [int(name) for name in domains] == names
    if (model := takes_classes(estimator)) is not None:
        model.fit(X, labels, sample_domain=CLASSES)
        assert [int(name) for name in model.classes_] == names
        if hasattr(model, "predict"):
            assert {int(name) for name in model.predict(X)} <= set(names)
        for y, kind in (((CLASSES > 0).astype(object), "b"), (np.array(["a", "b"])[CLASSES], "U")):
            assert (
                takes_classes(estimator).fit(X, y, sample_domain=DOMAINS).classes_.dtype.kind
                == kind
            )


# Rows ---------------------------------------------------------------------------------------------

#: Pass rows on to what may know what to do with text and dates.
PASS_ON = (selection.InvariantSearchCV, selection.DomainConformal, dw.ShiftWatch, dw.SiteAdapter)


@each_estimator
@pytest.mark.filterwarnings("ignore")
def test_inputs_that_are_not_numeric_tables_are_refused(estimator, hostile_rows):
    for rows, words, may_mean_something in hostile_rows.values():
        if not (may_mean_something and isinstance(estimator, PASS_ON)):
            with pytest.raises((ValueError, TypeError), match=words):
                clone(estimator).fit(rows, CLASSES, sample_domain=DOMAINS)


@each_estimator
@pytest.mark.filterwarnings("ignore")
def test_new_rows_are_checked_like_the_rows_of_fit(estimator, hostile_rows):
    model = clone(estimator).fit(X, CLASSES, sample_domain=DOMAINS)
    use = model.predict if is_classifier(model) or is_regressor(model) else model.transform
    passes_on = isinstance(estimator, PASS_ON)
    for case, (rows, words, may_mean_something) in hostile_rows.items():
        if not (passes_on and (may_mean_something or case in ("number", "column"))):
            with pytest.raises((ValueError, TypeError), match=words):
                use(rows)
