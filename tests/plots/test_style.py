"""The style's promises: told apart in grey, deterministic SVG, no global state left behind."""

import matplotlib as mpl
import matplotlib.colors as colors
import numpy as np

from capmodel.plots import style


def _lightness(colour: str) -> float:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in colors.to_rgb(colour)
    )
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return float(116 * np.cbrt(luminance) - 16)


def test_no_two_series_share_both_dash_and_marker():
    looks = {(str(style.series(i)["linestyle"]), style.series(i)["marker"]) for i in range(6)}
    assert len(looks) == 6


def test_the_first_three_colours_differ_in_grey():
    first, second, third = (_lightness(colour) for colour in style.PALETTE[:3])
    assert min(abs(first - second), abs(second - third), abs(first - third)) > 10


def test_every_colour_stands_out_on_white_paper():
    # L* of white is 100; 25 below it is still visible as a 1.4-point line on paper.
    assert all(_lightness(colour) < 75 for colour in style.PALETTE)


def test_svg_is_equal_for_equal_figures_and_carries_no_date():
    def draw() -> str:
        with style.figure(2, 2) as fig:
            fig.subplots().plot([1, 2], [3, 4], **style.series(0))
            return style.to_svg(fig)

    assert draw() == draw()
    assert "<dc:date>" not in draw()


def test_style_ends_with_the_block():
    before = mpl.rcParams["axes.spines.top"]
    with style.figure():
        assert mpl.rcParams["axes.spines.top"] is False
    assert mpl.rcParams["axes.spines.top"] == before


def test_labels_of_touching_lines_are_moved_apart():
    with style.figure(4, 3) as fig:
        axes = fig.subplots()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        style.label_ends(axes, [(1, 0.5, "a", "k"), (1, 0.5, "b", "k"), (1, 0.51, "c", "k")], 9)
        offsets = sorted(
            text.xyann[1] + 72 / fig.dpi * axes.transData.transform(text.xy)[1]
            for text in axes.texts
        )
    assert np.all(np.diff(offsets) >= 9 - 1e-3)
