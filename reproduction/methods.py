"""The methods in the reproduced tables, as scikit-learn pipelines.

A pipeline imputes and scales if the data require it, projects if the method has a projection, and
predicts. All steps are fitted to source domains.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.impute import SimpleImputer
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, SVR

from domainwise import (
    COIR,
    DCM,
    DICA,
    KPCA,
    MDA,
    MIDA,
    SCA,
    FastCOIR,
    FastDCM,
    FastDICA,
    InvariantSVC,
    InvariantSVR,
)
from domainwise.base.arrays import Array
from domainwise.base.files import to_json
from reproduction.protocols import Case
from reproduction.reference import algorithm1, algorithm2_stable, project

# The paper's algorithms as transformers, slow because of their N x N matrices ---------------------


@dataclass(eq=False, repr=False)
class ReferenceDCM(TransformerMixin, BaseEstimator):
    """Algorithm 1: the dense generalized eigenproblem, without a ridge."""

    __metadata_request__fit = {"sample_domain": True}

    n_components: int = 1
    gamma: float = 1.0
    target_gamma: float = 1.0
    epsilon: float = 1e-3
    domain_weight: float = 1.0
    continuous: bool = False  #: whether the target has an RBF kernel instead of a delta kernel

    def fit(self, X: Array, y: Array, sample_domain: Array) -> Self:
        """Solve the eigenproblem on the source domains."""
        self.X_fit_, self.kernel_ = X, rbf_kernel(X, gamma=self.gamma)
        solution = algorithm1(
            self.kernel_,
            self._target_kernel(y, y),
            delta_kernel(sample_domain, sample_domain),
            epsilon=self.epsilon,
            n_components=self.n_components,
            domain_weight=self.domain_weight,
        )
        self.coefficients_, self.eigenvalues_ = solution.coefficients, solution.eigenvalues
        return self

    def transform(self, X: Array) -> Array:
        """Project rows, centred with the training means."""
        K_new = rbf_kernel(self.X_fit_, X, gamma=self.gamma)
        return project(self.kernel_, K_new, self.coefficients_)

    def _target_kernel(self, a: Array, b: Array) -> Array:
        if not self.continuous:
            return delta_kernel(a, b)
        return np.asarray(rbf_kernel(a[:, None], b[:, None], gamma=self.target_gamma))


@dataclass(eq=False, repr=False)
class ReferenceFastDCM(ReferenceDCM):
    """Algorithm 2 in its stable form, with ``n_landmarks`` uniformly drawn landmarks."""

    n_landmarks: int = 100
    random_state: int = 0

    def fit(self, X: Array, y: Array, sample_domain: Array) -> Self:
        """Solve the eigenproblem on the source domains."""
        rng = np.random.default_rng(self.random_state)
        landmark_indices = np.sort(rng.choice(len(X), min(self.n_landmarks, len(X)), replace=False))
        landmarks = X[landmark_indices]
        # The extension to new points is affine in their kernel values. Projecting a zero column and
        # unit columns gives its offset and its matrix.
        probes = np.hstack([np.zeros((len(landmark_indices), 1)), np.eye(len(landmark_indices))])
        solution = algorithm2_stable(
            rbf_kernel(X, landmarks, gamma=self.gamma),
            rbf_kernel(landmarks, gamma=self.gamma),
            self._target_kernel(y, y[landmark_indices]),
            self._target_kernel(y[landmark_indices], y[landmark_indices]),
            delta_kernel(sample_domain, sample_domain[landmark_indices]),
            delta_kernel(sample_domain[landmark_indices], sample_domain[landmark_indices]),
            probes,
            epsilon=self.epsilon,
            n_components=self.n_components,
            domain_weight=self.domain_weight,
        )
        assert solution.projected_new is not None
        self.landmarks_, self.eigenvalues_ = landmarks, solution.eigenvalues
        self.offset_ = solution.projected_new[0]
        self.extension_ = solution.projected_new[1:] - self.offset_
        return self

    def transform(self, X: Array) -> Array:
        """Project rows with the Nyström extension."""
        K_new = rbf_kernel(X, self.landmarks_, gamma=self.gamma)
        return np.asarray(K_new @ self.extension_ + self.offset_)


def delta_kernel(a: Array, b: Array) -> Array:
    """Return 1 where labels are equal and 0 elsewhere."""
    return np.asarray(np.asarray(a)[:, None] == np.asarray(b), dtype=np.float64)


# Methods by name ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameters:
    """The parameters of all methods; each method uses some of them.

    ``predictor_gamma`` is the SVM's gamma; None means the same value as ``gamma``, as in the paper.
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

    def used_by(self, method: Method) -> dict[str, Any]:
        """Return the parameters that a method uses, as JSON values."""
        if method.key == "majority":
            return {}
        landmark_parameters = ["n_landmarks"] if method.landmark_rule else []
        names = (*method.parameter_names, *landmark_parameters, "C", "class_weight")
        return to_json({name: getattr(self, name) for name in names}, str)


