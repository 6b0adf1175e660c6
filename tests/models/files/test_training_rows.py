"""Model files state correctly which attributes contain training rows."""

import io
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import domainwise as dw
from domainwise.models.files.persistence import load, read_info, save
from domainwise.models.registry import METHODS
from domainwise.models.table_model import WITHOUT_ROWS, fit_table
from domainwise.tables.schema import check_table

sys.path.insert(0, str(Path(__file__).parent))
import make_fixtures

pytest.importorskip("skops")
pytest.importorskip("pandas")

COLUMNS = ["depth", "heat", "salt"]


@pytest.fixture(scope="module")
def table():
    frame = make_fixtures.table(4, 25).drop(columns="value")
    return check_table(frame, target="state", domain="site")


@pytest.fixture
def few_trees(monkeypatch):
    monkeypatch.setattr("domainwise.models.registry.N_TREES", 3)
    monkeypatch.setattr("domainwise.estimators.ensemble.members.TREES", 3)
    monkeypatch.setattr("domainwise.estimators.ensemble.members.COMPARED_TREES", 3)


def fitted(table, method, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_table(table, method, **options)


def float_arrays(path):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".npy"):
                array = np.load(io.BytesIO(archive.read(name)))
                if array.dtype.kind == "f" and array.ndim:
                    yield array


def rows_in(array, rows):
    """Count the rows whose values are adjacent in an array, along any axis."""
    is_in_array = np.zeros(len(rows), bool)
    for flat in (array.ravel("C"), array.ravel("F")):
        if flat.size < rows.shape[1]:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(flat, rows.shape[1])
        for i, row in enumerate(rows):
            near = windows[np.abs(windows[:, 0] - row[0]) < 1e-9]
            is_in_array[i] |= bool((np.abs(near - row) < 1e-9).all(axis=1).any())
    return int(is_in_array.sum())


@pytest.mark.parametrize("key", METHODS)
def test_a_file_contains_training_rows_only_in_listed_attributes(key, table, few_trees, tmp_path):
    path = tmp_path / "model.skops"
    model = fitted(table, key)
    model.save(path)
    numbers = table.X[COLUMNS].to_numpy(float)
    watch, prepare = (model.pipeline.named_steps[name] for name in ("watch", "prepare"))
    complete = numbers[np.isfinite(numbers).all(axis=1)]
    standardized = (complete - watch.mean_) / watch.scale_
    prepared = prepare.transform(table.X)[:, :3]
    count = sum(
        rows_in(array, rows)
        for array in float_arrays(path)
        for rows in (complete, standardized, prepared)
    )
    listed = read_info(path)["training_rows"]
    # The ensemble's members contain rows with transformed values, which are not counted here.
    assert bool(listed) == (count > 0 or key == "ensemble"), (listed, count)
    assert (key in WITHOUT_ROWS) == (not listed)
    assert not any("ShiftWatch" in name for name in listed)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (LogisticRegression(), []),
        (LinearSVC(), []),
        (SVC(), ["SVC.support_vectors_"]),
        (make_pipeline(Nystroem(n_components=5), LinearSVC()), ["Nystroem.components_"]),
        (dw.FastDCM(n_landmarks=10), ["FastDCM.landmarks_", "NystromMap.landmarks"]),
        (dw.InvariantRidgeClassifierCV(feature_map="fourier"), []),
        (dw.FastDCM(feature_map="fourier", n_landmarks=10), []),
        (dw.DomainContext(), []),
    ],
    ids=lambda value: repr(value)[:50] if hasattr(value, "fit") else "",
)
def test_models_fitted_to_arrays_list_their_training_rows(model, expected, tmp_path):
    make_fixtures.fitted(model, make_fixtures.CLASSES)
    save(model, tmp_path / "model.skops")
    assert read_info(tmp_path / "model.skops")["training_rows"] == expected
    counts = [rows_in(array, make_fixtures.X) for array in float_arrays(tmp_path / "model.skops")]
    assert any(counts) == bool(expected)


def test_methods_that_store_rows_are_rejected_before_they_are_fitted(table, monkeypatch):
    monkeypatch.setattr(dw.DCM, "fit", lambda *_, **__: pytest.fail("it was fitted"))
    for method in ("dcm", "auto"):
        with pytest.raises(
            ValueError, match=r"contain training rows. Use one of constant, linear, boos"
        ):
            fit_table(table, method, rows=False)
    assert fitted(table, "linear", rows=False).info["method"] == "linear"


def test_custom_estimators_that_store_rows_are_rejected(table):
    from domainwise.models.registry import own_method

    with pytest.raises(ValueError, match="'mine' contain training rows"):
        fitted(table, own_method(("mine", SVC())), rows=False)
    assert fitted(table, own_method(("mine", LogisticRegression())), rows=False)


def test_a_file_lists_attributes_with_training_targets(tmp_path):
    X, y = make_fixtures.X, make_fixtures.NUMBERS
    model = dw.InvariantRidgeCV(gammas=[0.1]).fit(X, y, sample_domain=make_fixtures.CODES)
    assert np.isin(model.held_out_.y, y).all()
    save(model, tmp_path / "ridge.skops")
    assert read_info(tmp_path / "ridge.skops")["training_targets"] == ["InvariantRidgeCV.held_out_"]
    testing = pytest.importorskip("typer.testing")
    from domainwise.cli import app

    shown = testing.CliRunner().invoke(app, ["info", str(tmp_path / "ridge.skops")]).stdout
    assert "stored without features in InvariantRidgeCV.held_out_" in " ".join(shown.split())
    model.held_out_ = None
    save(model, tmp_path / "without.skops")
    assert read_info(tmp_path / "without.skops")["training_targets"] == []
    np.testing.assert_array_equal(load(tmp_path / "without.skops").predict(X), model.predict(X))
