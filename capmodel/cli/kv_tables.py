"""Tables of `capmodel kv`, for a terminal of 80 columns."""

from rich import box
from rich.markup import escape
from rich.table import Table

from capmodel.cli.terminal import terminal
from capmodel.kvcache import Replay
from capmodel.memory import Curves, Fit, LogComparison
from capmodel.memory.summary import CacheSummary
from capmodel.units import format_bytes, format_gib, format_percent

_PARTS = {
    "weights_bytes": "weights",
    "activation_bytes": "activation peak",
    "graphs_bytes": "CUDA graphs",
    "non_torch_bytes": "non-torch",
    "cache_bytes": "left for the cache",
    "outside_bytes": "outside the fraction",
}


def print_cache(summary: CacheSummary) -> None:
    """A model's cache: what each kind of layer keeps, a token, a request, the batch."""
    console = terminal()
    title = f"{summary.model}, {summary.kv_dtype} cache, tp {summary.tp}"
    table = _table(title, "Keeps", "Layers", "Bytes per token", "Up to", "A request")
    for piece in summary.pieces:
        table.add_row(
            piece.name,
            f"{piece.layers}",
            f"{piece.bytes_per_token:,.0f}" if piece.bytes_per_token else "",
            f"{piece.window:,} tokens" if piece.window else "",
            format_bytes(piece.request_bytes),
        )
    console.print(table)
    lines = _lines()
    per_gpu = " per GPU" if summary.tp > 1 else ""
    lines.add_row("One token", f"{summary.kv_bytes_per_token:,.0f} bytes{per_gpu}")
    if summary.growth_bytes_per_token != summary.kv_bytes_per_token:
        lines.add_row("  past every window", f"{summary.growth_bytes_per_token:,.0f} bytes")
    if summary.fixed_bytes:
        lines.add_row("  and once a request", format_bytes(summary.fixed_bytes))
    request = f"{format_bytes(summary.request_bytes)}{per_gpu}"
    lines.add_row(f"One request of {summary.context_len:,}", request)
    if summary.batch_size > 1:
        lines.add_row(f"{summary.batch_size} of them", f"{format_bytes(summary.kv_bytes)}{per_gpu}")
    if summary.tp > 1:
        lines.add_row(f"On all {summary.tp} GPUs", format_bytes(summary.kv_bytes_all_gpus))
    console.print(lines)
    if summary.note:
        console.print(f"Note: {summary.note}.")


_WEIGHTS = {
    "nameplate": "weights: parameters x bits",
    "engine": "weights: as stored",
}


def print_fit(fit: Fit, gpu: str, weights: dict[str, float]) -> None:
    """How many requests fit on a GPU, and if none, what would help.

    weights: of a GPU by either way of counting [byte].
    """
    console = terminal()
    budget = fit.budget
    size = format_bytes if budget.mode == "nameplate" else format_gib
    share = f"{format_percent(budget.fraction)} of {size(budget.capacity_bytes)}"
    title = f"{gpu}, {budget.mode} mode: {share}"
    table = _table(title, "Memory", "Per GPU")
    for name, value in budget.parts().items():
        if value or name in ("weights_bytes", "cache_bytes"):
            label = _PARTS[name]
            if name == "weights_bytes":
                label = _WEIGHTS[budget.mode]
            if budget.reserve_given and name == "activation_bytes":
                label = "reserve, as given"
            table.add_row(label, size(value))
    console.print(table)
    flat, stored = (size(weights[mode]) for mode in ("nameplate", "engine"))
    if flat != stored:
        console.print(
            f"Weights: {flat} as parameters x bits; {stored} as stored, with scales, 16-bit tables "
            "and what tp copies.",
            soft_wrap=True,
        )
    request = size(fit.request_bytes)
    console.print(
        f"[bold]{fit.concurrency:,} requests[/bold] of {fit.context_len:,} tokens at once "
        f"({request} each)"
    )
    if fit.concurrency:
        return
    if budget.shortfall_bytes:
        over = size(budget.shortfall_bytes)
        console.print(f"Does not fit: without any cache it is already {over} too much.")
    else:
        console.print(f"Does not fit: {size(fit.shortfall_bytes)} is missing for the first one.")
    levers = _table("What would help, one at a time", "Lever", "Change", "Requests")
    for lever in fit.levers:
        levers.add_row(lever.name, lever.change, f"{lever.concurrency:,}")
    levers.columns[1].justify = "left"
    console.print(levers)


