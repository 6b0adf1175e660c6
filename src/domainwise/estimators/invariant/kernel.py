"""InvariantKernel, and InvariantFeatures, its approximation for linear models and many rows."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.linalg import svd
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra import labels as factors
from domainwise.algebra.backends import Backend, refuse_tensors_and_dask
from domainwise.algebra.gram import DenseGram
from domainwise.algebra.gram.dense import check_dense_memory
from domainwise.algebra.gram.rows import RowsGram
from domainwise.algebra.gram.tiles import in_threads, panels, tile_side, use_compiled
from domainwise.algebra.kernels.functions import Kernel
from domainwise.algebra.labels import Feature, label_factor, label_rows, unlabelled_rows
from domainwise.base import inputs, signatures
from domainwise.base.arguments import INVARIANCE_CONSTRAINTS
from domainwise.base.arrays import Array, ArrayLike, MaybeArray
from domainwise.base.inputs import Labels
from domainwise.base.signatures import InvarianceArguments, LandmarkArguments
from domainwise.estimators.projections.exact import DENSE_ROWS, make_gram
from domainwise.estimators.projections.fast import LandmarkProjection
from domainwise.estimators.projections.projection import one_thread_if_small, resolved_kernel


@signatures.documented_arguments
class InvariantKernel(
    InvarianceArguments, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""A kernel that penalizes functions whose values differ between domains.

    The penalty on a function f is :math:`w f'P_d f`. Here, w is ``domain_weight``, and the matrix
    :math:`P_d = FF'` averages over training rows from the same (or a similar) domain. For a centred
    kernel k with Gram matrix K, the kernel with the squared norm :math:`\|f\|^2 + w f'P_d f` is

    .. math:: k_w(x, x') = k(x, x') - k_F(x)' U \,\mathrm{diag}\Big(\frac{w}{1 + w\lambda}\Big)
       U' k_F(x'), \qquad k_F(x) = F'k(X, x), \quad F'KF = U \Lambda U'.

    ``transform`` returns kernel values between rows and training rows, for ``SVC``, ``SVR``,
    ``KernelRidge`` and other estimators with ``kernel="precomputed"``.

    Parameters
    ----------
    {kernel} {domain} {invariance}

    Attributes
    ----------
    domain_eigenvalues_ : ndarray
        Eigenvalues of ``F'KF`` in descending order, which measure how much the uncorrected kernel
        separates domains.
    X_fit_ : ndarray of shape (n_samples, n_features)
        The training rows; not set for ``kernel="precomputed"``.
    {fitted_kernel}
    classes_ : ndarray
        Class labels; only if ``conditional=True``.
    {features_seen}

    See Also
    --------
    InvariantFeatures : Nystrom features of this kernel, for many rows.
    InvariantSVC : A support vector classifier with this kernel.

    Notes
    -----
    A kernel machine with this kernel minimizes its loss plus :math:`\|f\|^2 + w f'P_d f`.

    The kernel is centred with the training means, even if ``domain_weight=0``. Centring does not
    change the predictions of a kernel machine with an intercept.

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> from domainwise import InvariantKernel
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> X, y, domain = data.data, data.target, data.sample_domain
    >>> is_source = domain < 7  # the other three domains are unseen
    >>> kernel = InvariantKernel(domain_weight=0.1)
    >>> K = kernel.fit_transform(X[is_source], sample_domain=domain[is_source])
    >>> svm = SVC(kernel="precomputed").fit(K, y[is_source])
    >>> accuracy = svm.score(kernel.transform(X[~is_source]), y[~is_source])
    >>> print(f"accuracy on unseen domains: {accuracy:.2f}")
    accuracy on unseen domains: 0.75
    """

    # sample_domain reaches fit through pipelines and searches without set_fit_request.
    __metadata_request__fit = {"sample_domain": True}

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = INVARIANCE_CONSTRAINTS

    @property
    def _uses_target(self) -> bool:
        """Whether y is used; it is needed only to compare domains within classes."""
        return bool(self.conditional)

    def fit(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Self:
        """Fit the kernel to source domains; memory use is linear in the number of rows.

        {source_rows}
        y : array-like of shape (n_samples,), default=None
            Classes, needed for ``conditional=True`` and ignored otherwise.
        {row_domains}
        sample_weight : array-like of shape (n_samples,), default=None
            Positive weights of rows, with which domains are compared. Columns of kernel values are
            centred without weights, which does not change an SVM.

        {returns_self}
        """
        with one_thread_if_small(X):
            self._fit(X, y, sample_domain, sample_weight, store_gram=False)
        return self

    def fit_transform(
        self,
        X: ArrayLike,
        y: MaybeArray = None,
        sample_domain: MaybeArray = None,
        sample_weight: MaybeArray = None,
    ) -> Array:
        """Fit, and return the Gram matrix of the training rows, which is exactly symmetric.

        {as_in_fit}
        K : ndarray of shape (n_samples, n_samples)
        """
        with one_thread_if_small(X):
            gram, dtype = self._fit(X, y, sample_domain, sample_weight, store_gram=True)
            if self._positive is not None:
                return self.transform(X)
            assert isinstance(gram, DenseGram)
            K = corrected_gram(symmetrized(gram.K), self._images)
        return K.astype(dtype, copy=False)

    def transform(self, X: ArrayLike) -> Array:
        """Evaluate the kernel between rows, possibly from unseen domains, and training rows.

        {new_kernel_rows}

        Returns
        -------
        K : ndarray of shape (n_rows, n_samples)
            Kernel values, in the precision of X.
        """
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False)
        with one_thread_if_small(rows):
            K = centred_cross(self._kernel, rows, getattr(self, "X_fit_", None), self._row_means)
            K = self.correct(K)
        return K.astype(rows.dtype, copy=False)

    def correct(self, K: Array) -> Array:
        """Make centred kernel values between rows and training rows invariant; may overwrite K."""
        if self._positive is not None:
            K = (K @ self._positive) @ self._positive.T
        K -= (K @ self._dual) @ self._images.T
        return K

    @property
    def column_means(self) -> Array:
        """The value to subtract from each column of kernel values, after subtracting row means."""
        means: Array = self._row_means - self._row_means.mean()
        return means

    @property
    def base_kernel(self) -> Kernel:
        """The kernel that is corrected, with its fitted arguments."""
        return self._kernel

    def _fit(
        self, X: Any, y: Any, sample_domain: Any, sample_weight: Any, *, store_gram: bool
    ) -> tuple[RowsGram, Any]:
        """Fit; return the Gram operator, which stores K if ``store_gram``, and the dtype of X."""
        self._validate_params()
        X = check_rows(self, X, ensure_min_samples=2)
        domains, classes = check_invariance_labels(self, y, sample_domain, len(X))
        if self.domain_weight:
            inputs.warn_about_domains(self, sample_domain, domains, len(X))
        weights = inputs.check_sample_weight(sample_weight, len(X))
        if weights is not None and not weights.all():
            raise ValueError("sample_weight contains zeros. Remove the rows with weight 0.")
        F = domain_factor(self, len(X), domains, classes, self.domain_weight, weights)
        kernel = resolved_kernel(self, Backend(), X, weights)
        if store_gram and kernel.name != "precomputed":
            advice = (
                "use InvariantFeatures with a linear model, or InvariantSVC or InvariantSVR with "
                'solver="fast"'
            )
            check_dense_memory(len(X), "the exact kernel", advice)
        no_labels, use_dense = unlabelled_rows(len(X)), store_gram or len(X) <= DENSE_ROWS
        gram, stored_K, self._positive = make_gram(X, kernel, no_labels, dense=use_dense)
        # An infinite weight amplifies rounding errors, so use the stored K if there is one.
        multiply = gram.K.__matmul__ if isinstance(gram, DenseGram) else gram.uncentred_product
        KF = gram.centred_product(F, multiply)
        A, self.domain_eigenvalues_ = correction(F.T @ KF, self.domain_weight, gram.tolerance)
        self._kernel = kernel
        self._row_means = gram.row_means if stored_K is None else stored_K.mean(axis=0)
        self._dual, self._images = F @ A, KF @ A
        for name in ("X_fit_", "classes_"):
            self.__dict__.pop(name, None)  # from an earlier fit
        if kernel.name != "precomputed":
            self.X_fit_ = np.array(X)
        self.gamma_, self.domains_ = kernel.gamma, domains.names
        if classes is not None:
            self.classes_ = classes.names
        return gram, X.dtype

    @property
    def _n_features_out(self) -> int:
        return len(self._row_means)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.target_tags.required = bool(self.conditional)
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@signatures.documented_arguments
class InvariantFeatures(LandmarkArguments, InvarianceArguments, LandmarkProjection):
    r"""Nystrom features whose inner products approximate the invariant kernel.

    The centred Nystrom features :math:`\Phi` give :math:`K \approx \Phi\Phi'`. Along the singular
    directions of :math:`\Phi'F`, in which domains differ, they are multiplied by
    :math:`(1 + w\sigma^2)^{-1/2}`, where :math:`\sigma` are the singular values, and F and w are
    defined in :class:`InvariantKernel`. A linear SVM on these features approximates an SVM with
    that kernel. This class can replace :class:`sklearn.kernel_approximation.Nystroem`.

    Parameters
    ----------
    {n_landmarks} {kernel} {domain} {invariance} {landmark_rows} {seed}

    Attributes
    ----------
    landmarks_ : ndarray of shape (n_landmarks, n_features)
        The linearly independent landmarks, one per output; only if ``feature_map="nystroem"``.
    {frequencies}
    dual_coef_ : ndarray of shape (n_landmarks, n_landmarks)
        Coefficients of the landmarks, or of the Fourier features, in each output.
    domain_eigenvalues_ : ndarray
        Squared singular values of ``Phi'F``, which measure how much the uncorrected features
        separate domains.
    {seen_so_far}
    classes_ : ndarray
        Class labels seen so far; only if ``conditional=True``.
    solver_info_ : dict
        The numbers of landmarks that were requested and used.
    {features_seen}

    See Also
    --------
    InvariantKernel : The exact kernel.

    Notes
    -----
    The inner products :math:`z(x)'z(x')` of the features approximate :math:`k_w(x, x')`. A linear
    model that minimizes its loss plus :math:`\|b\|^2` for :math:`f(x) = b'z(x)` therefore
    approximately minimizes its loss plus :math:`\|f\|^2 + w f'P_d f`.

    If all rows are landmarks, the features reproduce the exact kernel. ``fit`` reads each row once
    and stores sums per class and domain. With N rows of p features, M landmarks, C classes and T
    domains, time is O(N M p) and memory O(M^2 + M C T).

    References
    ----------
    A. Wu (2021), "Domain generalization via domain-based covariance minimization",
    arXiv:2110.06298.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from domainwise import InvariantFeatures
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> X, y, domain = data.data, data.target, data.sample_domain
    >>> is_source = domain < 7  # the other three domains are unseen
    >>> features = InvariantFeatures(n_landmarks=100, domain_weight=0.1)
    >>> Z = features.fit_transform(X[is_source], sample_domain=domain[is_source])
    >>> svm = LinearSVC().fit(Z, y[is_source])
    >>> accuracy = svm.score(features.transform(X[~is_source]), y[~is_source])
    >>> print(f"accuracy on unseen domains: {accuracy:.2f}")
    accuracy on unseen domains: 0.72
    """

    # float32 is precise enough: no linear system is solved that would amplify rounding errors.
    _relative_shift = float("inf")
    _needs_moments = False
    _exact_name = "InvariantKernel"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = INVARIANCE_CONSTRAINTS

    n_landmarks: float | str = field(default="auto", kw_only=False)

    @property
    def epsilon(self) -> float:  # type: ignore[override]
        """Regularization of the domain kernel."""
        return self.domain_epsilon

    @property
    def _uses_target(self) -> bool:  # type: ignore[override]
        """Whether y is used; it is needed only to compare domains within classes."""
        return bool(self.conditional)

    def _check_labels(self, *args: Any, **options: Any) -> Any:
        """Check labels; a single class is accepted."""
        return super()._check_labels(*args, **options | {"min_classes": 1})

    def _finish(self) -> None:
        """Scale the features down along the directions in which domains differ."""
        gram, classes, domains, feature_means = self._finalize()
        label_space = gram.labels
        F = np.zeros((label_space.size, 0))
        if label_space.domain is not None:
            F = label_factor(label_space.domain, label_space.n_samples, self.domain_epsilon)
        Phi_F = gram.weights(gram.lift(F))  # the product Phi'F
        V, sigma, _ = svd(Phi_F, full_matrices=False)
        self.domain_eigenvalues_ = sigma**2
        if np.isinf(self.domain_weight):
            max_eigenvalue = self.domain_eigenvalues_.max(initial=0.0)
            scales = np.where(self.domain_eigenvalues_ > gram.tolerance * max_eigenvalue, 0.0, 1.0)
        else:
            scales = 1.0 / np.sqrt(1.0 + self.domain_weight * self.domain_eigenvalues_)
        weights = np.eye(len(Phi_F)) + (V * (scales - 1.0)) @ V.T
        self.solver_info_: dict[str, Any] = {}
        self._record_map(weights, feature_means, classes, domains)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.conditional)
        return tags


