"""Faults in a table are reported with their columns and domains; clean tables have none."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from domainwise import evaluate
from domainwise.evaluation.evaluation import Evaluation
from domainwise.evaluation.faults import check_leaks, find_faults, leaking_columns, with_effects
from domainwise.evaluation.problem import make_problem
from domainwise.evaluation.results import MethodResult
from domainwise.evaluation.table_checks import identifier_reason
from domainwise.held_out.scoring.measures import choose_measure

SITES = [f"site {mark}" for mark in "ABCDEF"]
N = 80


def table(seed=0, n=N):
    """Six sites; three columns go along with how ill somebody is, two do not."""
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(6), n)
    ill = rng.normal(size=len(site))
    columns = {
        "temperature": 37 + 0.4 * ill + 0.3 * rng.normal(size=len(site)),
        "weight": 75 + 12 * rng.normal(size=len(site)),
        "balance": ill + 0.5 * rng.normal(size=len(site)),
        "lactate": np.exp(0.5 * ill + 0.3 * rng.normal(size=len(site))),
        "ward": rng.choice(["east", "west", "south"], size=len(site)).astype(object),
    }
    return columns, (ill + 1.5 * rng.normal(size=len(site)) > 0).astype(int), site


def faults(columns, y, site, classification=True, least=2):
    detected = find_faults(list(columns.items()), y, classification, site, SITES)
    assert detected == sorted(detected, key=lambda fault: -fault.severity)
    return [fault for fault in detected if fault.severity >= least]


def only(columns, y, site, **options):
    (fault,) = faults(columns, y, site, **options)
    return fault


@pytest.mark.parametrize("classification", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_a_table_without_faults_has_none(seed, classification):
    columns, y, site = table(seed)
    if not classification:
        y = columns["balance"] + np.random.default_rng(100 + seed).normal(size=len(y))
    assert faults(columns, y, site, classification, least=1) == []


# Leaks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_copy_of_the_target_is_a_leak_everywhere(seed):
    columns, y, site = table(seed)
    columns["followup"] = y + 0.1 * np.random.default_rng(seed).normal(size=len(y))
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns, fault.domains) == ("leak", ["followup"], [])
    assert (fault.leak, fault.severity, fault.rows) == (True, 3, len(y))
    assert "--drop followup" in fault.action
    assert "predicts the target almost perfectly (AUC 1.00 alone" in fault.message


def test_a_leak_in_two_domains_names_them():
    columns, y, site = table()
    rng = np.random.default_rng(1)
    leak = rng.integers(5, size=len(y)).astype(float)
    columns["code"] = np.where(site < 2, 10.0 * y, leak)
    fault = next(f for f in faults(columns, y, site) if f.kind == "leak")
    assert (fault.columns, fault.domains, fault.rows) == (["code"], ["site A", "site B"], 2 * N)
    assert "in site A and site B" in fault.message


def test_text_and_missing_cells_leak_as_well():
    columns, y, site = table()
    columns["treatment"] = np.where(y == 1, "surgery", "none").astype(object)
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns) == ("leak", ["treatment"])
    columns, y, site = table()
    result = np.random.default_rng(0).normal(size=len(y))
    columns["result"] = np.where(y == 1, result, np.nan)
    fault = next(f for f in faults(columns, y, site) if f.kind == "leak")
    assert fault.message.startswith("Whether result is missing predicts the target")


def test_a_column_with_a_nonmonotonic_relation_to_the_target_leaks():
    columns, y, site = table()
    rng = np.random.default_rng(0)
    columns["code"] = np.where(y == 1, 5.0, rng.choice([1.0, 9.0], size=len(y)))
    assert only(columns, y, site).columns == ["code"]


def test_a_number_and_several_classes_leak_too():
    columns, _, site = table()
    rng = np.random.default_rng(100)
    y = columns["balance"] + 2 * rng.normal(size=len(site))
    columns["copy"] = np.round(y, 1)
    assert only(columns, y, site, classification=False).columns == ["copy"]
    columns, _, site = table()
    classes = rng.integers(4, size=len(site))
    columns["copy"] = 3.0 * classes + rng.normal(scale=0.1, size=len(site))
    assert only(columns, classes, site).columns == ["copy"]


def test_a_leak_and_its_copy_are_both_named():
    columns, y, site = table()
    columns["first"] = y + 0.05 * np.random.default_rng(0).normal(size=len(y))
    columns["second"] = 3 * columns["first"] + 1
    leaks = [asdict(f) for f in faults(columns, y, site)]
    assert sorted(leaking_columns(leaks)) == ["first", "second"]


def test_legitimate_columns_that_are_almost_perfect_are_one_remark():
    rng = np.random.default_rng(0)
    site, y = np.repeat(np.arange(6), N), rng.integers(2, size=6 * N)
    columns = {name: 4 * y + rng.normal(size=len(y)) for name in ("a", "b", "c")}
    (fault,) = faults(columns, y, site, least=1)
    assert (fault.kind, fault.severity, fault.leak) == ("strong column", 1, False)
    assert "known at prediction time" in fault.action


def test_few_rows_of_a_class_do_not_leak_by_chance():
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(6), 20)
    y = np.tile(np.arange(20) < 5, 6).astype(int)
    columns = {f"x{j}": rng.normal(size=len(y)) for j in range(200)}
    assert not any(f.leak for f in faults(columns, y, site))


def test_a_good_column_and_a_rare_class_are_not_leaks():
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(6), 1000)
    y = (rng.random(len(site)) < 0.01).astype(int)
    columns = {name: 3 * y + rng.normal(size=len(y)) for name in ("a", "b", "c")}
    assert faults(columns, y, site) == []
    columns["leak"] = y + 0.01 * rng.normal(size=len(y))
    columns = {name: columns[name] for name in ("leak", "a")}
    columns["a"] = y + rng.normal(size=len(y))
    assert only(columns, y, site).columns == ["leak"]


def test_leaks_in_many_small_domains_are_detected_in_pooled_rows():
    rng = np.random.default_rng(0)
    site, y = np.repeat(np.arange(60), 8), rng.integers(2, size=480)
    columns = {"x": rng.normal(size=480), "leak": y + 0.05 * rng.normal(size=480)}
    detected = find_faults(list(columns.items()), y, True, site, [str(d) for d in range(60)])
    assert leaking_columns([asdict(fault) for fault in detected]) == ["leak"]


# Cells --------------------------------------------------------------------------------------------


def test_a_constant_filler_at_one_site_is_named_with_its_rows():
    columns, y, site = table()
    columns["weight"][site == 2] = 0.0
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns, fault.domains, fault.rows) == (
        "filler",
        ["weight"],
        ["site C"],
        N,
    )
    assert f"weight is 0 in all {N} rows from site C" in fault.message


@pytest.mark.parametrize("value", [0.0, 999.0, -99.0])
def test_a_code_for_missing_values_in_some_rows_is_named(value):
    columns, y, site = table()
    rows = np.flatnonzero(site == 3)[::3]
    columns["weight"][rows] = value
    fault = only(columns, y, site)
    assert (fault.kind, fault.domains, fault.rows) == ("filler", ["site D"], len(rows))
    assert f"weight is {value:g} in {len(rows)} of the {N} rows from site D" in fault.message


def test_a_filler_may_be_a_rare_value_elsewhere():
    columns, y, site = table()
    columns["weight"][site == 2] = 0.0
    columns["weight"][np.flatnonzero(site == 4)[:10]] = 0.0
    assert only(columns, y, site).domains == ["site C"]


def test_values_that_are_properties_of_domains_are_not_fillers():
    columns, y, site = table()
    columns["altitude"] = np.array([10.0, 250.0, 40.0, 700.0, 95.0, 3.0])[site]
    columns["rain"] = np.maximum(columns["balance"], 0)  # half of all rows are 0
    assert faults(columns, y, site) == []


def test_columns_that_are_missing_at_the_same_sites_are_one_fault():
    columns, y, site = table()
    columns["weight"][site >= 2] = np.nan  # most sites lack it
    columns["ward"][(site >= 2) & (np.arange(len(site)) % 10 > 0)] = None
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns) == ("missing", ["weight", "ward"])
    assert (fault.domains, fault.rows) == (SITES[2:], 4 * N)
    assert "missing in 90 to 100 % of the rows" in fault.message
    assert fault.message.endswith("but in no row from site A.")
    assert "--drop weight,ward" in fault.action


def test_cells_missing_equally_at_all_sites_are_not_a_fault():
    columns, y, site = table()
    columns["weight"][np.random.default_rng(0).random(len(site)) < 0.7] = np.nan
    assert faults(columns, y, site) == []


# Units, signs and levels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "change", "words"),
    [
        ("temperature", lambda v: 1.8 * v + 32, "°F instead of °C would fit"),
        ("temperature", lambda v: v + 273.15, "K instead of °C would fit"),
        ("weight", lambda v: 2.20462 * v, "pounds instead of kilograms would fit"),
        ("weight", lambda v: 1000 * v, "a factor of 1,000 would fit"),
        ("lactate", lambda v: v / 1000, "a factor of 1/1,000 would fit"),
    ],
)
def test_another_unit_at_one_site_is_named(column, change, words):
    columns, y, site = table()
    columns[column][site == 2] = change(columns[column][site == 2])
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns, fault.domains, fault.rows) == (
        "unit",
        [column],
        ["site C"],
        N,
    )
    medians = [np.median(columns[column][site == d]) for d in range(6)]
    others = np.delete(medians, 2)
    level = f"{float(f'{medians[2]:.4g}'):,.12g}"
    assert f"The median of {column} is {level} in site C" in fault.message
    assert f"{others.min():.4g} to {others.max():.4g} in the other domains" in fault.message
    assert words in fault.message


def test_another_unit_of_a_column_around_zero_is_detected_by_its_spread():
    columns, y, site = table()
    columns["balance"][site == 1] *= 100
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns, fault.domains) == ("unit", ["balance"], ["site B"])
    assert "The standard deviation of balance is" in fault.message
    assert "a factor of 100 would fit" in fault.message


def test_another_unit_at_two_of_six_sites_is_one_fault():
    columns, y, site = table()
    rows = np.isin(site, [0, 4])
    columns["temperature"][rows] = 1.8 * columns["temperature"][rows] + 32
    fault = only(columns, y, site)
    assert (fault.kind, fault.domains) == ("unit", ["site A", "site E"])


def test_units_of_one_quantity_are_not_suggested_for_another():
    columns, y, site = table()
    columns["price"] = columns.pop("temperature")
    columns["price"][site == 2] += 273.15
    assert faults(columns, y, site) == []
    fault = next(f for f in faults(columns, y, site, least=1) if f.columns == ["price"])
    assert fault.kind == "level"


@pytest.mark.parametrize("column", ["temperature", "balance"])
def test_a_swapped_sign_is_named_by_its_level_or_by_its_correlations(column):
    columns, y, site = table()
    columns[column][site == 3] *= -1
    fault = only(columns, y, site)
    assert (fault.kind, fault.columns, fault.domains) == ("sign", [column], ["site D"])


def test_a_site_far_from_all_others_is_a_remark_if_no_unit_fits():
    columns, y, site = table()
    columns["weight"][site == 5] += 400.0
    (fault,) = faults(columns, y, site, least=1)
    assert (fault.kind, fault.severity, fault.domains) == ("level", 1, ["site F"])


def test_sites_with_naturally_different_levels_have_no_faults():
    columns, y, site = table()
    rng = np.random.default_rng(0)
    columns["price"] = np.exp(rng.normal(scale=1.5, size=6)[site] + 0.2 * rng.normal(size=len(y)))
    assert faults(columns, y, site, least=1) == []


# Remarks ------------------------------------------------------------------------------------------


def remark(columns, y, site, names=SITES):
    detected = find_faults(list(columns.items()), y, True, site, names)
    (fault,) = [fault for fault in detected if fault.severity < 3]
    return fault


def test_identifiers_and_copies_of_the_domain_are_remarks():
    columns, y, site = table()
    columns["patient"] = np.random.default_rng(0).permutation(len(y)).astype(float)
    assert remark(columns, y, site).kind == "identifier"
    columns["patient"] = np.array([f"p{i}" for i in range(len(y))], dtype=object)
    assert remark(columns, y, site).kind == "identifier"
    columns["patient"] = np.array(["a", "b", "c", "d", "e", "f"], dtype=object)[site]
    columns["patient"][0] = "b"
    fault = remark(columns, y, site)
    assert (fault.kind, fault.columns) == ("copy of the domain", ["patient"])
    assert identifier_reason(np.array([1.0, 2.0, 1.0]), [np.arange(3)]) == ""


def test_columns_of_the_site_are_listed_and_cause_no_alarm():
    columns, y, site = table()
    columns["beds"] = np.array([80.0, 320, 200, 1, 1000, 80])[site]
    columns["altitude"] = np.array([0.0, 0, 0, 0, 0, 3000])[site]
    columns["school"] = np.array(["a", None, "c", "d", "e", "f"], dtype=object)[site]
    (fault,) = faults(columns, y, site, least=1)
    assert (fault.kind, fault.columns) == ("site level", ["beds", "altitude", "school"])
    assert "constant within every domain: 6 domains, 6 values" in fault.message
    assert "--drop beds,altitude,school" in fault.action
    (fault,) = faults({"beds": columns["beds"]}, y, site, least=1)
    assert fault.kind == "site level"


def test_a_column_with_many_categories_is_a_remark():
    columns, y, site = table()
    codes = np.random.default_rng(0).integers(0, 400, len(y))
    columns["icd"] = np.array([f"code {i}" for i in codes], dtype=object)
    (fault,) = [f for f in faults(columns, y, site, least=1) if f.columns == ["icd"]]
    assert (fault.kind, fault.severity) == ("many categories", 1)
    assert f"icd has {len(set(codes))} categories. Those with fewer than 5 rows" in fault.message
    columns["icd"] = np.array([f"code {i % 50}" for i in codes], dtype=object)
    assert not [f for f in faults(columns, y, site, least=1) if f.columns == ["icd"]]


def test_copied_columns_are_remarks():
    columns, y, site = table()
    columns["pounds"] = 2.20462 * columns["weight"]
    columns["wing"] = np.array(
        [{"east": "e", "west": "w", "south": "s"}[v] for v in columns["ward"]]
    )
    columns["wing"] = columns["wing"].astype(object)
    detected = faults(columns, y, site, least=1)
    (fault,) = detected
    assert (fault.kind, fault.columns) == ("copied column", ["weight", "pounds", "ward", "wing"])
    assert fault.message == (
        "pounds can be computed from weight and wing can be computed from ward."
    )
    assert "--drop pounds,wing" in fault.action


def test_rows_that_two_sites_share_are_counted():
    columns, y, site = table()
    first, second = np.flatnonzero(site == 1)[:30], np.flatnonzero(site == 4)[:30]
    for values in (*columns.values(), y):
        values[second] = values[first]
    fault = only(columns, y, site)
    assert (fault.kind, fault.domains, fault.rows) == ("copied rows", ["site B", "site E"], 30)


def test_rows_that_occur_several_times_in_a_site_are_counted():
    columns, y, site = table()
    columns["beds"] = np.array([80.0, 320, 200, 1, 1000, 80])[site]
    for values in (*columns.values(), y):
        values[N : N + 3], values[4 * N] = values[N + 3 : N + 6], values[4 * N + 1]
    found = [f for f in faults(columns, y, site, least=1) if f.kind != "site level"]
    (fault,) = found
    assert (fault.kind, fault.domains, fault.rows) == ("repeated rows", ["site B", "site E"], 4)
    assert "another row of the same domain: 3 in site B and 1 in site E." in fault.message


def test_rows_that_are_equal_by_chance_are_not_copies():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=1200)
    columns = {f"x{j}": rng.integers(3, size=1200).astype(float) for j in range(4)}
    # ... also if most pairs of rows are in one large domain.
    for site in (np.repeat(np.arange(6), 200), np.repeat(np.arange(6), [1000, *[40] * 5])):
        assert faults(columns, y, site, least=1) == []


def test_tiny_domains_and_domains_with_one_class_are_remarks():
    columns, y, site = table()
    y[site == 2] = 1
    fault = remark(columns, y, site)
    assert (fault.kind, fault.domains, fault.rows) == ("one class", ["site C"], N)
    columns, y, site = table()
    rows = (site != 5) | (np.cumsum(site == 5) <= 4)
    columns = {name: values[rows] for name, values in columns.items()}
    fault = remark(columns, y[rows], site[rows])
    assert (fault.kind, fault.domains, fault.rows) == ("tiny domain", ["site F"], 4)


# In an evaluation ---------------------------------------------------------------------------------


def test_the_effect_of_a_fault_on_scores_is_reported():
    pandas = pytest.importorskip("pandas")
    columns, _, site = table()
    y = (columns["balance"] > 0).astype(int)
    columns["balance"] = np.exp(columns["balance"])
    columns["balance"][site == 2] /= 1000
    frame = pandas.DataFrame({name: columns[name] for name in ("balance", "weight")})
    options = dict(methods=["constant", "linear"], progress=False, scoring="accuracy")
    result = evaluate(frame, y, np.array(SITES)[site], **options)
    (fault,) = [f for f in result.differences["faults"] if f["kind"] == "unit"]
    assert fault["effect"].startswith(
        "For all methods, the gain over a constant prediction on site C"
    )


def test_perfect_scores_are_a_fault():
    rng = np.random.default_rng(0)
    site = np.repeat(["a", "b", "c", "d"], 60)
    y = rng.integers(2, size=240)
    X = np.column_stack([9 * y + rng.normal(size=240), 9 * y + rng.normal(size=240)])
    result = evaluate(X, y, site, methods=["constant", "linear"], progress=False)
    assert result.differences["faults"][0]["kind"] == "score"
    assert "unusually good" in result.differences["faults"][0]["message"]
    noisy = np.where(rng.random(240) < 0.2, 1 - y, y)
    result = evaluate(X, noisy, site, methods=["constant", "linear"], progress=False)
    assert with_effects([], result) == []


class NeedsThreeColumns(LogisticRegression):
    """Fails without the column that leaks."""

    def fit(self, X, y):
        X[:, 2]
        return super().fit(X, y)


def test_methods_are_also_compared_without_columns_that_leak():
    columns, y, site = table()
    leak = y + 0.05 * np.random.default_rng(0).normal(size=len(y))
    X = np.column_stack([columns["weight"], columns["balance"], leak])
    options = dict(methods=["constant", "linear"], progress=False, scoring="accuracy")
    methods = [*options["methods"], ("mine", NeedsThreeColumns())]
    result = evaluate(X, y, np.array(SITES)[site], **{**options, "methods": methods})
    assert result.find("mine").mean > 0.9
    honest = evaluate(X[:, :2], y, np.array(SITES)[site], **options)
    assert result.differences["faults"][0]["columns"] == ["x2"]
    without = result.differences["without_leaks"]
    assert without["columns"] == ["x2"]
    label, mean = max((r.label, r.mean) for r in honest.results if r.key == "linear")
    assert without["scores"] == {label: pytest.approx(mean)}
    assert result.results[0].mean > 0.95 > mean


def leak_results(scores, *, recommended="dcm", error=0.02):
    """Results of two methods on eight domains, and an alarm about one column on one domain."""
    rival = {"dcm": "svm", "svm": "dcm"}[recommended]
    results = [
        MethodResult(
            key,
            key.upper(),
            "projection",
            "",
            {f"site {i}": score - drop for i, score in enumerate(scores)},
            {},
            errors={f"site {i}": error for i in range(len(scores))},
        )
        for key, drop in ((recommended, 0.0), (rival, 0.1))
    ]
    measure = choose_measure("accuracy", np.array([0, 1]), True)
    fault = {"columns": ["x"], "domains": ["site 0"], "severity": 3, "leak": True, "kind": "leak"}
    facts = {"classes": None}
    evaluation = Evaluation(results, list(results[0].scores), measure, {}, facts)
    evaluation.differences = {"faults": [{**fault, "message": "x leaks.", "action": "Drop it."}]}
    return evaluation


SCORES = [0.7, 0.8, 0.7, 0.8, 0.7, 0.8, 0.7, 0.8]


@pytest.mark.parametrize(
    ("rerun", "is_alarm"),
    [
        (leak_results(SCORES), False),
        (leak_results([score - 0.015 for score in SCORES]), False),  # the standard error is .019
        (leak_results([score - 0.03 for score in SCORES]), True),
        (leak_results([0.67, *SCORES[1:]]), True),  # on the affected domain
        (leak_results([0.7, 0.77, *SCORES[2:]]), False),  # on another one
        (leak_results(SCORES, recommended="svm"), True),
        (None, True),
    ],
)
def test_a_leak_is_an_alarm_only_if_the_recommendation_or_a_score_changes_without_it(
    rerun, is_alarm
):
    results = leak_results(SCORES)
    results.differences |= check_leaks(results, rerun)
    (fault,) = results.differences["faults"]
    assert (fault["leak"], fault["severity"] > 1) == (is_alarm, is_alarm)
    assert ("without_leaks" in results.differences) == is_alarm
    assert ("about the same without it" in fault["action"]) != is_alarm
    if is_alarm and rerun:
        assert results.differences["without_leaks"]["columns"] == ["x"]


def test_a_column_that_does_not_improve_scores_on_held_out_domains_is_no_alarm():
    """Scores change on each affected domain, but they do not get worse on average."""
    steps = [0.05, -0.06] * 4
    rerun = leak_results([score + step for score, step in zip(SCORES, steps, strict=True)])
    results = leak_results(SCORES)
    results.differences["faults"][0]["domains"] = [f"site {i}" for i in range(8)]
    assert "faults" in check_leaks(results, rerun)
    # The recommended method is the constant prediction, which uses no columns.
    constant = replace(results.results[0], key="constant", label="constant")
    results.results = [constant, *[replace(r, scores=dict(rerun.scores["svm"])) for r in
                                   results.results]]  # fmt: skip
    worse = leak_results([score - 0.2 for score in SCORES])
    assert "without_leaks" not in check_leaks(results, worse)


def test_columns_are_dropped_from_frames_and_arrays():
    pandas = pytest.importorskip("pandas")
    columns, y, site = table()
    asked = dict(task="auto", scoring=None, max_rows=100, random_state=0)
    problem = make_problem(pandas.DataFrame(columns), y, site, **asked)
    fewer = problem.without_columns(["ward", "weight"])
    assert list(fewer.X.columns) == ["temperature", "balance", "lactate"]
    assert list(fewer.parent.X.columns) == ["temperature", "balance", "lactate"]
    assert fewer.preprocessor.fit_transform(fewer.X).shape == (100, 3)
    X = np.column_stack([columns["weight"], columns["balance"]])
    array = make_problem(X, y, site, **asked).without_columns(["x0"])
    np.testing.assert_array_equal(array.parent.X[:, 0], columns["balance"])
