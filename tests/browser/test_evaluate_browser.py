"""The page of an evaluation in a real browser: widths, colours, keys, sorting, silence."""

import time
from dataclasses import replace

import numpy as np
import pytest

pytestmark = pytest.mark.browser

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with everything on it: faults, many domains, long names and markup in names."""
    pandas = pytest.importorskip("pandas")
    from domainwise import evaluate
    from domainwise.models.registry import METHODS

    rng = np.random.default_rng(0)
    names = [f"the hospital of Saint {i} by the sea" for i in range(7)] + [HOSTILE]
    site = np.repeat(names, 40)
    X = rng.normal(size=(320, 4))
    frame = pandas.DataFrame(
        X, columns=["temperature", HOSTILE, '"><img src=x onerror=alert(1)>', "d"]
    )
    frame["ward"] = rng.choice(["east", "west"], 320)
    frame.loc[site == names[2], "temperature"] += 50
    frame.loc[site == names[3], "d"] = np.nan
    y = np.where(X[:, 0] + X[:, 1] + rng.normal(size=320) > 0, HOSTILE, "no")
    methods = ["constant", "linear", "kpca", "fastdcm"]
    found = evaluate(
        frame, y, site, methods=methods, progress=False, scoring=["accuracy", "roc_auc"]
    )
    more = [key for key in METHODS if found.find(key) is None]
    found.results += [replace(found.results[-1], key=key, label=key) for key in more]
    return found.report(tmp_path_factory.mktemp("page") / "report.html", title=HOSTILE)


OPEN = "document.querySelectorAll('details').forEach(part => { part.open = true })"
LOOKS = {
    "light": {},
    "dark": {"dark": True},
    "phone": {"width": 390},
    "dark phone": {"width": 390, "dark": True},
    "paper": {"paper": True, "width": 718},
}


@pytest.mark.parametrize("look", [{"width": 1280}, {"width": 390}, {"width": 1280, "dark": True}])
def test_the_answer_fits_one_screen_and_the_closed_page_five(view, page, look):
    view.open(page, **look)
    height = 844 if look["width"] == 390 else 800
    bottom = view.run("document.querySelector('.answer').getBoundingClientRect().bottom")
    assert bottom + view.run("scrollY") <= height
    assert view.run("document.documentElement.scrollHeight") <= 5 * height


def test_sections_are_closed_until_a_link_or_a_click_opens_them_and_open_on_paper(view, page):
    view.open(page)
    count = "document.querySelectorAll('details[open]').length"
    assert view.run(count) == 0
    for name in ("sites", "differences", "columns", "settings"):
        view.run(f"document.querySelector('nav a[href=\"#{name}\"]').click()")
        wait_for(view, f"document.getElementById('{name}').open")
    view.open(page, paper=True, width=718)
    wait_for(view, f"{count} === document.querySelectorAll('details').length")
    view.open(page)
    view.run("dispatchEvent(new Event('beforeprint'))")
    assert view.run(f"{count} === document.querySelectorAll('details').length")


def wait_for(view, condition):
    deadline = time.monotonic() + 120
    while not view.run(condition):
        assert time.monotonic() < deadline, condition


@pytest.mark.parametrize("look", LOOKS)
def test_nothing_is_wider_than_the_window(view, page, look):
    view.open(page, **LOOKS[look])
    view.run(OPEN)
    assert view.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    if look == "phone":
        assert view.run("innerWidth") == 390
        # What is wide scrolls in a box of its own, which keys reach.
        script = """[...document.querySelectorAll('main *')].filter(
            e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto')
            .every(e => e.tabIndex === 0 && e.getAttribute('aria-label'))"""
        assert view.run(script)


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_the_console_stays_silent(view, page, look):
    view.messages.clear()
    view.open(page, **LOOKS[look])
    view.run("document.querySelectorAll('thead button').forEach(b => b.click())")
    assert view.messages == []
    view.run("console.error('oh no')")  # otherwise the list could be empty for another reason
    assert len(view.messages) == 1


def test_a_script_that_is_not_the_pages_own_is_not_run(view, page, tmp_path):
    other = tmp_path / "other.html"
    other.write_text(
        page.read_text("utf-8").replace("</main>", "<script>var ran = 1</script></main>")
    )
    view.open(other)
    assert view.run("typeof ran") == "undefined"
    assert view.run("document.querySelectorAll('thead button').length") > 10


def test_every_figure_has_a_text(view, page):
    view.open(page)
    script = """[...document.querySelectorAll('svg, img')].map(
        e => (e.getAttribute('aria-label') || e.getAttribute('alt') || '').length)"""
    lengths = view.run(script)
    assert len(lengths) > 8
    assert min(lengths) >= 20
    script = """[...document.querySelectorAll('figure')].every(
        f => f.querySelector('figcaption').textContent.length > 10)"""
    assert view.run(script)


def column(view, table, number):
    rows = f"[...document.querySelectorAll('table')[{table}].tBodies[0].rows]"
    return view.run(f"{rows}.map(r => r.cells[{number}].textContent.trim())")


def test_tables_sort_by_clicks_and_keys_and_say_so(view, page):
    view.open(page)
    before = [float(text) for text in column(view, 0, 1)]
    button = "document.querySelectorAll('table')[0].tHead.rows[0].cells[1].querySelector('button')"
    view.run(f"{button}.focus()")
    for _ in range(2):
        for kind in ("keyDown", "keyUp"):
            view.ask("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", text="\r",
                     windowsVirtualKeyCode=13)  # fmt: skip
        rising = view.run(f"{button}.parentElement.ariaSort") == "ascending"
        shown = [float(text) for text in column(view, 0, 1)]
        assert shown == sorted(before, reverse=not rising)
    assert not rising
    view.run(f"{button.replace('cells[1]', 'cells[0]')}.click()")
    names = column(view, 0, 0)
    assert names == sorted(names, key=str.lower)
    assert (
        view.run("document.querySelectorAll('table')[0].querySelectorAll('[aria-sort]').length")
        == 1
    )


def test_numbers_sort_as_numbers_and_gaps_come_last(view, page):
    view.open(page)
    script = """(() => {
      const heads = [...document.querySelectorAll('#methods table thead th')];
      const at = heads.findIndex(h => h.textContent.trim() === 'p');
      heads[at].querySelector('button').click();
      return [...document.querySelectorAll('#methods table')[0].tBodies[0].rows].map(
          r => r.cells[at].textContent.trim());
    })()"""
    shown = view.run(script)
    known = [float(text.strip("<")) for text in shown if text != "–"]
    assert shown[-1] == "–"
    assert known == sorted(known)
    assert "–" not in shown[: len(known)]


CONTRAST = """(() => {
  const parse = (text) => {
    let m = text.match(/^rgba?\\(([^)]+)\\)/);
    if (m) { const v = m[1].split(/[ ,/]+/).map(Number); return [v[0], v[1], v[2], v[3] ?? 1]; }
    m = text.match(/^color\\(srgb ([^)]+)\\)/);
    const v = m[1].split(/[ /]+/).map(Number);
    return [255 * v[0], 255 * v[1], 255 * v[2], v[3] ?? 1];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c.slice(0, 3).map((v) => v / 255).map(
        (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    const layers = [];
    for (let at = e; at; at = at.parentElement)
      layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const found = {};
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('script, title, .skip') || !e.getClientRects().length) continue;
    const style = getComputedStyle(e), ground = behind(e);
    const paint = e.closest('svg') ? style.fill : style.color;
    if (!/^(rgb|color)/.test(paint)) continue;
    const ink = over(parse(paint), ground);
    const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const key = e.tagName + '.' + e.getAttribute('class');
    if (!(key in found) || ratio < found[key]) found[key] = ratio;
  }
  return found;
})()"""


@pytest.mark.parametrize("look", ["light", "dark", "paper"])
def test_all_words_stand_out_from_what_is_behind_them(view, page, look):
    view.open(page, **LOOKS[look])
    view.run(OPEN)
    found = view.run(CONTRAST)
    assert len(found) > 15
    assert {key: ratio for key, ratio in found.items() if ratio < 4.5} == {}


def test_names_with_markup_are_shown_as_they_are(view, page):
    view.open(page)
    assert view.run("document.querySelector('h1').textContent") == HOSTILE
    assert view.run("document.querySelectorAll('img').length") == 0
    assert view.run("document.querySelectorAll('main script').length") == 0
    assert HOSTILE in view.run("document.querySelector('#columns').textContent")


def test_on_paper_no_heading_is_parted_from_what_follows(view, page):
    view.open(page, paper=True, width=718)
    script = """(() => {
      const all = (what, of) =>
        [...document.querySelectorAll(what)].map(e => getComputedStyle(e)[of]);
      return all('h2, h3, h4', 'breakAfter').concat(all('figure, tr', 'breakInside'));
    })()"""
    assert set(view.run(script)) == {"avoid"}
    # A figure follows its heading, or the sentence between them, on the same page.
    script = """[...document.querySelectorAll('figure')].map(f => f.previousElementSibling)
        .filter(e => e && e.matches('p')).map(e => getComputedStyle(e).breakAfter)"""
    assert set(view.run(script)) <= {"avoid"}


def test_on_paper_a_tall_picture_leaves_room_for_its_heading_and_caption(view, page):
    view.open(page, paper=True, width=718)
    view.run(OPEN)
    # As tall as that of forty domains.
    script = """(() => { const svg = document.querySelector('#differences figure.wide svg');
        svg.setAttribute('viewBox', '0 0 600 900');
        return svg.getBoundingClientRect().height })()"""
    assert view.run(script) == pytest.approx(19 / 2.54 * 96, abs=1)


def test_rows_of_the_table_by_domain_can_be_filtered(view, page):
    view.open(page, width=390)
    view.run(OPEN)
    shown = "[...document.querySelectorAll('table.filter tbody tr')].filter(r => !r.hidden).length"
    assert view.run(shown) == 8
    field = "document.querySelector('input[type=search]')"
    for text, n_rows in (("SAINT 3", 1), ("saint", 7), ("nowhere", 0), ("", 8)):
        view.run(f"{field}.value = '{text}'; {field}.dispatchEvent(new Event('input'))")
        assert view.run(shown) == n_rows
    assert view.run(f"{field}.getAttribute('aria-label')").startswith("Filter rows: ")
    assert view.run("document.querySelectorAll('input').length") == 1
    view.open(page, paper=True, width=718)
    assert view.run(f"getComputedStyle({field}).display") == "none"
