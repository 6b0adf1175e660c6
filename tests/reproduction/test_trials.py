from dataclasses import replace

import numpy as np
import pytest

from domainwise import DCM
from domainwise.held_out.scoring.predictions import fit_with_domains
from reproduction.methods import METHODS, Parameters, build_pipeline, paper_parameters
from reproduction.protocols import METRICS, score_predictions
from reproduction.reference import algorithm1, algorithm2_stable
from reproduction.trials import (
    Trial,
    domain_folds,
    list_candidates,
    make_split,
    sample_tuning_rows,
    tune,
)


def test_a_trial_gives_one_row_per_method_with_all_metrics(tiny_case):
    rows = Trial(tiny_case, "paper", 0, tiny_case.methods, 0).run()
    assert [row["method"] for row in rows] == list(tiny_case.methods)
    assert all(row["status"] == "ok" for row in rows)
    dcm = next(row for row in rows if row["method"] == "dcm")
    assert set(dcm["metrics"]) == set(tiny_case.metrics)
    assert dcm["selection"]["parameters"]["ridge"] == 1e-3
    assert "paper's parameters" in dcm["selection"]["rule"]
    assert 0 <= dcm["invariance"]["domain_dependence"] <= 1
    majority = rows[0]
    assert majority["metrics"]["label_auc"] == 0.5


def test_the_dcm_row_is_what_a_user_would_get(tiny_case):
    from sklearn.svm import SVC

    (row,) = Trial(tiny_case, "paper", 1, ("dcm",), 0).run()
    split = make_split(tiny_case, 0, 1)
    model = DCM(gamma=0.2).fit(split.X, split.y, sample_domain=split.sample_domain)
    svm = SVC(gamma=0.2).fit(model.embedding_, split.y)
    score = 100 * np.mean(svm.predict(model.transform(split.X_test)) == split.y_test)
    assert row["metrics"]["accuracy"] == pytest.approx(score)


def test_tuning_never_sees_unseen_domains(tiny_case):
    """Changing every unseen row does not change the choice."""
    split = make_split(tiny_case, 0, 0)
    method = METHODS["dcm"]
    first = tune(tiny_case, method, split, np.random.default_rng(3), 0)
    split.X_test[:] = np.nan
    again = tune(tiny_case, method, split, np.random.default_rng(3), 0)
    assert first == again
    assert "held out" in first[1]["rule"]
    assert first[1]["candidates"] == 18


def test_a_tuned_row_records_the_rule_and_the_choice(tiny_case):
    (row,) = Trial(tiny_case, "tuned", 0, ("svm",), 0).run()
    assert row["selection"]["candidates"] == 16
    assert set(row["selection"]["parameters"]) == {"gamma", "C", "class_weight"}


def test_the_invariant_svm_without_weight_is_the_svm_and_searches_the_weight_last(tiny_case):
    split = make_split(tiny_case, 0, 0)
    svm, ours = METHODS["svm"], METHODS["invariant"]
    chosen, record = tune(tiny_case, svm, split, np.random.default_rng(3), 0)
    weighted, other = tune(tiny_case, ours, split, np.random.default_rng(3), 0)
    assert other["candidates"] == record["candidates"] + 3
    assert other["source_score"] >= record["source_score"]
    same = ("C", "gamma", "class_weight")
    assert all(getattr(weighted, name) == getattr(chosen, name) for name in same)
    predictions = []
    for method in (svm, ours):
        model = build_pipeline(tiny_case, method, chosen)
        fit_with_domains(model, split.X, split.y, split.sample_domain)
        predictions.append(model.predict(split.X_test))
    np.testing.assert_array_equal(*predictions)


def test_the_invariant_svm_is_weighted_in_the_paper_setting(tiny_case):
    (row,) = Trial(tiny_case, "paper", 0, ("invariant",), 0).run()
    assert row["status"] == "ok"
    assert row["selection"]["parameters"]["domain_weight"] == 1.0
    assert "invariance" not in row
    assert METHODS["invariant"].label_for("regression") == "InvariantSVR"


def test_held_out_domains_are_whole_and_cover_everything_once():
    domain = np.repeat(np.arange(7), 3)
    folds = list(domain_folds(domain, 3, np.random.default_rng(0)))
    assert len(folds) == 3
    np.testing.assert_array_equal(np.sum(folds, axis=0), 1)
    for held in folds:
        assert not set(domain[held]) & set(domain[~held])


def test_tuning_rows_per_domain_are_limited(tiny_case):
    split = make_split(tiny_case, 0, 0)
    rows = sample_tuning_rows(split, tiny_case, np.random.default_rng(0))
    _, counts = np.unique(split.sample_domain[rows], return_counts=True)
    assert counts.max() == tiny_case.tuning_rows


