"""Backend for tensors on a CPU or a CUDA device: checks, labels and operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import validate_data

from domainwise.algebra.backends.base import NAN_ADVICE, Backend, move
from domainwise.algebra.gram.torch import operator
from domainwise.algebra.kernels.approximations import Basis
from domainwise.base import inputs
from domainwise.base.arrays import to_device_of, to_host
from domainwise.base.inputs import Labels

Tensor = Any

FLOAT_DTYPES = (torch.float32, torch.float64)


class TorchBackend(Backend):
    """Backend for tensors: rows and models stay on their device; small matrices are on the host."""

    streamed_gram = operator.TorchStreamedGram
    sum_rows = staticmethod(operator.sum_rows)
    sum_cells = staticmethod(operator.sum_cells)

    def check_rows(
        self, estimator: Any, X: Tensor, *, reset: bool = True, ensure_min_samples: int = 1
    ) -> Tensor:
        """Check X on its device, and detach it from the autograd graph."""
        X = check_tensor(X, "X")
        if X.ndim != 2:
            raise ValueError(
                f"Expected a 2D tensor as X, got {X.ndim} dimension(s): shape {tuple(X.shape)}. "
                "Reshape your data with X.reshape(-1, 1) for one feature or X.reshape(1, -1) for "
                "one row."
            )
        if X.dtype not in FLOAT_DTYPES:
            raise TypeError(
                f"X has dtype {X.dtype}. Convert it with X.to(torch.float32) or "
                "X.to(torch.float64)."
            )
        n, p = X.shape
        if n < ensure_min_samples or not p:
            raise ValueError(
                f"Found a tensor of {n} sample(s) with {p} feature(s) while a minimum of "
                f"{ensure_min_samples} sample(s) and 1 feature is required by "
                f"{type(estimator).__name__}."
            )
        # aminmax returns NaN if any value is NaN, and needs no mask with the shape of X.
        if not all(bool(extreme.isfinite()) for extreme in X.aminmax()):
            raise ValueError(f"Input X contains NaN or infinity. {NAN_ADVICE}")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X.contiguous()

    def check_target(self, y: Any, rows: Tensor, kernel: Any, *, min_classes: int = 2) -> Labels:
        """Check y; integer labels are encoded on the device, other labels on the host."""
        y = _label_array(y, "y", rows)
        if isinstance(y, torch.Tensor) and y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        labels = _encode_integers(y, len(rows), kernel, "y")
        if labels is None:
            labels = inputs.check_target(to_host(y), len(rows), kernel, min_classes=min_classes)
            return _codes_on_device(labels, rows)
        # Checking the class names on the host gives the same errors as checking all of y.
        inputs.check_target(labels.names, labels.n_categories, "delta", min_classes=min_classes)
        return labels

    def check_sample_domain(self, sample_domain: Any, rows: Tensor, kernel: Any) -> Labels:
        """Check sample_domain in the same way as y."""
        if sample_domain is None:
            codes = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
            return Labels(codes=codes, names=np.array([0]))
        domains = _label_array(sample_domain, "sample_domain", rows)
        labels = _encode_integers(domains, len(rows), kernel, "sample_domain")
        if labels is not None:
            return labels
        return _codes_on_device(
            inputs.check_sample_domain(to_host(domains), len(rows), kernel), rows
        )

    def check_same_device(self, coefficients: Any, rows: Tensor) -> None:
        """Raise an error if the model is not on the device of the rows."""
        if not isinstance(coefficients, torch.Tensor):
            raise TypeError(
                "X is a tensor, but this model contains NumPy arrays. Call to(X.device) on "
                "the model first."
            )
        if coefficients.device != rows.device:
            raise ValueError(
                f"X is on {rows.device}, but this model is on {coefficients.device}. Move one of "
                "them with to(device)."
            )

    def cross_product(self, kernel: Basis, rows: Tensor, support: Tensor, dual: Tensor) -> Tensor:
        """Return ``(k(rows, support) - kernel.constant) dual``."""
        return operator.kernel_product(kernel, support, rows)(dual.double())

    def finish_fit(self, model: Any, X: Tensor) -> None:
        """Move fitted arrays to the device of X, and convert coefficients to its precision."""
        move(model, X.device)
        if hasattr(model, "dual_coef_"):
            model.dual_coef_ = model.dual_coef_.to(X.dtype)


def _label_array(labels: Any, name: str, X: Tensor) -> Any:
    """Return labels as a tensor on the device of X, or as an array if they are not a tensor."""
    if not isinstance(labels, torch.Tensor):
        return inputs.plain_array(labels)
    labels = check_tensor(labels, name)
    if labels.device != X.device:
        raise ValueError(
            f"{name} is on {labels.device}, but X is on {X.device}. Pass {name}.to(X.device)."
        )
    return labels


def _codes_on_device(labels: Labels, X: Tensor) -> Labels:
    """Move codes that were computed on the host to the device of X."""
    return labels if labels.codes is None else replace(labels, codes=to_device_of(labels.codes, X))


def check_tensor(X: Tensor, name: str) -> Tensor:
    """Raise an error for unsupported tensors; return X detached from the autograd graph."""
    if X.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor ({X.layout}). Pass {name}.to_dense().")
    if X.device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"{name} is on {X.device}, but only CPU and CUDA devices are supported. Pass "
            f"{name}.cpu() or {name}.cuda()."
        )
    if X.dtype.is_complex:
        raise ValueError(f"Complex data not supported: {name} is {X.dtype}. Pass real numbers.")
    return X.detach()


def _encode_integers(labels: Any, n_rows: int, kernel: Any, name: str) -> Labels | None:
    """Encode integer labels on the device; return None for labels that the host has to check."""
    if isinstance(labels, np.ndarray) or labels.ndim != 1 or kernel not in ("auto", "delta"):
        return None
    if labels.dtype.is_floating_point:
        is_integer = torch.isfinite(labels) & (labels == labels.round())
        if not bool(is_integer.all()):
            return None
    inputs.check_length(len(labels), name, n_rows)
    names, codes = labels.unique(sorted=True, return_inverse=True)
    return Labels(codes=codes, names=to_host(names))
