"""Models of whole tables: preprocessing, projection and predictor in one pipeline.

:func:`fit_table` turns a checked :class:`~domainwise.tables.schema.Table` into a
:class:`TableModel`, which is saved with its column schema; :mod:`domainwise.models.apply`
applies it to files of any size.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit
from sklearn import config_context
from sklearn.base import clone
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.metadata_routing import get_routing_for_object

from domainwise.arrays import Array
from domainwise.models.persistence import ModelFileError, load, read_info, save
from domainwise.models.recipes import make_recipe
from domainwise.selection import LeaveDomainsOut, domain_cross_validate
from domainwise.tables.schema import (
    Schema,
    Table,
    TableError,
    import_pandas,
    make_preprocessor,
)

#: Groups of domains that are left out in turn, and rows of each domain, when a model is checked.
CHECK_FOLDS, CHECK_ROWS = 5, 200
#: Scores that domains of different class mix or spread do not distort.
SCORING = {
    "classification": "balanced_accuracy",
    "regression": "neg_root_mean_squared_error",
}


@dataclass(frozen=True)
class Check:
    """How a model does on domains it has not seen, beside a constant prediction.

    Attributes
    ----------
    metric : str
    model, constant : float
        Mean over domains; larger is better (errors are negative).
    worst : float
        The model's score on the worst domain.
    worst_domain : object
    n_domains : int
    better : bool
        Whether the gain over the constant is more than chance among so many domains.
    """

    metric: str
    model: float
    constant: float
    worst: float
    worst_domain: Any
    n_domains: int
    better: bool


@dataclass(frozen=True)
class TableModel:
    """A fitted pipeline together with the columns it expects.

    Attributes
    ----------
    pipeline : Pipeline
        Takes a data frame with the columns of ``schema``.
    schema : Schema
    info : dict
        What is known about it: method, domains, scores, notes.
    """

    pipeline: Pipeline
    schema: Schema
    info: dict[str, Any]

    def save(self, path: str | Path) -> None:
        """Write the pipeline, its schema and its description to one file."""
        save(self.pipeline, path, info={**self.info, "schema": self.schema.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> TableModel:
        """Load what :meth:`save` has written."""
        info = read_info(path)["info"]
        try:
            schema = Schema.from_dict(info["schema"])
        except (KeyError, TypeError):
            raise ModelFileError(
                f"{path} says nothing about columns: it was written by domainwise.save; load it in "
                "Python with domainwise.load"
            ) from None
        return cls(load(path), schema, info)

    def predictions(self, X: Any) -> Any:
        """Predict rows that :meth:`Schema.prepare` has prepared.

        Parameters
        ----------
        X : pandas.DataFrame

        Returns
        -------
        frame : pandas.DataFrame
            ``prediction``, and for classes a probability or a decision value of each.
        """
        columns: dict[str, Any] = {"prediction": self.pipeline.predict(X)}
        classes = getattr(self.pipeline, "classes_", None)
        if classes is not None and hasattr(self.pipeline, "predict_proba"):
            values = self.pipeline.predict_proba(X)
            columns |= {f"probability_{c}": values[:, i] for i, c in enumerate(classes)}
        elif classes is not None and hasattr(self.pipeline, "decision_function"):
            values = self.pipeline.decision_function(X)
            if values.ndim == 1:
                columns[f"decision_{classes[-1]}"] = values
            else:
                columns |= {f"decision_{c}": values[:, i] for i, c in enumerate(classes)}
        return import_pandas().DataFrame(columns)

    def projection(self, X: Any) -> Any:
        """Project rows that :meth:`Schema.prepare` has prepared; a data frame, too."""
        if "project" not in self.pipeline.named_steps:
            raise TableError(
                f"this model ({self.info.get('method')}) predicts from the features and has no "
                "projection; fit one with --method dcm, coir, dica or kpca"
            )
        project = self.pipeline.named_steps["project"]
        Z = project.transform(self.pipeline.named_steps["prepare"].transform(X))
        return import_pandas().DataFrame(Z, columns=list(project.get_feature_names_out()))

    def unseen_categories(self, X: Any) -> dict[str, int]:
        """Count, by column, the rows with a category that was not there in fit."""
        if not self.schema.categorical:
            return {}
        encoder = self.pipeline.named_steps["prepare"].named_transformers_["categorical"][-1]
        return {
            name: int((~X[name].isin(known) & X[name].notna()).sum())
            for name, known in zip(self.schema.categorical, encoder.categories_, strict=True)
        }


def fit_table(
    table: Table,
    *,
    method: str = "auto",
    predictor: str = "auto",
    balanced: bool = False,
    check: bool = True,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> TableModel:
    """Fit a model to all rows of a table, and find out how it does on domains left out.

    Parameters
    ----------
    table : Table
    method, predictor, balanced
        See :func:`~domainwise.models.recipes.make_recipe`.
    check : bool, default=True
        Score the same recipe with domains left out, next to a constant prediction.
    random_state : int, default=0
    n_jobs : int, default=None
        Processes of a search, or of the folds that score a method without one.

    Returns
    -------
    TableModel
    """
    recipe = make_recipe(
        table.schema.task,
        method,
        predictor=predictor,
        balanced=balanced,
        n_rows=len(table.y),
        n_domains=len(table.domains),
        random_state=random_state,
        n_jobs=n_jobs,
    )
    pipeline = Pipeline([("prepare", make_preprocessor(table.schema)), *recipe.steps])
    notes = list(table.notes)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        found = None
        if check:
            # A search shares out its own folds, of which there are more.
            folds = None if _shares_out(pipeline) else n_jobs
            found = check_on_held_out_domains(pipeline, table, random_state, folds)
        n_check = len(caught)
        fitted = clone(pipeline)
        with config_context(enable_metadata_routing=True):
            # Of the methods, some have no use for domains, and a pipeline refuses what it has not.
            wanted = get_routing_for_object(fitted).consumes("fit", ["sample_domain"])
            fitted.fit(table.X, table.y, **dict.fromkeys(wanted, table.sample_domain))
    said = [w for w in caught[n_check:] if issubclass(w.category, UserWarning)]
    notes += dict.fromkeys(str(warning.message) for warning in said)
    domains, counts = np.unique(table.sample_domain, return_counts=True)
    info = {
        "method": recipe.method,
        "predictor": recipe.predictor,
        "classes": table.classes,
        "domains": [[d, n] for d, n in zip(domains.tolist(), counts.tolist(), strict=True)],
        "n_rows": len(table.y),
        "seed": random_state,
        "chosen": _chosen(fitted),
        "n_components": _n_components(fitted),
        "check": None if found is None else vars(found),
        "notes": notes,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return TableModel(fitted, table.schema, info)


def check_on_held_out_domains(
    pipeline: Pipeline, table: Table, random_state: int = 0, n_jobs: int | None = None
) -> Check:
    """Score a pipeline, and a constant, on domains left out of its training.

    At most 200 rows of each domain are used, and domains are left out in at most five groups.

    Parameters
    ----------
    pipeline : Pipeline
        Not fitted.
    table : Table
    random_state : int, default=0
        Seed of the choice of rows.
    n_jobs : int, default=None
        Folds fitted at a time.

    Returns
    -------
    Check
    """
    rows = _rows_per_domain(table.sample_domain, CHECK_ROWS, random_state)
    X, y, domain = table.X.iloc[rows], table.y[rows], table.sample_domain[rows]
    if "project__n_landmarks" in pipeline.get_params():
        pipeline = clone(pipeline).set_params(project__n_landmarks="auto")  # fewer rows than in fit
    metric = SCORING[table.schema.task]
    constant = DummyRegressor() if table.schema.task == "regression" else DummyClassifier()
    options: dict[str, Any] = dict(cv=LeaveDomainsOut(max_splits=CHECK_FOLDS), scoring=metric)
    model_scores = domain_cross_validate(pipeline, X, y, domain, **options, n_jobs=n_jobs)
    constant_scores = domain_cross_validate(constant, X, y, domain, **options)
    gain = model_scores.scores - constant_scores.scores
    # One-sided at 10 %: of models that know nothing, nine in ten are called what they are.
    error = gain.std(ddof=1) / np.sqrt(len(gain)) * stdtrit(len(gain) - 1, 0.9)
    return Check(
        metric,
        model_scores.mean,
        constant_scores.mean,
        model_scores.worst,
        np.asarray(model_scores.worst_domain).item(),
        len(gain),
        bool(gain.mean() > max(error, 1e-12)),
    )


def _shares_out(pipeline: Pipeline) -> bool:
    """Whether a step has processes of its own."""
    params = pipeline.get_params().items()
    return any(value is not None for name, value in params if name.endswith("n_jobs"))


def _rows_per_domain(domains: Array, most: int, random_state: int) -> Array:
    """Rows in their order, at most so many of each domain."""
    rng = np.random.default_rng(random_state)
    chosen = []
    for domain in np.unique(domains):
        rows = np.flatnonzero(domains == domain)
        chosen.append(rows if len(rows) <= most else rng.choice(rows, most, replace=False))
    return np.sort(np.concatenate(chosen))


def _chosen(pipeline: Pipeline) -> dict[str, Any]:
    """Arguments that a search has chosen, or the kernel's scale."""
    found: dict[str, Any] = {}
    for step in pipeline.named_steps.values():
        inner = getattr(step, "regressor_", step)
        found |= getattr(inner, "best_params_", {})
        if hasattr(inner, "gamma_"):
            found["gamma"] = inner.gamma_
    return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    """A value that JSON knows; it has no infinity."""
    value = value.item() if isinstance(value, np.generic) else value
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _n_components(pipeline: Pipeline) -> int | None:
    project = pipeline.named_steps.get("project")
    return None if project is None else int(project.dual_coef_.shape[1])
