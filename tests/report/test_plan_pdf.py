"""A plan as PDF: awkward ones set, every figure of plan.json is in the text, margins stay white."""

import io
import re
from functools import cache

import numpy as np
import plans
import pypdf
import pytest
from PIL import Image

from capmodel.report import pdf as pdf_module
from capmodel.report import write_plan_html, write_plan_pdf
from capmodel.report.document import Bullets, Code, Column, Document, Picture, Section, Table, Text
from capmodel.report.fields import cell
from capmodel.report.html import render_html
from capmodel.report.pdf import UndrawnCharacters, render_pages, render_pdf
from capmodel.report.plan import plan_document
from capmodel.report.plan_choices import (
    alternatives_blocks,
    rejected_blocks,
    sensitivity_blocks,
)
from capmodel.report.plan_decision import decision_blocks
from capmodel.report.plan_sections import workload_blocks
from capmodel.units import format_seconds

AWKWARD = (plans.long_names, plans.forty, plans.single, plans.infeasible, plans.non_latin)
ALL = (plans.complete, *AWKWARD)
# The schema's number; points of a scatter; errors, which are printed as half an interval.
NOT_WRITTEN = re.compile(r"schema_version|\.residuals\.|\.standard_error")
FIGURE = re.compile(r"\$?-?\d[\d,]*(?:\.\d+)?")


@cache
def _document(make):
    return plan_document(make())


@cache
def _pages(make):
    pdf = render_pdf(_document(make))
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages]


def _figures(value, key, path):
    """Every number of a plan as (path, printed form); the key that names its unit is the nearest
    one that is neither an end (low, estimate, high) nor an index."""
    if isinstance(value, dict):
        if str(value.get("unit", "")).startswith("s/"):
            value = {**value, "value": 1e6 * value["value"]}  # printed in microseconds
        for name, item in value.items():
            named = key if name in ("low", "estimate", "high", "base") else name
            yield from _figures(item, named, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _figures(item, key, f"{path}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, cell(_UNIT.get(key, key), value)


# Keys that say what a row is about, not what its figures are in.
_UNIT = {"sensitivities": "dollars", "p5": "fits", "p50": "fits", "p95": "fits"}


@pytest.mark.parametrize(
    "make", [plans.complete, plans.single, plans.infeasible], ids=lambda f: f.__name__
)
def test_every_figure_of_the_plan_stands_in_the_text(make):
    printed = set(FIGURE.findall(" ".join(_pages(make)).replace("\u200b", "")))
    figures = [one for one in _figures(make(), "", "plan") if not NOT_WRITTEN.search(one[0])]
    assert len(figures) > 200
    assert [one for one in figures if FIGURE.findall(one[1])[0] not in printed] == []


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_margins_stay_white(make):
    for page in render_pages(_document(make), ppi=50):
        pixels = np.asarray(Image.open(io.BytesIO(page)).convert("L"))
        margin = round(1.4 / 2.54 * 50)
        for edge in (pixels[:, :margin], pixels[:, -margin:], pixels[:margin], pixels[-14:]):
            assert edge.min() > 250


@pytest.mark.parametrize("make", [plans.complete, plans.infeasible], ids=lambda f: f.__name__)
def test_the_page_that_decides_is_one_page(make):
    assert "Workload" not in _pages(make)[0]
    assert _pages(make)[1].startswith("Workload")


def _texts(*sections):
    pdf = render_pdf(Document("t", "", None, "f", sections))
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(pdf)).pages]


def test_a_first_page_that_runs_over_leaves_no_page_almost_empty():
    made = plans.plan()
    made["warnings"] = [f"warning {i} of some length that says what to mind" for i in range(14)]
    pages = _texts(
        Section("", tuple(decision_blocks(made))),
        Section("Workload", tuple(workload_blocks(made)), new_page=True),
    )
    assert "Cost against" not in pages[0]
    assert pages[1].index("Cost against") < pages[1].index("Workload")
    for number, page in enumerate(pages, start=1):
        assert f"page {number} of {len(pages)}" in page


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_a_figure_and_its_caption_share_a_page(make):
    blocks = [block for section in _document(make).sections for block in section.blocks]
    starts = tuple(block.caption[:30] for block in blocks if isinstance(block, Picture))
    assert not [page[:60] for page in _pages(make) if starts and page.startswith(starts)]


def test_a_command_breaks_between_its_words():
    # Whatever the width of the line, one of these would end it in the middle of an option.
    command = "capmodel plan " + " ".join(f"--option-{'x' * n}-95 {n}" for n in range(30))
    text = " ".join(_texts(Section("s", (Code(command),))))
    assert all(word in text.split() for word in command.split())
    made = {**plans.infeasible(), "command": command}
    assert Code(command) in plan_document(made).sections[-1].blocks


