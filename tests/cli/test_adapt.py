"""domainwise adapt: a few labelled rows of a new site, from file to file."""

import json

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("skops")

from typer.testing import CliRunner  # noqa: E402

from domainwise.cli import app  # noqa: E402


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Model files for classes and for numbers, and rows of a site they have not seen."""
    folder = tmp_path_factory.mktemp("adapt")
    rng = np.random.default_rng(0)
    domain = np.repeat(np.arange(7), 40)
    table = pandas.DataFrame(rng.normal(size=(len(domain), 3)), columns=["a", "b", "c"])
    level = 3.0 * rng.normal(size=7)[domain]
    table["site"] = [f"s{code}" for code in domain]
    table["dose"] = table["a"] + level + 0.3 * rng.normal(size=len(table))
    table["ill"] = np.where(table["a"] + level / 2 > 0, "yes", "no")
    known = table["site"] != "s6"
    table[known].to_csv(folder / "known.csv", index=False)
    table[~known][:10].to_csv(folder / "ten.csv", index=False)
    table[~known][10:].to_csv(folder / "rest.csv", index=False)
    for target in ("dose", "ill"):
        columns = ["--features", "a,b,c", "--domain", "site", "--target", target]
        options = ["--method", "invariantridge", "-o", folder / f"{target}.skops"]
        done = run("fit", folder / "known.csv", *columns, *options)
        assert done.exit_code == 0, done.output
    return folder


def test_predictions_of_the_adapted_model_are_better(site, tmp_path):
    done = run("adapt", site / "dose.skops", site / "ten.csv", "-o", tmp_path / "site.skops")
    assert done.exit_code == 0, done.output
    assert "site labels" in done.output
    assert "level" in done.output
    errors = []
    rest = pandas.read_csv(site / "rest.csv")
    for model in (site / "dose.skops", tmp_path / "site.skops"):
        out = tmp_path / "predicted.csv"
        done = run("predict", model, site / "rest.csv", "-o", out, "--force", "--coverage", "0.8")
        assert done.exit_code == 0, done.output
        predicted = pandas.read_csv(out)
        errors.append((predicted["prediction"] - rest["dose"]).abs().mean())
        assert (predicted["low"] <= predicted["high"]).all()
    assert errors[1] < 0.5 * errors[0]
    assert "site labels" in run("info", tmp_path / "site.skops").output


def test_labels_can_be_added_and_json_reports_the_correction(site, tmp_path):
    first, second = tmp_path / "first.skops", tmp_path / "second.skops"
    assert run("adapt", site / "ill.skops", site / "ten.csv", "-o", first).exit_code == 0
    done = run("adapt", first, site / "rest.csv", "-o", second, "--json")
    answer = json.loads(done.stdout)
    assert answer["n_labels"] == 40
    assert len(answer["corrections"]["plain"]) == 3  # two biases, and the change of the slope
    assert [row[0] for row in answer["label_gain"]] == [0, 5, 10, 20, 50]


@pytest.mark.parametrize(
    "model, change, message",
    [
        ("ill", {"ill": "maybe"}, "'maybe', but the classes of the model are 'no', 'yes'"),
        ("dose", {"dose": 1e6}, "Check that the target and its unit have not changed"),
        ("dose", {"dose": np.nan}, "has no labelled row"),
        ("dose", {"a": None}, "'a'"),
    ],
)
def test_labels_that_cannot_be_of_the_target_are_refused(site, tmp_path, model, change, message):
    rows = pandas.read_csv(site / "ten.csv")
    for name, value in change.items():
        rows = rows.drop(columns=name) if value is None else rows.assign(**{name: value})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out = tmp_path / "site.skops"
    done = run("adapt", site / f"{model}.skops", tmp_path / "rows.csv", "-o", out)
    assert done.exit_code == 2
    assert message in done.output
    assert not out.exists()


def test_rows_without_a_label_are_ignored_and_counted(site, tmp_path):
    rows = pandas.read_csv(site / "ten.csv")
    rows.loc[:3, "dose"] = np.nan
    rows.to_csv(tmp_path / "rows.csv", index=False)
    done = run("adapt", site / "dose.skops", tmp_path / "rows.csv", "-o", tmp_path / "site.skops")
    assert "ignored 4 rows without a target" in done.output


@pytest.mark.parametrize("target", ["dose", "ill"])
@pytest.mark.parametrize("method", ["constant", "boosting", "coir", "invariant"])
def test_every_method_that_fit_writes_can_be_adapted(site, tmp_path, method, target):
    columns = ["--features", "a,b,c", "--domain", "site", "--target", target, "--no-check"]
    model, adapted = tmp_path / "model.skops", tmp_path / "site.skops"
    done = run("fit", site / "known.csv", *columns, "--method", method, "-o", model)
    assert done.exit_code == 0, done.output
    done = run("adapt", model, site / "ten.csv", "-o", adapted)
    assert done.exit_code == 0, done.output
    rest, errors = pandas.read_csv(site / "rest.csv"), []
    for file in (model, adapted):
        out = tmp_path / "predicted.csv"
        options = ["--force"] + ["--coverage", "0.8"] * (file == adapted)
        done = run("predict", file, site / "rest.csv", "-o", out, *options)
        assert done.exit_code == 0, done.output
        predicted = pandas.read_csv(out)
        if target == "dose":
            errors.append(np.mean((predicted["prediction"] - rest["dose"]) ** 2))
        else:
            p = predicted[[f"probability_{name}" for name in ("no", "yes")]].to_numpy()
            assert np.allclose(p.sum(axis=1), 1.0)
            p = p[np.arange(len(rest)), (rest["ill"] == "yes").to_numpy().astype(int)]
            errors.append(-np.log(np.maximum(p, 1e-6)).mean())
    assert errors[1] < errors[0]


def test_a_file_without_training_rows_cannot_be_adapted(site, tmp_path):
    columns = ["--features", "a,b,c", "--domain", "site", "--target", "dose", "--no-rows"]
    model = tmp_path / "model.skops"
    done = run("fit", site / "known.csv", *columns, "--method", "linear", "-o", model)
    assert done.exit_code == 0, done.output
    done = run("adapt", model, site / "ten.csv", "-o", tmp_path / "site.skops")
    assert done.exit_code == 2
    assert "no predictions for held-out rows" in done.output
    assert "--rows" in done.output


def test_a_model_without_a_check_has_prediction_sets_once_it_is_adapted(site, tmp_path):
    model, adapted, out = (tmp_path / name for name in ("m.skops", "s.skops", "p.csv"))
    columns = ["--features", "a,b,c", "--domain", "site", "--target", "dose", "--no-check"]
    fitted = run("fit", site / "known.csv", *columns, "--method", "invariantridge", "-o", model)
    assert fitted.exit_code == 0, fitted.output
    assert run("adapt", model, site / "ten.csv", "-o", adapted).exit_code == 0
    done = run("predict", adapted, site / "rest.csv", "-o", out, "--coverage", "0.8")
    assert done.exit_code == 0, done.output
    assert {"low", "high"} <= set(pandas.read_csv(out))


def test_info_says_what_labels_are_worth_and_which_correction_was_made(site, tmp_path):
    text = " ".join(run("info", site / "dose.skops").output.split())
    assert "labels from a new site, the expected RMSE is" in text
    adapted = tmp_path / "site.skops"
    run("adapt", site / "ill.skops", site / "ten.csv", "-o", adapted)
    assert "log-odds by class: no" in " ".join(run("info", adapted).output.split())
