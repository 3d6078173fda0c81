"""`capmodel kv`: cache bytes, blocks, concurrency, and an engine's start-up log explained."""

import math
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from capmodel.cli import options

if TYPE_CHECKING:
    from capmodel.kvcache import EngineSettings
    from capmodel.memory import Curves


@click.command(name="kv")
@options.model
@options.gpu
@options.context
@options.batch
@options.tp
@options.weight_dtype
@options.kv_dtype
@options.as_json
@options.download
@click.option(
    "--mode",
    type=click.Choice(["nameplate", "engine"]),
    default="nameplate",
    show_default=True,
    help="How --gpu's memory is budgeted: datasheet and textbook, or as drivers and engines count.",
)
@click.option(
    "--memory-fraction",
    type=float,
    default=0.92,
    show_default=True,
    help="Share of the GPU's memory to use.",
)
@click.option("--reserve-gib", type=float, help="Memory beside weights and cache.")
@click.option("--curve", is_flag=True, help="Cache against context, by attention and dtype.")
@click.option("--frontier", is_flag=True, help="Context against concurrency on --gpu.")
@click.option("--figure", type=click.Path(path_type=Path), help="Draw it into a PNG, SVG or PDF.")
@click.option(
    "--log",
    "log_file",
    type=click.Path(path_type=Path),
    help="A start-up log to lay beside the estimate.",
)
@options.engine
@click.option("--engine-version", metavar="X.Y.Z", help="Printed figures changed meaning.")
@click.option("--available-gib", metavar="GIB", help="Replay: memory the log says the cache got.")
@click.option("--block-size", type=click.IntRange(min=1), help="Tokens a block.")
@click.option("--max-num-batched-tokens", type=click.IntRange(min=1), help="Tokens a step.")
@click.option("--pp", type=click.IntRange(min=1), default=1, help="Pipeline stages.")
@click.option(
    "--context-parallel",
    type=click.IntRange(min=1),
    default=1,
    help="GPUs one sequence is divided over.",
)
@click.option(
    "--prefix-caching/--no-prefix-caching",
    default=None,
    help="Hybrid models keep another state for it.",
)
@click.option(
    "--draft-layers", type=click.IntRange(min=0), default=0, help="Cache of a draft head."
)
@click.option("--draft-tokens", type=click.IntRange(min=0), default=0, help="Tokens it proposes.")
@click.option(
    "--hybrid-manager/--no-hybrid-manager",
    default=True,
    help="vLLM: tables of their own for windowed layers.",
)
@click.option("--slots", type=click.IntRange(min=1), default=1, help="llama.cpp: --parallel.")
@click.option("--unified", is_flag=True, help="llama.cpp: --kv-unified.")
@click.option("--micro-batch", type=click.IntRange(min=1), default=512, help="llama.cpp: -ub.")
@click.pass_context
def command(ctx: click.Context, /, **flags: Any) -> int:
    """Cache bytes, blocks and concurrency; with --log, why the engine printed what it did.

    \b
    capmodel kv --model deepseek-v3 --context 131072 --batch 8 --kv-dtype fp8 --tp 8
    capmodel kv --model llama-3-70b --gpu h100 --weight-dtype int4 --context 32768
    capmodel kv --model qwen3-14b --engine vllm --engine-version 0.11 \\
        --available-gib 6.51 --context 32768
    capmodel kv --log startup.log
    """  # fmt: skip
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        status = _run(ctx, flags)
    for text in dict.fromkeys(str(note.message) for note in notes):
        click.echo(f"Note: {text}", err=True)
    return status


def _run(ctx: click.Context, flags: dict[str, Any]) -> int:
    if flags["log_file"] is not None:
        return _log(ctx, flags)
    if flags["model"] is None:
        raise click.UsageError("Give --model, or --log with a start-up log")
    if flags["curve"] or flags["frontier"] or flags["figure"]:
        return _curves(flags)
    if flags["engine"] is not None or flags["available_gib"] is not None:
        return _replay(flags)
    return _cache(flags)