def symmetrized(K: Array) -> Array:
    """Return (K + K') / 2, which is exactly symmetric, because addition is commutative."""
    K = K + K.T
    K *= 0.5
    return K


def corrected_gram(K: Array, images: Array) -> Array:
    """Return ``K - T T'``, where T is ``images`` (``KFA``); exactly symmetric if K is."""
    # NumPy computes one triangle of a product of a matrix and its transpose, and mirrors it.
    product = images @ images.T
    return np.subtract(K, product, out=product)


def centred_cross(kernel: Kernel, X: Array, X_fit: Array | None, row_means: Array) -> Array:
    """Return kernel values between X and training rows in float64, centred with the training means.

    For a precomputed kernel, X contains the values before centring. ``row_means`` are the row means
    of the training Gram matrix; a constant added to all of them has no effect.
    """
    prepared_train = None if kernel.name == "precomputed" else kernel.prepare(X_fit)
    K = np.empty((len(X), len(row_means)))
    column_means = row_means - row_means.mean()
    row_slices = panels(len(X), max(1, tile_side(8) ** 2 // max(1, len(row_means))))
    use_numba = use_compiled(len(X) * len(row_means))

    def fill_panels(thread_index: int, n_threads: int) -> None:
        for panel in row_slices[thread_index::n_threads]:
            if prepared_train is None:
                K[panel] = X[panel]
            else:
                prepared_left = kernel.prepare(X[panel]).left
                K[panel] = kernel.block(prepared_left, prepared_train.right, compiled=use_numba)
            K[panel] -= K[panel].mean(axis=1, keepdims=True)
            K[panel] -= column_means

    in_threads(len(row_slices), fill_panels)
    return K


def check_rows(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Check X, or X and y; raise an error for tensors and Dask collections."""
    refuse_tensors_and_dask(estimator, X, "Use InvariantFeatures, which supports them")
    if y is not None and not isinstance(y, str):
        # scikit-learn would turn NaN among strings into a class, and nullable integers into floats.
        y = inputs.label_array(y, "y")
    return inputs.validate_rows(estimator, X, y, dtype=(np.float64, np.float32), **options)


def check_invariance_labels(
    estimator: Any, y: Any, sample_domain: Any, n_samples: int
) -> tuple[Labels, Labels | None]:
    """Return checked domains and, if domains are compared within classes, checked classes."""
    domains = inputs.check_sample_domain(sample_domain, n_samples, estimator.domain_kernel)
    if not estimator.conditional:
        return domains, None
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None. "
            "conditional=True compares domains within classes: pass y, or use conditional=False."
        )
    classes = inputs.check_target(y, n_samples, "auto", min_classes=1)
    inputs.check_conditional(classes)
    return domains, classes


# The low-rank correction that makes a kernel invariant (theory 12.1).


def domain_factor(
    estimator: Any,
    n_rows: int,
    domains: Labels,
    classes: Labels | None,
    weight: float,
    row_weights: Array | None = None,
) -> Array:
    """Return the factor F (N, r) of ``P_d = F F'`` for the domain kernel of an estimator.

    Domains are compared within classes, unless ``classes`` is None. For one domain, F has no
    columns. For continuous domain descriptors, F is approximate, but precise enough for ``weight``.
    With weights of rows, F contains the sums over the copies of each row.
    """
    total = n_rows if row_weights is None else float(row_weights.sum())
    domain_feature = Feature(domains.codes, domains.n_categories)
    if domains.values is not None:
        domain_feature = factors.continuous_feature(
            domains.values,
            "rbf" if estimator.domain_kernel == "auto" else estimator.domain_kernel,
            estimator.domain_gamma,
            total * factors.max_residual_trace(estimator.domain_epsilon, weight),
            name="the domain kernel",
            weights=row_weights,
        )
    elif domains.n_categories < 2:
        return np.zeros((n_rows, 0))
    class_feature = None if classes is None else Feature(classes.codes, classes.n_categories)
    options: Any = {"conditional": classes is not None, "weights": row_weights}
    labels = label_rows(n_rows, class_feature, domain_feature, **options)
    assert labels.space.domain is not None
    F: Array = labels.lift(label_factor(labels.space.domain, total, estimator.domain_epsilon))
    return F if labels.roots is None else F * labels.roots


def correction(FKF: Array, weight: float, tolerance: float) -> tuple[Array, Array]:
    """Return A with ``k_w(x, x') = k(x, x') - k(x)'F A A' F'k(x')``, and the eigenvalues.

    ``FKF`` is ``F'KF``; its eigenvalues, in descending order, measure how much the kernel
    separates domains. An infinite weight removes all directions whose eigenvalues are larger than
    ``tolerance`` times the largest one.

    >>> A, _ = correction(np.array([[3.0]]), weight=1.0, tolerance=1e-10)
    >>> float((A @ A.T).squeeze())
    0.25
    """
    eigenvalues, U = np.linalg.eigh((FKF + FKF.T) / 2)
    eigenvalues, U = np.maximum(eigenvalues[::-1], 0.0), U[:, ::-1]
    max_eigenvalue = float(eigenvalues[0]) if len(eigenvalues) else 0.0
    if np.isinf(weight):
        is_nonzero = eigenvalues > tolerance * max_eigenvalue
        return U[:, is_nonzero] / np.sqrt(eigenvalues[is_nonzero]), eigenvalues
    # A huge weight would amplify eigenvalues that are rounding errors of the largest one.
    is_nonzero = eigenvalues > len(eigenvalues) * np.finfo(float).eps * max_eigenvalue
    scales = np.sqrt(weight / (1.0 + weight * eigenvalues[is_nonzero]))
    return U[:, is_nonzero] * scales, eigenvalues
