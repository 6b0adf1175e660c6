"""Models of whole tables: preprocessing, projection and predictor in one pipeline.

:func:`fit_table` turns a checked :class:`~domainwise.tables.schema.Table` into a
:class:`TableModel`, which is saved with its column schema; :mod:`domainwise.models.apply`
applies it to files of any size.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline

from domainwise.arrays import Array
from domainwise.calibration.quantiles import class_scores, set_columns
from domainwise.model_files.persistence import ModelFileError, load, read_info, save
from domainwise.model_files.values import training_rows
from domainwise.models.registry import METHODS, PREDICTORS, Method, Setting, find_method
from domainwise.models.search import MethodSearch
from domainwise.scoring.measures import choose_measure
from domainwise.scoring.predictions import fit_with_domains, names_likeliest
from domainwise.tables.cells import as_labels, as_numbers, without
from domainwise.tables.errors import Argument, TableError, import_pandas
from domainwise.tables.features import Schema, make_preprocessor, require_columns
from domainwise.tables.files import read_table, table_columns
from domainwise.tables.schema import Table

#: Methods whose models contain no training rows.
WITHOUT_ROWS = ("constant", "linear", "boosting")


@dataclass(frozen=True)
class TableModel:
    """A fitted pipeline together with the columns it expects."""

    pipeline: Pipeline  #: takes a data frame with the columns of the schema
    schema: Schema
    info: dict[str, Any]  #: what is known about it: method, domains, scores, notes

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

    def predictions(self, X: Any, sample_domain: Any = None, coverage: float | None = None) -> Any:
        """Predict rows that :meth:`Schema.prepare` has prepared, one by one or with their domains.

        A data frame: ``prediction``, and for classes a probability or a decision value of each.
        """
        given = {} if sample_domain is None else {"sample_domain": sample_domain}

        @cache
        def ask(method: str) -> Any:
            routing = bool(given)
            with config_context(enable_metadata_routing=routing, transform_output="default"):
                return getattr(self.pipeline, method)(X, **given)

        classes: Any = getattr(self.pipeline, "classes_", None)
        if names_likeliest(self.pipeline):
            columns = {"prediction": classes[ask("predict_proba").argmax(axis=1)]}
        else:
            columns = {"prediction": ask("predict")}
        methods = {"predict_proba": "probability", "decision_function": "decision"}
        known = [each for each in methods if hasattr(self.pipeline, each)]
        if classes is not None and known:
            values = ask(known[0])
            each = values[:, None] if values.ndim == 1 else values  # of two classes the last
            named = zip(classes[-each.shape[1] :], each.T, strict=True)
            columns |= {f"{methods[known[0]]}_{c}": column for c, column in named}
        if coverage is not None:
            told = {
                "prediction": lambda: columns["prediction"],
                "probabilities": lambda: ask("predict_proba"),
                "decisions": lambda: ask("decision_function"),
            }
            calibration = (self.info.get("check") or {}).get("calibration")
            site = getattr(self.pipeline[-1], "estimator_", None)
            if hasattr(site, "site_quantiles_"):
                columns |= _site_columns(site, ask, bool(given), coverage)
                return import_pandas().DataFrame(columns)
            if calibration is None:
                raise TableError(
                    "this model has no prediction sets: they come from its check on left-out "
                    "domains, which was left out when it was fitted"
                )
            columns |= set_columns(calibration, coverage, told, classes)
        return import_pandas().DataFrame(columns)

    def read_rows(self, path: str | Path, **reading: Any) -> Any:
        """Read the feature columns of a table, prepared."""
        names = table_columns(path, encoding=reading.get("encoding"))
        require_columns(self.schema.features, names, str(path), reason=", which the model needs")
        return self.schema.prepare(read_table(path, list(self.schema.features), **reading))

    @config_context(transform_output="default")
    def adapt(self, X: Any, y: Array, *, X_site: Any = None) -> TableModel:
        """Return a model for the site that some labelled rows come from.

        Rows are those that :meth:`Schema.prepare` has prepared, and targets as in the model's
        table.
        """
        method = self.pipeline[-1]
        if not hasattr(method, "adapt"):
            raise TableError(
                f"this model ({self.info.get('method')}) cannot be adapted to a site. Fit one that "
                "can, with ",
                Argument("method", "ensemble"),
                " or ",
                Argument("method", "invariantridge"),
            )
        before = self.pipeline[:-1]
        unlabelled = None if X_site is None else before.transform(X_site)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X_site is missing")
            adapted = method.adapt(before.transform(X), y, X_site=unlabelled)
        steps = [*self.pipeline.steps[:-1], (self.pipeline.steps[-1][0], adapted)]
        model = adapted.estimator_
        site = {
            "n_labels": model.n_site_labels_,
            "corrections": {name: c.tolist() for name, c in model.corrections_.items()},
            "label_gain": [[*row] for row in model.label_gain_.tolist()],
        }
        return replace(self, pipeline=Pipeline(steps), info={**self.info, "site": site})

    @config_context(transform_output="default")
    def projection(self, X: Any) -> Any:
        """Project rows that :meth:`Schema.prepare` has prepared; a data frame, too."""
        project = self.pipeline[-1].projection_
        if project is None:
            having = [key for key, method in METHODS.items() if method.kind == "projection"]
            raise TableError(
                f"this model ({self.info.get('method')}) predicts from the features and has no "
                f"projection; methods that have one: {', '.join(having)}"
            )
        Z = project.transform(self.pipeline.named_steps["prepare"].transform(X))
        return import_pandas().DataFrame(Z, columns=list(project.get_feature_names_out()))


def _site_columns(model: Any, ask: Any, in_context: bool, coverage: float) -> dict[str, Any]:
    """Prediction sets or intervals of an adapted model, as columns of a table."""
    known = model.site_quantiles_
    quantiles = known["context" if in_context and "context" in known else "plain"]
    if hasattr(model, "classes_"):
        sets = quantiles.sets(class_scores(ask("predict_proba")), coverage)
        return {f"in_set_{name}": sets[:, i] for i, name in enumerate(model.classes_)}
    ends = quantiles.intervals(ask("predict"), coverage)
    return {"low": ends[:, 0], "high": ends[:, 1]}


def labelled_rows(model: TableModel, path: str | Path, **reading: Any) -> tuple[Any, Array, int]:
    """Read rows with their targets for :meth:`TableModel.adapt`; also how many have no target.

    Targets must be classes of the model, or numbers like those of its table.
    """
    schema = model.schema
    names = table_columns(path, encoding=reading.get("encoding"))
    columns = [*schema.features, schema.target]
    require_columns(columns, names, str(path), reason=", which the model needs")
    classes = model.info["classes"]
    labels = [schema.target] if classes is not None else []
    frame = read_table(path, columns, labels=labels, **reading)
    target = without(frame[schema.target], (*schema.na, *reading.get("na", ())))
    known = ~target.isna().to_numpy()
    if not known.any():
        raise TableError(f"{path} has no labelled row: column {schema.target!r} is empty")
    frame, target = frame[known].reset_index(drop=True), target[known].reset_index(drop=True)
    if classes is None:
        y = as_numbers(target, schema.target)
        held_out = getattr(getattr(model.pipeline[-1], "estimator_", None), "held_out_", None)
        if held_out is not None:
            _refuse_other_unit(y, held_out.y, schema.target, str(path))
    else:
        y = as_labels(target)
        unknown = sorted({str(label) for label in y.tolist()} - {str(name) for name in classes})
        if unknown:
            raise TableError(
                f"{path}: column {schema.target!r} has classes that the model does not know: "
                f"{', '.join(unknown[:5])}. Its classes are {', '.join(map(str, classes[:20]))}"
            )
        by_text = {str(name): name for name in classes}
        y = np.array([by_text[str(label)] for label in y.tolist()])
    return schema.prepare(frame), y, int((~known).sum())


def _refuse_other_unit(y: Array, known: Array, name: str, where: str) -> None:
    """Refuse targets that all lie far outside those of the model's table: another unit, or column.

    Far is farther than the whole range of that table.
    """
    low, high = float(known.min()), float(known.max())
    reach = (high - low) or max(abs(low), 1.0)
    if (y < low - reach).all() or (y > high + reach).all():
        raise TableError(
            f"{where}: all values of {name!r} lie between {y.min():.4g} and {y.max():.4g}, but "
            f"those of the model's table between {low:.4g} and {high:.4g}. Check the unit, and "
            "whether it is the same target"
        )


def table_setting(
    table: Table,
    *,
    predictor: str = "auto",
    class_weight: str | None = "auto",
    scoring: Any = None,
    inner_scoring: Any = None,
    pos_label: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> Setting:
    """What a method is made for, to be fitted to a table; see :class:`Setting`.

    ``class_weight="auto"`` lets every class count the same where it does in ``scoring``, what
    `evaluate` would measure. Arguments are chosen by ``inner_scoring``; None is a smooth score.
    """
    classification = table.schema.task == "classification"
    measure = choose_measure(scoring, table.y, classification, pos_label, table.sample_domain)
    if class_weight == "auto":
        class_weight = "balanced" if classification and measure.balanced else None
    elif class_weight not in (None, "balanced"):
        raise ValueError(f"class_weight={class_weight!r} must be 'auto', 'balanced' or None")
    elif class_weight is not None and not classification:
        raise ValueError("class_weight is about classes, but the target is continuous")
    return Setting(
        classification,
        len(table.y),
        inner_scoring,
        class_weight,
        predictor,
        probability=True,
        pos_label=pos_label,
        seed=random_state,
        n_jobs=n_jobs,
    )


def fit_table(
    table: Table, method: str | Method = "auto", *, rows: bool = True, **options: Any
) -> TableModel:
    """Fit a method (a name, or a Method) to all rows of a table; see :func:`table_setting`.

    ``rows=False`` refuses models that contain training rows.
    """
    chosen = find_method(method, len(table.y))
    if not rows and chosen.kind != "own":
        refuse_rows(chosen.key, chosen.key not in WITHOUT_ROWS)
    setting = table_setting(table, **options)
    pipeline = chosen.pipeline(setting, make_preprocessor(table.schema), watch=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        fit_with_domains(pipeline, table.X, table.y, table.sample_domain)
    if not rows:
        refuse_rows(chosen.key, training_rows(pipeline))
    said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    domains, counts = np.unique(table.sample_domain, return_counts=True)
    info = described(
        chosen,
        setting,
        pipeline[-1],
        classes=table.classes,
        domains=list(zip(domains.tolist(), counts.tolist(), strict=True)),
        notes=[*table.notes, *dict.fromkeys(said)],
    )
    return TableModel(pipeline, table.schema, info)


def refuse_rows(method: str, contained: object) -> None:
    """Refuse a model that contains training rows."""
    if contained:
        raise ValueError(
            f"a model of method {method!r} contains rows of the training data, which --no-rows "
            f"does not allow; use one of {', '.join(WITHOUT_ROWS)}"
        )


def described(
    method: Method,
    setting: Setting,
    search: MethodSearch,
    *,
    classes: list[Any] | None,
    domains: Sequence[tuple[Any, int]],
    notes: list[str],
) -> dict[str, Any]:
    """What is known about a model that was fitted; domains come with their rows."""
    project = search.projection_
    default = PREDICTORS[setting.task][0] if setting.predictor == "auto" else setting.predictor
    return {
        "method": method.key,
        "predictor": "" if project is None else default,
        "classes": classes,
        "class_weight": setting.class_weight,
        "domains": [list(pair) for pair in domains],
        "n_rows": sum(n for _, n in domains),
        "seed": setting.seed,
        "chosen": plain_parameters({name: search.best_params_[name] for name in search.varied_}),
        "n_components": None if project is None else int(project.dual_coef_.shape[1]),
        "check": None,
        "notes": notes,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def plain_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as JSON knows them; an infinite ridge becomes text."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        value = value.item() if hasattr(value, "item") else value
        unfit = isinstance(value, float) and not np.isfinite(value)
        plain[name] = str(value) if unfit else value
    return plain
