"""The reference pages, as Markdown: from docstrings, the commands' help and the runs table."""

import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator

import click

import capmodel as cm
from capmodel.cli import COMMANDS, group
from capmodel.features import FEATURES
from capmodel.ingest import FORMATS
from capmodel.quality.checks import CHECKS, COMPARISONS
from capmodel.quality.thresholds import Thresholds
from capmodel.runs import RUNS, STEP_TIME_DEFINITIONS

# Rooms with names of their own worth knowing, beside those of `capmodel` itself.
ROOMS = (
    "shapes", "gpus", "dtypes", "kvcache", "weights", "memory", "ingest", "datasets", "quality",
    "splits", "roofline", "regressor", "estimators", "evaluation", "calibration", "steptime",
    "workload", "simulation", "planner", "report", "notebooks", "units",
)  # fmt: skip


def reference_pages() -> dict[str, str]:
    """Name and Markdown of each generated page."""
    return {
        "reference_python": _python(),
        "reference_commands": _commands(),
        "reference_runs": _runs(),
    }


def _python() -> str:
    parts = ["# Python", "Every public name. Units are in [brackets]; times are seconds.", ""]
    parts += ["## capmodel", "", "`import capmodel as cm`. These names stay.", ""]
    seen = set()
    for name in cm.__all__:
        value = getattr(cm, name)
        if not isinstance(value, str):
            seen.add(id(value))
            parts += list(_entry(name, value))
    for room in ROOMS:
        module = importlib.import_module(f"capmodel.{room}")
        entries = [
            line
            for name, value in _public(module)
            if id(value) not in seen
            for line in _entry(name, value)
        ]
        if entries:
            parts += [f"## capmodel.{room}", "", _prose(inspect.getdoc(module)), "", *entries]
    return "\n".join(parts) + "\n"


def _public(module: object) -> Iterator[tuple[str, object]]:
    """Classes and functions a module offers: its `__all__`, else those defined in it."""
    listed = getattr(module, "__all__", None)
    for name in sorted(listed if listed is not None else vars(module)):
        value = getattr(module, name)
        if name.startswith("_") or not (inspect.isfunction(value) or inspect.isclass(value)):
            continue
        if listed is not None or value.__module__ == module.__name__:  # type: ignore[attr-defined]
            yield name, value


def _entry(name: str, value: object) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.isclass(value):
        if dataclasses.is_dataclass(value):
            shown = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
            yield f"`{name}({', '.join(shown)})`"
            yield ""
        yield _prose(inspect.getdoc(value))
        yield ""
        for method, inner in sorted(vars(value).items()):
            inner = inner.fget if isinstance(inner, property) else inner
            inner = getattr(inner, "__func__", inner)
            if method.startswith("_") or not inspect.isfunction(inner) or not inner.__doc__:
                continue
            call = "" if isinstance(vars(value)[method], property) else _signature(inner)
            yield f"- `.{method}{call}`: {_flat(inspect.getdoc(inner))}"
        yield ""
        return
    yield f"`{name}{_signature(value)}`"
    yield ""
    yield _prose(inspect.getdoc(value))
    yield ""


def _signature(function: object) -> str:
    """Parameters with their defaults, without the types, which the docstring's prose tells."""
    parts, starred = [], False
    for parameter in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(
            parameter.kind, ""
        )
        starred = starred or prefix == "*"
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(f"{prefix}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def _prose(text: str | None) -> str:
    """A docstring as Markdown: what would be emphasis there is a star here."""
    lines = (text or "").splitlines()
    return "\n".join(line if line.startswith("    ") else _escaped(line) for line in lines)


def _flat(text: str | None) -> str:
    return _escaped(" ".join((text or "").split()))


def _escaped(line: str) -> str:
    pieces = re.split(r"(`[^`]*`)", line)
    return "".join(p if p.startswith("`") else re.sub(r"([*_<\[\]|])", r"\\\1", p) for p in pieces)


def _commands() -> str:
    parts = ["# Command line", "", "`capmodel COMMAND --help` says the same. Exit codes: 0 done;"]
    parts += ["1 understood, but the answer is no; 2 bad usage or input, in one line.", ""]
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        if command is not None:
            parts += list(_command(f"capmodel {name}", command, 2))
    return "\n".join(parts) + "\n"


def _command(path: str, command: click.Command, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}"
    yield ""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    for paragraph in paragraphs:
        if paragraph.startswith("\b"):
            yield "```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```\n"
        else:
            yield _escaped(paragraph) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            if inner is not None:
                yield from _command(f"{path} {name}", inner, level + 1)
        return
    rows = [_flag(p) for p in command.params if isinstance(p, click.Option)]
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = " ".join(one.make_metavar(click.Context(command)) for one in arguments)
    yield f"`{path}{' ' + words if words else ''}{' [flags]' if rows else ''}`\n"
    if rows:
        yield "| flag | |\n|---|---|"
        yield from rows
        yield ""


def _flag(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {_escaped(option.make_metavar(click.Context(group)))}"
    default = option.default
    shown = option.show_default and default is not None and not callable(default)
    note = f" Default: {_escaped(str(default))}." if shown else ""
    return f"| {names}{value} | {_escaped(option.help or '')}{note} |"


def _runs() -> str:
    parts = ["# Runs table", "", "One row per measured configuration, as CSV or Parquet. Columns"]
    parts += ["outside this list are kept as they are.", "", "## Columns", ""]
    parts += ["| column | unit | |", "|---|---|---|"]
    for column in RUNS:
        note = " **needed**" if column.required else ""
        note += f" Default: {column.default}." if column.default not in (None, "") else ""
        parts.append(f"| `{column.name}` | {column.unit} | {_escaped(column.meaning)}.{note} |")
    parts += ["", "One of `step_time_s` and `throughput_tok_s` is needed.", ""]
    parts += ["## Kinds of step time", "", "| `step_time_definition` | |", "|---|---|"]
    parts += [f"| `{name}` | {_escaped(what)} |" for name, what in STEP_TIME_DEFINITIONS.items()]
    parts += ["", "## Formats", "", "What `capmodel ingest` recognises, by content: "]
    parts += [", ".join(f"`{name}`" for name in FORMATS) + ".", ""]
    parts += ["## Features", "", "What `add_features` adds, per GPU and decode step.", ""]
    parts += ["| column | |", "|---|---|"]
    parts += [f"| `{name}` | {_escaped(meaning)} |" for name, meaning in FEATURES.items()]
    parts += ["", "## Row checks", "", "| rule | |", "|---|---|"]
    for check in (*CHECKS, *COMPARISONS):
        said = " ".join((inspect.getdoc(check) or "").split("\n\n")[0].split())
        parts.append(f"| `{check.__name__}` | {_escaped(said)} |")
    limits = [f"`{f.name}` {f.default}" for f in dataclasses.fields(Thresholds)]
    parts += ["", f"Limits, each an argument of `check_runs`: {', '.join(limits)}.", ""]
    return "\n".join(parts)
