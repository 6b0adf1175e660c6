"""Project the rows of a split with all candidates of DCM, which share computations (theory 3).

The scores and eigenvalues of ``dcm_scores`` do not depend on the ridge, and the label space does
not depend on epsilon or the domain weight. All candidates with the same kernel share the product of
the Gram matrix with a basis of the label space. Each ridge then needs only a few linear systems.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone

from domainwise.algebra.backends import backend_of
from domainwise.algebra.gram import sums
from domainwise.algebra.gram.tiles import cross_product
from domainwise.algebra.kernels.functions import Kernel, check_finite
from domainwise.algebra.labels import LabelSpace, joint_basis, label_factor, unlabelled_rows
from domainwise.algebra.methods.components import CONTINUOUS_CUT, standardize
from domainwise.algebra.methods.contract import Gram, Matrix
from domainwise.algebra.methods.pencils import dcm_scores
from domainwise.base.arrays import Array
from domainwise.base.inputs import Labels
from domainwise.estimators.projections.projection import resolved_kernel
from domainwise.held_out.folds import Split, split_rows
from domainwise.held_out.search.driver import Candidate, Data
from domainwise.held_out.search.scores import ProjectedMoments, ProjectedRows

#: Relative residual at which iterative solvers stop; scores need less precision than a model.
PATH_TOLERANCE = 1e-4
MEMORY_ADVICE = "choose a smaller n_landmarks, or a splitter (cv) with fewer splits"


def project_path(fold: Any, candidates: Sequence[Candidate]) -> Iterator[tuple[int, Any, Array]]:
    """Yield the index of each candidate, with its projected training and test rows.

    Candidates have ``conditional``, ``epsilon``, ``domain_weight`` and ``ridge``. The fold's method
    ``gram(conditional)`` returns the operator of its training rows and their label space;
    ``project`` projects training and test rows, given coefficients and their product with the Gram
    matrix. Only informative components are used, at most the template's ``n_components``. They have
    unit variance on the training rows.
    """
    for conditional in dict.fromkeys(candidate["conditional"] for candidate in candidates):
        indices = [i for i, c in enumerate(candidates) if c["conditional"] == conditional]
        pairs = [(candidates[i]["epsilon"], candidates[i]["domain_weight"]) for i in indices]
        ridges = list(dict.fromkeys(candidates[i]["ridge"] for i in indices))
        gram, space = fold.gram(conditional)
        n = gram.n_samples
        assert space.target is not None
        label_features = [space.target] if space.domain is None else [space.target, space.domain]
        basis = joint_basis(*(label_factor(features, n, 0.0) for features in label_features))
        Q, KQ = gram.lifted_product(basis)
        G = gram.inner(Q, KQ)
        directions_by_pair = {
            pair: _find_directions(fold, gram, space, basis, G, *pair)
            for pair in dict.fromkeys(pairs)
        }
        # The directions of all candidates span a small space: solve only for its basis.
        U, s, _ = np.linalg.svd(np.hstack(list(directions_by_pair.values())), full_matrices=False)
        U = U[:, s > gram.tolerance * s[0]]
        V, KV = gram.combine(Q, U), gram.combine(KQ, U)
        projected_rows = _project_for_ridges(fold, gram, V, KV, ridges)
        for i, pair in zip(indices, pairs, strict=True):
            train, test = projected_rows[candidates[i]["ridge"]]
            coordinates = U.T @ directions_by_pair[pair]
            scales = train.mapped(coordinates).std()
            is_nonzero = scales > gram.tolerance * max(float(scales.max(initial=0.0)), 1e-300)
            coordinates = coordinates[:, is_nonzero] / scales[is_nonzero]
            yield i, train.mapped(coordinates), test @ coordinates


def _find_directions(
    fold: Any, gram: Gram, space: LabelSpace, basis: Array, G: Array, epsilon: float, weight: float
) -> Array:
    """Return the coefficients of the scores for one epsilon and weight, scaled to unit length."""
    n = gram.n_samples
    assert space.target is not None
    Y = basis.T @ label_factor(space.target, n, epsilon)
    D = Y[:, :0]
    if space.domain is not None and weight > 0:
        D = basis.T @ label_factor(space.domain, n, epsilon)
    mu, a, n_informative = dcm_scores(G, Y, D, weight, gram.tolerance)
    m = max(n_informative, 1)
    if fold.template.n_components is not None:
        m = min(m, fold.template.n_components)
    elif fold.is_continuous and n_informative:
        m = int((mu > CONTINUOUS_CUT * mu[0]).sum())
    return np.asarray(a[:, :m] / np.linalg.norm(a[:, :m], axis=0))


def _project_for_ridges(
    fold: Any, gram: Gram, V: Matrix, KV: Matrix, ridges: Sequence[float]
) -> dict[float, tuple[Any, Array]]:
    """Project training and test rows onto the directions V for all ridges at once."""
    finite_ridges = [ridge for ridge in ridges if not np.isinf(ridge)]
    shifts = [gram.n_samples * ridge for ridge in finite_ridges]
    solutions = dict(zip(finite_ridges, gram.solve_shifts(V, shifts), strict=True))
    pairs = [(solutions[r].X, solutions[r].image) if r in solutions else (V, KV) for r in ridges]
    dual, image = (gram.hstack(list(blocks)) for blocks in zip(*pairs, strict=True))
    train, test = fold.project(gram, dual, image)
    n = len(ridges)
    return dict(zip(ridges, zip(train.split(n), np.hsplit(test, n), strict=True), strict=True))


@dataclass(frozen=True)
class RowFold:
    """A split with its rows in memory; the template sets the arguments that are not searched."""

    template: Any
    data: Data  #: training rows and their labels
    X_test: Array

    @property
    def is_continuous(self) -> bool:
        """Whether the target is continuous."""
        return self.data.target is not None and self.data.target.values is not None


class ExactFold(RowFold):
    """A split for exact estimators."""

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel with its resolved gamma."""
        X = self.data.X
        return resolved_kernel(self.template, backend_of(X), X, self.data.weights)

    @cached_property
    def _operator(self) -> Any:
        """Gram operator of the training rows, without labels."""
        X = self.data.X
        labels = unlabelled_rows(len(X), self.data.weights)
        return self.template._gram(X, self.kernel, labels)[0]

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        data, template = self.data, self.template
        if conditional != template.conditional:  # some projections do not have this argument
            template.set_params(conditional=conditional)
        domain = data.domain if template._uses_domain else None
        gram, n_rows = copy(self._operator), len(data.X)
        gram.labels = template._label_rows(n_rows, data.target, domain, data.weights)
        return gram, gram.labels.space

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[ProjectedRows, Array]:
        """Project test rows; ``image`` contains the projected training rows."""
        dual = gram.row_coefficients(dual)
        prepared_rows = self.kernel.prepare(self.data.X)
        Z_test = cross_product(self.kernel, self.X_test, prepared_rows, dual) - gram.offset(dual)
        return ProjectedRows(gram.row_values(image), self.data.y, self.data.weights), Z_test


