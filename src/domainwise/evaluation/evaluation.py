"""The result of ``evaluate``: scores, ways to show them, and a model fitted to all rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from html import escape
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import config_context
from sklearn.pipeline import Pipeline

from domainwise.base.arrays import ArrayLike, Frame
from domainwise.base.files import to_json
from domainwise.evaluation import sites
from domainwise.evaluation.results import MethodResult, Prediction, Results
from domainwise.evaluation.sites import BetweenSites, SiteCalibration, SiteDecisions, ValidationSize
from domainwise.evaluation.verdict import Answer, make_answer
from domainwise.held_out.calibration.quantiles import calibrate_sets
from domainwise.held_out.scoring.predictions import fit_with_domains
from domainwise.held_out.scoring.site_calibration import DecisionCurves
from domainwise.held_out.scoring.statistics import p_text
from domainwise.held_out.search.grids import InUnits
from domainwise.models.registry import CONTEXT
from domainwise.models.tuning import hold_out
from domainwise.tables.errors import import_pandas

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Evaluation(Results):
    """The result of :func:`domainwise.evaluate`, and ways to show and use it.

    Attributes
    ----------
    results : list of MethodResult
        Methods in order of their mean score, best first.
    domains : list
        The held-out domains.
    measure : Measure
        The rule by which scores are computed.
    left_out : dict
        Reasons for missing scores, by method.
    facts : dict
        Task, sizes, seed and versions.
    records : dict
        Predictions for held-out rows by method, one record per domain; see ``predictions_``.
    methods : list of Method
        The methods of ``results``, not fitted.
    source : Problem or None
        The problem with all rows, including those that were not drawn for training.
    inner_cv : splitter or None
        The splits on which parameters were chosen.
    next_step : str
        The command that fits the recommended method.
    others : list of Results
        Scores of the same predictions, computed with other measures.
    chosen_for : Measure or None
        The measure for which parameters were chosen.
    set_calibration : dict
        Stored calibration of the recommended method's prediction sets, used if its predictions are
        not available.
    differences : dict
        Differences between the domains, and possible problems in the table.
    site_columns : SiteColumns or None
        Scores of the recommended method with and without the columns that are constant within every
        domain; None if there are none, or if it was not fitted without them.
    lacking : str
        The reason given in the report if the predictions that it needs are not available.
    weights : dict
        Weight of each domain in the mean that decides which method is recommended.
    row_counts : dict
        Number of scored rows of each domain.
    plan : Plan or None
        The rows, folds and methods of the evaluation, which ``evaluate(plan=...)`` repeats.
    """

    def fit(self, method: str | None = None, *, n_jobs: int | None = None) -> Pipeline:
        """Fit a method to all rows, including those that were not drawn for training.

        Parameters are chosen again from the same candidates, by holding out domains.
        Preprocessing and class weights are the same as in the evaluation.

        Parameters
        ----------
        method : str, default=None
            Key or label of an evaluated method; None uses ``recommended_``. The model is the same
            with and without context; to use context, pass domains to ``predict``.
        n_jobs : int, default=None
            Number of parallel fits.

        Returns
        -------
        model : Pipeline
            Predicts rows that have the columns of X; :func:`domainwise.save` writes it to a file.
        """
        result = self._evaluated(method)
        if self.source is None:
            raise ValueError(
                "this evaluation was read from a folder, which does not contain the rows of the "
                "table. Call evaluate() again before fit()"
            )
        source = self.source
        rows = source.by_content(np.arange(len(source.y)))
        key = result.key.removesuffix(CONTEXT) if result.context else result.key
        unfitted_method = next(m for m in self.methods if m.key == key)
        setting = source.setting(len(rows), self.inner_cv)
        setting = replace(setting, n_jobs=n_jobs)
        model = unfitted_method.pipeline(setting, source.preprocessor, watch=True)
        if unfitted_method.prepare and source.reader is not None:
            model.steps.insert(0, ("read", source.reader))
        X = source.rows(rows, unfitted_method.prepare)
        with config_context(transform_output="default"):
            labels = source.y[rows], source.domain_of(rows)
            arguments = model, X, *labels, source.weights_of(rows)
            fit_with_domains(*arguments)
            hold_out(*arguments)
        return model

    @property
    def predictions_(self) -> Frame:
        """A data frame with each method's predictions for rows from held-out domains.

        Columns: method, row (its index in X; rows of weight 0 are not counted), domain, target,
        prediction, weight (if rows have weights), and for classification the probability or
        decision value of each class.
        """
        pandas, classes = import_pandas(), self.facts["classes"]
        frames = [
            pandas.DataFrame({"method": key, **prediction_columns(prediction, classes)})
            for key, predictions in self.records.items()
            for prediction in predictions
        ]
        return pandas.concat(frames, ignore_index=True)

    def table(self) -> Frame:
        """Return a data frame with one row per method, best mean first.

        Columns: method, mean, low and high (95 % interval for the mean), worst, worst_domain,
        spread, seen (mean in random folds, where all domains are seen), p_value, p_adjusted,
        seconds, n_rows (number of rows on which the method is compared). Errors are positive.

        Returns
        -------
        table : data frame
            The columns are also explained in the report.
        """
        rows = [{"method": result.label, **self._summary(result)} for result in self.results]
        return import_pandas().DataFrame(rows)

    def per_domain(self) -> Frame:
        """Return a data frame with one row per method and domain.

        Returns
        -------
        table : data frame
            Columns: method, domain, score, low, high, seen, error (the standard error of the
            score), and worst (True or False).
        """
        rows = [
            {"method": result.label, **vars(row), "worst": row.domain == result.worst_domain}
            for result in self.results
            for row in self.domain_scores(result)
        ]
        return import_pandas().DataFrame(rows)

    def between_sites(self, method: str | None = None) -> BetweenSites:
        """Pool a method's scores over domains: what differs between sites, and what is chance.

        Parameters
        ----------
        method : str, default=None
            Key or label of an evaluated method; None uses ``recommended_``.

        Returns
        -------
        pooled : BetweenSites
            The pooled mean, the standard deviation between sites, their intervals, and ranges for
            a new site, as :func:`domainwise.metrics.pool_scores` returns them. Its ``table`` has a
            row for each domain.
        """
        return sites.between_sites(self, self._evaluated(method))

    def calibration(self, method: str | None = None) -> SiteCalibration:
        """Calibration of a method's predictions on held-out domains, by domain and pooled.

        For classes: observed divided by expected events, calibration intercept and slope, as in
        :func:`domainwise.metrics.observed_expected` and
        :func:`domainwise.metrics.calibration_slope`; with more than two classes, for each class
        against the others. For a continuous target: bias, and slope of the target on the
        prediction.

        Parameters
        ----------
        method : str, default=None
            Key or label of an evaluated method; None uses ``recommended_``.

        Returns
        -------
        calibration : SiteCalibration
            ``table`` has a row for each domain, with 95 % intervals. ``pooled`` contains each
            quantity pooled over domains, with 90 % intervals and ranges for a new site.
        """
        return sites.site_calibration(self, self._evaluated(method))

    def decision_curve(
        self, method: str | None = None, *, thresholds: ArrayLike | None = None
    ) -> DecisionCurves:
        """Net benefit of a method on held-out domains, by threshold.

        Parameters
        ----------
        method : str, default=None
            Key or label of an evaluated method; None uses ``recommended_``.
        thresholds : array-like, default=None
            Probabilities above which a row is treated; None means 0.01 to 0.99.

        Returns
        -------
        curves : DecisionCurves
            Net benefit of the method and of treating all rows, by domain and on average.
        """
        return sites.method_decision_curves(self, self._evaluated(method), thresholds)

    def decision_scores(
        self, method: str | None = None, *, threshold: float | None = None
    ) -> SiteDecisions:
        """What a decision is worth on held-out domains: predictive values and net benefit.

        Parameters
        ----------
        method : str, default=None
            Key or label of an evaluated method; None uses ``recommended_``.
        threshold : float, default=None
            Rows with at least this probability are treated; None uses the threshold that was
            passed to :func:`~domainwise.evaluate`.

        Returns
        -------
        decisions : SiteDecisions
            ``table`` has a row for each domain, with 95 % intervals: sensitivity, specificity,
            positive and negative predictive value, net benefit, and the net benefit of treating
            all rows. ``pooled`` contains each score pooled over domains.
        """
        return sites.site_decisions(self, self._evaluated(method), threshold)

    def validation_size(
        self, *, oe: float = 0.2, slope: float = 0.3, auc: float = 0.05
    ) -> ValidationSize:
        """Compute how many rows are needed to validate the recommended method at a new site.

        The number is large enough for all criteria. The new site is assumed to be like the held-out
        domains on average.

        Parameters
        ----------
        oe : float, default=0.2
            Observed divided by expected events should be known within a factor of 1 + ``oe`` (95 %
            interval). For a continuous target, this is the factor for the RMSE.
        slope : float, default=0.3
            The calibration slope should be known within ± ``slope``.
        auc : float, default=0.05
            The AUC should be known within ± ``auc``.

        Returns
        -------
        size : ValidationSize
            ``rows``, ``events`` (of the rarest class), and the rows needed for each criterion.

        References
        ----------
        R. D. Riley et al. (2021), "Minimum sample size for external validation of a clinical
        prediction model with a binary outcome", Statistics in Medicine 40.

        L. Archer et al. (2021), "Minimum sample size for external validation of a clinical
        prediction model with a continuous outcome", Statistics in Medicine 40.
        """
        return sites.validation_size(self, self.recommended, oe, slope, auc)

    def _evaluated(self, method: str | None) -> MethodResult:
        """Return the result of a method, or of the recommended one."""
        result = self.find(self.recommended_ if method is None else method)
        if result is None:
            raise ValueError(
                f"method={method!r} was not evaluated; use one of "
                f"{', '.join(result.key for result in self.results)}"
            )
        return result

    @property
    def answer(self) -> Answer:
        """The sentences on the first screen of the report."""
        return make_answer(self)

    def verdict(self) -> str:
        """Return sentences about the method to use, the score to expect, and the confidence.

        Returns
        -------
        sentences : str
            The text of the first screen of the report.
        """
        return " ".join(self.answer.sentences())

    def plot(self) -> Figure:
        """Return a matplotlib figure of every method's score on every domain.

        Returns
        -------
        figure : matplotlib figure
            A figure with one panel.
        """
        from domainwise.evaluation.page import scores_figure

        return scores_figure(self)

    def report(self, path: str | Path, *, title: str | None = None) -> Path:
        """Write the report as a single HTML file, and return its path.

        Scores of all methods by domain are written to a CSV file beside it, whose name ends in
        ``-sites.csv``.

        Parameters
        ----------
        path : path-like
            File to write; existing files are replaced.
        title : str, default=None
            Heading of the report.

        Returns
        -------
        path : Path
            The file that was written.
        """
        from domainwise.evaluation.page import write_report

        write_report(self, Path(path), title=title)
        return Path(path)

    def to_dict(self) -> dict[str, Any]:
        """Return the evaluation as JSON values, with None for undefined numbers.

        Returns
        -------
        content : dict
            The content of ``evaluation.json``.
        """
        source, grids, has_outputs = self.source, {}, sites.has_outputs(self, self.recommended)
        if source is not None:
            grids = {m.key: describe_grid(m.grid(source.classification)) for m in self.methods}
        content = {
            **self._scores(),
            "facts": self.facts,
            "recommended": self.recommended.key,
            "verdict": self.verdict(),
            "plan": self.plan,
            "next_step": self.next_step,
            "answer": {**asdict(self.answer), "range": self.next_site},
            "domain_weights": [self.weights.get(domain, 1.0) for domain in self.domains],
            "site_calibration": self.calibration().to_dict() if has_outputs else None,
            "site_decisions": self.decision_scores().to_dict()
            if has_outputs and self.threshold is not None
            else None,
            "validation_size": asdict(self.validation_size()) if has_outputs else None,
            "domain_rows": [self.row_counts.get(domain, 0) for domain in self.domains],
            "recipe": source
            and {  # the arguments of fit, without the rows
                "task": source.task,
                "scoring": source.measure.name,
                "inner_scoring": None if callable(source.inner_scoring) else source.inner_scoring,
                "pos_label": source.positive,
                "decision": source.overrides.get("decision", "auto"),
                "seed": source.seed,
                "grids": grids,
            },
            "label_gain": self.label_gain,
            "differences": self.differences,
            "site_columns": self.site_columns
            and {**asdict(self.site_columns), "safer_with": self.site_columns.safer_with},
            "others": [other._scores() for other in self.others],
        }
        return dict(to_json(content))

    def _scores(self) -> dict[str, Any]:
        """The entries of :meth:`to_dict` that depend on the measure."""
        name, label, is_larger_better = self.measure.name, self.measure.label, self.measure.sign > 0
        return {
            "measure": {"name": name, "label": label, "greater_is_better": is_larger_better},
            "domains": self.domains,
            "best": self.best.key,
            "baseline": None if self.baseline is None else self.baseline.key,
            "worst_domain": self.worst_domain,
            "notes": self.notes,
            "left_out": self.left_out,
            "methods": [self._method_dict(result) for result in self.results],
        }

    def to_json(self) -> str:
        """Return :meth:`to_dict` as JSON.

        Returns
        -------
        text : str
            One JSON object.
        """
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    def _text_rows(self) -> list[tuple[str, ...]]:
        """The table of methods as text, headings first."""
        headings = ("method", "mean", "worst", "worst domain", "seen", "p")
        return [headings, *((result.label, *self.cells(result)) for result in self.results)]

    def __str__(self) -> str:
        lines = [
            f"{label:18}{mean:>9}{worst:>9}{seen:>9}{p_value:>8}  {domain}"
            for label, mean, worst, domain, seen, p_value in self._text_rows()
        ]
        return "\n".join([f"{self.measure.label} on held-out domains", *lines, "", self.verdict()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The table and the verdict, for a notebook."""
        body = "".join(
            "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in row) + "</tr>"
            for tag, row in zip_longest(["th"], self._text_rows(), fillvalue="td")
        )
        title = f"{self.measure.label} ({self.measure.direction}) on held-out domains"
        return f"<p>{escape(title)}</p><table>{body}</table><p>{escape(self.verdict())}</p>"

    def cells(self, result: MethodResult) -> tuple[str, ...]:
        """A method's mean, worst score, worst domain, mean on seen domains and p-value, as text."""
        mean, worst, seen = map(self.show, (result.mean, result.worst, result.seen_mean))
        return mean, worst, str(result.worst_domain), seen, p_text(result.p_value)

    def _summary(self, result: MethodResult) -> dict[str, Any]:
        """Summary statistics of a method over domains, as displayed (errors are positive)."""
        to_displayed = self.measure.shown
        return {
            **dict(zip(("mean", "low", "high"), self.expect(result), strict=True)),
            "worst": to_displayed(result.worst),
            "worst_domain": result.worst_domain,
            "spread": result.spread,
            "seen": to_displayed(result.seen_mean),
            "p_value": result.p_value,
            "p_adjusted": result.p_adjusted,
            "seconds": result.seconds,
            "n_rows": result.n_rows,
        }

    def _method_dict(self, result: MethodResult) -> dict[str, Any]:
        """A method's entry in :meth:`to_dict`."""
        predictions, pooled = self.records.get(result.key), sites.pool_method(self, result)
        return {
            **to_json(result),
            **self._summary(result),
            "range": self.range_of(result),
            "calibration": calibrate_sets(predictions, self.facts["classes"])
            if predictions
            else None,
            "per_domain": self.domain_scores(result),
            "between_sites": pooled and pooled.to_dict(),
        }


