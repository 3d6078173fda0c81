"""Flags that mean the same in every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class Group(click.Group):
    """Commands whose `--help` lists each one's whole first sentence; click's own cuts it short."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the section that lists the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, self.commands[name].get_short_help_str(200))
                    for name in sorted(self.commands)
                ]
            )


model = click.option(
    "--model", metavar="NAME|PATH", help="Catalogue name, Hugging Face id or config.json."
)
gpu = click.option("--gpu", metavar="NAME|PATH", help="GPU name, alias or TOML file.")
tp = click.option(
    "--tp", type=click.IntRange(min=1), default=1, show_default=True, help="Tensor-parallel GPUs."
)
engine = click.option("--engine", metavar="NAME", help="vllm, sglang, tensorrt-llm, llama.cpp, ...")
weight_dtype = click.option(
    "--weight-dtype", default="bf16", show_default=True, metavar="DTYPE", help="Stored weights."
)
kv_dtype = click.option(
    "--kv-dtype",
    default="bf16",
    show_default=True,
    metavar="DTYPE",
    help="KV cache; 'q8_0,f16' names K and V apart.",
)
batch = click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Sequences decoded together.",
)
context = click.option(
    "--context",
    type=click.IntRange(min=1),
    default=4096,
    show_default=True,
    metavar="TOKENS",
    help="Cached tokens per sequence.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of everything random.",
)
out = click.option("--out", "-o", type=click.Path(path_type=Path), help="Where to write.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
download = click.option(
    "--download", is_flag=True, help="Allow fetching a config from the Hugging Face hub."
)


def print_json(value: object) -> None:
    """Print `value` as JSON; NaN and infinity, which JSON has not, become null."""
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    elif hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value