def test_a_grid_has_no_repeated_candidate(tiny_case):
    X = np.random.default_rng(0).normal(size=(30, 3))
    for name in ("svm", "kpca", "coir", "dica", "dcm", "fastdcm"):
        candidates = list_candidates(tiny_case, METHODS[name], X, 0)
        assert len(set(candidates)) == len(candidates) > 1


def test_a_failing_method_is_a_row_with_its_error(tiny_case):
    broken = replace(tiny_case, epsilon=-1.0)
    good, bad = Trial(broken, "paper", 0, ("svm", "dcm"), 0).run()
    assert good["status"] == "ok"
    assert bad["status"] == "error"
    assert "epsilon" in bad["error"]


def test_reference_models_project_like_the_reference_functions(tiny_case):
    from sklearn.metrics.pairwise import rbf_kernel

    split = make_split(tiny_case, 0, 0)

    def same(a, b):
        return (a[:, None] == b).astype(float)

    parameters = paper_parameters(tiny_case, METHODS["algorithm1"], split.y, len(split.X), 0)
    pipeline = build_pipeline(tiny_case, METHODS["algorithm1"], parameters)
    fit_with_domains(pipeline, split.X, split.y, split.sample_domain)
    K, K_z = rbf_kernel(split.X, gamma=0.2), rbf_kernel(split.X, split.X_test, gamma=0.2)
    labels = (same(split.y, split.y), same(split.sample_domain, split.sample_domain))
    direct = algorithm1(K, *labels, K_z, epsilon=1e-3, n_components=1)
    np.testing.assert_allclose(pipeline[:-1].transform(split.X_test), direct.projected_new)

    parameters = paper_parameters(tiny_case, METHODS["algorithm2"], split.y, len(split.X), 5)
    assert parameters.n_landmarks == round(len(split.X) / 2)
    model = build_pipeline(tiny_case, METHODS["algorithm2"], parameters)
    fit_with_domains(model, split.X, split.y, split.sample_domain)
    rng = np.random.default_rng(5)
    landmark_rows = np.sort(rng.choice(len(split.X), parameters.n_landmarks, replace=False))
    X_l, y_l, d_l = (
        split.X[landmark_rows],
        split.y[landmark_rows],
        split.sample_domain[landmark_rows],
    )
    direct = algorithm2_stable(
        rbf_kernel(split.X, X_l, gamma=0.2),
        rbf_kernel(X_l, gamma=0.2),
        same(split.y, y_l),
        same(y_l, y_l),
        same(split.sample_domain, d_l),
        same(d_l, d_l),
        rbf_kernel(X_l, split.X_test, gamma=0.2),
        epsilon=1e-3,
        n_components=1,
    )
    np.testing.assert_allclose(
        model[:-1].transform(split.X_test), direct.projected_new, rtol=1e-6, atol=1e-8
    )


def test_landmark_readings_of_m():
    assert METHODS["fastdcm"].n_landmarks(4600, 2) == 2300
    assert METHODS["fastdcm_count"].n_landmarks(4600, 2) == 2
    assert METHODS["fastdcm_fifth"].n_landmarks(4600, 2) == 920
    assert METHODS["dcm"].n_landmarks(4600, 2) is None


def test_a_row_contains_the_parameters_that_the_method_uses_as_json():
    import json

    parameters = Parameters(ridge=float("inf")).used_by(METHODS["coir"])
    assert "domain_weight" not in parameters
    assert json.loads(json.dumps(parameters, allow_nan=False))["ridge"] == "inf"


def test_label_auc_is_the_auc_of_hard_labels():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    label_auc = score_predictions(["label_auc"], y, predicted)["label_auc"]
    assert label_auc == pytest.approx(roc_auc_score(y, predicted))


def test_an_undefined_auc_is_omitted():
    y = np.ones(4, dtype=int)
    assert score_predictions(["label_auc", "score_auc"], y, y) == {}


def test_metrics_print_as_the_paper_does():
    assert METRICS["accuracy"].format(69.961, 5.809) == "69.96 ± 5.81"
    assert METRICS["g_mean"].format(0.10614, float("nan")) == "0.1061"
    assert not METRICS["rmse"].greater_is_better


def test_a_pipeline_fills_and_scales_as_the_case_asks(tiny_case):
    scaled = replace(tiny_case, scaling="standard")
    pipeline = build_pipeline(scaled, METHODS["dcm"], Parameters(), impute=True)
    assert list(pipeline.named_steps) == ["impute", "scale", "project", "predict"]
    assert list(build_pipeline(tiny_case, METHODS["svm"], Parameters()).named_steps) == ["predict"]
