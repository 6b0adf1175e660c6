"""Tables: what is read from files, which columns are used, and what is refused with which words."""

import datetime as dt
import gzip
import pickle
import zipfile
from decimal import Decimal

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from domainwise.base.files import replacing, replacing_folder  # noqa: E402
from domainwise.models.table_model import make_preprocessor  # noqa: E402
from domainwise.tables.errors import ColumnError, TableError  # noqa: E402
from domainwise.tables.files import open_table, writing_table  # noqa: E402
from domainwise.tables.schema import Schema, check_table, load_table  # noqa: E402

FORMATS = ["csv", "csv.gz", "tsv", "parquet", "feather"]


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 60
    return pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n).round(3),
            "dose": rng.integers(0, 5, n),
            "smoker": rng.random(n) < 0.5,
            "sex": np.where(rng.random(n) < 0.5, "m", "f"),
            "site": np.array(["NA", "EU", "AS"])[np.arange(n) % 3],
            "ill": np.where(np.arange(n) % 2, "yes", "no"),
        }
    )


def write(frame, path):
    kind = path.name.split(".", 1)[1]
    if kind.startswith(("csv", "tsv")):
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_feather(path)
    return path


def read_table(path, columns=None):
    file = open_table(path)
    (frame,) = file.frames(columns or file.names)
    return frame


def checked(frame, **options):
    return check_table(frame, **{"target": "ill", "domain": "site", **options})


@pytest.mark.parametrize("kind", FORMATS)
def test_words_in_a_column_of_categories_are_values_in_every_format(frame, tmp_path, kind):
    frame["drink"] = np.array(["None", "light", "NA"])[np.arange(len(frame)) % 3]
    frame.loc[4, "drink"] = None
    table = load_table(write(frame, tmp_path / f"t.{kind}"), target="ill", domain="site")
    assert set(table.X["drink"].dropna()) == {"None", "light", "NA"}
    assert table.X["drink"].isna().sum() == 1


def test_words_for_missing_numbers_are_missing(frame, tmp_path):
    frame["age"] = frame["age"].astype(object)
    frame.loc[[1, 2, 3], "age"] = ["NA", "None", "null"]
    table = load_table(write(frame, tmp_path / "t.csv"), target="ill", domain="site")
    assert "age" in table.schema.numeric
    assert table.X["age"].isna().sum() == 3


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_table(frame, tmp_path, kind):
    frame.loc[3, "age"] = np.nan
    frame.loc[5, "sex"] = None
    table = load_table(write(frame, tmp_path / f"t.{kind}"), target="ill", domain="site")
    assert table.schema.numeric == ("age", "dose", "smoker")
    assert table.schema.categorical == ("sex",)
    assert table.schema.task == "classification"
    np.testing.assert_array_equal(table.X["age"], frame["age"])
    assert table.X["sex"].isna().tolist() == frame["sex"].isna().tolist()
    assert table.y.tolist() == frame["ill"].tolist()
    # A domain called NA is a domain, not a missing value.
    assert table.domains == ["AS", "EU", "NA"]


@pytest.mark.parametrize("kind", FORMATS)
def test_pieces_of_a_streamed_table_make_up_the_whole(frame, tmp_path, kind):
    path = write(frame, tmp_path / f"t.{kind}")
    pieces = list(open_table(path).frames(["sex", "age"], 25))
    assert [len(piece) for piece in pieces] == [25, 25, 10]
    assert list(pieces[0].columns) == ["sex", "age"]
    together = pandas.concat(pieces, ignore_index=True)
    np.testing.assert_array_equal(together["age"].astype(float), frame["age"])


def test_row_numbers_that_pandas_writes_are_not_features_of_a_parquet_file(frame, tmp_path):
    frame.iloc[::-1].to_parquet(tmp_path / "t.parquet")
    assert open_table(tmp_path / "t.parquet").names == list(frame.columns)