def describe_grid(grid: Any) -> dict[str, Any] | None:
    """A method's parameter grid, for JSON; None if the method has no grid."""
    if grid is None:
        return None
    return {
        name: {"in": values.unit, "values": [*map(str, values.values)]}
        if isinstance(values, InUnits)
        else [*map(str, values)]
        for name, values in grid.items()
    }


def prediction_columns(
    prediction: Prediction, classes: Sequence[Any] | None, all_outputs: bool = False
) -> dict[str, Any]:
    """Predictions for the rows of one domain, as columns of a table.

    Decision values are included if there are no probabilities, or if ``all_outputs`` is True.
    """
    names = ("row", "domain", "target", "prediction", "weight")
    columns: dict[str, Any] = {
        name: array for name in names if (array := getattr(prediction, name)) is not None
    }
    if classes is None:
        return columns
    outputs = {"probability": prediction.probabilities, "decision": prediction.decisions}
    outputs = {name: output for name, output in outputs.items() if output is not None}
    for name in outputs if all_outputs else [*outputs][:1]:
        output = outputs[name]
        if np.ndim(output) == 1:
            columns[f"{name}_{classes[-1]}"] = output
        else:
            columns |= {f"{name}_{label}": output[:, i] for i, label in enumerate(classes)}
    return columns
