"""Files from older versions can be loaded, and their models return the recorded results."""

import sys
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn

import domainwise as dw
from domainwise.model_files.persistence import read_info

sys.path.insert(0, str(Path(__file__).parent))
import make_fixtures

pytest.importorskip("skops")
pytest.importorskip("pandas")

ARCHIVES = sorted(Path(__file__).parent.glob("format-*.tar.xz"))


@pytest.fixture(scope="session", params=ARCHIVES, ids=lambda path: path.name.split(".")[0])
def fixtures(request, tmp_path_factory):
    """Return a folder with the files from an archive, and the recorded results."""
    folder = tmp_path_factory.mktemp("models")
    with tarfile.open(request.param) as archive:
        archive.extractall(folder, filter="data")
    with np.load(folder / "answers.npz") as stored:
        answers = dict(stored)
    version = read_info(folder / "dcm.skops")["versions"]["scikit-learn"]
    if version.split(".")[:2] != sklearn.__version__.split(".")[:2]:
        pytest.skip(f"{request.param.name} was written with scikit-learn {version}")
    return folder, answers


def names_in(archive):
    with tarfile.open(archive) as opened:
        return [n.removesuffix(".skops") for n in opened.getnames() if n.endswith(".skops")]


@pytest.mark.parametrize("name", sorted({n for archive in ARCHIVES for n in names_in(archive)}))
def test_a_model_from_an_older_version_returns_the_recorded_results(name, fixtures):
    folder, recorded = fixtures
    path = folder / f"{name}.skops"
    expected = {key: value for key, value in recorded.items() if key.split("/")[0] == name}
    assert expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name.startswith(("table-", "federated-", "evaluation-")):
            answers = make_fixtures.table_answers(path)
        elif name.startswith("batches-"):
            answers = make_fixtures.answers(make_fixtures.next_batch(name, dw.load(path)))
        else:
            answers = make_fixtures.answers(dw.load(path))
    assert {f"{name}/{key}" for key in answers} >= expected.keys()
    for key, value in expected.items():
        answer = answers[key.split("/")[1]]
        if value.dtype.kind == "f":
            np.testing.assert_allclose(answer, value, rtol=1e-9, atol=1e-12, err_msg=key)
        else:
            np.testing.assert_array_equal(answer, value, err_msg=key)


@pytest.mark.parametrize("output", ["pandas", "polars"])
@pytest.mark.parametrize("name", ["table-state-linear", "table-state-dcm", "pipeline-dcm-lda"])
def test_a_loaded_model_does_not_depend_on_the_output_configuration(name, output, fixtures):
    pytest.importorskip(output)
    folder, recorded = fixtures
    answer = make_fixtures.table_answers if name.startswith("table") else None
    with sklearn.config_context(transform_output=output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder / f"{name}.skops"
        answers = answer(path) if answer else make_fixtures.answers(dw.load(path))
    for key in ("predict", "predict_proba"):
        expected = recorded[f"{name}/{key}"]
        if expected.dtype.kind == "f":
            np.testing.assert_allclose(answers[key], expected, rtol=1e-9, atol=1e-12)
        else:
            np.testing.assert_array_equal(answers[key], expected)
