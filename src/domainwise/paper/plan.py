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
    """Trials that are still to do; those that failed in an earlier session are done again.

    ``repeats`` stands in place of each case's own number. Rows that another protocol made under the
    same name raise a ResultsError.
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
