"""Figures as they are printed; expectations worked by hand."""

import pytest

from capmodel.report.document import Column, Table, printable
from capmodel.report.numbers import bytes_text, milliseconds, number, percent, score, whole


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.0312, "0.0312"),
        (1.0, "1.00"),
        (28, "28"),
        (12.34, "12.3"),
        (99.96, "100"),
        (999.6, "1,000"),
        (70_272, "70,272"),
        (-0.5, "-0.500"),
        (1e-7, "0.000000100"),
        (None, "–"),
        (float("nan"), "–"),
        (float("inf"), "–"),
    ],
)
def test_three_significant_digits_without_exponents(value, text):
    assert number(value) == text


def test_units_are_converted_once():
    assert milliseconds(0.01234) == "12.3"
    assert percent(0.0312) == "3.1 %"
    assert whole(1234.4) == "1,234"
    assert bytes_text(73.6e9) == "73.6 GB"
    assert [f(None) for f in (milliseconds, percent, whole, bytes_text)] == ["–"] * 4


def test_controls_and_lone_surrogates_become_replacement_marks():
    assert printable("a\x00b\ud800c") == "a\ufffdb\ufffdc"
    assert printable("one\ntwo\tthree") == "one two three"


def test_a_row_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match="row of 1 cells, but expected 2"):
        Table("caption", (Column("a"), Column("b")), (("x", "y"), ("x",)))


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00587, "0.006"), (-0.00557, "-0.006"), (0.9971, "0.997"), (-114.2, "-114"), (None, "–")],
)
def test_a_score_has_three_places_however_near_zero(value, text):
    assert score(value) == text
