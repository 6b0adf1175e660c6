"""A model for sites that do not share rows equals the model fitted to all rows in one place."""

import hashlib
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")

from scipy.special import softmax  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402

from domainwise import COIR, DCM, DICA, check_shift  # noqa: E402
from domainwise.federated import Plan, PlanError, SiteFileError, fit, merge  # noqa: E402
from domainwise.federated import moments as bounded_moments  # noqa: E402
from domainwise.federated import statistics as bounded_statistics  # noqa: E402
from domainwise.models.table_model import TableModel  # noqa: E402
from domainwise.tables.errors import TableError  # noqa: E402

M = 30


def make_frame(n, seed, shift=0.0, wards=2):
    """Return rows from a hospital with several wards, missing values and three soils."""
    rng = np.random.default_rng(seed)
    x = rng.normal(shift, 1.0, (n, 3))
    soil = rng.choice(["clay", "sand", "silt"], n)
    value = x[:, 0] + 0.5 * x[:, 1] ** 2 + (soil == "clay") + rng.normal(0, 0.5, n)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"]).assign(soil=soil)
    frame.loc[rng.random(n) < 0.1, "b"] = np.nan
    ill = np.where(value > 1, "yes", np.where(value > 0, "perhaps", "no"))
    ward = [f"{seed}-{i % wards}" for i in range(n)]
    return frame.assign(value=100 + value, ill=ill, sick=ill == "yes", ward=ward)


@pytest.fixture(scope="module")
def frames():
    return {f"s{i}": make_frame(120 + 40 * i, i, 0.3 * i) for i in range(4)}


# These sites are small and accept the disclosure, so that their files include all rows. Files with
# the default limits are tested in test_disclosure.py.


def statistics_of(frame, plan, **options):
    return bounded_statistics(frame, plan, accept_disclosure=True, **options)


def moments_of(frame, plan, **options):
    return bounded_moments(frame, plan, accept_disclosure=True, **options)


def make_plan(frame, target="sick", **options):
    drop = [name for name in ("value", "ill", "sick") if name != target]
    options = {"n_features": M, "kernels": ("rbf",), "gammas": (0.1,), "smallest_cell": 3} | options
    options = {"second_moments": "classes"} | options
    return Plan.of_table(frame, target=target, domain="ward", drop=drop, **options)


def both_rounds(plan, frames):
    """Return the merged plan, and the second-round files."""
    merged = merge(plan, [statistics_of(frame, plan, site=s) for s, frame in frames.items()])
    return merged, [moments_of(frame, merged, site=s) for s, frame in frames.items()]


# The following functions compute results from rows, without code from the package.


