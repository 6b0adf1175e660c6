"""Outputs are complete or not there, whoever or whatever comes in between."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from domainwise.base.files import replacing, replacing_folder, write_text

pandas = pytest.importorskip("pandas")
pytest.importorskip("typer")

SLOW_ROWS = 12_000


def names_in(folder):
    return sorted(entry.name for entry in folder.iterdir())


def domainwise(*arguments, **options):
    command = [sys.executable, "-m", "domainwise", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def ended(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out + err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table whose names are anything, a model of it, and many rows to predict."""
    folder = tmp_path_factory.mktemp("outputs")
    rows = range(120)
    frame = pandas.DataFrame(
        {
            "größe": [float(row % 7) for row in rows],
            "x": [float((row * row) % 11) for row in rows],
            "site": [["[/c]", "$5 to $6", r"$\nosuch$", "日本"][row % 4] for row in rows],
            "y": ["né" if row % 7 > 3 else "sain" for row in rows],
        }
    )
    frame.to_csv(folder / "t.csv", index=False)
    pandas.concat([frame] * (SLOW_ROWS // 120)).to_csv(folder / "new.csv", index=False)
    columns = ["--target", "y", "--domain", "site"]
    options = ["--method", "dcm", "--no-check", "-o", folder / "m.skops"]
    code, said = ended(domainwise("fit", folder / "t.csv", *columns, *options))
    assert code == 0, said
    return folder


def write_twice(mine, theirs):
    """Write, and let somebody else write to the same place before that is done."""
    with mine as unfinished:
        (unfinished / "part" if unfinished.is_dir() else unfinished).write_text("mine")
        theirs()


def test_a_file_that_somebody_else_has_written_meanwhile_is_left(tmp_path):
    path = tmp_path / "out.txt"
    for before in (None, "old"):
        if before:
            path.write_text(before)
        with pytest.raises(FileExistsError, match="another process"):
            write_twice(replacing(path), lambda: write_text(path, "theirs"))
        assert path.read_text() == "theirs"
        assert names_in(tmp_path) == ["out.txt"]
        path.unlink()


def test_a_folder_that_somebody_else_has_written_meanwhile_is_left(tmp_path):
    path = tmp_path / "out"

    def theirs():
        with replacing_folder(path) as unfinished:
            (unfinished / "part").write_text("theirs")

    with pytest.raises(FileExistsError, match="another process"):
        write_twice(replacing_folder(path), theirs)
    assert (path / "part").read_text() == "theirs"
    assert names_in(tmp_path) == ["out"]


def test_of_many_writers_of_one_file_each_wins_or_is_told(tmp_path):
    path, told, wrote = tmp_path / "out.txt", [], []

    def write(number):
        try:
            with replacing(path) as temporary:
                together.wait()
                temporary.write_text(f"{number}" * 1000)
            wrote.append(number)
        except FileExistsError as error:
            told.append(str(error))

    for before in (False, True):
        path.write_text("before") if before else path.unlink(missing_ok=True)
        for _ in range(20):
            told.clear(), wrote.clear()
            together = threading.Barrier(4)
            threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            assert len(wrote) == 1
            assert len(told) == 3
            assert path.read_text() == f"{wrote[0]}" * 1000
            if not before:
                path.unlink()
    assert names_in(tmp_path) == ["out.txt"]


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "real" / "target.txt")
    for text in ("one", "two"):  # a target that is not there yet, and one that is
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "real" / "target.txt").read_text() == text
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path / "real")
    with replacing_folder(folder) as unfinished:
        (unfinished / "part").write_text("new")
    assert folder.is_symlink()
    assert names_in(tmp_path / "real") == ["part"]
    assert names_in(tmp_path) == ["folder", "link.txt", "real"]


def test_a_full_disk_leaves_nothing_behind(folder, tmp_path):
    resource = pytest.importorskip("resource")

    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    for name in ("p.csv.gz", "p.parquet"):
        done = domainwise("predict", folder / "m.skops", folder / "new.csv", "-o", tmp_path / name,
                          preexec_fn=small_files)  # fmt: skip
        code, said = ended(done)
        assert code in (1, 2), said
        assert "Traceback" not in said
        assert names_in(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_complete_output_or_none(number, folder, tmp_path):
    arguments = ["predict", folder / "m.skops", folder / "new.csv", "-o", tmp_path / "p.csv"]
    process = domainwise(*arguments)
    deadline = time.monotonic() + 60
    while process.poll() is None and not names_in(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(number)  # while the output is being written
    code, said = ended(process)
    assert "Traceback" not in said
    if names_in(tmp_path):
        assert names_in(tmp_path) == ["p.csv"]
        assert len(pandas.read_csv(tmp_path / "p.csv")) == SLOW_ROWS
    else:
        assert code != 0


@pytest.mark.parametrize("delay", [0.1, 0.3])
def test_an_early_interruption_shows_no_traceback(delay):
    process = domainwise("info", "m.skops", env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, said = ended(process)
    # Before main runs, the interpreter is interrupted while it imports.
    assert "Traceback" not in said or ", in main" not in said, said


def test_a_terminal_that_has_no_sign_for_a_name_is_no_reason_to_stop(folder, tmp_path):
    for encoding, arguments in (
        ("ascii", ["info", folder / "m.skops"]),
        ("ascii", ["predict", folder / "nowhere-é→.skops", folder / "t.csv", "-o", "p.csv"]),
        ("latin-1", ["predict", folder / "m.skops", folder / "t.csv", "-o", tmp_path / "p.csv"]),
    ):
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        process = domainwise(*arguments, env=environment, encoding=encoding)
        code, said = ended(process)
        assert "UnicodeEncodeError" not in said, said
        assert code == (2 if "nowhere" in str(arguments[1:2]) else 0), said
