"""Simulated sites: are differences found, and do ranges cover new sites? Writes BETWEEN_SITES.md.

``python benchmarks/between_sites.py [--runs 400]`` takes five minutes on one core.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from domainwise.held_out.scoring.pooling import auc_error
from domainwise.metrics import pool_scores

N_SITES, TAUS, N_ROWS, EVENTS, AUC = (5, 12, 48), (0.0, 0.1, 0.2, 0.5), 300, 0.25, 0.8


def site_score(true_auc: float, rng: np.random.Generator) -> tuple[float, float]:
    """AUC of a site with normal scores, and its standard error (DeLong)."""
    is_event = np.arange(N_ROWS) < EVENTS * N_ROWS
    scores = rng.normal(size=N_ROWS) + np.sqrt(2) * norm.ppf(true_auc) * is_event
    return auc_error(is_event, scores)


def simulate(n_sites: int, tau: float, runs: int, rng: np.random.Generator) -> list[str]:
    """A row of the table: shares of runs, and coverages of the true score at a new site."""
    differ, coverages = [], []
    for _ in range(runs):
        true_values = logit(AUC) + tau * rng.normal(size=n_sites)
        aucs, errors = np.transpose([site_score(a, rng) for a in expit(true_values)])
        pooled = pool_scores(aucs, errors, scale="logit")
        differ.append(pooled.differ)
        new_error = float(np.median(errors))
        new_true = expit(logit(AUC) + tau * rng.normal(size=200))
        new_measured = [site_score(a, rng)[0] for a in new_true[:5]]
        ranges = [
            (pooled.true_range, new_true),
            (pooled.plug_in_range, new_true),
            (pooled.measured_range(new_error), np.array(new_measured)),
        ]
        coverages.append([np.mean((low <= x) & (x <= high)) for (low, high), x in ranges])
    texts = [f"{value:.3f}" for value in (np.mean(differ), *np.mean(coverages, axis=0))]
    return [str(n_sites), f"{tau:g}", *texts]


def main() -> None:
    """Simulate all settings, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    headings = ["sites", "tau", "differ", "true score", "plug-in", "measured score"]
    rng = np.random.default_rng(0)
    rows = [simulate(n, tau, runs, rng) for n in N_SITES for tau in TAUS]
    lines = [f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows)]
    text = f"""# What differs between sites, and what is chance

Simulated sites with {N_ROWS} rows and {EVENTS:.0%} events each. The logit of the true AUC varies
between sites with standard deviation tau around logit({AUC}); with tau = 0, one population is dealt
out to the sites. `pool_scores` gets the AUCs of the sites and their standard errors. {runs} runs
per setting, `benchmarks/between_sites.py`.

"differ" is the share of runs in which the sites are said to differ (5 % are expected with tau = 0).
The other columns are the coverages of 90 % ranges: for the true AUC at a new site (from the
confidence distribution of tau, and with the estimate plugged in), and for the AUC measured on
{N_ROWS} rows there.

"""
    path = Path(__file__).resolve().parent / "BETWEEN_SITES.md"
    path.write_text(text + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
