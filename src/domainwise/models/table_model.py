"""Models for whole tables: preprocessing and estimator in one pipeline.

:func:`fit_table` fits a :class:`TableModel` to a checked :class:`~domainwise.tables.schema.Table`.
The model is saved together with its column schema, and :mod:`domainwise.models.apply` applies it to
files of any size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from domainwise.base.arrays import Array
from domainwise.base.files import to_json
from domainwise.base.inputs import take_rows
from domainwise.base.messages import ContextWarning, warn_caller
from domainwise.base.process import filtered_warnings
from domainwise.held_out.calibration.decisions import check_decision
from domainwise.held_out.calibration.quantiles import scores_by_class, stored_quantiles
from domainwise.held_out.folds import rows_by_content
from domainwise.held_out.scoring.measures import choose_measure
from domainwise.held_out.scoring.predictions import Outputs, Predictions, fit_with_domains
from domainwise.models.files.persistence import ModelFileError, load_saved, read_info, save
from domainwise.models.files.values import training_rows
from domainwise.models.registry import METHODS, Method, Setting, find_method
from domainwise.models.tuning import MethodSearch, hold_out
from domainwise.tables.errors import Argument, TableError, describe_names, import_pandas
from domainwise.tables.files import open_table
from domainwise.tables.names import require_columns
from domainwise.tables.schema import MAX_LEVELS, MIN_LEVEL_ROWS, Schema, Table

WITHOUT_ROWS = ("constant", "linear", "boosting")  #: methods whose models contain no training rows


@dataclass(frozen=True)
class TableModel:
    """A fitted pipeline, and the schema of the columns that it expects."""

    pipeline: Pipeline  #: takes a data frame with the columns of the schema
    schema: Schema
    info: dict[str, Any]  #: method, domains, scores, notes

    def save(self, path: str | Path) -> None:
        """Write the pipeline, its schema and its description to one file."""
        save(self.pipeline, path, info={**self.info, "schema": self.schema.as_dict()})

    @classmethod
    def load(cls, path: str | Path) -> TableModel:
        """Read a file written by :meth:`save`."""
        info = read_info(path)["info"]
        try:
            schema = Schema.from_dict(info["schema"])
        except (KeyError, TypeError):
            raise ModelFileError(
                f"{path} does not describe the table's columns, because it was written by "
                "domainwise.save. Load it in Python with domainwise.load"
            ) from None
        return cls(load_saved(path)[0], schema, info)

    @config_context(transform_output="default")
    def predictions(self, X: Any, sample_domain: Any = None, coverage: float | None = None) -> Any:
        """Predict for the rows of a data frame from :meth:`Schema.prepare`.

        Returns a data frame with the column ``prediction``. Classification adds a probability or
        decision value for each class, and ``coverage`` adds prediction sets or intervals.
        """
        classes: Any = getattr(self.pipeline, "classes_", None)
        outputs = Predictions(self.pipeline, X, classes, sample_domain)
        columns = {"prediction": outputs.labels}
        prefix, class_outputs = "probability", outputs.probabilities
        if class_outputs is None:
            prefix, class_outputs = "decision", outputs.decisions
        if class_outputs is not None:
            class_outputs = class_outputs.reshape(len(class_outputs), -1)  # decisions may be 1-D
            labelled_columns = zip(classes[-class_outputs.shape[1] :], class_outputs.T, strict=True)
            columns |= {f"{prefix}_{label}": column for label, column in labelled_columns}
        if coverage is not None:
            columns |= self._prediction_set_columns(outputs, coverage)
        return import_pandas().DataFrame(columns)

    def with_threshold(self, threshold: float) -> TableModel:
        """Return a copy that predicts the positive class if its probability is at least this."""
        name, search = self.pipeline.steps[-1]
        if self.info["classes"] is None or not hasattr(search, "predict_proba"):
            raise TableError(
                f"this model ({self.info.get('method')}) has no probabilities of classes, so it "
                "cannot predict with a threshold"
            )
        steps = [*self.pipeline.steps[:-1], (name, search.with_threshold(threshold))]
        return replace(self, pipeline=Pipeline(steps))

    def _prediction_set_columns(self, outputs: Predictions, coverage: float) -> dict[str, Array]:
        """Return prediction sets (a column for each class) or intervals, by column name."""
        site_quantiles = getattr(self.pipeline[-1].adaptable, "site_quantiles_", None)
        calibration = (self.info.get("check") or {}).get("calibration")
        if site_quantiles is not None:
            has_context = outputs.sample_domain is not None and "context" in site_quantiles
            mode = "context" if has_context else "plain"
            output_name, quantiles = "probabilities", site_quantiles[mode]
        elif calibration is not None:
            output_name, quantiles = calibration["of"], stored_quantiles(calibration, coverage)
        else:
            raise TableError(
                "this model has no prediction sets, because it was fitted without the check on "
                "held-out domains. Fit it again with 'domainwise fit', without --no-check"
            )
        if outputs.classes is None:
            low, high = quantiles.intervals(outputs.labels.astype(np.float64), coverage).T
            return {"low": low, "high": high}
        output = outputs.labels if output_name == "prediction" else getattr(outputs, output_name)
        class_scores = scores_by_class(Outputs(**{output_name: output}), outputs.classes)[1]
        is_in_set = quantiles.sets(class_scores, coverage)
        return {f"in_set_{label}": is_in_set[:, i] for i, label in enumerate(outputs.classes)}

    def with_options(self, decimal: str | None = None, na: Sequence[str] = ()) -> TableModel:
        """Return the model for tables with another decimal mark, or more missing values."""
        return replace(self, schema=self.schema.with_options(decimal, na))

    def read(
        self,
        path: str | Path,
        columns: Sequence[str],
        *,
        encoding: str | None = None,
        chunk_rows: int | None = None,
    ) -> Iterator[Any]:
        """Read columns of a table, in chunks of ``chunk_rows`` rows; None reads one chunk.

        ``encoding=None`` detects the encoding of a CSV file; an ambiguous file is read like the
        training table. The schema determines what the cells mean.
        """
        table = open_table(path, encoding=encoding, fallback=self.schema.encoding)
        require_columns(columns, table.names, str(path), reason=", which the model needs")
        for note in table.notes:
            warn_caller(note)
        return table.frames(columns, chunk_rows)

    def read_rows(self, path: str | Path, *, encoding: str | None = None) -> Any:
        """Read and prepare the feature columns of a table."""
        (frame,) = self.read(path, self.schema.features, encoding=encoding)
        return self.schema.prepare(frame)

    @config_context(transform_output="default")
    def adapt(self, X: Any, y: Array, *, X_site: Any = None) -> TableModel:
        """Return a model that is adapted to the site from which the labelled rows come.

        ``X`` and ``X_site`` (unlabelled rows) are data frames from :meth:`Schema.prepare`, and
        ``y`` contains targets as in the training table.
        """
        estimator = self.pipeline[-1]
        if estimator.adaptable.held_out_ is None:
            text = f"this model ({self.info.get('method')}) has no predictions for held-out rows, "
            text += "which adapt needs: it was fitted without training rows in its file, or to a "
            text += "table that does not fit into memory. Fit it again with "
            raise TableError(text, Argument("rows", True), ", to a table that fits into memory")
        prepare = self.pipeline[:-1].transform
        X_unlabelled = None if X_site is None else prepare(X_site)
        with filtered_warnings():
            warnings.simplefilter("ignore", ContextWarning)
            adapted_estimator = estimator.adapt(prepare(X), y, X_site=X_unlabelled)
        steps = [*self.pipeline.steps[:-1], (self.pipeline.steps[-1][0], adapted_estimator)]
        model = adapted_estimator.adaptable
        site_info = {
            "n_labels": model.n_site_labels_,
            "corrections": {name: c.tolist() for name, c in model.corrections_.items()},
            "label_gain": [[*row] for row in model.label_gain_.tolist()],
        }
        return replace(self, pipeline=Pipeline(steps), info={**self.info, "site": site_info})

    @config_context(transform_output="default")
    def projection(self, X: Any) -> Any:
        """Project the rows of a data frame from :meth:`Schema.prepare`; return a data frame."""
        projector = self.pipeline[-1].projection_
        if projector is None:
            method_keys = [key for key, method in METHODS.items() if method.kind == "projection"]
            raise TableError(
                f"this model ({self.info.get('method')}) has no projection. Fit a model with one "
                f"of these methods: {', '.join(method_keys)}"
            )
        Z = projector.transform(self.pipeline.named_steps["prepare"].transform(X))
        return import_pandas().DataFrame(Z, columns=list(projector.get_feature_names_out()))


def read_labelled_rows(
    model: TableModel, path: str | Path, *, encoding: str | None = None
) -> tuple[Any, Array, int]:
    """Read labelled rows for :meth:`TableModel.adapt`, and count the rows without a label.

    Labels must be classes of the model, or numbers in the unit of the training table.
    """
    schema, classes = model.schema, model.info["classes"]
    (frame,) = model.read(path, [*schema.features, schema.target], encoding=encoding)
    row_indices, y, _ = schema.read_labels(frame, classes)
    if not len(row_indices):
        raise TableError(
            f"{path} has no labelled rows: column {schema.target!r} is empty. Label some rows"
        )
    if classes is not None:
        class_by_text = {str(label): label for label in classes}
        if unknown_texts := sorted({*y.tolist()} - {*class_by_text}):
            raise TableError(
                f"column {schema.target!r} has the values {describe_names(unknown_texts)}, but the "
                f"classes of the model are {describe_names(class_by_text, 20)}. Correct these "
                "values, or leave the cells empty"
            )
        y = np.array([class_by_text[text] for text in y.tolist()])
    else:
        held_out = model.pipeline[-1].adaptable.held_out_
        low, high = (y.min(), y.max()) if held_out is None else (held_out.y.min(), held_out.y.max())
        margin = (high - low) or max(abs(low), 1.0)
        if (y < low - margin).all() or (y > high + margin).all():
            raise TableError(
                f"{path}: all values of {schema.target!r} are between {y.min():.4g} and "
                f"{y.max():.4g}, but the model was fitted to values between {low:.4g} and "
                f"{high:.4g}. Check that the target and its unit have not changed"
            )
    return schema.prepare(frame, rows=row_indices), y, len(frame) - len(row_indices)


def table_setting(
    table: Table,
    *,
    predictor: str = "auto",
    class_weight: str | None = None,
    decision: str | float = "auto",
    scoring: Any = None,
    inner_scoring: Any = None,
    pos_label: Any = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> Setting:
    """Return the :class:`Setting` for fitting a method to a table.

    ``decision`` says how classes are predicted; "auto" depends on ``scoring``, the metric of
    `evaluate`. Parameters are chosen by ``inner_scoring``; None means log loss or squared error.
    """
    classification = table.schema.task == "classification"
    args, weights = (table.y, classification, pos_label, table.sample_domain), table.sample_weight
    measure = choose_measure(scoring, *args, sample_weight=weights)
    if class_weight not in (None, "balanced"):
        raise ValueError(f"class_weight must be 'balanced' or None; got {class_weight!r}")
    if class_weight is not None and not classification:
        raise ValueError(
            "class_weight needs classes, but the target is continuous. Use class_weight=None"
        )
    check_decision(decision, len(table.classes or ()) or None)
    return Setting(
        classification,
        len(table.y),
        inner_scoring,
        class_weight,
        predictor,
        metric=measure.scoring,
        decision=decision,
        pos_label=pos_label,
        seed=random_state,
        n_jobs=n_jobs,
        weighted=weights is not None,
    )


def make_preprocessor(schema: Schema) -> ColumnTransformer:
    """Return an unfitted transformer that converts a table's features to numbers.

    Numeric columns are imputed with the median and standardized. Categorical columns are imputed
    with the most frequent category and one-hot encoded. Rare categories are pooled; categories that
    ``fit`` has not seen are encoded like them or, if there are none, as zeros.
    """
    median_imputer, mode_imputer = (
        SimpleImputer(strategy=strategy, keep_empty_features=True)
        for strategy in ("median", "most_frequent")
    )
    encoder = OneHotEncoder(
        handle_unknown="infrequent_if_exist",
        max_categories=MAX_LEVELS,
        min_frequency=MIN_LEVEL_ROWS,
        sparse_output=False,
    )
    steps = [
        ("numeric", make_pipeline(median_imputer, StandardScaler()), schema.numbers),
        ("categorical", make_pipeline(mode_imputer, encoder), list(schema.categorical)),
    ]
    steps = [step for step in steps if step[2]]
    transformer = ColumnTransformer(steps, verbose_feature_names_out=False)
    return transformer.set_output(transform="default")  # regardless of set_config


def fit_table(
    table: Table, method: str | Method = "auto", *, rows: bool = True, **options: Any
) -> TableModel:
    """Fit a method (a name, or a Method) to all rows of a table; see :func:`table_setting`.

    ``rows=False`` raises an error for models that contain training rows.
    """
    method = find_method(method, len(table.y))
    if not rows and method.kind != "own":
        refuse_rows(method.key, method.key not in WITHOUT_ROWS)
    setting = table_setting(table, **options)
    pipeline = method.pipeline(setting, make_preprocessor(table.schema), watch=True)
    with filtered_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", UserWarning)
        labels = table.y, table.sample_domain, table.sample_weight
        order = rows_by_content(table.X, table.y)
        sorted_labels = (None if values is None else values[order] for values in labels)
        arguments = pipeline, take_rows(table.X, order), *sorted_labels
        fit_with_domains(*arguments)
        if rows:
            hold_out(*arguments)
    if not rows:
        pipeline[-1].held_out_ = None  # it contains targets of training rows
        refuse_rows(method.key, training_rows(pipeline))
    messages = [str(w.message) for w in caught_warnings if issubclass(w.category, UserWarning)]
    domains, row_counts = np.unique(table.sample_domain, return_counts=True)
    info = describe_model(
        method,
        setting,
        pipeline[-1],
        classes=table.classes,
        domains=list(zip(domains.tolist(), row_counts.tolist(), strict=True)),
        notes=[*table.notes, *dict.fromkeys(messages)],
    )
    return TableModel(pipeline, table.schema, info)


def refuse_rows(method: str, contains_rows: object) -> None:
    """Raise a TableError if a model contains training rows."""
    if contains_rows:
        text = f"models fitted with method {method!r} contain training rows. Use one of "
        remedy = f"{', '.join(WITHOUT_ROWS)}, or allow training rows with ", Argument("rows", True)
        raise TableError(text, *remedy)


def describe_model(
    method: Method,
    setting: Setting,
    search: MethodSearch,
    *,
    classes: list[Any] | None,
    domains: Sequence[tuple[Any, int]],
    notes: list[str],
) -> dict[str, Any]:
    """Describe a fitted model; ``domains`` contains (name, number of rows) pairs."""
    projector, context, rule = search.projection_, None, search.applied_rule
    model: Any = getattr(search, "estimator_", None)
    if getattr(model, "uses_context", False):
        # "promised" is later set to True if the model is chosen by its score with context.
        context = {"batch_size": int(model.context_batch_size_), "promised": False}
    return {
        "method": method.key,
        "predictor": "" if projector is None else setting.predictor_name,
        "classes": classes,
        "class_weight": setting.class_weight,
        "decision": None if rule is None or classes is None else rule.describe(classes),
        "domains": [list(pair) for pair in domains],
        "n_rows": sum(n for _, n in domains),
        "seed": setting.seed,
        "chosen": to_json({name: search.best_params_[name] for name in search.varied_}, str),
        "n_components": None if projector is None else int(projector.dual_coef_.shape[1]),
        "check": None,
        "labels": search.adaptable.label_advice_ if search.adaptable.held_out_ is not None else "",
        "context": context,
        "notes": notes,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
