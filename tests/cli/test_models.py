"""fit, predict, transform and info, as a person at a terminal uses them."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
testing = pytest.importorskip("typer.testing")

import domainwise  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.evaluation import evaluate  # noqa: E402
from domainwise.evaluation.constant import check_table  # noqa: E402
from domainwise.models import table_model as models  # noqa: E402
from domainwise.models.apply import apply_to_file  # noqa: E402
from domainwise.models.files import persistence  # noqa: E402
from domainwise.tables import schema as tables  # noqa: E402

runner = testing.CliRunner()
COMMON = ["--target", "ill", "--domain", "site"]


def make_frame(n=120, seed=0, noise=0.5):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.integers(0, 5, n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "site": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
        }
    )
    score = (frame["age"] - 50) / 10 + noise * rng.normal(size=n)
    frame["ill"] = np.where(score > 0, "yes", "no")
    frame["risk"] = score
    frame.loc[::11, "age"] = np.nan
    frame.loc[::13, "sex"] = None
    return frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a table, new rows, and a model fitted by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    make_frame().to_csv(folder / "data.csv", index=False)
    make_frame(70, seed=1).to_parquet(folder / "new.parquet")
    done = run("fit", folder / "data.csv", *COMMON, "--drop", "risk", "-o", folder / "m.skops",
               "--method", "dcm")  # fmt: skip
    assert done.exit_code == 0, done.output
    return folder


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def refused(message, *arguments):
    """Run, and expect exit code 2 with a message and without a traceback."""
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output
    assert message in " ".join(done.stderr.split())


def test_a_model_without_rows_can_be_asked_for(folder, tmp_path):
    done = run("fit", folder / "data.csv", *COMMON, "--drop", "risk", "-o", tmp_path / "m.skops",
               "--method", "dcm", "--no-rows")  # fmt: skip
    assert done.exit_code == 2
    assert "contain training rows" in " ".join(done.stderr.split())
    assert list(tmp_path.iterdir()) == []
    done = run("fit", folder / "data.csv", *COMMON, "--drop", "risk", "-o", tmp_path / "m.skops",
               "--method", "linear", "--no-rows", "--no-check")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "training rows none" in " ".join(run("info", tmp_path / "m.skops").stdout.split())
    shown = " ".join(run("info", folder / "m.skops").stdout.split())
    assert "training rows stored in DCM.X_fit_" in shown
    assert json.loads(run("info", folder / "m.skops", "--json").stdout)["training_rows"]


def test_thresholds_are_set_in_fit_shown_by_info_and_replaced_in_predict(folder, tmp_path):
    model, table = tmp_path / "t.skops", folder / "data.csv"
    fitted = ["fit", table, *COMMON, "--drop", "risk", "--method", "linear", "--no-check"]
    done = run(*fitted, "--threshold", "0.3", "-o", model)
    assert done.exit_code == 0, done.output
    assert "yes if its probability is at least 0.3 (set by the user)" in run("info", model).output
    for options, threshold in (([], 0.3), (["--threshold", "0.8"], 0.8)):
        done = run("predict", model, table, "-o", tmp_path / "p.csv", "--force", *options)
        assert done.exit_code == 0, done.output
        out = pandas.read_csv(tmp_path / "p.csv")
        expected = np.where(out["probability_yes"] >= threshold, "yes", "no")
        assert (out["prediction"] == expected).all()
    done = run("predict", model, table, "-o", tmp_path / "q.csv", "--threshold", "1.5")
    assert done.exit_code == 2
    assert "between 0 and 1; got 1.5" in done.output
    numbers = ["--target", "risk", "--domain", "site", "--drop", "ill", "--method", "linear"]
    done = run("fit", table, *numbers, "--threshold", "0.3", "-o", tmp_path / "r.skops")
    assert done.exit_code == 2
    assert "the target is continuous" in done.output
    done = run("fit", table, *numbers, "--no-check", "-o", tmp_path / "r.skops")
    done = run("predict", tmp_path / "r.skops", table, "-o", tmp_path / "q.csv", "--threshold", 0.5)
    assert done.exit_code == 2
    assert "no probabilities of classes" in done.output


def test_fit_predict_transform_and_info_work_together(folder, tmp_path):
    model = folder / "m.skops"
    done = run("predict", model, folder / "new.parquet", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    out = pandas.read_csv(tmp_path / "out.csv")
    new = make_frame(70, seed=1)
    assert list(out.columns) == ["site", "prediction", "probability_no", "probability_yes"]
    assert out["site"].tolist() == new["site"].tolist()
    assert (out["prediction"] == new["ill"]).mean() > 0.75
    np.testing.assert_allclose(out["probability_no"] + out["probability_yes"], 1)
    done = run("transform", model, folder / "new.parquet", "-o", tmp_path / "z.parquet")
    assert done.exit_code == 0, done.output
    z = pandas.read_parquet(tmp_path / "z.parquet")
    assert list(z.columns) == ["site", "dcm0"]
    done = run("info", model)
    assert done.exit_code == 0
    for word in ("dcm → lda", "2 classes: no, yes", "A (30)", "1 categorical", "scikit-learn"):
        assert word in done.output


def test_python_and_the_command_line_agree(folder, tmp_path):
    run("predict", folder / "m.skops", folder / "new.parquet", "-o", tmp_path / "out.parquet")
    out = pandas.read_parquet(tmp_path / "out.parquet")
    pipeline = domainwise.load(folder / "m.skops")
    new = make_frame(70, seed=1)
    np.testing.assert_array_equal(pipeline.predict(new), out["prediction"])
    np.testing.assert_allclose(pipeline.predict_proba(new)[:, 1], out["probability_yes"])


READERS = {"csv": pandas.read_csv, "csv.gz": pandas.read_csv, "feather": pandas.read_feather}


@pytest.mark.parametrize("ending", READERS)
def test_predictions_do_not_depend_on_the_pieces_a_file_is_read_in(folder, tmp_path, ending):
    model = models.TableModel.load(folder / "m.skops")
    frames = []
    for rows in (1000, 9):
        out = tmp_path / f"{rows}.{ending}"
        done = apply_to_file(model, folder / "data.csv", out, chunk_rows=rows, keep=["age"])
        assert done.n_rows == 120
        frames.append(READERS[ending](out))
    pandas.testing.assert_frame_equal(*frames)


def test_unseen_domains_categories_and_gaps_are_predicted(folder, tmp_path):
    new = pandas.DataFrame({"age": [40.0, np.nan], "dose": [1, 2], "sex": ["x", None]})
    new.to_csv(tmp_path / "new.csv", index=False)
    done = run("predict", folder / "m.skops", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    assert "1 row has a value of 'sex' that occurs in no source domain" in done.stderr
    out = pandas.read_csv(tmp_path / "out.csv")
    assert list(out.columns) == ["prediction", "probability_no", "probability_yes"]
    assert out.notna().all(axis=None)


@pytest.mark.parametrize("method", ["linear", "dcm"])
@pytest.mark.parametrize("target", ["ill", "risk"])
def test_fit_and_evaluate_print_the_same_number_for_the_same_method(method, target):
    frame = make_frame(100).drop(columns="risk" if target == "ill" else "ill")
    table = tables.check_table(frame, target=target, domain="site")
    check = check_table(table, method=method)
    evaluation = evaluate(
        table.X, table.y, table.sample_domain, methods=["constant", method], progress=False
    )
    assert check.model == evaluation.find(method).mean
    assert check.constant == evaluation.find("constant").mean
    assert (check.worst, check.metric) == (evaluation.find(method).worst, evaluation.measure.name)


def test_a_model_no_better_than_a_constant_is_a_warning(tmp_path):
    frame = make_frame()
    # Half of the domains say the opposite of the others.
    flip = np.where(frame["site"].isin(["A", "B"]), 1, -1)
    frame["age"] = flip * frame["risk"]
    frame.to_csv(tmp_path / "noise.csv", index=False)
    arguments = ["fit", tmp_path / "noise.csv", *COMMON, "--drop", "risk", "--method", "dcm"]
    done = run(*arguments, "-o", tmp_path / "m.skops")
    assert done.exit_code == 0
    assert "not significantly better than a constant prediction" in " ".join(done.stderr.split())
    assert "not significantly better than a constant prediction" in " ".join(
        run("info", tmp_path / "m.skops").output.split()
    )
    done = run(*arguments, "--no-check", "-o", tmp_path / "m2.skops")
    assert "constant" not in done.output


def test_the_check_sees_what_carries_over_and_what_does_not():
    frame = make_frame(noise=0.1)
    good = tables.check_table(frame, target="ill", domain="site", features=["age"])
    check = check_table(good, method="linear")
    assert check.better
    assert check.model > 0.85
    assert check.constant < 0.6
    flip = np.where(frame["site"].isin(["A", "B"]), 1, -1)
    frame["age"] = flip * frame["risk"]
    bad = tables.check_table(frame, target="ill", domain="site", features=["age"])
    assert not check_table(bad, method="linear").better


def test_a_table_with_more_rows_than_are_compared_is_checked(monkeypatch):
    monkeypatch.setattr("domainwise.evaluation.constant.CHECKED_ROWS", 60)
    frame = make_frame(300, noise=0.1)
    table = tables.check_table(frame, target="ill", domain="site", features=["age"])
    check = check_table(table, method="linear")
    assert check.n_rows == 60
    assert check.model > 0.85


def test_json_is_all_that_stdout_holds(folder, tmp_path):
    done = run("fit", folder / "data.csv", *COMMON, "--drop", "risk,dose", "--method", "linear",
               "-o", tmp_path / "m.skops", "--json")  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["schema"]["numeric"] == ["age"]
    assert answer["domains"] == [["A", 30], ["B", 30], ["C", 30], ["D", 30]]
    assert answer["check"]["metric"] == "accuracy"
    answer = json.loads(run("info", tmp_path / "m.skops", "--json").stdout)
    assert answer["info"]["method"] == "linear"
    done = run("predict", tmp_path / "m.skops", folder / "data.csv", "--keep", "dose",
               "-o", tmp_path / "p.csv", "--json")  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["rows"] == 120
    assert answer["columns"][:3] == ["dose", "site", "prediction"]


def test_nothing_is_overwritten_without_force(folder, tmp_path):
    fit = ["fit", folder / "data.csv", *COMMON, "--method", "linear", "--drop", "risk",
           "--no-check", "-o", tmp_path / "m.skops"]  # fmt: skip
    assert run(*fit).exit_code == 0
    before = (tmp_path / "m.skops").read_bytes()
    refused("use --force to overwrite", *fit)
    assert (tmp_path / "m.skops").read_bytes() == before
    assert run(*fit, "--force").exit_code == 0
    (tmp_path / "out.csv").write_text("mine")
    predict = ["predict", tmp_path / "m.skops", folder / "data.csv", "-o", tmp_path / "out.csv"]
    refused("use --force to overwrite", *predict)
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert run(*predict, "--force").exit_code == 0


def test_a_table_that_cannot_be_used_is_refused(folder, tmp_path):
    out = ["-o", tmp_path / "m.skops"]
    data = folder / "data.csv"
    refused("did you mean 'ill'", "fit", data, "--target", "il", "--domain", "site", *out)
    refused("does not exist", "fit", tmp_path / "none.csv", *COMMON, *out)
    refused("Use one of auto, constant", "fit", data, *COMMON, *out, "--method", "magic")
    ridge = ["--method", "dcm", "--predictor", "ridge"]
    refused("Use one of lda", "fit", data, *COMMON, *out, *ridge)
    refused("is already a predictor", "fit", data, *COMMON, *out, "--method", "svm",
            "--predictor", "lda")  # fmt: skip
    refused("--jobs must be", "fit", data, *COMMON, *out, "--jobs", "0")
    refused("must end in .skops", "fit", data, *COMMON, "-o", tmp_path / "m.pkl")
    refused(
        "does not exist; create it first", "fit", data, *COMMON, "-o", tmp_path / "none" / "m.skops"
    )
    (tmp_path / "ragged.csv").write_text("age,site,ill\n1,A\n")
    refused("Row #2: Expected 3 columns, got 2", "fit", tmp_path / "ragged.csv", *COMMON, *out)
    bad = dict(when="2024-01-01", who=[f"patient {i}" for i in range(120)])
    make_frame().assign(**bad).to_csv(tmp_path / "two.csv", index=False)
    refused("--drop when,who", "fit", tmp_path / "two.csv", *COMMON, *out)
    assert not (tmp_path / "m.skops").exists()


def test_another_tables_columns_and_files_that_are_no_models_are_refused(folder, tmp_path):
    model, out = folder / "m.skops", tmp_path / "out.csv"
    make_frame().rename(columns={"dose": "Dosis"}).to_csv(tmp_path / "other.csv", index=False)
    refused("no column 'dose', which the model needs; did you mean 'Dosis'",
            "predict", model, tmp_path / "other.csv", "-o", out)  # fmt: skip
    make_frame().assign(dose="much").to_csv(tmp_path / "text.csv", index=False)
    refused("'dose' must contain numbers, but row 1 has 'much'",
            "predict", model, tmp_path / "text.csv", "-o", out)  # fmt: skip
    refused("not a model file", "predict", folder / "data.csv", folder / "data.csv", "-o", out)
    refused("not a model file", "info", folder / "data.csv")
    refused("does not exist", "info", tmp_path / "none.skops")
    refused("is the input", "predict", model, folder / "data.csv", "-o", folder / "data.csv",
            "--force")  # fmt: skip
    refused("must end in .csv", "predict", model, folder / "data.csv", "-o", "out.xlsx")
    refused("no column 'nme'", "predict", model, folder / "data.csv", "-o", out, "--keep", "nme")
    persistence.save(domainwise.DCM(), tmp_path / "bare.skops")
    refused("Load it in Python", "predict", tmp_path / "bare.skops", folder / "data.csv",
            "-o", out)  # fmt: skip
    assert "not recorded" in run("info", tmp_path / "bare.skops").output
    assert not out.exists()


def test_a_damaged_description_is_refused_and_control_characters_are_not_printed(tmp_path):
    persistence.save(domainwise.DCM(), tmp_path / "m.skops", info={"schema": {"numeric": 3}})
    refused("description is incomplete", "info", tmp_path / "m.skops")
    persistence.save(domainwise.DCM(), tmp_path / "m.skops", info={"notes": ["\x1b[2Jgone"]})
    done = run("info", tmp_path / "m.skops")
    assert done.exit_code == 0
    assert "\x1b" not in done.output


def test_debug_shows_the_traceback(tmp_path):
    done = run("info", tmp_path / "none.skops", "--debug")
    assert done.exit_code == 2
    assert "Traceback" in done.output


def test_the_installed_command_predicts_in_its_own_process(folder, tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "domainwise",
            "predict",
            folder / "m.skops",
            folder / "data.csv",
            "-o",
            tmp_path / "out.csv",
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "120 rows" in done.stdout
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 121


def test_how_a_table_is_written_is_told_or_said_to_every_command(folder, tmp_path):
    frame = make_frame().drop(columns="risk")
    frame["seen"] = pandas.date_range("2024-01-01", periods=120).strftime("%d.%m.%Y")
    frame["dose"] = np.where(np.arange(120) % 10, frame["dose"], -999)
    frame["age"] = frame["age"].round().astype("Int64")
    frame["share"] = [f"{1 + i % 50},{100 + i}" for i in range(120)]
    path = tmp_path / "data.csv"
    frame.to_csv(path, index=False, sep=";", encoding="cp1252")
    fit = ["fit", path, *COMMON, "--method", "linear", "--no-check", "-o", tmp_path / "m.skops"]
    refused("--dates month,weekday,age", *fit)
    refused("2 columns cannot be used", *fit)
    refused("To continue without, pass --drop seen,share or --auto-drop", *fit)
    refused("--dates year is not supported; use month, weekday, age", *fit, "--dates", "year")
    reading = ["--decimal", ",", "--na", "-999,unknown", "--encoding", "cp1252"]
    done = run(*fit, "--dates", "month,age", *reading, "--json")
    assert done.exit_code == 0, done.output
    schema = json.loads(done.stdout)["schema"]
    assert schema["na"] == ["-999", "unknown"]
    assert [schema[name] for name in ("decimal", "encoding", "dates")] == [",", "cp1252", ["seen"]]
    assert ", plus month, age from dates" in run("info", tmp_path / "m.skops").output
    outs = []
    for options in ([], reading):
        outs.append(tmp_path / f"{len(options)}.csv")
        done = run("predict", tmp_path / "m.skops", path, "-o", outs[-1], *options)
        assert done.exit_code == 0, done.output
    assert outs[0].read_text() == outs[1].read_text()
    done = run("evaluate", path, *COMMON, "--auto-drop", *reading[2:], "--methods", "linear,svm",
               "--no-report", "-o", tmp_path / "out")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "columns left out because they cannot be used: seen, share" in done.stderr


def test_the_weight_column_is_used_in_evaluate_and_fit(tmp_path):
    """Rows of weight 2 are like two rows, and rows of weight 0 like none."""
    frame = make_frame(160).drop(columns=["risk", "sex"]).dropna()
    frame["times"] = np.arange(len(frame)) % 3
    frame.to_csv(tmp_path / "weighted.csv", index=False)
    copies = frame.loc[frame.index.repeat(frame["times"])].drop(columns="times")
    copies.to_csv(tmp_path / "repeated.csv", index=False)
    results = []
    for name, options in (("weighted", ["--weight", "times"]), ("repeated", [])):
        out, model = tmp_path / name, tmp_path / f"{name}.skops"
        columns = [*COMMON, *options, "--methods", "constant,linear"]
        done = run("evaluate", tmp_path / f"{name}.csv", *columns, "--no-report", "--out", out,
                   "--max-rows", 0)  # fmt: skip
        assert done.exit_code == 0, done.output
        content = json.loads((out / "evaluation.json").read_text())
        results.append([method["mean"] for method in content["methods"]])
        done = run("fit", "--from", out, "--method", "linear", "-o", model)
        assert done.exit_code == 0, done.output
        p = models.TableModel.load(model).predictions(frame[["age", "dose"]].astype(float))
        results.append(p["probability_yes"].tolist())
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)
    np.testing.assert_allclose(results[1], results[3], atol=1e-4)
    command = ("fit", tmp_path / "weighted.csv", *COMMON, "--weight", "times")
    done = run(*command, "--method", "linear", "-o", tmp_path / "direct.skops")
    assert done.exit_code == 0, done.output
    assert "rows have the weight 0 and are left out" in done.stderr


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -2.0], "column 'times' must contain a weight of at least 0 for each row, but row 2"),
        ([1.0, None], "row 2 has none"),
        ([0.0, 0.0], "all rows have the weight 0 in column 'times'"),
        (["1", "many"], "many"),
    ],
)
def test_invalid_weights_in_a_table_are_an_error(tmp_path, weights, message):
    frame = make_frame(40)
    frame["times"] = weights * 20
    frame.to_csv(tmp_path / "t.csv", index=False)
    done = run("fit", tmp_path / "t.csv", *COMMON, "--weight", "times", "-o", tmp_path / "m.skops")
    assert done.exit_code == 2
    assert message in done.stderr
    done = run("fit", tmp_path / "t.csv", *COMMON, "--weight", "ill", "-o", tmp_path / "m.skops")
    assert "target and weight are the same column, 'ill'" in done.stderr
