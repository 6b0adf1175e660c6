"""The plan for a federated fit: everything that sites have to agree on, in one JSON file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from importlib.resources import files
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.linalg import cholesky
from sklearn.model_selection import ParameterGrid

from domainwise.arrays import Array, Frame, Label, MaybeArray
from domainwise.checks.arguments import (
    POSITIVE,
    SEED,
    Number,
    SequenceOf,
    StrOptions,
    check_arguments,
    validate_arguments,
)
from domainwise.estimators import FastCOIR, FastDCM, FastDICA
from domainwise.gram.nystrom import LabelMap, NystromMap
from domainwise.jobs.store import write_text
from domainwise.kernels.fourier import FOURIER_KERNELS, FourierMap
from domainwise.kernels.functions import Kernel
from domainwise.ridge import InvariantRidgeClassifierCV, InvariantRidgeCV
from domainwise.search.grids import LAMBDAS, RIDGES, WEIGHTS
from domainwise.shift.watch import CLIP, ShiftWatch
from domainwise.splits.folds import LeaveDomainsOut
from domainwise.tables.errors import import_pandas
from domainwise.tables.names import named_frame
from domainwise.tables.schema import Schema, check_table
from domainwise.tables.statistics import Preprocessing

TEXTS = tomllib.loads((files("domainwise.federated") / "texts.toml").read_text(encoding="utf-8"))
RIDGE = "invariantridge"
PROJECTIONS: dict[str, Any] = {"fastdcm": FastDCM, "fastcoir": FastCOIR, "fastdica": FastDICA}
#: Default candidates for projections; "auto" values are proportional to the number of rows.
_DEFAULT_CANDIDATES: dict[str, dict[str, Any]] = {
    "fastdcm": {"ridge": RIDGES, "domain_weight": WEIGHTS},
    "fastcoir": {"ridge": RIDGES},
    "fastdica": {"lam": "auto"},
}
#: Projection arguments for which a plan can list several values.
_PROJECTION_ARGUMENTS = ("ridge", "domain_weight", "conditional", "lam", "epsilon", "n_components")

FORMAT = 2  #: version of the plan's file format
#: Maximum number of columns of a map; a second moment of m columns has about m^2 / 2 numbers.
MAX_FEATURES = 20_000
MAX_MAPS = 100
N_CENTRES = 100  #: default number of centres drawn from ranges
#: Options of ``Plan.of_table`` that are passed to :func:`~domainwise.tables.schema.check_table`.
TABLE_OPTIONS = ("features", "drop", "task", "auto_drop", "dates", "decimal", "na")
_CONSTRAINTS: dict[str, list[Any]] = {
    "method": [StrOptions({RIDGE, *PROJECTIONS})],
    "kernels": [SequenceOf(StrOptions(set(FOURIER_KERNELS)))],
    "gammas": [StrOptions({"auto"}), SequenceOf(POSITIVE)],
    "feature_map": [StrOptions({"fourier", "centres"})],
    "n_features": [Number(Integral, 1, MAX_FEATURES, closed="both"), StrOptions({"auto"})],
    "second_moments": [StrOptions({"auto", "classes", "sites"})],
    "seed": [SEED],
    "class_weight": [StrOptions({"balanced"}), None],
    # Sums over fewer than three rows could reveal them.
    "smallest_cell": [Number(Integral, 3, None, closed="left")],
}


class PlanError(ValueError):
    """Raised for a plan that cannot be used; the message gives the reason."""


@dataclass(frozen=True)
class Plan:
    """Settings for a federated fit, on which all sites have to agree.

    :meth:`of_table` creates a plan from the columns of a table. From the rows, it takes only the
    class names and, for dates, the latest day. :func:`~domainwise.federated.merge` adds the results
    of the first round: preprocessing, number of columns, kernel widths, and the selected centres.

    Parameters
    ----------
    schema : Schema
        Columns, their roles, and how their cells are read.
    classes : tuple or None
        Classes of the target, sorted; None for a continuous target.
    method : {"invariantridge", "fastdcm", "fastcoir", "fastdica"}, default="invariantridge"
    kernels : tuple of {"rbf", "laplacian"}, default=("rbf", "laplacian")
    gammas : "auto" or tuple of float, default="auto"
        Candidates for the kernel parameter; "auto" uses 0.3, 1 and 3 times the median rule's value.
    feature_map : {"fourier", "centres"}, default="fourier"
        Random Fourier features, which depend on ``seed``, or Nyström features with landmarks at
        ``centres``. Neither depends on any site's rows.
    n_features : int or "auto", default="auto"
        Number of columns of the map; "auto" is at most 500 and depends on the sites' row counts.
        A site with too few rows for this number must accept disclosure to send its file.
    second_moments : {"auto", "classes", "sites"}, default="auto"
        Whether a site sends one second moment for each class or one for all classes; "auto" sends
        one for each class if all classes are large enough.
    seed : int, default=0
    centres : dict, default=None
        Values of the centres, by column.
    candidates : dict, default={}
        For "invariantridge", lists of ``alphas``, ``domain_weights`` and ``conditionals``, and the
        number ``n_average``. For projections, lists of values for arguments such as ``ridge``.
    class_weight : {"balanced", None}, default=None
    smallest_cell : int, default=10
        Sites report nothing about classes, categories or missing values that occur in fewer rows.
    merged : dict, default=None
        Merged first-round results.

    Examples
    --------
    >>> import pandas as pd
    >>> from domainwise.federated import Plan
    >>> frame = pd.DataFrame({"dose": [1.0, 2.0, 2.5, 4.0], "ill": ["no", "no", "yes", "yes"]})
    >>> plan = Plan.of_table(frame, target="ill", n_features=100)
    >>> plan.classes, plan.schema.numeric, plan.schema.domain
    (('no', 'yes'), ('dose',), 'site')
    """

    schema: Schema
    classes: tuple[Label, ...] | None
    method: str = RIDGE
    kernels: tuple[str, ...] = FOURIER_KERNELS
    gammas: str | tuple[float, ...] = "auto"
    feature_map: str = "fourier"
    n_features: int | str = "auto"
    second_moments: str = "auto"
    seed: int = 0
    centres: Mapping[str, Any] | None = None
    candidates: Mapping[str, Any] = field(default_factory=dict)
    class_weight: str | None = None
    smallest_cell: int = 10
    merged: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        try:
            check_arguments("Plan", _CONSTRAINTS, **{n: getattr(self, n) for n in _CONSTRAINTS})
            list_candidates(self.method, self.candidates, self.classes is not None, 1000)
        except (TypeError, ValueError) as error:
            raise PlanError(str(error)) from None
        if self.class_weight and self.classes is None:
            raise PlanError(
                "class_weight needs classes, but the target is continuous. Use class_weight=None"
            )
        if (self.feature_map == "fourier") != (self.centres is None):
            raise PlanError(
                f"feature_map={self.feature_map!r}, but {'no ' if self.centres is None else ''}"
                "centres were passed. Pass centres if and only if feature_map='centres'"
            )
        numeric_names = self.schema.numbers
        for name in [] if self.centres is None else [*numeric_names, *self.schema.categorical]:
            column_values = (self.centres or {}).get(name, ())
            if len(column_values) != self.n_features:
                raise PlanError(
                    f"centres must contain n_features={self.n_features} values in column {name!r}; "
                    f"got {len(column_values)}"
                )
            if name in numeric_names and np.isinf(np.array(column_values, dtype=np.float64)).any():
                raise PlanError(f"centres must be finite; column {name!r} contains infinity")

    @classmethod
    def of_table(
        cls,
        frame: Frame,
        *,
        target: str,
        domain: str = "site",
        classes: MaybeArray = None,
        **options: Any,
    ) -> Self:
        """Create a plan from the columns of a table, whose rows may be artificial.

        Parameters
        ----------
        frame : data frame
            A table with the columns that all sites have.
        target : str
            Column to predict.
        domain : str, default="site"
            Column with the domain of each row. Without this column, all rows of a site are one
            domain, named after the site.
        classes : sequence, default=None
            Classes of the target. None uses those in the table.
        **options
            ``features``, ``drop``, ``task``, ``auto_drop``, ``dates``, ``decimal`` and ``na`` as
            in ``domainwise fit``, and other arguments of the plan. ``centres`` may be a
            data frame, or a dict with a range ``[low, high]`` for each numeric column.

        Returns
        -------
        plan : Plan
        """
        table: Any = named_frame(frame)
        if domain not in table.columns:
            table[domain] = "all"
        table_options = {name: options.pop(name) for name in TABLE_OPTIONS if name in options}
        table_options |= {"target": target, "domain": domain, "several_domains": False}
        table = check_table(table, **table_options)
        if options.get("centres") is not None:
            options = {"feature_map": "centres", **options}
            centres = _make_centres(table, **options)
            options["centres"] = {name: to_json(centres[name]) for name in centres.columns}
            options["n_features"] = len(centres)
        labels: Any = table.classes if classes is None else sorted(np.asarray(classes).tolist())
        return cls(table.schema, None if table.classes is None else tuple(labels), **options)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as a dict for JSON.

        Returns
        -------
        content : dict
            Fields of the plan by name.
        """
        field_values = {f.name: to_json(getattr(self, f.name)) for f in fields(self)}
        return {"format": FORMAT, **field_values, "schema": self.schema.as_dict()}

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the plan: sites with the same hash have the same plan."""
        text = json.dumps(self.as_dict(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, path: str | Path) -> None:
        """Write the plan to a JSON file."""
        text = json.dumps({**self.as_dict(), "hash": self.hash}, indent=1, allow_nan=False)
        write_text(path, text + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a file written by :meth:`save`; raise PlanError if it was changed afterwards."""
        content = Path(path).read_bytes()
        try:
            arguments = json.loads(content)
            version, digest = arguments.pop("format"), arguments.pop("hash")
            if version != FORMAT:
                raise PlanError(f"it has format {version}, but this version reads format {FORMAT}")
            tuples = {n: tuple(v) for n, v in arguments.items() if isinstance(v, list)}
            candidates = {n: _from_json(value) for n, value in arguments["candidates"].items()}
            schema = Schema.from_dict(arguments["schema"])
            plan = cls(**{**arguments, **tuples, "schema": schema, "candidates": candidates})
            if plan.hash != digest:
                raise PlanError("its hash does not match: it was changed after it was written")
            plan._check_values()
        except Exception as error:
            reason = f"it is damaged or is not a plan: {error!r}"
            reason = str(error) if isinstance(error, PlanError) else reason
            raise PlanError(
                f"{path} cannot be used: {reason}. Ask the coordinator for the plan again"
            ) from error
        return plan

    def _check_values(self) -> None:
        """Raise PlanError for invalid values that the constructor does not check."""
        schema = self.schema
        names = [schema.target, schema.domain, schema.reference, *schema.features, *schema.na]
        names += [*schema.forms, *schema.forms.values(), *schema.date_parts]
        if self.merged is not None:
            n_columns, kernels, by_class = map(self.first_round, ("columns", "maps", "by_class"))
            if type(n_columns) is not int or not 1 <= n_columns <= MAX_FEATURES:
                raise PlanError(
                    f"columns must be an integer from 1 to {MAX_FEATURES}; got {n_columns!r}"
                )
            if not isinstance(kernels, list) or not 1 <= len(kernels) <= MAX_MAPS:
                raise PlanError(f"maps must be a list of 1 to {MAX_MAPS} kernels")
            sites, preprocessing, watch = self.first_round("sites"), self.preprocessing, self.watch
            names += [*sites, *sites.values(), *chain.from_iterable(preprocessing.categories)]
            statistics = [preprocessing.medians, preprocessing.mean, preprocessing.variance]
            arrays = [*statistics, [preprocessing.n_rows], self.first_round("target_range") or []]
            arrays += [*(m.landmarks for m in self.maps), watch.landmarks_, [watch.gamma_]]
            if not all(np.isfinite(np.asarray(array, dtype=float)).all() for array in arrays):
                raise PlanError("first-round statistics and landmarks must be finite")
            if np.abs(watch.landmarks_).max(initial=0.0) > CLIP or watch.gamma_ <= 0:
                raise PlanError(
                    f"the shift check ('watch') needs landmarks between {-CLIP:g} and {CLIP:g}, "
                    "and a positive gamma"
                )
            if (preprocessing.variance < 0).any() or type(by_class) is not bool:
                raise PlanError("variances must not be negative, and by_class must be a boolean")
            if {len(array) for array in statistics} != {len(schema.numbers)}:
                raise PlanError("each numeric column must have a median, a mean and a variance")
            _ = self.target_map, watch.n_totals  # these raise an error for an invalid value
        if schema.decimal not in (None, ".", ","):
            raise PlanError(f"decimal must be '.' or ','; got {schema.decimal!r}")
        if not all(isinstance(name, str) for name in names):
            raise PlanError("names of columns, sites and categories must be strings")
        if not isinstance(self.classes, tuple | None):
            raise PlanError("classes must be a list or null")
        if schema.task != ("regression" if self.classes is None else "classification"):
            raise PlanError(f"its task is {schema.task}, but classes={self.classes!r}")

    def describe(self) -> list[str]:
        """Describe what the plan contains, and what it does not contain.

        Returns
        -------
        lines : list of str
            One sentence per line.
        """
        schema = self.schema
        content = TEXTS["plan_first"].format(n_columns=len(schema.features), target=schema.target)
        map_text = f"feature map {self.feature_map!r}"
        if self.merged is not None:
            content = TEXTS["plan_merged"].format(n_sites=len(self.merged["sites"]))
            map_text += f" with {self.merged['columns']} columns (number of maps: {len(self.maps)})"
        return [
            f"plan {self.hash[:12]}: {self.method}, {map_text}; nothing is sent about groups of "
            f"fewer than {self.smallest_cell} rows",
            f"contains: {content}",
            "does not contain: rows, except those passed as centres",
        ]

    @property
    def n_classes(self) -> int:
        """Number of classes; 1 for a continuous target."""
        return 1 if self.classes is None else len(self.classes)

    def first_round(self, name: str) -> Any:
        """Return the merged first-round result with this name."""
        if self.merged is None:
            raise PlanError(
                "this is the first-round plan. Merge the statistics from all sites to get the "
                "second-round plan"
            )
        return self.merged[name]

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """Medians, scales and categories for preprocessing."""
        params = self.first_round("learnt")
        arrays = {n: np.array(params[n], dtype=float) for n in ("medians", "mean", "variance")}
        return Preprocessing(**{**params, **arrays})

    @cached_property
    def prepare(self) -> Any:
        """The fitted transformer that converts features to numbers."""
        return self.preprocessing.preprocessor(self.schema).set_output(transform="default")

    @cached_property
    def maps(self) -> list[NystromMap]:
        """A feature map for each kernel and gamma, the same at every site."""
        maps, n_inputs = [], len(self.prepare.get_feature_names_out())
        for entry in self.first_round("maps"):
            kernel_name, gamma = entry["kernel"], entry["gamma"]
            if self.feature_map == "fourier":  # orthogonal frequencies are better with few columns
                is_orthogonal = kernel_name == "rbf" and self.n_features == "auto"
                map_args = (n_inputs, self.first_round("columns"), self.seed, is_orthogonal)
                maps.append(NystromMap.fourier(FourierMap(kernel_name, gamma, *map_args)))
                continue
            # Centres are not chosen again, because the choice may differ between machines.
            kernel, centre_indices = Kernel(kernel_name, gamma), np.array(entry["chosen"], int)
            centres, n_centres = self.prepared_centres[centre_indices], len(self.prepared_centres)
            triangle = cholesky(kernel.matrix(centres), lower=True)
            maps.append(NystromMap(kernel, centres, triangle, n_centres, chosen=centre_indices))
        return maps

    @cached_property
    def prepared_centres(self) -> Array:
        """The centres after preprocessing."""
        frame = import_pandas().DataFrame(dict(self.centres or {})).fillna(np.nan)
        dtypes = dict.fromkeys(self.schema.numbers, float)
        return np.asarray(self.prepare.transform(frame.astype(dtypes)))

    @cached_property
    def target_map(self) -> LabelMap | None:
        """The map that computes features of a continuous target, for projections."""
        settings = self.first_round("target")
        if settings is None:
            return None
        points, kernel = np.array(settings["points"])[:, None], Kernel("rbf", settings["gamma"])
        return LabelMap(kernel, points, cholesky(kernel.matrix(points), lower=True))

    def width(self, nystrom: NystromMap) -> int:
        """Return the number of columns in the moments of a map, including target columns."""
        n_target_features = 0 if self.target_map is None else self.target_map.n_features
        return nystrom.n_features + n_target_features + (self.classes is None)

    @property
    def watch(self) -> ShiftWatch:
        """The ShiftWatch that summarizes the domains of a site."""
        settings, params, schema = self.first_round("watch"), self.preprocessing, self.schema
        shape = (len(settings["landmarks"]), len(schema.numbers))
        lowest, highest = np.array(settings["ends"], dtype=float)
        categories_by_column = dict(zip(schema.categorical, params.categories, strict=True))
        return ShiftWatch.from_summary(
            {**dict.fromkeys(schema.numbers), **categories_by_column},
            lowest_=lowest,
            highest_=highest,
            mean_=params.mean,
            scale_=np.where(params.variance > 0, np.sqrt(params.variance), 1.0),
            landmarks_=np.array(settings["landmarks"], dtype=float).reshape(shape),
            gamma_=float(settings["gamma"]),
        )


