"""`capmodel plan`: from a workload to GPUs, latency and money."""

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from capmodel.cli import deployment, options


class _Price(click.ParamType):
    """`3.5` for every GPU, or `h100-sxm=3.5`."""

    name = "DOLLARS|GPU=DOLLARS"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        gpu, _, number = str(value).rpartition("=")
        try:
            return gpu or "*", float(number)
        except ValueError:
            self.fail(f"{value!r} is no price: expected dollars per GPU-hour, or GPU=dollars")


def _out_path(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse before the work what could not be written after it."""
    if path is None:
        return None
    if path.suffix.lower() not in (".json", ".pdf", ".html"):
        raise click.UsageError(f"--out {path}: expected a name that ends in .json, .pdf or .html")
    if path.is_dir() or not path.parent.is_dir():
        raise click.UsageError(f"--out {path}: expected a file in a folder that exists")
    return path


@click.command(name="plan")
@options.model
@deployment.gpu
@deployment.tp
@deployment.weight_dtype
@deployment.kv_dtype
@options.engine
@deployment.calibration
@click.option("--rate", type=float, metavar="PER_S", help="Requests per second.")
@click.option("--concurrency", type=int, metavar="N", help="Clients that wait for their answer.")
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    help="Requests as they came: an Azure or Mooncake trace, or a plain CSV.",
)
@click.option("--input-len", type=float, metavar="TOKENS", help="Prompt length, mean.")
@click.option("--output-len", type=float, metavar="TOKENS", help="Output length, mean.")
@click.option(
    "--length-cv",
    type=float,
    default=0.0,
    show_default=True,
    metavar="CV",
    help="How much lengths vary (standard deviation over mean, log-normal); 0: all alike.",
)
@click.option(
    "--cv",
    type=float,
    default=1.0,
    show_default=True,
    help="How bursty: standard deviation over mean of the gaps between arrivals; 1: Poisson.",
)
@click.option(
    "--prefix-len", type=int, metavar="TOKENS", help="Length of a beginning that prompts share."
)
@click.option(
    "--prefix-share",
    type=float,
    default=1.0,
    show_default=True,
    metavar="SHARE",
    help="Share of the prompts that have it.",
)
@click.option(
    "--prefix-cache/--no-prefix-cache",
    default=True,
    show_default=True,
    help="Whether the engine keeps shared beginnings.",
)
@click.option(
    "--slo-ttft-p95", type=float, metavar="S", help="Promise: time to the first token, p95."
)
@click.option(
    "--slo-tpot-p95", type=float, metavar="S", help="Promise: time per further token, p95."
)
@click.option(
    "--slo-e2e-p95", type=float, metavar="S", help="Promise: arrival to the last token, p95."
)
@click.option(
    "--price",
    multiple=True,
    type=_Price(),
    help="Dollars per GPU-hour; repeatable by GPU; none: the catalogue's dated ranges.",
)
@click.option(
    "--memory-fraction",
    type=float,
    default=0.92,
    show_default=True,
    metavar="SHARE",
    help="Share of a GPU's memory that the engine may use.",
)
@click.option(
    "--simulate/--no-simulate",
    default=True,
    show_default=True,
    help="Play the requests through the cheapest fleets, or trust the estimates.",
)
@click.option(
    "--disaggregate/--no-disaggregate",
    default=False,
    show_default=True,
    help="Look also at fleets with some replicas for prompts alone.",
)
@click.option("--date", metavar="YYYY-MM-DD", help="The day the plan carries; none: today.")
@options.seed
@click.option(
    "--out",
    "-o",
    type=click.Path(path_type=Path),
    callback=_out_path,
    help="Also write the plan: .json, .pdf or .html.",
)
@options.as_json
@options.download
def command(**flags: Any) -> int:
    """The cheapest fleet that keeps the promises, what users feel, and what it costs.

    \b
    capmodel plan --model llama-3-70b --gpu h100 --gpu h200 --trace conv.csv \\
        --slo-ttft-p95 2 --slo-tpot-p95 0.05
    capmodel plan --model qwen3-32b --rate 8 --input-len 2000 --output-len 300 \\
        --price h100-sxm=2.4 -o plan.pdf

    What --out writes as .json, `capmodel report` renders and `capmodel diff` compares.
    Exit code 1: infeasible.
    """  # fmt: skip
    from capmodel.cli import plan_tables
    from capmodel.cli.progress import progress_bar
    from capmodel.cli.terminal import is_terminal
    from capmodel.planner import InfeasiblePlan

    if flags["model"] is None:
        raise click.UsageError("Give --model")
    status = 0
    try:
        with progress_bar(quiet=flags["as_json"] or not is_terminal(sys.stderr)) as progress:
            found = _plan(flags, progress)
    except InfeasiblePlan as error:
        if error.plan is None:
            raise
        found, status = error.plan, 1
    found = replace(found, command=shlex.join(_spelt(click.get_current_context())))
    if flags["out"] is not None:  # first: a pager that is closed ends the printing
        _write(found, flags["out"])
    document = found.to_dict()
    if flags["as_json"]:
        options.print_json(document)
    else:
        plan_tables.print_plan(document)
    if flags["out"] is not None:
        click.echo(f"Plan in {flags['out']}", err=True)
    return status


def _plan(flags: dict[str, Any], progress: Any) -> Any:
    from capmodel.planner import plan
    from capmodel.workload import SharedPrefix

    prefix = None
    if flags["prefix_len"] is not None:
        prefix = SharedPrefix(flags["prefix_len"], flags["prefix_share"])
    return plan(
        flags["model"],
        list(flags["gpu"]) or None,
        rate=flags["rate"],
        concurrency=flags["concurrency"],
        trace=flags["trace"],
        input_len=_lengths(flags["input_len"], flags["length_cv"]),
        output_len=_lengths(flags["output_len"], flags["length_cv"]),
        slo_ttft_p95=flags["slo_ttft_p95"],
        slo_tpot_p95=flags["slo_tpot_p95"],
        slo_e2e_p95=flags["slo_e2e_p95"],
        tp=list(flags["tp"]) or None,
        weight_dtype=list(flags["weight_dtype"]) or None,
        kv_dtype=list(flags["kv_dtype"]) or None,
        price=dict(flags["price"]) or None,
        calibration=flags["calibration"],
        simulate=flags["simulate"],
        seed=flags["seed"],
        engine=flags["engine"],
        cv=flags["cv"],
        prefix=prefix,
        prefix_cache=flags["prefix_cache"],
        memory_fraction=flags["memory_fraction"],
        disaggregate=flags["disaggregate"],
        download=flags["download"],
        date=flags["date"],
        progress=progress,
    )


def _lengths(mean: float | None, cv: float) -> Any:
    from capmodel.workload import Lognormal

    return Lognormal(mean, cv) if mean is not None and cv else mean


def _write(found: Any, path: Path) -> None:
    if path.suffix.lower() == ".json":
        from capmodel.report.files import write_whole

        write_whole(path, json.dumps(found.to_dict(), indent=2).encode() + b"\n")
    elif path.suffix.lower() == ".html":
        found.write_html(path)
    else:
        found.write_pdf(path)


def _spelt(ctx: click.Context) -> Iterator[str]:
    """The command as it was given: files by their name, without where the output went."""
    yield from ("capmodel", "plan")
    for option in ctx.command.params:
        name = option.name or ""
        given = ctx.get_parameter_source(name)
        if name in ("out", "as_json") or given is None or given.name != "COMMANDLINE":
            continue
        value = ctx.params[name]
        if isinstance(value, bool):
            yield option.opts[0] if value else (option.secondary_opts or option.opts)[0]
            continue
        for one in value if option.multiple else [value]:
            yield from (option.opts[0], _word(one))


def _word(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{value[1]:g}" if value[0] == "*" else f"{value[0]}={value[1]:g}"
    if isinstance(value, Path):
        return value.name
    return f"{value:g}" if isinstance(value, float) else str(value)
