"""From evaluate to fit: the folder says what was measured, and fit makes just that."""

import json

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
testing = pytest.importorskip("typer.testing")

import domainwise  # noqa: E402
from domainwise import evaluate  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.models import registry  # noqa: E402
from domainwise.tables.schema import load_table  # noqa: E402

COMMON = ["--target", "ill", "--domain", "site"]


def run(*arguments):
    return testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(message, *arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert message in " ".join(result.stderr.split())


def make_frame(n=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.normal(size=n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "note": rng.normal(size=n),
            "site": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
        }
    )
    score = (frame["age"] - 50) / 10 + frame["dose"] + 0.7 * rng.normal(size=n)
    frame["ill"] = np.where(score > 1, "yes", "no")
    frame.loc[::11, "age"] = np.nan
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table and an evaluation of it."""
    folder = tmp_path_factory.mktemp("recipe")
    make_frame().to_csv(folder / "clinic.csv", index=False)
    result = done("evaluate", folder / "clinic.csv", *COMMON, "--methods", "constant,linear,svm",
                  "--drop", "note", "--max-rows", 80, "--seed", 3, "--no-report",
                  "-o", folder / "eval")  # fmt: skip
    output = " ".join(result.stdout.replace("\\\n", "").split())
    assert f"domainwise fit --from {folder / 'eval'} -o eval.skops" in output
    return folder


def stored(folder):
    return json.loads((folder / "eval" / "evaluation.json").read_text("utf-8"))


def test_the_folder_says_what_was_measured_and_keeps_no_rows(folder):
    content = stored(folder)
    assert content["table"]["path"] == str(folder / "clinic.csv")
    assert len(content["table"]["sha256"]) == 64
    assert content["table"]["asked"]["drop"] == ["note"]
    assert content["recipe"]["decision"] == "auto"
    assert content["recipe"]["scoring"] == "balanced_accuracy"
    assert content["recipe"]["seed"] == 3
    assert content["recipe"]["grids"]["svm"]["gamma"]["in"] == "median"
    assert '"prediction' not in json.dumps(content)  # no key of that name: rows are elsewhere


@pytest.mark.parametrize("method", [None, "logistic"])
def test_fit_makes_the_model_that_was_measured_of_all_rows(folder, tmp_path, method):
    named = [] if method is None else ["--method", method]
    result = done("fit", "--from", folder / "eval", *named, "-o", tmp_path / "m.skops", "--json")
    answer = json.loads(result.stdout)
    key = stored(folder)["best"] if method is None else "linear"
    measured = next(m for m in stored(folder)["methods"] if m["key"] == key)
    assert answer["method"] == key
    assert answer["n_rows"] == 120
    assert answer["check"]["model"] == pytest.approx(measured["mean"])
    assert answer["check"]["worst"] == pytest.approx(measured["worst"])
    table = load_table(folder / "clinic.csv", target="ill", domain="site", drop=["note"])
    evaluation = evaluate(
        table.X, table.y, table.sample_domain, methods=["constant", key], random_state=3,
        max_rows=80, progress=False,
    )  # fmt: skip
    assert evaluation.find(key).mean == pytest.approx(measured["mean"])
    expected = evaluation.fit(key).predict(table.X)
    np.testing.assert_array_equal(domainwise.load(tmp_path / "m.skops").predict(table.X), expected)


def test_another_table_another_grid_and_other_options_are_refused(folder, tmp_path, monkeypatch):
    out = ["-o", tmp_path / "m.skops"]
    start = ["fit", "--from", folder / "eval", *out]
    make_frame(seed=1).to_csv(tmp_path / "other.csv", index=False)
    refused("is not the table that was evaluated in", *start, tmp_path / "other.csv")
    done("fit", tmp_path / "other.csv", "--from", folder / "eval", *out, "--force")
    start.append("--force")
    refused("'dcm' was not evaluated", *start, "--method", "dcm")
    typed = (["--target", "ill"], ["--drop", "age"], ["--seed", "1"], ["--seed", "0"])
    for option in (*typed, ["--not-balanced"]):
        refused(f"remove {option[0].replace('not-', '')}", *start, *option)
    refused("has no evaluation.json", "fit", "--from", tmp_path, *out, "--force")
    refused("pass a table with --target", "fit", *out, "--force")
    (tmp_path / "evaluation.json").write_text("{}")
    refused("the entry 'measure' is missing", "fit", "--from", tmp_path, *out, "--force")
    from dataclasses import replace

    other = replace(registry.METHODS["linear"], grids=({"C": (1.0,)}, {"alpha": (1.0,)}))
    monkeypatch.setitem(registry.METHODS, "linear", other)
    refused("the grid of method 'linear' has changed since", "fit", "--from", folder / "eval", "-o",
            tmp_path / "n.skops", "--method", "linear")  # fmt: skip


def test_models_of_ones_own_are_compared_and_fitted_from_the_command_line(
    folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "house_models.py").write_text(
        "from sklearn.linear_model import LogisticRegression\n"
        "def stiff():\n    return LogisticRegression(C=0.01, class_weight='balanced')\n"
    )
    done("fit", folder / "clinic.csv", *COMMON, "--method", "linear", "--no-check",
         "-o", "saved.skops")  # fmt: skip
    result = done("evaluate", folder / "clinic.csv", *COMMON, "--methods", "constant,linear",
                  "--estimator", "house_models:stiff", "--estimator", "saved.skops", "-o", "own",
                  "--no-report", "--json")  # fmt: skip
    methods = {m["key"]: m for m in json.loads(result.stdout)["methods"]}
    assert set(methods) == {"constant", "linear", "stiff", "saved"}
    assert methods["saved"]["mean"] == pytest.approx(methods["linear"]["mean"])
    start = ["fit", "--from", "own", "--method", "stiff", "-o", "stiff.skops"]
    refused("pass it with --estimator, as in the evaluation: house_models:stiff, saved.skops",
            *start)  # fmt: skip
    done(*start, "--estimator", "house_models:stiff")
    model = domainwise.load("stiff.skops")
    assert model[-1].estimator_.C == 0.01
    done("predict", "stiff.skops", folder / "clinic.csv", "-o", "out.csv")
    done("fit", "--from", "own", "--method", "saved", "-o", "again.skops",
         "--estimator", "saved.skops")  # fmt: skip
    done("predict", "again.skops", folder / "clinic.csv", "-o", "out2.csv")
    start = ["evaluate", folder / "clinic.csv", *COMMON, "-o", "none", "--estimator"]
    refused("pass package.module:factory or a model file", *start, "house_models")
    refused("No module named 'no_such'", *start, "no_such:model")
    refused("no attribute 'soft'", *start, "house_models:soft")


def test_a_folder_from_somebody_else_runs_no_code(folder, tmp_path, monkeypatch):
    """Neither a planted module nor a planted call runs, whichever method is fitted."""
    from domainwise.evaluation.folder import _content_digest

    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted.py").write_text("open('ran', 'w').close()\ndef model(): pass\n")
    (tmp_path / "eval").mkdir()
    content = stored(folder) | {"estimators": ["planted:model", "os:abort"]}
    for method in content["methods"]:
        method["key"] = method["key"].replace("svm", "abort")
    content["best"] = content["methods"][0]["key"]
    content["digest"] = _content_digest(content)
    (tmp_path / "eval" / "evaluation.json").write_text(json.dumps(content))
    start = ["fit", folder / "clinic.csv", "--from", "eval", "-o", "m.skops"]
    done(*start, "--method", "linear")
    refused("as in the evaluation: planted:model, os:abort", *start, "--method", "abort", "--force")
    assert not (tmp_path / "ran").exists()
    content["methods"][0]["per_domain"][0]["score"] = 0.999
    (tmp_path / "eval" / "evaluation.json").write_text(json.dumps(content))
    refused("was changed after it was written", *start, "--method", "linear", "--force")


def test_the_positive_class_is_named_on_the_command_line(folder, tmp_path):
    scores = []
    for name in ("yes", "no"):
        result = done("evaluate", folder / "clinic.csv", *COMMON, "--methods", "linear", "--metric",
                      "average_precision", "--positive", name, "-o", tmp_path / name,
                      "--no-report", "--json")  # fmt: skip
        scores.append(json.loads(result.stdout)["methods"][0]["mean"])
    assert scores[0] != pytest.approx(scores[1])
    refused("--positive 'maybe' must be one of the two classes", "evaluate", folder / "clinic.csv",
            *COMMON, "--positive", "maybe", "-o", tmp_path / "none")  # fmt: skip
