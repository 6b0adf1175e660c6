"""Loaders of the real data sets: lookup, checksums, contents."""

import hashlib
import io
import shutil

import numpy as np
import pandas as pd
import pytest

from reproduction import data as datasets

NAMES = list(datasets.DATA_SETS)


@pytest.fixture
def no_data(tmp_path, monkeypatch):
    """Neither folder contains a data file."""
    monkeypatch.delenv("DOMAINWISE_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def data(data_dir, monkeypatch):
    """Find the real files through the environment variable."""
    absent = [name for name in NAMES if not (data_dir / datasets.DATA_SETS[name]["file"]).is_file()]
    if absent:
        pytest.skip(f"data files absent: {', '.join(absent)}")
    monkeypatch.setenv("DOMAINWISE_DATA", str(data_dir))
    return data_dir


@pytest.fixture
def tiny(no_data, monkeypatch):
    """A stand-in for the LandMine file, small and with its own checksum."""
    rows = ["domain," + ",".join(f"f{j}" for j in range(1, 10)) + ",label"]
    rows += [f"{i % 2 + 1}," + ",".join(["0.1"] * 9) + f",{i % 2}" for i in range(4)]
    table = no_data / "made" / "landmine.csv.gz"
    table.parent.mkdir()
    pd.read_csv(io.StringIO("\n".join(rows))).to_csv(table, index=False)
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    entry = {**datasets.DATA_SETS["landmine"], "sha256": digest}
    monkeypatch.setitem(datasets.DATA_SETS, "landmine", entry)
    return table


def load(name, **options):
    return getattr(datasets, f"load_{name}")(**options)


# Where files are found ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_error_about_a_missing_file_names_origin_and_folders(name, no_data, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(no_data / "named"))
    entry = datasets.DATA_SETS[name]
    with pytest.raises(FileNotFoundError) as caught:
        load(name)
    message = str(caught.value)
    assert entry["file"] in message
    assert str(no_data / "named") in message
    assert str(no_data / "cache" / "domainwise") in message
    assert "GitHub repository" in message


def test_the_error_names_an_unset_variable(no_data):
    with pytest.raises(FileNotFoundError, match=r"\$DOMAINWISE_DATA \(not set\)"):
        datasets.load_landmine()


def test_the_cache_is_used_if_the_folder_of_the_variable_lacks_the_file(tiny, no_data, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(no_data / "empty"))
    cache = no_data / "cache" / "domainwise"
    cache.mkdir(parents=True)
    shutil.copy(tiny, cache)
    assert datasets.load_landmine().data.shape == (4, 9)


def test_the_folder_of_the_variable_is_searched_before_the_cache(tiny, no_data, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tiny.parent))
    cache = no_data / "cache" / "domainwise"
    cache.mkdir(parents=True)
    (cache / tiny.name).write_bytes(b"wrong")
    assert datasets.load_landmine().target.tolist() == [0, 1, 0, 1]


def test_the_cache_is_in_the_home_folder_without_xdg(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for value in (None, "", "relative/path"):
        if value is None:
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        else:
            monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert datasets.cache_dir() == tmp_path / ".cache" / "domainwise"


def test_a_changed_file_is_refused_with_both_checksums(tiny, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tiny.parent))
    datasets.load_landmine()
    tiny.write_bytes(tiny.read_bytes() + b"\0")
    with pytest.raises(ValueError, match="not the expected file") as caught:
        datasets.load_landmine()
    assert datasets.DATA_SETS["landmine"]["sha256"] in str(caught.value)
    assert hashlib.sha256(tiny.read_bytes()).hexdigest() in str(caught.value)


def test_the_checksum_is_computed_once_for_an_unchanged_file(tiny, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tiny.parent))
    calls = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: calls.append(args) or digest(*args))
    datasets.load_landmine()
    datasets.load_landmine()
    assert len(calls) == 1


# Listing ------------------------------------------------------------------------------------------


def test_listing_shows_which_files_are_present(tiny, monkeypatch):
    monkeypatch.setenv("DOMAINWISE_DATA", str(tiny.parent))
    lines = datasets.list_datasets().splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert [line.split()[0] for line in lines if " present " in line] == ["landmine"]


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_describes_what_the_loader_returns(name, data):
    entry, bunch = datasets.DATA_SETS[name], load(name)
    assert bunch.data.shape == (entry["rows"], entry["features"])
    assert len(np.unique(bunch.sample_domain)) == entry["domains"]
    if "classes" in entry:
        assert len(np.unique(bunch.target)) == entry["classes"]


# Contents -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "hipc"])
def test_arrays_and_frames_agree(name, data):
    bunch, frames = load(name), load(name, as_frame=True)
    assert bunch.data.dtype == np.float64
    assert len(bunch.data) == len(bunch.target) == len(bunch.sample_domain)
    assert list(frames.data.columns) == bunch.feature_names
    np.testing.assert_array_equal(frames.data.to_numpy(), bunch.data)
    np.testing.assert_array_equal(frames.target.to_numpy(), bunch.target)
    np.testing.assert_array_equal(frames.sample_domain.to_numpy(), bunch.sample_domain)
    assert len(frames.frame) == len(bunch.data)
    assert "frame" not in bunch
    for heading in ("Source:", "License:", "Difference from the paper:"):
        assert heading in bunch.DESCR


def test_parkinsons_has_the_published_ranges_and_targets(data):
    parkinsons = datasets.load_parkinsons("both")
    assert parkinsons.feature_names[0] == "Jitter(%)"
    assert parkinsons.feature_names[-1] == "PPE"
    np.testing.assert_allclose(parkinsons.target.min(axis=0), [5.0377, 7.0], atol=0.01)
    np.testing.assert_allclose(parkinsons.target.max(axis=0), [39.511, 54.992], atol=0.01)
    np.testing.assert_array_equal(datasets.load_parkinsons().target, parkinsons.target[:, 0])
    np.testing.assert_array_equal(
        datasets.load_parkinsons("total_UPDRS").target, parkinsons.target[:, 1]
    )