@dataclass(frozen=True)
class Method:
    """A method in the reproduced tables."""

    key: str  #: name in result files
    label: str  #: name in tables
    kind: str  #: baseline, exact, ridge (other ridges), fast, reference, extra (not in the paper)
    parameter_names: tuple[str, ...] = ()  #: of the projection or, if there is none, of the SVM
    projection: type[BaseEstimator] | None = None  #: None if the method predicts from the features
    landmark_rule: str = ""  #: "divisor" (N/M landmarks), "count" (M), "fifth" (N/5) or "" (none)
    ridge: float = Parameters.ridge  #: ridge with the paper's parameters

    @property
    def competes(self) -> bool:
        """Whether the method can be marked as the best; variants are only shown for comparison."""
        return self.kind in ("baseline", "exact", "fast") and self.landmark_rule in ("", "divisor")

    def label_for(self, task: str) -> str:
        """Return the label for a task, such as SVR instead of SVM for regression."""
        regression_labels = {"majority": "constant", "svm": "SVR", "invariant": "InvariantSVR"}
        return regression_labels.get(self.key, self.label) if task == "regression" else self.label

    def n_landmarks(self, n_rows: int, m: int | None) -> int | None:
        """Return the number of landmarks for N = ``n_rows`` source rows and the paper's M."""
        if not self.landmark_rule:
            return None
        if self.landmark_rule == "fifth":
            return max(n_rows // 5, 2)
        if m is None:
            raise ValueError(f"method {self.key!r} requires the paper's M. Set m in the case.")
        return max(round(n_rows / m), 2) if self.landmark_rule == "divisor" else m


# Names of parameters that several methods use.
_KERNEL = ("n_components", "gamma")
_LABELS = (*_KERNEL, "target_gamma", "epsilon")
_COIR, _DICA, _REFERENCE = ((*_LABELS, name) for name in ("ridge", "lam", "domain_weight"))
_DCM = (*_COIR, "domain_weight")
_SCATTER, _MIDA = (*_KERNEL, "ridge", "domain_weight"), (*_KERNEL, "domain_weight")
_ALGORITHM2 = ("reference", _REFERENCE, ReferenceFastDCM)

METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method("majority", "majority", "baseline"),
        Method("svm", "SVM", "baseline", ("gamma",)),
        Method("kpca", "KPCA", "exact", _KERNEL, KPCA),
        Method("coir", "COIR", "exact", _COIR, COIR),
        Method("dica", "DICA", "exact", _DICA, DICA),
        Method("dcm", "DCM", "exact", _DCM, DCM),
        Method("invariant", "InvariantSVC", "exact", ("gamma", "domain_weight")),
        Method("coir_small", "COIR, ridge 1e-5", "ridge", _COIR, COIR, ridge=1e-5),
        Method("dcm_small", "DCM, ridge 1e-5", "ridge", _DCM, DCM, ridge=1e-5),
        Method("coir_inf", "COIR, ridge ∞", "ridge", _COIR, COIR, ridge=np.inf),
        Method("dcm_inf", "DCM, ridge ∞", "ridge", _DCM, DCM, ridge=np.inf),
        Method("fastcoir", "FastCOIR", "fast", _COIR, FastCOIR, "divisor"),
        Method("fastdica", "FastDICA", "fast", _DICA, FastDICA, "divisor"),
        Method("fastdcm", "FastDCM", "fast", _DCM, FastDCM, "divisor"),
        Method("fastcoir_count", "FastCOIR, M landmarks", "fast", _COIR, FastCOIR, "count"),
        Method("fastdcm_count", "FastDCM, M landmarks", "fast", _DCM, FastDCM, "count"),
        Method("fastdcm_fifth", "FastDCM, 20 % landmarks", "fast", _DCM, FastDCM, "fifth"),
        Method("algorithm1", "Algorithm 1", "reference", _REFERENCE, ReferenceDCM),
        Method("algorithm2", "Algorithm 2", *_ALGORITHM2, "divisor"),
        Method("algorithm2_count", "Algorithm 2, M landmarks", *_ALGORITHM2, "count"),
        Method("sca", "SCA (not in the paper)", "extra", _SCATTER, SCA),
        Method("mda", "MDA (not in the paper)", "extra", _SCATTER, MDA),
        Method("mida", "MIDA (not in the paper)", "extra", _MIDA, MIDA),
    )
}


