"""The HTML report of an evaluation: its contents, and that it is safe to open."""

import csv
import hashlib
import re
from base64 import b64encode
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from domainwise import evaluate
from domainwise.evaluation.page import forest_picture


@pytest.fixture(scope="module")
def evaluation():
    rng = np.random.default_rng(0)
    domain = np.repeat(["<b>ayr</b>", "bath", "cork", "deal"], 14)
    X = rng.normal(size=(56, 3))
    X[domain == "deal"] += 1.5
    return evaluate(X, (X[:, 0] + X[:, 1] > 0).astype(int), domain, methods=["linear", "dcm"])


@pytest.fixture(scope="module")
def page(evaluation, tmp_path_factory):
    return evaluation.report(tmp_path_factory.mktemp("page") / "report.html").read_text("utf-8")


def test_every_method_that_can_be_compared_is_drawn(evaluation, tmp_path):
    from domainwise.models.registry import METHODS

    keys = [*METHODS, "ensemble+context", "a caller's own"]
    results = [replace(evaluation.results[0], key=key, label=key) for key in keys]
    records = dict.fromkeys(keys, next(iter(evaluation.records.values())))
    page = replace(evaluation, results=results, records=records).report(tmp_path / "report.html")
    assert "ensemble+context" in page.read_text("utf-8")


class Ids(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids = []

    def handle_starttag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]


def test_the_page_loads_nothing_and_may_run_only_its_own_script(page):
    assert not re.search(r"<script[^>]|<link[^>]+https?:|url\(https?:|src=\"https?:", page)
    assert "@import" not in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, flags=re.S)
    allowed = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src"
    assert f"{rules} 'sha256-{allowed}'\"" in page


def test_names_of_domains_are_text_and_not_markup(page):
    assert "<b>ayr</b>" not in page
    assert "&lt;b&gt;ayr&lt;/b&gt;" in page


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', r"$\frac$", "[/c]{{7*7}}")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.handlers = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.handlers += [name for name, _ in attributes if name.startswith("on")]


@pytest.mark.parametrize("regression", [False, True])
def test_markup_in_names_of_columns_classes_domains_and_files_is_text(tmp_path, regression):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    frame = pandas.DataFrame(X, columns=HOSTILE[:3])
    frame[HOSTILE[3]] = np.where(X[:, 0] > 0, HOSTILE[0], HOSTILE[1])
    domain = np.repeat(HOSTILE, 20)
    frame.loc[domain == HOSTILE[1], HOSTILE[0]] = np.nan  # a fault, in words
    frame.loc[domain == HOSTILE[0], HOSTILE[1]] += 1000.0
    y = np.where(X[:, 1] + rng.normal(size=80) > 0, HOSTILE[0], HOSTILE[1])
    y = X[:, 1] if regression else y
    evaluation = evaluate(frame, y, domain, methods=["constant", "linear", "kpca"], progress=False)
    assert {fault["kind"] for fault in evaluation.differences["faults"]} >= {"missing", "level"}
    page = evaluation.report(tmp_path / "report.html", title=HOSTILE[1]).read_text("utf-8")
    tags = Tags()
    tags.feed(page)
    assert not tags.handlers
    assert tags.tags.count("script") == 1
    assert "img" not in tags.tags
    assert "{{7*7}}" in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10


def test_ids_are_unique(page):
    parser = Ids()
    parser.feed(page)
    assert len(parser.ids) == len(set(parser.ids))


def test_the_first_screen_is_the_answer_and_the_worst_domain_is_highlighted(evaluation, page):
    from markupsafe import escape

    text = page.split('<div class="answer">')[1].split("<nav")[0].replace("\u00a0", " ")
    answer = evaluation.answer
    for part in (answer.take, answer.reason[1:], answer.expect[1:], answer.certain, answer.watch):
        assert str(escape(part)) in text
    assert ">model = evaluation.fit()</code>" in text
    assert text.count("<svg") == 1
    assert str(escape(evaluation.worst_domain)) in text
    worst = page.split('<tr class="worst">')[1:]
    assert len(worst) == 1
    assert str(escape(str(evaluation.worst_domain))) in worst[0][:200]
    assert page.count('<tr class="recommended">') == 1


def test_sections_are_closed_and_have_links_and_columns_of_dashes_are_not_shown(evaluation, page):
    links = re.findall(r'<a href="#([a-z-]+)">', page.split("<nav")[1].split("</nav>")[0])
    assert links == ["methods", "sites", "differences", "columns", "settings"]
    assert all(f'id="{name}"' in page for name in links)
    assert "<details open" not in page
    section = page.split('<section id="methods">')[1]
    heads = re.findall(r'<th scope="col">(.*?)</th>', section.split("</thead>")[0])
    assert evaluation.best.p_value is None  # four domains
    assert not {"p", "adjusted p"} & set(heads)
    assert {"mean", "worst"} <= set(heads)


def test_columns_are_in_the_order_of_their_importance(evaluation, page):
    section = page.split('id="columns"')[1].split("</details>")[0]
    names = re.findall(r'<th scope="row">(.*?)</th>', section)
    importance = evaluation.recommended.importance
    assert names == sorted(importance, key=lambda name: -importance[name])