def _make_centres(
    table: Any, centres: Any, n_features: Any = "auto", seed: int = 0, **options: Any
) -> Any:
    """Return the centres as a data frame; draw them if ``centres`` is a dict of ranges.

    RandomState is used because NumPy guarantees that its random numbers never change.
    """
    schema, rng = table.schema, np.random.RandomState(seed)
    if hasattr(centres, "columns"):
        return schema.prepare(centres)
    n_centres, centres_by_column = N_CENTRES if n_features == "auto" else n_features, {}
    for name in schema.numbers:
        bounds = np.array(centres.get(name, ()), dtype=np.float64)
        if bounds.shape != (2,) or not -np.inf < bounds[0] < bounds[1] < np.inf:
            raise PlanError(f"centres: {name!r} needs a finite range [low, high]; got {bounds}")
        centres_by_column[name] = rng.uniform(bounds[0], bounds[1], n_centres)
    for name in schema.categorical:
        centres_by_column[name] = rng.choice(sorted(table.X[name].dropna().unique()), n_centres)
    return import_pandas().DataFrame(centres_by_column)


def check_plan(plan: Any) -> None:
    """Raise TypeError if ``plan`` is not a Plan."""
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a Plan; got {type(plan).__name__}")


def to_json(value: Any) -> Any:
    """Convert a value for JSON: NaN becomes null, and infinity becomes the string "inf"."""
    if isinstance(value, Mapping):
        return {str(name): to_json(entry) for name, entry in value.items()}
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [to_json(entry) for entry in value]
    if value != value:
        return None
    return "inf" if value == float("inf") else value


