"""A cell means the same in fit and predict, in one piece and in chunks, in files and data frames.

To add a file, add a line to ``FILES``: how a table is written, and with which options it is read.
"""

import datetime as dt
import gzip
import io
from decimal import Decimal

import numpy as np
import pytest

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("python_calamine")
pytest.importorskip("openpyxl")

import domainwise as dw  # noqa: E402
from domainwise.models.apply import apply_to_file  # noqa: E402
from domainwise.models.table_model import TableModel, fit_table, read_labelled_rows  # noqa: E402
from domainwise.tables.cells import Cells, learn_kind, plain  # noqa: E402
from domainwise.tables.errors import TableError  # noqa: E402
from domainwise.tables.schema import Schema, check_table, load_table  # noqa: E402

N = 72
ROLES = {"target": "ill", "domain": "site"}
RNG = np.random.default_rng(0)
AGE = RNG.normal(50, 10, N).round(1)
COST = (10.0 ** RNG.uniform(0, 6, N)).round(2)
FRAME = pandas.DataFrame({"age": AGE, "cost": COST, "dose": RNG.integers(0, 5, N)})
FRAME["sex"] = np.where(RNG.random(N) < 0.5, "m", "f")
FRAME["site"] = np.array(["Lund", "Boston, MA", "NA"])[np.arange(N) % 3]
FRAME["ill"] = np.where(AGE + 5 * RNG.normal(size=N) > 50, "yes", "no")
FRAME.loc[::11, "age"] = np.nan
FRAME.loc[::13, "sex"] = None
DAYS = pandas.date_range("2020-01-01", periods=N, freq="17D")


def csv(encoding="utf-8", columns=None, **options):
    """A CSV file of the table, with further columns."""
    frame = FRAME.assign(**(columns or {}))
    return "t.csv", frame.to_csv(index=False, **options).encode(encoding)


def grouped(thousands, mark):
    cells = [f"{value:,.2f}" for value in COST]
    return {"cost": [c.replace(",", "_").replace(".", mark).replace("_", thousands) for c in cells]}


def cycle(*cells):
    return [cells[i % len(cells)] for i in range(N)]


def workbook(columns=None, titles=0):
    stream = io.BytesIO()
    FRAME.assign(**(columns or {})).to_excel(stream, index=False, startrow=titles)
    return "t.xlsx", stream.getvalue()


def written(method, columns=None):
    stream = io.BytesIO()
    getattr(FRAME.assign(**(columns or {})), f"to_{method}")(stream)
    return f"t.{method}", stream.getvalue()