def test_every_picture_has_a_description(page):
    pictures = re.findall(r"<svg[^>]*>", page)
    # What to expect; calibration and decisions; a small one for each column, and one of all.
    assert len(pictures) == 1 + 2 + 3 + 1
    assert all(re.search(r'role="img" aria-label="[^"]{20,}"', picture) for picture in pictures)


def test_the_figure_of_scores_has_a_row_for_each_domain(evaluation):
    axes = evaluation.plot().axes[0]
    assert len(axes.get_yticks()) == 4


def test_tables_have_a_row_for_each_method_and_domain(evaluation):
    pytest.importorskip("pandas")
    assert list(evaluation.table()["method"]) == [result.label for result in evaluation.results]
    per_domain = evaluation.per_domain()
    assert len(per_domain) == 8
    assert per_domain["worst"].sum() == 2


def test_the_shift_picture_shows_medians_in_standard_deviations_within_domains(evaluation):
    from domainwise.evaluation.page import shift_picture

    picture = shift_picture(evaluation)
    assert "x0" in picture.svg
    assert "&lt;b&gt;ayr&lt;/b&gt;" in picture.svg or "3 other domains" in picture.svg
    column = evaluation.differences["columns"][0]
    assert column["kind"] == "number"
    evaluation.differences["columns"], columns = [], evaluation.differences["columns"]
    assert shift_picture(evaluation) is None
    evaluation.differences["columns"] = columns


def test_limits_are_in_a_banner_on_the_first_screen(evaluation, page, tmp_path):
    assert 'class="banner"' not in page
    quick = "Quick evaluation: scores are computed on 40 rows."
    rows = "Methods were trained on 40 of 56 rows and scored on 42 rows."
    for sentence, facts in ((quick, {"quick": quick, "rows": 40}), (rows, {"rows": 40})):
        limited = replace(evaluation, facts={**evaluation.facts, **facts})
        page = limited.report(tmp_path / "page.html").read_text("utf-8")
        assert sentence in page.split('<div class="answer">')[0]
        first_line, *other_lines = limited.answer.lines()
        assert first_line == f"Limits       {sentence}"
        assert len(other_lines) < 10


def test_the_page_has_no_matrix_of_methods_by_domain_and_no_glossary(evaluation, page):
    for heading in re.findall(r"<thead>(.*?)</thead>", page, flags=re.S):
        labels = [r.label for r in evaluation.results if f">{r.label}</th>" in heading]
        assert labels == []
    assert "nominal 50 %" not in page
    assert "<li><b>gamma</b>" not in page


def test_a_csv_file_with_the_scores_of_all_methods_is_written_beside_the_page(evaluation, tmp_path):
    page = evaluation.report(tmp_path / "my page.html").read_text("utf-8")
    assert '<a href="my%20page-sites.csv" download>my page-sites.csv</a>' in page
    rows = list(csv.DictReader((tmp_path / "my page-sites.csv").open(encoding="utf-8")))
    assert len(rows) == 4 * len(evaluation.results)
    for row in rows:
        result = evaluation.find(row["method"])
        score = result.scores[row["domain"]]
        assert row["score"] == (repr(score) if np.isfinite(score) else "")
        assert int(row["rows"]) == 14
        frame = evaluation.predictions_
        mine = frame[(frame["method"] == result.key) & (frame["domain"] == row["domain"])]
        assert int(row["class 1"]) == (mine["target"] == 1).sum()


def test_the_forest_plot_has_the_rows_and_the_mean_of_the_target_of_each_domain():
    rng = np.random.default_rng(0)
    site = np.repeat(["a", "b", "c", "d"], [20, 30, 40, 50])
    X = rng.normal(size=(140, 2))
    y = X[:, 0] + np.repeat([0.0, 10.0, 20.0, 30.0], [20, 30, 40, 50])
    svg = forest_picture(evaluate(X, y, site, methods=["constant", "linear"], progress=False)).svg
    for n, name in ((20, "a"), (50, "d")):
        assert f" · {n} · {abs(np.mean(y[site == name])):.0f}" in re.sub(r"\.\d", "", svg)
    assert "rows · mean of the target" in svg


@pytest.mark.parametrize("n_domains", [4, 12, 48])
def test_up_to_20_domains_have_a_row_in_the_forest_plot(evaluation, n_domains):
    names = [f"site {i:02}" for i in range(n_domains)]
    rng = np.random.default_rng(0)
    scores = dict(zip(names, rng.uniform(0.6, 0.9, n_domains).tolist(), strict=True))
    result = replace(
        evaluation.recommended,
        scores=scores,
        errors=dict.fromkeys(names, 0.025),
    )
    many = replace(
        evaluation, results=[result], domains=names, row_counts=dict.fromkeys(names, 50), records={}
    )
    picture = forest_picture(many)
    texts = re.findall(r">(site \d+|\d+ other sites|… of the true score)</text>", picture.svg)
    order = sorted(names, key=lambda name: scores[name])
    expected = (
        order if n_domains <= 20 else [*order[:10], f"{n_domains - 20} other sites", *order[-10:]]
    )
    assert texts == [*expected, "… of the true score"]
    assert "heterogeneity: τ = " in picture.caption
