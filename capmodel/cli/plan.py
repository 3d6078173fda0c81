"""`capmodel plan`: from a workload to GPUs, latency and money."""

import json
from pathlib import Path
from typing import Any

import click

from capmodel.cli import options


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


@click.command(name="plan")
@options.model
@click.option("--gpu", multiple=True, metavar="NAME|PATH", help="Repeatable; none: search all.")
@click.option(
    "--tp", multiple=True, type=click.IntRange(min=1), help="Repeatable; none: 1, 2, 4, 8."
)
@click.option("--weight-dtype", multiple=True, metavar="DTYPE", help="Repeatable; none: search.")
@click.option("--kv-dtype", multiple=True, metavar="DTYPE", help="Repeatable; none: bf16, fp8.")
@options.engine
@click.option("--calibration", type=click.Path(path_type=Path), help="None: those shipped.")
@click.option("--rate", type=float, metavar="PER_S", help="Requests per second.")
@click.option("--concurrency", type=int, metavar="N", help="Clients that wait for their answer.")
@click.option("--trace", type=click.Path(path_type=Path), help="Azure, Mooncake or plain CSV.")
@click.option("--input-len", type=float, metavar="TOKENS", help="Mean prompt length.")
@click.option("--output-len", type=float, metavar="TOKENS", help="Mean output length.")
@click.option(
    "--length-cv", type=float, default=0.0, show_default=True, help="Log-normal lengths; 0: fixed."
)
@click.option(
    "--cv", type=float, default=1.0, show_default=True, help="Of the gaps between arrivals."
)
@click.option("--prefix-len", type=int, metavar="TOKENS", help="A prefix that prompts share.")
@click.option(
    "--prefix-share", type=float, default=1.0, show_default=True, help="Of the prompts, which do."
)
@click.option("--prefix-cache/--no-prefix-cache", default=True, show_default=True)
@click.option("--slo-ttft-p95", type=float, metavar="S", help="Time to the first token, p95.")
@click.option("--slo-tpot-p95", type=float, metavar="S", help="Time per further token, p95.")
@click.option(
    "--price", multiple=True, type=_Price(), help="Per GPU-hour; none: the catalogue's ranges."
)
@click.option("--memory-fraction", type=float, default=0.92, show_default=True)
@click.option("--simulate/--no-simulate", default=True, show_default=True)
@options.seed
@options.out
@options.as_json
@options.download
def command(**flags: Any) -> int:
    """The cheapest fleet that keeps the promises, what users feel, and what it costs.

    \b
    capmodel plan --model llama-3-70b --gpu h100 --gpu h200 --trace conv.csv \\
        --slo-ttft-p95 2 --slo-tpot-p95 0.05
    capmodel plan --model qwen3-32b --rate 8 --input-len 2000 --output-len 300 \\
        --price h100-sxm=2.4 -o plan.pdf

    --out writes a .pdf, or a .json that `capmodel report` renders. Exit code 1: infeasible.
    """  # fmt: skip
    from capmodel.cli import plan_tables
    from capmodel.planner import InfeasiblePlan

    if flags["model"] is None:
        raise click.UsageError("Give --model")
    status = 0
    try:
        found = _plan(flags)
    except InfeasiblePlan as error:
        if error.plan is None:
            raise
        found, status = error.plan, 1
    document = found.to_dict()
    if flags["as_json"]:
        options.print_json(document)
    else:
        plan_tables.print_plan(document)
    if flags["out"] is not None:
        _write(found, flags["out"])
        click.echo(f"Plan in {flags['out']}", err=True)
    return status


def _plan(flags: dict[str, Any]) -> Any:
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
        download=flags["download"],
    )


def _lengths(mean: float | None, cv: float) -> Any:
    from capmodel.workload import Lognormal

    return Lognormal(mean, cv) if mean is not None and cv else mean


def _write(found: Any, path: Path) -> None:
    if path.suffix.lower() == ".json":
        from capmodel.report.files import write_whole

        write_whole(path, json.dumps(found.to_dict(), indent=2).encode() + b"\n")
    elif path.suffix.lower() == ".pdf":
        found.write_pdf(path)
    else:
        raise click.UsageError(f"--out {path}: expected a name that ends in .pdf or .json")
