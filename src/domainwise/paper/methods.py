"""The methods of the tables, each built as one scikit-learn pipeline.

A pipeline is: fill missing values, scale, project, predict; the first two where the data ask for
them, the projection where the method has one. Everything in it is fitted on source domains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR

from domainwise.arrays import Array
from domainwise.estimators import COIR, DCM, DICA, KPCA, MDA, MIDA, SCA, FastCOIR, FastDCM, FastDICA
from domainwise.invariant import InvariantSVC, InvariantSVR
from domainwise.models.table_model import plain_parameters
from domainwise.paper.cases import Case
from domainwise.paper.reference_models import ReferenceDCM, ReferenceFastDCM


@dataclass(frozen=True)
class Parameters:
    """Everything a method may be told; each uses what it knows.

    ``predictor_gamma`` is the SVM's; None means the same as ``gamma`` (the paper's choice).
    ``n_landmarks`` belongs to the fast methods.
    """

    gamma: float | str = "median"
    target_gamma: float | str = "median"
    epsilon: float = 1e-3
    n_components: int | None = None
    ridge: float = 1e-3
    domain_weight: float = 1.0
    lam: float = 1e-3
    C: float = 1.0
    predictor_gamma: float | str | None = None
    class_weight: str | None = None
    n_landmarks: int | None = None
    random_state: int = 0

    def shown(self, method: Method) -> dict[str, Any]:
        """The parameters this method used, ready for JSON."""
        return plain_parameters({name: getattr(self, name) for name in method.uses})


@dataclass(frozen=True)
class Method:
    """A method by name: how it is built and how it is shown."""

    key: str  #: in result files
    label: str  #: in tables
    kind: str  #: baseline, exact, ridge, fast, reference; or beside, which is not in the paper
    #: ``project(parameters, task)`` returns the transformer; None predicts from the features.
    project: Callable[[Parameters, str], BaseEstimator] | None = None
    landmarks: str = ""  #: the paper's M: a "divisor" of N, a "count", or a "fifth" of the rows
    uses: tuple[str, ...] = ()  #: fields of ``Parameters`` it depends on
    overrides: Mapping[str, Any] = field(default_factory=dict)  #: of the paper setting

    @property
    def main(self) -> bool:
        """Whether it competes: not a variant shown for comparison."""
        return self.kind in ("baseline", "exact", "fast") and self.landmarks in ("", "divisor")

    def name(self, task: str) -> str:
        """Label for a task: a support vector machine for regression is an SVR."""
        if self.key == "majority":
            return "constant" if task == "regression" else "majority"
        if self.key in ("svm", "invariant") and task == "regression":
            return {"svm": "SVR", "invariant": "InvariantSVR"}[self.key]
        return self.label

    def n_landmarks(self, n_rows: int, m: int | None) -> int | None:
        """Landmarks this method uses on ``n_rows`` source rows with the paper's M."""
        if not self.landmarks:
            return None
        if self.landmarks == "fifth":
            return max(n_rows // 5, 2)
        if m is None:
            raise ValueError(f"{self.key} needs the paper's M, and this case has none")
        return max(round(n_rows / m), 2) if self.landmarks == "divisor" else m


def _build(estimator: type, *names: str) -> Callable[[Parameters, str], BaseEstimator]:
    def build(parameters: Parameters, task: str) -> BaseEstimator:
        chosen = {name: getattr(parameters, name) for name in names}
        # DICA's systems defeat iterations (theory 5.2); these sizes are solved directly.
        if estimator is DICA:
            chosen["solver"] = "dense"
        if issubclass(estimator, ReferenceDCM):
            chosen["continuous"] = task == "regression"
        return estimator(**chosen)

    return build


_KERNEL = ("n_components", "gamma")
_LABELS = (*_KERNEL, "target_gamma", "epsilon")
_DICA = (*_LABELS, "lam")
_COIR = (*_LABELS, "ridge")
_DCM = (*_COIR, "domain_weight")
_SCATTER = (*_KERNEL, "ridge", "domain_weight")
_MIDA = (*_KERNEL, "domain_weight")
_REFERENCE = (*_LABELS, "domain_weight")
_SVM = ("C", "class_weight")


def _projection(
    key: str,
    label: str,
    kind: str,
    estimator: type,
    names: tuple[str, ...],
    landmarks: str = "",
    **overrides: float,
) -> Method:
    """A method that projects before an SVM predicts; the names are its parameters."""
    drawn = ("n_landmarks", "random_state") if landmarks else ()
    build = _build(estimator, *names, *drawn)
    return Method(key, label, kind, build, landmarks, (*names, *drawn[:1], *_SVM), overrides)


_INFINITE = float("inf")
_FAST = (("FastCOIR", FastCOIR, _COIR), ("FastDICA", FastDICA, _DICA), ("FastDCM", FastDCM, _DCM))
_BESIDE = (("SCA", SCA, _SCATTER), ("MDA", MDA, _SCATTER), ("MIDA", MIDA, _MIDA))
#: The end of a key, the end of a label, and how the paper's M is read.
_READINGS = (
    ("", "", "divisor"),
    ("_count", ", M landmarks", "count"),
    ("_fifth", ", 20 % landmarks", "fifth"),
)

METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method("majority", "majority", "baseline"),
        Method("svm", "SVM", "baseline", uses=("gamma", *_SVM)),
        _projection("kpca", "KPCA", "exact", KPCA, _KERNEL),
        _projection("coir", "COIR", "exact", COIR, _COIR),
        _projection("dica", "DICA", "exact", DICA, _DICA),
        _projection("dcm", "DCM", "exact", DCM, _DCM),
        Method("invariant", "InvariantSVC", "exact", uses=("gamma", "domain_weight", *_SVM)),
        _projection("coir_small", "COIR, ridge 1e-5", "ridge", COIR, _COIR, ridge=1e-5),
        _projection("dcm_small", "DCM, ridge 1e-5", "ridge", DCM, _DCM, ridge=1e-5),
        _projection("coir_inf", "COIR, ridge ∞", "ridge", COIR, _COIR, ridge=_INFINITE),
        _projection("dcm_inf", "DCM, ridge ∞", "ridge", DCM, _DCM, ridge=_INFINITE),
        *(
            _projection(name.lower() + end, name + words, "fast", estimator, names, reading)
            for end, words, reading in _READINGS
            for name, estimator, names in _FAST
        ),
        _projection("algorithm1", "Algorithm 1", "reference", ReferenceDCM, _REFERENCE),
        *(
            _projection(
                f"algorithm2{end}",
                f"Algorithm 2{words}",
                "reference",
                ReferenceFastDCM,
                _REFERENCE,
                reading,
            )
            for end, words, reading in _READINGS[:2]
        ),
        *(
            _projection(name.lower(), f"{name} (not in the paper)", "beside", estimator, names)
            for name, estimator, names in _BESIDE
        ),
    )
}