WESTERN = {"sex": cycle("Müller", "Köln")}
FILES = {
    "points": (csv(), {}),
    "decimal commas": (csv(sep=";", decimal=","), {}),
    "decimal commas, named": (csv(sep=";", decimal=","), {"decimal": ","}),
    "American groups": (csv(columns=grouped(",", ".")), {}),
    "German groups": (csv(sep=";", decimal=",", columns=grouped(".", ",")), {}),
    "Swiss groups": (csv(columns=grouped("’", ".")), {}),
    "French groups": (csv(sep=";", decimal=",", columns=grouped("\u202f", ",")), {}),
    "only groups": (csv(columns={"n": [f"{i + 1},{i:03}" for i in range(N)]}), {"decimal": "."}),
    "only three decimals": (
        csv(sep=";", decimal=",", columns={"n": [f"{i + 1},{i:03}" for i in range(N)]}),
        {"decimal": ","},
    ),
    "groups, decided by others": (
        csv(sep=";", decimal=",", columns={"n": [f"{i + 1}.{i:03}" for i in range(N)]}),
        {},
    ),
    "two marks": (csv(sep=";", columns={"n": [f"{i},5" for i in range(N)]}), {}),
    "minus signs": (csv(columns={"n": [f"−{i}.5" for i in range(N)]}), {}),
    "powers of ten": (csv(columns={"n": [f"{i}e-3" for i in range(N)]}), {}),
    "codes": (csv(columns={"code": cycle("01", "02", "10")}), {}),
    "codes with gaps": (csv(columns={"code": cycle("01", None, "10", "02")}), {}),
    "codes and words": (csv(columns={"code": cycle("1", "2", "none")}), {}),
    "codes of letters and digits": (csv(columns={"code": cycle("0A", "1", "1e5x")}), {}),
    "hexadecimal codes": (csv(columns={"code": cycle("0x1F", "0x20", "0x1f")}), {}),
    "yes and no": (csv(columns={"flag": cycle("TRUE", "FALSE", None)}), {}),
    "words for nothing": (csv(na_rep="NA"), {}),
    "words in categories": (csv(columns={"drink": cycle("None", "light", "NA")}), {}),
    "a code for nothing": (csv(columns={"dose": cycle(-999, 1, 2, 3)}), {"na": ["-999"]}),
    "... with decimals": (csv(columns={"dose": cycle("-999.0", "1.5", "2")}), {"na": ["-999"]}),
    "a word for nothing": (csv(columns={"sex": cycle("m", "f", "?")}), {"na": ["?"]}),
    "cp1252": (csv("cp1252", columns=WESTERN), {}),
    "cp1250, named": (csv("cp1250", columns=WESTERN), {"encoding": "cp1250"}),
    "UTF-16": (csv("utf-16", columns=WESTERN), {}),
    "a byte order mark": (csv("utf-8-sig", columns=WESTERN), {}),
    "ISO dates": (csv(columns={"day": DAYS.strftime("%Y-%m-%d")}), {"dates": ["age", "month"]}),
    "German dates": (csv(columns={"day": DAYS.strftime("%d.%m.%Y")}), {"dates": ["age"]}),
    "American dates": (csv(columns={"day": DAYS.strftime("%m/%d/%Y")}), {"dates": ["weekday"]}),
    "British dates": (csv(columns={"day": DAYS.strftime("%d/%m/%Y")}), {"dates": ["age"]}),
    "percentages": (csv(columns={"share": [f"{i} %" for i in range(N)]}), {}),
    "times": (csv(columns={"start": [f"{i % 24}:30" for i in range(N)]}), {}),
    "censored values": (
        csv(columns={"lab": [">200" if i % 15 == 0 else f"{i}.5" for i in range(N)]}),
        {"auto_drop": True},
    ),
    "censored values with commas": (
        csv(
            sep=";",
            decimal=",",
            columns={"lab": [">200,5" if i % 15 == 0 else f"{i},5" for i in range(N)]},
        ),
        {"auto_drop": True},
    ),
    "quoted cells": (csv(quoting=1), {}),
    "quoted commas": (csv(decimal=",", quoting=1), {}),
    "tabs": (csv(sep="\t"), {}),
    "pipes": (csv(sep="|", decimal=","), {}),
    "Windows' line ends": (csv(lineterminator="\r\n"), {}),
    "UTF-8 with a mark and semicolons": (csv("utf-8-sig", sep=";", decimal=","), {}),
    "UTF-16, big-endian": (csv("utf-16", columns=WESTERN), {}),
    "names with commas and quotes": (csv(columns={'dose, "mg"': cycle(1.5, 2.5, 4)}), {}),
    "names with spaces": (csv(columns={" a ": cycle(1.5, 2.5, 4), "a": cycle(3, 1)}), {}),
    "cells of several lines": (csv(columns={"text": cycle("a\nb", "c", "d\r\ne")}), {}),
    "leading signs": (csv(columns={"n": [f"{i - 20:+}" for i in range(N)]}), {}),
    "padded numbers": (csv(columns={"n": [f"  {i}.5 " for i in range(N)]}), {}),
    "points without digits": (csv(columns={"n": cycle(".5", "1.", "-.25")}), {}),
    "very long integers": (csv(columns={"n": cycle("9" * 25, "1" + "0" * 24, "7")}), {}),
    "integers beyond float64": (csv(columns={"n": cycle(2**53 + 1, 2**53, 5)}), {}),
    "spellings of missing numbers": (
        csv(
            columns={"n": cycle("1.5", "NaN", "nan", "NA", "N/A", "null", "", "#N/A", "2", "None")}
        ),
        {},
    ),
    "truth values in capitals and not": (csv(columns={"b": cycle("True", "FALSE", "true")}), {}),
    "truth values and numbers": (csv(columns={"b": cycle("TRUE", "0", "1", "false")}), {}),
    "truth values and words": (csv(columns={"b": cycle("TRUE", "FALSE", "unknown")}), {}),
    "mixed categories": (csv(columns={"c": cycle("1", "2.0", "x", "1e3", None)}), {}),
    "fractions as categories": (csv(columns={"c": cycle("0.10", "0.5", "other")}), {}),
    "complex numbers": (csv(columns={"c": cycle("1+2j", "1j", "3")}), {}),
    "codes with zeros": (csv(columns={"c": cycle("007", "010", "0")}), {}),
    "negative codes": (csv(columns={"c": cycle("-01", "-02", "03")}), {}),
    "codes and missing words": (csv(columns={"c": cycle("01", "?", "02")}), {"na": ["?"]}),
    "percentages with gaps": (csv(columns={"p": cycle("5%", None, "7.25 %", "NA", "0%")}), {}),
    "percentages with commas": (
        csv(sep=";", decimal=",", columns={"p": cycle("5,5%", "1.000,5 %", "7%")}),
        {},
    ),
    "times with seconds": (csv(columns={"t": cycle("07:30:15", "19:00", "1:05 pm")}), {}),
    "dates with times": (csv(columns={"d": DAYS.strftime("%Y-%m-%d 10:30")}), {"dates": ["age"]}),
    "dates with gaps": (
        csv(columns={"d": [*cycle("2024-05-31", None, "NA")[:-1], "2023-01-01"]}),
        {"dates": ["age"]},
    ),
    "groups in quotes": (
        csv(columns={"n": [f"{i + 1},{i:03}" for i in range(N)]}, quoting=1),
        {"decimal": "."},
    ),
    "groups of thin spaces": (csv(columns=grouped("\u2009", ".")), {}),
    "two kinds of missing": (
        csv(columns={"n": cycle("-99", "-999", "5", "6")}),
        {"na": ["-99", "-999"]},
    ),
    "missing words with spaces": (csv(columns={"n": cycle(" NA ", "1.5", " ")}), {}),
    "site-level columns": (csv(columns={"beds": cycle(80, 320, 200)}), {}),
    "a workbook": (workbook({"start": cycle(dt.time(7, 30), dt.time(19))}), {}),
    "a workbook with titles": (workbook(titles=2), {}),
    "codes in a workbook": (workbook({"code": cycle("01", "02")}), {}),
    "codes and numbers in a workbook": (workbook({"code": cycle("01", 2, 3)}), {}),
    "truth values and whole numbers in a workbook": (
        workbook({"b": cycle(True, False, None), "n": cycle(1, 2.5, None)}),
        {},
    ),
    "dates in a workbook": (workbook({"day": DAYS}), {"dates": ["month", "age"]}),
    "dates and texts in a workbook": (
        workbook({"day": cycle(dt.datetime(2020, 1, 1, 5), "2020-03-01", None)}),
        {"dates": ["month"]},
    ),
    "a date for nothing": (
        csv(columns={"day": cycle("2020-01-01", "1900-01-01", "2021-05-05")}),
        {"dates": ["age"], "na": ["1900-01-01"]},
    ),
    "a typed date for nothing": (
        written("parquet", {"day": pandas.to_datetime(cycle("2020-01-01", "1900-01-01"))}),
        {"dates": ["age"], "na": ["1900-01-01"]},
    ),
    "old dates": (csv(columns={"day": cycle("1066-10-14", "2020-01-01")}), {"dates": ["age"]}),
    "dates with zones": (
        csv(columns={"day": DAYS.strftime("%Y-%m-%dT%H:%M:%SZ")}),
        {"dates": ["weekday"]},
    ),
    "signs alone": (csv(columns={"c": cycle("+", "-", "++")}), {}),
    "other letters": (csv(columns={"c": cycle("😀", "ß", "١")}), {}),
    "spaces around categories": (csv(columns={"c": cycle(" a", "a ", "a")}), {}),
    "Parquet": (written("parquet", {"code": cycle("01", "02"), "n": cycle(1, None, 3)}), {}),
    "Feather": (written("feather", {"day": DAYS}), {"dates": ["age"]}),
    "Parquet with other types": (
        written(
            "parquet",
            {
                "code": pandas.Categorical(cycle("01", None, "10")),
                "level": pandas.Categorical(cycle(3, 1, 2)),
                "text": pandas.array(cycle("1,5", "a", None), "string[pyarrow]"),
                "count": pandas.array(cycle(1, None, 3), "UInt8"),
                "flag": pandas.array(cycle(True, None, False), "boolean"),
                "price": cycle(Decimal("1.50"), None, Decimal("2.25")),
                "half": np.arange(N, dtype=np.float16),
                "day": DAYS.tz_localize("Asia/Tokyo"),
                "start": cycle(dt.time(7, 30), None),
                "length": pandas.to_timedelta(np.arange(N), unit="min"),
            },
        ),
        {"dates": ["age"]},
    ),
    "errors in a workbook": (
        workbook({"lab": cycle("#DIV/0!", 1.5, 2.5)}),
        {"na": ["#DIV/0!"]},
    ),
    "a missing code among codes": (csv(columns={"code": cycle("01", "09", "10")}), {"na": ["09"]}),
    "compressed": (("t.csv.gz", gzip.compress(csv(sep=";", decimal=",")[1])), {}),
}


