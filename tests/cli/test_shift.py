"""predict and transform say where new rows are unlike the sources."""

import json

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
testing = pytest.importorskip("typer.testing")

from domainwise.cli import app  # noqa: E402
from domainwise.models.apply import ShiftError, apply_to_file  # noqa: E402
from domainwise.models.table_model import TableModel  # noqa: E402

runner = testing.CliRunner()


def make_frame(n=240, seed=0):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(
        {
            "temperature": rng.normal(18, 4, n),
            "depth": rng.normal(2000, 300, n),
            "soil": rng.choice(["clay", "sand"], n),
            "site": np.array(["A", "B", "C", "D"])[np.arange(n) % 4],
        }
    )
    return frame.assign(ill=np.where(frame["temperature"] + rng.normal(size=n) > 18, "yes", "no"))


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, rows of a new site in its units, and rows in °F of another."""
    folder = tmp_path_factory.mktemp("shift")
    make_frame().to_csv(folder / "data.csv", index=False)
    new = make_frame(60, seed=1).assign(site="E")
    new.to_csv(folder / "new.csv", index=False)
    hot = make_frame(60, seed=2).assign(site="F", soil="peat")
    hot["temperature"] = 1.8 * hot["temperature"] + 32
    pandas.concat([new, hot]).to_csv(folder / "hot.csv", index=False)
    for method in ("linear", "coir"):
        done = run("fit", folder / "data.csv", "--target", "ill", "--domain", "site", "-o",
                   folder / f"{method}.skops", "--method", method, "--no-check")  # fmt: skip
        assert done.exit_code == 0, done.output
    return folder


def test_findings_are_printed_for_the_domain_they_are_about(folder, tmp_path):
    done = run("predict", folder / "linear.skops", folder / "hot.csv", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    output = " ".join(done.stderr.split())
    assert "shift: F: 'temperature' ranges from " in output
    assert "F: 60 rows have a value of 'soil' that occurs in no source domain: 'peat'" in output
    assert "shift: E" not in output
    assert len(pandas.read_csv(tmp_path / "out.csv")) == 120


def test_rows_like_the_sources_pass_without_a_word(folder, tmp_path):
    for options in ([], ["--strict"]):
        done = run("predict", folder / "linear.skops", folder / "new.csv", "--json", *options, "-o",
                   tmp_path / f"out{len(options)}.csv")  # fmt: skip
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["findings"] == []
        assert "shift:" not in done.stderr
    assert (tmp_path / "out0.csv").read_bytes() == (tmp_path / "out1.csv").read_bytes()


@pytest.mark.parametrize("command", ["predict", "transform"])
def test_strict_writes_nothing_and_says_in_json_what_was_found(folder, tmp_path, command):
    done = run(command, folder / "coir.skops", folder / "hot.csv", "-o", tmp_path / "out.csv",
               "--strict", "--json")  # fmt: skip
    assert done.exit_code == 2
    error = " ".join(done.stderr.split())
    assert "differs from the source domains of the model, so nothing was written" in error
    assert error.endswith("Check the findings, or omit --strict")
    findings = json.loads(done.stdout)["findings"]
    assert {f["kind"] for f in findings} == {"range", "category", "distance"}
    assert {f["domain"] for f in findings} == {"F"}
    assert list(tmp_path.iterdir()) == []


def test_findings_do_not_depend_on_the_pieces_a_file_is_read_in(folder, tmp_path):
    model = TableModel.load(folder / "linear.skops")
    done = [
        apply_to_file(model, folder / "hot.csv", tmp_path / f"{rows}.csv", chunk_rows=rows)
        for rows in (7, 1000)
    ]
    assert [str(f) for f in done[0].findings] == [str(f) for f in done[1].findings]
    with pytest.raises(ShiftError) as refused:
        apply_to_file(model, folder / "hot.csv", tmp_path / "x.csv", chunk_rows=50, strict=True)
    assert refused.value.findings[0].kind == "range"
    assert str(refused.value).endswith("Check the findings, or omit strict=True")


def test_many_findings_are_counted_not_listed(folder, tmp_path):
    hot = make_frame(600).assign(site=np.arange(600) % 30)
    hot.assign(temperature=-300.0).to_csv(tmp_path / "hot.csv", index=False)
    done = run("predict", folder / "linear.skops", tmp_path / "hot.csv", "-o", tmp_path / "o.csv")
    assert done.exit_code == 0
    assert done.stderr.count("shift:") == 21
    assert "more findings (use --json to list all)" in done.stderr
