"""Functions shared by the benchmarks: measurements in separate processes, growth, reports.

Only the standard library is imported here, because the peak memory of a child process initially
includes that of its parent.
"""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

MIB = 2**20
#: The root of the repository, where ``reproduction`` is, with the loaders of the data sets.
ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

Point = dict[str, Any]
Result = dict[str, Any]


def peak_rss() -> int:
    """Return the largest resident memory of this process so far, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass
class Meter:
    """Time of a block, and the increase of peak memory during it."""

    seconds: float = 0.0
    cpu: float = 0.0  #: seconds of all threads together, which other processes hardly change
    baseline: int = 0
    peak: int = 0

    def result(self, **more: Any) -> Result:
        """Return the numbers that a measurement reports to its parent process."""
        above = self.peak - self.baseline
        times = {"seconds": self.seconds, "cpu": self.cpu}
        return {**times, "peak": self.peak, "above": above, **more}


@contextmanager
def measured(baseline: int | None = None) -> Iterator[Meter]:
    """Measure a block; memory is relative to ``baseline``, by default the peak before the block."""
    meter = Meter(baseline=peak_rss() if baseline is None else baseline)
    started, cpu_started = time.perf_counter(), time.process_time()
    yield meter
    meter.seconds = time.perf_counter() - started
    meter.cpu = time.process_time() - cpu_started
    meter.peak = peak_rss()


def run_point(script: str, point: Point, variables: dict[str, str] | None = None) -> Result:
    """Measure one point in a new interpreter, with further environment variables."""
    command = [sys.executable, script, "--point", json.dumps(point)]
    environment = os.environ | (variables or {})
    process = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if process.returncode:
        raise RuntimeError(f"{point} failed:\n{process.stderr}")
    result: Result = json.loads(process.stdout.splitlines()[-1])
    print(f"  {describe(point)}: {result['seconds']:.2f} s, {result['above'] / MIB:.0f} MiB")
    sys.stdout.flush()
    return result


def describe(point: Point) -> str:
    """Describe a point in one line, without folder names."""
    settings = [f"{key}={value}" for key, value in point.items() if key not in ("task", "folder")]
    return " ".join([point["task"], *settings])


def alternate(
    script: str, points: Sequence[Point], rounds: int, variables: dict[str, str] | None = None
) -> list[Result]:
    """Measure points in turn, ``rounds`` times; return medians of times and maxima of memory."""
    runs = [[run_point(script, point, variables) for point in points] for _ in range(rounds)]
    summaries = []
    for results in zip(*runs, strict=True):
        result = dict(results[0])
        for times in ("seconds", "cpu"):
            if times in result:
                result[times] = statistics.median(r[times] for r in results)
        result["peak"] = max(r["peak"] for r in results)
        result["above"] = max(r["above"] for r in results)
        summaries.append(result)
    return summaries


def serve_point(text: str, tasks: dict[str, Callable[..., Result]]) -> None:
    """Run one point in a child process and print its result."""
    sys.path.insert(0, str(ROOT / "src"))
    point = json.loads(text)
    print(json.dumps(tasks[point.pop("task")](**point), default=float))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Slope of log(value) over log(size) by least squares."""
    logs = [math.log(s) for s in sizes], [math.log(v) for v in values]
    return statistics.linear_regression(*logs).slope


@dataclass
class Report:
    """A Markdown report with checks and tables."""

    title: str
    command: str
    note: str = "All ratios are from one run. Every measurement ran in a separate process."
    level: int = 1  #: of the title; 2 for a part of SPEED.md
    parts: list[str] = field(default_factory=list)
    checks: list[tuple[str, str, str, bool]] = field(default_factory=list)

    def check(
        self, description: str, measured: float, bound: float, *, form: str, least: bool
    ) -> None:
        """Add a check: its description, the measured value, and whether it is within the bound."""
        is_met = measured >= bound if least else measured <= bound
        sign = "≥" if least else "≤"
        self.checks.append(
            (description, form.format(measured), f"{sign} {form.format(bound)}", is_met)
        )

    def text(self, text: str) -> None:
        """Add a paragraph or heading."""
        self.parts.append(text)

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table; the first column is left-aligned, and the others are right-aligned."""
        lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
        self.parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))

    def render(self) -> str:
        """Return the text of the report."""
        opening = [
            f"{'#' * self.level} {self.title}",
            f"`{self.command}`, {date.today().isoformat()}. {machine()}. {versions()}. {self.note}",
        ]
        if self.checks:
            lines = ["| check | measured | bound | met |", "| --- | ---: | ---: | :---: |"]
            lines += [
                f"| {a} | {b} | {c} | {'yes' if d else '**no**'} |" for a, b, c, d in self.checks
            ]
            opening.append("\n".join(lines))
        return "\n\n".join([*opening, *self.parts]) + "\n"

    def write(self, path: Path | None) -> None:
        """Print the report, and write it if a path is given; a part replaces its older version."""
        text = self.render()
        print(f"\n{text}")
        if path is None:
            return
        if self.level > 1:
            replace_part(path, text)
        else:
            path.write_text(text, encoding="utf-8")


def replace_part(path: Path, text: str) -> None:
    """Replace the part of a report that has the same title, or append a part."""
    opening, *parts = path.read_text(encoding="utf-8").split("\n## ")
    titles = [part.split("\n", 1)[0] for part in parts]
    part = text.removeprefix("## ")
    if (title := part.split("\n", 1)[0]) in titles:
        parts[titles.index(title)] = part
    else:
        parts.append(part)
    text = "\n\n## ".join(p.strip("\n") for p in [opening, *parts]) + "\n"
    path.write_text(text, encoding="utf-8")


def machine() -> str:
    """Describe processor and memory."""
    model = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration), open("/proc/cpuinfo") as lines:
        model = next(line.split(":", 1)[1].strip() for line in lines if "model name" in line)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB"


def versions() -> str:
    """Versions of the packages that affect speed."""
    packages = [f"Python {platform.python_version()}"]
    for name in ("domainwise", "numpy", "scipy", "scikit-learn", "numba"):
        with suppress(PackageNotFoundError):  # a source tree on the path is not installed
            packages.append(f"{name} {version(name)}")
    return ", ".join(packages)


def size(n: float) -> str:
    """Format a number of rows with thousands separators."""
    return f"{n:,.0f}"


def mib(n_bytes: float) -> str:
    """Format bytes as MiB."""
    return f"{n_bytes / MIB:,.0f}"
