"""Fit a model from the moments that several sites sent."""

from __future__ import annotations

import warnings
from functools import reduce
from typing import Any

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge
from sklearn.pipeline import Pipeline

from domainwise.arrays import Array
from domainwise.checks.inputs import label_array
from domainwise.evaluation.compare import compare_with_constant
from domainwise.federated.files import (
    SiteFile,
    SiteFileError,
    SiteFiles,
    default_output,
    load_files,
)
from domainwise.federated.plan import RIDGE, Plan, build, list_candidates
from domainwise.federated.second_round import check_moments, unpack_sums
from domainwise.gram.nystrom import NystromMap
from domainwise.gram.sums import Cells, CellSums, cells_by_split, joined_cells, merged_cells
from domainwise.models.registry import Setting, find_method
from domainwise.models.table_model import TableModel, describe_model
from domainwise.ridge.problem import (
    Columns,
    Penalties,
    RidgeProblem,
    error_score,
    score_cells,
    weighted_moments,
)
from domainwise.ridge.scores import class_targets
from domainwise.ridge.search import kernel_of
from domainwise.search.driver import SearchResult
from domainwise.shift.watch import MAX_SOURCES
from domainwise.splits.folds import LeaveDomainsOut, split_domains
from domainwise.tables.statistics import labels_by_text

METRICS = {
    "classification": "neg_squared_error_of_class_indicators",
    "regression": "neg_root_mean_squared_error",
}
Candidate = dict[str, Any]  #: arguments of a model


@default_output
def fit(plan: Plan, files: SiteFiles) -> TableModel:
    """Fit a model from the moments of several sites; candidates are scored on held-out sites.

    Each candidate gives the same model as if all rows were in one table. The commands ``predict``
    and ``info``, and :func:`~domainwise.check_shift`, accept the model like any other. A site can
    join later with the same plan. A site without a file affects the model only through the plan.

    Parameters
    ----------
    plan : Plan
        The plan returned by :func:`merge`.
    files : iterable of SiteFile or path-like
        Second-round files from at least two sites, one file per site, in any order.

    Returns
    -------
    model : TableModel
        ``model.pipeline[-1].expected_score_`` contains the selected candidate's error on each
        held-out site: the root mean squared error, or the squared error of class indicators (0 or
        1). ``model.info`` compares it with a constant prediction.
    """
    site_files = load_files(plan, files, "moments", check_moments)
    if len(site_files) < 2:
        raise SiteFileError(
            f"there is only one site, {site_files[0].site!r}, but each site is held out in turn. "
            "Add a file from another site"
        )
    has_class = np.array([file.arrays["counts"].any(axis=1) for file in site_files])
    n_classes_left = [np.delete(has_class, s, 0).any(axis=0).sum() for s in range(len(has_class))]
    if plan.classes is not None and max(n_classes_left) < 2:
        raise SiteFileError(
            "whichever site is held out, the other sites have only one class. Add a site with rows "
            "from another class"
        )
    site_search, method = _Search(plan, site_files), find_method(plan.method)
    try:
        run_search = site_search.fit_ridge if plan.method == RIDGE else site_search.fit_projection
        model, candidates, best_scores, best_candidate = run_search()
    except ValueError as error:
        sites_text = ", ".join(site_search.site_names)
        raise SiteFileError(
            f"no model can be fitted from the moments of the sites {sites_text}: {error}. Omit "
            "sites whose rows are all identical"
        ) from error
    classes = None if plan.classes is None else list(plan.classes)
    setting = Setting(
        classes is not None, site_search.n_rows, class_weight=plan.class_weight, seed=plan.seed
    )
    search, watch = method.make(setting), plan.watch
    search.set_fitted(model, best_candidate, candidates)
    if classes is not None:
        search.decide_by_counts(np.concatenate([file.arrays["counts"] for file in site_files]))
    search.expected_score_ = errors = site_search.convert_scores(best_scores)
    # For each domain: totals over rows (the row count is first), and kernel degrees of freedom.
    summary_by_domain: dict[str, tuple[Array, float]] = {}
    for file in site_files:
        domain_fields = [file.content["domains"], file.arrays["watch"], file.arrays["freedom"]]
        for name, totals, freedom in zip(*domain_fields, strict=True):
            earlier_totals, earlier_freedom = summary_by_domain.get(name, (0.0 * totals, 0.0))
            share = totals[0] / (totals[0] + earlier_totals[0])
            mean_freedom = float((1 - share) * earlier_freedom + share * freedom)
            summary_by_domain[name] = earlier_totals + totals, mean_freedom
    row_counts = {name: int(totals[0]) for name, (totals, _) in summary_by_domain.items()}
    sorted_names = sorted(row_counts, key=lambda name: -row_counts[name])
    watch.sources_ = sorted(sorted_names[:MAX_SOURCES])
    watch.totals_ = np.array([summary_by_domain[name][0] for name in watch.sources_])
    watch.freedom_ = np.array([summary_by_domain[name][1] for name in watch.sources_])
    label_by_name = labels_by_text(row_counts)
    domains = sorted((label_by_name[name], n) for name, n in row_counts.items())
    notes = _list_notes(plan, site_files)
    info = describe_model(method, setting, search, classes=classes, domains=domains, notes=notes)
    info |= {"sites": site_search.site_names, "plan": plan.hash, "expected_score": errors}
    if len(errors) > 1:
        constant_errors = site_search.convert_scores(site_search.score_constant())
        scores = [{site: -e for site, e in d.items()} for d in (errors, constant_errors)]
        info["check"] = vars(compare_with_constant(METRICS[plan.schema.task], *scores))
    steps = [("watch", watch), ("prepare", plan.prepare), ("model", search)]
    return TableModel(Pipeline(steps), plan.schema, info)


