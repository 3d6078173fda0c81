"""Run the code blocks of a page, in order, in a folder of their own.

A fence's first word says what it is: `python` is executed, one namespace a page; of `sh` every
line that starts with `capmodel` is called, and `export` heeded; `sh no-run` is parsed alone. A
second word is a file name: the block is written there for those that follow.
"""

import contextlib
import io
import os
import shlex
import tempfile
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
from markdown_it.token import Token

from capmodel.cli import group, main


def run_blocks(name: str, tokens: list[Token]) -> list[str]:
    """Problems of a page's blocks, each with the line it stands on; none where all run."""
    problems: list[str] = []
    with _own_folder():
        names: dict[str, object] = {"__name__": "__docs__"}
        for fence in (token for token in tokens if token.type == "fence"):
            language, _, word = fence.info.strip().partition(" ")
            line = (fence.map or [0])[0] + 1
            where = f"{name}.md:{line}"
            if language == "python":
                problems += _run_python(fence.content, names, where)
            elif language == "sh":
                problems += _run_shell(fence.content, where, parse_only=word == "no-run")
            elif word:
                path = Path(word)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(fence.content, encoding="utf-8")
            else:
                problems.append(f"{where}: a block of {language or 'no language'} is not checked")
    return problems


@contextlib.contextmanager
def _own_folder() -> Iterator[None]:
    """A temporary working folder; the environment is put back afterwards."""
    before, environment = Path.cwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(environment)


def _run_python(code: str, names: dict[str, object], where: str) -> list[str]:
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            exec(compile(code, where, "exec"), names)
    except Exception:  # noqa: BLE001 - whatever a block raises is a problem to report
        last = traceback.format_exc().strip().splitlines()[-1]
        return [f"{where}: {last}"]
    return []


def _run_shell(text: str, where: str, *, parse_only: bool) -> list[str]:
    problems = []
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "export":
            os.environ.update(word.split("=", 1) for word in words[1:])
        elif words[0] != "capmodel":
            problems.append(f"{where}: only capmodel is checked, got {line!r}")
        elif parse_only:
            problems += [f"{where}: {why}" for why in _parsed(words[1:])]
        else:
            problems += [f"{where}: {line}: {why}" for why in _called(words[1:])]
    return problems


def _called(words: list[str]) -> list[str]:
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            main(words)
    except SystemExit as stop:
        return [] if stop.code == 0 else [f"exit code {stop.code} {said.getvalue().strip()}"]
    return []


def _parsed(words: list[str]) -> list[str]:
    """Whether the command and its flags exist, without running it."""
    command: click.Command | None = group
    context = click.Context(group)
    rest = list(words)
    while isinstance(command, click.Group) and rest:
        name = rest.pop(0)
        command = command.get_command(context, name)
        if command is None:
            return [f"no command {name!r}"]
    if command is None or isinstance(command, click.Group):
        return ["a command is missing"]
    try:
        command.make_context(" ".join(words), rest)
    except click.ClickException as error:
        return [error.format_message()]
    return []
