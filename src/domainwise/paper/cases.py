"""What a case and a table are: declarations that one runner executes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from domainwise.paper.printed import PAPER, PaperCase

#: The two ways of choosing parameters (theory 10.2).
SETTINGS = ("paper", "tuned")


@dataclass(frozen=True)
class Case:
    """One data set, one split, and the methods that meet there."""

    key: str  #: ``table/case``, the name results are filed under
    title: str  #: what a reader sees
    source: str  #: a loader of :mod:`domainwise.paper.data`
    train_domains: int  #: drawn as sources
    test_domains: int  #: drawn as unseen ones
    metrics: tuple[str, ...]  #: the first one ranks the methods
    #: RBF parameter of the paper setting, for the projection and for the SVM; "median_target" is
    #: the median of the source domains' targets (the paper's words).
    gamma: float | str
    epsilon: float  #: regulariser of the label kernels in the paper setting
    methods: tuple[str, ...]
    tuned_methods: tuple[str, ...]
    source_params: Mapping[str, Any] = field(default_factory=dict)  #: arguments of the loader
    repeats: int = 20
    tuned_repeats: int = 10  #: the first of the paper's
    task: str = "classification"  #: or "regression"
    n_components: int | None = None  #: as the paper gives it, None where it does not
    m: int | None = None  #: the paper's M, of fast methods
    rows_per_domain: int | None = None  #: drawn from each domain in each repeat; None keeps all
    quick_rows: int | None = None  #: the same in the quick size; None changes nothing
    stratified: bool = False  #: draw rows so that each domain keeps its class ratio
    scaling: str = "none"  #: or "minmax", "standard"; fitted on the source domains
    tuning_rows: int = 60  #: per source domain
    tuning_folds: int = 5  #: groups of source domains held out while tuning
    repeats_of: Mapping[str, int] = field(default_factory=dict)  #: fewer for slow methods
    cost: float = 3.0  #: rough seconds of a repeat, for the time left
    tuned_cost: float = 6.0

    @property
    def table(self) -> str:
        """Key of the table the case belongs to."""
        return self.key.split("/")[0]

    @property
    def paper(self) -> PaperCase | None:
        """What the paper prints for this case, if anything."""
        return PAPER.get(self.key)

    def quick(self) -> Case:
        """The same case, small enough that all of them run in a few minutes."""
        return replace(
            self,
            repeats=3,
            tuned_repeats=1,
            rows_per_domain=self.quick_rows or self.rows_per_domain,
            tuning_rows=min(self.tuning_rows, 30),
            tuning_folds=3,
            repeats_of=dict.fromkeys(("algorithm1", "algorithm2", "algorithm2_count"), 1),
        )

    def methods_of(self, setting: str) -> tuple[str, ...]:
        """Methods compared in a setting."""
        return self.methods if setting == "paper" else self.tuned_methods

    def n_repeats(self, setting: str, method: str, asked: int | None = None) -> int:
        """Repeats of a method in a setting; ``asked`` overrides the paper's number."""
        planned = self.repeats if setting == "paper" else self.tuned_repeats
        count = planned if asked is None else asked
        return min(count, self.repeats_of.get(method, count))

    def fingerprint(self) -> str:
        """Changes when a result under the same key would mean something else.

        How many repeats are run, which methods and the words around them do not count: each
        result depends on its own repeat and method only.
        """
        around = ("title", "methods", "tuned_methods", "repeats", "tuned_repeats", "repeats_of")
        without = {*around, "quick_rows", "cost", "tuned_cost"}
        meaning = {name: value for name, value in asdict(self).items() if name not in without}
        text = json.dumps(meaning, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Table:
    """A table of the paper: its cases, and what a reader must know about the data.

    ``stand_in`` is empty where the data are the paper's; otherwise it says what replaces what, and
    every output repeats it. ``data_files`` are names of ``list_datasets``.
    """

    key: str
    title: str
    cases: tuple[Case, ...]
    about: str
    stand_in: str = ""
    data_files: tuple[str, ...] = ()
