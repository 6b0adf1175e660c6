"""What the paper's SVM column tends to, over many more repeats than a table has.

The SVM has no parameter the paper leaves open, so this column tells whether the synthetic data are
the paper's; a mean of 20 repeats alone is uncertain by about a point. A case is one job and one
row of the results file, whose tables would otherwise have to leave 200 trials out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from domainwise.jobs.runner import Row
from domainwise.jobs.statistics import summarise
from domainwise.paper.cases import Case
from domainwise.paper.trials import Trial

REPEATS = 200


@dataclass(frozen=True)
class LongRun:
    """The SVM of one synthetic case over many repeats; the first ones are the table's."""

    case: Case
    root_seed: int
    repeats: int = REPEATS
    cost: float = 15.0

    def run(self) -> list[Row]:
        """Mean and standard error of the accuracy."""
        values = []
        for repeat in range(self.repeats):
            (row,) = Trial(self.case, "long", repeat, ("svm",), self.root_seed).run()
            values.append(row["metrics"]["accuracy"])
        accuracy = summarise(values)
        return [
            {
                "kind": "long_run",
                "case": self.case.key,
                "fingerprint": self.case.fingerprint(),
                "method": "svm",
                "repeats": accuracy.n,
                "mean": accuracy.mean,
                "standard_error": accuracy.deviation / accuracy.n**0.5,
            }
        ]


def plan_long_runs(cases: Iterable[Case], done: Iterable[Row], *, root_seed: int) -> list[LongRun]:
    """Long runs of the synthetic cases that are still to do."""
    finished = {row["case"] for row in done}
    return [
        LongRun(case, root_seed)
        for case in cases
        if case.source == "synthetic" and case.key not in finished
    ]