def _list_notes(plan: Plan, site_files: list[SiteFile]) -> list[str]:
    sites, first_round_sites = {file.site for file in site_files}, set(plan.first_round("sites"))
    notes = [f"fitted from the moments of {len(site_files)} sites, which do not share their rows"]
    if late_text := ", ".join(sorted(sites - first_round_sites)):
        notes.append(
            f"sites that joined later, not used for preprocessing or kernel widths: {late_text}"
        )
    if early_text := ", ".join(sorted(first_round_sites - sites)):
        notes.append(f"sites that are used for preprocessing and kernel widths only: {early_text}")
    if n_left_out := sum(file.content["left_out"] for file in site_files):
        notes.append(f"{n_left_out} rows have no target or domain and are left out")
    if accepting_text := ", ".join(file.site for file in site_files if file.content["accepted"]):
        consequence = f"rows from {accepting_text} could be reconstructed from this model"
        notes.append(f"disclosure was accepted: {consequence}")
    return notes


class _Search:
    """A search for the best candidate, given moments from all sites; each site is held out once.

    The fit methods return the model, all candidates, and the best candidate's scores and arguments.
    """

    def __init__(self, plan: Plan, site_files: list[SiteFile]) -> None:
        self.plan, self.site_files = plan, site_files
        self.site_names = [file.site for file in site_files]
        self.n_rows = sum(int(file.arrays["counts"].sum()) for file in site_files)
        self.splits = split_domains(LeaveDomainsOut(), len(site_files))[1]
        self.n_inputs = len(plan.prepare.get_feature_names_out())
        # Penalties of the predictor; a projection has its own.
        self.penalties = Penalties([(0.0, False)], [1.0], 1.0, plan.class_weight)
        self.map_arguments: Candidate = {
            "feature_map": "fourier" if plan.feature_map == "fourier" else "nystroem",
            "n_landmarks": plan.first_round("columns"),
            "random_state": plan.seed,
        }

    def unpack_cells(self, map_index: int) -> Cells:
        """Return the sums of one map, by site index and class code."""
        classes = self.plan.classes
        return {
            (s, None if classes is None else c): cell
            for s, file in enumerate(self.site_files)
            for c, cell in enumerate(unpack_sums(file, map_index, classes))
            if cell.n_samples
        }

    def describe_columns(self, nystrom: NystromMap) -> Columns:
        """Describe the columns in a map's moments."""
        m = nystrom.n_features
        if self.plan.classes is None:
            return Columns(m, self.plan.width(nystrom) - m - 1)
        return Columns(m, 0, dict(enumerate(class_targets(len(self.plan.classes)))))

    def convert_scores(self, scores: Array) -> dict[str, float]:
        """Convert scores (negative squared errors) to errors by site; omit undefined scores."""
        # Targets -1 and 1 differ by 2, indicators by 1, so squared errors differ by a factor of 4.
        errors = np.sqrt(-scores) if self.plan.classes is None else -scores / 4.0
        return {s: float(e) for s, e in zip(self.site_names, errors, strict=True) if np.isfinite(e)}

    def score_constant(self) -> Array:
        """Return the scores of a constant prediction: the mean target of the other sites."""
        columns, cells = self.describe_columns(self.plan.maps[0]), self.unpack_cells(0)
        scorer = error_score(columns)

        def score_mean(split: Any, problem: RidgeProblem, solutions: Array, test: Any) -> Any:
            return scorer(split, problem, 0.0 * solutions, test)  # zeros predict the mean

        return score_cells(cells, columns, self.splits, self.penalties, score_mean)[0]

    def fit_ridge(self) -> tuple[Any, list[Candidate], Array, Candidate]:
        """Fit kernel ridge regression, which has its own search."""
        plan, labels = self.plan, dict(enumerate(self.plan.classes or ()))
        arguments: Candidate = {"kernels": plan.kernels, "gammas": plan.gammas, **plan.candidates}
        arguments |= {"class_weight": plan.class_weight} if labels else {}
        model = build(plan.method, bool(labels), **arguments, **self.map_arguments)
        map_cells = []
        for i in range(len(plan.maps)):
            cells = self.unpack_cells(i).items()
            map_cells.append({(self.site_names[s], labels.get(c)): cell for (s, c), cell in cells})
        cv_results = model.fit_sums(plan.maps, CellSums(map_cells), self.n_inputs).cv_results_
        score_keys = [f"split{i}_test_score" for i in range(len(self.site_names))]
        scores = np.array([cv_results[key][model.best_index_] for key in score_keys])
        return model, cv_results["params"], scores, model.best_params_

    def fit_projection(self) -> tuple[Any, list[Candidate], Array, Candidate]:
        """Fit a projection followed by a predictor; candidates are scored by least squares."""
        plan, candidates, map_scores = self.plan, [], []
        grid = list_candidates(plan.method, plan.candidates, plan.classes is not None, self.n_rows)
        for i, nystrom in enumerate(plan.maps):
            kernel_arguments = dict(zip(("kernel", "gamma"), kernel_of(nystrom), strict=True))
            map_candidates = [{**kernel_arguments, **candidate} for candidate in grid]
            candidates += map_candidates
            map_scores.append(self._score_grid(nystrom, self.unpack_cells(i), map_candidates))
        score_table = np.vstack(map_scores)
        best_index = SearchResult.from_scores(candidates, score_table).indices[0]
        map_index = best_index // len(grid)
        nystrom, site_cells = plan.maps[map_index], self.unpack_cells(map_index)
        cells: Cells = reduce(merged_cells, ({c: cell} for (_, c), cell in site_cells.items()))
        projection, W = self._fit_components(nystrom, cells, candidates[best_index])
        if plan.classes is None:
            predictor: Any = Ridge()
            problem = self.penalties.problem(cells, self.describe_columns(nystrom))
            # Components are centred, so the intercept is the mean target.
            predictor.coef_ = solve_ridge(problem, W, predictor.alpha)[:, 0]
            predictor.intercept_ = float(problem.target_mean[0])
            predictor.n_features_in_ = W.shape[1]
        else:
            cells = {c: cells[c] for c in sorted(cells)}
            class_labels = label_array([plan.classes[c] for c in cells], "y")
            predictor = fit_discriminant(cells, W, class_labels)
        model = Pipeline([("project", projection), ("predict", predictor)])
        return model, candidates, score_table[best_index], candidates[best_index]

    def _score_grid(self, nystrom: NystromMap, cells: Cells, candidates: list[Candidate]) -> Array:
        """Score the candidates for a map on each held-out site; undefined scores are NaN."""
        columns = self.describe_columns(nystrom)
        scorer, scores = error_score(columns), np.full((len(candidates), len(self.splits)), np.nan)
        for s, (train, test) in enumerate(cells_by_split(cells, self.splits)):
            if self.plan.classes is not None and len(train) < 2:
                continue
            problem = self.penalties.problem(train, columns)
            test_moments = weighted_moments(test, dict.fromkeys(test, 1.0), columns)
            for j, candidate in enumerate(candidates):
                with warnings.catch_warnings():  # do not warn about individual splits
                    warnings.simplefilter("ignore", UserWarning)
                    W = self._fit_components(nystrom, train, candidate)[1]
                scores[j, s] = scorer(s, problem, W @ solve_ridge(problem, W), test_moments)[0]
        return scores

    def _fit_components(
        self, nystrom: NystromMap, cells: Cells, candidate: Candidate
    ) -> tuple[Any, Array]:
        """Fit a projection to sums by class; return it and its weights for the map's columns."""
        plan = self.plan
        projection = build(plan.method, True, **candidate, **self.map_arguments)
        projection.fit_sums(nystrom, joined_cells(cells), self.n_inputs, plan.target_map)
        dual_coef, triangle = projection.dual_coef_, nystrom.triangle
        return projection, dual_coef if triangle is None else triangle.T @ dual_coef