@pytest.mark.filterwarnings("ignore:t.csv is not UTF-8")
@pytest.mark.parametrize("case", FILES)
def test_fit_and_predict_read_the_same_in_one_piece_and_in_chunks(case, tmp_path):
    (name, content), options = FILES[case]
    path = tmp_path / name
    path.write_bytes(content)
    table = load_table(path, **ROLES, **options)
    model = TableModel(None, Schema.from_dict(table.schema.as_dict()), {})
    encoding = options.get("encoding")
    pandas.testing.assert_frame_equal(model.read_rows(path, encoding=encoding), table.X)
    pieces = model.read(path, table.schema.features, chunk_rows=13, encoding=encoding)
    rows = [model.schema.prepare(piece, first_row=i) for i, piece in enumerate(pieces)]
    pandas.testing.assert_frame_equal(pandas.concat(rows, ignore_index=True), table.X)
    (frame,) = model.read(path, table.schema.features, encoding=encoding)
    if name == "t.csv":  # text in a Parquet file means the same
        frame.to_parquet(tmp_path / "u.parquet", index=False)
        pandas.testing.assert_frame_equal(model.read_rows(tmp_path / "u.parquet"), table.X)
    # The meaning of a row does not depend on the other rows.
    for i in range(0, N, 11):
        one = model.schema.prepare(frame.iloc[[i]])
        pandas.testing.assert_frame_equal(one, table.X.iloc[[i]].reset_index(drop=True))


