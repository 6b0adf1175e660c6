"""Prediction sets and expected scores at the command line."""

import json

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
testing = pytest.importorskip("typer.testing")
pytest.importorskip("skops")

from domainwise import evaluate  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.held_out.calibration.quantiles import (  # noqa: E402
    DomainQuantiles,
    calibrate_sets,
    scores_by_class,
    stored_quantiles,
)
from domainwise.held_out.scoring.predictions import Outputs  # noqa: E402
from domainwise.held_out.scoring.statistics import expected_score  # noqa: E402

runner = testing.CliRunner()


def make_frame(n=150, seed=0):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(rng.normal(size=(n, 2)), columns=["age", "dose"])
    frame["site"] = np.array(["A", "B", "C", "D", "E"])[np.arange(n) % 5]
    frame["risk"] = frame["age"] + 0.5 * rng.normal(size=n)
    frame["ill"] = np.where(frame["risk"] > 0, "yes", "no")
    return frame


def run(*arguments):
    done = runner.invoke(app, [str(argument) for argument in arguments])
    assert "Traceback" not in done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, new rows, and models fitted by the command line."""
    folder = tmp_path_factory.mktemp("coverage")
    make_frame().to_csv(folder / "data.csv", index=False)
    make_frame(400, seed=1).to_csv(folder / "new.csv", index=False)
    for name, target, drop, method in (
        ("classes", "ill", "risk", "linear"),
        ("machine", "ill", "risk", "svm"),
        ("numbers", "risk", "ill", "linear"),
    ):
        done = run("fit", folder / "data.csv", "--target", target, "--domain", "site", "--drop",
                   drop, "--method", method, "-o", folder / f"{name}.skops")  # fmt: skip
        assert done.exit_code == 0, done.output
        assert "on a single new domain (90 % interval)" in " ".join(done.output.split())
        assert "prediction sets" in done.output
        expected = "approximate coverage (few sites), calibrated on 5 held-out domains"
        assert expected in " ".join(done.output.split())
    return folder


@pytest.mark.parametrize("name", ["classes", "machine"])
def test_sets_hold_the_classes_that_left_out_domains_allow(name, folder, tmp_path):
    out = tmp_path / "out.csv"
    done = run("predict", folder / f"{name}.skops", folder / "new.csv", "-o", out,
               "--coverage", "0.8")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert (
        "the coverage of prediction sets is approximate: they were calibrated on 5 held-out domains"
        in done.stderr
    )
    written = pandas.read_csv(out)
    assert list(written.columns)[-2:] == ["in_set_no", "in_set_yes"]
    truth = make_frame(400, seed=1)["ill"]
    covered = np.where(truth == "yes", written["in_set_yes"], written["in_set_no"])
    assert covered.mean() > 0.7
    smaller = run("predict", folder / f"{name}.skops", folder / "new.csv", "-o",
                  tmp_path / "small.csv", "--coverage", "0.5")  # fmt: skip
    assert smaller.exit_code == 0
    sets = pandas.read_csv(tmp_path / "small.csv")
    for column in ("in_set_no", "in_set_yes"):
        assert not (sets[column] & ~written[column]).any()


def test_intervals_reach_as_far_as_left_out_domains_say(folder, tmp_path):
    out = tmp_path / "out.csv"
    done = run("predict", folder / "numbers.skops", folder / "new.csv", "-o", out, "--coverage",
               "0.8", "--json")  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["columns"][-2:] == ["low", "high"]
    assert any("approximate" in note for note in answer["notes"])
    frame = make_frame()
    held_out = evaluate(frame[["age", "dose"]], frame["risk"], frame["site"], methods=["linear"],
                    progress=False).predictions_  # fmt: skip
    errors = np.abs(held_out["target"] - held_out["prediction"])
    radius = DomainQuantiles.approximately(
        errors.to_numpy(), held_out["domain"].to_numpy(), are_probabilities=False
    ).threshold(0.8)
    written = pandas.read_csv(out)
    np.testing.assert_allclose(written["high"] - written["prediction"], radius, rtol=1e-6)
    np.testing.assert_allclose(written["prediction"] - written["low"], radius, rtol=1e-6)


def test_five_domains_are_enough_for_a_large_coverage_and_two_are_not(folder, tmp_path):
    done = run("predict", folder / "classes.skops", folder / "new.csv", "-o", tmp_path / "o.csv",
               "--coverage", "0.9")  # fmt: skip
    assert done.exit_code == 0
    assert "needs at least" not in done.stderr
    written = pandas.read_csv(tmp_path / "o.csv")
    assert not written[["in_set_no", "in_set_yes"]].all(axis=None)
    frame = make_frame()
    frame[frame["site"] < "C"].to_csv(tmp_path / "two.csv", index=False)
    run("fit", tmp_path / "two.csv", "--target", "ill", "--domain", "site", "--drop", "risk",
        "--method", "linear", "-o", tmp_path / "two.skops")  # fmt: skip
    done = run("predict", tmp_path / "two.skops", folder / "new.csv", "-o", tmp_path / "p.csv",
               "--coverage", "0.9")  # fmt: skip
    assert "needs at least 3 calibration domains, but there are 2" in done.stderr
    written = pandas.read_csv(tmp_path / "p.csv")
    assert written[["in_set_no", "in_set_yes"]].all(axis=None)


@pytest.mark.parametrize(
    ("coverage", "message"), [("0.805", "must be a multiple of 0.01"), ("1", "between 0 and 1")]
)
def test_a_coverage_that_cannot_be_kept_is_refused(coverage, message, folder, tmp_path):
    done = run("predict", folder / "classes.skops", folder / "new.csv", "-o", tmp_path / "o.csv",
               "--coverage", coverage)  # fmt: skip
    assert done.exit_code == 2
    assert message in done.stderr
    assert not (tmp_path / "o.csv").exists()


def test_a_model_that_was_not_checked_has_no_sets(folder, tmp_path):
    run("fit", folder / "data.csv", "--target", "ill", "--domain", "site", "--drop", "risk",
        "--method", "linear", "--no-check", "-o", tmp_path / "m.skops")  # fmt: skip
    done = run("predict", tmp_path / "m.skops", folder / "new.csv", "-o", tmp_path / "o.csv",
               "--coverage", "0.8")  # fmt: skip
    assert done.exit_code == 2
    assert "no prediction sets" in done.stderr


def test_info_tells_the_calibration(folder):
    check = json.loads(run("info", folder / "classes.skops", "--json").stdout)["info"]["check"]
    assert check["low"] < check["model"] < check["high"]
    assert check["true_range"][0] < check["model"] < check["true_range"][1]
    assert check["calibration"]["promise"] == "approximate, few sites"
    assert len(check["calibration"]["thresholds"]) == 99
    assert check["calibration"]["coverage"] == 0.9
    words = " ".join(run("info", folder / "classes.skops").stdout.split())
    assert "classes on average at a coverage of 90 %" in words


def test_an_evaluation_has_expected_scores_and_calibrations_and_fit_takes_them(folder, tmp_path):
    results = tmp_path / "found"
    done = run("evaluate", folder / "data.csv", "--target", "ill", "--domain", "site", "--drop",
               "risk", "--methods", "linear,constant", "--out", results)  # fmt: skip
    assert done.exit_code == 0, done.output
    (path,) = results.glob("*.json")
    stored = json.loads(path.read_text())
    linear = next(each for each in stored["methods"] if each["key"] == "linear")
    mean, low, high = (linear[name] for name in ("mean", "low", "high"))
    assert low <= mean <= high
    scores = [row["score"] for row in linear["per_domain"]]
    assert (mean, low, high) == pytest.approx(expected_score(scores, 0))
    done = run("fit", "--from", results, "-o", tmp_path / "m.skops")
    assert done.exit_code == 0, done.output
    check = json.loads(run("info", tmp_path / "m.skops", "--json").stdout)["info"]["check"]
    assert check["calibration"] == linear["calibration"]
    assert check["true_range"] == linear["between_sites"]["true_range"]


def test_classes_without_values_are_judged_by_what_was_predicted():
    records = [Outputs(["a", "b"], ["a", p], domain=d) for d, p in enumerate("bba")]
    calibration = calibrate_sets(records, ["a", "b"])
    assert calibration["of"] == "prediction"
    # Five of six rows are right, each with a weight of 1/8.
    assert calibration["thresholds"][61] == 0.0
    assert calibration["thresholds"][62] == 1.0
    _, scores = scores_by_class(Outputs(prediction=["b"]), np.array(["a", "b"]))
    sets = stored_quantiles(calibration, 0.5).sets(scores, 0.5)
    assert sets.tolist() == [[False, True]]
