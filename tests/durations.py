"""Print a table of the number and duration of tests by file, before and after a change.

    pytest -q --collect-only > before.txt; pytest -q -n 2 --durations=0 > before.log
    (the change)
    pytest -q --collect-only > after.txt; pytest -q -n 2 --durations=0 > after.log
    python tests/durations.py before.txt before.log after.txt after.log > tests/DURATIONS.md

Durations are those that pytest reports: setup, call and teardown of every test that takes 5 ms or
more, summed over processes. They are meaningful only on an idle machine. Without the last log, only
the numbers of tests are compared. Files that were moved are matched by their names.
"""

import re
import sys
from collections import Counter
from pathlib import Path

#: Files with fewer seconds and fewer tests than this, in both columns, are added up in one line.
LEAST_SECONDS, LEAST_TESTS = 2.0, 60


def read(collected: str, log: str | None = None) -> tuple[Counter, Counter, str]:
    """Return tests and seconds by file, and the last line of the run."""
    tests = Counter(
        line.partition("::")[0]
        for line in Path(collected).read_text(encoding="utf-8").splitlines()
        if "::" in line and line.startswith(("tests/", "src/"))
    )
    seconds = Counter()
    if log is None:
        return tests, seconds, f"{sum(tests.values())} tests, not timed"
    lines = Path(log).read_text(encoding="utf-8").splitlines()
    for line in lines:
        match = re.match(r"\s*([\d.]+)s (?:call|setup|teardown)\s+(\S+?)::", line)
        if match and float(match[1]) >= 0.005:
            seconds[match[2]] += float(match[1])
    last = next(line for line in reversed(lines) if re.search(r"\d+ passed", line))
    return tests, seconds, last.strip("= ")


def moved(before: Counter, after: Counter) -> dict[str, str]:
    """Return the earlier path of files that were moved, where one that is gone has their name."""
    gone = [file for file in before if file not in after]
    return {
        file: earlier[0]
        for file in after
        if file not in before
        and len(earlier := [old for old in gone if Path(old).name == Path(file).name]) == 1
    }


def main(*paths: str) -> None:
    """Print the table."""
    before, after = read(*paths[:2]), read(*paths[2:])
    earlier = moved(before[0], after[0])
    rows: dict[str, list[float]] = {}
    shown: dict[str, str] = {}
    for column, (tests, seconds, _) in enumerate((before, after)):
        for file in tests:
            name = "src" if file.startswith("src/") else earlier.get(file, file)
            row = rows.setdefault(name, [0, 0.0, 0, 0.0])
            row[2 * column] += tests[file]
            row[2 * column + 1] += seconds[file]
            shown[name] = "docstrings of `src`" if name == "src" else f"`{file}`"
    print("# Tests by file\n")
    print("Written by `tests/durations.py`; its docstring explains how. Seconds are sums over")
    print("processes. Pytest summarized the two runs as follows:\n")
    print(f"- before: {before[2]}\n- after: {after[2]}\n")
    print("| file | tests before | seconds | tests after | seconds |\n|---|---:|---:|---:|---:|")
    rest = [0, 0.0, 0, 0.0]
    for name, row in sorted(rows.items(), key=lambda item: -max(item[1][1], item[1][3])):
        if max(row[1], row[3]) < LEAST_SECONDS and max(row[0], row[2]) < LEAST_TESTS:
            rest = [a + b for a, b in zip(rest, row, strict=True)]
        else:
            print(_line(shown[name], row))
    print(_line("other files", rest))
    print(_line("**all**", [sum(row[i] for row in rows.values()) for i in range(4)]))


def _line(name: str, row: list[float]) -> str:
    return f"| {name} | {row[0]:.0f} | {row[1]:.1f} | {row[2]:.0f} | {row[3]:.1f} |".replace(
        " 0.0 |", " |"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