@pytest.mark.parametrize("case", [c for c, ((name, _), _) in FILES.items() if name == "t.csv"])
def test_a_data_frame_from_read_csv_means_the_same(case, tmp_path):
    (name, content), options = FILES[case]
    (tmp_path / name).write_bytes(content)
    schema = load_table(tmp_path / name, **ROLES, **options).schema
    reading = {"sep": None, "engine": "python"}
    reading["encoding"] = options.get("encoding") or {
        "cp1252": "cp1252", "UTF-16": "utf-16", "a byte order mark": "utf-8-sig",
        "UTF-16, big-endian": "utf-16", "UTF-8 with a mark and semicolons": "utf-8-sig",
    }.get(case, "utf-8")  # fmt: skip
    # Otherwise, read_csv reads the category "NA" as a missing value.
    reading["keep_default_na"] = case not in ("words in categories", "words for nothing")
    typed = pandas.read_csv(tmp_path / name, **reading)
    if case == "groups, decided by others":  # read_csv reads 1.234 as a fraction
        with pytest.raises(TableError, match="'n' has whole numbers whose points .* number 2.001"):
            schema.prepare(typed)
        typed = pandas.read_csv(tmp_path / name, **reading, decimal=",", thousands=".")
    expected = TableModel(None, schema, {}).read_rows(
        tmp_path / name, encoding=options.get("encoding")
    )
    pandas.testing.assert_frame_equal(schema.prepare(typed), expected)


