"""Tables of `capmodel lab`, for a terminal of 80 columns."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from capmodel.cli.terminal import terminal
from capmodel.lab.breaking import RETRIEVAL_LIMIT, TEXT_LIMIT
from capmodel.units import format_bytes, format_percent

if TYPE_CHECKING:
    from capmodel.lab.breaking import Breaking
    from capmodel.lab.compress import Outcome
    from capmodel.lab.entropy import Coding
    from capmodel.lab.language_model import ModelCard
    from capmodel.lab.paging_story import PagedRequest, PoolUse
    from capmodel.lab.predicted import PredictedCoding
    from capmodel.lab.proof import Check
    from capmodel.lab.steps import KindSteps


def print_checks(checks: "Sequence[Check]") -> None:
    """One claim a row, what was measured below it."""
    console = terminal()
    table = _table("What caching is, checked on arrays", "", "Claim, and what was measured")
    for check in checks:
        mark = "holds" if check.holds else "[bold]FAILS[/bold]"
        table.add_row(mark, f"{escape(check.claim)}\n  [dim]{escape(check.measured)}[/dim]")
    console.print(table)
    held = sum(check.holds for check in checks)
    console.print(f"{held} of {len(checks)} hold")


def print_outcomes(outcomes: "Sequence[Outcome]", title: str) -> None:
    """One treatment a row, and below what the columns and the names mean."""
    from capmodel.lab.compress import QUESTION_ROWS, TEXT_ROWS
    from capmodel.lab.language_model import N_FACTS, N_QUESTIONS

    console = terminal()
    table = _table(
        title, "Cache", "Kept\n[%]", "Per-\nplexity", "Change [%],\n90 % interval", "Answers\n[%]"
    )
    family = ""
    for o in outcomes:
        if family and o.family != family:
            table.add_section()
        family = o.family
        table.add_row(
            o.name,
            f"{100 * o.bytes_share:.1f}",
            f"{o.perplexity:.2f}",
            _with_interval(o),
            f"{100 * o.retrieval:.0f}",
        )
    console.print(table)
    console.print(
        "Kept: bytes after 256 tokens over those of a full 16-bit cache, scales counted. "
        f"Perplexity: of the second half of {TEXT_ROWS} windows of held-out text, per token. "
        f"Answers: to {QUESTION_ROWS * N_QUESTIONS} questions whose facts stand about 190 tokens "
        f"back; a guess among the facts is right in {format_percent(1 / N_FACTS, 0)}. "
        + _families_meant({o.family for o in outcomes}),
        style="dim",
    )


def print_codings(codings: "Sequence[Coding]", predicted: "Sequence[PredictedCoding]") -> None:
    """Lossless ratios, one dtype a row, and those against a twin's guess below."""
    console = terminal()
    table = _table(
        "Lossless: how many times smaller",
        "Dtype",
        "Stored",
        "zstd",
        "zstd by\nchannel",
        "Entropy\nbound",
        "Bound given\nchannel",
        "Bits a byte,\nlowest first",
    )
    table.columns[-1].no_wrap = True
    for c in codings:
        table.add_row(
            c.dtype,
            format_bytes(c.nbytes),
            *(f"{ratio:.2f}" for ratio in (c.zstd, c.zstd_planes, c.bound, c.bound_channel)),
            " ".join(f"{bits:.1f}" for bits in c.plane_bits),
        )
    console.print(table)
    twins = ", ".join(f"{p.ratio:.2f} with {p.twin} weights" for p in predicted)
    console.print(
        "By channel: byte planes apart, a channel's tokens side by side. "
        "Bounds are entropies of single bytes; a coder that finds repeats can beat them. "
        "bf16 coded against the guess of a twin of the model, run on both sides, by an "
        f"ideal coder: {twins}.",
        style="dim",
    )


def print_breaking(rows: "Sequence[Breaking]") -> None:
    """Where each policy breaks."""
    console = terminal()
    table = _table("Where it breaks", "Policy", "Text", "Answers")
    for row in rows:
        table.add_row(row.policy, _budget(row.text_budget), _budget(row.retrieval_budget))
    console.print(table)
    console.print(
        "The largest budget measured at which it no longer holds. Text: perplexity surely more "
        f"than {format_percent(TEXT_LIMIT, 0)} up. Answers: fewer than "
        f"{format_percent(RETRIEVAL_LIMIT, 0)} of the full cache's.",
        style="dim",
    )


