"""Time and memory: writes a part of SPEED.md.

    python benchmarks/speed.py exact            exact DCM (also: make bench)
    python benchmarks/speed.py sums             models that need one pass over the rows
    python benchmarks/speed.py cluster          20 million rows in Parquet files; needs Dask
    python benchmarks/speed.py gpu --out FILE   on a CUDA device; sums-gpu as well
    python benchmarks/speed.py ensemble         the ensemble beside boosting
    python benchmarks/speed.py search           the ensemble beside a search for LightGBM
    python benchmarks/speed.py evaluate         `evaluate`; needs the data
    python benchmarks/speed.py large            `evaluate` on 50,000 rows
    python benchmarks/speed.py PART --quick     small sizes, for a test; writes no files

A part replaces its older version in the report.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from measuring import ROOT, Report

#: Title, module and function of each part.
PARTS = {
    "exact": ("Exact DCM", "speed_exact", "measure"),
    "sums": ("One pass over any number of rows", "speed_sums", "measure"),
    "sums-gpu": ("One pass on a GPU", "speed_sums", "measure_gpu"),
    "cluster": ("Files on a cluster", "speed_sums", "measure_cluster"),
    "gpu": ("Exact DCM on a GPU", "speed_gpu", "measure"),
    "ensemble": ("The ensemble", "speed_ensemble", "measure"),
    "search": ("The ensemble beside a search for LightGBM", "speed_ensemble", "measure_search"),
    "evaluate": ("evaluate", "speed_evaluate", "measure"),
    "large": ("evaluate on 50,000 rows", "speed_evaluate", "measure_large"),
}


def main() -> None:
    """Measure a part, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="use small sizes and write no files")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("SPEED.md"))
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT / "src"))
    title, module, function = PARTS[arguments.part]
    report = Report(title, f"python benchmarks/speed.py {arguments.part}", level=2)
    getattr(import_module(module), function)(report, quick=arguments.quick)
    report.write(None if arguments.quick else arguments.out)


if __name__ == "__main__":
    main()
