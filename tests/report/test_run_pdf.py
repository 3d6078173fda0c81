"""The plan of a run as PDF: awkward summaries set, read back as text, stay on the page."""

import io
import json
import re
from functools import cache

import numpy as np
import pypdf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from summaries import bare, crowded, infeasible, non_latin, summary

from capmodel.report import write_run_pdf
from capmodel.report.document import Document, Section, Text
from capmodel.report.files import write_whole
from capmodel.report.pdf import render_pages, render_pdf
from capmodel.report.run import run_document

AWKWARD = (summary, bare, crowded, infeasible, non_latin)


@cache
def _document(make):
    return run_document(make())


@cache
def _pdf(make):
    return render_pdf(_document(make))


@cache
def _text(pdf: bytes) -> str:
    pages = pypdf.PdfReader(io.BytesIO(pdf)).pages
    return " ".join(page.extract_text() for page in pages)


def _squeezed(text: str) -> str:
    """Without spaces and break points: a name broken over lines reads as one."""
    return re.sub(r"[\s\u200b]", "", text)


@pytest.fixture(scope="module", params=AWKWARD, ids=lambda make: make.__name__)
def made(request):
    return request.param(), _pdf(request.param)


def test_names_and_figures_stand_in_the_text(made):
    given_summary, pdf = made
    text = _squeezed(_text(pdf))
    deployment = given_summary["deployment"]
    for value in (deployment["gpu"], given_summary["calibration_id"], given_summary["command"]):
        assert _squeezed(value) in text
    for row in given_summary["fits"]:
        assert f"{row['context_len']:,}" in text
    for row in given_summary["coefficients"]:
        assert _squeezed(row["gpu"]) in text
    for entry in given_summary["inputs"]:
        assert entry["sha256"] in text


@pytest.mark.parametrize("make", AWKWARD, ids=lambda make: make.__name__)
def test_margins_stay_white(make):
    """No ink within 1.4 cm of the edge (the margins are 2 cm): nothing overflows."""
    for page in render_pages(_document(make), ppi=50):
        pixels = np.asarray(Image.open(io.BytesIO(page)).convert("L"))
        margin = round(1.4 / 2.54 * 50)
        for edge in (
            pixels[:, :margin],
            pixels[:, -margin:],
            pixels[:margin],
            pixels[-margin // 2 :],
        ):
            assert edge.min() > 250


def test_tagged_titled_and_fonts_embedded(made):
    given_summary, pdf = made
    reader = pypdf.PdfReader(io.BytesIO(pdf))
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"]
    assert reader.trailer["/Root"]["/StructTreeRoot"]
    assert reader.metadata.title == given_summary["title"]
    fonts = [f for page in reader.pages for f in page["/Resources"]["/Font"].values()]
    assert fonts
    for font in fonts:
        descriptor = font.get_object()["/DescendantFonts"][0].get_object()["/FontDescriptor"]
        assert "/FontFile2" in descriptor or "/FontFile3" in descriptor


def test_every_page_is_numbered(made):
    _, pdf = made
    pages = pypdf.PdfReader(io.BytesIO(pdf)).pages
    for number, page in enumerate(pages, start=1):
        assert f"page {number} of {len(pages)}" in page.extract_text()


def test_equal_summaries_give_equal_bytes_and_no_date_is_printed():
    once = _pdf(summary)
    assert once == render_pdf(run_document(json.loads(json.dumps(summary()))))
    assert "/CreationDate" not in (pypdf.PdfReader(io.BytesIO(once)).metadata or {})


def test_a_given_date_is_printed():
    text = _text(_pdf(non_latin))
    assert "2026-03-01" in text


def test_where_the_rows_are_from_and_what_share_of_the_memory_is_used():
    made = summary()
    made["sources"] = ["composed from kernels", *(f"bench {i}" for i in range(7))]
    made["memory"] = {**made["memory"], "memory_fraction": 0.9}
    text = " ".join(_text(render_pdf(run_document(made))).split())
    assert "composed from kernels; bench 0;" in text
    assert "and 2 more." in text
    assert "Share the engine may use 90.0 %" in text
    assert "c_f arithmetic of decoded tokens: " in text


def test_infeasible_says_so_in_the_first_words():
    text = _text(_pdf(infeasible))
    assert "does not fit on 1 × h100-80gb" in text.split("Memory")[0]


def test_synthetic_runs_are_named_synthetic_on_the_first_page():
    reader = pypdf.PdfReader(io.BytesIO(_pdf(bare)))
    assert "synthetic" in reader.pages[0].extract_text()


def test_strings_are_data_never_markup():
    text = _squeezed(_text(_pdf(non_latin)))
    for literal in ("*#panic()*$x$_y_@z", '#eval("1")', '#import"x.typ"', "```"):
        assert literal in text


def test_a_summary_without_a_part_is_refused(tmp_path):
    broken = {key: value for key, value in summary().items() if key != "sweep"}
    target = tmp_path / "plan.pdf"
    with pytest.raises(ValueError, match="sweep"):
        write_run_pdf(broken, target)
    assert list(tmp_path.iterdir()) == []


def test_written_whole_over_what_was_there(tmp_path):
    target = tmp_path / "plan.pdf"
    target.write_text("old")
    write_run_pdf(bare(), target)
    assert target.read_bytes().startswith(b"%PDF")
    assert [path.name for path in tmp_path.iterdir()] == ["plan.pdf"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="make it first"):
        write_run_pdf(bare(), tmp_path / "absent" / "plan.pdf")


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(st.characters(), min_size=1, max_size=80).filter(lambda text: text.strip()))
def test_any_string_sets(string):
    section = Section(string, (Text(string, lead=string),))
    assert render_pdf(Document(string, string, None, string, (section,))).startswith(b"%PDF")


def test_a_place_that_takes_no_file_is_named_and_nothing_is_left(tmp_path, monkeypatch):
    def full(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    target = tmp_path / "plan.pdf"
    with pytest.raises(ValueError, match=r"plan\.pdf, but it cannot be written \(no space left"):
        write_whole(target, b"x")
    assert list(tmp_path.iterdir()) == []
