"""Functions that convert models of each type to ONNX graphs in float64; skl2onnx calls them.

Some of them convert scikit-learn models, because skl2onnx rounds support vectors, leaf values and
imputed values to float32, and does not support missing text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import onnx
import skl2onnx
from skl2onnx import _parse
from skl2onnx.common.data_types import DoubleTensorType, Int64TensorType, StringTensorType
from sklearn import dummy, ensemble
from sklearn.base import is_classifier, is_regressor
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.utils.validation import check_is_fitted

from domainwise import __version__
from domainwise.algebra.kernels.functions import Kernel
from domainwise.base.arrays import Array, to_host
from domainwise.estimators import ensemble as own_ensemble
from domainwise.estimators import invariant, ridge
from domainwise.estimators.adaptation import SiteAdapter
from domainwise.estimators.adaptation.corrections import MIN_CORRECTED, SMOOTHING
from domainwise.estimators.conformal import DomainConformal
from domainwise.estimators.ensemble.members import Member
from domainwise.estimators.ensemble.trees import (
    SymmetricBoostingClassifier,
    SymmetricBoostingRegressor,
)
from domainwise.estimators.invariant.tuning import InvariantSearchCV
from domainwise.estimators.projections import exact, fast
from domainwise.estimators.projections.dcmcv import DCMCV, FastDCMCV
from domainwise.estimators.projections.projection import Expansion
from domainwise.held_out.calibration.curves import Curve
from domainwise.held_out.calibration.decisions import MIN_SHARE, DecisionRule
from domainwise.held_out.search.scores import MIN_PROBABILITY
from domainwise.models.export.graph import (
    ClassifierOutput,
    Tensor,
    class_columns,
    kernel_values,
    sum_trees,
    weighted_sum,
)
from domainwise.models.table_model import TableModel
from domainwise.models.tuning import MethodSearch
from domainwise.tables.schema import ReadColumns
from domainwise.tables.shift.watch import ShiftWatch

#: Operator set versions: comparing strings needs version 19, and trees in float64 need version 3.
OPSETS = {"": 19, "ai.onnx.ml": 3}
#: ONNX types of labels, by the kind of their NumPy dtype; all other labels are text.
LABEL_TYPES = {"i": Int64TensorType, "f": DoubleTensorType}
#: Types that predict with another model, and the attribute that contains this model.
WRAPPERS: dict[type, str] = {
    DomainConformal: "estimator_",
    **dict.fromkeys((GridSearchCV, RandomizedSearchCV), "best_estimator_"),
    FrozenEstimator: "estimator",
}
#: Converters by exact type. They return a :class:`Tensor` or a :class:`ClassifierOutput`.
CONVERTERS: dict[type, Callable[[Any, Tensor], Any]] = {}


def convert(model: Any) -> Any:
    """Convert a fitted model; see :func:`domainwise.to_onnx`."""
    model = model.pipeline if isinstance(model, TableModel) else model
    check_is_fitted(model)
    steps, converted_types = [*_iter_steps(model)], [c for c in CONVERTERS if c is not Pipeline]
    inputs, last_step = _list_inputs(steps[0]), steps[-1]
    classes = np.asarray(getattr(last_step, "classes_", ()))
    is_too_large = classes.dtype.kind == "u" and bool((classes > np.iinfo(np.int64).max).any())
    refuse(last_step, "with classes that are too large for int64", is_too_large)
    output_names, input_names = ["projection"], {name for name, _ in inputs}
    if is_classifier(last_step) or is_regressor(last_step):
        output_names = ["prediction"]
    if is_classifier(last_step):
        output_names.append("probabilities" if hasattr(last_step, "predict_proba") else "decisions")
    # Converters are registered for this call only, so that other uses of skl2onnx do not change.
    options: dict[str, Any] = {
        "custom_conversion_functions": dict.fromkeys(converted_types, _add_nodes),
        "custom_shape_calculators": dict.fromkeys(converted_types, lambda operator: None),
        "custom_parsers": dict.fromkeys(converted_types, _declare_outputs),
        "options": {
            **{cls: {"zipmap": False} for cls in _parse.sklearn_classifier_list},
            **{cls: {} for cls in converted_types},
        },
        "final_types": [(name + "_" * (name in input_names), None) for name in output_names],
    }
    try:
        onnx_model = skl2onnx.convert_sklearn(
            make_pipeline(*steps), "model", inputs, target_opset=OPSETS, **options
        )
    except RuntimeError as error:
        raise ValueError(
            f"skl2onnx cannot convert {type(model).__name__}. Save it for Python with "
            f"domainwise.save. Error from skl2onnx: {error}"
        ) from error
    # skl2onnx converts names such as "Well Name" to identifiers: restore them.
    for graph_input, (name, _) in zip(onnx_model.graph.input, inputs, strict=True):
        for node in onnx_model.graph.node:
            node.input[:] = [name if n == graph_input.name else n for n in node.input]
        graph_input.name = name
    metadata = {"domainwise": __version__}
    if hasattr(last_step, "classes_"):
        metadata["classes"] = json.dumps(np.asarray(last_step.classes_).tolist())
    onnx.helper.set_model_props(onnx_model, metadata)
    return onnx_model


def _iter_steps(model: Any) -> Iterator[Any]:
    """Yield the estimators in order, without wrappers and steps that do not compute features."""
    if type(model) is MethodSearch and not model.decides:
        yield from _iter_steps(model.estimator_)
    elif type(model) in WRAPPERS:
        yield from _iter_steps(getattr(model, WRAPPERS[type(model)]))
    elif isinstance(model, Pipeline):
        for _, step in model.steps:
            yield from _iter_steps(step)
    elif model not in (None, "passthrough") and not isinstance(model, (ReadColumns, ShiftWatch)):
        yield model


def _list_inputs(first_step: Any) -> list[tuple[str, Any]]:
    """Return names and types of inputs: one array, or each column of a ColumnTransformer."""
    n_columns = first_step.n_features_in_
    if not isinstance(first_step, ColumnTransformer):
        return [("X", DoubleTensorType([None, n_columns]))]
    names = getattr(first_step, "feature_names_in_", np.array([f"x{i}" for i in range(n_columns)]))
    text_names: set[str] = set()
    for _, transformer, columns in first_step.transformers_:
        step = transformer.steps[0][1] if isinstance(transformer, Pipeline) else transformer
        arrays = [*getattr(step, "categories_", []), getattr(step, "statistics_", np.zeros(0))]
        if any(array.dtype.kind in "OU" for array in arrays):
            has_names = isinstance(columns, (list, np.ndarray)) and isinstance(columns[0], str)
            text_names |= {*(columns if has_names else np.atleast_1d(names[columns]))}
    types = {name: StringTensorType if name in text_names else DoubleTensorType for name in names}
    return [(str(name), types[name]([None, 1])) for name in names]


def _declare_outputs(scope: Any, model: Any, inputs: Any, custom_parsers: Any = None) -> Any:
    """Declare the outputs of a model, with their types."""
    operator = scope.declare_local_operator(None, model)
    operator.inputs = inputs
    is_text = isinstance(inputs[0].type, StringTensorType) and not isinstance(model, OneHotEncoder)
    types = [(StringTensorType if is_text else DoubleTensorType)([None, None])]
    if is_classifier(model):
        types.insert(0, LABEL_TYPES.get(_get_classes(model).dtype.kind, StringTensorType)([None]))
    operator.outputs = [scope.declare_local_variable("output", t) for t in types]
    return operator.outputs


def _add_nodes(scope: Any, operator: Any, container: Any) -> None:
    model, model_input = operator.raw_operator, operator.inputs[0]
    X, *others = [Tensor(scope, container, entry.full_name) for entry in operator.inputs]
    X = X.op("Concat", *others, axis=1) if others else X
    if not isinstance(model_input.type, DoubleTensorType | StringTensorType):
        X = X.cast("DOUBLE")
    outputs = [output := CONVERTERS[type(model)](model, X)]
    if isinstance(output, ClassifierOutput):
        scores = output.probabilities if hasattr(model, "predict_proba") else output.decisions
        outputs = [output.codes.lookup_in(_get_classes(model)), scores]
    for tensor, variable in zip(outputs, operator.outputs, strict=True):
        container.add_node("Identity", tensor.name, variable.full_name)


def _get_classes(model: Any) -> Array:
    classes = np.asarray(model.classes_)
    return classes.astype(np.int64) if classes.dtype.kind in "biu" else classes


def converts(*types: type) -> Callable[[Any], Any]:
    """Register a function as the converter for these types."""

    def register(function: Any) -> Any:
        CONVERTERS.update(dict.fromkeys(types, function))
        return function

    return register


def convert_inner(model: Any, X: Tensor) -> Any:
    """Convert a model that is part of another model."""
    refuse(model, "as part of another model", type(model) not in CONVERTERS)
    return CONVERTERS[type(model)](model, X)


def refuse(model: Any, reason: str, condition: bool = True) -> None:
    """Raise ValueError with the type of the model and the reason if ``condition`` is True."""
    if condition:
        raise ValueError(
            f"to_onnx cannot convert {type(model).__name__} {reason}. Replace it, or save the "
            "model for Python with domainwise.save."
        )


@converts(Pipeline)
def _convert_pipeline(model: Pipeline, X: Tensor) -> Any:
    for _, step in model.steps:
        X = X if step in (None, "passthrough") else convert_inner(step, X)
    return X


@converts(StandardScaler)
def _convert_scaler(model: StandardScaler, X: Tensor) -> Tensor:
    X = X - model.mean_ if model.with_mean else X
    return X if model.scale_ is None else X / model.scale_


@converts(SimpleImputer)
def _convert_imputer(model: SimpleImputer, X: Tensor) -> Tensor:
    refuse(model, "with add_indicator=True", model.add_indicator)
    fills, marker = model.statistics_, model.missing_values
    if fills.dtype.kind in "OU":  # missing text is empty in a graph
        text_marker = np.array(marker if isinstance(marker, str) else "", dtype=object)
        return X.where(X.op("Equal", text_marker), np.where(fills == fills, fills, "")[None])
    is_nan = marker is None or marker != marker
    is_missing = X.op("IsNaN") if is_nan else X.op("Equal", float(marker))
    kept_columns = np.flatnonzero(~np.isnan(fills))  # the imputer drops columns without values
    return X.where(is_missing, np.nan_to_num(fills)[None]).op("Gather", kept_columns, axis=1)


@converts(OneHotEncoder)
def _convert_one_hot(model: OneHotEncoder, X: Tensor) -> Tensor:
    """Return an indicator of each category, and one of the pooled (infrequent) categories.

    skl2onnx refuses pooled categories in several columns, and unknown ones fail in its graphs.
    """
    refuse(model, "with the argument drop", model.drop is not None)
    pooled_categories = getattr(model, "infrequent_categories_", [None] * len(model.categories_))
    blocks = []
    pairs = zip(model.categories_, pooled_categories, strict=True)
    for j, (categories, pooled) in enumerate(pairs):
        pools_unknown = pooled is not None and model.handle_unknown == "infrequent_if_exist"
        has_other_unknown = pooled is not None and not pools_unknown
        refuse(model, "with unknown categories that are not pooled", has_other_unknown)
        is_pooled = np.isin(categories.astype(str), [] if pooled is None else pooled.astype(str))
        kept = categories[~is_pooled]
        kept = np.where(kept == kept, kept, "") if kept.dtype.kind in "OU" else kept.astype(float)
        column = X.op("Gather", np.array([j]), axis=1)
        indicators = column.op("Equal", kept[None]).cast("DOUBLE")
        n_matches = indicators.reduce_rows("Sum")
        if pools_unknown:
            indicators = indicators.op("Concat", n_matches * -1.0 + 1.0, axis=1)
        elif model.handle_unknown == "error":
            indicators = indicators / n_matches  # NaN for an unknown category
        blocks.append(indicators)
    return blocks[0].op("Concat", *blocks[1:], axis=1)


@converts(Ridge, LinearRegression, LinearSVR)
@converts(LinearSVC, RidgeClassifier, LogisticRegression, LinearDiscriminantAnalysis)
def _convert_linear(model: Any, X: Tensor) -> Any:
    values = X @ np.atleast_2d(model.coef_).T + np.atleast_2d(model.intercept_)
    return _make_output(model, values) if is_classifier(model) else values


def _make_output(model: Any, values: Tensor) -> ClassifierOutput:
    """Return the output for decision values, with probabilities if the model predicts them."""
    class_values = class_columns(values, n := len(model.classes_))
    probabilities = None
    if hasattr(model, "predict_proba"):
        # The logistic function of v is the softmax of -v/2 and v/2.
        probabilities = (class_values * 0.5 if n == 2 else class_values).op("Softmax", axis=1)
    return ClassifierOutput(class_values.argmax(), values, probabilities)


@converts(SVR)
def _convert_svr(model: SVR, X: Tensor) -> Tensor:
    """Return the predictions of an SVR, or the decision values of an SVC with two classes."""
    return _sum_kernel_values(model, X, model.dual_coef_.T) + model.intercept_


@converts(SVC)
def _convert_svc(model: SVC, X: Tensor) -> ClassifierOutput:
    refuse(model, "with probability=True", len(model._probA) > 0)
    if (n := len(model.classes_)) == 2:
        values = _convert_svr(model, X)
        # If the value is 0, libsvm predicts the second class.
        return ClassifierOutput(class_columns(values, n).argmax(last=True), values)
    class_starts, pairs = np.cumsum([0, *model.n_support_]), list(combinations(range(n), 2))
    dual = np.zeros((len(model.support_), len(pairs)))
    for k, (i, j) in enumerate(pairs):
        for class_code, dual_row in ((i, j - 1), (j, i)):
            class_rows = slice(class_starts[class_code], class_starts[class_code + 1])
            dual[class_rows, k] = model.dual_coef_[dual_row, class_rows]
    first_of_pair, second_of_pair = np.eye(n)[np.array(pairs).T]
    signs = first_of_pair - second_of_pair
    values = _sum_kernel_values(model, X, dual) + model.intercept_
    votes = values.op("Greater", 0.0).cast("DOUBLE") @ signs + second_of_pair.sum(axis=0)
    confidence_sums = values @ signs
    decisions = votes + confidence_sums / ((confidence_sums.op("Abs") + 1.0) * 3.0)
    codes = (decisions if model.break_ties else votes).argmax()
    return ClassifierOutput(codes, decisions if model.decision_function_shape == "ovr" else values)


def _sum_kernel_values(model: Any, X: Tensor, dual: Array) -> Tensor:
    """Sum the kernel values at the support vectors, weighted by ``dual``."""
    if model.kernel == "precomputed":
        row_weights = np.zeros((model.shape_fit_[0], dual.shape[1]))
        row_weights[model.support_] = dual
        return X @ row_weights
    refuse(model, f"with kernel={model.kernel!r}", model.kernel not in ("rbf", "linear", "poly"))
    support_vectors = model.support_vectors_
    kernel = Kernel(model.kernel, model._gamma, model.degree, model.coef0)
    kernel = kernel.centred_on(support_vectors) if model.kernel == "rbf" else kernel
    return kernel_values(kernel, X, support_vectors) @ dual + kernel.constant * dual.sum(axis=0)


@converts(TransformedTargetRegressor)
def _convert_transformed_target(model: TransformedTargetRegressor, X: Tensor) -> Tensor:
    scaler = model.transformer_
    refuse(model, f"with {type(scaler).__name__}", type(scaler) is not StandardScaler)
    scale = np.ravel(1.0 if scaler.scale_ is None else scaler.scale_)
    values = convert_inner(model.regressor_, X) * scale
    return values + scaler.mean_ if scaler.with_mean else values


@converts(dummy.DummyRegressor, dummy.DummyClassifier)
def _convert_dummy(model: Any, X: Tensor) -> Any:
    if not is_classifier(model):
        return X.repeat_row(np.ravel(model.constant_).astype(np.float64))
    strategy = model.strategy
    refuse(model, f"with strategy={strategy!r}", strategy in ("uniform", "stratified"))
    probabilities = X.repeat_row(model.predict_proba(np.zeros((1, 1)))[0])
    return ClassifierOutput(probabilities.argmax(), None, probabilities)


@converts(ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor)
def _convert_boosting(model: Any, X: Tensor) -> Any:
    refuse(model, "with categorical_features", model._preprocessor is not None)
    field_names = ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left")
    trees = [
        (tree.nodes, tree.nodes["is_leaf"] > 0, tree.nodes["value"][:, None], [k])
        for stage in model._predictors
        for k, tree in enumerate(stage)
    ]
    values = sum_trees(X, field_names, trees) + model._baseline_prediction
    if hasattr(model, "classes_"):
        return _make_output(model, values)
    return values.op("Exp") if model.loss in ("poisson", "gamma") else values


@converts(SymmetricBoostingClassifier, SymmetricBoostingRegressor)
def _convert_symmetric_boosting(model: Any, X: Tensor) -> Any:
    n_trees, n_leaves, n_outputs = model.leaves_.shape
    split_columns = X.op("Gather", model.features_.ravel(), axis=1)
    is_above = split_columns.op("Greater", model.thresholds_.ravel()).cast("DOUBLE")
    is_above = is_above.op("Reshape", np.array([-1, *model.features_.shape]))
    leaf_indices = is_above @ (2.0 ** np.arange(model.features_.shape[1])[::-1])
    flat_indices = leaf_indices.cast("INT64") + n_leaves * np.arange(n_trees)
    values = flat_indices.lookup_in(model.leaves_.reshape(-1, n_outputs))
    values = values.op("ReduceSum", np.array([1]), keepdims=0) + model.start_
    return _make_output(model, values) if hasattr(model, "classes_") else values


@converts(
    *(ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    *(ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
)
def _convert_forest(model: Any, X: Tensor) -> Any:
    refuse(model, "with several targets", model.n_outputs_ > 1)
    trees = [tree.tree_ for tree in model.estimators_]
    # ONNX sums leaves in float32. Subtract a typical target, so that few digits are lost.
    offset = 0.0 if is_classifier(model) else float(trees[0].value[0, 0, 0])
    field_names = ("left_child", "right_child", "feature", "threshold", "missing_go_to_left")
    tree_tuples = []
    for tree in trees:
        node_values = (tree.value[:, 0] - offset) / len(trees)
        is_leaf, output_ids = tree.children_left < 0, range(tree.value.shape[2])
        tree_tuples.append((tree.__getstate__()["nodes"], is_leaf, node_values, output_ids))
    X = X.cast("FLOAT").cast("DOUBLE")  # scikit-learn's trees round rows to float32
    means = sum_trees(X, field_names, tree_tuples) + offset
    return ClassifierOutput(means.argmax(), None, means) if is_classifier(model) else means


@converts(*(getattr(m, name) for m in (exact, fast) for name in m.__all__))
@converts(DCMCV, FastDCMCV, invariant.InvariantFeatures)
def _convert_projection(model: Any, X: Tensor) -> Tensor:
    return _convert_expansion(model.expansion, X)


def _convert_expansion(expansion: Expansion, X: Tensor) -> Tensor:
    landmarks, dual, intercept = (
        None if array is None else np.asarray(to_host(array), dtype=np.float64)
        for array in (expansion.landmarks, expansion.dual, expansion.intercept)
    )
    return kernel_values(expansion.kernel, X, landmarks) @ dual + intercept


@converts(invariant.InvariantKernel)
def _convert_invariant_kernel(model: Any, X: Tensor) -> Tensor:
    K = kernel_values(model.base_kernel, X, getattr(model, "X_fit_", None))
    return model.correct(K - K.reduce_rows("Mean") - model.column_means)


@converts(invariant.InvariantSVR, invariant.InvariantSVC)
def _convert_invariant_machine(model: Any, X: Tensor) -> Any:
    output = convert_inner(model.machine_, convert_inner(model.transformer_, X))
    if not is_classifier(model):
        return model.on_target_scale(output)
    if not model.probability:
        return output
    class_values = class_columns(output.decisions, len(model.classes_))
    probabilities = _apply_curve(model.curve_, class_values)
    return _decide(model.decision_rule_, probabilities, output.decisions, output.codes)


@converts(ridge.InvariantRidgeCV, ridge.InvariantRidgeClassifierCV)
def _convert_ridge(model: Any, X: Tensor) -> Any:
    # finalize() runs the search if the model was fitted in batches.
    outputs = [_convert_expansion(expansion, X) for expansion in model.finalize().expansions_]
    values = weighted_sum(outputs, [1.0] * len(outputs))
    if not is_classifier(model):
        return _correct(model, values, X)
    class_values = class_columns(values, len(model.classes_))
    curve, rule = model.curve_, model.decision_rule_
    if curve is None:  # fitted to sums
        estimates = ((class_values + 1.0) * 0.5).op("Max", MIN_SHARE) / model.class_weights
        codes = _decide(rule, estimates / estimates.reduce_rows("Sum")).codes
        return ClassifierOutput(codes, values)
    probabilities = _apply_curve(curve, class_values)
    if not hasattr(model, "corrections_"):
        return _decide(rule, probabilities, values, class_values.argmax())
    probabilities = _correct(model, probabilities, X)
    log_values = probabilities.op("Max", 1e-300).op("Log")
    decisions = log_values @ np.array([[-1.0], [1.0]]) if len(model.classes_) == 2 else log_values
    return _decide(rule, probabilities, decisions, probabilities.argmax())


def _decide(
    rule: DecisionRule | None, probabilities: Any, decisions: Any = None, codes: Any = None
) -> ClassifierOutput:
    """Return the output of a classifier, with codes by a rule; ``codes`` if there is no rule."""
    if rule is not None and rule.kind == "argmax":
        codes = probabilities.argmax()
    elif rule is not None and rule.threshold is not None:
        is_last = rule.positive == 1
        selection = np.eye(2)[:, [rule.positive]]
        excess = probabilities @ selection - rule.threshold
        # In a tie, the positive class is predicted.
        codes = class_columns(excess if is_last else excess * -1.0, 2).argmax(last=is_last)
    elif rule is not None:
        codes = (probabilities / rule.shares).argmax()
    return ClassifierOutput(codes, decisions, probabilities)


@converts(MethodSearch)
def _convert_search(model: MethodSearch, X: Tensor) -> Any:
    """Calibrate the outputs of the estimator, correct them for a site, and decide by the rule."""
    output = convert_inner(model.estimator_, X)
    if not is_classifier(model):
        return _correct(model, output, X)
    probabilities = output.probabilities
    if model.curve_ is not None:
        class_values = _class_values(model.estimator_, output, X, len(model.classes_))
        probabilities = _apply_curve(model.curve_, class_values)
    probabilities = _correct(model, probabilities, X)
    codes = probabilities.argmax() if hasattr(model, "corrections_") else output.codes
    return _decide(model.applied_rule, probabilities, output.decisions, codes)


def _correct(model: Any, output: Tensor, X: Tensor) -> Tensor:
    """Apply the correction if the model was adapted to a site.

    ``X`` contains the features of the within-site model.
    """
    if not hasattr(model, "corrections_"):
        return output
    prior, correction = model.priors_["plain"], model.corrections_["plain"]
    if not is_classifier(model):
        level, slope, *within = correction
        if within and within[0] > 0.0:
            weight, offset = within
            within_output = convert_inner(model.within_, X) + offset
            output = output * (1.0 - weight) + within_output * weight
        return output * (1.0 + slope) + (level - slope * prior.centre)
    if not np.any(correction):
        return output
    biases = correction[:-1] - correction[-1] * prior.centre
    logs = output.op("Max", MIN_CORRECTED).op("Log")
    return (logs * (1.0 + correction[-1]) + biases).op("Softmax", axis=1)


def _apply_curve(curve: Curve, values: Tensor) -> Tensor:
    return (values * curve.slope + curve.bias).op("Softmax", axis=1)


@converts(InvariantSearchCV)
def _convert_invariant_search(model: Any, X: Tensor) -> Any:
    outputs = [convert_inner(member, X) for member in model.estimators_]
    if not is_classifier(model):
        return weighted_sum(outputs)
    n, pairs = len(model.classes_), zip(model.curves_, outputs, strict=True)
    probabilities = [_apply_curve(c, class_columns(o.decisions, n)) for c, o in pairs]
    return _decide(model.decision_rule_, weighted_sum(probabilities))


@converts(own_ensemble.DomainEnsembleRegressor, own_ensemble.DomainEnsembleClassifier)
def _convert_ensemble(model: Any, X: Tensor) -> Any:
    """Average the members' predictions without context."""
    Z = (X - model.domain_context_.mean_) / model.domain_context_.scale_
    low, high = model.feature_limits
    Z = Z.where(Z.op("IsNaN"), 0.0).op("Max", low).op("Min", high)
    outputs = []
    for name in model.weights_:
        try:
            outputs.append(_convert_member(model.members_[name], Z))
        except ValueError as error:
            raise ValueError(f"member {name!r} of {type(model).__name__}: {error}") from error
    mean = weighted_sum(outputs, list(model.weights_.values()))
    if not is_classifier(model):
        return _correct(model, model.on_target_scale(mean), Z)
    probabilities = _correct(model, mean, Z)
    return _decide(model.decision_rule_, probabilities, None, probabilities.argmax())


