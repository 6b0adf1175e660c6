"""Functions that move fitted models between devices, and make them portable between machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from domainwise.base.arrays import is_tensor
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
    if torch_device.type == "cuda":
        if not torch.cuda.is_available():
            raise RuntimeError(
                f"to({str(device)!r}): CUDA is not available (torch {torch.__version__}). "
                'Use to("cpu").'
            )
        index = torch.cuda.current_device() if torch_device.index is None else torch_device.index
        if index >= torch.cuda.device_count():
            raise RuntimeError(
                f"to({str(device)!r}): there is no CUDA device with this index. Use an index "
                f"between 0 and {torch.cuda.device_count() - 1}."
            )
        torch_device = torch.device("cuda", index)
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