def test_decimal_numbers_of_a_parquet_file_are_numbers(frame, tmp_path):
    frame["price"] = [Decimal(i) / 4 for i in range(60)]
    frame.to_parquet(tmp_path / "t.parquet")
    table = load_table(tmp_path / "t.parquet", target="ill", domain="site")
    assert "price" in table.schema.numeric
    np.testing.assert_array_equal(table.X["price"], np.arange(60) / 4)
    np.testing.assert_array_equal(checked(frame).X["price"], np.arange(60) / 4)


def test_truth_values_with_gaps_are_numbers_for_a_model_that_knows_them_as_such(frame):
    schema = checked(frame).schema
    with_gap = frame.assign(smoker=frame["smoker"].astype(object))
    with_gap.loc[0, "smoker"] = None
    prepared = schema.prepare(with_gap)["smoker"]
    assert np.isnan(prepared[0])
    np.testing.assert_array_equal(prepared[1:], frame["smoker"][1:].astype(float))


def test_a_byte_order_mark_and_semicolons_are_read_as_spreadsheets_mean_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b\n1;2\n3;4\n", encoding="utf-8-sig")
    read = read_table(path)
    assert read.to_dict("list") == {"a": ["1", "3"], "b": ["2", "4"]}


def test_a_quoted_cell_may_span_lines_and_be_longer_than_each_of_them(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"one\ntwo\nthree"\n2,x\n')
    assert read_table(path).to_dict("list") == {
        "a": ["1", "2"],
        "b": ["one\ntwo\nthree", "x"],
    }


def test_categories_of_digits_stay_text_in_a_piece_with_gaps(frame):
    schema = checked(frame.assign(code=["1", "2", "x"] * 20)).schema
    for cells in (["1", None, "2"], [1.0, None, 2.0], pandas.array([1, None, 2], "Int64")):
        codes = schema.prepare(frame[:3].assign(code=cells))["code"]
        assert codes.dropna().tolist() == ["1", "2"]


def test_the_preprocessor_fills_scales_and_encodes(frame):
    frame.loc[0, "age"] = np.nan
    table = checked(frame)
    transformer = make_preprocessor(table.schema).fit(table.X)
    Z = transformer.transform(table.X)
    assert Z.shape == (60, 5)
    np.testing.assert_allclose(Z[:, :3].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(Z[:, :3].std(axis=0), 1)
    median = np.nanmedian(frame["age"])
    filled = frame["age"].fillna(median)
    np.testing.assert_allclose(Z[0, 0], (median - filled.mean()) / filled.std(ddof=0))
    new = table.X.iloc[:1].assign(sex="unknown")
    assert transformer.transform(new)[0, 3:].tolist() == [0.0, 0.0]


def test_a_stored_schema_is_read_back_unchanged(frame):
    schema = checked(frame).schema
    assert Schema.from_dict(schema.as_dict()) == schema


@pytest.mark.parametrize(
    "values, task",
    [
        (["a", "b"], "classification"),
        ([0, 1], "classification"),
        ([True, False], "classification"),
        ([0.5, 1.25], "regression"),
        (list(range(30)), "regression"),
    ],
)
def test_the_task_is_inferred_from_the_target(frame, values, task):
    frame["ill"] = (values * 60)[:60] if len(values) > 2 else np.repeat(values, 30)
    frame["site"] = np.arange(60) % 3
    assert checked(frame).schema.task == task


def test_whole_numbers_with_gaps_are_classes_without_a_point(frame):
    frame["ill"] = np.where(np.arange(60) % 2, 1.0, 0.0)
    frame.loc[7, "ill"] = np.nan
    table = checked(frame)
    assert table.classes == [0, 1]
    assert len(table.y) == 59
    assert table.notes[0] == "1 of 60 rows have no target and are left out"


def test_chosen_and_dropped_columns_and_domains_are_respected(frame):
    assert checked(frame, features=["sex", "age"]).schema.features == ["age", "sex"]
    assert checked(frame, drop=["sex"]).schema.categorical == ()
    table = checked(frame, drop_domains=["EU"])
    assert table.domains == ["AS", "NA"]
    assert len(table.y) == len(table.X) == 40
    frame["site"] = frame["site"].replace({"EU": "Europe, west"})
    assert checked(frame, drop_domains=["Europe, west"]).domains == ["AS", "NA"]
    frame.loc[:19, "site"] = "Oceania"
    assert checked(frame, drop_domains=["AS, Oceania"]).domains == ["Europe, west", "NA"]


def test_columns_of_the_site_are_listed_without_an_alarm(frame):
    frame["city"] = frame["site"].map({"NA": "Boston", "EU": "Lund", "AS": None})
    frame["beds"] = frame["site"].map({"NA": 320, "EU": 200, "AS": 80})
    table = checked(frame)
    assert table.schema.site_level == ("beds", "city")
    (note,) = [note for note in table.notes if "constant within every domain" in note]
    assert note.endswith("beds, city; they describe the domain, so 3 domains provide only 3 of "
                         "their values")  # fmt: skip
    frame.loc[0, "beds"] += 1
    assert checked(frame).schema.site_level == ("city",)


def test_the_columns_used_are_listed(frame):
    words = "numeric features: age, dose, smoker; categorical features: sex"
    assert checked(frame).notes[-1] == words


@pytest.mark.parametrize(
    "options, message",
    [
        ({"target": "Ill"}, "no column 'Ill'; did you mean 'ill'"),
        ({"domain": "sit"}, "did you mean 'site'"),
        ({"features": ["agee"]}, "did you mean 'age'"),
        ({"drop": ["zzz"]}, "no column 'zzz'; it has 'age', 'dose'"),
        ({"features": ["ill"]}, "cannot be features and cannot be dropped; got 'ill'"),
        ({"domain": "ill"}, "the same column"),
        ({"drop": ["age", "dose", "smoker", "sex"]}, "has no feature column"),
        ({"drop_domains": ["XX"]}, "no domain 'XX'"),
        ({"drop_domains": ["EU", "AS"]}, "only one domain, NA"),
        ({"task": "clustering"}, "auto, classification, regression"),
        ({"task": "regression"}, "contains text"),
        ({"target": "age", "task": "classification", "drop": ["ill"]}, "task='regression'"),
        ({"domain": "age"}, "a different value in every row"),
    ],
)
def test_wrong_column_names_and_roles_are_refused(frame, options, message):
    with pytest.raises(TableError, match=message):
        checked(frame, **options)


@pytest.mark.parametrize(
    "column, values, message",
    [
        ("when", pandas.date_range("2024-01-01", periods=60), "(?s)dates or times.*drop=.'when'"),
        ("when", [dt.date(2024, 1, 1 + i % 28) for i in range(60)], "dates or times"),
        ("when", [f"2024-01-{1 + i % 28:02d} 10:00" for i in range(60)], "dates or times"),
        ("when", [f"{1 + i % 28}.3.2024" for i in range(60)], "dates or times"),
        ("id", [f"patient {i}" for i in range(60)], "looks like an identifier"),
        ("num", [*map(str, range(58)), "?", "?"], "contains numbers, but also '\\?'"),
        ("mark", [f"{i},5{i % 9}4" for i in range(1, 61)], "may be a decimal mark.*decimal=','"),
        ("part", [f"{i} %" for i in range(50)] + ["some"] * 10, "percentages, but also 'some'"),
        ("hour", [f"{i % 24}:30" for i in range(50)] + ["noon"] * 10, "times, but also 'noon'"),
        ("nest", [[1, 2]] * 60, "contains list values"),
        ("inf", [np.inf, *range(59)], "'inf' is infinite in row 1"),
        ("ill", ["yes"] * 60, "only one class, yes"),
        ("ill", [2.5] * 60, "only one value"),
        ("ill", [None] * 60, "the target column 'ill' has no values"),
        ("site", ["A"] * 60, "only one domain, A"),
        ("site", ["A", "B"] * 30, "every domain of column 'site' has only one class"),
    ],
)
def test_columns_that_cannot_be_learnt_from_are_refused(frame, column, values, message):
    frame[column] = values
    with pytest.raises(TableError, match=message):
        checked(frame)


def test_columns_without_values_or_variation_are_left_out_with_a_note(frame):
    frame["gap"], frame["one"] = np.nan, 1.5
    frame["same"] = np.where(np.arange(60) % 2, "x", None)
    table = checked(frame)
    assert table.schema.features == checked(frame[["age", "dose", "smoker", "sex", "site", "ill"]])\
        .schema.features  # fmt: skip
    assert "columns left out because they are empty: gap" in table.notes
    assert "columns left out because they are constant: one, same" in table.notes


def test_a_domain_with_one_class_serves_for_training(frame):
    frame["site"] = ["A"] * 20 + ["B"] * 20 + ["C"] + ["A"] * 19
    table = checked(frame)
    assert table.domains == ["A", "B", "C"]


def test_all_columns_that_cannot_be_used_are_in_one_error(frame):
    frame["when"], frame["who"] = "2024-01-01 10:00", [f"patient {i}" for i in range(60)]
    frame["huge"] = [np.inf, *range(59)]
    with pytest.raises(ColumnError) as caught:
        checked(frame)
    assert list(caught.value.problems) == ["when", "who", "huge"]
    assert "drop=['when', 'who', 'huge'] or auto_drop=True" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (
        checked(frame, drop=["when", "who", "huge"]).schema == checked(frame, auto_drop=True).schema
    )


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.csv", b"", "is empty"),
        ("t.csv", b"\n\n", "is empty"),
        ("t.csv", b"a,b\n", "column names but no rows"),
        ("t.csv", b"a,a\n1,2\n", "more than one column named 'a'"),
        ("t.csv", b"a,b\n1,2\n3\n", "Row #3: Expected 2 columns, got 1: 3. Correct this row"),
        ("t.csv", b"a,b\n1,2\n3,4,5\n", "Row #3: Expected 2 columns, got 3"),
        ("t.csv", "a,b\nМосква,2\n".encode("cp1251"), "not UTF-8.*encoding='cp1251'"),
        ("t.csv", "a,b\né,2\n".encode("utf-16-le"), "NUL bytes.*encoding='utf-16-le'"),
        ("t.csv", b'a,b\n1,2\n3,"4\n5,6\n', "quotation mark is never closed"),
        ("t.csv", b'a,b\n1,2\n3,"4\n5,6\n7,8\n9,0\n', "quotation mark is never closed"),
        ("t.csv", b"a,,\n1,2,3\n", "has no name"),
        ("t.csv.gz", gzip.compress(b"a,b\n1,2\n" * 500, mtime=0)[:-30], "damaged|cannot be read"),
        ("t.csv.gz", b"a,b\n1,2\n", "cannot be read"),
        ("t.parquet", b"not parquet", "its format is not parquet"),
        ("t.feather", b"not feather", "its format is not feather"),
        ("t.xlsx", b"PK", "its format is not excel"),
        ("t.ods", b"PK", "Use one of .csv"),
    ],
)
def test_files_that_are_not_tables_are_refused(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=message):
        read_table(tmp_path / name)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(TableError, match="does not exist"):
        read_table(tmp_path / "t.csv")
    with pytest.raises(TableError, match="is a folder"):
        read_table(tmp_path)


