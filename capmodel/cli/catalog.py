"""`capmodel catalog`: the models and GPUs that are known by name."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from capmodel.cli import options

if TYPE_CHECKING:
    from rich.table import Table

    from capmodel.catalog_rows import GpuRow, ModelRow

_NONE = "-"


@click.command()
@click.argument("what", type=click.Choice(["models", "gpus"]), default="models")
@click.argument("text", required=False, default="")
@options.as_json
def command(what: str, text: str, as_json: bool) -> int:
    """Models and GPUs known by name, a folder of your own (CAPMODEL_CATALOG) included.

    TEXT searches names, other names, kinds of attention, vendors and sources; several words must
    all occur. One hit alone is shown with all its figures.

    \b
    capmodel catalog models qwen3
    capmodel catalog models "latent deepseek"
    capmodel catalog gpus h100 --json
    """  # fmt: skip
    from capmodel.catalog_rows import gpu_rows, model_rows, searched

    found: list[Any] = searched(model_rows() if what == "models" else gpu_rows(), text)
    if as_json:
        options.print_json([asdict(row) for row in found])
    elif not found:
        from capmodel.words import shown

        click.echo(f"None of the {what} has {shown(text)} in its names, kinds or sources.")
    elif len(found) == 1:
        _print_one(found[0])
    else:
        from capmodel.cli.terminal import terminal

        terminal().print(_models(found) if what == "models" else _gpus(found))
        called = {"models": "models", "gpus": "GPUs"}[what]
        click.echo(f"{len(found)} {called}; more of one: capmodel catalog {what} NAME")
    return 0 if found else 1


def _models(rows: "list[ModelRow]") -> "Table":
    from capmodel.units import format_count

    right = ("parameters", "layers", "KV bytes/token", "context")
    table = _table("model", "attention", right=right)
    for row in rows:
        context = f"{row.max_context:,}" if row.max_context else _NONE
        table.add_row(
            row.name, format_count(row.parameters), f"{row.layers}",
            f"{row.kv_bytes_per_token:,.0f}", context, row.attention,
        )  # fmt: skip
    return table


def _gpus(rows: "list[GpuRow]") -> "Table":
    from capmodel.units import format_bytes

    right = ("memory", "bandwidth", "16-bit TFLOP/s", "fp8 TFLOP/s")
    table = _table("GPU", "other names", right=right)
    for row in rows:
        speed = row.bandwidth_bytes_per_s
        table.add_row(
            row.name, format_bytes(row.memory_bytes),
            f"{format_bytes(speed)}/s" if speed else _NONE,
            _tera(row.bf16_flops_per_s or row.fp16_flops_per_s), _tera(row.fp8_flops_per_s),
            ", ".join(row.aliases) or _NONE,
        )  # fmt: skip
    return table


def _print_one(row: "ModelRow | GpuRow") -> None:
    from rich.table import Table

    from capmodel.cli.terminal import terminal

    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in asdict(row).items():
        table.add_row(name, _cell(name, value))
    terminal().print(table)


def _cell(name: str, value: Any) -> str:
    from rich.markup import escape

    from capmodel.units import format_bytes, format_gib

    if value in (None, "", ()):
        return _NONE
    if isinstance(value, tuple):
        return escape(", ".join(map(str, value)))
    if name.endswith("_flops_per_s"):
        return f"{_tera(value)} TFLOP/s"
    if name.endswith("_bytes_per_s"):
        return f"{format_bytes(value)}/s"
    if name == "memory_reported_bytes":
        return format_gib(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return f"{value:,.0f}" if isinstance(value, int | float) else escape(str(value))


def _tera(flops: float | None) -> str:
    return f"{flops / 1e12:,.0f}" if flops else _NONE


def _table(*left: str, right: tuple[str, ...]) -> "Table":
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    table.add_column(left[0], no_wrap=True)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(left[1])
    return table