def build_pipeline(
    case: Case, method: Method, parameters: Parameters, *, impute: bool = False
) -> Pipeline:
    """Build the pipeline for a method and a case; ``impute`` adds mean imputation."""
    is_regression = case.task == "regression"
    steps: list[tuple[str, Any]] = [("impute", SimpleImputer())] if impute else []
    if case.scaling != "none":
        scaler_type = {"minmax": MinMaxScaler, "standard": StandardScaler}[case.scaling]
        steps.append(("scale", scaler_type()))
    if method.projection is not None:
        parameter_names = [*method.parameter_names]
        parameter_names += ["n_landmarks", "random_state"] if method.landmark_rule else []
        arguments = {name: getattr(parameters, name) for name in parameter_names}
        # The iterative solver converges slowly for DICA (theory 5.2), and the cases are small.
        if method.projection is DICA:
            arguments["solver"] = "dense"
        if method.kind == "reference":
            arguments["continuous"] = is_regression
        steps.append(("project", method.projection(**arguments)))
    gamma = parameters.gamma if parameters.predictor_gamma is None else parameters.predictor_gamma
    svm_arguments: dict[str, Any] = {"C": parameters.C, "gamma": gamma}
    if not is_regression:
        svm_arguments["class_weight"] = parameters.class_weight
    predictor: BaseEstimator
    if method.key == "majority":
        predictor = DummyRegressor() if is_regression else DummyClassifier()
    elif method.key == "invariant":
        svm_type = InvariantSVR if is_regression else InvariantSVC
        predictor = svm_type(domain_weight=parameters.domain_weight, **svm_arguments)
    else:
        predictor = SVR(epsilon=0.1, **svm_arguments) if is_regression else SVC(**svm_arguments)
    return Pipeline([*steps, ("predict", predictor)])


def paper_parameters(
    case: Case, method: Method, y: Array, n_rows: int, random_state: int
) -> Parameters:
    """Return the paper's parameters for a case; theory 10.2 describes those that we had to choose.

    ``y`` contains the targets of the ``n_rows`` source rows.
    """
    gamma = float(np.median(y)) if isinstance(case.gamma, str) else case.gamma
    n_components = case.n_components
    if method.kind == "reference" and n_components is None:
        # The classes determine only n_classes - 1 directions (theory 4).
        n_components = len(np.unique(y)) - 1
    return Parameters(
        gamma=gamma,
        target_gamma=gamma if case.task == "regression" else "median",
        epsilon=case.epsilon,
        n_components=n_components,
        ridge=method.ridge,
        # MIDA's domain kernel has eigenvalues about as large as the domain sizes (theory 5.4).
        domain_weight=1.0 / n_rows if method.key == "mida" else 1.0,
        # The paper does not give DICA's lambda. With N times the ridge, DICA is regularized as much
        # as COIR and DCM, and agrees with COIR to three or four digits, as it does in the paper.
        lam=n_rows * Parameters.ridge,
        n_landmarks=method.n_landmarks(n_rows, case.m),
        random_state=random_state,
    )
