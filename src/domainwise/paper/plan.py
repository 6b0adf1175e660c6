"""Which trials of ``reproduce`` are still to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

    Returns
    -------
    list of Trial

    Raises
    ------
    ResultsError
        If a row was made by another protocol under the same name.
    """
    cases, done = list(cases), list(done)
    check_protocol(cases, done)
    finished = {
        (row["case"], row["setting"], row["repeat"], row["method"])
        for row in done
        if row["status"] == "ok"
    }
    trials = []
    for case in cases:
        for setting in settings:
            names = case.methods_of(setting)
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


def check_protocol(cases: Iterable[Case], done: Iterable[Row]) -> None:
    """Refuse rows that another protocol has made under the same name."""
    made = {row["case"]: row["fingerprint"] for row in done}
    for case in cases:
        if made.get(case.key, case.fingerprint()) != case.fingerprint():
            raise ResultsError(
                f"the results of {case.key} in this folder come from another protocol; choose"
                " another folder"
            )
