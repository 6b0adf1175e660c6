"""Site files contain only data; other or invalid content is rejected with a message."""

import contextlib
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

TOO_LARGE = f"got int with an absolute value of at least {2**63}"


def make_frame(seed, n=60):
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame(rng.normal(size=(n, 2)), columns=["a", "b"])
    return frame.assign(kind=rng.choice(["x", "y"], n), ill=rng.random(n) < 0.5)


@pytest.fixture(scope="module")
def sites():
    """Return a plan, the merged plan, and the first- and second-round files from two sites."""
    frames = {name: make_frame(i) for i, name in enumerate(("north", "south"))}
    options = {"n_features": 6, "kernels": ("rbf",), "gammas": (0.5,), "smallest_cell": 5}
    plan = Plan.of_table(frames["north"], target="ill", **options)
    first = [statistics_of(frame, plan, site=name) for name, frame in frames.items()]
    merged = merge(plan, first)
    accepted = {"accept_disclosure": True}
    second = [moments_of(frame, merged, site=name, **accepted) for name, frame in frames.items()]
    return plan, merged, first, second


def merge_or_fit(sites, file):
    """Merge or fit with this file instead of the file from the first site."""
    plan, merged, first, second = sites
    if file.kind == "statistics":
        return merge(plan, [file, first[1]])
    return fit(merged, [file, second[1]])


def rewritten(path, change):
    """Change the members of a file; ``change`` edits a dict of bytes by name."""
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


def array_with_declared_shape(shape, dtype="<f8"):
    """Return an array file that declares this shape, but contains eight bytes."""
    buffer = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + b"\0" * 8


def test_a_loaded_file_equals_the_saved_one(sites, tmp_path):
    for file in (*sites[2], *sites[3]):
        file.save(tmp_path / "file.npz")
        again = SiteFile.load(tmp_path / "file.npz")
        assert again.digest() == file.digest()
        assert again.describe() == file.describe()
        for name, array in file.arrays.items():
            np.testing.assert_array_equal(again.arrays[name], array)
        with np.load(tmp_path / "file.npz", allow_pickle=False) as plain:
            assert set(file.arrays) < set(plain.files)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("counts.npy", array_with_declared_shape((2**40, 2**40)), "declares the shape"),
        (
            "counts.npy",
            array_with_declared_shape((-1, -8)),
            r"declares the shape \(-1, -8\), but its size does not match",
        ),
        ("sums0.npy", array_with_declared_shape((2**62, 4)), "declares the shape"),
        ("sums0.npy", npy(np.full((2, 1, 6), np.nan)), "NaN or infinite"),
        (
            "sums0.npy",
            npy(np.zeros((2, 1, 6), dtype=np.float32)),
            "must be int64 or float64 in C order; got float32 in C order",
        ),
        (
            "sums0.npy",
            npy(np.asfortranarray(np.zeros((2, 1, 6)))),
            "must be int64 or float64 in C order; got float64 in Fortran order",
        ),
        (
            "sums0.npy",
            npy(np.array([print]), allow_pickle=True),
            "'sums0.npy' must be int64 or float64 in C order; got object",
        ),
        ("sums0.npy", pickle.dumps([1]), "the magic string is not correct"),
        ("sums0.npy", npy(np.zeros((2, 1, 6))), "digest does not match"),
        ("more.npy", npy(np.zeros(1)), "digest does not match"),
        ("more.txt", b"text", "reading magic string, expected 8 bytes got 4"),
        ("about.json", b"{}", "about.json: the field 'content' is missing"),
        ("about.json", b"[" * 100_000, "recursion"),
    ],
)
def test_an_invalid_member_is_rejected(sites, tmp_path, name, content, words):
    path = tmp_path / "file.npz"
    sites[3][0].save(path)
    rewritten(path, lambda parts: parts.update({name: content}))
    with pytest.raises(SiteFileError, match=words):
        SiteFile.load(path)


