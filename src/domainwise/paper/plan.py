"""Which trials of ``reproduce`` are still to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from domainwise.jobs.runner import Row
from domainwise.jobs.store import ResultsError
from domainwise.paper.cases import SETTINGS, Case
from domainwise.paper.trials import Trial


def plan_trials(
    cases: Iterable[Case],
    done: Iterable[Row],
    *,
    root_seed: int,
    repeats: int | None = None,
    settings: Sequence[str] = SETTINGS,
    available: Callable[[str], bool] | None = None,
) -> list[Trial]:
    """Trials that are still to do.

    Parameters
    ----------
    cases : iterable of Case
        What to run, in the size it is to be run in.
    done : iterable of dict
        Rows of an earlier session. Those that failed are tried again.
    root_seed : int
        Seed of the whole run.
    repeats : int, optional
        In place of each case's own number.
    settings : sequence of str
        Out of "paper" and "tuned".
    available : callable, optional
        ``available(method)``: leave methods out that cannot be run here.

    Returns
    -------
    list of Trial

    Raises
    ------
    ResultsError
        If a row was made by another protocol under the same name.
    """
    finished: set[tuple[str, str, int, str]] = set()
    prints: dict[str, str] = {}
    for row in done:
        prints[row["case"]] = row["fingerprint"]
        if row["status"] == "ok":
            finished.add((row["case"], row["setting"], row["repeat"], row["method"]))
    trials = []
    for case in cases:
        if prints.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results of {case.key} in this folder come from another protocol; choose"
                " another folder with --out"
            )
        for setting in settings:
            names = [m for m in case.methods_of(setting) if available is None or available(m)]
            most = max((case.n_repeats(setting, name, repeats) for name in names), default=0)
            for repeat in range(most):
                todo = tuple(
                    name
                    for name in names
                    if repeat < case.n_repeats(setting, name, repeats)
                    and (case.key, setting, repeat, name) not in finished
                )
                if todo:
                    trials.append(Trial(case, setting, repeat, todo, root_seed))
    return trials
