"""Names are text everywhere: in plots, tables, notes, errors and terminals."""

import json
import os
import re
import sys
import zipfile

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("typer")
pytest.importorskip("skops.io")

import domainwise as dw
from domainwise.base.files import write_text
from domainwise.base.messages import quoted
from domainwise.cli import app
from domainwise.cli.common import escaped
from domainwise.held_out.scoring.predictions import codes_of

pandas = pytest.importorskip("pandas")

#: What a name may be, and what would become of it as markup, as a formula, or in a terminal.
NAMES = [
    "[/c]",  # ends Rich's parser
    "[red]x",  # would be a colour
    "$5 to $6",  # would be a formula
    r"$\nosuch$",  # ends matplotlib's parser
    r"\$",
    "a_b^c%",
    "\x1b[2Jx",  # would clear the screen
    "\x9b31mx",  # the same in one character
    "\u202egnp",  # would be written from right to left
    "<b>&amp;",
    "",
]


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_drawn_as_it_is(name):
    pytest.importorskip("matplotlib")
    from domainwise.evaluation.html import drawing, to_svg

    with drawing(3, 2) as figure:
        axes = figure.subplots()
        axes.plot([1, 10], [0, 1], label=name or "-")
        axes.set_xscale("log")
        axes.set_yticks([0, 1], [name, "b"])
        axes.set_title(name)
        axes.annotate(name, (1, 1))
        axes.legend()
        svg = to_svg(figure, "x", name)
    drawn = re.sub("<!--.*?-->", "", svg, flags=re.S)
    assert "mathdefault" not in drawn  # powers of ten are still drawn as such
    if name == "$5 to $6":
        assert drawn.count("$5 to $6") >= 4


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_printed_as_it_is_and_moves_no_cursor(name, capsys):
    from rich.console import Console

    Console(width=200, highlight=False).print(escaped(name))
    printed = capsys.readouterr().out
    assert all(mark.isprintable() or mark == "\n" for mark in printed)
    if name.isprintable():
        assert printed == name + "\n"


def test_escapes_in_a_model_file_are_shown(tmp_path):
    path = tmp_path / "m.skops"
    dw.save(dw.DCM(), path, info={"notes": ["\x1b[2Jgone [/c]"]})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(parts["domainwise.json"])
    header["versions"] = dict.fromkeys(header["versions"], "\x1b[31m1.0 [/x]")
    header["model"] = "\x1b]0;title\x07"
    for format_number in (header["format"], 99):
        header["format"] = format_number
        parts["domainwise.json"] = json.dumps(header).encode()
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in parts.items():
                archive.writestr(name, content)
        result = CliRunner().invoke(app, ["info", str(path)])
        assert result.exit_code == (0 if format_number < 99 else 2), result.output
        assert "\x1b" not in result.output
        assert "\x07" not in result.output
        assert r"\x1b[31m1.0 [/x]" in result.output


def test_escapes_in_a_table_are_shown(tmp_path):
    write_text(tmp_path / "t.csv", "a\x1b[2J,site,y\n" + "1,A,0\nx,B,1\n" * 20)
    arguments = ["--target", "nowhere", "--domain", "site", "-o", str(tmp_path / "m.skops")]
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "t.csv"), *arguments])
    assert result.exit_code == 2
    assert "\x1b" not in result.output


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_a_table_whose_name_is_not_utf8_is_refused_before_the_first_fit(tmp_path):
    path = tmp_path / os.fsdecode(b"t\xff.csv")
    write_text(path, "a,site,y\n" + "1,A,0\n2,A,1\n3,B,0\n4,B,1\n" * 20)
    arguments = ["evaluate", str(path), "--target", "y", "--domain", "site"]
    result = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert r"t\udcff.csv is not UTF-8; rename the file or folder" in result.output
    assert not (tmp_path / "out").exists()


LONG = "a" * 10**6
ROWS, CODES = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) % 3


@pytest.mark.parametrize(
    "use",
    [
        lambda: dw.DCM().fit(ROWS, [LONG] * 12, sample_domain=CODES),
        lambda: dw.InvariantSVC(class_weight={LONG: 1.0}).fit(ROWS, CODES, sample_domain=CODES),
        lambda: dw.InvariantSVC(class_weight={0: 1.0}).fit(
            ROWS, np.array(["b", "c", LONG])[CODES], sample_domain=CODES
        ),
        lambda: dw.evaluate(pandas.DataFrame(ROWS, columns=[LONG, "b"]), "y", "b"),
        lambda: dw.evaluate(pandas.DataFrame(ROWS, columns=["a", "b"]), LONG, "b"),
        lambda: dw.DCM().fit(
            pandas.DataFrame({LONG: pandas.date_range("2024", periods=12)}), CODES
        ),
        lambda: codes_of([LONG], np.array(["b", LONG + "c"])),
    ],
)
def test_a_name_of_a_megabyte_is_not_printed_whole(use):
    with pytest.raises((ValueError, TypeError), match=r"a{60}.*more characters") as caught:
        use()
    assert len(str(caught.value)) < 600


def test_short_names_are_written_as_code():
    assert [*map(quoted, ("a\n", np.str_("b"), np.int64(3), 1.5))] == [r"'a\n'", "'b'", "3", "1.5"]
