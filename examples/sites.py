"""Four hospitals fit one model, and no row leaves its hospital.

Each hospital is a process of its own. All that the processes share is a folder: the
coordinator's plan, two small files of each hospital, and the plan of the second round. The rows
of a hospital are drawn inside its process and are never written.

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
N_ROWS, PATIENCE = 400, 120

MEANING = """\
Every hospital has its own level of the two measurements and its own share of the ill, and the rule
is the same everywhere. The errors are of models that were chosen and fitted without the hospital:
what a fifth one can expect."""


def draw(place: int, n: int = N_ROWS) -> pd.DataFrame:
    """Rows of a hospital, in two wards: what it alone has."""
    rng = np.random.default_rng(place)
    ill = rng.random(n) < 0.3 + 0.1 * (place % 4)
    level = rng.normal(scale=0.5, size=2)
    marker = rng.normal(size=n) + 1.8 * ill + level[0]
    pressure = rng.normal(size=n) - 1.2 * ill + level[1]
    ward = [f"{place}{'ab'[i % 2]}" for i in range(n)]
    told = np.where(ill, "yes", "no")
    return pd.DataFrame({"marker": marker, "pressure": pressure, "ward": ward, "ill": told})


def wait_for(*paths: Path) -> None:
    """Wait until others have put their files into the folder; they appear when complete."""
    end = time.monotonic() + PATIENCE
    while not all(path.exists() for path in paths):
        if time.monotonic() > end:
            raise TimeoutError(f"{paths[0].name} and the like did not come")
        time.sleep(0.1)


def be_site(folder: Path, site: str) -> None:
    """What a hospital does, in its own process."""
    rows = draw(SITES.index(site))
    for plan, make, ending in (
        ("plan.json", statistics, "statistics.npz"),
        ("merged.json", moments, "moments.npz"),
    ):
        wait_for(folder / plan)
        make(rows, Plan.load(folder / plan), site=site).save(folder / f"{site}.{ending}")


def lead(folder: Path) -> Any:
    """What the coordinator does, without any rows but a few made-up ones for the columns."""
    made_up = draw(99, 50)
    plan = Plan.of_table(made_up, target="ill", domain="ward", smallest_cell=20)
    plan.save(folder / "plan.json")
    first = [folder / f"{site}.statistics.npz" for site in SITES]
    wait_for(*first)
    merged = merge(plan, first)
    merged.save(folder / "merged.json")
    second = [folder / f"{site}.moments.npz" for site in SITES]
    wait_for(*second)
    return fit(merged, second)


def main(folder: Path) -> Any:
    """Start the hospitals, lead them, and print what came of it."""
    command = [sys.executable, str(Path(__file__).resolve()), str(folder)]
    sites = [subprocess.Popen([*command, site]) for site in SITES]
    try:
        model = lead(folder)
    finally:
        for process in sites:
            process.wait(PATIENCE)
    new = draw(17)
    right = (model.predictions(model.schema.prepare(new))["prediction"] == new["ill"]).mean()
    print("squared error of the indicator of being ill, on each hospital left out")
    for site, error in model.info["expected_score"].items():
        print(f"  {site:6} {error:.3f}")
    print(f"a constant {-model.info['check']['constant']:.3f}")
    print(f"rows of a fifth hospital that are predicted right: {right:.0%}")
    size = sum(path.stat().st_size for path in folder.glob("*.npz")) / 1e3
    print(f"the files of both rounds: {size:.0f} kB\n\n{MEANING}")
    return model


if __name__ == "__main__":
    if len(sys.argv) == 3:
        be_site(Path(sys.argv[1]), sys.argv[2])
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
