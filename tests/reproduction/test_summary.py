import json

import numpy as np
import pytest

from domainwise.base.files import ResultsError, ResultStore
from domainwise.held_out.scoring.statistics import p_text
from reproduction.report import case_caption, case_table, publish, to_markdown
from reproduction.sentences import (
    agreement,
    best_methods,
    count,
    describe_run,
    join,
    missing_repeats,
)
from reproduction.summary import summarise_run

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
            assert all(cell.is_within_sd is None for cell in cells)
    tuned = [c for case in run.cases("tuned") for m in case.methods for c in m.cells.values()]
    assert all(cell.paper_mean_sd is None for cell in tuned)


def test_within_means_one_of_the_papers_standard_deviations(run):
    case = run.cases("paper")[0]
    for method in case.methods:
        cell = method.cells["accuracy"]
        if cell.paper_mean_sd is not None:
            assert cell.is_within_sd == (
                abs(cell.our_summary.mean - cell.paper_mean_sd[0]) <= cell.paper_mean_sd[1]
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
    assert text.count("**Stand-in data.**") == 2
    assert "approximate" in text
    for line in text.splitlines():
        if line.startswith("| "):
            assert line.endswith(" |")


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
    assert agreement(quick) == []
    assert any("quick run" in sentence for sentence in describe_run(quick))
    assert "## Differences from the paper" not in to_markdown(quick)


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