def test_codes_are_categories_in_every_container(tmp_path):
    name, content = workbook({"code": cycle("01", 2, 3)})
    (tmp_path / name).write_bytes(content)
    assert set(load_table(tmp_path / name, **ROLES).X["code"]) == {"01", "2", "3"}
    table = check_table(FRAME.assign(code=cycle("01", "02", "10")), **ROLES)
    assert table.schema.categorical == ("sex", "code")
    assert set(table.X["code"]) == {"01", "02", "10"}
    for cells in (cycle(1, 2, 10), cycle(1.0, 2.0, 10.0), pandas.array(cycle(1, 2, 10), "Int64")):
        again = table.schema.prepare(FRAME.assign(code=cells))
        pandas.testing.assert_series_equal(again["code"], table.X["code"])
    assert table.schema.prepare(FRAME.assign(code="1"))["code"].tolist() == ["1"] * N


def test_a_number_that_may_be_two_categories_is_refused(tmp_path):
    codes = cycle("01", "1", "007", "x1")
    schema = check_table(FRAME.assign(code=codes), **ROLES).schema
    assert schema.prepare(FRAME.assign(code=codes))["code"].tolist() == codes
    assert schema.prepare(FRAME.assign(code=7))["code"].tolist() == ["007"] * N
    with pytest.raises(
        TableError, match="'code' has the number 1, which may be '01' or '1'. Store"
    ):
        schema.prepare(FRAME.assign(code=1.0))


def test_a_loaded_model_reads_data_frames_as_the_training_table_was_read(tmp_path):
    columns = {"code": cycle("01", "02", "10"), "share": [f"{i % 9} %" for i in range(N)]}
    FRAME.assign(**columns, day=DAYS).to_csv(tmp_path / "t.csv", index=False, sep=";", decimal=",")
    table = load_table(tmp_path / "t.csv", **ROLES, dates=["month"])
    model = fit_table(table, method="linear")
    model.save(tmp_path / "m.skops")
    expected = model.predictions(table.X)
    loaded = dw.load(tmp_path / "m.skops")
    for options in ({"decimal": ","}, {"dtype": str}):
        frame = pandas.read_csv(tmp_path / "t.csv", sep=";", **options)
        np.testing.assert_allclose(loaded.predict_proba(frame)[:, 1], expected["probability_yes"])
        assert not dw.check_shift(loaded, frame)
    dw.save(loaded, tmp_path / "again.skops")
    assert dw.load(tmp_path / "again.skops").predict(frame).tolist() == [*expected["prediction"]]
    with pytest.raises(TableError, match="'age' must contain numbers, but row 1 has 'old'"):
        loaded.predict(frame.assign(age="old"))


def test_the_decimal_sign_is_that_of_the_training_table():
    german = check_table(FRAME.assign(n=cycle("1.234", "1,5", "12")), **ROLES).schema
    assert german.decimal == ","
    assert german.prepare(FRAME[:1].assign(n="1.234"))["n"].tolist() == [1234]
    assert german.prepare(FRAME[:1].assign(n="1,500"))["n"].tolist() == [1.5]
    message = r"'n' must contain numbers, but row 1 has '1.5'.*decimal='.'"
    with pytest.raises(TableError, match=message):
        german.prepare(FRAME[:1].assign(n="1.5"))
    assert german.with_options(".").prepare(FRAME[:1].assign(n="1.5"))["n"].tolist() == [1.5]
    # A table that showed no mark: a comma is asked for.
    whole = check_table(FRAME.assign(n=np.arange(N)), **ROLES).schema
    with pytest.raises(TableError, match="row 8 has '1,500'.*decimal=',' or decimal='.'"):
        whole.prepare(FRAME[:1].assign(n="1,500"), first_row=7)
    with pytest.raises(TableError, match="decimal='x' is not supported"):
        whole.with_options("x")


