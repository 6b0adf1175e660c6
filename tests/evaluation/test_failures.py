"""Errors by domain: numbers on the page agree with plain computations from predictions."""

import re
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
pytest.importorskip("pyarrow")

from sklearn.metrics import average_precision_score, roc_auc_score

from domainwise import evaluate
from domainwise.evaluation.failures import (
    coverage_by_domain,
    failure_sections,
    predictions_by_domain,
)
from domainwise.evaluation.folder import read_evaluation
from domainwise.evaluation.plots.sites import reliability
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


def column(sections, name):
    return {d: sections["columns"][name].get(d, "–") for d in sections["columns"]["rows"]}


def predictions(evaluation):
    frame = evaluation.predictions_
    return frame[frame["method"] == evaluation.best.key]


def test_sentences_and_columns_about_classes_agree_with_the_predictions(binary):
    sections = failure_sections(binary)
    frame = predictions(binary)
    p = frame[f"probability_{binary.facts['classes'][-1]}"]
    hit = frame["target"] == "x & y"
    for name in binary.domains:
        mine = frame["domain"] == name
        right = np.mean(frame["target"][mine] == frame["prediction"][mine])
        assert column(sections, "correct")[name] == f"{100 * right:.0f} %"
        error = reliability(p[mine].to_numpy(), hit[mine].to_numpy()).error
        assert column(sections, "calibration error")[name] == f"{error:.2f}"
        if name == "site 2":
            assert column(sections, "AUC")[name] == "–"
            continue
        assert column(sections, "AUC")[name] == f"{roc_auc_score(hit[mine], p[mine]):.2f}"
        area = average_precision_score(hit[mine], p[mine])
        assert column(sections, "average precision")[name] == f"{area:.2f}"
    said = " ".join(sentence for part in sections["sections"] for sentence in part.sentences)
    assert "Domains with only one class have no AUC: site 2." in said
    wrong = [
        (np.sum((frame["target"] == a) & (frame["prediction"] == b)), a, b)
        for a, b in (("none", "x & y"), ("x & y", "none"))
    ]
    count, a, b = max(wrong)
    total = np.sum(frame["target"] == a)
    assert f"class {b} instead of class {a}, in {count} of {total} rows of class {a}" in said


@pytest.mark.parametrize("asked", [0.5, 0.9])
def test_coverage_is_computed_with_thresholds_from_the_other_domains(binary, asked):
    predicted = predictions_by_domain(binary.records[binary.best.key], binary.domains)
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


def test_the_mean_residual_of_a_continuous_target_is_reported(numbers):
    sections = failure_sections(numbers)
    frame = predictions(numbers)
    away = frame["prediction"] - frame["target"]
    bias = away.groupby(frame["domain"]).mean()
    share = bias**2 / (away**2).groupby(frame["domain"]).mean()
    decimals = 2 - int(np.floor(np.log10(bias.abs().max())))
    for name in numbers.domains:
        assert column(sections, "bias")[name] == f"{bias[name]:+.{decimals}f}"
        percent = f"{100 * share[name]:.0f} %"
        assert column(sections, "squared error due to bias")[name] == percent
    worst = bias.abs().idxmax()
    (sentence,) = sections["sections"][0].sentences
    assert f"largest on {worst}: predictions are {abs(bias[worst]):.3g} too" in sentence
    assert [part.title for part in sections["sections"]] == [
        "Residuals",
        "Coverage of prediction intervals",
    ]


def test_auc_of_three_classes_compares_each_class_with_the_others(three):
    sections = failure_sections(three)
    frame = predictions(three)
    classes = three.facts["classes"]
    mine = frame[frame["domain"] == three.domains[0]]
    hit = mine["target"].to_numpy()[:, None] == np.array(classes)
    p = mine[[f"probability_{c}" for c in classes]].to_numpy()
    area = roc_auc_score(hit.ravel(), p.ravel())
    assert column(sections, "AUC")[three.domains[0]] == f"{area:.2f}"
    calibration = next(part for part in sections["sections"] if part.title == "Calibration")
    assert "probability of the predicted class is" in calibration.sentences[0]
    assert "and it is correct in" in calibration.sentences[0]


