"""By default, files are limited, and small groups are merged or left out without their names."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn import set_config

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")

from domainwise.federated import (  # noqa: E402
    DisclosureError,
    Plan,
    PlanError,
    SiteFile,
    fit,
    merge,
    moments,
    statistics,
)
from domainwise.federated.disclosure import Request  # noqa: E402
from domainwise.models.table_model import TableModel  # noqa: E402


def make_frame(n, seed, wards=("w",), p=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.2 * seed, 1.0, (n, p))
    frame = pandas.DataFrame(X, columns=[f"x{i}" for i in range(p)])
    ward = rng.choice(wards, n)
    value = X[:, 0] + 0.3 * X[:, -1] ** 2 + rng.normal(0, 0.5, n)
    return frame.assign(kind=rng.choice(["u", "v"], n), ward=ward, ill=value > 0.3, value=value)


def make_plan(frame, target="ill", **options):
    drop = [name for name in ("ill", "value") if name != target]
    return Plan.of_table(frame, target=target, domain="ward", drop=drop, **options)


def both_rounds(frames, target="ill", **options):
    plan = make_plan(next(iter(frames.values())), target, **options)
    first = {site: statistics(frame, plan, site=site) for site, frame in frames.items()}
    merged = merge(plan, first.values())
    return merged, first, {s: moments(frame, merged, site=s) for s, frame in frames.items()}


def n_numbers(file):
    """Count all numbers in a first-round file."""
    categories = sum(map(len, file.content["categories"]))
    return sum(a.size for a in file.arrays.values()) + categories + len(file.content["classes"])


@pytest.mark.parametrize("n", [100, 400, 3000])
@pytest.mark.parametrize("target", ["ill", "value"])
@pytest.mark.parametrize("method", ["invariantridge", "fastdcm"])
def test_numbers_about_each_group_are_at_most_half_of_its_values(n, target, method):
    """Count the numbers in files, for sites, classes, domains, and classes in domains."""
    wards = ("a", "b", "c")
    n = max(n, 400) if (method, target) == ("fastdcm", "value") else n  # more target columns
    frames = {f"s{i}": make_frame(n, i, wards) for i in range(3)}
    frames["s0"] = pandas.concat([frames["s0"], make_frame(30, 9, ("small",))], ignore_index=True)
    plan, first, second = both_rounds(frames, target, method=method)
    p, n_maps = len(plan.schema.features), len(plan.maps)
    for site, file in second.items():
        counts, sums = file.arrays["counts"], file.arrays["sums0"]
        width, packed = sums.shape[2], file.arrays["second0"]
        seconds = n_maps * packed.shape[1]
        by_class, by_domain = counts.sum(axis=1), counts.sum(axis=0)
        watch = file.arrays["watch"].shape[1] + 1
        assert (3 * width <= counts[counts > 0]).all()
        assert (2 * n_maps * width <= counts[counts > 0] * p).all()
        assert (2 * (n_maps * width * len(counts) + watch) <= by_domain * p).all()
        present = by_class > 0
        about_class = n_maps * width * len(by_domain) + seconds * (len(packed) > 1)
        assert (2 * about_class <= by_class[present] * p).all()
        total = n_numbers(first[site]) + seconds * len(packed)
        total += n_maps * sums.size + len(by_domain) * watch
        assert 2 * total <= counts.sum() * p
        assert 4 * n_maps * width**3 <= counts.sum() ** 2
    assert "small" not in json.dumps([file.content for file in second.values()])


def test_numbers_of_columns_and_maps_depend_on_row_counts():
    shapes = []
    for n in (100, 500, 2500, 25_000):
        plan, _, files = both_rounds({f"s{i}": make_frame(n, i) for i in range(3)})
        shapes.append((plan.merged["columns"], len(plan.maps)))
        assert all(file.arrays["counts"].sum() == n for file in files.values())
    columns, maps = zip(*shapes, strict=True)
    assert list(columns) == sorted(set(columns))
    assert columns[0] < 20
    assert columns[-1] > 100
    assert maps[0] == 1
    assert maps[-1] == 6
    small = {f"s{i}": make_frame(32, i) for i in range(3)}
    with pytest.raises(
        PlanError, match=r"too few rows for a second round.*would need \d+ rows in each"
    ):
        both_rounds(small)


def test_a_small_site_does_not_reduce_the_columns_of_large_sites():
    frames = {f"s{i}": make_frame(1000, i) for i in range(4)}
    large = both_rounds(frames)[0].merged["columns"]
    small = make_frame(60, 9)
    plan = make_plan(small)
    first = [statistics(f, plan, site=s) for s, f in {**frames, "small": small}.items()]
    merged = merge(plan, first)
    assert merged.merged["columns"] == large
    with pytest.raises(DisclosureError, match="the second-round file was not created") as caught:
        moments(small, merged, site="small")
    words = str(caught.value)
    assert f"1 kernel feature map with {large} columns" in words
    assert "This site has" in words
    assert "Use a table with more rows, or ask for a plan with a smaller n_features" in words
    assert "accept_disclosure=True (--accept-disclosure)" in words


def test_a_site_rejects_a_plan_that_asks_for_too_many_columns():
    frames = {f"s{i}": make_frame(300, i) for i in range(2)}
    plan = make_plan(frames["s0"], n_features=500)
    merged = merge(plan, [statistics(f, plan, site=s) for s, f in frames.items()])
    needed = Request.of_merged(merged).min_site_rows(0)
    assert needed > 10_000
    with pytest.raises(
        DisclosureError, match="6 kernel feature maps with 500 columns each, for which a site needs"
    ):
        moments(frames["s0"], merged, site="s0")
    file = moments(frames["s0"], merged, site="s0", accept_disclosure=True)
    assert any("disclosure was accepted" in line for line in file.describe())


def test_large_wards_are_sent_separately_and_small_ones_together_without_names(tmp_path):
    wards = {"large": 900, "medium": 600, "tiny": 8, "little": 20}
    parts = [make_frame(n, i, (ward,)) for i, (ward, n) in enumerate(wards.items())]
    frames = {"s0": pandas.concat(parts, ignore_index=True)}
    frames |= {"s1": make_frame(900, 5), "s2": make_frame(900, 6)}
    plan, _, files = both_rounds(frames, n_features=10, kernels=("rbf",), gammas=(0.1,))
    file = files["s0"]
    assert file.content["domains"] == ["large", "s0 (other domains)"]
    assert file.arrays["counts"].sum(axis=0).tolist() == [900, 628]
    assert any("merged into one domain" in note and "'tiny'" in note for note in file.notes)
    file.save(tmp_path / "s0.npz")
    content = (tmp_path / "s0.npz").read_bytes()
    for ward in (b"tiny", b"little", b"medium"):
        assert ward not in content
    assert SiteFile.load(tmp_path / "s0.npz").notes == ()
    model = fit(plan, files.values())
    assert [name for name, _ in model.info["domains"]] == ["large", "s0 (other domains)", "w"]


def test_a_class_that_is_too_small_is_left_out_and_not_counted():
    frame = make_frame(600, 0)
    rare = frame[frame["ill"]].index[12:]
    frames = {"s0": frame.drop(rare), "s1": make_frame(600, 1), "s2": make_frame(600, 2)}
    plan, first, files = both_rounds(frames)
    assert first["s0"].content["classes"][1] == 12
    assert files["s0"].arrays["counts"][1].sum() == 0
    assert any("left out: 12 rows from classes" in note for note in files["s0"].notes)
    again = frames["s0"].drop(frame[frame["ill"]].index[:4])
    assert statistics(again, make_plan(frame), site="s0").content["classes"][1] == 0
    assert fit(plan, files.values()).info["n_rows"] == 1800 - len(rare) - 12


def test_few_missing_values_and_rare_categories_are_neither_counted_nor_named():
    frame = make_frame(300, 0)
    gaps, plan = frame.copy(), make_plan(frame)
    gaps.loc[gaps.index[:4], "x0"] = np.nan
    gaps.loc[gaps.index[4:7], "kind"] = "secret"
    gaps.loc[gaps.index[7], "kind"] = None
    file = statistics(gaps, plan, site="s0")
    assert file.arrays["numbers"][0].tolist() == [300] * 4
    np.testing.assert_allclose(file.arrays["numbers"][1, 0], gaps["x0"].mean())
    deviations = 300 * gaps["x0"].var(ddof=0)
    np.testing.assert_allclose(file.arrays["numbers"][2, 0], deviations)
    assert sum(file.content["categories"][0].values()) == 300
    assert "secret" not in json.dumps(file.content)
    assert any("categories of 'kind'" in note for note in file.notes)
    merged = merge(plan, [file, statistics(make_frame(300, 1), plan, site="s1")])
    second = moments(gaps, merged, site="s0")
    counts = merged.watch.split_totals(second.arrays["watch"])
    assert not counts["missing"].any()
    assert not counts["unknown"].any()
    many = frame.assign(x0=frame["x0"].where(np.arange(300) >= 40))
    assert statistics(many, plan, site="s0").arrays["numbers"][0, 0] == 260
    nearly = frame.assign(x0=frame["x0"].where(np.arange(300) < 4))
    assert statistics(nearly, plan, site="s0").arrays["numbers"][0, 0] == 0


def test_no_individual_value_is_sent():
    frame = make_frame(300, 0)
    blocks = statistics(frame, make_plan(frame), site="s0").arrays["blocks"]
    assert not set(blocks) & set(frame.select_dtypes("number").to_numpy().ravel())
    # Each block contains twenty rows; the means are in ascending order.
    expected = np.sort(frame["x0"]).reshape(15, 20).mean(axis=1)
    np.testing.assert_allclose(blocks[:15], expected)


def test_a_first_round_file_about_few_rows_is_not_written():
    frame = make_frame(20, 0, p=1)
    plan = make_plan(make_frame(60, 1, p=1))
    with pytest.raises(
        DisclosureError,
        match="first-round file was not created: it would contain .* larger value of smallest_cell",
    ):
        statistics(frame[frame["ill"] == frame["ill"].mode()[0]], plan, site="s0")
    rows = frame[frame["ill"] == frame["ill"].mode()[0]]
    assert statistics(rows, plan, site="s0", accept_disclosure=True).content["rows"] == len(rows)


@pytest.mark.parametrize("target", ["ill", "value"])
def test_one_second_moment_gives_the_ridge_solution_for_all_rows(target):
    """If all rows have the same weight, the solution needs only the sum over classes."""
    frames = {f"s{i}": make_frame(400, i) for i in range(3)}
    one = {"alphas": [0.3], "domain_weights": [0.0]}
    plan, _, files = both_rounds(frames, target, candidates=one)
    assert plan.merged["by_class"] == (target == "value")
    rows = pandas.concat(frames.values())
    Phi = plan.maps[0].features(plan.prepare.transform(plan.schema.prepare(rows)))
    y = rows["value"].to_numpy() if target == "value" else 2.0 * rows["ill"].to_numpy() - 1.0
    centred = Phi - Phi.mean(axis=0)
    coef = np.linalg.solve(centred.T @ centred + 0.3 * np.eye(Phi.shape[1]), centred.T @ y)
    model = fit(plan, files.values())
    new = plan.schema.prepare(make_frame(50, 9))
    values = plan.maps[0].features(plan.prepare.transform(new)) @ coef
    values += y.mean() - Phi.mean(axis=0) @ coef
    last = model.pipeline.predict if target == "value" else model.pipeline.decision_function
    np.testing.assert_allclose(last(new), values, atol=1e-9)


def test_a_centre_close_to_a_single_row_is_rejected():
    frames = {f"s{i}": make_frame(500, i) for i in range(2)}
    person = frames["s0"][["x0", "x1", "x2", "x3", "kind"]].iloc[[3] * 5].reset_index(drop=True)
    options = {"centres": person, "kernels": ("rbf",)}
    for gamma, rejected in ((1e4, True), (0.02, False)):
        plan = make_plan(frames["s0"], gammas=(gamma,), **options)
        merged = merge(plan, [statistics(f, plan, site=s) for s, f in frames.items()])
        if rejected:
            with pytest.raises(
                DisclosureError, match="centre 0 of the plan is close to fewer than 10 rows"
            ):
                moments(frames["s0"], merged, site="s0")
        else:
            assert moments(frames["s0"], merged, site="s0").arrays["sums0"].shape[2] == 1


def test_the_rules_are_those_in_the_documentation():
    sizes = {"n_table_columns": 10, "n_classes": 2, "n_maps": 2, "width": 20, "n_per_domain": 50}
    request = Request(**sizes, by_class=False)
    assert request.min_cell_rows() == 60  # three times the columns; 40 numbers would need 8 rows
    assert request.min_class_rows() == 60
    assert request.min_domain_rows() == 60  # 130 numbers would need 26 rows
    # 2 second moments with 210 numbers each, 80 sums, 50 domain statistics, and 100 from round one.
    assert request.min_site_rows(100) == max(130, int(np.ceil(np.sqrt(4 * 2 * 20**3))))
    assert replace(request, by_class=True).min_class_rows() == 253
    assert replace(request, n_table_columns=1).min_cell_rows() == 80


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_the_global_output_of_transformers_has_no_effect(output, tmp_path):
    pytest.importorskip(output)
    frames = {f"s{i}": make_frame(200, i) for i in range(2)}
    expected = both_rounds(frames)
    model = fit(expected[0], expected[2].values())
    new = make_frame(50, 9)
    values = model.predictions(model.schema.prepare(new))
    set_config(transform_output=output)
    try:
        plan, _, files = both_rounds(frames)
        assert plan.hash == expected[0].hash
        for site, file in files.items():
            assert file.digest() == expected[2][site].digest()
        again = fit(plan, files.values())
        pandas.testing.assert_frame_equal(again.predictions(again.schema.prepare(new)), values)
        pandas.testing.assert_frame_equal(model.predictions(model.schema.prepare(new)), values)
        again.save(tmp_path / "model.skops")
        loaded = TableModel.load(tmp_path / "model.skops")
        pandas.testing.assert_frame_equal(loaded.predictions(loaded.schema.prepare(new)), values)
    finally:
        set_config(transform_output="default")