def fourier_features(Z, gamma, m, seed=0):
    rng = np.random.RandomState(seed)
    angles = Z @ (np.sqrt(2 * gamma) * rng.standard_normal((m // 2, Z.shape[1]))).T
    Phi = np.empty((len(Z), m))
    Phi[:, ::2], Phi[:, 1::2] = np.cos(angles), np.sin(angles)
    return np.sqrt(2.0 / m) * Phi


def prepared(plan, frame):
    learnt, columns = plan.merged["learnt"], []
    for j, name in enumerate(("a", "b", "c")):
        values = frame[name].fillna(learnt["medians"][j])
        columns.append((values - learnt["mean"][j]) / np.sqrt(learnt["variance"][j]))
    columns += [frame["soil"] == text for text in learnt["categories"][0]]
    return np.column_stack(columns).astype(float)


def dense_ridge(Phi, Y, domains, alpha, weight, classes=None, epsilon=1e-3):
    """Return coefficients and intercept of least squares with a penalty on domain differences."""
    n = len(Phi)
    groups = np.zeros(n) if classes is None else classes
    P = np.zeros((n, n))
    for c in np.unique(groups):
        in_group = groups == c
        K = (domains[in_group][:, None] == domains[in_group]).astype(float)
        H = np.eye(in_group.sum()) - 1.0 / in_group.sum()
        K = H @ K @ H
        P[np.ix_(in_group, in_group)] = np.linalg.solve(K + n * epsilon * np.eye(len(K)), K)
    mean, target = Phi.mean(axis=0), Y.mean(axis=0)
    A = (Phi - mean).T @ (Phi - mean) + alpha * np.eye(Phi.shape[1])
    A += alpha * weight * Phi.T @ P @ Phi
    coefficients = np.linalg.solve(A, (Phi - mean).T @ (Y - target))
    return coefficients, target - mean @ coefficients


def discriminant_probabilities(Z, y, new):
    """Return class probabilities for normal classes with a common covariance."""
    labels, counts = np.unique(y, return_counts=True)
    means = np.array([Z[y == label].mean(axis=0) for label in labels])
    within = sum((Z[y == k] - m).T @ (Z[y == k] - m) for k, m in zip(labels, means, strict=True))
    inverse = np.linalg.inv(within / len(Z))
    logs = [-0.5 * np.einsum("ij,jk,ik->i", new - m, inverse, new - m) for m in means]
    return softmax(np.column_stack(logs) + np.log(counts / len(Z)), axis=1)


def pooled(frames):
    rows = pandas.concat(frames.values(), ignore_index=True)
    return rows, np.repeat(list(frames), [len(frame) for frame in frames.values()])


@pytest.mark.parametrize("target", ["sick", "ill", "value"])
def test_a_search_over_sites_equals_a_dense_solution_on_all_rows(frames, target):
    alphas, weights = [0.03, 1.0], [0.0, 3.0]
    options = {"alphas": alphas, "domain_weights": weights, "n_average": 1}
    if target != "value":
        options["conditionals"] = [False, True]
    plan, files = both_rounds(make_plan(frames["s0"], target, candidates=options), frames)
    model = fit(plan, files)
    rows, sites = pooled(frames)
    Phi, domains = fourier_features(prepared(plan, rows), 0.1, M), rows["ward"].to_numpy()
    labels, codes = np.unique(rows[target], return_inverse=True)
    if target == "value":
        Y, codes = rows[["value"]].to_numpy(), None
    else:
        Y = 2.0 * np.eye(len(labels))[codes] - 1.0
        Y = Y[:, 1:] if len(labels) == 2 else Y
    grid = [(0.0, False, a) for a in alphas]
    grid += [(3.0, c, a) for c in options.get("conditionals", [False]) for a in alphas]
    errors = np.zeros((len(grid), 4))
    for s, site in enumerate(frames):
        train, test = sites != site, sites == site
        for p, (weight, conditional, alpha) in enumerate(grid):
            classes = codes[train] if conditional else None
            B, b = dense_ridge(Phi[train], Y[train], domains[train], alpha, weight, classes)
            squares = ((Y[test] - Phi[test] @ B - b) ** 2).mean(axis=1)
            groups = [squares] if codes is None else [squares[codes[test] == c] for c in
                      np.unique(codes[test])]  # fmt: skip
            errors[p, s] = np.mean([group.mean() for group in groups])
    best = int(errors.mean(axis=1).argmin())
    weight, conditional, alpha = grid[best]
    errors_by_site = np.sqrt(errors[best]) if target == "value" else errors[best] / 4
    expected = model.pipeline[-1].expected_score_
    np.testing.assert_allclose([expected[site] for site in frames], errors_by_site, rtol=1e-9)
    assert model.info["chosen"]["alpha"] == alpha
    B, b = dense_ridge(Phi, Y, domains, alpha, weight, codes if conditional else None)
    new = make_frame(50, 9, 0.5)
    values = fourier_features(prepared(plan, new), 0.1, M) @ B + b
    X = model.schema.prepare(new)
    if target == "value":
        got = model.pipeline.predict(X)
        np.testing.assert_allclose(got, values[:, 0], rtol=1e-10)
    else:
        got = model.pipeline.decision_function(X)
        np.testing.assert_allclose(got, values[:, 0] if len(labels) == 2 else values, atol=1e-10)


@pytest.mark.parametrize("target", ["sick", "ill", "value"])
@pytest.mark.parametrize("method", ["fastdcm", "fastcoir", "fastdica"])
def test_a_projection_and_its_predictor_equal_those_fitted_to_all_rows(frames, method, target):
    arguments = {"lam": 3.0} if method == "fastdica" else {"ridge": 1e-2}
    if method == "fastdcm":
        arguments["domain_weight"] = 0.1
    candidates = {name: [value] for name, value in arguments.items()}
    plan = make_plan(frames["s0"], target, method=method, candidates=candidates)
    plan, files = both_rounds(plan, frames)
    model = fit(plan, files)
    rows, _ = pooled(frames)
    Phi = fourier_features(prepared(plan, rows), 0.1, M)
    exact = {"fastdcm": DCM, "fastcoir": COIR, "fastdica": DICA}[method]
    exact = exact(kernel="linear", solver="dense", **arguments)
    if target == "value":
        exact.set_params(target_gamma=plan.merged["target"]["gamma"])
    exact.fit(Phi, rows[target], sample_domain=rows["ward"])
    Z, projection = exact.transform(Phi), model.pipeline[-1].projection_
    got = projection.transform(prepared(plan, rows))
    n_compared = min(2, Z.shape[1])
    signs = np.sign((got * Z[:, : got.shape[1]]).sum(axis=0))
    # The kernel of a continuous target is exact in Z, and approximated at landmarks in the model.
    tolerance = 3e-9 if target != "value" else 1e-7
    np.testing.assert_allclose((got * signs)[:, :n_compared], Z[:, :n_compared], atol=tolerance)
    new = model.schema.prepare(make_frame(50, 9, 0.5))
    Z_new = projection.transform(plan.prepare.transform(new))
    if target == "value":
        ridge = Ridge().fit(got, rows[target])
        np.testing.assert_allclose(model.pipeline.predict(new), ridge.predict(Z_new), rtol=1e-10)
    else:
        probabilities = model.pipeline.predict_proba(new)
        expected = discriminant_probabilities(got, rows[target].to_numpy(), Z_new)
        np.testing.assert_allclose(probabilities, expected, atol=1e-9)


def test_target_landmarks_extend_beyond_the_values_that_are_sent(frames):
    plan = make_plan(frames["s0"], "value", method="fastdcm", smallest_cell=10)
    target = both_rounds(plan, frames)[0].target_map
    y = pooled(frames)[0][["value"]].to_numpy()
    assert target.points.min() < y.min()
    assert target.points.max() > y.max()
    diagonal = np.sum(target.features(y) ** 2, axis=1)
    np.testing.assert_allclose(diagonal, 1.0, atol=1e-6)  # k(y, y) of values that were not sent


def values_of(model, frame):
    return model.predictions(model.schema.prepare(frame)).select_dtypes("number").to_numpy()


@pytest.mark.parametrize("method", ["invariantridge", "fastdcm"])
@pytest.mark.parametrize("target", ["sick", "value"])
def test_one_candidate_does_not_depend_on_how_domains_are_divided_among_sites(
    frames, method, target
):
    one = {"alphas": [0.3], "domain_weights": [1.0]}
    one = one if method == "invariantridge" else {"ridge": [1e-2], "domain_weight": [0.1]}
    plan = make_plan(frames["s0"], target, method=method, candidates=one)
    merged, files = both_rounds(plan, frames)
    new = make_frame(60, 9, 0.5)
    first = values_of(fit(merged, files), new)
    np.testing.assert_array_equal(values_of(fit(merged, files[::-1]), new), first)
    rows, _ = pooled(frames)
    for groups in (
        dict(tuple(rows.groupby("ward"))),
        {
            "x": rows[: len(rows) // 3],
            "y": rows[len(rows) // 3 :],
        },  # a domain is divided between sites
    ):
        other = [moments_of(frame, merged, site=name) for name, frame in groups.items()]
        np.testing.assert_allclose(values_of(fit(merged, other), new), first, rtol=1e-10)


def test_a_site_can_join_late_and_another_can_leave(frames):
    early = {name: frame for name, frame in frames.items() if name != "s3"}
    plan, files = both_rounds(make_plan(frames["s0"]), early)
    late = fit(plan, [*files, moments_of(frames["s3"], plan, site="s3")])
    assert late.info["sites"] == list(frames)
    assert any("joined later" in note and "s3" in note for note in late.info["notes"])
    assert late.info["n_rows"] == sum(map(len, frames.values()))
    left = fit(plan, files[1:])
    assert left.info["sites"] == ["s1", "s2"]
    assert set(left.info["expected_score"]) == {"s1", "s2"}
    assert any(
        "used for preprocessing and kernel widths only" in note for note in left.info["notes"]
    )
    assert {name for name, _ in left.info["domains"]} == {"1-0", "1-1", "2-0", "2-1"}


def test_merged_medians_have_a_rank_error_below_one_percent():
    rng = np.random.default_rng(0)
    draws = [rng.lognormal(0.5 * i, 1 + 0.3 * i, n) for i, n in enumerate((700, 2500, 20_000, 900))]
    frames = [
        pandas.DataFrame({"a": values, "b": np.round(values), "y": rng.random(len(values)) < 0.5})
        for values in draws
    ]
    frames[0].loc[::2, "a"] = np.nan
    plan = Plan.of_table(frames[0], target="y", n_features=4)
    merged = merge(plan, [statistics_of(f, plan, site=str(i)) for i, f in enumerate(frames)])
    rows = pandas.concat(frames)
    for j, name in enumerate(("a", "b")):
        values, median = rows[name].dropna(), merged.preprocessing.medians[j]
        assert (values < median).mean() - 0.01 < 0.5 < (values <= median).mean() + 0.01
    filled = rows["a"].fillna(merged.preprocessing.medians[0])
    np.testing.assert_allclose(merged.preprocessing.mean[0], filled.mean(), rtol=1e-12)
    np.testing.assert_allclose(merged.preprocessing.variance[0], filled.var(ddof=0), rtol=1e-12)


def test_widths_are_close_to_the_median_rule_on_all_rows(frames):
    from domainwise.kernels.functions import resolve_gamma

    plan = merge_of(make_plan(frames["s0"], gammas="auto", kernels=("rbf", "laplacian")), frames)
    Z = prepared(plan, pooled(frames)[0])
    gammas = {(k["kernel"], i % 3): k["gamma"] for i, k in enumerate(plan.merged["maps"])}
    for kernel in ("rbf", "laplacian"):
        ratio = gammas[kernel, 1] / resolve_gamma("median", kernel, Z)
        assert 0.7 < ratio < 1.4
        assert gammas[kernel, 0] == pytest.approx(0.3 * gammas[kernel, 1])


def merge_of(plan, frames):
    return merge(plan, [statistics_of(frame, plan, site=s) for s, frame in frames.items()])


def test_file_sizes_do_not_depend_on_the_number_of_rows(frames, tmp_path):
    plan = make_plan(frames["s0"])
    many = pandas.concat([frames["s0"]] * 30, ignore_index=True)
    sizes = []
    merged = merge_of(plan, frames)
    for rows in (many, pandas.concat([many] * 3, ignore_index=True)):
        for make_file, round_plan in ((statistics_of, plan), (moments_of, merged)):
            make_file(rows, round_plan, site="s0").save(tmp_path / "file.npz")
            sizes.append((tmp_path / "file.npz").stat().st_size)
    assert abs(sizes[0] - sizes[2]) < 100
    assert abs(sizes[1] - sizes[3]) < 100
    few = moments_of(frames["s0"], merged, site="s0")
    few.save(tmp_path / "few.npz")
    assert abs((tmp_path / "few.npz").stat().st_size - sizes[1]) < 100


@pytest.mark.parametrize("source", ["ranges", "rows"])
def test_landmarks_come_from_the_plan_and_not_from_rows(frames, source):
    ranges = {name: [-3.0, 3.0] for name in "abc"}
    centres = ranges if source == "ranges" else make_frame(40, 77)
    plan = make_plan(frames["s0"], centres=centres, n_features=40, gammas="auto")
    assert plan.n_features == 40
    merged, files = both_rounds(plan, frames)
    model = fit(merged, files)
    kernel = merged.merged["maps"][0]
    centres = merged.prepared_centres[kernel["chosen"]]
    rows, _ = pooled(frames)
    Z = prepared(merged, rows)
    K = np.exp(-kernel["gamma"] * ((Z[:, None] - centres) ** 2).sum(axis=2))
    W = np.exp(-kernel["gamma"] * ((centres[:, None] - centres) ** 2).sum(axis=2))
    Phi = np.linalg.solve(np.linalg.cholesky(W), K.T).T
    total = sum(file.arrays["sums0"].sum(axis=(0, 1)) for file in files)
    np.testing.assert_allclose(total, Phi.sum(axis=0), rtol=1e-8, atol=1e-8)
    assert model.info["check"]["better"]


@pytest.mark.parametrize("method", ["invariantridge", "fastdica"])
def test_predict_and_check_shift_accept_the_model_file(frames, tmp_path, method):
    plan = make_plan(frames["s0"], "ill", method=method, class_weight="balanced")
    plan, files = both_rounds(plan, frames)
    model = fit(plan, files)
    model.save(tmp_path / "model.skops")
    again = TableModel.load(tmp_path / "model.skops")
    new = make_frame(200, 9, 0.5)
    np.testing.assert_array_equal(values_of(again, new), values_of(model, new))
    assert again.pipeline[-1].expected_score_ == model.info["expected_score"]
    assert not check_shift(again, new)
    strange = new.assign(a=new["a"] * 40 + 90, soil="peat", ward="new")
    kinds = Counter(finding.kind for finding in check_shift(again, strange))
    assert kinds["range"] == 1
    assert kinds["category"] == 1
    far = Counter(finding.kind for finding in check_shift(again, make_frame(200, 9, 4.0)))
    assert far["distance"]
    watch = again.pipeline[0]
    assert watch.sources_ == sorted(pooled(frames)[0]["ward"].unique())
    assert watch.totals_[:, 0].sum() == sum(map(len, frames.values()))


def test_sites_with_irregular_tables_give_the_same_model_as_one_table(frames):
    """Sites have empty or constant columns, other types, duplicates, and a domain with one row."""
    irregular = {name: frame.copy() for name, frame in frames.items()}
    irregular["s0"] = irregular["s0"].assign(b=np.nan, soil=None)
    irregular["s1"] = irregular["s1"].assign(a=2.5, c=irregular["s1"]["c"].astype(np.float32))
    irregular["s2"] = pandas.concat([irregular["s2"]] * 2, ignore_index=True)
    irregular["s2"]["soil"] = irregular["s2"]["soil"].astype("category")
    irregular["s2"]["c"] = irregular["s2"]["c"].round().astype("Int64")
    irregular["s3"].loc[irregular["s3"].index[:1], "ward"] = "alone"
    plan = make_plan(frames["s0"], "value")
    first = [statistics_of(frame, plan, site=name) for name, frame in irregular.items()]
    assert first[3].notes == ()
    merged = merge(plan, first)
    model = fit(merged, [moments_of(frame, merged, site=name) for name, frame in irregular.items()])
    rows = pandas.concat(
        [frame.astype({"c": float, "soil": object}) for frame in irregular.values()]
    )
    rows = rows[rows["ward"] != "alone"]
    assert model.info["n_rows"] == len(rows)
    Phi = fourier_features(prepared_most_frequent(merged, rows), 0.1, M)
    members = model.pipeline[-1].estimator_.members_
    parts = [(m["alpha"], m["domain_weight"]) for m in members]
    solutions = [
        dense_ridge(Phi, rows[["value"]].to_numpy(), rows["ward"].to_numpy(), *p) for p in parts
    ]
    new = make_frame(40, 9)
    values = [fourier_features(prepared(merged, new), 0.1, M) @ B + b for B, b in solutions]
    got = model.pipeline.predict(model.schema.prepare(new))
    np.testing.assert_allclose(got, np.mean(values, axis=0)[:, 0], rtol=1e-9)


def prepared_most_frequent(plan, frame):
    return prepared(plan, frame.assign(soil=frame["soil"].fillna(plan.preprocessing.frequent[0])))


def test_a_site_without_a_domain_column_is_one_domain_named_after_it(frames):
    plan = make_plan(frames["s0"])
    bare = {name: frame.drop(columns="ward") for name, frame in frames.items()}
    merged, files = both_rounds(plan, bare)
    assert [file.content["domains"] for file in files] == [[name] for name in frames]
    assert [name for name, _ in fit(merged, files).info["domains"]] == list(frames)
    with pytest.raises(TableError, match="Pass the name of the site, for example site='north'"):
        statistics_of(bare["s0"], plan)
    one = frames["s0"].assign(ward=7)
    assert statistics_of(one, plan).site == "7"


@pytest.mark.parametrize("domain", ["self", "site"])
def test_the_table_for_a_plan_needs_no_domain_column(frames, domain):
    bare = frames["s0"].drop(columns="ward")
    columns = list(bare.columns)
    plan = Plan.of_table(bare, target="sick", domain=domain)
    assert plan.schema.domain == domain
    assert list(bare.columns) == columns


def test_rows_without_a_target_are_left_out_and_counted(frames):
    plan = make_plan(frames["s0"], "ill")
    gaps = frames["s1"].copy()
    gaps.loc[gaps.index[:5], "ill"] = None
    gaps.loc[gaps.index[5:7], "ward"] = None
    gaps.loc[gaps.index[7], "soil"] = None
    merged = merge(plan, [statistics_of(gaps, plan, site="s1")])
    files = [moments_of(f, merged, site=s) for s, f in (("s1", gaps), ("s2", frames["s2"]))]
    model = fit(merged, files)
    assert "7 rows have no target or domain and are left out" in model.info["notes"]
    assert model.info["n_rows"] == len(gaps) - 7 + len(frames["s2"])
    with pytest.raises(TableError, match="has the values 'dead', but the classes of the plan are"):
        statistics_of(frames["s1"].assign(ill="dead"), plan, site="s1")
    with pytest.raises(TableError, match="has no column 'b'"):
        moments_of(frames["s1"].drop(columns="b"), merged, site="s1")


def test_a_constant_that_is_as_good_is_reported(frames):
    rng = np.random.default_rng(0)
    noise = {s: frame.assign(sick=rng.random(len(frame)) < 0.5) for s, frame in frames.items()}
    plan, files = both_rounds(make_plan(noise["s0"]), noise)
    check = fit(plan, files).info["check"]
    assert not check["better"]
    assert check["metric"] == "neg_squared_error_of_class_indicators"
    assert check["constant"] == pytest.approx(-0.25, abs=0.01)


def test_one_site_is_not_enough_and_one_training_class_gives_no_score(frames):
    plan, files = both_rounds(make_plan(frames["s0"]), frames)
    with pytest.raises(SiteFileError, match="only one site, 's0'"):
        fit(plan, files[:1])
    single = {**frames, "s0": frames["s0"][frames["s0"]["sick"]]}
    again = [moments_of(frame, plan, site=s) for s, frame in single.items()]
    assert set(fit(plan, again).info["expected_score"]) == set(frames)
    with pytest.warns(UserWarning, match="not defined on 1 of 2 splits"):
        two = fit(plan, again[:2])  # only one class remains without s1
    assert set(two.info["expected_score"]) == {"s0"}
    other = frames["s1"][~frames["s1"]["sick"]]
    with pytest.raises(SiteFileError, match="the other sites have only one class"):
        fit(plan, [again[0], moments_of(other, plan, site="s1")])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"method": "svm"}, "'method' parameter of Plan must be a str among .* Got 'svm'"),
        ({"feature_map": "nystroem"}, "'feature_map' parameter of Plan .* Got 'nystroem'"),
        ({"feature_map": "centres"}, "feature_map='centres', but no centres were passed. Pass"),
        ({"kernels": ("poly",)}, r"'kernels' parameter of Plan .* Got \('poly',\) instead"),
        ({"kernels": ()}, r"'kernels' parameter of Plan .* Got \(\) instead"),
        ({"n_features": 10**6}, r"'n_features' parameter .* \[1, 20000\] .* Got 1000000 instead"),
        ({"n_features": 0}, r"'n_features' parameter .* \[1, 20000\] .* Got 0 instead"),
        ({"smallest_cell": 1}, r"'smallest_cell' parameter .* range \[3, inf\). Got 1 instead"),
        ({"gammas": (-1.0,)}, r"'gammas' parameter of Plan .* Got \(-1.0,\) instead"),
        ({"seed": -1}, "'seed' parameter of Plan .* Got -1 instead"),
        ({"candidates": {"lam": [1.0]}}, "does not search over 'lam'. Use alphas, domain_weights"),
        ({"candidates": {"alphas": [-1.0]}}, r"'alphas' parameter of .* Got \[-1.0\] instead"),
        ({"method": "fastdcm", "candidates": {"ridge": [-1.0]}}, "'ridge' parameter .* Got -1.0"),
        ({"centres": {"a": [0, 1]}}, r"'b' needs a finite range \[low, high\]"),
        ({"centres": {n: [1, 0] for n in "abc"}}, r"'a' needs a finite range \[low, high\]"),
        ({"feature_map": "fourier", "centres": {n: [0, 1] for n in "abc"}},
         "feature_map='fourier', but centres were passed. Pass"),
    ],
)  # fmt: skip
def test_invalid_plan_arguments_are_named(frames, options, words):
    with pytest.raises(ValueError, match=words):
        make_plan(frames["s0"], **options)


def test_a_plan_can_be_saved_and_loaded_and_is_rejected_if_changed(frames, tmp_path):
    candidates = {"ridge": [1e-3, float("inf")]}
    plan = make_plan(frames["s0"], method="fastdcm", candidates=candidates, gammas="auto")
    merged = merge_of(plan, frames)
    for saved in (plan, merged):
        saved.save(tmp_path / "plan.json")
        again = Plan.load(tmp_path / "plan.json")
        assert again.hash == saved.hash
        assert again.candidates == candidates
    assert plan.hash != merged.hash
    text = (tmp_path / "plan.json").read_text()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    for old, new, words in (
        ('"seed": 0', '"seed": 1', "was changed"),
        ('"format": 2', '"format": 9', "format 9"),
        ('"method"', '"methods"', "damaged"),
        ('"learnt": {', '"learnt": [', "damaged"),
    ):
        (tmp_path / "bad.json").write_text(text.replace(old, new))
        with pytest.raises(PlanError, match=words):
            Plan.load(tmp_path / "bad.json")
    original = merged.as_dict()
    for path, value in (
        (("schema", "target"), 3),
        (("schema", "na"), True),
        (("schema", "forms"), [1]),
        (("schema", "task"), "regression"),
        (("classes",), 7),
        (("merged", "sites"), [None]),
        (("merged", "learnt", "medians"), "x"),
        (("merged", "maps", 0, "gamma"), -1.0),
    ):
        wrong = json.loads(json.dumps(original))
        parent = wrong
        for name in path[:-1]:
            parent = parent[name]
        parent[path[-1]] = value
        encoded = json.dumps(wrong, sort_keys=True).encode()
        wrong["hash"] = hashlib.sha256(encoded).hexdigest()
        (tmp_path / "bad.json").write_text(json.dumps(wrong))
        with pytest.raises(PlanError, match=r"bad\.json"):
            Plan.load(tmp_path / "bad.json")
    with pytest.raises(PlanError, match="this is the second-round plan"):
        merge(merged, [])
    with pytest.raises(PlanError, match="this is the first-round plan"):
        moments_of(frames["s0"], plan, site="s0")
    assert replace(plan, seed=1).hash != plan.hash
