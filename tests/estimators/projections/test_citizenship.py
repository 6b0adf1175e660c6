"""Fast estimators in pipelines, searches and other scikit-learn tools."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from domainwise import FastCOIR, FastDCM, FastDICA, FastKPCA, FastMDA, FastMIDA, FastSCA
from domainwise.datasets import make_synthetic

METHODS = [FastDCM, FastCOIR, FastDICA, FastKPCA, FastSCA, FastMDA, FastMIDA]


@pytest.fixture(scope="module")
def data():
    return make_synthetic(n_domains=4, n_per_domain=30, random_state=0)


def test_domains_of_any_label_type_give_the_same_result(data):
    names = np.array(["north", "south", "east", "west"])[data.sample_domain]
    as_text = FastDCM(n_landmarks=30).fit(data.data, data.target, sample_domain=names)
    for other in (
        pd.Categorical(names),
        pd.Series(names, dtype="string"),
        pl.Series(names.tolist()),
        names.astype(object),
        names.tolist(),
    ):
        model = FastDCM(n_landmarks=30).fit(data.data, data.target, sample_domain=other)
        np.testing.assert_array_equal(model.dual_coef_, as_text.dual_coef_)
        assert model.domains_.tolist() == ["east", "north", "south", "west"]
    integers = FastDCM(n_landmarks=30).fit(
        data.data, data.target, sample_domain=pd.array(data.sample_domain, dtype="Int64")
    )
    np.testing.assert_allclose(integers.dual_coef_, as_text.dual_coef_, rtol=1e-6)


def test_sample_domain_is_routed_through_searches(data):
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), FastDCM(n_landmarks=40), SVC())
        search = GridSearchCV(
            pipeline,
            {"fastdcm__domain_weight": [0.01, 1.0]},
            cv=LeaveOneGroupOut().set_split_request(groups="sample_domain"),
        ).fit(data.data, data.target, sample_domain=data.sample_domain)
        assert len(search.best_estimator_["fastdcm"].domains_) == 4
        scores = cross_validate(
            pipeline,
            data.data,
            data.target,
            cv=LeaveOneGroupOut().set_split_request(groups="sample_domain"),
            params={"sample_domain": data.sample_domain},
            return_estimator=True,
        )
    assert [len(p["fastdcm"].domains_) for p in scores["estimator"]] == [3, 3, 3, 3]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_in_and_out(data, library):
    frame_of = {"pandas": pd.DataFrame, "polars": pl.DataFrame}[library]
    frame = frame_of(
        data.data,
        **{"pandas": {"columns": data.feature_names}, "polars": {"schema": data.feature_names}}[
            library
        ],
    )
    model = FastDCM(n_landmarks=30).set_output(transform=library)
    Z = model.fit_transform(frame, data.target, sample_domain=data.sample_domain)
    assert isinstance(Z, frame_of)
    assert list(Z.columns) == ["fastdcm0"]
    assert list(model.feature_names_in_) == list(data.feature_names)


@pytest.mark.parametrize("method", METHODS)
def test_copies_give_identical_projections(data, method):
    model = method(n_landmarks=20).fit(data.data, data.target, sample_domain=data.sample_domain)
    Z = model.transform(data.data)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.transform(data.data), Z)
    refitted = clone(model).fit(data.data, data.target, sample_domain=data.sample_domain)
    np.testing.assert_array_equal(refitted.transform(data.data), Z)
