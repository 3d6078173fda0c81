"""`capmodel sweep`: step times over a grid, into Parquet."""

from pathlib import Path
from typing import Any

import click

from capmodel.cli import deployment, options


@click.command(name="sweep")
@options.model
@deployment.gpu
@deployment.tp
@deployment.weight_dtype
@deployment.kv_dtype
@options.engine
@deployment.calibration
@click.option(
    "--max-batch",
    type=click.IntRange(min=1),
    default=512,
    show_default=True,
    metavar="N",
    help="Largest batch: sequences decoded together.",
)
@click.option(
    "--max-context",
    type=click.IntRange(min=1),
    default=32768,
    show_default=True,
    metavar="TOKENS",
    help="Longest context: cached tokens per sequence.",
)
@click.option(
    "--points",
    type=click.IntRange(min=1),
    default=1_000_000,
    show_default=True,
    metavar="N",
    help="About so many rows, spread over batches and contexts.",
)
@click.option("--dask", metavar="ADDRESS", help="A Dask scheduler to work on (the extra `dask`).")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The Parquet file to write.")
@options.as_json
def command(**flags: Any) -> int:
    """Step time, tokens/s and fit of every deployment at every batch and context.

    \b
    capmodel sweep --model llama-3-70b --gpu h100 --points 10000000 -o grid.parquet

    The roofline's step times: smooth over the whole grid, and millions of rows a second.
    """  # fmt: skip
    from rich.progress import Progress

    from capmodel.cli.terminal import terminal
    from capmodel.planner.grid import grid_axes, roofline_setting
    from capmodel.planner.sweep import sweep

    if flags["model"] is None or flags["out"] is None:
        raise click.UsageError("Give --model and --out")
    gpus = list(flags["gpu"]) or None
    chosen: dict[str, Any] = {
        name: list(flags[name]) or None for name in ("tp", "weight_dtype", "kv_dtype")
    }
    setting = roofline_setting(flags["calibration"], flags["engine"])
    batch, context = grid_axes(
        flags["model"], gpus, flags["max_batch"], flags["max_context"], flags["points"], **chosen
    )
    with Progress(transient=True, disable=flags["as_json"], console=terminal(stderr=True)) as bar:
        task = bar.add_task("Step times", total=None)
        result = sweep(
            flags["model"],
            gpus,
            flags["out"],
            batch=batch,
            context=context,
            setting=setting,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
            dask=flags["dask"],
            **chosen,
        )
    summary = {
        "path": str(result.path),
        "rows": result.rows,
        "deployments": [candidate.name for candidate in result.deployments],
        "left_out": [[candidate.name, reason] for candidate, reason in result.left_out],
    }
    if flags["as_json"]:
        options.print_json(summary)
        return 0
    click.echo(f"{result.rows:,} rows in {result.path}: deployments 0 to n in this order")
    for number, candidate in enumerate(result.deployments):
        click.echo(f"  {number}  {candidate.name}")
    for candidate, reason in result.left_out:
        click.echo(f"  left out  {candidate.name}: {reason}")
    return 0
