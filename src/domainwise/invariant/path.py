"""Kernel values of one split, shared by a whole path of invariant machines."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_array

from domainwise.arrays import Array
from domainwise.checks.inputs import quiet_about_domains
from domainwise.checks.kernels import check_kernel, check_precomputed
from domainwise.gram import DenseGram
from domainwise.gram.tiles import kernel_matrix
from domainwise.invariant.correction import correction, domain_factor
from domainwise.invariant.kernel import (
    centred_cross,
    check_invariance_labels,
    corrected_gram,
    resolved_kernel,
    symmetric,
)
from domainwise.invariant.machines import InvariantMachine
from domainwise.labels.factors import LARGEST_WEIGHT, LabelSpace, RowLabels
from domainwise.scoring.predictions import fit_with_domains
from domainwise.search.search import scored

#: Arguments of InvariantSVC and InvariantSVR along which kernel values are used again.
SVM_ARGUMENTS = ("C", "epsilon", "class_weight", "tol")
PATH_ARGUMENTS = (*SVM_ARGUMENTS, "domain_weight", "conditional")


@dataclass
class KernelPath:
    """Kernel values of one split, and every invariant kernel that follows from them."""

    gram: Array  #: centred kernel matrix of the training rows
    cross: Array  #: between held-out and training rows, centred with the training means
    tolerance: float  #: see :func:`~domainwise.invariant.correction.correction`
    _factors: dict[bool, tuple[Array, Array, Array]] = field(default_factory=dict)

    @classmethod
    def evaluate(cls, machine: Any, X: Array, X_new: Array) -> KernelPath:
        """Evaluate a machine's kernel among training rows, and between new rows and those."""
        kernel = resolved_kernel(machine, X)
        labels = RowLabels(LabelSpace(len(X)))
        if kernel.name == "precomputed":
            gram, rows = DenseGram(X.astype(np.float64), labels, X.dtype), None
        else:
            rows = kernel.prepare(X)
            gram = DenseGram(kernel_matrix(kernel, rows), labels, X.dtype)
        K = symmetric(gram.K)
        return cls(K, centred_cross(kernel, X_new, rows, gram.row_means), gram.tolerance)

    def add_domains(self, machine: Any, y: Any, sample_domain: Any) -> None:
        """Multiply the kernel with the domain factor that the machine's arguments ask for."""
        if machine.conditional in self._factors:
            return
        labels = check_invariance_labels(machine, y, sample_domain, len(self.gram))
        # As closely as any candidate needs it: they share the factor.
        F = domain_factor(machine, len(self.gram), *labels, LARGEST_WEIGHT)
        KF = self.gram @ F
        self._factors[machine.conditional] = (F.T @ KF, KF, self.cross @ F)

    def kernels(self, weight: float, conditional: bool) -> tuple[Array, Array]:
        """Return the invariant kernel of the training rows, and of new rows with those."""
        if weight == 0:
            return self.gram, self.cross
        inner, KF, crossF = self._factors[conditional]
        A, _ = correction(inner, weight, self.tolerance)
        images = KF @ A
        return corrected_gram(self.gram, images), self.cross - (crossF @ A) @ images.T


def last_step(estimator: Any) -> tuple[str, Any]:
    """Prefix of the machine's arguments in the estimator, and the machine."""
    prefix, machine = "", estimator
    if isinstance(estimator, Pipeline):
        prefix, machine = f"{estimator.steps[-1][0]}__", estimator.steps[-1][1]
    if not isinstance(machine, InvariantMachine):
        raise ValueError(
            "InvariantSearchCV searches InvariantSVC and InvariantSVR, alone or at the end of a "
            f"pipeline; got {type(machine).__name__}"
        )
    return prefix, machine


