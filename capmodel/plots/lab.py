"""Quality of the lab's language model against the bytes its cache keeps."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from capmodel.lab.compress import Outcome
from capmodel.lab.entropy import Coding
from capmodel.lab.steps import Step
from capmodel.plots.style import INK, MARKERS, MUTED, PALETTE, label_ends, series

_SHARES = (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0)


def draw_perplexity(
    axes: Axes, outcomes: Sequence[Outcome], codings: Sequence[Coding] = ()
) -> Axes:
    """Perplexity change [%] against bytes kept [share of a 16-bit cache], a mark a treatment.

    Quantised caches are marks by format, evicted ones lines by policy; both have their interval as
    a bar, those of several policies side by side.
    `codings` add the 16-bit cache as zstd leaves it in the better layout, at no change.
    """
    _draw(axes, outcomes, lambda o: 100 * o.change)
    _bars(axes, [o for o in outcomes if o.family == "quantised"], MUTED)
    for index, (_, own) in enumerate(_policies(outcomes)):
        _bars(axes, own, PALETTE[index % len(PALETTE)], aside=1.03 ** (index - 1.5))
    for coding in codings:
        if coding.dtype in ("bf16", "fp16"):
            share = 1 / max(coding.zstd, coding.zstd_planes)
            axes.plot([share], [0], marker="|", color=INK, markersize=9, zorder=4)
            axes.annotate(
                f"{coding.dtype}, zstd",
                (share, 0),
                xytext=(0, -7),
                textcoords="offset points",
                rotation=90,
                ha="center",
                va="top",
                fontsize=6.5,
            )
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    low = min((100 * o.change_low for o in outcomes), default=0.0)
    high = max((100 * o.change_high for o in outcomes), default=1.0)
    axes.set_ylim(min(low, -0.3), 1.3 * max(high, 1.0))
    axes.set_yticks([tick for tick in (-0.1, 0, 0.1, 1, 10, 100) if tick < 1.3 * max(high, 1.0)])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("Perplexity change on held-out text [%], log from ±0.1")
    return axes


def draw_retrieval(axes: Axes, outcomes: Sequence[Outcome]) -> Axes:
    """Questions answered [%] against bytes kept, the same marks."""
    _draw(axes, outcomes, lambda o: 100 * o.retrieval)
    axes.set_ylim(-4, 104)
    axes.set_ylabel("Questions about far-back facts answered [%]")
    return axes


def _bars(axes: Axes, outcomes: Sequence[Outcome], colour: str, aside: float = 1.0) -> None:
    axes.vlines(
        [o.bytes_share * aside for o in outcomes],
        [100 * o.change_low for o in outcomes],
        [100 * o.change_high for o in outcomes],
        color=colour,
        linewidth=0.8,
    )


def _draw(axes: Axes, outcomes: Sequence[Outcome], y: Callable[[Outcome], float]) -> None:
    for index, (policy, own) in enumerate(_policies(outcomes)):
        own = sorted(own, key=lambda o: o.bytes_share)
        axes.plot([o.bytes_share for o in own], [y(o) for o in own], label=policy, **series(index))
    quantised = [o for o in outcomes if o.family == "quantised"]
    for index, name in enumerate(dict.fromkeys(o.name.split()[0] for o in quantised)):
        own = [o for o in quantised if o.name.split()[0] == name]
        axes.plot(
            [o.bytes_share for o in own],
            [y(o) for o in own],
            linestyle="",
            marker=MARKERS[index % len(MARKERS)],
            markerfacecolor="white",
            markeredgecolor=INK,
            markersize=4,
            label=name,
            zorder=3,
        )
    axes.set_xscale("log")
    left = 0.88 * min([0.0625, *(o.bytes_share for o in outcomes)])
    axes.set_xlim(left, 1.15)
    shares = [share for share in _SHARES if share > left]
    axes.set_xticks(shares, [f"{100 * share:.3g}" for share in shares])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("Bytes kept [% of a 16-bit cache]")


def _policies(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    names = dict.fromkeys(o.policy for o in outcomes if o.policy is not None)
    return [(name, [o for o in outcomes if o.policy == name]) for name in names]


def draw_work(axes: Axes, cached: Sequence[Step], uncached: Sequence[Step]) -> Axes:
    """Work of each step [million FLOP] against the sequence's length, cache off and on."""
    ends = []
    for index, (name, steps) in enumerate((("no cache", uncached), ("cache", cached))):
        lengths = [step.length for step in steps]
        work = [step.flop / 1e6 for step in steps]
        axes.plot(lengths, work, **series(index))
        ends.append((lengths[-1], work[-1], name, PALETTE[index]))
    axes.set_ylim(0)
    axes.set_xlabel("Length of the sequence after the step [token]")
    axes.set_ylabel("Work of the step [million FLOP]")
    label_ends(axes, ends)
    return axes


def draw_held(axes: Axes, held: Mapping[str, Sequence[Step]]) -> Axes:
    """Bytes the cache holds [kB] against length, a line an attention kind."""
    for index, steps in enumerate(held.values()):
        axes.plot(
            [step.length for step in steps],
            [step.cache_bytes / 1e3 for step in steps],
            **series(index),
        )
    axes.set_ylim(0)
    axes.set_xlabel("Length of the sequence [token]")
    axes.set_ylabel("Held by the cache [kB]")
    label_ends(
        axes,
        [
            (steps[-1].length, steps[-1].cache_bytes / 1e3, kind, PALETTE[index % len(PALETTE)])
            for index, (kind, steps) in enumerate(held.items())
        ],
    )
    return axes
