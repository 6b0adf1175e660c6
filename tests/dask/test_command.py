"""fit, predict, transform and evaluate with --dask: the same results, computed elsewhere."""

import json
import os
import re
import socket
import sys

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
testing = pytest.importorskip("typer.testing")

distributed = pytest.importorskip("distributed")

from domainwise.cli import app  # noqa: E402

pytestmark = pytest.mark.dask

COLUMNS = ["--target", "ill", "--domain", "site"]


def run(*arguments):
    return testing.CliRunner().invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    """Run, and expect success."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(message, *arguments):
    """Run, and expect exit code 2 with a message and without a traceback."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert message in " ".join(result.stderr.split())


def make_frame(n=160, seed=0):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "dose": rng.normal(size=n),
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "site": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
            "id": [f"row {i}" for i in range(n)],
        }
    )
    frame["ill"] = np.where(
        frame["age"] + 8 * frame["dose"] + 5 * rng.normal(size=n) > 50, "y", "n"
    )
    frame.loc[::11, "age"] = np.nan
    frame.loc[::13, "sex"] = None
    return frame


@pytest.fixture(scope="module")
def address(client):
    return client.scheduler.address


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, a model of it, and new rows as CSV, as one Parquet file and as a folder of them."""
    folder = tmp_path_factory.mktemp("command")
    make_frame().drop(columns="id").to_csv(folder / "data.csv", index=False)
    new = make_frame(90, seed=1)
    new.loc[:5, "sex"] = "x"
    new.to_csv(folder / "new.csv", index=False)
    new.to_parquet(folder / "new[1].parquet", row_group_size=20)
    (folder / "parts").mkdir()
    for i, start in enumerate((0, 50)):
        new[start : start + 50].to_parquet(folder / "parts" / f"{i}.parquet", row_group_size=20)
    done("fit", folder / "data.csv", *COLUMNS, "-o", folder / "m.skops", "--method", "dcm",
         "--no-check")  # fmt: skip
    return folder


@pytest.fixture
def small_tasks(monkeypatch):
    """Tasks of a few rows, so that there are many."""
    monkeypatch.setattr("domainwise.models.large_table.TASK_ROWS", 15)
    monkeypatch.setattr("domainwise.models.large_table.CHUNK_ROWS", 15)


def test_an_evaluation_on_workers_is_that_of_one_process(folder, tmp_path, address, client):
    options = [*COLUMNS, "--methods", "linear,coir,dcmcv", "--no-report", "--json"]
    options += ["-o", tmp_path / "out", "--force"]  # the verdict ends with a command that names it
    here = done("evaluate", folder / "data.csv", *options)
    with distributed.get_task_stream(client) as stream:
        there = done("evaluate", folder / "data.csv", *options, "--dask", address)
    # Three methods on four held-out domains, then two of them where domains are seen.
    assert len(stream.data) == (3 + 2) * 4
    a, b = (without_times(json.loads(result.stdout)) for result in (here, there))
    assert a == b
    assert "2 workers" in there.stderr


def without_times(found):
    """An evaluation without what differs from run to run."""
    if isinstance(found, dict):
        left_out = ("seconds", "files", "digest")  # the digest covers the times
        return {k: without_times(v) for k, v in found.items() if k not in left_out}
    return [without_times(part) for part in found] if isinstance(found, list) else found


@pytest.mark.parametrize(("method", "tasks"), [("dcmcv", "_run_task"), ("linear", "_run_task")])
def test_a_fit_shares_out_its_folds_and_nothing_else(
    folder, tmp_path, address, client, method, tasks
):
    given = ["fit", folder / "data.csv", *COLUMNS, "--method", method, "--json"]
    here = json.loads(done(*given, "-o", tmp_path / "here.skops").stdout)
    with distributed.get_task_stream(client) as stream:
        there = done(*given, "-o", tmp_path / "there.skops", "--dask", address)
    there = json.loads(there.stdout)
    assert len(stream.data) >= 4  # domains left out
    names = {re.sub(r"^(mixed_)?batch_of_|_\d+_calls.*", "", task["key"]) for task in stream.data}
    # The method on a domain left out, with its own search; and the search of the final fit.
    assert names == {"_run", tasks}
    assert there["chosen"] == pytest.approx(here["chosen"])
    sets = [found["check"].pop("calibration") for found in (here, there)]
    assert sets[1].pop("thresholds") == pytest.approx(sets[0].pop("thresholds"))
    assert sets[1] == pytest.approx(sets[0])
    for name in ("range", "true_range"):
        ranges = [result["check"].pop(name) for result in (here, there)]
        assert ranges[1] == pytest.approx(ranges[0])
    assert there["check"] == pytest.approx(here["check"])


@pytest.mark.usefixtures("small_tasks")
def test_workers_use_the_options_for_reading_cells(folder, tmp_path, address):
    new = make_frame(90, seed=1)
    new["age"] = new["age"].map(
        lambda age: "unknown" if age < 40 else f"{age:.1f}".replace(".", ",")
    )
    new.to_parquet(tmp_path / "new.parquet")
    given = ["predict", folder / "m.skops", tmp_path / "new.parquet", "--decimal", ","]
    given += ["--na", "unknown", "--na", "nan"]
    done(*given, "-o", tmp_path / "here.parquet")
    done(*given, "-o", tmp_path / "there.parquet", "--dask", address)
    here, there = (pandas.read_parquet(tmp_path / f"{n}.parquet") for n in ("here", "there"))
    pandas.testing.assert_frame_equal(here, there, rtol=1e-12)
    message = "column 'age' must contain numbers"
    refused(message, *given[:3], "-o", tmp_path / "x.parquet", "--dask", address)


@pytest.mark.parametrize("source", ["new.csv", "new[1].parquet", "parts"])
@pytest.mark.parametrize("command", ["transform", "predict"])
@pytest.mark.usefixtures("small_tasks")
def test_rows_are_what_the_plain_command_gives(folder, tmp_path, address, source, command):
    given = [command, folder / "m.skops", folder / source, "--keep", "id", "--json"]
    here = done(*given, "-o", tmp_path / "here.parquet")
    expected = pandas.read_parquet(tmp_path / "here.parquet")
    assert expected["id"].tolist() == [f"row {i}" for i in range(90)]
    for name in ("there.parquet", "there.csv", "there"):
        there = done(*given, "-o", tmp_path / name, "--dask", address)
        read = pandas.read_csv if name.endswith(".csv") else pandas.read_parquet
        found = read(tmp_path / name)
        pandas.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-12)
        a, b = (json.loads(result.stdout) for result in (here, there))
        assert b == {**a, "file": str(tmp_path / name)}
        unknown = [finding for finding in a["findings"] if finding["kind"] == "category"]
        assert {finding["column"] for finding in unknown} == {"sex"}
        assert sum(finding["numbers"]["rows"] for finding in unknown) == 6
    parts = sorted(path.name for path in (tmp_path / "there").iterdir())
    assert parts[:2] == ["part-000000.parquet", "part-000001.parquet"]
    assert len(parts) >= 6


@pytest.mark.usefixtures("small_tasks")
def test_parts_have_the_types_of_the_first(folder, tmp_path, address):
    new = make_frame(60).assign(remark=["fine"] * 20 + [None] * 40)
    new.to_parquet(tmp_path / "new.parquet", row_group_size=15)
    done("transform", folder / "m.skops", tmp_path / "new.parquet", "--keep", "remark", "-o",
         tmp_path / "out", "--dask", address)  # fmt: skip
    from pyarrow import parquet

    schemas = [parquet.read_schema(path) for path in sorted((tmp_path / "out").iterdir())]
    assert len(schemas) == 4
    assert all(schema.equals(schemas[0]) for schema in schemas)


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("out", ["out.parquet", "out"])
def test_an_error_on_a_worker_is_reported_and_nothing_is_left(folder, tmp_path, address, out):
    new = make_frame(60)
    new["dose"] = new["dose"].astype(str)
    new.loc[40, "dose"] = "much"
    new.to_parquet(tmp_path / "new.parquet", row_group_size=20)
    given = [folder / "m.skops", tmp_path / "new.parquet", "-o", tmp_path / out]
    refused("row 41 has 'much'", "transform", *given, "--dask", address)
    assert os.listdir(tmp_path) == ["new.parquet"]


@pytest.mark.usefixtures("small_tasks")
def test_a_damaged_file_is_named_and_nothing_is_left(folder, tmp_path, address):
    file = tmp_path / "new.parquet"
    make_frame(60).to_parquet(file, row_group_size=20, compression=None)
    data = bytearray(file.read_bytes())
    data[10:1500] = bytes(1490)
    file.write_bytes(bytes(data))
    refused("cannot read", "transform", folder / "m.skops", file, "-o", tmp_path / "out", "--dask",
            address)  # fmt: skip
    assert os.listdir(tmp_path) == ["new.parquet"]


def test_a_folder_is_replaced_with_force_and_only_if_it_holds_parts(folder, tmp_path, address):
    out = tmp_path / "out"
    given = ["transform", folder / "m.skops", folder / "new.csv", "-o", out]
    refused("must end in", *given)
    out.mkdir()
    (out / "part-000009.parquet").write_text("old")
    refused("use --force", *given, "--dask", address)
    done(*given, "--dask", address, "--force")
    assert os.listdir(out) == ["part-000000.parquet"]
    assert os.listdir(tmp_path) == ["out"]
    (out / "mine.txt").write_text("mine")
    refused(
        "contains mine.txt, which is not part of an earlier output",
        *given,
        "--dask",
        address,
        "--force",
    )
    refused("is inside the input", "transform", folder / "m.skops", out, "-o", out / "z.csv")
    part = out / "part-000000.parquet"
    refused("contains the input", "transform", folder / "m.skops", part, "-o", out, "--dask",
            address, "--force")  # fmt: skip


def test_a_local_cluster_is_started_announced_and_closed(folder, tmp_path):
    result = done("transform", folder / "m.skops", folder / "new[1].parquet", "-o",
                  tmp_path / "out.csv", "--dask", "local", "--json")  # fmt: skip
    assert json.loads(result.stdout)["rows"] == 90
    said = re.search(r"dask: \d+ workers?, dashboard at http://127\.0\.0\.1:(\d+)/", result.stderr)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(said[1]))) != 0


def test_a_cluster_that_was_there_before_stays(folder, tmp_path, address, client):
    done("predict", folder / "m.skops", folder / "new.csv", "-o", tmp_path / "out.csv", "--dask",
         address)  # fmt: skip
    assert client.submit(abs, -3).result() == 3
    assert len(client.nthreads()) == 2


def test_nobody_at_the_address(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("domainwise.cli.common.TIMEOUT_SECONDS", 1)
    given = ["transform", folder / "m.skops", folder / "new.csv", "-o", tmp_path / "out.csv"]
    for listens in (False, True):  # somebody else's program says nothing
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            if listens:
                taken.listen()
            address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            refused(f"{address}: cannot connect to a Dask scheduler", *given, "--dask", address)
    for address in ("nonsense", "http://127.0.0.1:8787/status", ""):
        refused("is not the address of a Dask scheduler; pass", *given, "--dask", address)
    assert os.listdir(tmp_path) == []


def test_a_scheduler_without_workers_is_refused(folder, tmp_path, monkeypatch, new_cluster):
    monkeypatch.setattr("domainwise.cli.common.TIMEOUT_SECONDS", 1)
    with new_cluster(n_workers=0) as cluster:
        refused("the scheduler has no workers", "fit", folder / "data.csv", *COLUMNS, "-o",
                tmp_path / "m.skops", "--dask", cluster.scheduler_address)  # fmt: skip


@pytest.mark.parametrize("package", ["distributed", "dask"])
def test_a_missing_package_is_named(folder, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    refused(f'--dask needs {package}: pip install "domainwise[dask]"', "evaluate",
            folder / "data.csv", *COLUMNS, "-o", tmp_path / "out", "--dask", "local")  # fmt: skip


def test_jobs_and_dask_exclude_each_other(folder, tmp_path):
    refused("remove --jobs", "evaluate", folder / "data.csv", *COLUMNS, "-o", tmp_path / "out",
            "--dask", "local", "--jobs", "2")  # fmt: skip
