"""The commands federate plan, statistics, moments and fit."""

import json

import numpy as np
import pytest

pytest.importorskip("skops")
pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
testing = pytest.importorskip("typer.testing")

from domainwise.cli import app  # noqa: E402

runner = testing.CliRunner()


def make_frame(seed, n=500):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(rng.normal(0.2 * seed, 1, (n, 2)), columns=["dose", "age"])
    ill = np.where(frame["dose"] + rng.normal(0, 0.4, n) > 0.2, "yes", "no")
    ward, name = np.arange(n) % 2 + 10 * seed, [f"p{i}" for i in range(n)]
    return frame.assign(ward=ward, name=name, ill=ill)


def run(*arguments):
    return runner.invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables of three sites, and all that their two rounds wrote, with what was printed."""
    folder, output = tmp_path_factory.mktemp("sites"), {}
    (folder / "more.json").write_text('{"kernels": ["rbf"], "candidates": {"alphas": [0.1, 1.0]}}')
    for i, site in enumerate(("east", "north", "south")):
        make_frame(i).to_csv(folder / f"{site}.csv", index=False)
    output["plan"] = done("federate", "plan", folder / "east.csv", "--target", "ill", "--domain",
         "ward", "--drop", "name", "--settings", folder / "more.json", "-o",
         folder / "plan.json")  # fmt: skip
    for site in ("east", "north", "south"):
        output["statistics"] = done("federate", "statistics", folder / f"{site}.csv", "--plan",
             folder / "plan.json", "--site", site, "-o", folder / f"{site}.1.npz")  # fmt: skip
    files = sorted(folder.glob("*.1.npz"))
    output["merged"] = done("federate", "plan", folder / "plan.json", *files, "-o",
                          folder / "merged.json")  # fmt: skip
    for site in ("east", "north", "south"):
        output["moments"] = done("federate", "moments", folder / f"{site}.csv", "--plan",
             folder / "merged.json", "--site", site, "-o", folder / f"{site}.2.npz")  # fmt: skip
    files = sorted(folder.glob("*.2.npz"))
    output["fit"] = done("federate", "fit", *files, "--plan", folder / "merged.json", "-o",
                       folder / "model.skops")  # fmt: skip
    return folder, output


def test_each_command_says_what_its_file_contains_and_what_not(folder):
    for name, words in folder[1].items():
        assert "contains" in words, name
        assert "does not contain: rows" in words, name
        assert words.index("does not contain") < words.index("wrote "), name
    assert "site 'south', first round" in folder[1]["statistics"]
    assert "error on each held-out site: east 0." in folder[1]["fit"]


def test_the_model_predicts_and_is_described_as_any_other(folder, tmp_path):
    folder = folder[0]
    make_frame(5).to_csv(tmp_path / "new.csv", index=False)
    done("predict", folder / "model.skops", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    new = pandas.read_csv(tmp_path / "out.csv")
    assert (new["prediction"] == make_frame(5)["ill"]).mean() > 0.8
    words = done("info", folder / "model.skops")
    assert "squared error of class indicators" in words
    assert "3 in column ward: east (500), north (500), south (500)" in words
    assert "note: fitted from the moments of 3 sites, which do not share their rows" in words
    info = json.loads(done("info", folder / "model.skops", "--json"))["info"]
    assert set(info["expected_score"]) == {"east", "north", "south"}


def test_no_file_holds_a_name_or_a_row(folder):
    folder = folder[0]
    values = make_frame(0)["dose"].to_numpy()
    for path in (*folder.glob("*.npz"), folder / "plan.json", folder / "merged.json"):
        content = path.read_bytes()
        assert b"p17" not in content, path.name
        assert not any(value.tobytes() in content for value in values), path.name


def test_what_is_wrong_is_said_and_nothing_is_written(folder, tmp_path):
    folder, out = folder[0], tmp_path / "out.skops"
    file = folder / "east.2.npz"
    for arguments, words in (
        (
            ["fit", file, file, "--plan", folder / "merged.json"],
            "two files for site 'east'",
        ),
        (["fit", "--plan", folder / "merged.json"], "no second-round file was passed"),
        (["fit", file, "--plan", folder / "merged.json"], "only one site"),
        (["fit", file, "--plan", folder / "plan.json"], "was created with plan"),
        (["fit", file, "--plan", file], "damaged or is not a plan"),
    ):
        result = run("federate", *arguments, "-o", out)
        assert result.exit_code == 2
        assert words in " ".join(result.output.split())
    result = run("federate", "plan", folder / "east.csv", "-o", tmp_path / "plan.json")
    assert result.exit_code == 2
    assert "--target" in result.output
    result = run("federate", "moments", folder / "east.csv", "--plan", folder / "plan.json",
                "--site", "east", "-o", tmp_path / "a.npz")  # fmt: skip
    assert "this is the first-round plan" in " ".join(result.output.split())
    assert not list(tmp_path.iterdir())


def test_json_has_stdout_for_itself_and_words_come_before(folder, tmp_path):
    folder = folder[0]
    files = sorted(folder.glob("*.2.npz"))
    for arguments, ending, names in (
        (["plan", folder / "east.csv", "--target", "ill", "--auto-drop"], "json", {"plan"}),
        (["plan", folder / "plan.json", *folder.glob("*.1.npz")], "json", {"plan", "merged"}),
        (["statistics", folder / "east.csv", "--plan", folder / "plan.json", "--site", "east"],
         "npz", {"site", "plan", "left_out", "notes"}),
        (["moments", folder / "east.csv", "--plan", folder / "merged.json", "--site", "east"],
         "npz", {"site", "plan", "left_out", "notes"}),
        (["fit", *files, "--plan", folder / "merged.json"], "skops", {"method", "schema", "check"}),
    ):  # fmt: skip
        out = tmp_path / f"{arguments[0]}.{ending}"
        result = run("federate", *arguments, "-o", out, "--json", "--force")
        assert result.exit_code == 0, result.output
        answer = json.loads(result.stdout)
        assert answer["file"] == str(out)
        assert names <= set(answer)
        assert "does not contain: rows" in " ".join(result.stderr.split())
    assert set(answer["expected_score"]) == {"east", "north", "south"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"kernels": ', "more.json is not valid JSON"),
        (
            '["rbf"]',
            "contains ['rbf']; it must contain a JSON object with some of the keys classes",
        ),
        ('{"kernel": "rbf"}', "contains the unknown key 'kernel'; it must contain a JSON object"),
        ('{"target": "dose"}', "contains the unknown key 'target'"),
    ],
)
def test_more_of_a_plan_that_cannot_be_is_refused_by_name(folder, tmp_path, content, words):
    (tmp_path / "more.json").write_text(content)
    result = run("federate", "plan", folder[0] / "east.csv", "--target", "ill", "--settings",
                tmp_path / "more.json", "-o", tmp_path / "plan.json")  # fmt: skip
    assert result.exit_code == 2, result.output
    assert words in " ".join(result.output.split())


def test_a_plan_reads_its_table_as_fit_does(folder, tmp_path):
    frame = make_frame(0).drop(columns="name")
    frame["dose"] = frame["dose"].map("{:.3f}".format).str.replace(".", ",")
    frame.loc[:4, "age"] = -999
    frame["seen"] = pandas.date_range("2020-01-01", periods=len(frame)).astype(str)
    frame.to_csv(tmp_path / "rows.csv", index=False, sep=";")
    done("federate", "plan", tmp_path / "rows.csv", "--target", "ill", "--domain", "ward",
         "--dates", "month,age", "--decimal", ",", "--na=-999", "--task", "classification",
         "-o", tmp_path / "plan.json")  # fmt: skip
    schema = json.loads((tmp_path / "plan.json").read_text())["schema"]
    assert schema["numeric"] == ["dose", "age"]
    assert (schema["dates"], schema["date_parts"]) == (["seen"], ["month", "age"])
    assert schema["na"] == ["-999"]
    (tmp_path / "more.json").write_text('{"dates": ["month", "age"], "na": ["-999"]}')
    done("federate", "plan", tmp_path / "rows.csv", "--target", "ill", "--domain", "ward",
         "--decimal", ",", "--settings", tmp_path / "more.json",
         "-o", tmp_path / "again.json")  # fmt: skip
    assert json.loads((tmp_path / "again.json").read_text())["schema"] == schema


def test_options_of_a_new_plan_do_not_pass_unnoticed_beside_files(folder, tmp_path):
    files = sorted(folder[0].glob("*.1.npz"))
    for option, *value in (
        ["--smallest-cell", 20],
        ["--n-features", 500],
        ["--seed", 1],
        ["--auto-drop"],
    ):
        result = run("federate", "plan", folder[0] / "plan.json", *files, option, *value, "-o",
                    tmp_path / "merged.json")  # fmt: skip
        assert result.exit_code == 2
        assert f"remove {option}: the first-round plan sets this option" in result.output
    assert not list(tmp_path.iterdir())


def test_a_plan_is_not_overwritten_by_what_it_is_merged_into(folder, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_bytes((folder[0] / "plan.json").read_bytes())
    result = run("federate", "plan", plan, *folder[0].glob("*.1.npz"), "-o", plan, "--force")
    assert result.exit_code == 2
    assert "is the input; choose another output" in " ".join(result.output.split())
    assert plan.read_bytes() == (folder[0] / "plan.json").read_bytes()


@pytest.mark.parametrize(("option", "value"), [("--n-features", 0), ("--smallest-cell", 2)])
def test_numbers_out_of_range_are_refused_by_their_option(folder, tmp_path, option, value):
    result = run("federate", "plan", folder[0] / "east.csv", "--target", "ill", option, value,
                "-o", tmp_path / "plan.json")  # fmt: skip
    assert result.exit_code == 2
    assert option in result.output


def test_memory_that_does_not_suffice_is_said_with_what_the_plan_can_change(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("domainwise.gram.sums.available_memory", lambda *_: 1000)
    result = run("federate", "moments", folder[0] / "east.csv", "--plan", folder[0] / "merged.json",
                "--site", "east", "-o", tmp_path / "a.npz")  # fmt: skip
    assert result.exit_code == 1
    assert "fewer --n-features, kernels or gammas" in " ".join(result.output.split())


def test_a_site_that_is_too_small_writes_nothing_unless_it_accepts_that(folder, tmp_path):
    make_frame(7, 40).to_csv(tmp_path / "small.csv", index=False)
    command = ["federate", "moments", tmp_path / "small.csv", "--plan", folder[0] / "merged.json",
               "--site", "small", "-o", tmp_path / "small.npz"]  # fmt: skip
    refused = run(*command)
    words = " ".join(refused.output.split())
    assert refused.exit_code == 2
    assert "the second-round file was not created: the plan asks for 1 kernel feature map" in words
    assert "Use a table with more rows, or ask for a plan with a smaller n_features" in words
    assert "--accept-disclosure" in words
    assert not (tmp_path / "small.npz").exists()
    accepted = done(*command, "--accept-disclosure")
    sentence = "disclosure was accepted: rows of small classes and domains can be reconstructed"
    assert sentence in accepted
    files = [folder[0] / "north.2.npz", tmp_path / "small.npz"]
    done("federate", "fit", *files, "--plan", folder[0] / "merged.json", "-o",
         tmp_path / "model.skops")  # fmt: skip
    words = done("info", tmp_path / "model.skops")
    assert (
        "disclosure was accepted: rows from small could be reconstructed from this model" in words
    )


def test_a_table_that_was_changed_after_the_first_round_is_refused(folder, tmp_path):
    make_frame(0)[:-1].to_csv(tmp_path / "east.csv", index=False)
    plan, out = folder[0] / "merged.json", tmp_path / "a.npz"
    command = ["federate", "moments", tmp_path / "east.csv", "--plan", plan, "--site", "east"]
    refused = run(*command, "-o", out)
    assert refused.exit_code == 2
    words = " ".join(refused.output.split())
    assert "the rows at site 'east' differ from those in the first round" in words
    assert not out.exists()


def test_former_names_of_options_are_accepted_with_a_note(folder, tmp_path):
    plans = []
    for names in (("--smallest", "--columns"), ("--smallest-cell", "--n-features")):
        result = run("federate", "plan", folder[0] / "east.csv", "--target", "ill", "--domain",
                     "ward", "--drop", "name", names[0], 20, names[1], 50, "-o",
                     tmp_path / "plan.json", "--force")  # fmt: skip
        assert result.exit_code == 0
        assert ("--smallest is now called --smallest-cell" in result.output) == (not plans)
        plans.append((tmp_path / "plan.json").read_text())
    assert plans[0] == plans[1]
