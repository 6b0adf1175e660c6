"""Tables as people have them: marks, encodings, words for nothing, percentages, times and dates."""

import datetime as dt

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("python_calamine")
pytest.importorskip("openpyxl")

from domainwise.models.table_model import TableModel, fit_table  # noqa: E402
from domainwise.tables.cells import Cells, learn_kind, learn_marks  # noqa: E402
from domainwise.tables.errors import TableError  # noqa: E402
from domainwise.tables.files import open_table  # noqa: E402
from domainwise.tables.schema import Schema, check_table, load_table  # noqa: E402

ROLES = dict(target="ill", domain="site")


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 90
    frame = pandas.DataFrame(
        {
            "age": rng.normal(50, 10, n),
            "cost": (10.0 ** rng.uniform(0, 6, n)).round(2),
            "dose": rng.integers(0, 5, n),
            "sex": np.where(rng.random(n) < 0.5, "Müller", "Çelik"),
            "site": np.array(["Åre", "NA", "Łódź"])[np.arange(n) % 3],
        }
    )
    frame["ill"] = np.where(frame["age"] + 5 * rng.normal(size=n) > 50, "yes", "no")
    frame.loc[::11, "age"] = np.nan
    frame.loc[::13, "sex"] = None
    return frame


def grouped(number, thousands, mark):
    """A number as people write it, with thousands apart."""
    whole, _, rest = f"{number:,}".partition(".")
    return whole.replace(",", thousands) + mark + rest


def variants(frame, folder):
    """The same table, as different programs write it."""
    frame.to_csv(folder / "plain.csv", index=False)
    frame.to_csv(folder / "comma.csv", index=False, sep=";", decimal=",")
    frame.to_csv(folder / "numbered.csv")
    frame.to_csv(folder / "wide.csv", index=False, encoding="utf-16")
    frame.to_csv(folder / "marked.tsv", index=False, sep="\t", encoding="utf-8-sig")
    frame.to_csv(folder / "words.csv", index=False, na_rep="NaN")
    frame.to_parquet(folder / "t.parquet")
    frame.to_feather(folder / "t.feather")
    frame.to_excel(folder / "t.xlsx", index=False)
    for name, thousands, mark in (
        ("us.csv", ",", "."),
        ("de.csv", ".", ","),
        ("fr.csv", "\u00a0", ","),
    ):
        written = frame.assign(cost=[grouped(value, thousands, mark) for value in frame["cost"]])
        written.to_csv(folder / name, index=False, sep=";", decimal=mark)
    return sorted(folder.iterdir())


def test_the_same_table_gives_the_same_model_however_it_is_written(frame, tmp_path):
    paths = variants(frame, tmp_path)
    assert len(paths) == 12
    first = None
    for path in paths:
        table = load_table(path, **ROLES)
        assert table.schema.numeric == ("age", "cost", "dose"), path
        model = fit_table(table, method="linear")
        found = model.predictions(table.X)
        first = found if first is None else first
        pandas.testing.assert_frame_equal(found, first, rtol=1e-12)
    model.save(tmp_path / "m.skops")
    loaded = TableModel.load(tmp_path / "m.skops")
    for path in paths:
        mark = "," if path.name in ("comma.csv", "de.csv", "fr.csv") else "."
        pieces = prepared_pieces(path, loaded.schema.with_options(mark))
        pandas.testing.assert_frame_equal(loaded.predictions(pieces), first, rtol=1e-12)


def prepared_pieces(path, schema, chunk_rows=40):
    """The features of a file that is read in chunks."""
    pieces = open_table(path).frames(schema.features, chunk_rows)
    return pandas.concat([schema.prepare(piece) for piece in pieces], ignore_index=True)


def read_table(path):
    file = open_table(path)
    (frame,) = file.frames(file.names)
    return frame


def numbers(texts, mark=None):
    """The numbers in a column, or its texts if it is none of numbers."""
    column = Cells(pandas.Series(texts))
    mark, _ = learn_marks({"x": column}, mark)
    kind, form, unmatched = learn_kind(column, mark)
    if kind == "text" or unmatched:
        return texts
    return column.numbers(mark, form)[0].tolist()


