"""Shift is reported if new rows differ from the sources, and not otherwise."""

import json

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import domainwise
from domainwise import ShiftWatch, check_shift
from domainwise.datasets import load_heart
from domainwise.tables.shift import watch as watching
from domainwise.tables.shift.check import find_shifts

SITES = np.repeat(["A", "B", "C", "D", "E"], 120)


def make_rows(n=120, seed=0, sites=5):
    """Temperature in °C, depth in metres, voltage, a count: sites differ a little in each."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(sites):
        level = rng.normal(0, 0.4, size=4)
        Z = rng.normal(size=(n, 4)) + level
        rows.append(
            np.column_stack(
                [
                    18 + 4 * Z[:, 0],
                    2000 + 300 * Z[:, 1],
                    3 + 0.5 * Z[:, 2],
                    rng.poisson(np.exp(1 + 0.2 * Z[:, 3])),
                ]
            )
        )
    return np.vstack(rows).astype(float)


@pytest.fixture(scope="module")
def fitted():
    X = make_rows()
    return X, ShiftWatch().fit(X, sample_domain=SITES)


def planted(X, column, change, seed=1, n=60):
    """Rows drawn from one site, with one column changed."""
    rows = X[np.random.default_rng(seed).choice(np.flatnonzero(SITES == "B"), n)].copy()
    rows[:, column] = change(rows[:, column])
    return rows


@pytest.mark.parametrize(
    ("column", "change", "kinds"),
    [
        (0, lambda celsius: 1.8 * celsius + 32, {"range"}),
        (1, lambda metres: 3.28 * metres, {"range"}),
        (1, lambda feet: feet / 3.28, {"range"}),
        (2, lambda volts: -volts, {"range"}),
        (0, lambda celsius: 30 + celsius / 20, {"level"}),
        (2, lambda volts: np.full_like(volts, np.nan), {"missing"}),
        (2, lambda volts: np.where(np.arange(len(volts)) % 3, volts, np.nan), {"missing"}),
        (2, lambda volts: np.where(np.arange(len(volts)) % 6, volts, -999.0), {"range"}),
        (2, lambda volts: np.where(np.arange(len(volts)) % 6, volts, np.inf), {"range"}),
    ],
)
def test_an_error_in_a_column_is_reported_for_this_column(fitted, column, change, kinds):
    X, watch = fitted
    column_findings = [
        f for f in check_shift(watch, planted(X, column, change)) if f.column is not None
    ]
    assert len(column_findings) == 1
    assert column_findings[0].column == f"x{column}"
    assert column_findings[0].kind in kinds


def test_a_sign_that_does_not_change_ranges_is_detected_by_the_distance():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(600, 2))
    X = np.column_stack([Z[:, 0], Z[:, 0] + 0.2 * Z[:, 1], Z[:, 1]])
    watch = ShiftWatch().fit(X, sample_domain=SITES)
    rows = X[:300] * [1, -1, 1]
    assert [f.kind for f in check_shift(watch, rows)] == ["distance"]
    assert check_shift(watch, X[:300]) == []


def test_rows_far_from_all_sources_are_reported_with_usual_distances(fitted):
    X, watch = fitted
    rows = X[SITES == "B"] + 0.8 * X.std(axis=0)
    (far,) = (f for f in check_shift(watch, rows) if f.kind == "distance")
    assert far.numbers["distance"] > far.numbers["usual"]
    assert "nearest source domain" in str(far)


@pytest.mark.parametrize("seed", range(3))
def test_resampled_sources_have_no_findings(seed):
    """At most one in twenty; sizes from one row to more than the source has."""
    rng = np.random.default_rng(seed)
    X = make_rows(seed=seed)
    X[rng.random(X.shape) < 0.15] = np.nan
    watch = ShiftWatch().fit(X, sample_domain=SITES)
    strange = 0
    for _ in range(100):
        site = np.flatnonzero(rng.choice(np.unique(SITES)) == SITES)
        strange += bool(check_shift(watch, X[rng.choice(site, rng.choice([1, 5, 30, 120, 500]))]))
    assert strange <= 5


def test_resampled_rare_values_and_heavy_tails_have_no_findings():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [rng.random(600) < 0.01, rng.standard_t(1.5, 600), rng.lognormal(0, 2, 600)]
    )
    watch = ShiftWatch().fit(X, sample_domain=SITES)
    batches = (X[rng.choice(600, rng.choice([1, 5, 30, 120]))] for _ in range(200))
    assert sum(bool(check_shift(watch, batch)) for batch in batches) <= 10


def test_new_rows_of_a_known_site_have_no_findings():
    X = make_rows(240)
    old = np.arange(len(X)) % 2 == 0
    watch = ShiftWatch().fit(X[old], sample_domain=np.repeat(list("ABCDE"), 120))
    assert check_shift(watch, X[~old], sample_domain=np.repeat(list("ABCDE"), 120)) == []


def test_a_mean_of_zeros_is_shown_as_zero():
    heart = load_heart()
    new = heart.sample_domain == "switzerland"
    watch = ShiftWatch().fit(heart.data[~new], sample_domain=heart.sample_domain[~new])
    words = [str(f) for f in check_shift(watch, heart.data[new]) if f.kind == "level"]
    assert any("the mean of 'x4' is 0, but" in text for text in words)  # it was not measured


def test_means_of_small_sources_are_treated_as_uncertain():
    for seed in range(5):
        X = np.random.default_rng(seed).normal(size=(2150, 3))
        watch = ShiftWatch().fit(X[:150], sample_domain=np.repeat(list("ABCDE"), 30))
        assert "distance" not in {finding.kind for finding in check_shift(watch, X[150:])}


def test_domains_are_checked_one_by_one(fitted):
    X, watch = fitted
    rows = np.vstack([X[:100], planted(X, 0, lambda c: 1.8 * c + 32)])
    where = ["known"] * 100 + ["new"] * 60
    shift_findings = check_shift(watch, rows, sample_domain=where)
    assert {f.domain for f in shift_findings} == {"new"}
    assert str(shift_findings[0]).startswith("new: 'x0' ranges from ")
    assert json.loads(json.dumps(shift_findings[0].as_dict()))["domain"] == "new"


def test_distances_are_those_of_kernel_means_in_the_span_of_the_landmarks():
    X = make_rows(400)
    sites = np.repeat(list("ABCDE"), 400)
    watch = ShiftWatch().fit(X, sample_domain=sites)
    assert watch.landmarks_.shape == (100, 4)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    a, b = Z[sites == "A"], Z[sites == "B"]

    def kernel(x, y):
        return np.exp(-watch.gamma_ * ((x[:, None] - y) ** 2).sum(axis=2))

    difference = (kernel(a, watch.landmarks_) - kernel(b, watch.landmarks_)).mean(axis=0)
    K = kernel(watch.landmarks_, watch.landmarks_) + 1e-6 * np.eye(100)
    projected = difference @ np.linalg.solve(K, difference)
    sums = watch.split_totals(watch.totals_)
    means = sums["kernel"] / sums["rows"]
    squared = ((means[0] - means[1]) ** 2).sum()
    assert squared == pytest.approx(projected, rel=1e-8)
    # Random landmarks lose little of it.
    expected = kernel(a, a).mean() + kernel(b, b).mean() - 2 * kernel(a, b).mean()
    assert 0.9 * expected < squared < expected
    # Fewer features are those of the first landmarks.
    coefficients = np.linalg.solve(K[:7, :7], difference[:7])
    assert ((means[0] - means[1])[:7] ** 2).sum() == pytest.approx(
        difference[:7] @ coefficients, rel=1e-8
    )


def test_blocks_of_a_table_give_the_findings_of_the_whole_table(fitted):
    X, watch = fitted
    rows = planted(X, 0, lambda c: 1.8 * c + 32, n=90)
    where = np.array(["u", "v", "w"])[np.arange(90) % 3]
    blocks = [watch.summarize(rows[i : i + 17], where[i : i + 17]) for i in range(0, 90, 17)]
    together, all_rows = watching.merge_statistics(blocks), watch.summarize(rows, where)
    assert [str(f) for f in find_shifts(watch, together)] == [
        str(f) for f in find_shifts(watch, all_rows)
    ]


def test_rows_of_very_many_domains_are_pooled(fitted, monkeypatch):
    X, watch = fitted
    monkeypatch.setattr(watching, "MAX_DOMAINS", 10)
    blocks = [watch.summarize(X[i : i + 6], np.arange(i, i + 6)) for i in range(0, 60, 6)]
    assert list(watching.merge_statistics(blocks)) == [None]


def test_the_size_of_the_statistics_does_not_depend_on_rows_or_domains():
    sizes = []
    for n in (1600, 8000):
        X = make_rows(n)
        watch = ShiftWatch().fit(X, sample_domain=np.arange(len(X)) // 20)
        own = [name for name in watch.sources_ if name != watching.POOLED]
        assert len(own) == watching.MAX_SOURCES
        sizes.append(sum(v.nbytes for v in vars(watch).values() if isinstance(v, np.ndarray)))
    assert sizes[1] <= 1.05 * sizes[0]
    watch = ShiftWatch().fit(make_rows(8000), sample_domain=np.arange(40_000) // 10)
    assert watch.sources_ == [watching.POOLED]


class TestPrivacy:
    """A watch holds statistics, and no rows."""

    @pytest.mark.parametrize("per_site", [1, 3, 10, 19, 20, 50, 120, 400])
    @pytest.mark.parametrize("n_columns", [1, 2, 4, 10])
    def test_a_source_has_at_most_half_as_many_statistics_as_values(self, per_site, n_columns):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(6 * per_site, n_columns))
        watch = ShiftWatch().fit(X, sample_domain=np.arange(len(X)) // per_site)
        rows = watch.totals_[:, 0]
        assert (rows >= min(20, len(X))).all()
        assert (watch.n_features_ <= rows / 3).all()
        stored = (watch.totals_ != 0).sum(axis=1) + 1  # and the degrees of freedom
        assert (stored[rows >= 20] <= rows[rows >= 20] * n_columns / 2).all()

    def test_a_watch_contains_no_row(self):
        X = make_rows(40)
        watch = ShiftWatch().fit(X, sample_domain=np.repeat(list("ABCDE"), 40))
        Z = (X - watch.mean_) / watch.scale_
        for rows in (X, Z):
            for value in vars(watch).values():
                if isinstance(value, np.ndarray) and value.ndim == 2 and value.shape[1] == 4:
                    assert np.abs(rows[:, None] - value).max(axis=2).min() > 1e-3

    @pytest.mark.parametrize("per_site, n_columns", [(10, 3), (20, 3), (30, 8)])
    def test_rows_cannot_be_reconstructed_by_least_squares(self, per_site, n_columns):
        """The attack that gave back all rows of a site, from 100 kernel means of each."""
        from scipy.optimize import least_squares

        rng = np.random.default_rng(0)
        X = rng.normal(size=(4 * per_site, n_columns))
        watch = ShiftWatch().fit(X, sample_domain=np.arange(len(X)) // per_site)
        Z = (X - watch.mean_) / watch.scale_
        n = int(watch.totals_[0, 0])
        true = Z if watch.sources_ == [watching.POOLED] else Z[:per_site]
        known = watch.split_totals(watch.totals_[0])
        r, L = watch.n_features_[0], watch.landmarks_
        K = np.exp(-watch.gamma_ * ((L[:, None] - L) ** 2).sum(axis=2)) + 1e-6 * np.eye(len(L))
        root = np.linalg.inv(np.linalg.cholesky(K)).T[:, :r]
        target = np.concatenate([known["level"], known["spread"], known["kernel"][:r]])

        def values_at(flat):
            z = flat.reshape(n, n_columns)
            return z, np.exp(-watch.gamma_ * ((z[:, None] - L) ** 2).sum(axis=2))

        def errors(flat):
            z, kernel = values_at(flat)
            features = (kernel @ root).sum(axis=0)
            return np.concatenate([z.sum(axis=0), (z**2).sum(axis=0), features]) - target

        def slopes(flat):
            z, kernel = values_at(flat)
            ones, values = np.tile(np.eye(n_columns), n), z.ravel()
            steps = -2 * watch.gamma_ * kernel[:, :, None] * (z[:, None] - L)
            features = np.einsum("ilj,lk->kij", steps, root).reshape(r, -1)
            return np.vstack([ones, 2 * ones * values, features])

        for seed in range(2):
            start = np.random.default_rng(10 + seed).normal(size=n * n_columns)
            guess = least_squares(errors, start, slopes, max_nfev=60).x.reshape(n, n_columns)
            assert np.abs(errors(guess.ravel())).max() < 1e-3  # the attack fits the numbers
            nearest = np.abs(true[:, None] - guess).max(axis=2).min(axis=1)
            assert (nearest < 0.01).mean() < 0.1


def test_predictions_with_and_without_a_watch_are_identical(fitted):
    X, _ = fitted
    y = X[:, 0] > 18
    steps = StandardScaler(), LogisticRegression()
    plain = make_pipeline(*steps).fit(X, y)
    watched = make_pipeline(ShiftWatch(), *steps).fit(X, y)
    new = planted(X, 0, lambda c: 1.8 * c + 32)
    np.testing.assert_array_equal(plain.predict_proba(new), watched.predict_proba(new))
    assert ShiftWatch().fit(X).transform(X) is X


def test_a_watch_after_other_steps_checks_their_output(fitted):
    X, _ = fitted
    model = make_pipeline(StandardScaler(), ShiftWatch(), LogisticRegression()).fit(X, X[:, 0] > 18)
    assert check_shift(model, X[:100]) == []
    assert check_shift(model, X[:100] * 3)


@pytest.mark.parametrize("few", [1, 2, 3])
def test_a_source_with_few_rows_is_accepted(few):
    watch = ShiftWatch().fit(make_rows(few), sample_domain=np.repeat(list("ABCDE"), few))
    assert check_shift(watch, make_rows(few)[:few]) == []


def test_constant_columns_empty_columns_and_a_single_source_are_accepted():
    X = np.column_stack([np.full(50, 7.0), np.full(50, np.nan), np.arange(50.0)])
    watch = ShiftWatch().fit(X)
    assert check_shift(watch, X[::3]) == []
    X[:, 0] = 8
    assert [f.kind for f in check_shift(watch, X[:20]) if f.column == "x0"] == ["range"]


def test_a_model_without_statistics_is_refused():
    with pytest.raises(
        ValueError, match="stores no statistics of its source domains. .*ShiftWatch"
    ):
        check_shift(LogisticRegression(), np.zeros((3, 2)))


class TestFrames:
    """Tables with names, text and gaps."""

    pandas = pytest.importorskip("pandas")

    def frame(self, n=300, seed=0):
        rng = np.random.default_rng(seed)
        return self.pandas.DataFrame(
            {
                "temperature": rng.normal(18, 4, n),
                "soil": rng.choice(["clay", "sand"], n),
                "wet": self.pandas.array(rng.random(n) < 0.5, dtype="boolean"),
                "taken": self.pandas.Timestamp("2020-01-01"),
            }
        )

    def test_unknown_categories_are_named(self):
        watch = ShiftWatch().fit(self.frame())
        new = self.frame(40, seed=1)
        new.loc[3:5, "soil"] = ["peat", "chalk", None]
        (finding,) = check_shift(watch, new)
        assert (finding.kind, finding.column, finding.numbers) == (
            "category",
            "soil",
            {"rows": 2, "of": 40},
        )
        assert "occurs in no source domain: 'chalk', 'peat'" in str(finding)

    def test_columns_may_be_in_another_order_but_must_be_present(self):
        watch = ShiftWatch().fit(self.frame())
        new = self.frame(40, seed=1)
        assert check_shift(watch, new[new.columns[::-1]].assign(more=1)) == []
        with pytest.raises(ValueError, match="no column 'soil', which the source domains have"):
            check_shift(watch, new.drop(columns="soil"))
        with pytest.raises(ValueError, match="'temperature' of X contains text"):
            check_shift(watch, new.assign(temperature="warm"))

    @pytest.mark.parametrize("output", ["default", "pandas"])
    def test_columns_are_matched_by_name_and_the_callers_frame_is_not_renamed(self, output):
        X = self.pandas.DataFrame(make_rows(), columns=list("abcd"))
        y, new = X["a"] > 18, X[["c", "a", "d", "b"]].iloc[::7].assign(more=1)
        before = new.copy()
        with config_context(transform_output=output):
            model = make_pipeline(ShiftWatch(), StandardScaler(), LogisticRegression()).fit(X, y)
            predictions = model.predict_proba(new)
            ShiftWatch().fit(new.to_numpy()).transform(new)
        self.pandas.testing.assert_frame_equal(new, before)
        np.testing.assert_array_equal(predictions, model.predict_proba(X.iloc[::7]))
        with pytest.raises(ValueError, match="X has several columns 'a'. Rename or drop them."):
            model.predict(self.pandas.concat([X, X["a"]], axis=1))

    def test_a_saved_model_has_the_same_findings(self, tmp_path):
        pytest.importorskip("skops")
        from domainwise.models.table_model import TableModel, fit_table
        from domainwise.tables.schema import check_table

        frame = self.frame().drop(columns=["taken", "wet"])
        frame["site"] = np.arange(300) % 3
        frame["ill"] = frame["temperature"] > 18
        model = fit_table(check_table(frame, target="ill", domain="site"), "linear")
        model.save(tmp_path / "m.skops")
        new = frame.assign(temperature=1.8 * frame["temperature"] + 32, soil="peat")
        again = TableModel.load(tmp_path / "m.skops")
        reported = check_shift(model, new)
        assert {f.domain for f in reported} == {0, 1, 2}
        assert {f.kind for f in reported} == {"range", "category", "distance"}
        assert check_shift(again, new) == reported
        pipeline = domainwise.load(tmp_path / "m.skops")
        assert check_shift(pipeline, new, sample_domain=new["site"]) == reported
