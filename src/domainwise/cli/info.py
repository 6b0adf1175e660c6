"""The commands info and export, and descriptions of models that other commands also print."""

from __future__ import annotations

from collections.abc import Collection
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainwise.cli import common, options
from domainwise.cli.common import escaped, print_facts, stdout

if TYPE_CHECKING:
    from rich.console import Console

#: Number of names that are listed before "and … more".
MAX_NAMES = 12


@options.command
def info(model: options.Model) -> None:
    """Show the contents of a model file without loading the model."""
    from domainwise.models.files.persistence import read_info

    header = read_info(model)
    common.print_json({"file": str(model), **header}, then_exit=True)
    console = stdout()
    try:
        console.print(f"[bold]{escaped(model)}[/bold] ({common.size_of(model)})\n", soft_wrap=True)
        if "schema" in header["info"]:
            print_model(console, header["info"])
        else:
            print_facts(console, [("model", header["model"]), ("columns", "not recorded")])
        row_attributes, targets_text = header["training_rows"], None
        rows_text = f"stored in {', '.join(row_attributes)}" if row_attributes else "none"
        if target_attributes := header["training_targets"]:
            targets_text = f"stored without features in {', '.join(target_attributes)}"
        facts = [
            ("training rows", rows_text),
            ("training targets", targets_text),
            ("versions", ", ".join(f"{name} {v}" for name, v in header["versions"].items())),
        ]
        print_facts(console, facts)
        print_model_notes(console, header["info"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{model} is damaged: its description is incomplete. Fit the model again."
        ) from error


@options.command
def export(
    model: options.Model,
    *,
    out: Annotated[Path, "ONNX file to write (.onnx).", "FILE", "-o"],
    force: options.Force = False,
) -> None:
    """Export a model to ONNX, for predictions without Python."""
    common.check_output(out, force, ".onnx")
    from domainwise.base.files import replacing
    from domainwise.models.export import to_onnx
    from domainwise.models.files.persistence import load_saved

    onnx_model = to_onnx(load_saved(model)[0])
    with replacing(out) as temporary_path:
        temporary_path.write_bytes(onnx_model.SerializeToString())
    graph, roles = onnx_model.graph, ("input", "output")
    names_by_role = {role: [node.name for node in getattr(graph, role)] for role in roles}
    common.print_json({"file": str(out), **names_by_role}, then_exit=True)
    common.print_written(out)
    print_facts(stdout(), [(role, ", ".join(names)) for role, names in names_by_role.items()])


def print_model(console: Console, info: dict[str, Any], *, brief: bool = False) -> None:
    """Print the description of a model; ``brief`` omits the lists of columns and domains."""
    from domainwise.base.messages import listed
    from domainwise.held_out.calibration.quantiles import describe_sets

    schema, classes, check = info["schema"], info["classes"], info["check"]
    numeric, categorical, dates = (schema.get(k, []) for k in ("numeric", "categorical", "dates"))
    method_text = " → ".join(name for name in (info["method"], info["predictor"]) if name)
    parameters_text = ", ".join(
        f"{name.replace('_', ' ')} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in info["chosen"].items()
        if value is not False  # False means that an option is off
    )
    target_text = "continuous"
    if classes is not None:
        target_text = f"{len(classes)} classes: {listed([*map(str, classes)], MAX_NAMES, ', ')}"
    domains_text = f"{len(info['domains'])} in column {schema['domain']}"
    features_text = f"{len(numeric) + len(categorical)} ({len(numeric)} numeric, "
    features_text += f"{len(categorical)} categorical)"
    if dates:
        features_text += f", plus {', '.join(schema['date_parts'])} from dates"
    if not brief:
        domain_entries = [f"{name} ({n_rows})" for name, n_rows in info["domains"]]
        domains_text += ": " + listed(domain_entries, MAX_NAMES, ", ")
        features_text += ": " + listed([*numeric, *categorical, *dates], MAX_NAMES, ", ")
    calibration = (check or {}).get("calibration")
    caution = None
    if info.get("context"):
        caution = "predict --context assumes that the rows are representative of their domain"
        if (batch_size := info["context"].get("batch_size")) is not None:
            caution += f"; the score with context was measured on {batch_size:,} rows per domain"
    facts = [
        ("method", f"{method_text} ({parameters_text})" if parameters_text else method_text),
        ("class weights", info.get("class_weight")),
        ("predicts", info.get("decision")),
        ("components", info["n_components"]),
        ("target", f"{schema['target']} ({target_text})"),
        ("domains", domains_text),
        ("features", features_text),
        ("rows", f"{info['n_rows']:,}"),
        ("unseen domains", describe_check(check, info["n_rows"]) if check else None),
        ("context", caution),
        ("prediction sets", describe_sets(calibration) if calibration else None),
        ("labels", info.get("labels") or None),
        *([] if brief else [("seed", info["seed"]), ("written", info["created"])]),
        *(describe_adaptation(info) if "site" in info else []),
    ]
    print_facts(console, facts)


def describe_adaptation(info: dict[str, Any]) -> list[tuple[str, str]]:
    """Describe the adaptation to a site as (name, value) pairs.

    >>> gain = [[0, -3.0, -4.0, -2.0], [5, -2.0, -2.5, -1.5], [10, -1.9, -2.4, -1.4]]
    >>> site = {"n_labels": 7, "corrections": {"plain": [0.12, 0.0]}, "label_gain": gain}
    >>> for fact in describe_adaptation({"site": site, "classes": None}):
    ...     print(*fact)
    site labels 7
    correction level +0.12
    expected RMSE 3 without labels, 2 with 5
    """
    site, classes = info["site"], info["classes"]
    terms = site["corrections"]["plain"]
    if classes is None:
        metric_name, sign, (level, slope, *within) = "RMSE", -1, terms
        correction = f"level {level:+.3g}" + (f", slope {slope:+.3g}" if slope else "")
        if within and within[0]:
            correction += f", {within[0]:.0%} of the model of differences inside a site"
    else:
        metric_name, sign = "balanced accuracy", 1
        *biases, slope = terms if len(terms) > len(classes) else (*terms, 0.0)  # older files
        entries = [f"{label} {term:+.2f}" for label, term in zip(classes, biases, strict=True)]
        correction = f"log-odds by class: {', '.join(entries)}" if any(terms) else "none"
        correction += f", slope {1.0 + slope:.2f}" if abs(slope) >= 0.005 else ""
    facts = [("site labels", str(site["n_labels"])), ("correction", correction)]
    gains = [gain for gain in site["label_gain"] if gain[0] <= site["n_labels"]]
    if scores := [(n_labels, sign * score) for n_labels, score, *_ in gains if not isnan(score)]:
        scores_text = f"{scores[0][1]:.3g} without labels"
        if len(scores) > 1:
            scores_text += f", {scores[-1][1]:.3g} with {scores[-1][0]}"
        facts.append((f"expected {metric_name}", scores_text))
    return facts


def print_model_notes(
    console: Console, info: dict[str, Any], printed_notes: Collection[str] = ()
) -> None:
    """Print notes, and a warning if the model is not better than a constant prediction."""
    common.print_notes(console, [n for n in info.get("notes", []) if n not in printed_notes])
    check = info.get("check")
    if check is not None and not check["better"]:
        common.print_line(
            console,
            "[bold yellow]warning:[/bold yellow] on the "
            f"{check['n_domains']} held-out domains, this model is not significantly better than a "
            f"constant prediction ({escaped(describe_check(check))}). Do not rely on its "
            "predictions for a new domain. Compare methods with [bold]domainwise evaluate[/bold], "
            "or look for features that have the same meaning in every domain.",
        )


def describe_check(check: dict[str, Any], n_rows: int = 0) -> str:
    """Describe the scores on held-out domains in one line.

    >>> describe_check(
    ...     dict(metric="balanced_accuracy", model=0.81, constant=0.5, worst=0.7, worst_domain="B")
    ... )
    'balanced accuracy 0.810, worst domain 0.700 (B); constant prediction 0.500'

    If the check has a range, the score is ``0.810 on average, 0.610 to 0.950 on a single new domain
    (90 % interval)``. If the scores are based on fewer than the ``n_rows`` rows to which the model
    is fitted, the text says so.
    """
    sign, number_format = (-1, ".4g") if check["metric"].startswith("neg_") else (1, ".3f")
    metric_name = check["metric"].removeprefix("neg_").replace("_", " ")
    model_text, worst_text, constant_text = (
        f"{sign * check[key]:{number_format}}" for key in ("model", "worst", "constant")
    )
    if check.get("range") is not None:
        low, high = sorted(sign * bound for bound in check["range"])
        model_text += f" on average, {low:{number_format}} to {high:{number_format}} on a single "
        model_text += "new domain (90 % interval)"
    if check.get("true_range") is not None:
        low, high = sorted(sign * bound for bound in check["true_range"])
        model_text += f", true score {low:{number_format}} to {high:{number_format}}"
    metric_name = "RMSE" if metric_name == "root mean squared error" else metric_name
    scores_text = f"{model_text}, worst domain {worst_text} ({check['worst_domain']})"
    text = f"{metric_name} {scores_text}; constant prediction {constant_text}"
    if (n_checked := check.get("n_rows") or n_rows) < n_rows:
        text += f"; for models compared on {n_checked:,} rows, not on all {n_rows:,}"
    return text
