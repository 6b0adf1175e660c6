"""predict --context: rows with those of their domain, for tables that are read piece by piece."""

import copy
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
testing = pytest.importorskip("typer.testing")

import domainwise  # noqa: E402
from domainwise import DomainContext, DomainEnsembleClassifier, ShiftWatch  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.estimators.ensemble.held_out import ShareRange  # noqa: E402
from domainwise.held_out.scoring.predictions import fit_with_domains  # noqa: E402
from domainwise.models.apply import apply_to_file  # noqa: E402
from domainwise.models.registry import METHODS, Setting  # noqa: E402
from domainwise.models.table_model import TableModel, describe_model, make_preprocessor  # noqa: E402
from domainwise.models.tuning import MethodSearch  # noqa: E402
from domainwise.tables.schema import check_table  # noqa: E402

runner = testing.CliRunner()


def make_frame(n=200, seed=0, sites="ABCDEFGH"):
    """Every site has its own level; who lies above it is ill."""
    rng = np.random.default_rng(seed)
    site = np.array(list(sites))[np.arange(n) % len(sites)]
    level = dict(zip(sites, rng.normal(0, 3, len(sites)), strict=True))
    own = rng.normal(size=n)
    dose = own + np.array([level[s] for s in site])
    ill = np.where(own + 0.2 * rng.normal(size=n) > 0, "yes", "no")
    return pandas.DataFrame({"dose": dose, "age": rng.normal(size=n), "site": site, "ill": ill})


def table_model(machine):
    table = check_table(make_frame(), target="ill", domain="site")
    steps = [("watch", ShiftWatch()), ("prepare", make_preprocessor(table.schema))]
    pipeline = Pipeline([*steps, ("model", machine)])
    fit_with_domains(pipeline, table.X, table.y, table.sample_domain)
    return TableModel(pipeline, table.schema, {"method": "own"})


@pytest.fixture(scope="module")
def ensemble():
    members = ["linear", ("logistic", LogisticRegression())]
    return table_model(MethodSearch(DomainEnsembleClassifier(members)))


@pytest.fixture(scope="module")
def relative():
    return table_model(make_pipeline(DomainContext(), LogisticRegression()))


def directly(model, frame, domains):
    with config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.pipeline.predict_proba(model.schema.prepare(frame), sample_domain=domains)


@pytest.mark.parametrize("kind", ["ensemble", "relative"])
@pytest.mark.parametrize("context", ["column", "one"])
def test_pieces_are_predicted_as_the_whole_table_is(kind, context, request, tmp_path):
    model = request.getfixturevalue(kind)
    frame = make_frame(90, seed=5, sites="XYZ")
    frame.to_parquet(tmp_path / "new.parquet")
    outs = []
    for rows in (1000, 7):
        out = tmp_path / f"{rows}.parquet"
        apply_to_file(model, tmp_path / "new.parquet", out, chunk_rows=rows, context=context)
        outs.append(pandas.read_parquet(out))
    domains = frame["site"] if context == "column" else ["all"] * 90
    expected = directly(model, frame, domains)
    for out in outs:
        np.testing.assert_allclose(out[["probability_no", "probability_yes"]], expected, atol=1e-9)
    # Nothing of it stays in the model.
    np.testing.assert_array_equal(directly(model, frame, domains), expected)


def test_context_is_what_makes_the_difference(relative, tmp_path):
    frame = make_frame(120, seed=5, sites="XYZ")
    frame.to_csv(tmp_path / "new.csv", index=False)
    hits = []
    for context in (None, "column"):
        out = tmp_path / f"{context}.csv"
        apply_to_file(relative, tmp_path / "new.csv", out, context=context)
        hits.append((pandas.read_csv(out)["prediction"] == frame["ill"]).mean())
    assert hits[1] > max(0.85, hits[0] + 0.1)


def test_a_domain_is_taken_row_by_row_as_a_whole_or_not_at_all(ensemble, tmp_path):
    """The shares of classes in a piece say nothing: those of the whole domain decide."""
    model = copy.deepcopy(ensemble)
    machine = model.pipeline[-1].estimator_
    machine._shares = ShareRange(np.array([0.4, 0.4]), np.array([0.6, 0.6]), 8)
    machine._source_range = None
    frame = make_frame(75, seed=7, sites="XYZ").sort_values("ill")
    # Of the rows of Z nine in ten lie below its mean.
    frame.loc[frame["site"] == "Z", "dose"] = np.repeat([-3.0, 12.0], [22, 3])
    frame.to_parquet(tmp_path / "new.parquet")
    out = tmp_path / "out.parquet"
    done = apply_to_file(model, tmp_path / "new.parquet", out, chunk_rows=20, context="column")
    message = "Context was not used for these domains: Z (the shares"
    assert [note[: len(message)] for note in done.notes] == [message]
    predicted = pandas.read_parquet(out)[["probability_no", "probability_yes"]]
    np.testing.assert_allclose(predicted, directly(model, frame, frame["site"]), atol=1e-9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, ensemble):
    folder = tmp_path_factory.mktemp("context")
    ensemble.save(folder / "m.skops")
    make_frame(90, seed=5, sites="XYZ").to_csv(folder / "new.csv", index=False)
    return folder