def test_what_no_font_draws_is_told(monkeypatch, recwarn):
    monkeypatch.setattr(pdf_module, "findSystemFonts", list)
    made = plans.infeasible()
    made["title"] = "План ёмкости · خطة السعة"
    render_pdf(plan_document(made))
    assert not [w for w in recwarn if w.category is UndrawnCharacters]
    with pytest.warns(UndrawnCharacters, match="容量"):
        render_pdf(Document("容量", "", None, "f", ()))


def test_an_input_without_a_bar_says_why():
    made = plans.plan()
    made["sensitivities_left_out"] = [
        {"name": "step time", "reason": "no fleet at x 1.24: TPOT p95 60 ms"}
    ]
    blocks = sensitivity_blocks(made)
    said = [block.items for block in blocks if isinstance(block, Bullets)]
    assert said == [("step time: no fleet at x 1.24: TPOT p95 60 ms",)]
    assert not [b for b in sensitivity_blocks(plans.plan()) if isinstance(b, Bullets)]


def test_of_those_set_aside_the_closest_stands_first():
    made = plans.infeasible()
    made["rejected"] = [*made["rejected"][1:] * 30, made["closest"]]
    table = next(block for block in rejected_blocks(made) if isinstance(block, Table))
    assert table.rows[0][4] == made["closest"]["reason"]
    assert table.strong == (0,)


def test_the_first_page_answers():
    made, first = plans.complete(), _pages(plans.complete)[0]
    best = made["recommendation"]
    for part in (
        f"{best['n_gpus']} × {best['gpu']}",
        cell("dollars", best["dollars_per_hour"]["estimate"]),
        cell("per_million_output", made["costs"]["per_million_output"]),
        format_seconds(made["latency"]["ttft_p95_s"]["high"]),
        format_seconds(made["slo"]["tpot_s"]),
        "What binds.",
        "How sure.",
    ):
        assert part in first


def test_infeasible_says_what_is_closest_and_what_blocks():
    first = _pages(plans.infeasible)[0]
    assert "No fleet was found" in first
    assert "7.29 ms" in first
    assert "promised 1.0 ms" in first


def test_rows_left_out_are_counted():
    made = plans.forty()
    made["alternatives"] = made["alternatives"] * 2
    last = [block for block in alternatives_blocks(made) if isinstance(block, Text)][-1]
    assert last.text == "40 dearer fleets more stand in plan.json."


def test_html_has_the_same_figures_and_no_foreign_markup():
    page = render_html(_document(plans.non_latin))
    assert "<script>" not in page
    assert "<img src=x>" not in page
    assert "容量計画" in page
    plain = re.sub(r"<[^>]+>", " ", render_html(_document(plans.complete)))
    printed = set(FIGURE.findall(plain))
    assert all(
        FIGURE.findall(text)[0] in printed
        for path, text in _figures(plans.complete(), "", "plan")
        if not NOT_WRITTEN.search(path)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 99}, "schema version 99"),
        ({"kind": "metrics"}, "expected a plan"),
        ({"rejected": None}, None),
    ],
)
def test_what_is_no_plan_is_refused(change, message, tmp_path):
    broken = {**plans.plan(), **change}
    if message is None:
        del broken["rejected"]
        message = "rejected is missing"
    for write in (write_plan_pdf, write_plan_html):
        with pytest.raises(ValueError, match=message):
            write(broken, tmp_path / "plan.out")
    assert list(tmp_path.iterdir()) == []


def test_equal_plans_give_equal_bytes(tmp_path):
    """The page with its figures, the PDF in its parts."""
    for name in ("a", "b"):
        write_plan_html(plans.plan(), tmp_path / f"{name}.html")
        write_plan_pdf(plans.infeasible(), tmp_path / f"{name}.pdf")
    for kind in ("html", "pdf"):
        first, second = ((tmp_path / f"{name}.{kind}").read_bytes() for name in ("a", "b"))
        assert first == second


def test_a_word_that_is_not_measured_fits_its_column():
    """`Table.room` is a promise: of capitals, the widest letters in use, so many stay one word."""
    for others in (1, 4, 8):
        columns = tuple(Column(str(i)) for i in range(others + 1))
        filler = ("a sentence of words that fills whatever room there is left",) * others
        room = Table("", columns, (("x" * 200, *filler),)).room
        word = ("HX2048-" * 9)[:room]
        table = Table("", columns, ((word, *filler), ("x" * 200, *filler)))
        assert table.room == room
        (text,) = _texts(Section("s", (table,)))
        assert word in text, (others, word)
