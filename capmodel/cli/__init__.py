"""The command line: parse, call, print. One file per command, imported when it is called.

A command lives in `capmodel/cli/<name>.py` as a click command named `command`.
Exit codes: 0 done; 1 understood, but the answer is no; 2 bad usage or input, one line.
"""

import sys
import warnings
from importlib import import_module

import click

from capmodel import __version__
from capmodel.words import one_line

# Name -> the line shown by `capmodel --help`.
COMMANDS = {
    "run": "The main job: ingest, features, roofline, regressor, grade card, capacity plan.",
    "predict": "One decode step: seconds, what binds, what fits.",
    "catalog": "Models and GPUs known by name: figures, other names, sources.",
    "kv": "Cache bytes, blocks and concurrency.",
    "plan": "From a workload to GPUs, latency and money.",
    "sweep": "Step times over a grid of deployments, batches and contexts.",
    "ingest": "Read benchmark files into one runs table.",
    "profile": "What is in a runs table.",
    "fit": "Fit a calibration on runs and save it.",
    "grade": "Held-out errors of every estimator, by split.",
    "report": "A plan's JSON as PDF or HTML.",
    "diff": "What changed between two plans, and why.",
    "dataset": "Build or fetch reference runs.",
    "notebooks": "Rerun or copy the notebooks.",
    "serve": "The planner in a browser and over HTTP.",
    "lab": "A small decoder that proves the cache arithmetic.",
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        loaded = import_module(f"capmodel.cli.{name}").command
        return loaded if isinstance(loaded, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="capmodel")
def group() -> None:
    """What your GPUs will do for a language model, with a measured error bar."""


def main(args: list[str] | None = None) -> None:
    """Entry point: turns errors a user can mend into one line and exit code 2."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            status = group.main(args=args, prog_name="capmodel", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("capmodel: stopped", err=True)
        sys.exit(130)
    except click.ClickException as error:
        click.echo(f"capmodel: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except (ValueError, OSError) as error:
        click.echo(f"capmodel: {one_line(error)}", err=True)
        sys.exit(2)
    except (OverflowError, RecursionError) as error:
        click.echo(
            f"capmodel: a number or a nesting is too large to read: {one_line(error)}", err=True
        )
        sys.exit(2)
    except MemoryError:
        click.echo(
            "capmodel: the memory of this machine is too small for what was asked; give fewer or "
            "smaller runs files, a shorter grid or trace, or a machine with more memory",
            err=True,
        )
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


def _note(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
    """A warning of the package's own as a line on standard error; others as Python shows them."""
    if category.__module__.startswith("capmodel"):
        click.echo(f"capmodel: note: {one_line(message)}", err=True)
    else:
        _shown_by_python(message, category, *where, **more)  # type: ignore[arg-type]


_shown_by_python = warnings.showwarning