def predict(folder, out, *options):
    arguments = ["predict", folder / "m.skops", folder / "new.csv", "-o", out, *options]
    return runner.invoke(app, [str(argument) for argument in arguments])


def test_the_command_predicts_in_the_context_of_each_domain_or_of_all_rows(folder, tmp_path):
    done = predict(folder, tmp_path / "o.csv", "--context")
    assert done.exit_code == 0, done.output
    done = predict(folder, tmp_path / "p.csv", "--context", "--one-domain")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "o.csv").read_text() != (tmp_path / "p.csv").read_text()


def test_without_a_column_of_domains_it_asks_for_one(folder, tmp_path):
    frame = pandas.read_csv(folder / "new.csv")
    frame.drop(columns="site").to_csv(tmp_path / "new.csv", index=False)
    frame.assign(site=frame["site"].where(frame["site"] != "X")).to_csv(tmp_path / "gaps.csv")
    arguments = ["predict", str(folder / "m.skops")]
    rest = ["-o", str(tmp_path / "o.csv"), "--context"]
    done = runner.invoke(app, [*arguments, str(tmp_path / "new.csv"), *rest])
    assert done.exit_code == 2
    assert "no column 'site', which context needs" in " ".join(done.stderr.split())
    done = runner.invoke(app, [*arguments, str(tmp_path / "gaps.csv"), *rest])
    assert done.exit_code == 2
    assert "rows without a domain in column 'site'" in " ".join(done.stderr.split())
    done = runner.invoke(app, [*arguments, str(tmp_path / "new.csv"), *rest, "--one-domain"])
    assert done.exit_code == 0, done.output


def test_it_is_refused_where_it_has_no_use(folder, tmp_path):
    model = table_model(LogisticRegression())
    model.save(tmp_path / "m.skops")
    with pytest.raises(ValueError, match="predicts rows one by one"):
        apply_to_file(model, folder / "new.csv", tmp_path / "o.csv", context="column")
    members = table_model(MethodSearch(DomainEnsembleClassifier(["linear"], context=False)))
    with pytest.raises(ValueError, match="predicts rows one by one"):
        apply_to_file(members, folder / "new.csv", tmp_path / "o.csv", context="column")
    done = predict(folder, tmp_path / "o.csv", "--one-domain")
    assert done.exit_code == 2
    assert "--one-domain requires --context; add --context" in done.stderr
    assert not (tmp_path / "o.csv").exists()


def test_moments_of_pieces_are_those_of_the_domain():
    rng = np.random.default_rng(0)
    X, where = rng.normal(5, 2, size=(50, 3)), np.array(["u", "v"])[np.arange(50) % 2]
    X[rng.random(X.shape) < 0.2] = np.nan
    context = domainwise.DomainContext().fit(X)
    first, rest = (context.domain_moments(X[s], where[s]) for s in (slice(20), slice(20, 50)))
    Z = (X - context.mean_) / context.scale_
    for name in ("u", "v"):
        merged = first[name].merged(rest[name])
        np.testing.assert_allclose(merged.mean[0], np.nanmean(Z[where == name], axis=0))
        np.testing.assert_allclose(merged.variance[0], np.nanvar(Z[where == name], axis=0))


def test_a_note_says_that_a_score_needs_context(ensemble, tmp_path):
    info = {
        **describe_model(
            METHODS["ensemble"],
            Setting(True, 200),
            ensemble.pipeline[-1],
            classes=["no", "yes"],
            domains=[("A", 25)],
            notes=[],
        )
    }
    assert info["context"] == {"batch_size": 25, "promised": False}
    make_frame(60, seed=5, sites="XY").to_csv(tmp_path / "new.csv", index=False)
    for promised in (False, True):
        info["context"] = {"batch_size": 25, "promised": promised}
        TableModel(ensemble.pipeline, ensemble.schema, info).save(tmp_path / "model.skops")
        arguments = [str(tmp_path / "model.skops"), str(tmp_path / "new.csv"), "--force"]
        advised = []
        for more in ([], ["--context"]):
            done = runner.invoke(
                app, ["predict", *arguments, "-o", str(tmp_path / "out.csv"), *more]
            )
            assert done.exit_code == 0, done.output
            advised.append("add --context" in " ".join(done.stderr.split()))
        assert advised == [promised, False]
    shown = runner.invoke(app, ["info", str(tmp_path / "model.skops")])
    words = " ".join(shown.stdout.split())
    assert "representative of their domain; the score with context was measured on 25 rows" in words