def solve_ridge(problem: RidgeProblem, W: Array, alpha: float = 1.0) -> Array:
    """Fit ridge coefficients of components, which are a map's centred columns times W."""
    gram = W.T @ problem.second @ W + alpha * np.eye(W.shape[1])
    return np.asarray(np.linalg.solve(gram, W.T @ problem.cross))


def fit_discriminant(cells: Cells, W: Array, classes: Array) -> Any:
    """Fit a linear discriminant analysis of components from the sums of each class."""
    m, counts = len(W), np.array([cell.n_samples for cell in cells.values()])
    shares = counts / counts.sum()
    means = np.array([cell.mean[:m] @ W for cell in cells.values()])
    means -= shares @ means  # because a projection centres its components
    within_scatter = sum(W.T @ cell.second[:m, :m] @ W for cell in cells.values())
    coef = means @ np.linalg.pinv(within_scatter / counts.sum(), hermitian=True)
    model: Any = LinearDiscriminantAnalysis()
    model.priors_ = shares
    intercept = -0.5 * (coef * means).sum(axis=1) + np.log(model.priors_)
    if len(classes) == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    model.classes_, model.coef_, model.intercept_ = classes, coef, intercept
    model.means_, model.xbar_, model.n_features_in_ = means, np.zeros(W.shape[1]), W.shape[1]
    return model
