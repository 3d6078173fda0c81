"""A `plan.json` back from disk, refused by name where it is none."""

import json
import os
from pathlib import Path
from typing import Any

from capmodel.report.plan import check_plan


def load_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The dict of a plan that `capmodel plan -o plan.json` wrote.

    Raises `ValueError` for a file that is missing, a folder, no JSON, cut short, no plan, or of
    another schema version; the message names the file.
    """
    source = Path(path)
    try:
        text = source.read_text(encoding="utf-8-sig")
        plan = json.loads(text, parse_constant=_no_number, parse_int=_bounded)
    except FileNotFoundError as error:
        raise ValueError(f"Got {source}, but no such file exists") from error
    except IsADirectoryError as error:
        raise ValueError(f"Got the folder {source}, but expected a plan's JSON file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"Got {source}, which is not text, but expected JSON in UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(
            f"Got {source}, but it is not whole JSON (line {error.lineno}: {error.msg})"
        ) from error
    except PermissionError as error:
        raise ValueError(f"Got {source}, but it may not be read") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"Got {source}, but no plan has a number or a nesting as large as in it"
        ) from error
    try:
        check_plan(plan)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    result: dict[str, Any] = plan
    return result


def _bounded(digits: str) -> int:
    """An integer that a float can hold; of others no plan has one."""
    value = int(digits)
    if abs(value) > MOST:
        raise ValueError(f"{digits[:20]}... is beyond any number of a plan")
    return value


MOST = 10**300


def _no_number(text: str) -> None:
    """NaN and Infinity, which JSON has not, are unknown."""
