"""Nothing in the built site leads nowhere, or loads anything from elsewhere."""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.docs

#: Attributes by which a page loads something by itself, by element.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
#: Links that are for machines: nothing is loaded.
RELATIONS = {"canonical", "author", "license"}


class Page(HTMLParser):
    """Anchors of a page, what it links to and what it loads."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = {"", "top"}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.anchors |= {attributes[key] for key in ("id", "name") if attributes.get(key)}
        if tag == "a" and attributes.get("href") is not None:
            self.links.append(attributes["href"])
        if tag in LOADED and attributes.get(LOADED[tag]) and attributes.get("rel") not in RELATIONS:
            self.loads.append(attributes[LOADED[tag]])

    handle_startendtag = handle_starttag


@cache
def read(path):
    return Page(path)


def pages_of(site):
    """The pages; below ``_static`` lie templates of the theme."""
    return [page for page in sorted(site.rglob("*.html")) if "_static" not in page.parts]


def is_inside(address):
    return not urlsplit(address).scheme and not address.startswith("//")


def missing(page, address):
    """Why an address inside the site leads nowhere; empty if it leads somewhere."""
    parts = urlsplit(address)
    path = page if not parts.path else Path(page.parent / unquote(parts.path)).resolve()
    if not path.is_file():
        return f"{address}: no such file"
    if path.suffix == ".html" and unquote(parts.fragment) not in read(path).anchors:
        return f"{address}: no such anchor"
    return ""


def test_every_link_inside_the_site_leads_somewhere(site):
    pages = pages_of(site)
    assert len(pages) > 80
    broken = [
        f"{page.relative_to(site)} -> {reason}"
        for page in pages
        for address in {*read(page).links, *read(page).loads}
        if is_inside(address) and (reason := missing(page, address))
    ]
    assert not broken, "\n".join(broken)


def test_no_page_loads_anything_from_elsewhere(site):
    foreign = [
        f"{page.relative_to(site)} loads {address}"
        for page in pages_of(site)
        for address in read(page).loads
        if not is_inside(address) and not address.startswith("data:")
    ]
    assert not foreign, "\n".join(foreign)


def test_no_page_names_a_folder_of_the_machine_that_built_it(site):
    folder = str(Path(__file__).resolve().parents[2])
    pages = [page for page in pages_of(site) if folder in page.read_text(encoding="utf-8")]
    assert pages == []  # for example in the text of a warning


def test_a_broken_link_would_be_noticed(tmp_path):
    """Otherwise the tests above could pass for the wrong reason."""
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="#here"></a><a href="gone.html"></a><a href="#there"></a><p id="here">'
    )
    assert [bool(missing(page, address)) for address in read(page).links] == [False, True, True]
