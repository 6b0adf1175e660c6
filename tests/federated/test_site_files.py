"""Files of sites are data: what is not as a site writes it is refused with words."""

import io
import json
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")

from domainwise.federated import Plan, SiteFile, SiteFileError, fit, merge  # noqa: E402
from domainwise.federated import moments as moments_of  # noqa: E402
from domainwise.federated import statistics as statistics_of  # noqa: E402


def make_frame(seed, n=60):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(kind=rng.choice(["x", "y"], n), ill=rng.random(n) < 0.5)


@pytest.fixture(scope="module")
def sites():
    """A plan, the merged one, and the files of two sites."""
    frames = {name: make_frame(i) for i, name in enumerate(("north", "south"))}
    options = {"n_features": 6, "kernels": ("rbf",), "gammas": (0.5,), "smallest_cell": 5}
    plan = Plan.of_table(frames["north"], target="ill", **options)
    first = [statistics_of(frame, plan, site=name) for name, frame in frames.items()]
    merged = merge(plan, first)
    second = [moments_of(frame, merged, site=name) for name, frame in frames.items()]
    return plan, merged, first, second


def used(sites, file):
    """Merge or fit with a file in the place of the first site's."""
    plan, merged, first, second = sites
    if file.kind == "statistics":
        return merge(plan, [file, first[1]])
    return fit(merged, [file, second[1]])


