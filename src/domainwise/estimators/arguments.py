"""What several estimators share about their arguments, written once.

A docstring names groups in braces on a line of their own, such as ``{kernel} {target}``, and
:func:`with_shared_arguments` puts their texts there with the right indentation; so do the texts
themselves.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, TypeVar

from domainwise.checks.arguments import CONSTRAINTS

T = TypeVar("T", bound=type)

#: A line that names groups of arguments.
PLACE = re.compile(r"(?m)^( *)(\{\w+\}(?: \{\w+\})*)$")

SHARED = {
    "features_seen": """\
n_features_in_ : int
    Number of features seen in fit.
feature_names_in_ : ndarray
    Their names, if X has string column names.""",
    "splits": """\
cv : splitter, int or None, default=None
    None leaves one domain out at a time, or one of ten groups of domains where there are more.
    Without several domains, five folds of rows, with a warning.""",
    "kernel_rest": """\
degree : float, default=3
    Degree of ``poly``.
coef0 : float, default=1
    Constant of ``poly``.
kernel_params : dict, default=None
    Keyword arguments for a callable kernel.""",
    "conditional": """\
conditional : bool, default=False
    Compare domains inside each class, so that a domain with another mix of classes is not
    punished for it. Needs classes as y.""",
    "eigenvalues": """\
eigenvalues_ : ndarray of shape (n_components,)
    Eigenvalues of the method's problem, in descending order.
