"""From a model to a graph: skl2onnx takes pipelines apart and calls our converters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import skl2onnx
from skl2onnx import _parse
from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType
from sklearn.base import is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from domainwise import __version__
from domainwise.arrays import Array
from domainwise.export.graph import Classified, Tensor
from domainwise.export.parts import PARTS, WRAPPERS
from domainwise.models.table_model import TableModel
from domainwise.shift.watch import ShiftWatch

#: Versions of the operators: text can be compared since 19, trees in float64 since 3.
OPSETS = {"": 19, "ai.onnx.ml": 3}
#: Types of labels by NumPy's kind; all others are text.
LABELS = {"i": Int64TensorType, "f": DoubleTensorType}


def convert(model: Any) -> Any:
    """Convert a fitted model; see :func:`domainwise.to_onnx`."""
    model = model.pipeline if isinstance(model, TableModel) else model
    check_is_fitted(model)
    steps, types = list(_steps(model)), [kind for kind in PARTS if kind is not Pipeline]
    inputs, last = _inputs(steps[0]), steps[-1]
    taken = {name for name, _ in inputs}
    # Registered for this call only: other uses of skl2onnx are unchanged.
    ours: dict[str, Any] = {
        "custom_conversion_functions": dict.fromkeys(types, _convert),
        "custom_shape_calculators": dict.fromkeys(types, lambda operator: None),
        "custom_parsers": dict.fromkeys(types, _declare),
        "options": {
            **{kind: {"zipmap": False} for kind in _parse.sklearn_classifier_list},
            **{kind: {} for kind in types},
        },
        "final_types": [(name + "_" * (name in taken), None) for name in _outputs(last)],
    }
    try:
        made = skl2onnx.convert_sklearn(
            make_pipeline(*steps), "model", inputs, target_opset=OPSETS, **ours
        )
    except RuntimeError as error:
        raise ValueError(f"skl2onnx cannot convert {type(model).__name__}: {error}") from error
    # It has made identifiers of names such as "Well Name".
    for value, (name, _) in zip(made.graph.input, inputs, strict=True):
        for node in made.graph.node:
            node.input[:] = [name if source == value.name else source for source in node.input]
        value.name = name
    metadata = {"domainwise": __version__}
    if hasattr(last, "classes_"):
        metadata["classes"] = json.dumps(np.asarray(last.classes_).tolist())
    onnx.helper.set_model_props(made, metadata)
    return made


def _steps(model: Any) -> Iterator[Any]:
    """Estimators of a model, one after the other; what only watches or searches is left out."""
    if type(model) in WRAPPERS:
        yield from _steps(getattr(model, WRAPPERS[type(model)]))
    elif isinstance(model, Pipeline):
        for _, step in model.steps:
            yield from _steps(step)
    elif model not in (None, "passthrough") and not isinstance(model, ShiftWatch):
        yield model


def _outputs(last: Any) -> list[str]:
    if is_classifier(last):
        return ["prediction", "probabilities" if hasattr(last, "predict_proba") else "decisions"]
    return ["prediction"] if is_regressor(last) else ["projection"]


def _inputs(first: Any) -> list[tuple[str, Any]]:
    """Names and types of the inputs: one array, or a ColumnTransformer's columns."""
    n = first.n_features_in_
    if not isinstance(first, ColumnTransformer):
        return [("X", DoubleTensorType([None, n]))]
    names = getattr(first, "feature_names_in_", np.array([f"x{i}" for i in range(n)]))
    text: set[str] = set()
    for _, transformer, chosen in first.transformers_:
        step = transformer.steps[0][1] if isinstance(transformer, Pipeline) else transformer
        learnt = [*getattr(step, "categories_", []), getattr(step, "statistics_", np.zeros(0))]
        if any(values.dtype.kind in "OU" for values in learnt):
            named = isinstance(chosen, (list, np.ndarray)) and isinstance(chosen[0], str)
            text |= {*(chosen if named else np.atleast_1d(names[chosen]))}
    kinds = {True: StringTensorType, False: DoubleTensorType}
    return [(str(name), kinds[name in text]([None, 1])) for name in names]


def _declare(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of a part, with their types."""
    operator = scope.declare_local_operator(None, model)
    operator.inputs = inputs
    text = isinstance(inputs[0].type, StringTensorType)
    kinds = [(StringTensorType if text else DoubleTensorType)([None, None])]
    if is_classifier(model):
        kinds.insert(0, LABELS.get(_classes(model).dtype.kind, StringTensorType)([None]))
    operator.outputs = [scope.declare_local_variable("made", kind) for kind in kinds]
    return operator.outputs


def _convert(scope: Any, operator: Any, container: Any) -> None:
    model, source = operator.raw_operator, operator.inputs[0]
    X = Tensor(scope, container, source.full_name)
    if not isinstance(source.type, DoubleTensorType | StringTensorType):
        X = X.cast("DOUBLE")
    values = [output := PARTS[type(model)](model, X)]
    if isinstance(output, Classified):
        chosen = output.probabilities if hasattr(model, "predict_proba") else output.decisions
        values = [output.codes.taken_from(_classes(model)), chosen]
    for value, output in zip(values, operator.outputs, strict=True):
        container.add_node("Identity", value.name, output.full_name)


def _classes(model: Any) -> Array:
    classes = np.asarray(model.classes_)
    return classes.astype(np.int64) if classes.dtype.kind in "biu" else classes
