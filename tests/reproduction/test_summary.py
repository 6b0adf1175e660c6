import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest

from domainwise.base.files import ResultsError, ResultStore
from domainwise.held_out.scoring.statistics import p_text
from reproduction.plots import box_plot, ranking_plots
from reproduction.ranks import Summary
from reproduction.report import case_caption, case_table, publish, to_markdown
from reproduction.sentences import (
    agreement,
    best_methods,
    count,
    describe_run,
    join,
    main_result,
    missing_repeats,
    overview,
)
from reproduction.summary import standard_errors, summarise_run

NOT_IN_THE_PAPER = {"sca", "mda", "mida"}


@pytest.fixture(scope="module")
def folder(made_up_results):
    return made_up_results()


@pytest.fixture(scope="module")
def run(folder):
    store = ResultStore(folder)
    store.read()
    return summarise_run(store)


def test_a_cell_contains_mean_and_deviation_over_repeats(folder, run):
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    values = [
        row["metrics"]["rmse"]
        for row in rows
        if row.get("case") == "parkinsons/motor"
        and row.get("setting") == "tuned"
        and row["method"] == "dcm"
    ]
    case = next(c for c in run.cases("tuned") if c.case.key == "parkinsons/motor")
    cell = case.find_method("dcm").cells["rmse"]
    assert cell.our_summary.mean == pytest.approx(np.mean(values))
    assert cell.our_summary.deviation == pytest.approx(np.std(values, ddof=1))


def test_only_scores_on_the_papers_data_are_compared_with_the_paper(run):
    for case in run.cases("paper"):
        cells = [cell for method in case.methods for cell in method.cells.values()]
        assert any(cell.paper_mean_sd for cell in cells) == (case.case.key != "oil/facies")
        if case.stand_in:
            assert all(cell.agrees is None for cell in cells)
    tuned = [c for case in run.cases("tuned") for m in case.methods for c in m.cells.values()]
    assert all(cell.paper_mean_sd is None for cell in tuned)


def test_means_agree_if_they_differ_by_at_most_two_standard_errors(run):
    case = run.cases("paper")[0]
    flags = []
    for method in case.methods:
        cell = method.cells["accuracy"]
        if cell.paper_mean_sd is not None:
            ours, (mean, sd) = cell.our_summary, cell.paper_mean_sd
            error = np.sqrt(ours.deviation**2 / ours.n + sd**2 / 20)
            assert cell.agrees == (abs(ours.mean - mean) <= 2 * error)
            flags.append(cell.agrees)
    assert flags
    # Within one standard deviation of the paper's mean, but 2.4 standard errors away from it.
    assert standard_errors(Summary(66.72, 4.42, 20), (70.31, 4.91), 20) == pytest.approx(
        -2.43, abs=0.01
    )


def test_the_best_is_a_competing_method_in_the_right_direction(run):
    for case in run.cases():
        best = case.best_method()
        means = {m.key: m.cells[case.primary_metric.key].our_summary.mean for m in case.methods}
        competing_means = [
            mean
            for key, mean in means.items()
            if not key.endswith(("_small", "_inf", "_count", "_fifth"))
            and "algorithm" not in key
            and key not in NOT_IN_THE_PAPER
        ]
        best_mean = (
            max(competing_means) if case.primary_metric.greater_is_better else min(competing_means)
        )
        assert means[best.key] == best_mean


def test_methods_that_are_not_in_the_paper_are_shown_but_do_not_compete(run):
    for case in run.cases():
        others = [method for method in case.methods if method.key in NOT_IN_THE_PAPER]
        assert len(others) == (1 if case.case.task == "regression" else 3)
        assert all(method.label.endswith("(not in the paper)") for method in others)
        assert not NOT_IN_THE_PAPER & {method.key for method in case.best_methods()}
    for ranking in run.rankings.values():
        assert not any("not in the paper" in name for name in ranking.methods)