def rewritten(path, change):
    """Change the parts of a file: a function of their names and bytes."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    change(parts)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def npy(array, **options):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, **options)
    return buffer.getvalue()


def declared(shape, dtype="<f8"):
    """An array that says that it has a shape, and has eight bytes."""
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + b"\0" * 8


def test_a_file_is_read_as_it_was_written(sites, tmp_path):
    for file in (*sites[2], *sites[3]):
        file.save(tmp_path / "file.npz")
        again = SiteFile.load(tmp_path / "file.npz")
        assert again.digest() == file.digest()
        assert again.words() == file.words()
        for name, array in file.arrays.items():
            np.testing.assert_array_equal(again.arrays[name], array)
        with np.load(tmp_path / "file.npz", allow_pickle=False) as plain:
            assert set(file.arrays) < set(plain.files)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("counts.npy", declared((2**40, 2**40)), "declares the shape"),
        ("counts.npy", declared((-1, -8)), "declares the shape|damaged"),
        ("mean0.npy", declared((2**62, 4)), "declares the shape"),
        ("mean0.npy", npy(np.full((2, 6), np.nan)), "NaN or infinite"),
        ("mean0.npy", npy(np.zeros((2, 6), dtype=np.float32)), "float64 are expected"),
        ("mean0.npy", npy(np.asfortranarray(np.zeros((2, 6)))), "float64 are expected"),
        ("mean0.npy", npy(np.array([print]), allow_pickle=True), "damaged"),
        ("mean0.npy", pickle.dumps([1]), "damaged"),
        ("mean0.npy", npy(np.zeros((2, 6))), "digest is another"),
        ("more.npy", npy(np.zeros(1)), "digest is another"),
        ("more.txt", b"text", "damaged"),
        ("about.json", b"{}", "damaged"),
        ("about.json", b"[" * 100_000, "damaged"),
    ],
)
def test_a_part_that_no_site_writes_is_refused(sites, tmp_path, name, content, words):
    path = tmp_path / "file.npz"
    sites[3][0].save(path)
    rewritten(path, lambda parts: parts.update({name: content}))
    with pytest.raises(SiteFileError, match=words):
        SiteFile.load(path)


def test_a_changed_word_or_site_is_noticed(sites, tmp_path):
    path = tmp_path / "file.npz"
    for change in ({"site": "west"}, {"plan": "0" * 64}, {"kind": "statistics"}, {"format": 2}):
        sites[3][0].save(path)
        about = json.dumps({**json.loads(zipfile.ZipFile(path).read("about.json")), **change})
        rewritten(path, lambda parts, about=about: parts.update({"about.json": about.encode()}))
        with pytest.raises(SiteFileError, match="digest|format"):
            SiteFile.load(path)


def test_truncated_compressed_and_foreign_files_are_refused(sites, tmp_path):
    path, other = tmp_path / "file.npz", tmp_path / "other.npz"
    sites[3][0].save(path)
    content = path.read_bytes()
    for part in (b"", content[: len(content) // 2], content[:-30], b"PK" + content[200:]):
        other.write_bytes(part)
        with pytest.raises(SiteFileError, match="damaged, or no file of a site"):
            SiteFile.load(other)
    np.savez_compressed(other, a=np.zeros(10**6))
    with pytest.raises(SiteFileError, match="compressed"):
        SiteFile.load(other)
    with pytest.raises(FileNotFoundError):
        SiteFile.load(tmp_path / "none.npz")


def test_another_plan_a_second_time_and_another_round_are_refused(sites):
    plan, merged, first, second = sites
    with pytest.raises(SiteFileError, match="site 'north' appears twice"):
        fit(merged, [second[0], second[1], second[0]])
    with pytest.raises(SiteFileError, match="holds statistics, where moments are needed"):
        fit(merged, first)
    with pytest.raises(SiteFileError, match="made with another plan"):
        fit(replace(merged, seed=3), second)
    with pytest.raises(SiteFileError, match="made with another plan"):
        merge(replace(plan, smallest_cell=6), first)
    for use in (merge, fit):
        with pytest.raises(SiteFileError, match="there is no file of"):
            use(plan if use is merge else merged, [])


def changed(file, name, change):
    array = file.arrays[name].copy()
    change(array)
    return replace(file, arrays={**file.arrays, name: array})


def at(place, value):
    def change(array):
        array[place] = value

    return change


@pytest.mark.parametrize(
    ("round_", "name", "change", "words"),
    [
        (1, "numbers", at((0, 0), -1.0), "negative"),
        (1, "numbers", at((2, 0), -1.0), "negative"),
        (1, "distances", at((0, 0), -1.0), "negative"),
        (1, "quantiles", at(0, 1e9), "have to rise"),
        (1, "lengths", at(0, 10**15), "quantiles"),
        (1, "lengths", at(0, -3), "quantiles|negative"),
        (2, "counts", at((0, 0), -7), "negative counts"),
        (2, "counts", at((0, 0), 2), "fewer than 5 rows"),
        (2, "counts", at((0, 0), 10**12), "other rows than its moments"),
        (2, "mean0", at((0, 0), 7.0), "of different rows"),
        (2, "sums0", at((0, 0, 0), 7.0), "of different rows"),
        (2, "second0", at((0, 0), -1.0), "not positive"),
        (2, "second0", at((0, 1), 1e6), "not positive"),
        (2, "watch", at((0, 0), 5.0), "other rows than its moments"),
        (2, "watch", at((0, 1), -5.0), "negative counts or squares"),
        (2, "freedom", at(0, 0.0), "other rows"),
    ],
)
def test_numbers_that_no_rows_can_have_are_refused(sites, round_, name, change, words):
    file = sites[1 + round_][0]
    with pytest.raises(SiteFileError, match=f"does not fit the plan: .*({words})"):
        used(sites, changed(file, name, change))


def test_other_shapes_names_and_types_are_refused(sites):
    for file, name in ((sites[2][0], "numbers"), (sites[3][0], "mean0")):
        rest = {n: array for n, array in file.arrays.items() if n != name}
        for arrays, words in (
            (rest, f"{name!r} is missing"),
            ({**file.arrays, "extra": np.zeros(1)}, "'extra' is missing, or too much"),
            ({**rest, name: file.arrays[name][:, :-1]}, "has shape"),
            ({**rest, name: file.arrays[name].astype(int)}, "has shape .* of int64"),
        ):
            with pytest.raises(SiteFileError, match=words):
                used(sites, replace(file, arrays=arrays))


@pytest.mark.parametrize(
    ("round_", "change", "words"),
    [
        (1, {"domains": {"north": 2}}, "no whole number from 5 on"),
        (1, {"domains": {"north": True}}, "no whole number"),
        (1, {"domains": {}}, "missing"),
        (1, {"categories": []}, "missing"),
        (1, {"categories": [{"x": -9}]}, "no whole number"),
        (1, {"left_out": "7"}, "left_out"),
        (2, {"domains": ["north", "north"]}, "different texts"),
        (2, {"domains": [3]}, "different texts"),
        (2, {"domains": None}, "does not fit"),
        (2, {"left_out": None}, "left_out"),
        (2, {"withheld": None}, "does not fit"),
        (1, {"withheld": [3]}, "not told in words"),
    ],
)
def test_words_and_counts_beside_the_arrays_are_looked_at_too(sites, round_, change, words):
    file = sites[1 + round_][0]
    with pytest.raises(SiteFileError, match=words):
        used(sites, replace(file, content={**file.content, **change}))