def print_replay(replay: Replay) -> None:
    """The figures an engine prints at start-up."""
    console = terminal()
    version = f" {replay.version}" if replay.version else ""
    title = f"{replay.engine}{version}, requests of {replay.max_model_len:,} tokens"
    table = _table(title, "Printed at start-up", "Value", "If the memory was rounded")
    if replay.engine == "llama.cpp":
        table.add_row("KV cache", f"{replay.cache_bytes / 2**20:,.2f} MiB", "")
        table.add_row("Cells", f"{replay.tokens:,}", "")
    else:
        between = f"{replay.tokens_low:,} to {replay.tokens_high:,}"
        table.add_row("KV cache size", f"{replay.tokens:,} tokens", between)
        between = f"{replay.concurrency_low:.2f}x to {replay.concurrency_high:.2f}x"
        table.add_row("Maximum concurrency", f"{replay.concurrency:.2f}x", between)
        table.add_row("Blocks", f"{replay.pool.blocks:,}", "")
        blocks = replay.pool.cost.blocks(replay.max_model_len)
        table.add_row("Blocks per request", f"{blocks:,}", "")
        table.add_row("Bytes a block", f"{replay.pool.cost.block_bytes:,.0f}", "")
    console.print(table)
    for line in replay.pool.layout:
        console.print(f"  {line}")
    if replay.concurrency < 1:
        console.print("Not one request of that length fits: the engine refuses to start.")


def print_comparison(comparison: LogComparison) -> None:
    """Estimate and log side by side: the memory by parts, the cache by steps."""
    console = terminal()
    log = comparison.log
    version = f" {log.version}" if log.version else ""
    model = log.model or "model given"
    table = _table(f"{log.engine}{version}, {model}: memory per GPU", "Part", "Estimate", "Log")
    table.add_column("")
    for part in comparison.memory:
        if part.estimate_bytes is None and part.logged_bytes is None:
            continue
        table.add_row(part.name, _gib(part.estimate_bytes), _gib(part.logged_bytes), part.note)
    if log.engine != "llama.cpp":
        console.print(table)
    title = f"Cache for requests of {comparison.max_model_len:,} tokens"
    table = _table(title, "Step", "Tokens", "Requests")
    table.add_column("", overflow="fold")
    for step in comparison.cache:
        table.add_row(step.name, f"{step.tokens:,.0f}", f"{step.concurrency:.2f}", step.note)
    logged = f"{log.tokens:,}" if log.tokens else ""
    held = f"{log.concurrency:.2f}" if log.concurrency else ""
    table.add_section()
    if log.engine == "llama.cpp":
        size, found = comparison.replayed.cache_bytes, log.cache_bytes or 0.0
        table.add_row("size", f"{size / 2**20:,.2f} MiB", "", f"log {found / 2**20:,.2f} MiB")
    else:
        table.add_row("the log", logged, held, _gaps(comparison))
    console.print(table)


def print_curves(curves: Curves, model: str) -> None:
    """A table of named series over context."""
    requests = curves.quantity == "concurrency"
    title = f"{model}: " + ("requests at once" if requests else "cache of one request, per GPU")
    table = _table(title, "Context", *curves.series)
    table.columns[0].justify = "right"
    for row, length in enumerate(curves.context_len.tolist()):
        values = [float(series[row]) for series in curves.series.values()]
        cells = [f"{value:,.0f}" if requests else format_bytes(value) for value in values]
        table.add_row(f"{length:,}", *cells)
    console = terminal()
    console.print(table)
    if any(name.endswith("*") for name in curves.series):
        console.print("* the model as it is; the others are the same layers, stored otherwise")


def _gaps(comparison: LogComparison) -> str:
    gaps = [
        f"{name} {error:+.2%}"
        for name, error in (
            ("tokens", comparison.tokens_error),
            ("requests", comparison.concurrency_error),
        )
        if error is not None
    ]
    return "gap: " + ", ".join(gaps) if gaps else ""


def _gib(size: float | None) -> str:
    return "" if size is None else format_gib(size)


def _table(title: str, first: str, *others: str) -> Table:
    """A quiet table; its title stands above it however narrow it is."""
    terminal().print(f"\n[bold]{escape(title)}[/bold]")
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), show_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _lines() -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    return table