def test_a_point_that_may_separate_thousands_is_asked_about(tmp_path):
    counts = [f"{90 * i:,}".replace(",", ".") for i in range(N)]
    columns = {"age": np.arange(N), "cost": 1, "n": counts}
    path = tmp_path / "t.csv"
    FRAME.assign(**columns).to_csv(path, index=False, sep=";")
    with pytest.raises(TableError, match="'1.080', in which the point may be .*decimal=','"):
        load_table(path, **ROLES)
    assert load_table(path, **ROLES, decimal=",").X["n"].tolist() == [90 * i for i in range(N)]
    assert load_table(path, **ROLES, decimal=".").X["n"][12] == 1.08
    # Numbers with three decimals have a point in all cells, or a zero before it in some.
    for cells in ([f"{1 + i / 7:.3f}" for i in range(N)], cycle("0.125", "1.250", "3")):
        table = check_table(FRAME.assign(**columns | {"n": cells}), **ROLES)
        assert table.X["n"].tolist() == [float(cell) for cell in cells]


def test_a_code_for_missing_values_means_the_same_in_typed_columns():
    table = check_table(FRAME.assign(code=cycle("00", "01", "02")), **ROLES, na=["0", "1"])
    typed = table.schema.prepare(FRAME.assign(code=cycle(0, 1, 2)))
    pandas.testing.assert_frame_equal(typed, table.X)
    lab = np.where(np.arange(N) % 3, np.arange(N) / 2, -9)
    texts = np.where(lab == 20, ">20", lab.astype(str)).tolist()
    table = check_table(FRAME.assign(lab=texts), **ROLES, na=["-9"], auto_drop=True)
    assert table.schema.forms == {"lab": "censored"}
    pandas.testing.assert_frame_equal(table.schema.prepare(FRAME.assign(lab=lab)), table.X)


def test_dates_with_an_unknown_order_are_refused():
    schema = check_table(FRAME.assign(day=DAYS.strftime("%Y-%m-%d")), **ROLES, dates=["age"]).schema
    with pytest.raises(TableError, match="'day' must contain dates, but row 1 has '1/2/2024'"):
        schema.prepare(FRAME[:1].assign(day="1/2/2024"))


def test_percentages_need_their_sign():
    schema = check_table(FRAME.assign(share=cycle("5%", "7.5%")), **ROLES).schema
    assert schema.prepare(FRAME[:2].assign(share=["10%", " "]))["share"].tolist()[0] == 0.1
    with pytest.raises(TableError, match="'share' must contain percentages, but row 1 has '10'"):
        schema.prepare(FRAME[:1].assign(share="10"))


def test_censored_values_are_not_a_reason_to_drop_a_column():
    lab = [">200" if i % 15 == 0 else f"{i}.5" for i in range(N)]
    with pytest.raises(TableError, match="but also '>200'. They are censored values"):
        check_table(FRAME.assign(lab=lab), **ROLES)
    table = check_table(FRAME.assign(lab=lab), **ROLES, auto_drop=True)
    assert table.X["lab"][:2].tolist() == [200, 1.5]
    note = "columns with censored values, which are read as their limit: lab (5 cells, such as "
    assert f"{note}'>200')" in table.notes
    assert table.schema.prepare(FRAME[:1].assign(lab="> 300"))["lab"].tolist() == [300]
    mostly = check_table(FRAME.assign(lab=cycle("<5", "<6", "7")), **ROLES, auto_drop=True)
    assert "lab" not in mostly.schema.numeric