@pytest.mark.parametrize("name", ["binary", "numbers"])
def test_a_results_folder_gives_the_same_sections_as_the_evaluation(name, folder, request):
    evaluation = request.getfixturevalue(name)
    again, _ = read_evaluation(folder / name)
    first, second = failure_sections(evaluation), failure_sections(again)
    texts = [[part.sentences for part in page["sections"]] for page in (first, second)]
    assert texts[0] == texts[1]
    assert first["columns"] == second["columns"]
    assert list(first["columns"]["rows"]) == list(second["columns"]["rows"])
    svg = [[picture.svg for picture in part.pictures] for part in first["sections"]]
    assert svg == [[picture.svg for picture in part.pictures] for part in second["sections"]]


def test_the_page_has_sections_about_errors_and_names_are_text(binary, tmp_path):
    page = binary.report(tmp_path / "page.html").read_text("utf-8")
    assert 'id="failures"' in page
    assert "<i>b</i>" not in page
    assert page.count("<h3>Classification errors</h3>") == 1
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_page_without_predictions_says_why_errors_are_not_shown(
    binary, folder, tmp_path, monkeypatch
):
    import shutil

    def said(out):
        evaluation, _ = read_evaluation(out)
        assert failure_sections(evaluation) is None
        page = evaluation.report(tmp_path / "page.html").read_text("utf-8")
        section = page[page.index('id="failures"') :]
        return re.search(r'<p class="said">(.*?)</p>', section).group(1)

    copy = shutil.copytree(folder / "binary", tmp_path / "copy")
    start = "This section needs the predictions of logistic regression, which are not available"
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pyarrow", None)
        assert said(copy) == f"{start} (reading them needs pyarrow, which is not installed)."
    for path in (copy / "jobs").glob("*.parquet"):
        path.unlink()
    assert said(copy) == f"{start} (their files are missing from the subfolder jobs)."
    shutil.rmtree(copy / "jobs")
    assert said(copy) == f"{start} (the results folder has no subfolder jobs)."


def test_each_of_six_domains_has_a_panel_and_a_calibration(binary):
    parts = {part.title: part for part in failure_sections(binary)["sections"]}
    picture = parts["Classification errors"].pictures[0]
    assert picture.caption.endswith(
        "Each domain has a panel, with its number of rows in parentheses"
    )
    assert "the other" not in picture.svg
    calibration = parts["Calibration"]
    assert "5 other sites" in calibration.pictures[0].svg
    assert "Net benefit" in calibration.pictures[1].alt
    ratios = [float(text.split()[0]) for text in calibration.columns["O/E"].values()]
    assert len(ratios) == 6
    assert calibration.sentences[1].startswith("Pooled over domains, O/E is ")


def test_only_the_worst_of_forty_domains_are_named_in_pictures():
    rng = np.random.default_rng(0)
    codes, p = np.repeat(np.arange(40), 20), rng.uniform(size=800)
    predicted = {
        d: Outputs(
            (rng.uniform(size=20) < p[codes == d]).astype(int),
            (p[codes == d] > 0.5).astype(int),
            np.column_stack([1 - p[codes == d], p[codes == d]]),
        )
        for d in range(40)
    }
    from domainwise.evaluation import failures

    parts = [
        f("m", predicted, np.array([0, 1]))
        for f in (failures.confusion_section, failures.calibration_section)
    ]
    assert "the other 35" in parts[0].pictures[0].svg
    assert "5 worst of 40 domains" in parts[0].pictures[0].caption
    assert "39 other sites" in parts[1].pictures[0].svg


def test_a_method_without_probabilities_is_ranked_by_its_decisions():
    from domainwise.evaluation import failures

    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 30))
    predicted = {
        d: Outputs(
            target=(values[d] + rng.normal(size=30) > 0).astype(int),
            prediction=(values[d] > 0).astype(int),
            decisions=values[d],
        )
        for d in range(3)
    }
    classes = np.array([0, 1])
    area = roc_auc_score(predicted[0].target, values[0])
    assert failures.ranking_section("m", predicted, classes).columns["AUC"][0] == f"{area:.2f}"
    part = failures.calibration_section("m", predicted, classes)
    assert (part.sentences, part.pictures) == (["Probabilities are not available for m."], [])
