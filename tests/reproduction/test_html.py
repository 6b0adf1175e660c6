import re
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

from reproduction.report import publish

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Page(HTMLParser):
    """Counts tags, collects ids and addresses, and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: dict[str, int] = {}
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        if tag not in VOID:
            self.stack.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


@pytest.fixture(scope="module")
def text(made_up_results):
    # A table of the paper's own data and a stand-in: the others look the same.
    folder = made_up_results(tables=("synthetic", "gvhd"))
    return publish(folder)[1].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    parsed = Page()
    parsed.feed(text)
    return parsed


def test_the_page_is_well_formed_and_its_ids_are_unique(page):
    assert page.stack == []
    assert len(page.ids) == len(set(page.ids))


def test_the_page_needs_no_network(page, text):
    outside = [a for a in page.addresses if not a.startswith(("#", "data:"))]
    assert outside == []
    assert "@import" not in text
    assert text.count("<script") == text.count("<script>") == 1  # which sorts tables


def test_every_link_inside_the_page_leads_somewhere(page):
    targets = {address[1:] for address in page.addresses if address.startswith("#")}
    assert targets <= set(page.ids)


def test_every_case_has_a_table_and_every_picture_a_description(page, text):
    assert page.tags["table"] == 14 + 1  # and the overview
    assert page.tags["figure"] == 14 + 7 + 7 + 3 + 1 + 2
    assert len(re.findall(r'<svg [^>]*role="img" aria-label="[^"]{20,}', text)) == page.tags["svg"]


def test_the_summary_comes_first(text):
    start = text[: text.index("<table")]
    assert "DCM is significantly" in start
    assert start.index("DCM is significantly") < start.index("on the paper&#39;s data")


def test_pictures_follow_the_pages_colours(text):
    assert "#010203" not in text
    assert "var(--ink)" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_the_report_is_the_same_each_time(made_up_results):
    folder = made_up_results(n_repeats=2, tables=("gvhd",))
    first = publish(folder)[1].read_bytes()
    assert publish(folder)[1].read_bytes() == first


def test_text_from_the_results_is_escaped(made_up_results):
    from domainwise.base.files import ResultStore

    folder = made_up_results(n_repeats=1, tables=("gvhd",))
    store = ResultStore(folder)
    store.read()
    row = dict(store.rows("result")[0], repeat=99, status="error", error="<script>x</script>")
    store.append([row])
    assert "<script>x" not in publish(folder)[1].read_text(encoding="utf-8")


def luminance(color):
    """Relative luminance of a color such as "#5b8def" (WCAG 2)."""
    values = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_chart_colors_are_readable_on_light_and_dark_pages():
    """A contrast of at least 3:1 with both backgrounds."""
    from domainwise.evaluation.plots.style import ACCENT, GRAY, PALETTE
    from reproduction.plots import COLORS

    for color in {*PALETTE, ACCENT, GRAY, *COLORS.values()}:
        for background in ("#fdfdfb", "#14181d"):
            light, dark = sorted(map(luminance, (color, background)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 3, (color, background)
