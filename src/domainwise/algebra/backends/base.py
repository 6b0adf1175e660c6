"""Backends: the computations that differ between arrays, tensors and Dask collections.

An estimator gets the backend for X once in each call to ``fit``, ``partial_fit`` or ``transform``.
The argument ``rows`` is X as returned by :meth:`Backend.check_rows`. A backend's Gram operators
multiply the kernel matrix by matrices with few columns
(:mod:`domainwise.algebra.methods.contract`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from domainwise.algebra.gram import Gram, StreamedGram
from domainwise.algebra.gram.sums import Cells, NystromSums, sum_cells, sum_rows
from domainwise.algebra.gram.tiles import cross_product
from domainwise.algebra.kernels.approximations import Basis
from domainwise.algebra.kernels.functions import Kernel, check_kernel, make_kernel
from domainwise.base.arrays import Array, cast, is_dask, is_tensor
from domainwise.base.inputs import Labels, check_sample_domain, check_target, validate_rows
from domainwise.base.messages import warn_caller

#: Names of fitted attributes that are stored on the device of X.
_ATTRIBUTES = "X_fit_ landmarks_ frequencies_ dual_coef_ embedding_ eigenvalues_ _offset"
FITTED_ARRAYS = tuple(_ATTRIBUTES.split())

_DEVICE_KEY = "domainwise tensor"


class Movable:
    """Mixin for models that can be moved to another device after fitting."""

    def to(self, device: str) -> Self:
        """Move a fitted model to a torch device, in place.

        Parameters
        ----------
        device : torch.device or str
            A device such as ``"cuda:1"`` or ``"cpu"``. ``"numpy"`` converts fitted tensors to
            arrays, so that the model accepts arrays and does not need torch.

        Returns
        -------
        self : object
        """
        check_is_fitted(self)
        if hasattr(self, "finalize"):
            self.finalize()
        move(self, device)
        return self


def move(model: Any, device: Any) -> None:
    """Move a model's fitted arrays to a torch device; ``"numpy"`` converts them to NumPy."""
    for name in FITTED_ARRAYS:
        if name in vars(model):
            setattr(model, name, to_device(getattr(model, name), device))
    if "best_estimator_" in vars(model):
        move(model.best_estimator_, device)
    if hasattr(model, "expansions_"):
        model.expansions_ = [expansion.to(device) for expansion in model.expansions_]


def to_device(array: Any, device: Any) -> Any:
    """Convert an array to a tensor on ``device``, or to NumPy if ``device`` is ``"numpy"``."""
    if isinstance(device, str) and device == "numpy":
        return array.cpu().numpy() if is_tensor(array) else array
    import torch

    torch_device = torch.device(device)
    if torch_device.type not in ("cpu", "cuda"):
        raise ValueError(
            f'to({str(device)!r}): the device must be of type cpu or cuda. Use to("cpu").'
        )
    return torch.as_tensor(array).to(torch_device)


def to_portable(state: dict[str, Any], names: Sequence[str] = FITTED_ARRAYS) -> dict[str, Any]:
    """Return a state in which each tensor is replaced by a dict with an array and its device."""
    return {
        name: {_DEVICE_KEY: str(value.device), "array": value.cpu().numpy()}
        if name in names and is_tensor(value)
        else value
        for name, value in state.items()
    }


