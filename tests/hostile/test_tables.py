"""CSV files as people have them: a line of the table is a case.

``same`` means that the table is read as the plain one is; anything else is what the refusal, or a
note, says. To add a case, add a line.
"""

import gzip
import os
import subprocess
import sys

import numpy as np
import pytest

from domainwise.tables.errors import TableError
from domainwise.tables.schema import load_table

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

N = 40
RNG = np.random.default_rng(0)
A = np.round(RNG.normal(size=N), 3)
FRAME = pandas.DataFrame({"a": A, "b": np.round(RNG.normal(size=N), 2)})
FRAME["site"] = np.repeat(["A", "B"], N // 2)
FRAME["y"] = np.where(A > 0, "yes", "no")
PLAIN = FRAME.to_csv(index=False)


def of(**columns):
    return FRAME.assign(**columns).to_csv(index=False).encode()


def cells(form):
    return of(a=[form.format(v) for v in A])


def some(word):
    return of(a=[word if row % 5 == 0 else str(v) for row, v in enumerate(A)])


MARK = b"\xef\xbb\xbf"
CASES = {
    "a byte order mark": (MARK + PLAIN.encode(), {}, "same"),
    "... and its encoding named": (MARK + PLAIN.encode(), {"encoding": "UTF8"}, "same"),
    "UTF-32": (PLAIN.encode("utf-32"), {}, "same"),
    "old Mac's line ends": (PLAIN.replace("\n", "\r").encode(), {}, "same"),
    "blank lines": (PLAIN.replace("\n", "\n\n").encode(), {}, "same"),
    "signs on all numbers": (cells("{:+}"), {}, "same"),
    "gzip by another name": (
        gzip.compress(PLAIN.encode()),
        {},
        r"not a CSV file. Rename it to end in \.csv\.gz",
    ),
    "an encoding that is none of text": (PLAIN.encode(), {"encoding": "rot13"}, "is unknown"),
    "the target left out": (
        PLAIN.encode(),
        {"drop": ["y"]},
        "cannot be features and cannot be dropped",
    ),
    # Quantities are never categories.
    "money": (cells("${}"), {}, "contains numbers, but also"),
    "money behind": (cells("{} €"), {}, "contains numbers, but also"),
    "units": (cells("{} mm"), {}, "contains numbers, but also"),
    "detection limits": (cells("<{}"), {}, "contains numbers, but also"),
    "accountants' minus": (cells("({})"), {}, "contains numbers, but also"),
    "per mille": (cells("{}‰"), {}, "contains numbers, but also"),
    "Fortran's powers": (cells("{}D+00"), {}, "contains numbers, but also"),
    "digits in groups": (of(a=[f"{row + 1}_000" for row in range(N)]), {}, "but also '1_000'"),
    "long times": (of(a=[f"{row + 20}:30" for row in range(N)]), {}, "but also"),
    "a dash for none": (some("-"), {}, "but also '-'"),
    "a question mark for none": (some("?"), {}, r"but also '\?'"),
    "a spreadsheet's error": (some("#DIV/0!"), {}, "but also '#DIV/0!'"),
    "a quantity of money as target": (
        of(y=[f"${v}" for v in A]),
        {},
        "target 'y' contains numb",
    ),
    "months": (of(a=[f"2024-{row % 12 + 1:02}" for row in range(N)]), {}, "dates or times"),
    "quarters": (of(a=[f"2024Q{row % 4 + 1}" for row in range(N)]), {}, "dates or times"),
    # Names stay apart, and that is told.
    "one name in two code points": (
        of(site=np.repeat(["Köln", "Ko\u0308ln"], N // 2)),
        {},
        "different domains",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_outcome_is_the_decided_one(case, tmp_path):
    content, options, outcome = CASES[case]
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    options = {"target": "y", "domain": "site", **options}
    if outcome == "different domains":
        assert any(outcome in note for note in load_table(path, **options).notes)
    elif outcome == "same":
        found = load_table(path, **options)
        np.testing.assert_array_equal(found.X.to_numpy(), FRAME[["a", "b"]].to_numpy())
        assert found.y.tolist() == FRAME.y.tolist()
        assert found.sample_domain.tolist() == FRAME.site.tolist()
    else:
        with pytest.raises(TableError, match=outcome):
            load_table(path, **options)


def test_categories_with_digits_stay_categories(tmp_path):
    path = tmp_path / "t.csv"
    for form in ("ward {}", "P{}", "{}-{}", "T{}b"):
        path.write_bytes(of(a=[form.format(row % 30, row) for row in range(N)]))
        assert load_table(path, target="y", domain="site").schema.categorical == ("a",)


@pytest.mark.skipif(os.name == "nt", reason="a shell closes the streams")
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-"])
def test_a_closed_stream_is_no_reason_to_stop(closed):
    pytest.importorskip("typer")
    command = f'"{sys.executable}" -m domainwise --version {closed}'
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