def project_grid(
    template: Any, candidates: Sequence[dict[str, Any]], data: Data, X_test: Array
) -> list[tuple[Array, Array]]:
    """Project training and test rows with an exact estimator's candidates, which share a kernel."""
    models = [clone(template).set_params(**candidate) for candidate in candidates]
    target, domain = template._check_labels(backend_of(data.X), data.y, data.sample_domain, data.X)
    fold = ExactFold(models[0], replace(data, target=target, domain=domain), X_test)
    gram, space = fold.gram(template.conditional)
    solutions: list[Any] = [None] * len(models)
    # Candidates with fewer components can use a subset of the components computed first.
    for i in sorted(range(len(models)), key=lambda i: -(models[i].n_components or 0)):
        solution = models[i]._solve(gram, space, fold.is_continuous)
        solutions[i] = standardize(gram, solution, space, warn=models[i].n_components is not None)
    dual = gram.hstack([solution.dual for solution in solutions])
    image = gram.hstack([solution.values for solution in solutions])
    cuts = np.cumsum([solution.values.shape[1] for solution in solutions])[:-1]
    train, Z_test = fold.project(gram, dual, image)
    return list(zip(np.hsplit(train.values, cuts), np.hsplit(Z_test, cuts), strict=True))


@dataclass(frozen=True)
class FastFold(RowFold):
    """A split for Nystrom estimators."""

    def __post_init__(self) -> None:
        data, template = self.data, self.template
        arguments = backend_of(data.X), data.X, data.target, data.domain
        template._begin(*arguments)
        template._sums = template._sum_rows(*arguments, data.weights)

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        self.template.set_params(conditional=conditional)
        gram = self.template._finalize()[0]
        return gram, gram.labels

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[ProjectedRows, Array]:
        """Project training and test rows."""
        weights, nystrom = gram.weights(dual), self.template._map
        Z_train, Z_test = (nystrom.values(rows, weights) for rows in (self.data.X, self.X_test))
        mean = np.average(Z_train, axis=0, weights=self.data.weights)
        return ProjectedRows(Z_train - mean, self.data.y, self.data.weights), Z_test - mean