n_informative_ : int
    How many of the problem's directions tell targets apart.""",
    "scores": """\
cv_results_ : dict
    Scores of every point on every split, as in :class:`sklearn.model_selection.GridSearchCV`.
n_splits_ : int
    Number of splits.""",
    "n_components": """\
n_components : int, default=None
    Number of components. None keeps what the data can tell: for classes the informative
    directions (at most one fewer than classes), for a continuous target those with an eigenvalue
    above a hundredth of the first, without a target ten. More than the informative ones are
    filled up with principal directions that neither target nor domain explains, with a warning.""",
    "ten_components": """\
n_components : int, default=None
    Number of components. None is ten, or one fewer than rows.""",
    "class_components": """\
n_components : int, default=None
    Number of components. None is one fewer than classes, which is all that set them apart; more
    are filled up with principal directions that neither target nor domain explains, with a
    warning.""",
    "kernel": """\
kernel : {"rbf", "linear", "poly", "laplacian", "cosine", "precomputed"} or callable, default="rbf"
    A callable takes two arrays of rows and returns the matrix of kernel values. ``"precomputed"``
    is for classes without landmarks, which choose nothing among rows.
gamma : float, "median" or "scale", default="median"
    Scale of ``rbf``, ``laplacian`` and ``poly``. ``"median"`` is ``1 / (2 median^2)`` of the
    distances between rows (``laplacian``: 1 / median of the L1 distances; otherwise
    1 / n_features); ``"scale"`` is the rule of :class:`sklearn.svm.SVC`.
{kernel_rest}""",
    "target": """\
target_kernel : {"auto", "delta", "rbf", "linear"} or callable, default="auto"
    Kernel of y. ``"auto"`` is ``"delta"`` for classes and ``"rbf"`` for continuous targets.
target_gamma : float, "median" or "scale", default="median"
    Scale of an RBF kernel of y.""",
    "domain": """\
domain_kernel : {"auto", "delta", "rbf", "linear"} or callable, default="auto"
    Kernel of ``sample_domain``. ``"auto"`` is ``"delta"`` for labels and ``"rbf"`` for continuous
    descriptors (a 2-D array, or floats that are not whole numbers).
domain_gamma : float, "median" or "scale", default="median"
    Scale of an RBF kernel of the descriptors.""",
    "epsilon": """\
epsilon : float, default=1e-3
    Regularisation of the label kernels, in ``K (K + N epsilon I)^-1``.""",
    "ridge": """\
ridge : float, default=1e-3
    Regularisation of the projection, in ``(K + N ridge I)^-1``; after ``gamma`` the argument that
    matters most. ``numpy.inf`` needs no linear solve; 0 is the paper's form, which overfits and
    needs the whole Gram matrix.""",
    "domain_weight": """\
domain_weight : float, default=1.0
    Price of telling domains apart. 0 ignores domains (COIR), 1 is the paper's problem; on most
    data less is better (0.1 in ``benchmarks/SELECTION.md``), so that it is worth a search (DCMCV).
{conditional}""",
    "scatter": """\
between : float, default=0.5
    From 0 to 1: how much of the left side the scatter of class means is, in MDA that of pairs of
    classes.
domain_weight : float, default=1.0
    Price of setting domains apart.
within_weight : float, default=1.0
    Price of the scatter inside classes.
ridge : float, default=1e-3
    Times the number of rows, what is added to the right side.""",
    "independence": """\
domain_weight : float, default=1.0
    Price of depending on the domain. The domain kernel has eigenvalues as large as domains have
    rows, so that weights around ``1 / n_samples`` are worth a search.""",
    "invariance": """\
domain_epsilon : float, default=1e-3
    Regularisation of the domain kernel, in ``K (K + N domain_epsilon I)^-1``.
domain_weight : float, default=1.0
    Price of telling domains apart, in sums over rows like the ``C`` of an SVM. 0 is the plain
    kernel, ``numpy.inf`` forbids functions whose domain means differ.
{conditional}""",
    "solver": """\
solver : {"auto", "exact", "dense"}, default="auto"
    ``"exact"`` streams the Gram matrix, which is never stored beyond a few thousand rows;
    ``"dense"`` stores it and uses LAPACK throughout; ``"auto"`` is exact, but dense for
    ``ridge=0``.
tol : float, default=1e-6
    Relative residual at which iterative solvers stop.
max_iter : int, default=200
    Iterations of these solvers at most.
random_state : int, RandomState instance or None, default=None
    Seed of the solvers' starting points. None is a fixed seed: refitting repeats every bit.
verbose : int, default=0
    Print the progress of iterative solvers.""",
    "search": """\
gammas : "auto" or sequence of float, default="auto"
    ``"auto"`` is a quarter, once and four times the median rule.
ridges : "auto" or sequence of float, default="auto"
    ``"auto"`` is 1e-4, 1e-3, 1e-2, 1e-1 and infinity.
domain_weights : "auto" or sequence of float, default="auto"
    ``"auto"`` is 0, 0.01, 0.1, 1 and 10: COIR and the paper's DCM are among them.
conditionals : sequence of bool, default=(False,)
epsilons : sequence of float, default=(1e-3,)
{splits}
scoring : str or callable, default=None
    A scikit-learn scorer. None is balanced accuracy for classes and the negative root mean
    squared error for a continuous target.
estimator : estimator, default=None
    Predictor on the projection by which a point is judged. None is linear discriminant analysis
    for classes and ridge regression for a continuous target.
rule : {"best", "1se"}, default="best"
    ``"1se"`` takes the most regularised point (largest ridge, then largest weight, then smallest
    gamma) whose score is within one standard error of the best.
n_jobs : int, default=None
    Splits scored at a time, with one BLAS thread each if more than one.""",
    "searched": """\
best_params_ : dict
    The arguments that were chosen.
best_score_ : float
    Their mean score over splits.
best_estimator_ : estimator
    The model fitted to all rows with these arguments; its fitted attributes are available here.
{scores}""",
    "kernel_no_gamma": """\
kernel : {"rbf", "linear", "poly", "laplacian", "cosine"} or callable, default="rbf"
    A callable takes two arrays of rows and returns the matrix of kernel values.
{kernel_rest}""",
    "landmarks": """\
n_landmarks : int, float or "auto", default="auto"
    Number of landmarks: rows, a fraction of the rows, or ``5 sqrt(N)`` between 100 and 2000.
    More landmarks come closer to the exact method, at a cost of ``N n_landmarks^2``.
landmarks : {"uniform", "stratified", "kmeans++", "leverage"} or array of shape (M, n_features), \
default="uniform"
    How landmarks are chosen among the rows (of the first batch): uniformly, as many from each
    domain, spread by k-means++, or by ridge leverage scores (the last two on a subsample of 5000
    rows). An array holds the landmarks themselves.""",
    "svm_solver": """\
solver : {"auto", "exact", "fast"}, default="auto"
    ``"exact"`` keeps the Gram matrix of the training rows; ``"fast"`` is a linear machine with
    squared loss (several classes: one against the rest) on :class:`InvariantFeatures`; ``"auto"``
    is exact up to 5000 rows and for ``kernel="precomputed"``, and fast beyond.""",
    "machine_fitted": """\
transformer_ : InvariantKernel or InvariantFeatures
    The fitted kernel, or its features.
machine_ : object
    The fitted machine of scikit-learn behind it.
gamma_ : float
    The kernel's scale.
domains_ : ndarray or None
    Domain labels seen in fit; None for continuous descriptors.
n_iter_ : int
    Iterations of the SVM solver (of the longest of its problems).
solver_info_ : dict
    Which solver was used.
{features_seen}""",
    "target_landmarks": """\
target_landmarks : array of shape (q,) or (q, n_outputs), tuple (low, high) or None, default=None
    For a continuous y, the points whose kernel functions span the target kernel: given points, a
    grid over a range, or None to take them from (the first batch of) y.""",
    "seed": """\
random_state : int, RandomState instance or None, default=None
    Seed of the choice of landmarks. None is a fixed seed: refitting repeats every bit.""",
    "ridge_search": """\
kernels : sequence of {"rbf", "laplacian", "linear", "poly", "cosine"}, default=("rbf", "laplacian")
    Kernels to try.
gammas : "auto" or sequence of float, default="auto"
    ``"auto"`` is 0.3, 1 and 3 times the median rule of each kernel.
alphas : "auto" or sequence of float, default="auto"
    Penalties, in sums over rows like ``1 / C`` of an SVM. ``"auto"`` is 0.01, 0.1, 0.3, 1, 3, 10
    and 100, times the number of rows in thousands where there are more than a thousand.
domain_weights : sequence of float, default=(0, 0.1, 1, 10)
    Prices of telling domains apart, as multiples of the penalty.""",
    "ridge_rest": """\
n_average : int, default=10
    How many kernels are averaged; 1 takes the best alone.
n_landmarks : int, float or "auto", default="auto"
    Rows that functions are built from: a number, a fraction, or all up to 1000 and 1000 beyond.
landmarks : {"kmeans++", "uniform", "stratified", "leverage"} or array, default="kmeans++"
    How they are chosen where not all are taken, or the landmarks themselves, of shape
    (M, n_features). Like gammas they serve all splits: they have seen the left-out rows' features,
    never their targets.
domain_kernel : {"auto", "delta", "rbf", "linear"} or callable, default="auto"
    Kernel of ``sample_domain``. ``"auto"`` is ``"delta"`` for labels and ``"rbf"`` for continuous
    descriptors.
domain_gamma : float, "median" or "scale", default="median"
    Scale of an RBF kernel of the descriptors.
domain_epsilon : float, default=1e-3
    Regularisation of the domain kernel, in ``K (K + N domain_epsilon I)^-1``.
{splits}
scoring : str or callable, default=None
    None is minus the mean squared error, for classes that of their indicators (-1 and 1), with
    classes and splits counting the same: it needs no predictions. A scikit-learn scorer sees
    predictions of the left-out rows, which takes another pass beyond 1000 rows.
n_jobs : int, default=None
    Kernels and splits scored at a time, with one BLAS thread each if more than one.
{seed}""",
    "ridge_fitted": """\
members_ : list of dict
    Kernel, gamma, domain_weight, conditional and alpha of the functions that are averaged.
expansions_ : list
    Their average, one function for each kernel.
best_params_ : dict
    The best point of the grid by itself.
best_score_ : float
    Its mean score over splits.
{scores}
domains_ : ndarray or None
    Domain labels seen in fit; None for continuous descriptors.
{features_seen}""",
    "fast_fitted": """\
{eigenvalues}
landmarks_ : ndarray of shape (M, n_features)
    The landmarks in use, those that depend on others left out.
dual_coef_ : ndarray of shape (M, n_components)
    Coefficients of the landmarks in each component.
n_samples_seen_ : int
    Rows seen so far.
gamma_ : float
    The kernel's scale.
domains_ : ndarray or None
    Domain labels seen so far; None for continuous descriptors.
classes_ : ndarray
    Class labels seen so far, if y holds classes.
solver_info_ : dict
    Which solver was used, and how many landmarks were asked for and are of use.
{features_seen}""",
    "fitted": """\
{eigenvalues}
embedding_ : ndarray of shape (n_samples, n_components)
    The projected training rows.
dual_coef_ : ndarray of shape (n_samples, n_components)
    Coefficients of the training rows in each component.
gamma_ : float
    The kernel's scale.
domains_ : ndarray or None
    Domain labels seen in fit; None for continuous descriptors.
classes_ : ndarray
    Class labels, if y holds classes.
solver_info_ : dict
    Which operator and solver were used, iterations, and the residual that was reached.
n_iter_ : int
    Iterations of the solver; 1 for a direct one.
{features_seen}""",
}


def with_shared_arguments(cls: T) -> T:
    """Fill the shared texts into a class's docstring, and give its arguments their constraints.

    A class says only where it differs from the shared constraints.
    """
    cls.__doc__ = PLACE.sub(_texts, cls.__doc__ or "")
    rules = CONSTRAINTS | getattr(cls, "_parameter_constraints", {})
    names = inspect.signature(cls).parameters
    cls._parameter_constraints = {name: rules[name] for name in names}  # type: ignore[attr-defined]
    return cls


def _texts(place: re.Match[str]) -> str:
    """Texts of the groups that a line names, with its indentation."""
    indent, groups = place.groups()
    texts = [PLACE.sub(_texts, SHARED[name]) for name in re.findall(r"\w+", groups)]
    lines = "\n".join(texts).splitlines()
    return "\n".join(indent + line if line else line for line in lines)


def keep_arguments(estimator: Any, arguments: dict[str, Any]) -> None:
    """Keep the arguments of ``__init__``, its ``locals()``, under their names and as they are."""
    vars(estimator).update({name: arguments[name] for name in arguments if name != "self"})