def _from_json(value: Any) -> Any:
    """Convert a value from JSON; the string "inf" becomes infinity."""
    if isinstance(value, list):
        return [_from_json(entry) for entry in value]
    return float("inf") if value == "inf" else value


def list_candidates(
    method: str, value_lists: Mapping[str, Any], is_classification: bool, n_rows: int
) -> list[dict[str, Any]]:
    """List the candidates for a projection, or the arguments of the ridge search.

    Raises ValueError for names or values that the method does not accept.
    """
    if method == RIDGE:
        accepted_names = ["alphas", "domain_weights", "n_average", "conditionals"]
        candidates = [dict(value_lists)]
    else:
        default_parameters = PROJECTIONS[method]().get_params()
        accepted_names = [name for name in _PROJECTION_ARGUMENTS if name in default_parameters]
        grid = {**_DEFAULT_CANDIDATES[method], **value_lists}
        if isinstance(grid.get("lam"), str):
            grid["lam"] = [factor * n_rows for factor in LAMBDAS]
        candidates = list(ParameterGrid(grid))
    if not is_classification:
        accepted_names = [name for name in accepted_names if not name.startswith("conditional")]
    for name in value_lists:
        if name not in accepted_names:
            problem = f"candidates: {method} does not search over {name!r}"
            raise ValueError(f"{problem}. Use {', '.join(accepted_names)}")
    for candidate in candidates:
        validate_arguments(build(method, is_classification, **candidate))
    return candidates


def build(method: str, is_classification: bool, **arguments: Any) -> Any:
    """Build an unfitted estimator with these arguments; a search holds out one site at a time."""
    if method != RIDGE:
        return PROJECTIONS[method](**arguments)
    search: Any = InvariantRidgeClassifierCV if is_classification else InvariantRidgeCV
    return search(**arguments, cv=LeaveDomainsOut())
