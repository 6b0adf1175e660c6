"""Conversion of fitted models to ONNX graphs, which predict without Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domainwise.base.arrays import Estimator
from domainwise.base.messages import needs_extra

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["to_onnx"]


def to_onnx(model: Estimator) -> ModelProto:
    """Convert a fitted model to an ONNX graph that predicts each row separately, in float64.

    Parameters
    ----------
    model : estimator
        A projection, SVM, search or ensemble from this package, or a pipeline that contains one,
        such as a model from ``domainwise fit``. skl2onnx must be able to convert the other steps. A
        ShiftWatch is omitted, and an ensemble predicts without context, like ``predict(X)``.

    Returns
    -------
    graph : onnx.ModelProto
        It has one input, ``X``, or one input for each feature if columns are selected by name:
        numbers (double; NaN if missing) or text (empty if missing). The output of a transformer is
        ``projection``. Other models have the output ``prediction``; classifiers also have
        ``probabilities`` or, without ``predict_proba``, ``decisions`` (one column for two classes).
        The metadata contain the classes.

    Raises
    ------
    ValueError
        If the model contains something that cannot be converted, such as a kernel that is a Python
        function, or a :class:`~domainwise.DomainContext`. The message names it.

    See Also
    --------
    save : Save a model for Python.

    Examples
    --------
    >>> from domainwise import DCM, to_onnx
    >>> from domainwise.datasets import make_synthetic
    >>> data = make_synthetic(random_state=0)
    >>> dcm = DCM().fit(data.data, data.target, sample_domain=data.sample_domain)
    >>> [output.name for output in to_onnx(dcm).graph.output]
    ['projection']
    """
    with needs_extra("to_onnx", "onnx"):
        from domainwise.models.export.convert import convert
    return convert(model)
