"""ONNX graphs of every registered method agree with Python, also for unusual rows."""

import json
import warnings

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
runtime = pytest.importorskip("onnxruntime")

from domainwise import to_onnx  # noqa: E402
from domainwise.models.registry import METHODS  # noqa: E402
from domainwise.models.table_model import fit_table  # noqa: E402
from domainwise.tables.schema import check_table  # noqa: E402

CLASSES = np.array(["low", "mid", "top"])


def make_frame(target, n=60):
    rng = np.random.default_rng(0)
    color = rng.choice(["red", "blue", "dark green"], n)
    wide = rng.normal(size=n)
    value = wide + (color == "red") + 0.3 * rng.normal(size=n)
    targets = {
        "numbers": 50 * value + 1000,
        "words": CLASSES[np.digitize(value, [-0.3, 0.6])],
        "codes": (value > 0.3).astype(int),
    }
    frame = pandas.DataFrame(
        {
            "wide": 1e4 * wide + 3e5,
            "Well Name": rng.normal(size=n),
            "tiny": 1e-3 * rng.normal(size=n),
            "prediction": color,  # has the same name as an output
            "site": np.repeat(["a", "b", "c"], n // 3),
            "y": targets[target],
        }
    )
    frame.loc[::11, "Well Name"] = np.nan
    frame.loc[::13, "prediction"] = None
    return frame


def unusual_rows(frame):
    """Return rows with missing cells, an unknown category, and extreme numbers."""
    frame = frame.drop(columns="y")
    frame.loc[5, "prediction"] = "violet"
    frame.loc[6, ["wide", "prediction"]] = np.nan
    frame.loc[7, ["wide", "Well Name", "tiny"]] = np.nan
    frame.loc[8, "wide"] = 9e7
    frame.loc[9, "tiny"] = -1e3
    return frame


def feeds(X):
    """Return columns as the graph expects them: missing text is empty."""
    return {
        name: X[[name]].fillna("").to_numpy(dtype=object)
        if X[name].dtype == object
        else X[[name]].to_numpy()
        for name in X
    }


def run(graph, feeds_by_name):
    session = runtime.InferenceSession(
        graph.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return dict(
        zip([o.name for o in session.get_outputs()], session.run(None, feeds_by_name), strict=True)
    )


CASES = [
    (key, target)
    for key, method in METHODS.items()
    for target in ("codes", "words", "numbers")
    if not (method.classes_only and target == "numbers")
    and not (key == "ensemble" and target == "codes")  # too slow
]


@pytest.mark.parametrize(("method", "target"), CASES)
def test_a_table_model_of_every_method_agrees_with_its_graph(
    method, target, narrow_grids, few_trees
):
    narrow_grids()
    frame = make_frame(target)
    task = "regression" if target == "numbers" else "classification"
    table = check_table(frame, target="y", domain="site", task=task)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = fit_table(table, method)
    X = model.schema.prepare(unusual_rows(frame))
    graph = to_onnx(model)
    outputs = run(graph, feeds(X))
    expected = model.pipeline.predict(X)
    if target == "numbers":
        np.testing.assert_allclose(outputs["prediction_"][:, 0], expected, rtol=1e-5, atol=1e-5)
        return
    np.testing.assert_array_equal(outputs["prediction_"], expected)
    probable = hasattr(model.pipeline, "predict_proba")
    values = model.pipeline.predict_proba(X) if probable else model.pipeline.decision_function(X)
    second = outputs["probabilities" if probable else "decisions"]
    np.testing.assert_allclose(second.reshape(values.shape), values, atol=1e-5)
    metadata = {prop.key: prop.value for prop in graph.metadata_props}
    assert json.loads(metadata["classes"]) == model.pipeline.classes_.tolist()


@pytest.mark.parametrize("predictor", ["logistic", "svm"])
def test_other_predictors_after_a_projection_agree(predictor):
    frame = make_frame("words")
    model = fit_table(check_table(frame, target="y", domain="site"), "coir", predictor=predictor)
    X = model.schema.prepare(unusual_rows(frame))
    outputs = run(to_onnx(model), feeds(X))
    np.testing.assert_array_equal(outputs["prediction_"], model.pipeline.predict(X))


def test_a_regression_with_a_scaled_target_agrees():
    frame = make_frame("numbers")
    table = check_table(frame, target="y", domain="site")
    model = fit_table(table, "coir", predictor="svm")
    X = model.schema.prepare(unusual_rows(frame))
    outputs = run(to_onnx(model), feeds(X))["prediction_"][:, 0]
    np.testing.assert_allclose(outputs, model.pipeline.predict(X), rtol=1e-5)
