"""The command export, as a person at a terminal uses it."""

import json

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
runtime = pytest.importorskip("onnxruntime")
testing = pytest.importorskip("typer.testing")

import domainwise  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.datasets import make_synthetic  # noqa: E402

runner = testing.CliRunner()


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    data = make_synthetic(n_domains=3, n_per_domain=20, random_state=0)
    frame = pandas.DataFrame(data.data[:, :3], columns=["a", "b (%)", "c"])
    frame["kind"] = np.array(["x", "y"])[np.arange(len(frame)) % 2]
    frame.assign(target=data.target, site=data.sample_domain).to_csv(folder / "d.csv", index=False)
    where = ["--target", "target", "--domain", "site", "--method", "svm", "--no-check"]
    assert run("fit", folder / "d.csv", *where, "-o", folder / "m.skops").exit_code == 0
    return folder


def test_a_model_file_becomes_a_graph_that_predicts_the_same(folder):
    done = run("export", folder / "m.skops", "-o", folder / "m.onnx", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["input"] == ["a", "b (%)", "c", "kind"]
    assert answer["output"] == ["prediction", "probabilities"]
    assert (
        run("predict", folder / "m.skops", folder / "d.csv", "-o", folder / "p.csv").exit_code == 0
    )
    rows, expected = pandas.read_csv(folder / "d.csv"), pandas.read_csv(folder / "p.csv")
    inputs = {name: rows[[name]].to_numpy() for name in ("a", "b (%)", "c")}
    inputs["kind"] = rows[["kind"]].to_numpy(dtype=object)
    labels, probabilities = runtime.InferenceSession(folder / "m.onnx").run(None, inputs)
    np.testing.assert_array_equal(labels, expected["prediction"])
    np.testing.assert_allclose(probabilities[:, 1], expected["probability_1"], atol=1e-5)


def test_nothing_is_overwritten_and_other_endings_are_refused(folder):
    (folder / "there.onnx").write_text("kept")
    for out, words in (("there.onnx", "--force"), ("m.txt", ".onnx")):
        done = run("export", folder / "m.skops", "-o", folder / out)
        assert done.exit_code == 2
        assert words in done.output
    assert (folder / "there.onnx").read_text() == "kept"
    done = run("export", folder / "m.skops", "-o", folder / "there.onnx", "--force")
    assert done.exit_code == 0
    assert "prediction, probabilities" in done.output


def test_a_model_that_cannot_be_converted_is_refused_by_name(folder):
    model = domainwise.DomainContext().fit(np.zeros((3, 2)))
    domainwise.save(model, folder / "context.skops")
    done = run("export", folder / "context.skops", "-o", folder / "context.onnx")
    assert done.exit_code == 2
    assert "DomainContext" in done.output
    assert not (folder / "context.onnx").exists()