@converts(SiteAdapter)
def _convert_adapter(model: Any, X: Tensor) -> Any:
    output = convert_inner(model.estimator_, X)
    if not is_classifier(model):
        return _correct(model, output, X)
    probabilities, n = output.probabilities, len(model.classes_)
    curve = model.curves_.get("plain")
    if curve is not None:
        values = class_columns(output.decisions, n) if probabilities is None else probabilities
        if probabilities is not None:
            values = (values * (1.0 - SMOOTHING) + SMOOTHING / n).op("Log")
        probabilities = _apply_curve(curve, values)
    probabilities = _correct(model, probabilities, X)
    codes = probabilities.argmax() if hasattr(model, "corrections_") else output.codes
    return _decide(model.decision_rule_, probabilities, None, codes)


def _convert_member(member: Member, Z: Tensor) -> Tensor:
    Z = Z if member.clip is None else (Z / member.clip).op("Tanh") * member.clip
    mean = weighted_sum([_score_classes(model, Z, member.n_classes) for model in member.estimators])
    if member.curve is not None:
        return _apply_curve(member.curve, mean)
    if member.bounds is None:
        return mean
    return mean.op("Max", member.bounds[0]).op("Min", member.bounds[1])


def _score_classes(model: Any, Z: Tensor, n_classes: int) -> Tensor:
    """Return outputs by class, like :func:`~domainwise.held_out.search.scores.outputs`."""
    output = convert_inner(model, Z)
    return _class_values(model, output, Z, n_classes) if n_classes else output


def _class_values(model: Any, output: ClassifierOutput, Z: Tensor, n_classes: int) -> Tensor:
    """Return decision values or log-probabilities of all classes."""
    class_codes = np.arange(n_classes)
    if len(model.classes_) < n_classes:  # classes are codes
        class_codes = np.asarray(model.classes_, dtype=np.intp)
    if hasattr(model, "decision_function"):
        class_values = class_columns(output.decisions, len(class_codes))
        smallest_value = class_values.reduce_rows("Min").op("Min", 0.0)
    else:
        class_values = output.probabilities.op("Max", MIN_PROBABILITY).op("Log")
        smallest_value = Z.repeat_row(np.log([MIN_PROBABILITY]))
    if len(class_codes) == n_classes:
        return class_values
    # Classes that the model was not fitted to get the smallest value.
    column_indices = np.full(n_classes, len(class_codes))
    column_indices[class_codes] = np.arange(len(class_codes))
    return class_values.op("Concat", smallest_value, axis=1).op("Gather", column_indices, axis=1)


converts(own_ensemble.DomainContext)(
    lambda model, X: refuse(model, "(it needs all rows of a domain; graphs predict row by row)")
)
