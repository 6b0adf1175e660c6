"""Models for every saved type, and the results by which two models are compared."""

import contextlib
from importlib import import_module

import numpy as np
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC

import domainwise as dw
from domainwise.estimators.ensemble.members import MEMBER_TYPES
from domainwise.selection import DomainConformal, InvariantSearchCV, LeaveDomainsOut

PREDICTIONS = ("predict", "predict_proba", "decision_function", "transform")
GRID = dict(gammas=[0.1, 1.0], ridges=[1e-2, np.inf], domain_weights=[0.0, 1.0])
RIDGE_GRID = dict(gammas=[0.1, 0.3], alphas=[1.0, 10.0], n_average=2, random_state=0)


def training_rows(n_domains=6, per_domain=14, seed=0):
    """Return features, continuous targets and domains; feature means differ between domains."""
    rng = np.random.default_rng(seed)
    domain = np.repeat(np.arange(n_domains), per_domain)
    X = rng.normal(size=(len(domain), 3)) + rng.normal(scale=0.7, size=(n_domains, 3))[domain]
    value = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=len(X))
    return X, value, domain


X, NUMBERS, CODES = training_rows()
DOMAINS = np.array(["bern", "oslo", "rome", "turin", "vaduz", "wien"])[CODES]
CLASSES = np.where(np.median(NUMBERS) < NUMBERS, "high", "low")
THREE = np.digitize(NUMBERS, np.quantile(NUMBERS, [0.3, 0.7]))
NEW, _, NEW_CODES = training_rows(2, 10, seed=1)
NEW_DOMAINS = np.array(["oslo", "paris"])[NEW_CODES]


def arrays():
    """Yield name, estimator and target of each model that is fitted to arrays."""
    classes, numbers, three = CLASSES, NUMBERS, THREE
    yield from (
        ("dcm", dw.DCM(), classes),
        ("dcm-numbers", dw.DCM(), numbers),
        ("dcm-conditional", dw.DCM(kernel="laplacian", conditional=True), three),
        ("coir", dw.COIR(ridge=np.inf), classes),
        ("dica", dw.DICA(), classes),
        ("kpca", dw.KPCA(n_components=2, kernel="cosine"), classes),
        ("mida", dw.MIDA(n_components=2), classes),
        ("sca", dw.SCA(n_components=2), classes),
        ("mda", dw.MDA(), three),
        *(
            (f"fast-{name}", getattr(dw, f"Fast{name.upper()}")(n_landmarks=10), classes)
            for name in ("dcm", "coir", "dica", "sca", "mda")
        ),
        ("fast-kpca", dw.FastKPCA(n_components=2, n_landmarks=10), numbers),
        ("fast-mida", dw.FastMIDA(n_components=2, n_landmarks=10), numbers),
        ("dcmcv", dw.DCMCV(cv=LeaveDomainsOut(2), estimator=LogisticRegression(), **GRID), classes),
        ("fast-dcmcv", dw.FastDCMCV(n_landmarks=10, **GRID), numbers),
        ("invariant-kernel", dw.InvariantKernel(), classes),
        ("invariant-features", dw.InvariantFeatures(n_landmarks=10), classes),
        ("invariant-svc", dw.InvariantSVC(probability=True), classes),
        ("invariant-svc-fast", dw.InvariantSVC(solver="fast"), three),
        ("invariant-svr", dw.InvariantSVR(), numbers),
        ("invariant-svr-fast", dw.InvariantSVR(solver="fast"), numbers),
        (
            "invariant-search",
            InvariantSearchCV(
                dw.InvariantSVC(), {"C": [1.0, 10.0], "domain_weight": [0.1]}, n_average=2
            ),
            classes,
        ),
        ("ridge", dw.InvariantRidgeCV(**RIDGE_GRID), numbers),
        ("ridge-classes", dw.InvariantRidgeClassifierCV(**RIDGE_GRID), classes),
        (
            "ridge-three",
            dw.InvariantRidgeClassifierCV(class_weight="balanced", **RIDGE_GRID),
            three,
        ),
        ("ridge-fourier", dw.InvariantRidgeCV(feature_map="fourier", **RIDGE_GRID), numbers),
        ("conformal", DomainConformal(LogisticRegression(), calibration="split"), classes),
        ("conformal-numbers", DomainConformal(Ridge()), numbers),
        (
            "conformal-frozen",
            DomainConformal(FrozenEstimator(SVC().fit(X, classes)), calibration="split"),
            classes,
        ),
        ("context", dw.DomainContext(), classes),
        ("watch", dw.ShiftWatch(), classes),
        *(
            (f"ensemble-{name}", ensemble(**rest), y)
            for name, ensemble, y, rest in (
                ("context", dw.DomainEnsembleClassifier, classes, {"context": True}),
                ("plain", dw.DomainEnsembleClassifier, three, {"context": False}),
                ("numbers", dw.DomainEnsembleRegressor, numbers, {}),
                (
                    "balanced",
                    dw.DomainEnsembleClassifier,
                    classes,
                    {"class_weight": "balanced", "members": ["linear", "invariant_ridge"]},
                ),
                (
                    "own",
                    dw.DomainEnsembleRegressor,
                    numbers,
                    {"members": ["linear", ("forest", RandomForestRegressor(3, random_state=0))]},
                ),
            )
        ),
        *(
            (f"pipeline-{name}", make_pipeline(StandardScaler(), *steps), y)
            for name, y, steps in (
                ("dcm-lda", classes, (dw.DCM(), LinearDiscriminantAnalysis())),
                (
                    "context-trees",
                    three,
                    (dw.DomainContext(), ExtraTreesClassifier(2, random_state=0)),
                ),
                ("fast-dcm-svc", classes, (dw.FastDCM(n_landmarks=10), SVC())),
                ("coir-ridge", numbers, (dw.COIR(), Ridge())),
                ("trees", numbers, (ExtraTreesRegressor(2, random_state=0),)),
                ("boosting", three, (HistGradientBoostingClassifier(max_iter=2),)),
                ("calibrated", classes, (CalibratedClassifierCV(LinearSVC(), cv=2),)),
                ("svr", numbers, (SVR(),)),
                ("kernel-ridge", numbers, (KernelRidge(),)),
                ("dummy", classes, (DummyClassifier(),)),
            )
        ),
    )


