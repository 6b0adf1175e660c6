"""fit_parquet with folders, file footers, and damaged files."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from domainwise import KPCA, FastDCM, FastKPCA, InvariantFeatures
from domainwise.distributed.fit import fit_parquet

pytestmark = pytest.mark.dask

FEATURES = [f"x{i}" for i in range(10)]


@pytest.fixture
def frame(rows):
    return rows("three").frame()


@pytest.fixture
def folder(frame, tmp_path):
    """Return a folder with four files, each with several row groups."""
    for i, part in enumerate(np.array_split(np.arange(len(frame)), 4)):
        frame.iloc[part].to_parquet(tmp_path / f"part-{i}.parquet", row_group_size=30)
    return tmp_path


def damage(file, *, footer):
    """Overwrite the pages of a file, or cut off its footer."""
    data = bytearray(file.read_bytes())
    if footer:
        del data[-50:]
    else:
        data[10:2000] = bytes(1990)
    file.write_bytes(bytes(data))


@pytest.mark.parametrize("feature_map", ["nystroem", "fourier"])
def test_a_fit_to_files_equals_a_fit_to_their_rows(feature_map, folder, frame, client):
    model = FastDCM(n_landmarks=60, feature_map=feature_map)
    there = fit_parquet(clone(model), folder, target="y", domain="site", client=client)
    here = model.fit(frame[FEATURES], frame["y"], sample_domain=frame["site"])
    assert there.feature_names_in_.tolist() == FEATURES
    assert there.n_samples_seen_ == len(frame)
    np.testing.assert_allclose(
        there.transform(frame[FEATURES]), here.transform(frame[FEATURES]), atol=1e-10
    )


def test_an_exact_estimator_is_refused_with_the_name_of_its_fast_variant(folder):
    with pytest.raises(TypeError, match="KPCA needs all rows in memory.*Use FastKPCA"):
        fit_parquet(KPCA(), folder, target="y", domain="site")


def test_row_groups_are_read_together_up_to_a_size(folder, monkeypatch):
    many = fit_parquet(FastKPCA(n_landmarks=60), folder, target=None, domain=None, features=["x0"])
    assert many.solver_info_["n_partitions"] == 4
    monkeypatch.setattr("domainwise.distributed.parquet.PARTITION_BYTES", 1)
    each = fit_parquet(FastKPCA(n_landmarks=60), folder, target=None, domain=None, features=["x0"])
    assert each.solver_info_["n_partitions"] == 16
    assert many.gamma_ == each.gamma_


def test_rows_are_summed_where_they_are_read(client, tmp_path, monkeypatch):
    def sent(dask_worker):
        return dask_worker.transfer_outgoing_bytes_total

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((60_000, 20))).rename(columns="x{}".format)
    frame["y"], frame["site"] = rng.integers(2, size=(2, len(frame)))
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=3_000)
    monkeypatch.setattr("domainwise.distributed.parquet.PARTITION_BYTES", 1)
    monkeypatch.setattr("domainwise.algebra.backends.dask.SAMPLE_ROWS", 2_000)
    before = sum(client.run(sent).values())
    model = fit_parquet(FastDCM(n_landmarks=20), tmp_path, target="y", domain="site", client=client)
    moved = sum(client.run(sent).values()) - before
    n_partitions, row_bytes = model.solver_info_["n_partitions"], 8 * len(frame.columns)
    sums = n_partitions * 8 * 20**2
    assert n_partitions == 20
    assert sums / 4 < moved < 5 * sums + 2_500 * row_bytes < len(frame) * row_bytes / 10


def test_folder_names_become_columns(frame, tmp_path):
    for site, part in frame.groupby("site"):
        (tmp_path / f"site={site}").mkdir()
        part.drop(columns="site").to_parquet(tmp_path / f"site={site}" / "part.parquet")
    there = fit_parquet(FastDCM(n_landmarks=60), tmp_path, target="y", domain="site")
    assert there.domains_.tolist() == sorted(frame["site"].unique())
    assert there.feature_names_in_.tolist() == FEATURES
    assert there.n_samples_seen_ == len(frame)


def test_a_damaged_footer_is_reported_before_anything_is_computed(folder, client):
    damage(folder / "part-2.parquet", footer=True)
    with pytest.raises(OSError, match=r"cannot read .*part-2\.parquet"):
        fit_parquet(FastDCM(), folder, target="y", domain="site", client=client)


def test_a_damaged_partition_is_named_and_the_model_is_unchanged(folder, frame, client):
    model = FastDCM(n_landmarks=60)
    damage(folder / "part-2.parquet", footer=False)
    with pytest.raises(OSError, match=r"cannot read .*part-2\.parquet, row group"):
        fit_parquet(model, folder, target="y", domain="site", client=client)
    assert not [name for name in vars(model) if name.endswith("_")]
    frame.to_parquet(folder / "part-2.parquet")
    assert fit_parquet(model, folder, target="y", domain="site", client=client) is model


def test_a_fitted_model_is_unchanged_if_a_file_is_damaged(folder, frame):
    model = fit_parquet(FastDCM(n_landmarks=60), folder, target="y", domain="site")
    before = model.transform(frame[FEATURES])
    damage(folder / "part-0.parquet", footer=False)
    with pytest.raises(OSError, match=r"part-0\.parquet"):
        fit_parquet(model, folder, target="y", domain="site")
    np.testing.assert_array_equal(model.transform(frame[FEATURES]), before)


def test_an_error_about_missing_values_names_the_file(folder, frame):
    frame.loc[frame.index[:3], "x4"] = np.nan
    frame.to_parquet(folder / "part-3.parquet")
    with pytest.raises(ValueError, match=r"part-3\.parquet, row group 0: Input X contains NaN"):
        fit_parquet(FastDCM(), folder, target="y", domain="site")


def test_missing_files_and_empty_files_are_rejected(tmp_path, frame):
    with pytest.raises(FileNotFoundError, match="no Parquet files were found in"):
        fit_parquet(FastDCM(), tmp_path, target="y", domain="site")
    frame.iloc[:0].to_parquet(tmp_path / "empty.parquet")
    with pytest.raises(
        ValueError, match=r"no Parquet file contains rows \(number of files: 1, first file: "
    ):
        fit_parquet(FastDCM(), tmp_path, target="y", domain="site")


def test_an_error_about_a_missing_column_names_the_file(folder, frame):
    with pytest.raises(ValueError, match=r"part-0\.parquet has no column 'z'"):
        fit_parquet(FastDCM(), folder, target="z", domain="site")
    frame.drop(columns="x3").to_parquet(folder / "part-1.parquet")
    with pytest.raises(ValueError, match=r"part-1\.parquet has no column 'x3'"):
        fit_parquet(FastDCM(), folder, target="y", domain="site")


def test_text_features_and_labels_among_features_are_rejected(folder):
    with pytest.raises(ValueError, match="these columns of X are not: y"):
        fit_parquet(FastKPCA(), folder, target=None, domain="site")
    with pytest.raises(ValueError, match="'y' is also a target or domain column"):
        fit_parquet(FastDCM(), folder, target="y", domain="site", features=["x0", "y"])
    with pytest.raises(ValueError, match="'target' parameter of fit_parquet must be .* Got 3"):
        fit_parquet(FastDCM(), folder, target=3, domain="site")


@pytest.mark.parametrize("package", ["distributed", "dask"])
def test_a_missing_package_is_named(package, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf'needs {package}: pip install "domainwise\[dask'):
        fit_parquet(FastDCM(), folder, target="y", domain="site")


@pytest.mark.parametrize("name", [None, "row", "__null_dask_index__"])
def test_an_index_does_not_become_a_feature(frame, tmp_path, name):
    index = pd.Index(np.arange(len(frame))[::-1] * 1000, name=name)
    frame.set_index(index).to_parquet(tmp_path / "rows.parquet")
    model = fit_parquet(FastDCM(n_landmarks=60), tmp_path, target="y", domain="site")
    assert model.feature_names_in_.tolist() == FEATURES


def test_folder_names_are_decoded(frame, tmp_path):
    frame["site"] = np.array(["a b", "c/d", "e"])[np.arange(len(frame)) % 3]
    frame.to_parquet(tmp_path, partition_cols=["site"], index=False)
    for path in (tmp_path, f"{tmp_path}/*/*.parquet"):
        model = fit_parquet(FastDCM(n_landmarks=60), path, target="y", domain="site")
        assert model.domains_.tolist() == ["a b", "c/d", "e"]
    frame.loc[::7, "site"] = None
    frame.to_parquet(tmp_path / "gaps", partition_cols=["site"], index=False)
    with pytest.raises(ValueError, match="sample_domain contains missing values"):
        fit_parquet(FastDCM(n_landmarks=60), tmp_path / "gaps", target="y", domain="site")


@pytest.mark.parametrize("pattern", ["part-1*.parquet", "part-[12]*.parquet", "part-?.parquet"])
def test_a_pattern_selects_only_the_files_that_match_it(pattern, folder):
    from domainwise.distributed.parquet import read_footers

    names = [Path(footer.path).name for footer in read_footers(f"{folder}/{pattern}")]
    assert names == sorted(path.name for path in folder.glob(pattern))


def test_a_later_file_with_dates_is_rejected(folder, frame):
    frame["x3"] = pd.date_range("2024-01-01", periods=len(frame))
    frame.to_parquet(folder / "z.parquet")
    with pytest.raises(ValueError, match=r"z\.parquet: features must be numeric, but 'x3'"):
        fit_parquet(FastDCM(n_landmarks=60), folder, target="y", domain="site")


def test_features_must_be_a_list_of_distinct_names(folder):
    with pytest.raises(ValueError, match="'features' parameter of fit_parquet must be"):
        fit_parquet(FastDCM(), folder, target="y", domain="site", features="x0")
    with pytest.raises(ValueError, match="'y' is also a target or domain column"):
        fit_parquet(FastDCM(), folder, target="y", domain="site", features=["x0", "y"])


def test_invariant_features_do_not_use_y(folder, frame):
    there = fit_parquet(InvariantFeatures(n_landmarks=60), folder, target="y", domain="site")
    here = InvariantFeatures(n_landmarks=60)
    here.fit(frame[FEATURES], frame["y"], sample_domain=frame["site"])
    np.testing.assert_allclose(
        there.transform(frame[FEATURES]), here.transform(frame[FEATURES]), atol=1e-10
    )


def test_an_estimator_that_does_not_support_dask_is_named(tmp_path):
    from sklearn.svm import SVC

    with pytest.raises(TypeError, match="fit_parquet does not support SVC"):
        fit_parquet(SVC(), tmp_path, target="y", domain="site")