def _cache(flags: dict[str, Any]) -> int:
    from capmodel.cli import kv_tables
    from capmodel.memory import explain_fit
    from capmodel.memory.summary import summarise_cache
    from capmodel.weights import weight_bytes

    shape = _model(flags)
    summary = summarise_cache(
        shape, flags["context"], flags["batch"], flags["kv_dtype"], flags["tp"]
    )
    fit, weights = None, {}
    if flags["gpu"] is not None:
        weights = {
            mode: float(weight_bytes(shape, flags["weight_dtype"], flags["tp"], mode))
            for mode in ("nameplate", "engine")
        }
        fit = explain_fit(
            shape,
            flags["gpu"],
            flags["context"],
            weight_dtype=flags["weight_dtype"],
            kv_dtype=flags["kv_dtype"],
            tp=flags["tp"],
            memory_fraction=flags["memory_fraction"],
            mode=flags["mode"],
            reserve_bytes=_gib(flags["reserve_gib"]),
            max_num_batched_tokens=flags["max_num_batched_tokens"],
            block_size=flags["block_size"] or 16,
        )
    if flags["as_json"]:
        found = {"fit": asdict(fit) if fit else None, "weight_bytes": weights or None}
        options.print_json({**asdict(summary), **found})
    else:
        kv_tables.print_cache(summary)
        if fit is not None:
            kv_tables.print_fit(fit, flags["gpu"], weights)
    return 1 if fit is not None and fit.concurrency < flags["batch"] else 0


def _curves(flags: dict[str, Any]) -> int:
    from capmodel.cli import kv_tables
    from capmodel.memory import cache_curves, concurrency_curves, context_axis

    shape = _model(flags)
    given = click.get_current_context().get_parameter_source("context")
    default = given is not None and given.name == "DEFAULT"
    longest = (shape.max_context or 131072) if default else flags["context"]
    axis = context_axis(longest)
    if flags["frontier"]:
        if flags["gpu"] is None:
            raise click.UsageError("--frontier needs --gpu")
        curves = concurrency_curves(
            shape,
            flags["gpu"],
            axis,
            weight_dtype=flags["weight_dtype"],
            tp=flags["tp"],
            memory_fraction=flags["memory_fraction"],
            mode=flags["mode"],
            reserve_bytes=_gib(flags["reserve_gib"]),
            max_num_batched_tokens=flags["max_num_batched_tokens"],
        )
    else:
        curves = cache_curves(shape, axis, flags["kv_dtype"], flags["tp"])
    if flags["as_json"]:
        options.print_json({"model": shape.name, **asdict(curves)})
    else:
        kv_tables.print_curves(curves, shape.name)
    if flags["figure"] is not None:
        _draw(curves, flags["figure"])
        click.echo(f"Figure in {flags['figure']}", err=True)
    return 0


def _draw(curves: "Curves", path: Path) -> None:
    from capmodel.plots.memory import draw_cache, draw_frontier
    from capmodel.plots.style import figure

    draw = draw_frontier if curves.quantity == "concurrency" else draw_cache
    with figure(6.3, 3.6) as drawing:
        draw(drawing.subplots(), curves.context_len, curves.series)
        drawing.savefig(path)


def _replay(flags: dict[str, Any]) -> int:
    from capmodel.cli import kv_tables
    from capmodel.kvcache import engine_name, replay

    engine = flags["engine"] or "vllm"
    available = flags["available_gib"]
    if available is None and engine_name(engine) != "llama.cpp":
        raise click.UsageError(
            "--engine replays a start-up: give --available-gib, the memory its log says the "
            "cache got (with --gpu alone the memory is estimated)"
        )
    result = replay(
        _model(flags),
        _gib(available),
        flags["context"],
        engine,
        _settings(flags),
        rounding_bytes=_half_digit(available),
    )
    if flags["as_json"]:
        options.print_json(asdict(result))
    else:
        kv_tables.print_replay(result)
    return 0 if result.concurrency >= 1 else 1


