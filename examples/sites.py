"""Four hospitals fit one model without sharing their rows.

Each hospital runs in a separate process. The processes share only a folder with the coordinator's
plan, two small files from each hospital, and the merged plan for the second round. A hospital's
rows are simulated in its process and never written to a file.

    python examples/sites.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from domainwise.federated import Plan, fit, merge, moments, statistics

SITES = ("north", "east", "south", "west")
N_ROWS, TIMEOUT = 400, 120

MEANING = """\
The levels of the two measurements and the share of ill patients differ between hospitals. The
relation between measurements and illness is the same at all of them. The error at each hospital is
that of a model chosen and fitted without this hospital: the error to expect at a fifth hospital."""


def draw(number: int, n: int = N_ROWS) -> pd.DataFrame:
    """Draw ``n`` rows for the hospital with this number, which has two wards."""
    rng = np.random.default_rng(number)
    ill = rng.random(n) < 0.3 + 0.1 * (number % 4)
    level = rng.normal(scale=0.5, size=2)
    marker = rng.normal(size=n) + 1.8 * ill + level[0]
    pressure = rng.normal(size=n) - 1.2 * ill + level[1]
    ward = [f"{number}{'ab'[i % 2]}" for i in range(n)]
    target = np.where(ill, "yes", "no")
    return pd.DataFrame({"marker": marker, "pressure": pressure, "ward": ward, "ill": target})


def wait_for(*paths: Path) -> None:
    """Wait until the files are in the folder; a file appears only when it is complete."""
    deadline = time.monotonic() + TIMEOUT
    while missing_names := [path.name for path in paths if not path.exists()]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{', '.join(missing_names)} did not appear within {TIMEOUT} s.")
        time.sleep(0.1)


def run_site(folder: Path, site: str) -> None:
    """Write a hospital's two files; this runs in a separate process."""
    rows = draw(SITES.index(site))
    for plan_name, summarize, suffix in (
        ("plan.json", statistics, "statistics.npz"),
        ("merged.json", moments, "moments.npz"),
    ):
        wait_for(folder / plan_name)
        plan = Plan.load(folder / plan_name)
        summarize(rows, plan, site=site).save(folder / f"{site}.{suffix}")


def coordinate(folder: Path) -> Any:
    """Create a plan from a few made-up rows, merge the hospitals' files, and fit a model."""
    plan = Plan.of_table(draw(99, 50), target="ill", domain="ward", smallest_cell=20)
    plan.save(folder / "plan.json")
    first_round_paths = [folder / f"{site}.statistics.npz" for site in SITES]
    wait_for(*first_round_paths)
    merged_plan = merge(plan, first_round_paths)
    merged_plan.save(folder / "merged.json")
    second_round_paths = [folder / f"{site}.moments.npz" for site in SITES]
    wait_for(*second_round_paths)
    return fit(merged_plan, second_round_paths)


def main(folder: Path) -> Any:
    """Start the hospitals, coordinate them, and print the results."""
    command = [sys.executable, str(Path(__file__).resolve()), str(folder)]
    processes = [subprocess.Popen([*command, site]) for site in SITES]
    try:
        model = coordinate(folder)
    finally:
        for process in processes:
            process.wait(TIMEOUT)
    new_rows = draw(17)
    predictions = model.predictions(model.schema.prepare(new_rows))["prediction"]
    accuracy = (predictions == new_rows["ill"]).mean()
    print("squared error of the predicted indicator (1: ill, 0: healthy) at held-out hospitals")
    for site, error in model.info["expected_score"].items():
        print(f"  {site:6} {error:.3f}")
    print(f"squared error of a constant prediction: {-model.info['check']['constant']:.3f}")
    print(f"accuracy at a fifth hospital: {accuracy:.0%}")
    n_kilobytes = sum(path.stat().st_size for path in folder.glob("*.npz")) / 1e3
    print(f"total size of the files from both rounds: {n_kilobytes:.0f} kB\n\n{MEANING}")
    return model


if __name__ == "__main__":
    if len(sys.argv) == 3:
        run_site(Path(sys.argv[1]), sys.argv[2])
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