def test_many_categories_are_pooled():
    rare = [f"icd {i // 3}" if i % 2 else "common" for i in range(3 * N)]
    frame = pandas.concat([FRAME] * 3, ignore_index=True).assign(icd=rare)
    table = check_table(frame, **ROLES)
    model = fit_table(table, method="linear")
    encoder = model.pipeline["prepare"].named_transformers_["categorical"][-1]
    names = [name for name in encoder.get_feature_names_out(["sex", "icd"]) if "icd" in name]
    assert names == ["icd_common", "icd_infrequent_sklearn"]
    rows = table.X[:2].assign(icd=["icd 1", "never seen"], age=50.0, cost=1.0, dose=1.0, sex="m")
    assert len(model.predictions(rows)["probability_yes"].unique()) == 1
    text = [f"patient {i} came on day {i} with a cough" for i in range(3 * N)]
    with pytest.raises(TableError, match="it is free text, which cannot be used as a feature"):
        check_table(frame.assign(icd=text), **ROLES)


def test_labels_with_a_comma_are_dropped_as_a_whole():
    table = check_table(FRAME, **ROLES, drop_domains=["Boston, MA"])
    assert (table.domains, table.dropped_domains) == (["Lund", "NA"], ("Boston, MA",))


def test_other_containers_of_text_and_numbers_are_read():
    frame = FRAME.astype({"sex": "string[pyarrow]", "age": ">f8", "dose": ">i4"})
    frame["site"] = pandas.array(FRAME["site"], dtype=pandas.ArrowDtype(arrow().string()))
    frame["ill"] = pandas.array(FRAME["ill"], dtype=pandas.ArrowDtype(arrow().large_string()))
    frame["day"] = pandas.array(DAYS, dtype=pandas.ArrowDtype(arrow().timestamp("ns")))
    frame["flag"] = pandas.array(cycle(True, False), dtype="boolean[pyarrow]")
    frame["level"] = pandas.arrays.SparseArray(cycle(0.0, 1.0, 0.0))
    table = check_table(frame, **ROLES, dates=["month"])
    plain_table = check_table(FRAME, **ROLES)
    pandas.testing.assert_frame_equal(table.X[plain_table.X.columns], plain_table.X)
    assert table.y.tolist() == plain_table.y.tolist()
    assert table.domains == plain_table.domains
    assert table.schema.numeric == ("age", "cost", "dose", "flag", "level")
    assert table.X["day (month)"].tolist() == DAYS.month.tolist()


def arrow():
    import pyarrow

    return pyarrow


def test_cells_that_are_no_numbers_or_text_are_refused(tmp_path):
    for cells, kind in ((cycle(b"a", b"b"), "bytes"), (cycle(1j, 2j), "complex")):
        with pytest.raises(TableError, match=f"column 'odd' contains {kind} values"):
            check_table(FRAME.assign(odd=cells), **ROLES)
    FRAME.assign(odd=cycle(b"a", b"b"), ill=cycle(b"y", b"n")).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(TableError, match="target 'ill' contains bytes values"):
        load_table(tmp_path / "t.parquet", **ROLES)
    schema = check_table(FRAME, **ROLES).schema
    with pytest.raises(TableError, match=r"'age' must contain numbers, but row 1 has '\[1, 2\]'"):
        schema.prepare(FRAME.assign(age=[[1, 2]] * N))
    assert learn_kind(Cells(pandas.Series(["0x1F", "0x20"]))) == ("text", "", [])
    assert plain(pandas.Series(pandas.Categorical([2, 1, 2]))).tolist() == [2, 1, 2]


def test_a_parquet_file_with_duplicate_columns_is_refused(tmp_path):
    from pyarrow import parquet

    columns = [arrow().array(FRAME[name]) for name in ("site", "ill", "age", "age")]
    table = arrow().table(columns, names=["site", "ill", "age", "age"])
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TableError, match="more than one column named 'age'"):
        load_table(tmp_path / "t.parquet", **ROLES)
    pytest.importorskip("dask.dataframe")
    with pytest.raises(TableError, match="more than one column named 'age'"):
        dw.distributed.fit_parquet(
            dw.FastDCM(), tmp_path / "t.parquet", target="ill", domain="site"
        )