@pytest.mark.parametrize(
    "texts, values",
    [
        (["1,5", "2"], [1.5, 2]),
        (["1,234", "0,5"], [1.234, 0.5]),
        (["1.234,5", "1.234"], [1234.5, 1234]),
        (["1,234.5", "1,234"], [1234.5, 1234]),
        (["1,234,567", "12"], [1234567, 12]),
        (["1 234,5", "-0,5"], [1234.5, -0.5]),
        (["1'234.50", "7"], [1234.5, 7]),
        (["−1,5e3", "+2,"], [-1500, 2]),
        (["1.5", "NA"], [1.5, np.nan]),
        (["1.234", "2.345"], [1.234, 2.345]),
    ],
)
def test_a_number_is_read_where_there_is_one_reading(texts, values):
    np.testing.assert_array_equal(numbers(texts), values)


@pytest.mark.parametrize(
    "texts", [["1,234", "2,345"], ["1,5", "1.5"], ["1,2,3", "4"], ["1_000", "2"]]
)
def test_text_with_two_readings_or_none_stays_text(texts):
    assert numbers(texts) == texts


def test_options_and_other_columns_decide_between_two_readings():
    open_ = ["1,234", "2,345"]
    assert numbers(open_, mark=",") == [1.234, 2.345]
    assert numbers(open_, mark=".") == [1234, 2345]
    columns = {"x": Cells(pandas.Series(open_)), "y": Cells(pandas.Series(["1,5", "2"]))}
    assert learn_marks(columns) == (",", {})
    columns["z"] = Cells(pandas.Series(["1.5", "2"]))
    assert learn_marks(columns) == (None, {"y": ",", "z": "."})
    # Half of a column does not decide about other columns.
    columns["y"] = Cells(pandas.Series(["1,5", "a", "b", "c"]))
    assert learn_marks(columns) == (".", {})


@pytest.mark.parametrize(
    "texts, form",
    [
        (["12%", "3.5 %"], "percent"),
        (["7:30", "07:45:10"], "time"),
        (["7:30 pm", "8:00 AM"], "time"),
        (["2024-05-31", "2024-6-1 10:00"], "date"),
        (["31.05.2024", "1.6.2024"], "date"),
        (["2024/05/31", "31-05-2024"], "date"),
        (["31 May 2024", "1. Mai 24"], "date"),
        (["May 31, 2024", "1-Jun-2024"], "date"),
        (["a", "b"], "text"),
        (["1:80", "1:160", "1:320"], "text"),
        (["low", "<10%", "10%", ">10%"], "text"),
    ],
)
def test_the_form_of_text_is_detected(texts, form):
    kind, detected_form, unmatched = learn_kind(Cells(pandas.Series(texts)))
    assert (detected_form if kind == "number" else kind, unmatched) == (form, [])


def test_what_was_rewritten_once_is_not_read_again(frame, tmp_path):
    share = (np.arange(90) * 347 % 99_000 + 1_000) / 1000
    frame["share"] = [f"{value:.3f} %".replace(".", ",") for value in share]
    frame["sex"] = frame["sex"].astype("category")
    frame.to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    table = load_table(tmp_path / "t.csv", **ROLES)
    np.testing.assert_allclose(table.X["share"], share / 100, rtol=1e-15)
    pandas.testing.assert_frame_equal(prepared_pieces(tmp_path / "t.csv", table.schema), table.X)
    with pytest.raises(TableError, match="'1,000 %'.*decimal=','"):
        check_table(frame, **ROLES)
    named = check_table(frame.drop(columns="share"), **ROLES, na=["Müller", "Çelik"])
    assert "columns left out because they are empty: sex" in named.notes