def kernel_groups(estimator: Any, candidates: list[dict[str, Any]]) -> list[list[int]]:
    """Candidates that share kernel values: those that agree in all but the path's arguments."""
    prefix, _ = last_step(estimator)
    along = {prefix + name for name in PATH_ARGUMENTS}
    groups: list[tuple[dict[str, Any], list[int]]] = []
    for i, candidate in enumerate(candidates):
        rest = {name: value for name, value in candidate.items() if name not in along}
        for other, members in groups:
            if other.keys() == rest.keys() and all(other[k] is rest[k] for k in rest):
                members.append(i)
                break
        else:
            groups.append((rest, [i]))
    return [members for _, members in groups]


def score_group(
    estimator: Any,
    candidates: list[dict[str, Any]],
    X: Array,
    y: Array,
    sample_domain: Array | None,
    split: tuple[Array, Array],
    scorer: Any,
) -> list[Any]:
    """Score candidates that share kernel values on one split."""
    train, held = split
    first = clone(estimator).set_params(**clone(candidates[0], safe=False))
    prefix, machine = last_step(first)
    domain = None if sample_domain is None else sample_domain[train]
    X_train, X_held = _prepared(first, machine, X, y, domain, train, held)
    # The positive part of what is no kernel is taken by the machines' own fit.
    exact = machine._is_exact(len(train)) and _is_sound(machine, X_train)
    path = KernelPath.evaluate(machine, X_train, X_held) if exact else None
    scores: list[Any] = [None] * len(candidates)
    settings = [_settings(machine, candidate, prefix) for candidate in candidates]
    # Without a weight there is nothing to be conditional on: the same kernel.
    kinds = [(m.domain_weight, bool(m.conditional and m.domain_weight)) for m in settings]
    for weight, conditional in dict.fromkeys(kinds):
        members = [i for i, kind in enumerate(kinds) if kind == (weight, conditional)]
        if path is None:
            for i in members:
                with quiet_about_domains(), warnings.catch_warnings():
                    warnings.filterwarnings("ignore", ".* are no kernel")  # the last fit says it
                    fitted = settings[i].fit(X_train, y[train], sample_domain=domain)
                scores[i] = scored(scorer, fitted, X_held, y[held])
            continue
        if weight:
            path.add_domains(settings[members[0]], y[train], domain)
        K, cross = path.kernels(weight, conditional)
        asked = {i: [getattr(settings[i], n, None) for n in SVM_ARGUMENTS] for i in members}
        # These matrices are finite, and looking at them again would take as long as many a fit.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for i in members:
                same = next(j for j in members if asked[j] == asked[i])
                if same == i:
                    fitted = settings[i]._exact_machine().fit(K, y[train])
                    scores[i] = scored(scorer, fitted, cross, y[held])
                scores[i] = scores[same]
    return scores


def _is_sound(machine: Any, X: Array) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if machine.kernel == "precomputed":
            return check_precomputed(X)
        return check_kernel(resolved_kernel(machine, X), X).sound


def _settings(machine: Any, candidate: dict[str, Any], prefix: str) -> Any:
    """The machine with a candidate's arguments along the path."""
    changed = copy(machine)
    for name in PATH_ARGUMENTS:
        if prefix + name in candidate:
            setattr(changed, name, candidate[prefix + name])
    changed._validate_params()
    return changed


def _prepared(
    estimator: Any,
    machine: Any,
    X: Array,
    y: Array,
    domain: Array | None,
    train: Array,
    held: Array,
) -> tuple[Array, Array]:
    """Training and held-out rows as the machine sees them, after the pipeline's other steps."""
    if isinstance(estimator, Pipeline):
        by_row = getattr(X, "iloc", X)
        both = [by_row[train], by_row[held]]
        if len(estimator) > 1:
            steps = fit_with_domains(estimator[:-1], both[0], y[train], domain)
            both = [steps.transform(rows) for rows in both]
    else:
        columns = train if machine.kernel == "precomputed" else slice(None)
        both = [np.asarray(X)[rows][:, columns] for rows in (train, held)]
    rows, new = (check_array(each, dtype=(np.float64, np.float32)) for each in both)
    return rows, new
