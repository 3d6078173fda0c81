"""The HTML page: self-contained, well-formed, every string escaped, ids that do not collide."""

import re
from functools import cache
from html.parser import HTMLParser

import pytest
from summaries import crowded, non_latin, summary

from capmodel.report.html import render_html
from capmodel.report.run import run_document

VOID = {"meta", "br", "hr", "img", "link", "input"}


@cache
def _page(make):
    return render_html(run_document(make()))


class _Balanced(HTMLParser):
    """Every opened element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("make", [summary, crowded, non_latin], ids=lambda make: make.__name__)
def test_well_formed_with_unique_ids(make):
    parser = _Balanced()
    parser.feed(_page(make))
    assert parser.open == []
    assert len(parser.ids) == len(set(parser.ids))
    assert "script" not in parser.tags


def test_nothing_is_fetched():
    page = _page(summary)
    assert not re.findall(r'(?:src|href)="(?!#)', page)
    assert "url(http" not in page
    assert "@import" not in page


def test_user_strings_are_escaped():
    page = _page(non_latin)
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in page
    assert "<b>" not in page


def test_references_inside_figures_resolve():
    page = _page(summary)
    assert set(re.findall(r'(?:url\(|href=")#([^")]+)', page)) <= set(
        re.findall(r' id="([^"]+)"', page)
    )