@pytest.mark.parametrize(("winners", "is_needed"), [("_inf", True), ("", False)])
def test_the_main_result_says_what_the_order_of_the_paper_needs(
    run, monkeypatch, winners, is_needed
):
    """The infinite ridge is named only if DCM is better with it, and not with the other ridges."""

    def lead_of(case, method, rival):
        return 1.0 if method.endswith(winners) else -1.0

    monkeypatch.setattr("reproduction.sentences.lead_of", lead_of)
    first, order, *needed = main_result(run)
    assert "COIR, which is DCM without the domain term," in first
    assert "with an infinite ridge" in order
    assert [("infinite ridge" in text) for text in needed] == [True] * is_needed


def test_all_methods_with_the_best_mean_are_named(made_up_results):
    folder = made_up_results(tables=("synthetic",))
    file = folder / "results.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        if row.get("method") in ("coir", "svm") and "metrics" in row:
            row["metrics"]["accuracy"] = 99.0 + row["repeat"] / 100
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    store = ResultStore(folder)
    store.read()
    run = summarise_run(store)
    assert [method.key for method in run.cases()[0].best_methods()] == ["svm", "coir"]
    expected = "SVM (in 5 of 5 cases) and COIR (in 5 of 5 cases), with ties counted for each method"
    assert expected in " ".join(best_methods(run))


def test_cases_of_one_data_set_count_once_in_the_ranking(run):
    ranking = run.rankings["paper"]
    assert ranking.n_datasets == 6
    assert set(ranking.methods) == {
        *("majority", "SVM", "KPCA", "COIR", "DICA", "DCM", "InvariantSVC")
    }
    assert run.rankings["tuned"].methods == ("SVM", "COIR", "DICA", "DCM", "InvariantSVC")


def test_a_failure_is_dropped_after_a_successful_repeat(made_up_results):
    folder = made_up_results(n_repeats=2)
    store = ResultStore(folder)
    store.read()
    first = store.rows("result")[0]
    store.append([{**first, "status": "error", "error": "no"}])
    assert len(summarise_run(store).failures) == 1
    store.append([first])
    assert not summarise_run(store).failures


def test_a_table_shows_our_scores_next_to_the_papers(run):
    case = next(c for c in run.cases("paper") if c.case.key == "landmine/n200")
    table = case_table(case)
    assert table.columns[:5] == ["method", "AUC (labels)", "paper", "G-mean", "paper"]
    row = next(row for row in table.rows if row[0].text == "DCM")
    assert row[2].text == "0.5640 ± 0.0195"
    assert row[1].text.endswith(("✓", "✗"))
    assert "9 source and 20 unseen domains" in case_caption(case)


def test_markdown_names_command_seed_and_stand_ins(run):
    text = to_markdown(run)
    assert "`python -m reproduction all --seed 0`" in text
    assert "## Differences from the paper" in text
    assert text.count("**Substitute data.**") == 2
    assert "approximate" in text
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")


def test_the_report_starts_with_its_finding(run):
    """The first paragraph compares DCM with COIR, the second says which data were used."""
    title, _, finding, _, data = to_markdown(run).splitlines()[:5]
    assert title == "# Do we get the paper's results?"
    cases = run.cases("paper")
    advantages = [case.advantage(case.find_method("coir")) for case in cases]
    better, worse = sum(a > 0 for a in advantages), sum(a < 0 for a in advantages)
    start = (
        "**With the paper's parameters, DCM is significantly better than COIR, which is DCM "
        f"without the domain term, in {better} of 13"
    )
    assert finding.startswith(start)
    assert f"significantly worse in {worse}.** In the paper, DCM has the better mean" in finding
    assert data.startswith("Three tables on the paper's data (Synthetic domains, Parkinson's")
    assert ", and two on substitutes (GvHD flow cytometry and Oil wells)" in data
    assert [row[1].text for row in overview(run).rows] == [
        "the paper's", "the paper's", "substitute", "the paper's", "substitute"
    ]  # fmt: skip
    assert overview(run).rows[0][0].text == "3: Synthetic domains"