def test_a_folder_of_parquet_files_is_one_table_in_the_order_of_their_names(frame, tmp_path):
    for number, start in ((2, 40), (0, 0), (1, 20)):
        frame[start : start + 20].to_parquet(tmp_path / f"{number}.parquet")
    (tmp_path / "_metadata.parquet").write_bytes(b"of another program")
    (tmp_path / "README.md").write_text("about the files")
    whole = read_table(tmp_path)
    pandas.testing.assert_frame_equal(whole, frame.iloc[:60], check_dtype=False)
    frame[:5].drop(columns="age").to_parquet(tmp_path / "9.parquet")
    with pytest.raises(TableError, match=r"9\.parquet has no column 'age' of other files"):
        read_table(tmp_path)


def test_names_of_folders_are_columns(frame, tmp_path):
    for name, part in frame.groupby("site"):
        (tmp_path / f"site={name}").mkdir()
        part.drop(columns="site").to_parquet(tmp_path / f"site={name}" / "part.parquet")
    assert sorted(open_table(tmp_path).names) == sorted(frame.columns)
    found = read_table(tmp_path, ["site", "age"])
    expected = frame.sort_values("site", kind="stable")[["site", "age"]].reset_index(drop=True)
    pandas.testing.assert_frame_equal(found, expected, check_dtype=False)