def use_few_trees():
    """Reduce the sizes of ensembles and boosting."""
    for module, counts in (
        ("domainwise.estimators.ensemble.members", {"TREES": 3, "COMPARED_TREES": 3}),
        ("domainwise.models.registry", {"N_TREES": 3}),
    ):
        vars(import_module(module)).update(counts)
    MEMBER_TYPES["boosting"].max_rounds = 20


def fitted(model, y):
    """Fit a model, with domains if it accepts them."""
    with config_context(enable_metadata_routing=True):
        try:
            return model.fit(X, y, sample_domain=DOMAINS)
        except TypeError:
            return model.fit(X, y)


def in_batches():
    """Yield models after the first of two batches."""
    first = slice(0, None, 2)
    for name, model, y in (
        ("batches-fast-dcm", dw.FastDCM(n_landmarks=10), CLASSES),
        ("batches-fast-dcm-numbers", dw.FastDCM(n_landmarks=10), NUMBERS),
        ("batches-ridge", dw.InvariantRidgeCV(n_landmarks=10, **RIDGE_GRID), NUMBERS),
        (
            "batches-ridge-fourier",
            dw.InvariantRidgeClassifierCV(feature_map="fourier", n_landmarks=10, **RIDGE_GRID),
            CLASSES,
        ),
        ("batches-context", dw.DomainContext(), CLASSES),
    ):
        yield name, model.partial_fit(X[first], y[first], sample_domain=DOMAINS[first])


def next_batch(name, model):
    """Return a model after the second batch."""
    rest = slice(1, None, 2)
    y = NUMBERS if name in ("batches-fast-dcm-numbers", "batches-ridge") else CLASSES
    return model.partial_fit(X[rest], y[rest], sample_domain=DOMAINS[rest])


def answers(model, rows=NEW, domains=NEW_DOMAINS):
    """Return a model's results for new rows by method, without and with domains."""
    results = {}
    for name in (*PREDICTIONS, "predict_set", "predict_interval"):
        method = getattr(model, name, None)
        for label, options in (("", {}), ("+domains", {"sample_domain": domains})):
            if method is None:
                continue
            # Not every model has each method or accepts domains.
            with (
                contextlib.suppress(TypeError, AttributeError, NotImplementedError),
                config_context(enable_metadata_routing=bool(options)),
            ):
                results[name + label] = np.asarray(method(rows, **options))
    with contextlib.suppress(ValueError):  # models without a ShiftWatch
        findings = dw.check_shift(model, rows * 3 if rows is NEW else rows, sample_domain=domains)
        results["findings"] = np.array([f"{f.domain} {f.kind} {f.column}" for f in findings])
    return results


def table(n_domains=6, per_domain=7, seed=0):
    """Return a table with missing values, a text column, and two targets."""
    import pandas as pd

    X, value, domain = training_rows(n_domains, per_domain, seed)
    rng = np.random.default_rng(seed + 10)
    frame = pd.DataFrame(X.round(4), columns=["depth", "heat", "salt"])
    frame.loc[rng.random(len(X)) < 0.1, "salt"] = np.nan
    frame["soil"] = np.where(
        rng.random(len(X)) < 0.2, "peat", np.where(X[:, 2] > 0, "clay", "sand")
    )
    frame["site"] = [f"site {i}" for i in domain]
    frame["value"] = value.round(4)
    frame["state"] = np.where(value > np.median(value), "high", "low")
    return frame