def from_portable(state: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`to_portable`; if a device is not available, warn and use the CPU."""
    state = dict(state)
    for name, entry in state.items():
        if not isinstance(entry, dict) or _DEVICE_KEY not in entry:
            continue
        import torch

        device = torch.device(entry[_DEVICE_KEY])
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            warn_caller(
                f"the model was saved on {device}, which is not available. Its tensors are now on "
                "the CPU."
            )
            device = torch.device("cpu")
        state[name] = torch.from_numpy(np.array(entry["array"])).to(device)
    return state


NAN_ADVICE = "Impute such values, or remove the rows that contain them."


class Backend:
    """The computations that depend on the type of X; this class is for NumPy arrays."""

    streamed_gram: Callable[..., Gram] = StreamedGram
    sum_rows: Callable[..., NystromSums] = staticmethod(sum_rows)
    sum_cells: Callable[..., Cells] = staticmethod(sum_cells)

    # Argument checks

    def check_rows(
        self, estimator: Any, X: Any, *, reset: bool = True, ensure_min_samples: int = 1
    ) -> Any:
        """Check X; store the number and names of its features if ``reset``, else compare them."""
        options = {"reset": reset, "ensure_min_samples": ensure_min_samples}
        return np.asarray(validate_rows(estimator, X, dtype=(np.float64, np.float32), **options))

    def check_target(self, y: Any, rows: Any, kernel: Any, *, min_classes: int = 2) -> Labels:
        """Check that y is valid and has one entry per row."""
        y = self.labels_in_memory(y, rows, "y")
        return check_target(y, len(rows), kernel, min_classes=min_classes)

    def check_sample_domain(self, sample_domain: Any, rows: Any, kernel: Any) -> Labels:
        """Check that sample_domain is valid and has one entry per row."""
        sample_domain = self.labels_in_memory(sample_domain, rows, "sample_domain")
        return check_sample_domain(sample_domain, len(rows), kernel)

    def labels_in_memory(self, labels: Any, rows: Any, name: str) -> Any:
        """Return labels in host memory; raise an error if they belong to another backend."""
        if is_dask(labels):
            raise TypeError(
                f"{name} is a Dask collection but X is not. Pass X as a Dask collection, or pass "
                f"{name}.compute()."
            )
        if is_tensor(labels) and labels.device.type != "cpu":
            raise ValueError(
                f"{name} is on {labels.device}, but X is not a tensor on that device. Pass "
                f"{name}.cpu()."
            )
        return labels

    def check_same_device(self, coefficients: Any, rows: Any) -> None:
        """Raise an error if a fitted model and the rows to project are on different devices."""
        if is_tensor(coefficients):
            raise TypeError(
                f"X is not a tensor, but this model is on {coefficients.device}. Pass a tensor on "
                'that device, or call to("numpy") on the model first.'
            )

    # Fits

    def resolve_kernel(self, kernel: Any, rows: Any, **arguments: Any) -> Kernel:
        """Return the kernel, with its parameters computed from the rows."""
        return check_kernel(make_kernel(kernel, rows, **arguments), rows)

    def partitions(self, X: Any, y: Any, sample_domain: Any, weights: Any = None) -> Any:
        """Return the partitions of X, y and sample_domain; None if X is not a Dask collection."""
        return None

    # Fitted models

    def finish_fit(self, model: Any, X: Any) -> None:
        """Finish a fit, for example by moving the model's arrays to the device of X."""

    def cross_product(self, kernel: Basis, rows: Any, support: Any, dual: Any) -> Any:
        """Return ``(k(rows, support) - kernel.constant) dual``."""
        return cross_product(kernel, rows, kernel.prepare(support), dual)

    def transform(self, model: Any, rows: Any) -> Any:
        """Project checked rows with a fitted model."""
        expansion = model.expansion
        if expansion.landmarks is None:
            Z = rows @ expansion.dual
        else:
            Z = self.cross_product(expansion.kernel, rows, expansion.landmarks, expansion.dual)
        return cast(Z + expansion.intercept, rows.dtype)

    def predict(self, model: Any, method: str, rows: Any) -> Any:
        """Call the given method of a fitted model on rows."""
        return getattr(model, method)(rows)


@dataclass(frozen=True)
class LabelRules:
    """Rules for the labels of later rows, determined by the first rows of a fit."""

    kinds: tuple[str, str]  #: result of :func:`kinds_of_labels` for the first rows
    target_kernel: Any  #: None if the method does not use targets
    domain_kernel: Any  #: None if the method does not use domains

    def check(self, y: Any, domains: Any, n_rows: int) -> tuple[Labels | None, Labels]:
        """Check the labels of ``n_rows`` later rows, which are in memory."""
        target = None
        if y is not None and self.target_kernel is not None:
            target_kernel = self._label_kernel(y, self.kinds[0], "y", "target_kernel")
            target = check_target(y, n_rows, target_kernel, min_classes=1)
        if domains is None or self.domain_kernel is None:
            return target, check_sample_domain(None, n_rows)
        domain_kernel = self._label_kernel(domains, self.kinds[1], "sample_domain", "domain_kernel")
        return target, check_sample_domain(domains, n_rows, domain_kernel)

    def _label_kernel(self, labels: Array, kind: str, name: str, kernel_argument: str) -> Any:
        kernel = getattr(self, kernel_argument)
        if kind.startswith("continuous"):
            return "rbf" if kernel == "auto" else kernel
        if kernel == "auto" and labels.dtype.kind == "f":
            finite_values = labels[np.isfinite(labels)]
            if (finite_values != np.round(finite_values)).any():
                raise ValueError(
                    f"{name} contains continuous values, but the rows that were read first contain "
                    f'only categories. If {name} is continuous, set {kernel_argument}="rbf".'
                )
        return "delta"


def kinds_of_labels(target: Labels | None, domain: Labels) -> tuple[str, str]:
    """Return the kinds of y and sample_domain, which must be the same in all batches of a fit."""

    def kind_of(labels: Labels | None) -> str:
        if labels is None:
            return "no labels"
        if labels.values is not None:
            n_columns = labels.values.shape[1]
            return f"continuous values ({n_columns} column{'s' * (n_columns > 1)})"
        return f"{'string' if labels.names.dtype.kind in 'UO' else 'numeric'} labels"

    return kind_of(target), kind_of(domain)


def check_kinds(kinds: tuple[str, str], target: Labels | None, domain: Labels) -> None:
    """Raise ValueError if the labels of a batch differ in kind from those in earlier batches."""
    comparisons = zip(("y", "sample_domain"), kinds_of_labels(target, domain), kinds, strict=True)
    for name, label_kind, earlier_kind in comparisons:
        if label_kind != earlier_kind:
            raise ValueError(
                f"{name} contains {label_kind} in this batch, but {earlier_kind} in earlier "
                "batches. Pass the same kind of labels in every batch."
            )