class MomentFold:
    """A split with moments of the training rows, in one cell per class, instead of the rows."""

    def __init__(self, template: Any, cells: sums.Cells, target: Labels, X_test: Array) -> None:
        self.template, self.cells, self.target, self.X_test = template, cells, target, X_test
        n_targets = 0 if target.values is None else target.values.shape[1]
        self.is_continuous, self.sums = n_targets > 0, sums.joined_cells(cells)
        self.first_target = len(self.sums.mean) - n_targets  # column index in the moments
        for moment in (self.sums.mean, self.sums.second):
            check_finite(moment, template._map.landmarks.dtype)

    def gram(self, conditional: bool) -> tuple[Gram, LabelSpace]:
        """Return the operator of the training rows and their label space."""
        features = slice(self.first_target)
        feature_sums = self.sums.mapped(lambda moment: moment[(features,) * moment.ndim])
        gram = self.template.set_params(conditional=conditional)._gram_of(feature_sums)[0]
        return gram, gram.labels

    def project(self, gram: Any, dual: Array, image: Array) -> tuple[ProjectedMoments, Array]:
        """Return moments of the projected training rows, and the projected test rows."""
        weights, nystrom, m = gram.weights(dual), self.template._map, gram.size
        mean, second_moment = self.sums.mean[:m], self.sums.second
        offset = mean @ weights - nystrom.kernel.constant * nystrom.dual(weights).sum(axis=0)
        Z_test = nystrom.values(self.X_test, weights) - offset
        if self.is_continuous:
            moments = ProjectedMoments(
                np.array([self.sums.n_samples]),
                np.zeros((1, weights.shape[1])),
                weights.T @ second_moment[:m, :m] @ weights,
                cross=weights.T @ second_moment[:m, self.first_target :],
                target_mean=self.sums.mean[self.first_target :],
            )
            return moments, Z_test
        class_codes = sorted(self.cells)
        cells = [self.cells[code] for code in class_codes]
        within_moment = sum(cell.second[:m, :m] for cell in cells)
        moments = ProjectedMoments(
            np.array([cell.n_samples for cell in cells]),
            np.array([cell.mean[:m] - mean for cell in cells]) @ weights,
            weights.T @ within_moment @ weights,
            self.target.names[class_codes],
        )
        return moments, Z_test


def sum_training_rows(template: Any, data: Data, splits: Sequence[Split]) -> Iterator[sums.Cells]:
    """Choose the template's landmarks, and yield moments of each split's training rows.

    There is one cell of moments per class. All splits share one pass over the rows (theory 13.5).
    """
    X, target, domain = data.X, data.target, data.domain
    assert target is not None
    assert domain is not None
    template._begin(backend_of(X), X, target, domain)
    label_columns = template._label_columns(target, domain, slice(None))
    if target.values is not None:
        label_columns = np.hstack([label_columns, target.values])
    zeros = np.zeros(len(X), dtype=np.int64)
    class_codes = zeros if target.codes is None else target.codes
    domain_codes = zeros if domain.codes is None else domain.codes
    n_categories, by_class = (target.n_categories, domain.n_categories), target.codes is not None
    options: Any = n_categories, label_columns, by_class, data.weights
    for part_codes, split_parts in split_rows(splits, len(X)):
        cell_rows = sums.CellRows.of_parts(part_codes, class_codes, domain_codes, *options)
        width = template._map.n_features + cell_rows.n_extra_columns
        sums.check_cell_memory(len(cell_rows.cell_keys), [width], X, MEMORY_ADVICE)
        cells = backend_of(X).sum_cells(template._map, X, cell_rows)
        for train_cells, _ in sums.cells_by_split(cells, split_parts):
            yield train_cells
