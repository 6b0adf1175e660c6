"""Change the bytes of CSV files at random and read them: ``make fuzz``, or this file with --count.

A table is read, or refused by a TableError; every other error is a failure. So are chunks, and
labels, that the schema reads in another way than the whole table.
"""

import argparse
import gzip
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas

from domainwise.tables.errors import TableError
from domainwise.tables.files import open_table
from domainwise.tables.schema import Schema, load_table

sys.path.insert(0, str(Path(__file__).parent))
from watched import watch

#: What has a meaning in a CSV file, in a number, or in a terminal.
PIECES = [
    *(b",", b";", b"\t", b"\n", b"\r", b"\r\n", b'"', b'""', b"'", b"#", b"\\", b" ", b"\x00"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xe9", "é".encode(), "\u202e".encode(), b"\x1b[31m"),
    *(b"nan", b"NA", b"None", b"inf", b"-inf", b"1e999", b"1,5", b"12%", b"2020-01-01", b"12:30"),
    *(b"9" * 30, b"0x10", b"1_000", b"TRUE", b"$5 to $6", b"[/c]", b"=1+1", b"x" * 500, b"-", b"."),
]


def seeds():
    rng = np.random.default_rng(0)
    for separator, ending in [(",", "\n"), (";", "\n"), ("\t", "\r\n"), (",", "\r\n")]:
        rows = [["site", "age", "kind", "dose", "ill"]]
        for row in range(60):
            kind, dose = "abc"[rng.integers(3)], rng.normal()
            rows.append([f"S{row % 4}", str(20 + row % 50), kind, f"{dose:.4f}", "ny"[row % 3 % 2]])
        rows[7][2], rows[9][3] = f'"quoted{separator} text"', ""
        yield ending.join(separator.join(row) for row in rows).encode() + ending.encode()


def changed(content, rng):
    """Other words in some cells, and, in every third table, other bytes anywhere."""
    for _ in range(rng.integers(1, 4)):
        piece = PIECES[rng.integers(len(PIECES))]
        cells = [match.span() for match in re.finditer(rb"[^,;\t\r\n]+", content)]
        if cells:
            start, stop = cells[rng.integers(len(cells))]
            content = content[:start] + piece + content[stop:]
    if rng.random() < 0.3:
        place, piece = rng.integers(len(content) + 1), PIECES[rng.integers(len(PIECES))]
        skipped = rng.integers(40)
        content = [
            content[:place] + piece + content[place:],
            content[:place] + content[place + skipped :],
            content[:place] + content[place - skipped :],
            content[:place],
            content.replace(b"y", piece),
        ][rng.integers(5)]
    return content


def compare_chunks(path, table):
    """Read the file again in chunks of 7 rows: features, targets and domains must be the same."""
    schema = Schema.from_dict(table.schema.as_dict())
    X, y, domains = [], [], []
    file = open_table(path)
    for piece in file.frames([*schema.features, "ill", "site"], 7):
        rows, labels, names = schema.read_labels(piece, table.classes)
        X.append(schema.prepare(piece, rows=rows))
        y += labels.tolist()
        domains += names.tolist()
    pandas.testing.assert_frame_equal(pandas.concat(X, ignore_index=True), table.X)
    assert [str(label) for label in y] == [str(label) for label in table.y.tolist()]
    assert domains == [str(name) for name in table.sample_domain.tolist()]


def main(count, first=0):
    """Run so many changes; return what became of them and what must not happen."""
    tables = list(seeds())

    def case(number):
        rng = np.random.default_rng(number)
        content = changed(tables[number % len(tables)], rng)
        packed = rng.random() < 0.1
        if packed:
            whole = gzip.compress(content)
            content = whole[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.5 else whole
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / f"table.csv{'.gz' if packed else ''}"
            path.write_bytes(content)
            try:
                table = load_table(path, target="ill", domain="site", auto_drop=number % 2)
                compare_chunks(path, table)
            except TableError:
                return len(content), "refused"
        return len(content), "read"

    return watch(count, case, first=first)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    start = time.monotonic()
    outcomes, failures = main(arguments.count, arguments.first)
    print(f"{arguments.count} changed tables in {time.monotonic() - start:.0f} s: {dict(outcomes)}")
    print("\n".join(failures))
    raise SystemExit(bool(failures))