def build_pipeline(
    case: Case, method: Method, parameters: Parameters, *, impute: bool = False
) -> Pipeline:
    """Build a method for a case's task and scaling; ``impute`` fills with means."""
    steps: list[tuple[str, Any]] = []
    if impute:
        steps.append(("impute", SimpleImputer()))
    if case.scaling != "none":
        scalers = {"minmax": MinMaxScaler, "standard": StandardScaler}
        steps.append(("scale", scalers[case.scaling]()))
    if method.project is not None:
        steps.append(("project", method.project(parameters, case.task)))
    steps.append(("predict", _predictor(method, parameters, case.task)))
    return Pipeline(steps)


def paper_parameters(
    case: Case, method: Method, y: Array, n_rows: int, random_state: int
) -> Parameters:
    """The paper's parameters of a case, completed as in theory 10.2; ``y`` are source targets."""
    gamma = float(np.median(y)) if isinstance(case.gamma, str) else case.gamma
    parameters = Parameters(
        gamma=gamma,
        target_gamma=gamma if case.task == "regression" else "median",
        epsilon=case.epsilon,
        n_components=case.n_components,
        # The paper gives DICA no lambda. N times the ridge is the same amount of smoothing as COIR
        # and DCM get, and makes DICA agree with COIR to four digits, as it does in the paper.
        lam=n_rows * Parameters.ridge,
        n_landmarks=method.n_landmarks(n_rows, case.m),
        random_state=random_state,
    )
    parameters = replace(parameters, **method.overrides)
    if method.key == "mida":
        # Its domain kernel has eigenvalues of the size of a domain (theory 5.4).
        parameters = replace(parameters, domain_weight=1.0 / n_rows)
    if method.kind == "reference" and parameters.n_components is None:
        # Only as many directions are determined as classes less one (theory 4).
        parameters = replace(parameters, n_components=len(np.unique(y)) - 1)
    return parameters


def _predictor(method: Method, parameters: Parameters, task: str) -> BaseEstimator:
    if method.key == "majority":
        return DummyRegressor() if task == "regression" else DummyClassifier()
    gamma = parameters.gamma if parameters.predictor_gamma is None else parameters.predictor_gamma
    options: dict[str, Any] = dict(C=parameters.C, gamma=gamma)
    if task == "classification":
        options["class_weight"] = parameters.class_weight
    if method.key == "invariant":
        options["domain_weight"] = parameters.domain_weight
        return (InvariantSVR if task == "regression" else InvariantSVC)(**options)
    return SVR(epsilon=0.1, **options) if task == "regression" else SVC(**options)