def test_a_very_long_name_or_cell_is_shortened(tmp_path):
    content = f"site,ill,{'x' * 2**20}\n" + "a,1,2\nb,0,3\n" * 20
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(TableError, match=r"x'… \(1,048,496 more characters\). Give it a name"):
        load_table(tmp_path / "t.csv", **ROLES)
    schema = check_table(FRAME, **ROLES).schema
    with pytest.raises(TableError) as caught:
        schema.prepare(FRAME.assign(dose="y" * 2**20))
    assert len(str(caught.value)) < 10_000


def test_hidden_sheets_are_mentioned_and_passed_over(tmp_path):
    import openpyxl

    name, content = workbook()
    (tmp_path / name).write_bytes(content)
    book = openpyxl.load_workbook(tmp_path / name)
    hidden = book.create_sheet("codes", 0)
    hidden.append(["site", "ill", "age"])
    hidden.append(["x", "y", 1])
    hidden.sheet_state = "hidden"
    book.save(tmp_path / name)
    table = load_table(tmp_path / name, **ROLES)
    assert len(table.y) == N
    assert "t.xlsx: only sheet 'Sheet1' was read, not 'codes' (hidden)" in table.notes


def test_options_hold_for_labels_predictions_and_workers_alike(tmp_path):
    table = check_table(FRAME, **ROLES)
    model = fit_table(table, method="linear")
    FRAME.to_csv(tmp_path / "plain.csv", index=False)
    german = FRAME.assign(dose=FRAME["dose"].where(FRAME["dose"] > 0, -9))
    german.to_csv(tmp_path / "german.csv", index=False, sep=";", decimal=",")
    FRAME.assign(dose=FRAME["dose"].where(FRAME["dose"] > 0)).to_csv(tmp_path / "gaps.csv")
    apply_to_file(model, tmp_path / "gaps.csv", tmp_path / "a.csv")
    options = {"decimal": ",", "na": ["-9"]}
    for chunk_rows in (50_000, 10):
        apply_to_file(
            model, tmp_path / "german.csv", tmp_path / "b.csv", chunk_rows=chunk_rows, **options
        )
        assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    with pytest.raises(TableError, match="'age' must contain numbers.*decimal=','"):
        apply_to_file(model, tmp_path / "german.csv", tmp_path / "b.csv")
    X, y, n_ignored = read_labelled_rows(model.with_options(**options), tmp_path / "german.csv")
    expected = model.with_options(na=["0"]).schema.prepare(FRAME)
    np.testing.assert_array_equal(X["age"], expected["age"])
    np.testing.assert_array_equal(X["dose"], expected["dose"])
    assert (y.tolist(), n_ignored) == (FRAME["ill"].tolist(), 0)


def test_columns_are_copied_to_the_output_as_they_are_written(tmp_path):
    model = fit_table(check_table(FRAME, **ROLES), method="constant")
    content = FRAME.assign(number=[f"{i:03}" for i in range(N)], cost="1e2").to_csv(index=False)
    (tmp_path / "t.csv").write_text(content)
    apply_to_file(model, tmp_path / "t.csv", tmp_path / "o.csv", keep=["number,cost"])
    copied = pandas.read_csv(tmp_path / "o.csv", dtype=str, keep_default_na=False)
    assert copied["number"].tolist() == [f"{i:03}" for i in range(N)]
    assert set(copied["cost"]) == {"1e2"}
    assert copied["site"].tolist() == FRAME["site"].tolist()


def test_errors_name_the_row_of_the_file(tmp_path):
    model = fit_table(check_table(FRAME, **ROLES), method="constant")
    frame = FRAME.astype({"dose": object})
    frame.loc[3, "ill"] = None
    frame.loc[66, "dose"] = "much"
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(TableError, match="'dose' must contain numbers, but row 67 has 'much'"):
        apply_to_file(model, tmp_path / "t.csv", tmp_path / "o.csv", chunk_rows=10)
    with pytest.raises(TableError, match="row 67 has 'much'"):
        read_labelled_rows(model, tmp_path / "t.csv")
    assert not (tmp_path / "o.csv").exists()