def print_requests(requests: "Sequence[PagedRequest]", block_size: int, pool: "PoolUse") -> None:
    """Requests in a pool of blocks."""
    console = terminal()
    table = _table(
        f"Blocks of {block_size} token{'s' if block_size > 1 else ''}",
        "",
        "Prompt",
        "Cached",
        "Computed",
        "Shared\nblocks",
        "Held\n[byte]",
        "Filled\n[byte]",
        "Block table",
    )
    for r in requests:
        table.add_row(
            r.name,
            f"{r.prompt_len}",
            f"{r.tokens}",
            f"{r.tokens_computed}",
            f"{r.shared_blocks} of {len(r.table)}",
            f"{r.nbytes:,}",
            f"{r.token_nbytes:,}",
            " ".join(map(str, r.table)),
        )
    console.print(table)
    same = "the same" if all(r.same_answer for r in requests) else "NOT the same"
    console.print(
        "Prompt, cached, computed: tokens. "
        f"Answers are {same} as from a contiguous cache, each request alone. "
        f"The pool holds {pool.blocks} blocks, {pool.nbytes:,} bytes, each once; "
        f"with none shared it would be {pool.apart_nbytes:,}. {pool.free} blocks are free. "
        "The KV cache spares computing the past again; paging says where its bytes lie; sharing a "
        "prefix spares another request's prefill and its bytes. Three different things."
    )


def print_steps(found: "Sequence[KindSteps]") -> None:
    """The last step of each attention kind, with the cache and without."""
    console = terminal()
    length = found[0].cached[-1].length
    table = _table(
        f"Step {length} of {length}",
        "Attention",
        "Keys\n[token]",
        "no\ncache",
        "Work\n[FLOP]",
        "no\ncache",
        "Read\n[token]",
        "Held\n[byte]",
        "1st token\n[byte]",
    )
    for kind in found:
        on, off = kind.cached[-1], kind.uncached[-1]
        table.add_row(
            kind.kind,
            f"{on.tokens_computed}",
            f"{off.tokens_computed}",
            f"{on.flop:,}",
            f"{off.flop:,}",
            f"{on.tokens_read:g}",
            f"{on.cache_bytes:,}",
            f"{kind.bytes_per_token:,}",
        )
    console.print(table)
    console.print(
        "Keys: tokens whose key is computed in this step, a layer. Read: cached tokens attended "
        "to, mean over layers. Held: bytes of the cache's arrays; without one nothing is held. "
        "sliding, sinks: every other layer sees 4 tokens (and the first 2), the rest all, so the "
        "cache goes on growing. No cache: full causal passes; MLA's work in its absorbed form.",
        style="dim",
    )


def print_card(card: "ModelCard") -> None:
    """The model's figures, measured and recorded."""
    ngram = f"{card.ngram_order}-gram"
    lines = (
        ("Weights", f"{card.n_parameters:,} numbers, sha256 {card.sha256[:16]}"),
        ("Held-out text", f"{card.held_out_tokens:,} tokens"),
        ("Perplexity", f"{card.perplexity:.2f} a token"),
        (f"{ngram}, recorded", f"{card.ngram_perplexity:.2f} a token"),
        (
            "Bits a character",
            f"{card.bits_per_character:.3f}; {ngram} {card.ngram_bits_per_character:.3f}",
        ),
        ("Answers, full cache", format_percent(card.retrieval)),
        ("Decoding", f"{card.tokens_per_s:,.0f} tokens/s"),
    )
    table = Table(box=None, show_header=False)
    for name, value in lines:
        table.add_row(name, value)
    terminal().print(table)


def _table(title: str, *columns: str) -> Table:
    table = Table(
        title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False
    )
    for index, column in enumerate(columns):
        right = index > 0 and len(columns) > 2
        table.add_column(escape(column), justify="right" if right else "left")
    return table


def _families_meant(families: set[str]) -> str:
    meant = []
    if "quantised" in families:
        meant.append(
            "Pre- and post-RoPE: how keys are stored. Per channel: a scale for every 32 tokens, "
            "so the newest up to 32 stay in 16 bits."
        )
    if "evicted" in families:
        meant.append(
            "Heavy hitters and random choose among the older half of what is kept; the newest "
            "half always stays."
        )
    return " ".join(meant)


def _with_interval(o: "Outcome") -> str:
    low, high = (f"{_signed(change):>6}" for change in (o.change_low, o.change_high))
    return f"{_signed(o.change)} [dim]{low} {high}[/dim]"


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.2f}"


def _budget(budget: int | None) -> str:
    return f"{budget} tokens" if budget is not None else "holds"
