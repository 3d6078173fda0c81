"""`capmodel predict`: one decode step."""

from pathlib import Path

import click

from capmodel.cli import options


@click.command()
@options.model
@options.gpu
@options.tp
@options.batch
@options.context
@options.weight_dtype
@options.kv_dtype
@options.engine
@click.option(
    "--method", type=click.Choice(["regressor", "roofline"]), default="regressor",
    show_default=True, help="Physics with or without the learned correction.",
)  # fmt: skip
@click.option("--calibration", type=click.Path(path_type=Path), help="A file of `capmodel fit`.")
@click.option(
    "--interval", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.9,
    show_default=True, help="Coverage of the interval.",
)  # fmt: skip
@options.download
@options.as_json
def command(
    model: str | None,
    gpu: str | None,
    tp: int,
    batch: int,
    context: int,
    weight_dtype: str,
    kv_dtype: str,
    engine: str | None,
    method: str,
    calibration: Path | None,
    interval: float,
    download: bool,
    as_json: bool,
) -> None:
    """Seconds of one decode step, what binds, and whether it fits."""
    from capmodel.cli.tables import print_prediction
    from capmodel.cli.terminal import terminal
    from capmodel.prediction import predict
    from capmodel.shapes import load_shape

    if model is None or gpu is None:
        missing = "--model" if model is None else "--gpu"
        raise click.UsageError(f"{missing} is needed")
    found = predict(
        load_shape(model, download=True) if download else model, gpu, batch_size=batch,
        context_len=context, tp=tp, weight_dtype=weight_dtype, kv_dtype=kv_dtype, engine=engine,
        method=method, calibration=calibration, interval=interval,
    )  # fmt: skip
    asked = {
        "tp": tp, "batch_size": batch, "context_len": context, "weight_dtype": weight_dtype,
        "kv_dtype": kv_dtype, "engine": engine, "method": method,
    }  # fmt: skip
    if as_json:
        options.print_json({**asked, **found.to_dict()})
    else:
        print_prediction(found, asked, terminal())