def test_landmine_has_full_precision_and_904_mines(data):
    landmine = datasets.load_landmine()
    assert landmine.target.sum() == 904
    assert landmine.data[0, 0] == 1.368307903528228


def test_gvhd_t_cells_are_gates_one_and_three(data):
    cells, gates = datasets.load_gvhd(), datasets.load_gvhd("label")
    np.testing.assert_array_equal(cells.target == 1, np.isin(gates.target, [1, 3]))
    assert len(datasets.load_gvhd(ungated=False).data) == np.sum(gates.target != 0) == 198596


def test_oilwells_default_has_no_gaps_and_all_seven_wells(data):
    wells = datasets.load_oilwells()
    assert not np.isnan(wells.data).any()
    assert wells.feature_names == [
        f"{s}_{q}" for s in ("P-TPT", "T-TPT") for q in ("mean", "std", "slope", "range")
    ]
    oilwells = datasets.load_oilwells(missing="keep")
    assert oilwells.data.shape == (2306, 8)
    assert np.isnan(oilwells.data).any(axis=1).sum() == 10
    assert oilwells.target.mean() == pytest.approx(0.651, abs=1e-3)


def test_oilwells_accepts_other_events_and_sensors(data):
    everything = datasets.load_oilwells(
        event_classes=(2, 3, 4, 6), sensors=["P-PDG"], missing="keep"
    )
    assert everything.data.shape == (50544, 4)
    with pytest.raises(ValueError, match="leaves 2306 rows and 0 features"):
        datasets.load_oilwells(sensors=["QGL"], missing="drop_columns")


def test_facies_keeps_or_drops_the_missing_log(data):
    facies = datasets.load_facies()
    pe = facies.feature_names.index("PE")
    empty = np.isnan(facies.data[:, pe])
    assert set(facies.sample_domain[empty]) == {"ALEXANDER D", "KIMZEY A"}
    assert not np.isnan(np.delete(facies.data, pe, axis=1)).any()
    assert datasets.load_facies(missing="drop_columns").data.shape == (4069, 6)
    rows = datasets.load_facies(missing="drop_rows")
    assert rows.data.shape == (3164, 7)
    assert len(set(rows.sample_domain)) == 7
    recruit = datasets.load_facies(recruit=True)
    assert len(recruit.data) == 4149
    assert set(recruit.target[recruit.sample_domain == "Recruit F9"]) == {9}


def test_hipc_domains_can_be_samples_centres_or_patients(data):
    by_center = datasets.load_hipc("population", domain="center", as_frame=True)
    assert by_center.sample_domain.nunique() == 5
    assert by_center.target.nunique() == 10
    assert (by_center.data.dtypes == np.float64).all()
    assert set(datasets.load_hipc(domain="patient").sample_domain) == {"1228", "1349", "1369"}


def test_cytof_counts_can_be_transformed(data):
    raw, transformed = datasets.load_cytof(), datasets.load_cytof(cofactor=5)
    np.testing.assert_allclose(np.sinh(transformed.data) * 5, raw.data, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "smallest", "largest", "average"),
    [
        ("adult", 149, 450, 0.214),
        ("shoppers", 184, 600, 0.154),
        ("bike", 600, 600, 4.553),
        ("communities", 20, 278, 5.866),
        ("kc_house", 50, 80, 13.048),
    ],
)
def test_other_tables_have_the_described_counts_and_targets(name, smallest, largest, average, data):
    bunch = load(name)
    sizes = np.unique(bunch.sample_domain, return_counts=True)[1]
    assert (sizes.min(), sizes.max()) == (smallest, largest)
    assert bunch.target.mean() == pytest.approx(average, abs=1e-3)
    assert np.isfinite(bunch.data).all()


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("adult", {"workclass": 7, "marital-status": 7, "relationship": 6, "race": 5, "sex": 2}),
        ("shoppers", {"VisitorType": 3}),
    ],
)
def test_text_columns_become_one_indicator_per_value(name, columns, data):
    bunch, frames = load(name), load(name, as_frame=True)
    names = np.array(bunch.feature_names)
    for column, n_values in columns.items():
        indicators = bunch.data[:, np.char.startswith(names, f"{column}_")]
        assert indicators.shape[1] == n_values
        np.testing.assert_array_equal(indicators.sum(axis=1), 1)
    first = frames.frame["sex" if name == "adult" else "VisitorType"]
    for value in first.unique():
        np.testing.assert_array_equal(frames.data[f"{first.name}_{value}"], first == value)
    assert len(names) == len(frames.frame.columns) - 2 - len(columns) + sum(columns.values())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("parkinsons", {"target": "age"}, "target must be one of 'motor_UPDRS'.*got 'age'"),
        ("gvhd", {"target": "gate"}, "target must be one of 't_cell', 'label'; got 'gate'"),
        ("hipc", {"domain": "plate"}, "domain must be one of .* got 'plate'"),
        ("facies", {"missing": "mean"}, "missing must be one of .* got 'mean'"),
        ("oilwells", {"event_classes": [1]}, "event_classes must contain .* got \\[1\\]"),
        ("oilwells", {"sensors": []}, "sensors must contain one or more of"),
    ],
)
def test_invalid_options_are_refused_before_a_file_is_read(name, options, message, no_data):
    with pytest.raises(ValueError, match=message):
        load(name, **options)
