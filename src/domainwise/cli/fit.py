"""The ``fit`` command, which fits a model to a table and saves the model in a file."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from domainwise.cli import common, options
from domainwise.cli.common import count, dask_client, resolve_jobs, stderr, stdout
from domainwise.cli.evaluate import digest, own_methods
from domainwise.cli.info import print_model, print_model_notes

if TYPE_CHECKING:
    from domainwise.models.registry import Method

#: By default, tables with fewer rows are fitted in one process; starting more would take longer.
SMALL_TABLE_ROWS = 1000
#: Options allowed with ``--from``; all others would change the evaluated model.
ALLOWED_WITH_FROM = {"data", "source", "method", "estimator", "check", "rows", "out", "jobs"}
ALLOWED_WITH_FROM |= {"dask", "force"}


@options.command
def fit(
    context: typer.Context,
    data: Annotated[
        Path | None, "Table to read, in any format that evaluate accepts; not needed with --from."
    ] = None,
    *,
    out: options.ModelOut,
    source: Annotated[
        Path | None,
        "Results folder written by evaluate. Fit the recommended method (or the one passed with "
        "--method) to the evaluated table, with the same columns, metric and seed.",
        "FOLDER",
        "--from",
    ] = None,
    target: options.Target = None,
    domain: options.Domain = None,
    weight: options.Weight = None,
    method: Annotated[
        str, 'Method to fit; "auto" selects ensemble, or invariantridge for over 20,000 rows.'
    ] = "auto",
    estimator: Annotated[
        options.Names,
        "With --from: your own estimator, as passed to evaluate. This option can be repeated.",
        "ESTIMATOR",
    ] = None,
    predictor: Annotated[
        str,
        "Model fitted to the components of a projection: lda, logistic or svm for classification, "
        'ridge or svm for regression. "auto" selects lda or ridge.',
    ] = "auto",
    task: options.Task = "auto",
    columns: options.ColumnOptions,
    read_options: options.ReadingOptions,
    balanced: Annotated[
        bool,
        "Give all classes the same weight when models are fitted. Probabilities do not depend on "
        "these weights.",
        "--balanced/--not-balanced",
    ] = False,
    threshold: options.Threshold = None,
    positive: options.Positive = None,
    check: Annotated[
        bool, "Compare the model with a constant prediction on held-out domains."
    ] = True,
    rows: Annotated[
        bool,
        "Whether the model file may contain training rows. --no-rows requires --method constant, "
        "linear or boosting.",
    ] = True,
    seed: options.Seed = 0,
    jobs: options.Jobs = None,
    dask: options.Dask = None,
    force: options.Force = False,
) -> None:
    """Fit a model to a table and save the model in a file.

    The model includes the preprocessing: imputation of missing values, encoding of categories, and
    scaling. The method's parameters are chosen on held-out domains, as in evaluate.

    Methods: auto, and all methods that evaluate accepts. Fast variants such as fastdcmcv are
    suitable for large tables.
    """
    from domainwise.base.files import replacing
    from domainwise.distributed.fit import folds_on
    from domainwise.evaluation.constant import check_table
    from domainwise.models.registry import find_method
    from domainwise.models.table_model import fit_table, refuse_rows

    n_jobs = resolve_jobs(jobs, dask)
    common.check_output(out, force, ".skops")
    evaluated_key, large_table, score_check = "", None, None
    if source is None:
        if data is None or target is None or domain is None:
            raise ValueError("pass a table with --target and --domain, or use --from")
        if estimator:
            raise ValueError("--estimator requires --from; add --from FOLDER or remove --estimator")
        find_method(method, 0)
        table_options: dict[str, Any] = {"target": target, "domain": domain, "weight": weight}
        table_options |= {"task": task, **vars(columns), **read_options.arguments()}
        arguments: dict[str, Any] = {
            "method": method,
            "predictor": predictor,
            "class_weight": "balanced" if balanced else None,
            "decision": "auto" if threshold is None else threshold,
            "pos_label": positive,
            "random_state": seed,
        }
        if dask is not None and find_spec("dask"):
            from domainwise.models.large_table import LargeTable, exceeds_memory

            if exceeds_memory(data):
                if weight is not None:
                    raise ValueError(
                        "--weight needs a table that fits into memory; remove --weight"
                    )
                large_table = common.read_input(data, **table_options, read=LargeTable.open)
    else:
        options.refuse_options(
            context, ALLOWED_WITH_FROM, "with --from, the evaluation sets this option"
        )
        recipe = Recipe(source)
        data, table_options = recipe.table_path(data, force), recipe.table_options
        evaluated_key = recipe.find_key(None if method == "auto" else method)
        arguments = {**recipe.options, "method": recipe.method(evaluated_key, estimator, force)}
        score_check = recipe.check(evaluated_key) if check else None
    table = large_table.table if large_table else common.read_input(data, **table_options)
    if jobs is None and dask is None and len(table.y) < SMALL_TABLE_ROWS:
        n_jobs = 1
    activity = "fitting, and scoring on held-out domains" if check else "fitting"
    with (
        replacing(out) as temporary_path,
        dask_client(dask) as client,
        common.spinner(activity) as update,
        folds_on(client, lambda n_tasks: update(f"{activity}: {count(n_tasks, 'task')} finished")),
    ):
        if large_table is None:
            model = fit_table(table, **arguments, rows=rows, n_jobs=n_jobs)
        else:
            refuse_rows(str(arguments["method"]), not rows)
            model = large_table.fit(client, **arguments)
            arguments["method"] = model.info["method"]
        if score_check is not None and evaluated_key != arguments["method"].key:
            model.info["context"] = {**(model.info["context"] or {}), "promised": True}
            model.info["notes"].append(
                f"the scores on held-out domains are those of {evaluated_key}, which predicts all "
                "rows of a domain together; use predict --context"
            )
        if check and score_check is None:
            score_check = check_table(table, **arguments, n_jobs=n_jobs)
        model.info["check"] = None if score_check is None else vars(score_check)
        model.save(temporary_path)
    info = {**model.info, "schema": model.schema.as_dict()}
    common.print_json({"file": str(out), **info})
    print_model(stdout(), info, brief=True)
    stdout().print()
    common.print_written(out)
    # evaluate has printed the notes on how the table was read.
    print_model_notes(stderr(), info, printed_notes=table.notes if source else ())


class Recipe:
    """The table, options and methods of an evaluation, read from its results folder."""

    def __init__(self, folder: Path) -> None:
        from domainwise.evaluation.folder import RESULT_NAME, read_content

        self.path, self.evaluation = folder / RESULT_NAME, read_content(folder)[0]
        if self.evaluation["recipe"] is None or "table" not in self.evaluation:
            raise ValueError(
                f"{self.path} does not describe a table, because it was written by evaluate() in "
                "Python; run `domainwise evaluate` on the table instead"
            )
        recipe = self.evaluation["recipe"]
        self.recipe, self.table_options = recipe, self.evaluation["table"]["asked"]
        #: Arguments of :func:`~domainwise.models.table_model.table_setting`.
        self.options = {"random_state": recipe["seed"]} | {
            name: recipe[name] for name in ("scoring", "inner_scoring", "pos_label", "decision")
        }

    def table_path(self, path: Path | None, force: bool) -> Path:
        """Return the path of the evaluated table; refuse other tables unless ``force`` is True."""
        path = path or Path(self.evaluation["table"]["path"])
        if not path.is_file() and not path.is_dir():
            raise ValueError(f"{path} does not exist; pass the path of the evaluated table")
        if not force and digest(path) != self.evaluation["table"]["sha256"]:
            raise ValueError(
                f"{path} is not the table that was evaluated in {self.path}; evaluate it first, "
                "or use --force to fit to it anyway"
            )
        return path

    def find_key(self, name: str | None) -> str:
        """Return the key of an evaluated method, by default the recommended one."""
        query = (name or self.evaluation["recommended"]).lower()
        methods = self.evaluation["methods"]
        for method in methods:
            if query in (method["key"].lower(), method["label"].lower()):
                return str(method["key"])
        raise ValueError(
            f"method {name!r} was not evaluated; choose one of the methods in {self.path}: "
            f"{', '.join(method['key'] for method in methods)}"
        )

    def method(self, key: str, estimators: list[str] | None, force: bool) -> Method:
        """Return an evaluated method; refuse it if its grid has changed, unless ``force`` is True.

        The folder may not be trustworthy, so modules that it names are not imported. The user
        passes ``estimators`` on the command line.
        """
        from domainwise.evaluation.evaluation import describe_grid
        from domainwise.models.registry import CONTEXT, METHODS

        own_by_key = {method.key: method for method in own_methods(estimators)}
        base_key = key.removesuffix(CONTEXT)
        method = own_by_key.get(key) or own_by_key.get(base_key) or METHODS.get(base_key)
        if method is None:
            estimators_text = ", ".join(self.evaluation.get("estimators", ())) or base_key
            raise ValueError(
                f"method {key!r} in {self.path} is not part of domainwise; if you trust it, pass "
                f"it with --estimator, as in the evaluation: {estimators_text}"
            )
        grid = describe_grid(method.grid(self.recipe["task"] == "classification"))
        if grid != self.recipe["grids"].get(method.key) and not force:
            raise ValueError(
                f"the grid of method {method.key!r} has changed since {self.path} was written; "
                "evaluate again, or use --force to search the new grid"
            )
        return method

    def check(self, key: str) -> Any:
        """Compare a method's scores with a constant prediction's; None if either has no scores."""
        from domainwise.evaluation.constant import compare_with_constant
        from domainwise.models.registry import TRIVIAL

        sign = 1 if self.evaluation["measure"]["greater_is_better"] else -1
        results_by_key = {method["key"]: method for method in self.evaluation["methods"]}
        scores, constant_scores = (
            {
                row["domain"]: sign * row["score"]
                for row in results_by_key.get(method_key, {}).get("per_domain", ())
                if row["score"] is not None
            }
            for method_key in (key, TRIVIAL)
        )
        if not scores or not constant_scores:
            return None
        result = results_by_key[key]
        true_range = (result["between_sites"] or {}).get("true_range")
        details = result.get("calibration"), true_range, result.get("n_rows")
        return compare_with_constant(self.recipe["scoring"], scores, constant_scores, *details)
