from dataclasses import replace

import pytest

from reproduction.methods import METHODS
from reproduction.protocols import METRICS, PAPER_NUMBERS, TABLES, find_case, select_tables

CASES = [case for table in TABLES.values() for case in table.cases]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.key)
def test_a_case_names_only_what_exists(case):
    assert set(case.methods) | set(case.tuned_methods) <= set(METHODS)
    assert set(case.metrics) <= set(METRICS)
    assert case.table in TABLES
    assert set(case.paper_numbers) <= set(case.methods)
    assert all(set(row) <= {*case.metrics, "seconds"} for row in case.paper_numbers.values())


def test_every_table_of_the_paper_has_a_case():
    assert set(PAPER_NUMBERS) == {case.key for case in CASES} - {"oil/facies"}


def test_the_papers_numbers_are_those_of_its_source():
    """A sample of each table, read off dcm.tex."""
    assert PAPER_NUMBERS["synthetic/eta0.5-gamma0.5"]["dcm"]["accuracy"] == [59.06, 4.25]
    assert PAPER_NUMBERS["parkinsons/total"]["coir"]["rmse"] == [12.23, 1.46]
    assert PAPER_NUMBERS["parkinsons/motor"]["dica"]["seconds"] == 408.25
    assert PAPER_NUMBERS["gvhd/n1000"]["fastdcm"]["g_mean"] == [0.9021, 0.0158]
    assert PAPER_NUMBERS["landmine/n200"]["svm"]["label_auc"] == [0.5076, 0.0069]
    assert PAPER_NUMBERS["oil/wells"]["fastdcm"]["seconds"] == 216.43


def test_constants_are_those_of_the_design():
    landmine = find_case("landmine/full")
    assert (landmine.gamma, landmine.epsilon, landmine.m, landmine.repeats) == (0.5, 1e-6, 2, 10)
    assert (landmine.train_domains, landmine.test_domains) == (9, 20)
    parkinsons = find_case("parkinsons/motor")
    assert (parkinsons.gamma, parkinsons.n_components) == ("median_target", 5)
    gvhd = find_case("gvhd/n1000")
    assert (gvhd.scaling, gvhd.rows_per_domain, gvhd.train_domains) == ("minmax", 1000, 4)


def test_stand_ins_are_named():
    assert {key for key, table in TABLES.items() if table.stand_in} == {"gvhd", "oil"}


def test_a_fingerprint_changes_with_the_meaning_and_not_with_the_size():
    case = CASES[0]
    assert replace(case, epsilon=1.0).fingerprint() != case.fingerprint()
    assert replace(case, repeats=99, title="x").fingerprint() == case.fingerprint()
    assert (
        find_case("landmine/full").quick().fingerprint() != find_case("landmine/full").fingerprint()
    )


def test_an_unknown_table_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown table 'sythetic'; choose synthetic"):
        select_tables("sythetic")
    assert len(select_tables("all")) == 5
