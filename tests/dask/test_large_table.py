"""fit --dask of a table that does not fit memory: the model of the whole table, but for medians."""

import json

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")
testing = pytest.importorskip("typer.testing")
pytest.importorskip("distributed")

from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402

from domainwise import DomainEnsembleClassifier, check_shift  # noqa: E402
from domainwise.cli import app  # noqa: E402
from domainwise.held_out.scoring.predictions import fit_with_domains  # noqa: E402
from domainwise.models.apply import apply_to_file  # noqa: E402
from domainwise.models.large_table import LargeTable, statistics_of  # noqa: E402
from domainwise.models.table_model import TableModel, fit_table, make_preprocessor  # noqa: E402
from domainwise.tables.errors import TableError  # noqa: E402
from domainwise.tables.schema import check_table, load_table  # noqa: E402

pytestmark = pytest.mark.dask

COLUMNS = {"target": "ill", "domain": "site"}


def make_frame(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    site = rng.integers(5, size=n)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n) + site,
            "dose": rng.lognormal(size=n),
            "sex": rng.choice(["m", "f", "x"], n, p=[0.55, 0.4, 0.05]),
            "site": np.array(["A", "B", "C", "D", "E"])[site],
        }
    )
    score = frame["age"] + 4 * frame["dose"] + 6 * (frame["sex"] == "m") + 4 * rng.normal(size=n)
    frame["ill"] = np.where(score > 60, "y", "n")
    frame["blood"] = score + rng.normal(size=n)
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "sex"] = None
    frame.loc[5:8, "ill"] = None
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of several row groups, each of which is a piece."""
    monkeypatch.setattr("domainwise.distributed.parquet.PARTITION_BYTES", 1)
    monkeypatch.setattr("domainwise.estimators.ridge.base.AUTO_LANDMARKS", 60)
    for i, part in enumerate(np.array_split(np.arange(1500), 3)):
        make_frame().iloc[part].to_parquet(tmp_path / f"{i}.parquet", row_group_size=200)
    return tmp_path


def test_an_index_that_pandas_has_written_is_not_a_feature(folder):
    for path in folder.iterdir():
        frame = pandas.read_parquet(path)
        frame.set_axis(1.5 * np.arange(len(frame)), axis=0).to_parquet(path)
    assert LargeTable.open(folder, **COLUMNS).table.schema.numeric == ("age", "dose", "blood")


def test_missing_values_of_the_target_and_the_domain_are_missing_in_every_piece(folder):
    for path in folder.iterdir():
        frame = pandas.read_parquet(path)
        frame.loc[frame.index[::50], "ill"] = "?"
        frame.loc[frame.index[1::50], "site"] = "?"
        frame.to_parquet(path, row_group_size=200)
    large = LargeTable.open(folder, **COLUMNS, na=["?"])
    pieces = [large.reader.rows(piece) for piece in large.pieces]
    assert {label for _, y, _, _ in pieces for label in y} == {"n", "y"}
    assert {name for _, _, domains, _ in pieces for name in domains} == set("ABCDE")
    assert sum(left_out for _, _, _, left_out in pieces) == 4 + 30 + 30


def test_what_is_learnt_of_columns_is_that_of_the_whole_table(folder, client):
    here = fit_table(load_table(folder, drop=["blood"], **COLUMNS), "invariantridge")
    there = LargeTable.open(folder, drop=["blood"], **COLUMNS).fit(client)
    one, other = (m.pipeline.named_steps["prepare"].named_transformers_ for m in (here, there))
    np.testing.assert_allclose(
        one["numeric"][0].statistics_, other["numeric"][0].statistics_, rtol=0.02
    )
    np.testing.assert_allclose(one["numeric"][1].mean_, other["numeric"][1].mean_, rtol=1e-3)
    np.testing.assert_allclose(one["numeric"][1].scale_, other["numeric"][1].scale_, rtol=1e-3)
    assert (
        one["categorical"][0].statistics_.tolist() == other["categorical"][0].statistics_.tolist()
    )
    for a, b in zip(
        one["categorical"][1].categories_, other["categorical"][1].categories_, strict=True
    ):
        assert a.tolist() == b.tolist()
    assert there.info["n_rows"] == here.info["n_rows"] == 1496
    assert there.info["domains"] == here.info["domains"]
    assert any("by the medians of 1496 sampled rows" in note for note in there.info["notes"])
    new = here.schema.prepare(make_frame(300, seed=1))
    agree = there.pipeline.predict(new) == here.pipeline.predict(new)
    assert agree.mean() > 0.9
    assert check_shift(there, make_frame(300, seed=1)) == []
    strange = make_frame(300, seed=1).assign(sex="z")
    strange["age"] *= 12
    kinds = {"range", "category"}
    assert kinds <= {f.kind for f in check_shift(there, strange) if f.domain == "B"}


def test_rare_categories_are_pooled_as_in_memory(tmp_path):
    rng = np.random.default_rng(0)
    for n_levels in (3, 50, 51, 400):
        sizes = np.r_[np.full(n_levels // 2, 12), rng.integers(1, 12, n_levels - n_levels // 2)]
        codes = np.repeat([f"c{i}" for i in range(n_levels)], sizes)
        frame = make_frame(len(codes)).assign(code=codes)
        table = check_table(frame.drop(columns="blood"), **COLUMNS)
        expected = make_preprocessor(table.schema).fit(table.X)
        table.X.assign(ill=table.y, site=table.sample_domain).to_parquet(tmp_path / "t.parquet")
        large = LargeTable.open(tmp_path / "t.parquet", **COLUMNS)
        statistics = statistics_of(large.reader, large.pieces[0])
        found = statistics.preprocessor(large.table.schema, large.table.X)
        rows = table.X.assign(code=table.X["code"].where(table.X.index % 9 > 0, "unseen"))
        found, expected = found.transform(rows), expected.transform(rows)
        np.testing.assert_allclose(found[:, :2], expected[:, :2], atol=0.2)
        np.testing.assert_array_equal(found[:, 2:], expected[:, 2:])


def test_a_dropped_domain_with_a_comma_is_dropped_from_every_piece(folder):
    for path in folder.iterdir():
        frame = pandas.read_parquet(path)
        frame["site"] = frame["site"].replace({"A": "Boston, MA", "B": "Boston"})
        frame.to_parquet(path, row_group_size=200)
    large = LargeTable.open(folder, **COLUMNS, drop_domains=["Boston, MA"])
    domains = {name for piece in large.pieces for name in large.reader.rows(piece)[2]}
    assert domains == {"Boston", "C", "D", "E"}
    assert {*large.table.domains} == domains


def test_cells_that_do_not_fit_name_the_piece(folder):
    path = folder / "2.parquet"
    frame = pandas.read_parquet(path).astype({"dose": str})
    frame.iloc[-1, frame.columns.get_loc("dose")] = "much"
    large = LargeTable.open(folder, **COLUMNS)
    frame.to_parquet(path, row_group_size=200)
    with pytest.raises(TableError, match="row group.*'dose' must contain numbers.*has 'much'"):
        [large.reader.rows(piece) for piece in large.pieces]


def test_numbers_and_dropped_domains(folder, client):
    large = LargeTable.open(folder, target="blood", domain="site", drop=["ill"], drop_domains=["A"])
    model = large.fit(client)
    assert [name for name, _ in model.info["domains"]] == ["B", "C", "D", "E"]
    assert not any("no target or domain" in note for note in model.info["notes"])
    new = make_frame(300, seed=1)
    predicted = model.pipeline.predict(model.schema.prepare(new))
    assert np.corrcoef(predicted, new["blood"])[0, 1] > 0.9


def test_probabilities_of_a_large_table_are_calibrated_on_sampled_rows(folder, client):
    rare = make_frame().assign(ill=lambda f: f["ill"].where(f["blood"] < 78, "dead"))
    rare.loc[rare["ill"] != "dead", "ill"] = "alive"
    for i, part in enumerate(np.array_split(np.arange(1500), 3)):
        rare.iloc[part].to_parquet(folder / f"{i}.parquet", row_group_size=200)
    model = LargeTable.open(folder, drop=["blood"], **COLUMNS).fit(client)
    new = make_frame(3000, seed=1)
    is_dead = new["blood"] >= 78
    assert is_dead.mean() < 0.11
    output = model.predictions(model.schema.prepare(new))
    p = output["probability_dead"]
    assert p.mean() == pytest.approx(is_dead.mean(), rel=0.25)
    threshold = model.pipeline[-1].applied_rule.threshold
    assert ((output["prediction"] == "dead") == (p >= threshold)).all()
    at_a = new["site"] == "A"
    adapted = model.pipeline[-1].adaptable.adapt(
        model.pipeline[:-1].transform(model.schema.prepare(new[at_a][:20])),
        np.where(is_dead[at_a][:20], "dead", "alive"),
    )
    assert adapted.corrections_


def test_a_class_outside_the_sample_leaves_decisions_without_probabilities(
    folder, client, monkeypatch
):
    monkeypatch.setattr("domainwise.models.large_table.SAMPLE_ROWS", 20)
    for path in folder.iterdir():
        frame = pandas.read_parquet(path)
        frame.loc[frame.index[100:103], "ill"] = "unclear"
        frame.to_parquet(path, row_group_size=200)
    model = LargeTable.open(folder, drop=["blood"], **COLUMNS).fit(client)
    assert any("no probabilities" in note for note in model.info["notes"])
    output = model.predictions(model.schema.prepare(make_frame(100, seed=1)))
    assert [*output.columns[1:]] == ["decision_n", "decision_unclear", "decision_y"]


def test_other_methods_are_refused(folder, client):
    with pytest.raises(ValueError, match="'dcm' needs the table in memory"):
        LargeTable.open(folder, **COLUMNS).fit(client, method="dcm")


@pytest.mark.parametrize("beyond", [False, True])
def test_the_command_streams_only_what_exceeds_memory(
    folder, client, tmp_path, monkeypatch, beyond
):
    if beyond:
        monkeypatch.setattr("domainwise.models.large_table.available_memory", lambda: 1000)
    out = tmp_path / "model.skops"
    result = testing.CliRunner().invoke(
        app,
        [
            *("fit", str(folder), "--target", "ill", "--domain", "site", "--drop", "blood"),
            *("--method", "invariantridge", "--dask", client.scheduler.address),
            *("-o", str(out), "--json", "--no-check"),
        ],
    )
    assert result.exit_code == 0, result.output
    info = json.loads(result.stdout)
    assert any("sampled rows" in note for note in info["notes"]) == beyond
    assert set(
        TableModel.load(out).pipeline.predict(
            TableModel.load(out).schema.prepare(make_frame(50, seed=2))
        )
    ) <= {"y", "n"}


def test_workers_predict_batches_of_any_size_as_one_process_does(folder, client, tmp_path):
    """A domain of 300 rows is divided into parts, whichever piece of the table a row is in."""
    ensemble = DomainEnsembleClassifier([("logistic", LogisticRegression())], random_state=0)
    frame = make_frame(200, seed=11).dropna(subset="ill")  # context improves held-out scores
    table = check_table(frame.drop(columns="blood"), **COLUMNS)
    pipeline = Pipeline([("prepare", make_preprocessor(table.schema)), ("model", ensemble)])
    fit_with_domains(pipeline, table.X, table.y, table.sample_domain)
    model = TableModel(pipeline, table.schema, {"method": "own"})
    found = []
    for name, options in {"here": {"chunk_rows": 170}, "there": {"client": client}}.items():
        apply_to_file(model, folder, tmp_path / f"{name}.csv", context="column", **options)
        found.append(pandas.read_csv(tmp_path / f"{name}.csv"))
    rows = load_table(folder, drop=["blood"], **COLUMNS)
    assert ensemble.context_batch_size_ < 50 < len(rows.y) / 5
    pandas.testing.assert_frame_equal(*found, rtol=1e-9)
