"""Comparison of two evaluations: differences, intervals, and notes about what differs."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("pyarrow")
pytest.importorskip("pandas")

from scipy.stats import wilcoxon
from sklearn.metrics import balanced_accuracy_score, root_mean_squared_error

from domainwise import evaluate
from domainwise.cli import app
from domainwise.evaluation.compare import compare_evaluations


def table(n_domains=7, n=20):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(n_domains), n)
    X = rng.normal(size=(len(codes), 4)) + 0.4 * rng.normal(size=(n_domains, 4))[codes]
    value = X[:, 0] - X[:, 1] + 0.7 * rng.normal(size=len(codes))
    return X, value, np.array([f"s{i} [x]" for i in range(n_domains)])[codes]


def run(folder, X, y, domain, **options):
    options = {"methods": ["constant", "linear"], "scoring": "balanced_accuracy"} | options
    return evaluate(X, y, domain, out=folder, progress=False, **options)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    base = tmp_path_factory.mktemp("compare")
    X, value, domain = table()
    y = np.where(value > 0, "ill", "well")
    evaluations = {
        "whole": run(base / "whole", X, y, domain),
        "less": run(base / "less", X[:, 1:], y, domain, scoring=["accuracy", "balanced_accuracy"]),
        "numbers": run(base / "numbers", X, value, domain, scoring=None),
        "fewer": run(base / "fewer", X[:, 1:], value, domain, scoring=None),
        "some": run(base / "some", *(part[:100] for part in (X, y, domain))),
        "auc": run(base / "auc", X, y, domain, scoring="roc_auc"),
    }
    return base, evaluations


def predictions(evaluations, key="linear"):
    frame = evaluations.predictions_
    return frame[frame["method"] == key].sort_values("row")


@pytest.mark.filterwarnings("ignore:y_pred contains", "ignore:A single label")
@pytest.mark.parametrize(
    ("names", "score"),
    [
        (("whole", "less"), balanced_accuracy_score),
        (("numbers", "fewer"), root_mean_squared_error),
    ],
)
def test_differences_equal_those_between_scores_on_each_domain(folders, names, score):
    base, evaluations = folders
    compared = compare_evaluations(base / names[0], base / names[1], "linear")
    a, b = (predictions(evaluations[name]) for name in names)
    expected = {}
    rng = np.random.default_rng(5)
    (pair,) = compared.pairs
    for row in pair.per_domain:
        mine, theirs = (frame[frame["domain"] == row["domain"]] for frame in (a, b))
        np.testing.assert_array_equal(mine["row"], theirs["row"])
        one, other = (score(f["target"], f["prediction"]) for f in (mine, theirs))
        assert (row["first"], row["second"]) == pytest.approx((one, other))
        expected[row["domain"]] = other - one
        assert row["difference"] == pytest.approx(other - one)
        plain = [[f[name].to_numpy() for name in ("target", "prediction")] for f in (mine, theirs)]
        draws = []
        for _ in range(300):
            at = rng.integers(len(mine), size=len(mine))
            drawn = (score(*(values[at] for values in content)) for content in (plain[1], plain[0]))
            draws.append(next(drawn) - next(drawn))
        wide = np.ptp(draws)
        ends = np.quantile(draws, [0.025, 0.975])
        np.testing.assert_allclose((row["low"], row["high"]), ends, atol=0.12 * wide)
    values = np.array(list(expected.values()))
    assert pair.mean["difference"] == pytest.approx(values.mean())
    assert pair.p_value == pytest.approx(wilcoxon(np.round(values, 9)).pvalue)
    # About as wide as an interval from Student's t distribution.
    half = 2.447 * values.std(ddof=1) / np.sqrt(7)
    np.testing.assert_allclose(
        (pair.mean["low"], pair.mean["high"]),
        values.mean() + half * np.array([-1, 1]),
        atol=0.5 * half,
    )
    better = (
        pair.mean["difference"] > 0
        if score is balanced_accuracy_score
        else pair.mean["difference"] < 0
    )
    assert pair.words.startswith("better" if better else "worse")


def test_an_evaluation_does_not_differ_from_itself(folders):
    base, _ = folders
    compared = compare_evaluations(base / "whole", base / "whole")
    note = "The table, the rows and the groups of held-out domains are the same."
    assert compared.notes == [note]
    assert len(compared.pairs) == 2  # the pair of best methods is not repeated
    for pair in compared.pairs:
        assert [pair.mean[name] for name in ("difference", "low", "high")] == [0.0, 0.0, 0.0]
        assert pair.p_value == 1.0
        assert pair.words == "no practical difference"


def test_a_measure_that_both_folders_have_is_compared(folders):
    base, evaluations = folders
    compared = compare_evaluations(base / "whole", base / "less")
    assert compared.measure.name == "balanced_accuracy"
    assert compared.margin == 0.01
    best = evaluations["less"].others[0].best
    assert compared.pairs[0].method.endswith(best.label)
    assert compared.pairs[0].mean["second"] == pytest.approx(best.mean)


def test_the_margin_of_an_error_is_a_share_of_the_baseline(folders):
    base, evaluations = folders
    compared = compare_evaluations(base / "numbers", base / "fewer")
    assert compared.margin == pytest.approx(0.02 * -evaluations["numbers"].baseline.mean)


def test_notes_report_different_folds_and_domains(folders):
    base, _ = folders
    notes = compare_evaluations(base / "whole", base / "some").notes
    assert any("different groups" in note for note in notes)
    assert any(
        note.startswith("Domains only in whole") and "s5 [x], s6 [x]" in note for note in notes
    )


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ("auc", "reports balanced accuracy, .* reports AUC"),
        ("numbers", "the task is classification"),
    ],
)
def test_evaluations_of_different_tasks_or_measures_are_refused(folders, second, words):
    base, _ = folders
    with pytest.raises(ValueError, match=words):
        compare_evaluations(base / "whole", base / second)


def test_a_method_that_is_missing_in_one_evaluation_is_refused(folders):
    base, _ = folders
    with pytest.raises(
        ValueError, match="method='svm' is not in both evaluations. Use one of: linear"
    ):
        compare_evaluations(base / "whole", base / "less", "svm")


def test_folders_without_predictions_have_intervals_for_means_only(folders, tmp_path):
    import shutil

    base, _ = folders
    for name in ("whole", "less"):
        shutil.copytree(base / name, tmp_path / name, ignore=shutil.ignore_patterns("jobs"))
    compared = compare_evaluations(tmp_path / "whole", tmp_path / "less", "linear")
    assert np.isfinite([compared.pairs[0].mean[end] for end in ("low", "high")]).all()
    assert np.isnan(compared.pairs[0].per_domain[0]["low"])
    assert compared.to_dict()["pairs"][0]["per_domain"][0]["low"] is None
    note = "A folder lacks predictions, so rows and held-out groups were not compared."
    one = compare_evaluations(base / "whole", tmp_path / "whole", "linear")
    assert (compared.notes[0], one.notes) == (note, [note])


def test_the_command_prints_tables_json_and_a_page(folders, tmp_path):
    pytest.importorskip("matplotlib")
    base, _ = folders
    page = tmp_path / "page.html"
    arguments = ["compare", str(base / "whole"), str(base / "less")]
    result = CliRunner().invoke(app, [*arguments, "-o", str(page)])
    assert result.exit_code == 0, result.output
    assert "s0 [x]" in result.output
    assert "Verdict." in result.output
    text = page.read_text("utf-8")
    assert "<svg" in text
    assert "less compared with whole" in text
    result = CliRunner().invoke(app, [*arguments, "--json"])
    content = json.loads(result.output)
    assert content["folders"] == ["whole", "less"]
    assert len(content["pairs"][0]["per_domain"]) == 7
    again = CliRunner().invoke(app, [*arguments, "-o", str(page)])
    assert again.exit_code == 2
    assert "--force" in again.output


def test_the_command_names_options_and_folders_in_errors(folders, tmp_path):
    base, _ = folders
    result = CliRunner().invoke(app, ["compare", str(base / "whole"), str(base / "auc")])
    assert result.exit_code == 2
    assert "--metric balanced_accuracy" in result.output
    result = CliRunner().invoke(app, ["compare", str(base / "whole"), str(tmp_path)])
    assert result.exit_code == 2
    assert "Run an evaluation there first" in result.output
