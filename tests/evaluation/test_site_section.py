"""Errors by domain: numbers on the page agree with plain computations from predictions."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
pytest.importorskip("pyarrow")

from sklearn.metrics import roc_auc_score

from domainwise import evaluate
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.page import (
    coverage_by_domain,
    decision_statement,
    error_statement,
    site_estimates,
    site_section,
)
from domainwise.held_out.calibration.quantiles import DomainQuantiles
from domainwise.held_out.scoring.predictions import Outputs

METHODS = ["constant", "linear", "kpca"]


def rows(n_domains, n, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.repeat(np.arange(n_domains), n)
    X = rng.normal(size=(n_domains * n, 3)) + 0.5 * rng.normal(size=(n_domains, 3))[codes]
    value = (
        X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=len(X)) + 0.5 * rng.normal(size=n_domains)[codes]
    )
    names = np.array(["$5", "<i>b</i>", *(f"site {i}" for i in range(n_domains))])[:n_domains]
    return X, value, names[codes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("evaluation")


@pytest.fixture(scope="module")
def binary(folder):
    X, value, domain = rows(6, 40)
    y = np.where(value > 0.3, "x & y", "none")
    y[domain == "site 2"] = "none"  # no event there
    out = folder / "binary"
    return evaluate(X, y, domain, methods=METHODS, pos_label="x & y", out=out, progress=False)


@pytest.fixture(scope="module")
def numbers(folder):
    X, value, domain = rows(7, 30, seed=1)
    return evaluate(X, value, domain, methods=METHODS, out=folder / "numbers", progress=False)


@pytest.fixture(scope="module")
def three():
    X, value, domain = rows(3, 40, seed=2)
    y = np.digitize(value, [-0.5, 0.5])
    return evaluate(X, y, domain, methods=["linear"], progress=False)


def column(section, name):
    return {d: section["columns"][name].get(d, "–") for d in section["columns"]["rows"]}


def predictions(evaluation):
    frame = evaluation.predictions_
    return frame[frame["method"] == evaluation.best.key]


def test_sentences_and_columns_about_classes_agree_with_the_predictions(binary):
    section = site_section(binary)
    frame = predictions(binary)
    p = frame[f"probability_{binary.facts['classes'][-1]}"]
    hit = frame["target"] == "x & y"
    for name in binary.domains:
        mine = frame["domain"] == name
        assert column(section, "rows")[name] == str(mine.sum())
        assert column(section, "class x & y")[name] == str(hit[mine].sum())
        right = np.mean(frame["target"][mine] == frame["prediction"][mine])
        assert column(section, "correct")[name] == f"{100 * right:.0f} %"
        ratio = max(hit[mine].sum(), 0.5) / p[mine].sum()
        assert float(column(section, "O/E")[name].split()[0]) == pytest.approx(ratio, abs=0.051)
        if name == "site 2":
            assert column(section, "AUC")[name] == column(section, "calibration slope")[name] == "–"
            continue
        assert column(section, "AUC")[name].startswith(f"{roc_auc_score(hit[mine], p[mine]):.2f} (")
    wrong = [
        (np.sum((frame["target"] == a) & (frame["prediction"] == b)), a, b)
        for a, b in (("none", "x & y"), ("x & y", "none"))
    ]
    count, a, b = max(wrong)
    total = np.sum(frame["target"] == a)
    sentences = " ".join(section["sentences"])
    assert f"class {b} instead of class {a}, in {count} of {total} rows of class {a}" in sentences


def test_the_domain_that_is_farthest_from_calibration_is_named(binary):
    frame = predictions(binary)
    p, hit = frame["probability_x & y"], frame["target"] == "x & y"
    observed = hit.groupby(frame["domain"]).sum().clip(lower=0.5)
    ratios = observed / p.groupby(frame["domain"]).sum()
    worst = np.abs(np.log(ratios)).idxmax()
    assert (
        f"is farthest from 1 on {worst}: {ratios[worst]:.2f} (95 % interval "
        in (site_section(binary)["sentences"][0])
    )


def test_values_are_pooled_over_domains_with_a_prediction_interval(binary):
    table = site_section(binary)["pooled"]
    rows = {row[0].text: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == [
        "balanced accuracy",
        "AUC",
        "O/E",
        "calibration intercept",
        "calibration slope",
    ]
    pooled = binary.calibration().pooled["slope"]
    low, high = map(
        float, rows["calibration slope"]["prediction interval (true value)"].text.split(" to ")
    )
    assert (low, high) == pytest.approx(pooled.true_range, abs=0.06)
    assert rows["calibration slope"]["domains"].text == str(pooled.n_sites)
    assert rows["AUC"]["I²"].text.endswith(" %")


def test_a_threshold_adds_columns_and_a_sentence_that_compares_with_treating_all(binary):
    assert decision_statement(binary, site_estimates(binary)) == ""
    decided = replace(binary, facts={**binary.facts, "decision": 0.4})
    section = site_section(decided)
    p, hit = predictions(binary)["probability_x & y"], predictions(binary)["target"] == "x & y"
    domain = predictions(binary)["domain"]
    treated = p >= 0.4
    gains = np.where(hit, 1.0, -0.4 / 0.6)
    decisions = decided.decision_scores()
    by_site = decisions.table.set_index("domain")["net_benefit"]
    for name in binary.domains:
        assert by_site[name] == pytest.approx(
            np.mean(gains[domain == name] * treated[domain == name])
        )
    assert {"sensitivity", "specificity", "PPV", "NPV", "net benefit"} <= set(section["columns"])
    benefit, treat_all = (decisions.pooled[n].mean for n in ("net_benefit", "treat_all"))
    numbers = re.findall(r"-?[0-9.]+[0-9]", section["sentences"][1])
    assert list(map(float, numbers[:3])) == pytest.approx([0.4, benefit, treat_all], abs=0.006)


@pytest.mark.parametrize("asked", [0.5, 0.9])
def test_coverage_is_computed_with_thresholds_from_the_other_domains(binary, asked):
    predicted = binary.records_of(binary.best)
    classes = np.array(binary.facts["classes"])
    coverage = coverage_by_domain(predicted, classes, asked)
    frame = predictions(binary)
    names = [f"probability_{c}" for c in classes]
    for domain in binary.domains:
        others = frame[frame["domain"] != domain]
        scores = [1 - row[f"probability_{row['target']}"] for _, row in others.iterrows()]
        quantiles = DomainQuantiles.approximately(
            np.array(scores), others["domain"].to_numpy(), are_probabilities=True
        )
        reach = quantiles.threshold(asked)
        part = frame[frame["domain"] == domain]
        sets = 1 - part[names].to_numpy() <= reach
        true = [sets[i, list(classes).index(t)] for i, t in enumerate(part["target"])]
        share, size = coverage[domain]
        assert share == pytest.approx(np.mean(true))
        assert size == pytest.approx(sets.sum(axis=1).mean())


def test_the_bias_of_a_continuous_target_is_reported(numbers):
    section = site_section(numbers)
    frame = predictions(numbers)
    away = frame["prediction"] - frame["target"]
    bias = away.groupby(frame["domain"]).mean()
    share = bias**2 / (away**2).groupby(frame["domain"]).mean()
    means = frame.groupby("domain")["target"].mean()
    for name in numbers.domains:
        assert float(column(section, "bias")[name].split()[0]) == pytest.approx(
            bias[name], abs=0.051
        )
        percent = f"{100 * share[name]:.0f} %"
        assert column(section, "squared error due to bias")[name] == percent
        shown = float(column(section, "mean of the target")[name])
        assert shown == pytest.approx(means[name], abs=0.051)
    worst = bias.abs().idxmax()
    sentence = section["sentences"][-1]
    assert f"largest on {worst}: predictions are {abs(bias[worst]):.3g} too" in sentence
    assert f"{100 * share[worst]:.0f} % of the squared error there" in sentence
    assert "Prediction intervals that should contain" in section["sentences"][0]
    assert section["pictures"] == []


def test_several_classes_are_pooled_one_by_one(three):
    section = site_section(three)
    names = [row[0].text for row in section["pooled"].rows]
    assert {"O/E, class 0", "O/E, class 1", "calibration slope, class 2"} <= set(names)
    assert not any(name.startswith("O/E") for name in section["columns"])
    assert len(section["pictures"]) == 1


@pytest.mark.parametrize("name", ["binary", "numbers"])
def test_a_results_folder_gives_the_same_sections_as_the_evaluation(name, folder, request):
    evaluation = request.getfixturevalue(name)
    again, _ = read_evaluation(folder / name)
    first, second = site_section(evaluation), site_section(again)
    assert first == second
    assert list(first["columns"]["rows"]) == list(second["columns"]["rows"])


def test_the_page_has_sections_about_errors_and_names_are_text(binary, tmp_path):
    page = binary.report(tmp_path / "page.html").read_text("utf-8")
    assert 'id="sites"' in page
    assert "<i>b</i>" not in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_page_without_predictions_says_why_errors_are_not_shown(
    binary, folder, tmp_path, monkeypatch
):
    import shutil

    def said(out):
        evaluation, _ = read_evaluation(out)
        assert not site_section(evaluation)["has_predictions"]
        page = evaluation.report(tmp_path / "page.html").read_text("utf-8")
        section = page[page.index('id="sites"') :]
        return re.search(r"<li>(Calibration and errors .*?)</li>", section).group(1)

    copy = shutil.copytree(folder / "binary", tmp_path / "copy")
    start = "Calibration and errors need the predictions of logistic regression, which are not "
    start += "available"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        assert said(copy) == f"{start} (reading them needs pyarrow, which is not installed)."
    for path in (copy / "jobs").glob("*.parquet"):
        path.unlink()
    assert said(copy) == f"{start} (their files are missing from the subfolder jobs)."
    shutil.rmtree(copy / "jobs")
    assert said(copy) == f"{start} (the results folder has no subfolder jobs)."


def test_the_pictures_show_calibration_and_net_benefit(binary):
    calibration, decisions = site_section(binary)["pictures"]
    assert "5 other sites" in calibration.svg
    assert "treat nobody" in decisions.svg
    assert "threshold 0.4" not in decisions.svg
    decided = replace(binary, facts={**binary.facts, "decision": 0.4})
    assert "threshold 0.4" in site_section(decided)["pictures"][1].svg


def test_predictions_without_errors_are_said_to_be_correct(binary):
    target = np.array(["none", "x & y"])
    predicted = {"one": Outputs(target=target, prediction=target)}
    sentence, columns = error_statement(binary, predicted)
    assert sentence == (
        "All rows of the held-out domains are predicted correctly by logistic regression."
    )
    assert columns == {"correct": {"one": "100 %"}, "most frequent error": {"one": "none"}}