def _log(ctx: click.Context, flags: dict[str, Any]) -> int:
    from capmodel.cli import kv_tables
    from capmodel.kvcache import engine_name
    from capmodel.memory import compare_log, log_settings, read_start_log

    log = read_start_log(flags["log_file"])
    given = {
        name: value
        for name, value in flags.items()
        if (source := ctx.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }
    fields = {
        "engine_version": "version", "kv_dtype": "kv_dtype", "tp": "tp", "pp": "pp",
        "context_parallel": "context_parallel", "block_size": "block_size",
        "max_num_batched_tokens": "max_num_batched_tokens", "prefix_caching": "prefix_caching",
        "draft_layers": "draft_layers", "draft_tokens": "draft_tokens",
        "hybrid_manager": "hybrid_manager", "slots": "slots", "unified": "unified",
        "micro_batch": "micro_batch",
    }  # fmt: skip
    changed = {field: given[name] for name, field in fields.items() if name in given}
    if "engine" in given and engine_name(given["engine"]) != log.engine:
        raise click.UsageError(
            f"--engine says {given['engine']}, but {log.engine} wrote the log; leave it out"
        )
    try:
        settings = replace(log_settings(log, flags["gpu"]), **changed)
        comparison = compare_log(
            log,
            _model(flags) if flags["model"] is not None else None,
            flags["gpu"],
            weight_dtype=given.get("weight_dtype"),
            settings=settings,
            max_model_len=given.get("context"),
            available_bytes=_gib(flags["available_gib"]),
        )
    except ValueError as error:
        raise ValueError(f"{error} (with the log {flags['log_file']})") from None
    if flags["as_json"]:
        options.print_json(
            {
                **asdict(comparison),
                "tokens_error": comparison.tokens_error,
                "concurrency_error": comparison.concurrency_error,
                "bytes_error": comparison.bytes_error,
            }
        )
    else:
        kv_tables.print_comparison(comparison)
    return 0


def _settings(flags: dict[str, Any]) -> "EngineSettings":
    from capmodel.kvcache import EngineSettings

    return EngineSettings(
        version=flags["engine_version"],
        kv_dtype=flags["kv_dtype"],
        tp=flags["tp"],
        pp=flags["pp"],
        context_parallel=flags["context_parallel"],
        block_size=flags["block_size"],
        max_num_batched_tokens=flags["max_num_batched_tokens"] or _usual_tokens(flags["gpu"]),
        prefix_caching=flags["prefix_caching"],
        draft_layers=flags["draft_layers"],
        draft_tokens=flags["draft_tokens"],
        hybrid_manager=flags["hybrid_manager"],
        slots=flags["slots"],
        unified=flags["unified"],
        micro_batch=flags["micro_batch"],
    )


def _usual_tokens(gpu: str | None) -> int:
    """Tokens a step by vLLM's default for the GPU, that of a large one where none is named."""
    from capmodel.gpus import load_gpu
    from capmodel.memory import default_limits

    return default_limits(load_gpu(gpu or "h100")).max_num_batched_tokens


def _model(flags: dict[str, Any]) -> Any:
    from capmodel.shapes import load_shape

    return load_shape(flags["model"], download=flags["download"])


def _gib(value: str | float | None) -> float | None:
    from capmodel.units import GIB

    if value is None:
        return None
    from capmodel.words import shown

    try:
        size = float(value) * GIB
    except ValueError:
        size = math.nan
    if not 0 <= size <= 1e18:
        raise click.UsageError(f"Got {shown(value)} GiB, but expected a number such as 6.51")
    return size


def _half_digit(text: str | None) -> float:
    """Half of the last digit written [byte]: what a rounded figure may be off by."""
    from capmodel.units import GIB

    return 0.5 * 10.0 ** -len((text or "0").partition(".")[2]) * GIB