REPORT = Path(__file__).resolve().parents[2] / "benchmarks" / "REPRODUCTION.md"


def test_the_report_in_the_repository_counts_what_its_tables_show():
    """DCM against COIR from the marks of the tests, and agreement from means and deviations."""
    text = REPORT.read_text("utf-8")
    start, tables = text.split("## Tables")
    better = worse = n_cases = n_agree = n_compared = 0
    for case in re.split(r"^\*\*(?=[^*]+\*\*: \d+ source)", tables, flags=re.MULTILINE)[1:]:
        caption, *lines = [line for line in case.splitlines() if line]
        rows = [
            [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in lines if line[0] == "|"
        ]
        columns, n = rows[0], 10 if "ten repeats" in caption else 20
        if "γ = " not in caption.split(":", 1)[1]:  # tuned
            continue
        n_cases += 1
        by_name = {row[0]: row for row in rows}
        better += "▲" in by_name["COIR"][columns.index("p")]
        worse += "▼" in by_name["COIR"][columns.index("p")]
        if "(substitute data)" in caption:
            assert not set("✓✗") & set(case.split("\n\n#")[0])
            continue
        for row in rows[2:]:
            for ours, paper in itertools.pairwise(row):
                numbers = re.findall(r"[\d.]+", f"{ours} {paper}") if "±" in paper else []
                if len(numbers) == 4 and ours.endswith(("✓", "✗")):
                    mean, sd, other, other_sd = map(float, numbers)
                    errors = abs(mean - other) / np.hypot(sd, other_sd) * np.sqrt(n)
                    assert abs(errors - 2) < 0.02 or (errors < 2) == ("✓" in ours), (caption, row)
                    n_compared += 1
                    n_agree += "✓" in ours
    assert n_cases == 13
    assert f"better than COIR in {better} of 13 cases and significantly worse in {worse}" in start
    assert (
        f"Of {n_compared} means over at least 5 repeats on the paper's data, {n_agree} agree"
        in start
    )


def test_missing_parts_are_reported(run, made_up_results):
    """The made-up file has 8 repeats of everything; the protocol asks for more."""
    (sentence,) = missing_repeats(run)
    assert "Synthetic domains, tuned: 8 of 10" in sentence
    assert "LandMine (all objects), paper: 8 of 10" in sentence
    store = ResultStore(made_up_results(n_repeats=20, tables=("oil",)))
    store.read()
    assert missing_repeats(summarise_run(store)) == []


def test_a_quick_run_claims_nothing(made_up_results):
    store = ResultStore(made_up_results("quick", n_repeats=2))
    store.read()
    quick = summarise_run(store)
    assert agreement(quick) == main_result(quick) == []
    assert any("quick run" in sentence for sentence in describe_run(quick))
    text = to_markdown(quick)
    assert "best methods" not in text
    assert "## Differences from the paper" not in text
    assert not set("✓✗▲▼") & set(text)
    assert all(box_plot(case) is None for case in quick.cases())
    assert not list(ranking_plots(quick))


def test_an_empty_results_file_has_no_report(tmp_path):
    ResultStore(tmp_path).open(root_seed=0, profile="full")
    with pytest.raises(ResultsError, match="has no results yet; run 'python -m reproduction'"):
        publish(tmp_path)
    with pytest.raises(ResultsError, match="no run was saved there"):
        publish(tmp_path / "elsewhere")


def test_lists_and_numbers_are_written_in_words():
    assert join(["a", "b", "c"]) == "a, b and c"
    assert join(["a"]) == "a"
    assert count(1, "table") == "one table"
    assert count(20, "repeat") == "20 repeats"
    assert [p_text(p) for p in (None, 1e-5, 0.04, 0.5)] == ["–", "<0.001", "0.040", "0.50"]