def test_percentages_and_times_are_numbers_in_every_format(frame, tmp_path):
    share, minutes = np.arange(90) % 40 / 100, np.arange(90) * 7 % 1440
    cells = frame.assign(share=share, start=[dt.time(m // 60, m % 60) for m in minutes])
    cells.to_parquet(tmp_path / "t.parquet")
    cells.to_excel(tmp_path / "t.xlsx", index=False)
    text = cells.assign(share=[f"{100 * s:.0f} %" for s in share], start=cells["start"].astype(str))
    text.to_csv(tmp_path / "t.csv", index=False)
    for path in sorted(tmp_path.iterdir()):
        table = load_table(path, **ROLES)
        np.testing.assert_array_equal(table.X["share"], share)
        np.testing.assert_allclose(table.X["start"], minutes / 60, rtol=1e-15)
    schema = check_table(text, **ROLES).schema
    assert schema.forms == {"share": "percent", "start": "time"}
    np.testing.assert_array_equal(schema.prepare(cells)["share"], share)
    plain = check_table(cells.drop(columns="start"), **ROLES).schema
    with pytest.raises(TableError, match="'share' must contain numbers, but row 1 has '0 %'"):
        plain.prepare(text)


@pytest.mark.parametrize(
    "form", ["%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%d-%m-%Y", "%d/%m/%Y", "%m/%d/%Y", None]
)
def test_dates_become_the_numbers_that_are_asked_for(frame, tmp_path, form):
    days = pandas.date_range("2020-01-01", periods=90, freq="17D")
    frame["seen"] = days if form is None else days.strftime(form)
    frame.loc[3, "seen"] = None
    with pytest.raises(TableError, match="dates=.'month', 'weekday', 'age'"):
        check_table(frame, **ROLES)
    table = check_table(frame, **ROLES, dates=("month", "weekday", "age"))
    expected = {
        "month": days.month,
        "weekday": days.day_of_week,
        "age": (days.max() - days).days / 365.25,
    }
    for part, values in expected.items():
        values = np.where(np.arange(90) == 3, np.nan, values)
        np.testing.assert_allclose(table.X[f"seen ({part})"], values, rtol=1e-12)
    # New rows are as old as they are on the day that the model knows.
    schema = Schema.from_dict(table.schema.as_dict())
    assert schema == table.schema
    new = schema.prepare(frame.iloc[:1].assign(seen=["2019-01-01"]))
    assert new["seen (age)"].tolist() == [
        (days.max() - pandas.Timestamp("2019-01-01")).days / 365.25
    ]
    with pytest.raises(TableError, match="'seen' must contain dates, but row 1 has 'soon'"):
        schema.prepare(frame.iloc[:1].assign(seen=["soon"]))


@pytest.mark.parametrize(
    "cells, kind",
    [
        (pandas.period_range("2020-01", periods=90, freq="M"), "dates"),
        (pandas.date_range("2020", periods=90, tz="Europe/Berlin"), "dates"),
        (pandas.to_timedelta(np.arange(90), unit="min"), "numeric"),
        (np.array([2**70 * (1 + i % 7) for i in range(90)], dtype=object), "numeric"),
        (pandas.array(["u", "v", None] * 30, dtype="string"), "categorical"),
        (pandas.array([1, 2, None] * 30, dtype="Float64"), "numeric"),
        ([1, "2,5", "NA"] * 30, "numeric"),
        ([True, False, None] * 30, "numeric"),
        (pandas.cut(np.arange(90), 4), "categorical"),
    ],
)
def test_the_type_of_cells_is_detected(frame, cells, kind):
    schema = check_table(frame.assign(odd=cells), **ROLES, dates=["month"]).schema
    assert "odd" in getattr(schema, kind)


def test_dates_that_can_be_read_in_two_ways_are_refused(frame):
    frame["seen"] = [f"{1 + i % 12}/{1 + i % 11}/2024" for i in range(90)]
    with pytest.raises(TableError, match="are ambiguous or cannot be read"):
        check_table(frame, **ROLES, dates=["age"])


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1"])
def test_western_letters_are_recognised_with_a_note(frame, tmp_path, encoding):
    frame["site"] = frame["site"].replace("Łódź", "Köln")
    frame.to_csv(tmp_path / "t.csv", index=False, encoding=encoding)
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert "Åre" in table.domains
    assert "t.csv is not UTF-8 and was read as cp1252" in table.notes


def test_an_encoding_that_is_named_is_used_and_kept(frame, tmp_path):
    frame["site"] = frame["site"].replace("Åre", "Zürich")
    frame.to_csv(tmp_path / "t.csv", index=False, encoding="cp1250", errors="replace")
    table = load_table(tmp_path / "t.csv", **ROLES, encoding="cp1250")
    assert "Łódź" in table.domains
    assert table.schema.encoding == "cp1250"
    file = open_table(tmp_path / "t.csv", fallback="cp1250")
    assert file.notes == ("t.csv is not UTF-8 and was read as cp1250",)
    (frame,) = file.frames(file.names)
    assert "Łódź" in set(frame["site"])
    with pytest.raises(TableError, match="encoding='nonsense' is unknown"):
        load_table(tmp_path / "t.csv", **ROLES, encoding="nonsense")
    (tmp_path / "t.csv").write_bytes(b"site,ill\n\x81,1\n")
    with pytest.raises(TableError, match="cannot be decoded: .*Try encoding='cp1251'"):
        load_table(tmp_path / "t.csv", **ROLES, encoding="cp1252")


def test_words_for_nothing_are_classes_unless_they_are_named(frame, tmp_path):
    frame["ill"] = np.array(["None", "NA", "yes", "no"])[np.arange(90) % 4]
    frame.loc[5, "ill"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert table.classes == ["NA", "None", "no", "yes"]
    assert len(table.y) == 89
    assert sum("is a class of the target" in note for note in table.notes) == 2
    named = load_table(tmp_path / "t.csv", **ROLES, na=["NA", "None"])
    assert named.classes == ["no", "yes"]
    assert named.schema.na == ("NA", "None")
    assert named.domains == ["Åre", "Łódź"]  # a value that stands for none does so everywhere


def test_values_that_stand_for_none_are_missing_in_numbers_too(frame, tmp_path):
    frame["dose"] = np.where(np.arange(90) % 3, frame["dose"], -999)
    for name in ("t.csv", "t.parquet"):
        (frame.to_csv if name == "t.csv" else frame.to_parquet)(tmp_path / name, index=False)
        table = load_table(tmp_path / name, **ROLES, na=["-999"])
        assert table.X["dose"].isna().sum() == 30
        assert table.schema.prepare(frame)["dose"].isna().sum() == 30


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_whole_numbers_of_any_size_stay_apart_as_labels(frame, tmp_path, kind):
    large = np.array([2**64 - 1, 2**64 - 2, 2**53 + 1], dtype=np.uint64)
    frame["site"] = large[np.arange(90) % 3]
    frame["ill"] = np.where(np.arange(90) % 2, 2**53, 2**53 + 1)
    frame["ill"] = frame["ill"].astype("Int64")
    frame.loc[4, "ill"] = pandas.NA
    path = tmp_path / f"t.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    table = load_table(path, **ROLES)
    assert table.domains == sorted(str(value) for value in large)
    assert table.classes == [2**53, 2**53 + 1]
    assert len(table.y) == 89


def test_labels_stay_as_they_are_written(frame, tmp_path):
    frame["site"] = np.array(["a", " a", "007"])[np.arange(90) % 3]
    frame["ill"] = np.array(["01", "02"])[np.arange(90) % 2]
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert table.domains == [" a", "007", "a"]
    assert table.classes == ["01", "02"]
    assert any("differ only in spaces, capitalization" in note for note in table.notes)


def test_class_names_that_look_like_numbers_stay_as_they_are_written(frame):
    frame["ill"] = np.array(["1,234", "none"])[np.arange(90) % 2]
    table = check_table(frame, **ROLES, decimal=".")
    assert table.classes == ["1,234", "none"]
    rows, y, _ = table.schema.read_labels(frame[:10], table.classes)
    assert [*rows] == [*range(10)]
    assert [*y] == [*frame["ill"][:10]]


def test_known_classes_decide_how_labels_of_new_rows_are_read(frame):
    frame["ill"] = ["1.0", "2.0"] * 45
    as_numbers, as_text = (
        check_table(frame.assign(ill=labels), **ROLES)
        for labels in (frame["ill"], ["1.0", "high"] * 45)
    )
    assert (as_numbers.classes, as_text.classes) == ([1, 2], ["1.0", "high"])
    for table, label in ((as_numbers, "1"), (as_text, "1.0")):
        _, y, _ = table.schema.read_labels(frame[::2], table.classes)
        assert {*y.tolist()} == {label}


def test_words_for_missing_values_may_have_spaces_around_them(frame):
    frame["share"] = ["5%", "7%", " NA "] * 30
    table = check_table(frame, **ROLES)
    assert table.X["share"][:2].tolist() == [0.05, 0.07]
    assert table.X["share"].isna().sum() == 30
    pandas.testing.assert_frame_equal(table.schema.prepare(frame), table.X)


def test_a_column_without_a_name_is_a_feature_only_on_request(frame, tmp_path):
    frame.to_csv(tmp_path / "t.csv")
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert "Unnamed: 0" not in table.schema.features
    assert any("treated as an index and left out" in note for note in table.notes)
    asked = load_table(tmp_path / "t.csv", **ROLES, features=["Unnamed: 0", "age"])
    assert asked.schema.features == ["Unnamed: 0", "age"]
    again = check_table(pandas.read_csv(tmp_path / "t.csv", keep_default_na=False), **ROLES)
    assert "Unnamed: 0" not in again.schema.features


def test_nor_are_row_numbers_that_were_read_and_written_again(frame, tmp_path):
    for _ in range(3):
        frame.to_csv(tmp_path / "t.csv")
        frame = pandas.read_csv(tmp_path / "t.csv", keep_default_na=False)
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert not any("Unnamed" in name for name in table.schema.features)
    assert sum("treated as an index and left out" in note for note in table.notes) == 1
    assert not any("Unnamed" in name for name in check_table(frame, **ROLES).schema.features)


def test_words_for_none_are_classes_even_if_there_are_no_others(frame, tmp_path):
    frame["ill"] = np.array(["None", "NA"])[np.arange(90) % 2]
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = load_table(tmp_path / "t.csv", **ROLES)
    assert table.classes == ["NA", "None"]
    assert sum("is a class of the target" in note for note in table.notes) == 2


def test_other_sheets_of_a_workbook_are_spoken_of(frame, tmp_path):
    with pandas.ExcelWriter(tmp_path / "t.xlsx") as book:
        frame.to_excel(book, sheet_name="rows", index=False)
        frame[:3].to_excel(book, sheet_name="about", index=False)
    table = load_table(tmp_path / "t.xlsx", **ROLES)
    assert len(table.y) == 90
    assert "t.xlsx: only sheet 'rows' was read, not 'about'" in table.notes


def test_a_semicolon_wins_over_commas_within_names(tmp_path):
    (tmp_path / "t.csv").write_text("size, cm;weight, kg\n1,5;2\n2,5;3\n")
    assert read_table(tmp_path / "t.csv").to_dict("list") == {
        "size, cm": ["1,5", "2,5"],
        "weight, kg": ["2", "3"],
    }


def readings(texts, monkeypatch, na=()):
    """How a column is read if its numbers are read together, and if each is read by itself."""
    for is_fast in (True, False):
        with monkeypatch.context() as patch:
            if not is_fast:
                patch.setattr(Cells, "_read_simple_numbers", lambda *_: None)
            column = Cells(pandas.Series(texts), na)
            mark, marks = learn_marks({"x": column})
            kind = learn_kind(column, mark or marks.get("x"))
            yield mark, marks, kind, [column.numbers(m, "") for m in (".", ",", None)]


def assert_read_alike(texts, monkeypatch, na=()):
    fast, slow = readings(texts, monkeypatch, na)
    assert fast[:3] == slow[:3], texts
    np.testing.assert_array_equal(fast[3], slow[3])
    return fast


def test_simple_numbers_are_read_faster_but_not_otherwise(monkeypatch):
    rng = np.random.default_rng(0)
    values = [
        float(f"{v:.{d}e}")
        for v, d in zip(rng.normal(size=500), rng.integers(0, 17, 500), strict=True)
    ]
    for i, mark in enumerate((".", ",")):
        texts = [f" {value!r}".replace(".", mark) for value in values] + ["NA", None, "+1e3", "7"]
        shown_mark, _, kind, numbers = assert_read_alike(texts, monkeypatch)
        assert (shown_mark, kind) == (mark, ("number", "", []))
        np.testing.assert_array_equal(numbers[i][0][:500], values)


#: Cells that programs and people write; Python, pandas and Arrow read some of them differently.
SPELLINGS = [
    *("1.234", "1,234", "1.5", "1,5", "01", "007", "-01", "0", "-0", "0.123", "12.", ".5", "+7"),
    *("1e400", "1e-400", "-1e400", "1E5", "1e+05", "1d5", "1e", "e5", ".", "-", "+", "--1", "1-"),
    *("inf", "-inf", "Infinity", "INF", "Inf", "nan", "NaN", "NAN", "nan(1)", "-nan", "<NA>"),
    *(
        "0x1F",
        "0X1f",
        "0b1",
        "0o7",
        "1_000",
        "1 000",
        "1\u00a0000",
        "1'000",
        "1’000.5",
        "1.234.567",
    ),
    *("9" * 30, "9" * 400, "9007199254740993", "1f", "1L", "1j", "١", "１", "½", "²", "−5", "–5"),
    *("12%", "12 %", ">200", "< 0,5", "True", "FALSE", "yes", "NA", "None", "null", "#N/A", " 5 "),
    *("\t5", "\u20095", "\x1f5", "5\n", "1.5.", "1,234.5", "1.234,5", "#DIV/0!", "", " ", "-999"),
]


@pytest.mark.parametrize("word", SPELLINGS)
def test_every_spelling_is_read_alike_in_every_company(word, monkeypatch):
    for others in ([], ["1.5", "2.25"], ["1,5", "2,25"], ["1", "2"], [None, "NA"], ["a", "b"]):
        assert_read_alike([word, *others], monkeypatch)
        assert_read_alike([word, *others], monkeypatch, na=["-999", "7"])
    alone, together = (Cells(pandas.Series([word, *more])) for more in ([], ["1.5", "x", "True"]))
    for mark in (".", ",", None):
        for one, many in zip(alone.numbers(mark, ""), together.numbers(mark, ""), strict=True):
            np.testing.assert_array_equal(one[0], many[0])