def test_a_changed_description_is_detected(sites, tmp_path):
    path = tmp_path / "file.npz"
    for change, words in (
        ({"site": "west"}, "digest does not match"),
        ({"plan": "0" * 64}, "digest does not match"),
        ({"kind": "statistics"}, "digest does not match"),
        ({"kind": "model"}, "about.json, kind: expected one of .*, got str"),
        ({"format": 1}, "it has format 1, but this version reads format 2"),
        ({"site": 3}, "about.json, site: expected str, got int"),
        (
            {"notes": ["an unexpected note"]},
            "about.json: the field 'notes' is unexpected",
        ),
    ):
        sites[3][0].save(path)
        about = json.dumps({**json.loads(zipfile.ZipFile(path).read("about.json")), **change})
        rewritten(path, lambda parts, about=about: parts.update({"about.json": about.encode()}))
        with pytest.raises(SiteFileError, match=words):
            SiteFile.load(path)


def test_truncated_compressed_and_other_files_are_rejected(sites, tmp_path):
    path, other = tmp_path / "file.npz", tmp_path / "other.npz"
    sites[3][0].save(path)
    content = path.read_bytes()
    for part in (b"", content[: len(content) // 2], content[:-30], b"PK" + content[200:]):
        other.write_bytes(part)
        with pytest.raises(SiteFileError, match="cannot be read as a site file"):
            SiteFile.load(other)
    np.savez_compressed(other, a=np.zeros(10**6))
    with pytest.raises(SiteFileError, match="compressed"):
        SiteFile.load(other)
    with pytest.raises(FileNotFoundError):
        SiteFile.load(tmp_path / "none.npz")


def test_files_from_another_plan_or_round_and_duplicates_are_rejected(sites):
    plan, merged, first, second = sites
    with pytest.raises(SiteFileError, match="there are two files for site 'north'"):
        fit(merged, [second[0], second[1], second[0]])
    with pytest.raises(SiteFileError, match="contains statistics, but moments are needed"):
        fit(merged, first)
    with pytest.raises(SiteFileError, match="was created with plan .*, but this is plan"):
        fit(replace(merged, seed=3), second)
    with pytest.raises(SiteFileError, match="was created with plan .*, but this is plan"):
        merge(replace(plan, smallest_cell=6), first)
    for use in (merge, fit):
        with pytest.raises(SiteFileError, match="no (first|second)-round file was passed"):
            use(plan if use is merge else merged, [])


def changed(file, name, change):
    array = file.arrays[name].copy()
    change(array)
    return replace(file, arrays={**file.arrays, name: array})


def at(place, value):
    def change(array):
        array[place] = value

    return change


def times(factor):
    def change(array):
        array *= factor

    return change


@pytest.mark.parametrize(
    ("round_", "name", "change", "words"),
    [
        (1, "numbers", at((0, 0), -1.0), "count in 'numbers' must be 0 or an integer from 5"),
        (1, "numbers", at((0, 0), 2.0), "count in 'numbers' must be 0 or an integer from 5"),
        (1, "numbers", at((0, 0), 61.0), "count in 'numbers' must be .* from 5 to 60"),
        (1, "numbers", at((0, 0), 50.5), "count in 'numbers' must be 0 or an integer from 5"),
        (1, "numbers", at((1, 0), 1e308), "differs from that of its 'blocks'"),
        (1, "numbers", at((1, 0), 5.0), "differs from that of its 'blocks'"),
        (1, "numbers", at((2, 0), -1.0), "squared deviations in 'numbers' are smaller than"),
        (1, "numbers", at((2, 0), 1e308), "squared deviations in 'numbers' .*, or too large"),
        (1, "distances", at((0, 0), -1.0), "'distances' must be non-negative"),
        (1, "distances", at((0, 0), 1e9), "'distances' must be .* in ascending order"),
        (1, "distances", at((0, 4), 1e308), "'distances' exceed 1e\\+150"),
        (
            1,
            "blocks",
            at(0, 1e9),
            "'blocks' must be in ascending order, with no entry for a column without values",
        ),
        (1, "blocks", at(5, 1e300), "'blocks' .* exceed 1e\\+150"),
        (1, "lengths", at(0, 10**15), "'lengths' must contain integers from 0 to 100"),
        (1, "lengths", at(0, 0), "'blocks' must have shape"),
        (1, "lengths", at(0, -3), "'lengths' must contain integers from 0 to 100"),
        (2, "counts", at((0, 0), -7), "'counts' must contain integers from 0 to 10000000000"),
        (
            2,
            "counts",
            at((0, 0), 2),
            "each entry of 'counts' must be 0 or at least 5, and each domain must have a nonzero",
        ),
        (2, "counts", at((0, 0), 10**12), "'counts' must contain integers from 0 to 10000000000"),
        (2, "counts", at((0, 0), 10**9), "all sites together had 120 in the first round"),
        (2, "counts", at(0, 0), r"\('watch'\) and 'counts' report different numbers of rows"),
        (
            2,
            "sums0",
            at((0, 0, 0), 700.0),
            "'sums0' implies column means that no set of rows could produce",
        ),
        (2, "sums0", times(1e6), "'sums0' implies column means that no set of rows could produce"),
        (
            2,
            "sums0",
            at((0, 0, 0), 1e308),
            "'sums0' implies column means that no set of rows could produce",
        ),
        (
            2,
            "second0",
            times(1e6),
            "'second0' contains variances that are too large, given 'sums0'",
        ),
        (
            2,
            "second0",
            times(4.0),
            "'second0' contains variances that are too large, given 'sums0'",
        ),
        (
            2,
            "second0",
            at((0, 0), 1e308),
            "'second0' contains variances that are too large, given 'sums0'",
        ),
        (2, "second0", at((0, 0), -1.0), "'second0' must be positive semi-definite"),
        (2, "second0", at((0, 1), 1e6), "'second0' must be positive semi-definite"),
        (2, "watch", at((0, 0), 50.0), r"\('watch'\) and 'counts' report different numbers"),
        (2, "watch", at((0, 1), -5.0), r"\('watch'\) contain 'missing' counts"),
        (2, "watch", at((0, 1), 2.0**80), r"\('watch'\) contain 'missing' counts"),
        (2, "watch", times(1e6), r"\('watch'\) and 'counts' report different numbers"),
        (2, "watch", at((0, -1), 1e6), "squared norms"),
        (2, "watch", at((0, -2), 59.0), "kernel means that contradict 'norms'"),
        (2, "freedom", at(0, 0.0), "'freedom' must be positive"),
        (2, "freedom", at(0, 1e300), "'freedom' must be positive and at most"),
    ],
)
def test_numbers_that_no_rows_can_have_are_rejected(sites, round_, name, change, words, tmp_path):
    file = changed(sites[1 + round_][0], name, change)
    file.save(tmp_path / "north.npz")  # with a matching digest
    with pytest.raises(SiteFileError, match=words) as caught:
        merge_or_fit(sites, SiteFile.load(tmp_path / "north.npz"))
    assert "the file from site 'north' cannot be used: " in str(caught.value)
    assert "Ask the site to create it again from its rows, or omit it" in str(caught.value)


def test_one_site_cannot_dominate_the_model(sites):
    """The sums of a site are a million times too large, first without and then with counts."""
    merged, (north, south) = sites[1], sites[3]
    arrays = {n: a * 1e6 if n[:3] in ("sum", "sec") else a for n, a in south.arrays.items()}
    with pytest.raises(
        SiteFileError, match="'sums0' implies column means that no set of rows could produce"
    ):
        fit(merged, [north, replace(south, arrays=arrays)])
    many = south.arrays["counts"] * 10**6
    arrays |= {"counts": many, "watch": south.arrays["watch"] * 1e6}
    with pytest.raises(SiteFileError, match="'counts' adds up to 60000000 rows, but all sites"):
        fit(merged, [north, replace(south, arrays=arrays)])


def test_values_in_another_unit_are_rejected_before_they_are_merged(sites):
    plan, _, (north, south), _ = sites
    for factor in (1e7, 1e140):
        scaled = {**south.arrays, "blocks": south.arrays["blocks"] * factor}
        scaled["numbers"] = south.arrays["numbers"] * np.array([1, factor, factor**2])[:, None]
        with pytest.raises(
            SiteFileError, match="'south' is inconsistent with the other files: values of"
        ):
            merge(plan, [north, replace(south, arrays=scaled)])


def test_a_continuous_target_far_from_all_others_is_rejected():
    frames = {name: make_frame(i).assign(ill=lambda f: f["a"]) for i, name in enumerate("nsw")}
    options = {"n_features": 4, "kernels": ("rbf",), "gammas": (0.5,)}
    plan = Plan.of_table(frames["n"], target="ill", **options)
    merged = merge(plan, [statistics_of(f, plan, site=s) for s, f in frames.items()])
    files = [moments_of(f, merged, site=s, accept_disclosure=True) for s, f in frames.items()]
    assert fit(merged, files).info["n_rows"] == 180
    for name in ("sums0", "second0"):
        bad = files[0].arrays[name].copy()
        bad[..., -1] *= 1e9
        bad = replace(files[0], arrays={**files[0].arrays, name: bad})
        words = "(implies column means that no set of rows|contains variances that are too large)"
        words = f"{name!r} {words}"
        with pytest.raises(SiteFileError, match=words):
            fit(merged, [bad, *files[1:]])


def test_other_shapes_names_and_types_are_rejected(sites):
    for file, name in ((sites[2][0], "numbers"), (sites[3][0], "sums0")):
        rest = {n: array for n, array in file.arrays.items() if n != name}
        for arrays, words in (
            (rest, f"{name!r} is missing"),
            ({**file.arrays, "extra": np.zeros(1)}, "the array 'extra' is unexpected"),
            ({**rest, name: file.arrays[name][..., :-1]}, "must have shape"),
            ({**rest, name: file.arrays[name].astype(int)}, "must have shape .* and dtype int64"),
        ):
            with pytest.raises(SiteFileError, match=words):
                merge_or_fit(sites, replace(file, arrays=arrays))


@pytest.mark.parametrize(
    ("round_", "change", "words"),
    [
        (1, {"rows": 2}, "'rows' is 2; it must be between 5 and 10000000000"),
        (1, {"rows": 2**80}, f"content, rows: expected int, {TOO_LARGE}"),
        (1, {"rows": True}, "content, rows: expected int, got bool"),
        (1, {"rows": None}, "content, rows: expected int, got NoneType"),
        (1, {"classes": [30]}, "'classes' must contain 2 counts, .* add up to 'rows' \\(60\\)"),
        (1, {"classes": [-(2**63), 5]}, rf"content, classes\[0\]: expected int, {TOO_LARGE}"),
        (1, {"classes": None}, "content, classes: expected a list, got NoneType"),
        (1, {"classes": {"no": 60}}, "content, classes: expected a list, got dict"),
        (1, {"categories": []}, "'categories' must have length 1, with counts"),
        (1, {"categories": None}, "content, categories: expected a list, got NoneType"),
        (1, {"categories": [None]}, r"content, categories\[0\]: expected a mapping, got NoneType"),
        (1, {"categories": [{"x": -9}]}, "'categories' must have .* counts of at least 5"),
        (
            1,
            {"categories": [{"x": 2**80}]},
            rf"content, categories\[0\], x: expected int, {TOO_LARGE}",
        ),
        (
            1,
            {"categories": [{"x": 61}]},
            "'categories' must have .* that add up to at most 60 in each column",
        ),
        (
            1,
            {"checksum": None},
            "content, checksum: expected a string of the form .*, got NoneType",
        ),
        (1, {"left_out": "7"}, "content, left_out: expected int, got str"),
        (1, {"left_out": -1}, "'left_out' must be an integer from 0 to"),
        (1, {"words": [3]}, r"content, words\[0\]: expected str, got int"),
        (1, {"words": ["x" * 3000]}, "'words' exceeds 2000 characters"),
        (1, {"more": 3}, "the field 'more' is unexpected"),
        (2, {"domains": ["north", "north"]}, "'domains' contains duplicates"),
        (2, {"domains": [3]}, r"content, domains\[0\]: expected str, got int"),
        (2, {"domains": None}, "content, domains: expected a list, got NoneType"),
        (2, {"left_out": None}, "content, left_out: expected int, got NoneType"),
        (2, {"accepted": 1}, "content, accepted: expected bool, got int"),
        (2, {"words": None}, "content, words: expected a list, got NoneType"),
    ],
)
def test_texts_and_counts_in_the_description_are_checked(sites, round_, change, words):
    file = sites[1 + round_][0]
    with pytest.raises(SiteFileError, match=words):
        merge_or_fit(sites, replace(file, content={**file.content, **change}))
    incomplete = {n: value for n, value in file.content.items() if n not in change}
    with (
        pytest.raises(SiteFileError, match="the field .* is missing")
        if "more" not in change
        else (contextlib.nullcontext())
    ):
        merge_or_fit(sites, replace(file, content=incomplete))


@pytest.mark.parametrize("call", [merge, fit, statistics_of, moments_of])
def test_a_path_instead_of_a_plan_is_a_type_error(call):
    data = {"files": []} if call in (merge, fit) else {"frame": make_frame(0)}
    with pytest.raises(TypeError, match="plan must be a Plan; got str"):
        call(plan="plan.json", **data)