def test_a_new_table_is_compared_with_the_schema(frame):
    schema = checked(frame).schema
    with pytest.raises(TableError, match="no column 'age'; did you mean 'Age'"):
        schema.prepare(frame.rename(columns={"age": "Age"}))
    with pytest.raises(TableError, match="'dose' must contain numbers, but row 101 has 'much'"):
        schema.prepare(frame.assign(dose=["much", *["1"] * 59]), first_row=100)
    prepared = schema.prepare(frame.assign(dose=frame["dose"].astype(str), more=1))
    assert list(prepared.columns) == schema.features
    np.testing.assert_array_equal(prepared["dose"], frame["dose"])


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_written_in_pieces_is_read_back(frame, tmp_path, kind):
    path = tmp_path / f"out.{kind}"
    with writing_table(path) as writer:
        writer.write(frame[:20])
        writer.write(frame[20:])
    assert writer.n_rows == 60
    table, again = checked(frame), checked(read_table(path))
    pandas.testing.assert_frame_equal(again.X, table.X)
    assert again.sample_domain.tolist() == table.sample_domain.tolist()


def test_an_output_that_fails_leaves_nothing_and_spares_what_was_there(frame, tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("old")
    with pytest.raises(KeyError), writing_table(path) as writer:
        [writer.write(frame[columns]) for columns in (["age"], ["no such column"])]
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.csv"]
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_folder_is_either_complete_or_unchanged(tmp_path):
    path = tmp_path / "out"
    for content in ("old", "new"):
        with replacing_folder(path) as temporary:
            (temporary / content).touch()
        assert [p.name for p in path.iterdir()] == [content]
    with pytest.raises(FileExistsError), replacing_folder(path) as temporary:
        [(temporary / "half").touch(exist_ok=False) for _ in range(2)]
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["out", "out/new"]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_old_one(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    (path / "old").touch()
    with pytest.raises(FileNotFoundError), replacing_folder(path) as temporary:
        temporary.rmdir()
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")] == ["out", "out/old"]


def test_files_of_another_kind_are_recognised(frame, tmp_path):
    frame.to_parquet(tmp_path / "t.csv")
    with pytest.raises(TableError, match="is not a CSV file. Rename it to end in .parquet"):
        load_table(tmp_path / "t.csv", target="ill", domain="site")


@pytest.mark.parametrize(
    ("place", "kind"), [("none/x.skops", FileNotFoundError), ("", IsADirectoryError)]
)
def test_a_place_that_cannot_be_written_to_is_named(tmp_path, place, kind):
    words = r"none does not exist. Create it to write x\.skops|is a folder"
    with pytest.raises(kind, match=words), replacing(tmp_path / place):
        pass


def saved_workbook(path, rows, **cells):
    """A workbook of rows, with some cells given by their address; ``#`` begins an error value."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for address, value in cells.items():
        book.active[address] = value
        if str(value).startswith("#"):
            book.active[address].data_type = "e"
    book.save(path)
    return path


def workbook_rows():
    rows = [[f"s{i % 3}", (i * 7) % 11, "yes" if i % 2 else "no"] for i in range(30)]
    return [["site", "dose", "ill"], *rows]


def test_error_values_of_excel_are_refused_as_in_a_csv_file(tmp_path):
    path = saved_workbook(tmp_path / "t.xlsx", workbook_rows(), B5="#DIV/0!", B6="#N/A")
    with pytest.raises(TableError, match=r"'dose' contains numbers, but also '#DIV/0!'. Correct"):
        load_table(path, target="ill", domain="site")
    table = load_table(path, target="ill", domain="site", na=["#DIV/0!"])
    assert table.X["dose"].isna().sum() == 2


def test_titles_above_the_header_of_a_sheet_are_skipped(tmp_path):
    titles = [["Our study"], [], ["2024", "draft"]]
    path = saved_workbook(tmp_path / "t.xlsx", [*titles, *workbook_rows()])
    with pytest.raises(TableError, match="column 2 of sheet 'Sheet' has no name"):
        load_table(path, target="ill", domain="site")
    path = saved_workbook(tmp_path / "t.xlsx", [*titles[:2], *workbook_rows()])
    table = load_table(path, target="ill", domain="site")
    assert len(table.y) == 30
    assert "t.xlsx: rows skipped above the column names: 2" in table.notes


def test_workbooks_that_ask_for_much_memory_are_refused_before_they_are_unpacked(tmp_path):
    path = saved_workbook(tmp_path / "t.xlsx", workbook_rows(), XFD1048576=1)
    with pytest.raises(TableError, match="94 cells, spread over 1,048,576 rows and 16,384 columns"):
        load_table(path, target="ill", domain="site")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(tmp_path / "u.xlsx", "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
        with new.open("xl/media.bin", "w", force_zip64=True) as part:
            for _ in range(299):
                part.write(bytes(2**20))
    with pytest.raises(TableError, match=r"unpacks to 31. MB, but the maximum is 268 MB"):
        load_table(tmp_path / "u.xlsx", target="ill", domain="site")


def test_lines_of_any_length_are_read(tmp_path):
    names = [f"gene {i} {'x' * 500}" for i in range(300)]
    rows = [[f"s{i % 3}", str(i % 2), *(str(i * j % 7) for j in range(300))] for i in range(12)]
    lines = [",".join(row) for row in [["site", "ill", *names], *rows]]
    (tmp_path / "t.csv").write_text("\n".join(lines), "utf-8")
    assert load_table(tmp_path / "t.csv", target="ill", domain="site").X.shape[0] == 12


@pytest.mark.parametrize("word", ["inf", "1e400"])
def test_infinite_classes_are_refused(tmp_path, word):
    rows = [f"s{i % 3},{i % 2},{i * 7 % 11}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["site,ill,x", *rows, f"s1,{word},3"]), "utf-8")
    with pytest.raises(TableError, match="target 'ill' is infinite in row 21"):
        load_table(tmp_path / "t.csv", target="ill", domain="site")


def test_a_file_in_two_encodings_is_refused(tmp_path):
    rows = [f"{'Köln' if i % 2 else 'Bonn'},{i % 3},{i * 7 % 11}\n" for i in range(30)]
    lines = [b"site,ill,x\n"]
    lines += [row.encode("latin-1" if i == 25 else "utf-8") for i, row in enumerate(rows)]
    (tmp_path / "t.csv").write_bytes(b"".join(lines))
    with pytest.raises(TableError, match="mixes encodings: line 3 is UTF-8, but line 27 is not"):
        load_table(tmp_path / "t.csv", target="ill", domain="site")
    table = load_table(tmp_path / "t.csv", target="ill", domain="site", encoding="cp1252")
    assert "KÃ¶ln" in table.domains


def test_a_column_may_be_called_self_and_rows_may_share_an_index():
    n = 40
    frame = pandas.DataFrame({"self": np.arange(n) % 7 + 0.5, "site": ["A", "B"] * 20})
    frame["dose"] = [f"{i % 9},5" if i % 5 else "NA" for i in range(n)]
    frame["ill"] = ["no", "yes", "yes", "no"] * 10
    expected = check_table(frame, target="ill", domain="site")
    assert expected.schema.numeric == ("self", "dose")
    same_index = frame.set_axis([0] * n, axis=0)
    table = check_table(same_index, target="ill", domain="site")
    pandas.testing.assert_frame_equal(table.X, expected.X)
    pandas.testing.assert_frame_equal(table.schema.prepare(same_index), expected.X)
