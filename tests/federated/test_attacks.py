"""Attacks on the files that leave a site.

Each attack succeeds on files whose disclosure was accepted, which shows that the attack works, and
does no better than chance on default files.
"""

from dataclasses import replace

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")

from scipy.optimize import least_squares  # noqa: E402
from sklearn.metrics import roc_auc_score  # noqa: E402

from domainwise.federated import (  # noqa: E402
    DisclosureError,
    Plan,
    fit,
    merge,
    moments,
    statistics,
)

NAMES = ["a", "b", "c"]


def make_rows(n, seed, ward="w"):
    """Return rows from one population, in two overlapping classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, len(NAMES)))
    frame = pandas.DataFrame(X, columns=NAMES)
    return frame.assign(ward=ward, ill=np.where(X[:, 0] + rng.normal(size=n) > 0, "yes", "no"))


def both_rounds(frames, accept, **options):
    """Return the merged plan and the second-round files."""
    plan = Plan.of_table(next(iter(frames.values())), target="ill", domain="ward", **options)
    accepted = {"accept_disclosure": accept}
    first = [statistics(frame, plan, site=site, **accepted) for site, frame in frames.items()]
    merged = merge(plan, first)
    return merged, [moments(f, merged, site=site, **accepted) for site, f in frames.items()]


#: More than the default limits allow: many columns, and a second moment for each class.
LARGE_PLAN = {"n_features": 60, "kernels": ("rbf",), "gammas": (0.3,), "second_moments": "classes"}


def standardized(plan, frame):
    return plan.prepare.transform(plan.schema.prepare(frame))


def unpacked(triangle, width):
    """Return a symmetric matrix from its upper triangle."""
    matrix = np.zeros((width, width))
    matrix[np.triu_indices(width)] = triangle
    return matrix + np.triu(matrix, 1).T


def class_means(file):
    counts = file.arrays["counts"].sum(axis=1)
    return file.arrays["sums0"].sum(axis=1) / np.maximum(counts, 1)[:, None]


# Is a person in the data?


def membership_scores(plan, file, frame):
    """Return how close rows from class "no" are to the span, and their negative leverage."""
    features = plan.maps[0].features(standardized(plan, frame)) - class_means(file)[0]
    second_moment = unpacked(file.arrays["second0"][0], features.shape[1])
    values, vectors = np.linalg.eigh(second_moment)
    in_span = values > 1e-9 * values[-1]
    residuals = features - features @ vectors[:, in_span] @ vectors[:, in_span].T
    leverage = ((features @ vectors[:, in_span]) ** 2 / values[in_span]).sum(axis=1)
    return -np.linalg.norm(residuals, axis=1), -leverage


def membership_auc(accept, n, seed, **options):
    frames = {f"s{i}": make_rows(n, 100 * seed + i) for i in range(2)}
    plan, (file, _) = both_rounds(frames, accept, **options)
    members = frames["s0"][frames["s0"]["ill"] == "no"]
    others = make_rows(2 * n, 100 * seed + 50)
    others = others[others["ill"] == "no"][: len(members)]
    labels = [1] * len(members) + [0] * len(others)
    scores = membership_scores(plan, file, pandas.concat([members, others]))
    return [roc_auc_score(labels, score) for score in scores]


def test_span_and_leverage_reveal_members_in_an_accepted_file():
    span, _ = np.mean([membership_auc(True, 60, seed, **LARGE_PLAN) for seed in range(3)], axis=0)
    assert span > 0.999


@pytest.mark.parametrize("n", [150, 600, 3000])
def test_span_and_leverage_reveal_nothing_in_a_default_file(n):
    scores = [membership_auc(False, n, seed) for seed in range(12 if n < 1000 else 4)]
    span, leverage = np.mean(scores, axis=0)
    assert abs(span - 0.5) < 0.08
    assert abs(leverage - 0.5) < 0.08


# Which rows are in the data?


def reconstructed(values, target, shape, tries=1):
    """Find rows for which the sums of ``values`` equal the target, by least squares."""

    def residuals(x):
        return values(x.reshape(shape)).sum(axis=0) - target

    def jacobian(x, step=1e-6):  # the values for a row depend only on this row
        Z = x.reshape(shape)
        steps = step * np.eye(shape[1])
        slopes = [(values(Z + e) - values(Z - e)).T / (2 * step) for e in steps]
        return np.stack(slopes, axis=2).reshape(len(target), -1)

    rng, best = np.random.default_rng(0), None
    for _ in range(tries):
        options = {"max_nfev": 100, "xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
        result = least_squares(residuals, rng.normal(size=np.prod(shape)), jacobian, **options)
        best = result if best is None or result.cost < best.cost else best
        if best.cost < 1e-16:
            break
    return best.x.reshape(shape), best.cost


def recovered(rows, truth, close=0.1):
    """Return the share of reconstructed rows that are close to a true row."""
    return np.mean(distance_to(rows, truth) < close)


def distance_to(rows, others):
    """Return the distance from each row to the nearest of the other rows."""
    return np.sqrt(((rows[:, None] - others) ** 2).sum(axis=2)).min(axis=1)


def test_sums_of_a_small_ward_reveal_its_rows_in_an_accepted_file():
    frame = pandas.concat([make_rows(60, 1), make_rows(24, 2, "rare")], ignore_index=True)
    plan, files = both_rounds({"s0": frame, "s1": make_rows(60, 3)}, True, **LARGE_PLAN)
    domain = files[0].content["domains"].index("rare")
    n, total = files[0].arrays["counts"][0, domain], files[0].arrays["sums0"][0, domain]
    truth = standardized(plan, frame[(frame["ward"] == "rare") & (frame["ill"] == "no")])
    assert len(truth) == n
    rows, cost = reconstructed(plan.maps[0].features, total, truth.shape, tries=20)
    assert cost < 1e-12
    assert recovered(rows, truth, 1e-3) == 1.0


def test_sums_and_second_moments_reveal_no_rows_in_a_default_file():
    frames = {f"s{i}": make_rows(200, i) for i in range(3)}
    plan, files = both_rounds(frames, False)
    file, m = files[0], plan.maps[0].n_features
    frame = frames["s0"].sort_values("ill")
    truth, codes = standardized(plan, frame), (frame["ill"] == "yes").to_numpy().astype(int)
    means, counts = class_means(file), file.arrays["counts"].sum(axis=1)
    second = unpacked(file.arrays["second0"][0], m) + (means.T * counts) @ means
    upper = np.triu_indices(m)

    def values(Z):
        features = plan.maps[0].features(Z)
        products = features[:, upper[0]] * features[:, upper[1]]
        return np.hstack([features * (codes == 0)[:, None], features * codes[:, None], products])

    target = np.concatenate([*(means * counts[:, None]), second[upper]])
    # The target contains everything that the file says about the rows.
    np.testing.assert_allclose(values(truth).sum(axis=0), target, atol=1e-9)
    assert 2 * len(target) <= truth.size
    rows, cost = reconstructed(values, target, truth.shape)
    assert cost < 1e-8  # other rows have the same sums
    others = [standardized(plan, make_rows(200, 70 + k)) for k in range(5)]
    chance = np.mean([recovered(rows, other) for other in others])
    assert recovered(rows, truth) < chance + 0.03


# What does the released model reveal?


def watch_of(model, ward):
    watch = model.pipeline[0]
    return watch, watch.split_totals(watch.totals_[watch.sources_.index(ward)])


def kernel_sums(watch, parts):
    """Return functions of rows, and their sums in the model."""

    def values(Z):
        return np.hstack([watch._kernel_features(Z), Z, Z**2])

    return values, np.concatenate([parts[name] for name in ("kernel", "level", "spread")])


def test_kernel_means_in_the_model_reveal_a_ward_whose_disclosure_was_accepted():
    few = pandas.concat([make_rows(200, 3), make_rows(200, 4)])
    few = few.groupby("ill").head(5).assign(ward="rare")
    frame = pandas.concat([make_rows(60, 1), few], ignore_index=True)
    frames = {"s0": frame, "s1": make_rows(60, 3)}
    plan, files = both_rounds(frames, True, smallest_cell=5, **LARGE_PLAN)
    watch, parts = watch_of(fit(plan, files), "rare")
    truth = watch._standardize(few[NAMES].to_numpy())
    rows, cost = reconstructed(*kernel_sums(watch, parts), truth.shape, tries=30)
    assert cost < 1e-9
    assert recovered(rows, truth) == 1.0


def test_a_model_fitted_from_default_files_reveals_no_rows():
    few = make_rows(10, 3, "rare")
    frames = {"s0": pandas.concat([make_rows(300, 1), few], ignore_index=True)}
    frames |= {f"s{i}": make_rows(300, 10 + i) for i in range(1, 3)}
    plan, files = both_rounds(frames, False)
    model = fit(plan, files)
    assert "rare" not in str(model.info)
    watch, parts = watch_of(model, "s0")
    truth = watch._standardize(frames["s0"][NAMES].to_numpy())
    assert 2 * sum(part.size for part in parts.values()) <= truth.size
    rows, cost = reconstructed(*kernel_sums(watch, parts), truth.shape)
    assert cost < 1e-12
    others = [make_rows(len(truth), 70 + k)[NAMES].to_numpy() for k in range(5)]
    chance = np.mean([recovered(rows, watch._standardize(other)) for other in others])
    assert recovered(rows, truth) < chance + 0.03


# What does the difference between two files reveal?


def test_the_difference_of_two_files_is_a_patient_so_the_second_file_is_not_written():
    frames = {f"s{i}": make_rows(150, i) for i in range(2)}
    patient = make_rows(1, 42).assign(ill="no")
    later = pandas.concat([frames["s0"], patient], ignore_index=True)
    plan, files = both_rounds(frames, False)
    for rows in (later, frames["s0"][1:], later[1:]):
        with pytest.raises(DisclosureError, match="differ from those in the first round"):
            moments(rows, plan, site="s0")
    again = moments(frames["s0"][::-1], plan, site="s0")  # the same rows in another order
    np.testing.assert_allclose(again.arrays["sums0"], files[0].arrays["sums0"], atol=1e-12)
    other = moments(later, plan, site="s0", accept_disclosure=True)
    difference = (other.arrays["sums0"] - files[0].arrays["sums0"]).sum(axis=1)[0]

    row, _ = reconstructed(plan.maps[0].features, difference, (1, len(NAMES)), tries=10)
    np.testing.assert_allclose(row, standardized(plan, patient), atol=1e-5)


def test_classes_below_the_smallest_cell_affect_neither_round():
    """The files are the same, whichever rows the rare class has."""
    common = make_rows(200, 1).assign(gap=1.0)
    files = []
    for seed in (5, 6):
        rare = make_rows(3, seed).assign(ill="rare", gap=1.0)
        frames = {"s0": pandas.concat([common, rare]), "s1": make_rows(200, 2).assign(gap=1.0)}
        plan = Plan.of_table(common, target="ill", domain="ward", classes=["no", "yes", "rare"])
        first = [statistics(frame, plan, site=site) for site, frame in frames.items()]
        merged = merge(plan, first)
        files.append([*first, *(moments(f, merged, site=s) for s, f in frames.items())])
    for one, other in zip(*files, strict=True):
        assert one.digest() == other.digest()
    assert files[0][0].notes == ("left out: 3 rows from classes with fewer than 10 rows",)
    assert "rare" not in str(files[0][0].content)


def test_the_difference_between_the_rounds_covers_many_rows_with_few_numbers():
    """The first round may include a class that the second round leaves out."""
    frame = make_rows(400, 1)
    few = frame[frame["ill"] == "yes"].index[25:]
    frames = {"s0": frame.drop(few), "s1": make_rows(400, 2), "s2": make_rows(400, 3)}
    _, files = both_rounds(frames, False)
    counts = files[0].arrays["counts"].sum(axis=1)
    assert counts[1] == 0
    left_out = frames["s0"][frames["s0"]["ill"] == "yes"]
    assert len(left_out) == 25
    # The difference contains sums and squares of columns over these rows, and no map columns.
    assert 2 * 2 * len(NAMES) <= left_out[NAMES].size
    assert files[0].arrays["sums0"][1].max() == 0.0


def test_an_accepted_file_cannot_be_relabelled_as_a_bounded_one():
    frames = {f"s{i}": make_rows(60, i) for i in range(2)}
    _, files = both_rounds(frames, True, **LARGE_PLAN)
    hidden = replace(files[0], content={**files[0].content, "accepted": False})
    assert hidden.digest() != files[0].digest()
