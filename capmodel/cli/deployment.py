"""Flags of commands that look at many deployments: each may be repeated, none searches."""

from pathlib import Path

import click

gpu = click.option(
    "--gpu",
    multiple=True,
    metavar="NAME|PATH",
    help="GPU name, alias or TOML file; repeatable; none: the whole catalogue.",
)
tp = click.option(
    "--tp",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="GPUs a replica is split over; repeatable; none: 1, 2, 4, 8.",
)
weight_dtype = click.option(
    "--weight-dtype",
    multiple=True,
    metavar="DTYPE",
    help="Stored weights; repeatable; none: the checkpoint's own, or bf16, fp8, int4.",
)
kv_dtype = click.option(
    "--kv-dtype",
    multiple=True,
    metavar="DTYPE",
    help="KV cache; repeatable; none: bf16 and fp8.",
)
calibration = click.option(
    "--calibration",
    type=click.Path(path_type=Path),
    help="A file of `capmodel fit`; none: those shipped.",
)
