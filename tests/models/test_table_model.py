"""Models of whole tables: every method by name, saved and loaded, and class weights."""

import numpy as np
import pytest

from domainwise.models import table_model as models
from domainwise.models.registry import METHODS, Setting, find_method
from domainwise.tables import schema as tables
from domainwise.tables.errors import TableError

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")


def make_frame(n=120):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.integers(0, 5, n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "site": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
        }
    )
    frame["risk"] = (frame["age"] - 50) / 10 + 0.5 * rng.normal(size=n)
    frame["ill"] = np.where(frame["risk"] > 0, "yes", "no")
    frame.loc[::11, "age"] = np.nan
    frame.loc[::13, "sex"] = None
    return frame


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("target", ["ill", "risk"])
def test_every_method_is_fitted_saved_and_loaded(method, target, tmp_path, narrow_grids, few_trees):
    narrow_grids()
    frame = make_frame(48).drop(columns="risk" if target == "ill" else "ill")
    table = tables.check_table(frame, target=target, domain="site")
    if target == "risk" and METHODS[method].classes_only:
        with pytest.raises(ValueError, match="needs classes, but the target is continuous"):
            models.fit_table(table, method=method)
        return
    model = models.fit_table(table, method=method)
    model.save(tmp_path / "m.skops")
    again = models.TableModel.load(tmp_path / "m.skops")
    X = again.schema.prepare(frame)
    pandas.testing.assert_frame_equal(again.predictions(X), model.predictions(X))
    assert again.info["method"] == method
    if again.info["n_components"] is None:
        message = "has no projection. Fit a model with one of these methods: kpca"
        with pytest.raises(TableError, match=message):
            again.projection(X)
    else:
        assert again.projection(X).shape == (48, again.info["n_components"])


@pytest.mark.parametrize("predictor", ["logistic", "svm"])
def test_every_predictor_follows_a_projection(predictor, tmp_path):
    table = tables.check_table(make_frame(48), target="ill", domain="site", drop=["risk"])
    options = dict(method="coir", predictor=predictor, class_weight="balanced")
    model = models.fit_table(table, **options)
    model.save(tmp_path / "m.skops")
    again = models.TableModel.load(tmp_path / "m.skops")
    columns = list(again.predictions(table.X).columns)
    assert columns[-1] == "probability_yes"


def test_auto_is_the_ensemble_unless_a_table_is_large_and_searches_there_use_landmarks():
    assert find_method("auto", 20_000).key == "ensemble"
    assert find_method("auto", 20_001).key == "invariantridge"
    assert find_method("Ensemble+Context") is METHODS["ensemble"]
    with pytest.raises(ValueError, match="'svm\\+context' is unknown"):
        find_method("svm+context")
    for n_rows, count in ((3001, "auto"), (100_000, 500 / 100_000)):
        made = METHODS["fastdcmcv"].make(Setting(True, n_rows))
        assert made.estimator.named_steps["project"].n_landmarks == count


@pytest.mark.parametrize("name", ["logistic", "Ridge", "LINEAR", "linear"])
def test_displayed_names_are_accepted_names(name):
    assert find_method(name).key == "linear"
    for method in METHODS.values():
        assert all(find_method(label.upper()) is method for label in method.labels)


def test_classes_are_weighted_only_if_this_is_specified():
    frame = make_frame()
    frame["ill"] = np.where(frame["risk"] > 1.2, "yes", "no")
    table = tables.check_table(frame, target="ill", domain="site", drop=["risk"])
    for options in ({}, {"class_weight": "balanced"}):
        model = models.fit_table(table, method="linear", **options)
        assert model.pipeline[-1].estimator_.class_weight == options.get("class_weight")
        assert model.info["class_weight"] == options.get("class_weight")
    table = tables.check_table(make_frame(), target="risk", domain="site", drop=["ill"])
    with pytest.raises(ValueError, match="class_weight needs classes"):
        models.fit_table(table, method="linear", class_weight="balanced")
