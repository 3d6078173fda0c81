"""What holds across all rooms: floors, light imports, docstrings, columns.

The floors are HOUSE.md's table, with the rooms that the building needed besides. A new room fails
here until it is given a floor.
"""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import capmodel as cm
from capmodel.baselines import RAW_NUMBERS, RAW_TEXT
from capmodel.cli import COMMANDS, group
from capmodel.features import FEATURES
from capmodel.roofline import TERMS
from capmodel.runs import GPU_COLUMNS, RUNS, SHAPE_COLUMNS
from capmodel.splits import CONFIGURATION, SPLITS

PACKAGE = Path(cm.__file__).parent
FLOORS = (
    {"units", "bundled", "dtypes", "shapes", "gpus", "words", "engines", "arguments", "own_folder"},
    {"kvcache", "weights", "runs", "distributed", "cells", "problems", "own_entries",
     "filed"},
    {"memory", "ingest", "datasets", "catalog_rows"},
    {"features", "traffic", "operators", "step_kernels", "matern"},
    {"quality", "roofline", "regressor", "curves", "kernel_rows", "anchors", "splits", "baselines",
     "bands", "steptime", "coverage", "profile", "saturation", "ceiling"},
    {"conformal", "estimators", "evaluation", "adaptation", "suggestion", "known_pairs", "pooling",
     "identifiability", "estimator_values"},
    {"intervals", "calibration", "loading", "prediction"},
    {"workload", "simulation", "planner", "costs"},
    {"plots", "report", "milestones", "mainjob", "notebooks"},
    {"cli", "service", "__main__"},
)  # fmt: skip
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
# The decoder lab stands apart: it may use what a model is made of, and the top may show it.
LAB, LAB_MAY_USE, LAB_SHOWN_BY = "lab", 2, 8
FACES = FLOORS[9]
FITTERS = {"roofline", "regressor", "pooling", "baselines", "estimators", "evaluation"}
# Upward, inside a function: INTERFACES promises `Plan.write_pdf`; the report reads its dict alone.
UPWARD = {("planner/result.py", "report")}

FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def modules_imported(tree: ast.AST) -> Iterator[str]:
    """Full names of all modules a file imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written out in full"
            assert node.module is not None
            if node.module == "capmodel":
                yield from (f"capmodel.{alias.name}" for alias in node.names)
            else:
                yield node.module


def imports_between_rooms() -> Iterator[tuple[str, str, str]]:
    """(file, its room, room it imports) for every import of another room."""
    for file, tree in TREES.items():
        if file == "__init__.py":
            continue
        for module in modules_imported(tree):
            parts = module.split(".")
            if parts[0] == "capmodel" and parts[1:2] not in ([], ["__version__"], [room_of(file)]):
                yield file, room_of(file), parts[1]


IMPORTS = sorted(set(imports_between_rooms()))


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(file) for file in FILES} - {"__init__", LAB}
    assert rooms <= set(FLOOR_OF), f"no floor yet: {sorted(rooms - set(FLOOR_OF))}"


def test_imports_go_down_or_sideways() -> None:
    upward = [
        f"{file} ({FLOOR_OF[room]}) imports {target} ({FLOOR_OF[target]})"
        for file, room, target in IMPORTS
        if LAB not in (room, target)
        and FLOOR_OF[target] > FLOOR_OF[room]
        and (file, target) not in UPWARD
    ]
    assert not upward


def test_the_exceptions_are_inside_functions() -> None:
    for file, target in UPWARD:
        heads = ast.Module(
            [n for n in TREES[file].body if isinstance(n, ast.Import | ast.ImportFrom)], []
        )
        assert f"capmodel.{target}" not in set(modules_imported(heads))


def test_no_circles_within_a_floor() -> None:
    edges: dict[str, set[str]] = {}
    for _, room, target in IMPORTS:
        if LAB not in (room, target) and FLOOR_OF[room] == FLOOR_OF[target]:
            edges.setdefault(room, set()).add(target)

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for target in edges.get(waiting.pop(), set()) - seen:
                seen.add(target)
                waiting.append(target)
        return seen

    assert not [room for room in edges if room in reach(room)]


def test_the_lab_stands_apart() -> None:
    used = {(file, target) for file, room, target in IMPORTS if room == LAB}
    assert not [pair for pair in used if FLOOR_OF[pair[1]] > LAB_MAY_USE]
    shown = {(file, room) for file, room, target in IMPORTS if target == LAB}
    assert not [pair for pair in shown if FLOOR_OF[pair[1]] < LAB_SHOWN_BY]


def test_lower_floors_load_no_heavy_library() -> None:
    heavy = {"matplotlib", "lightgbm", "sklearn", "fastapi", "uvicorn", "typst"}
    found = [
        f"{file} imports {module}"
        for file, tree in TREES.items()
        if FLOOR_OF.get(room_of(file), 9) <= 3
        for module in modules_imported(tree)
        if module.split(".")[0] in heavy
    ]
    assert not found


def test_physics_and_learning_do_not_know_each_other() -> None:
    pairs = {(room, target) for _, room, target in IMPORTS}
    assert not pairs & {("roofline", "regressor"), ("regressor", "roofline")}


def test_planner_and_simulator_fit_nothing() -> None:
    pairs = {(f, t) for f, room, t in IMPORTS if room in ("planner", "simulation")}
    assert not [pair for pair in pairs if pair[1] in FITTERS]


def test_nothing_imports_a_face() -> None:
    found = {(file, target) for file, room, target in IMPORTS if target in FACES}
    assert found <= {("__main__.py", "cli"), ("cli/serve.py", "service")}


def test_import_capmodel_is_light() -> None:
    heavy = ["matplotlib", "lightgbm", "fastapi", "sklearn", "pandas", "scipy"]
    code = (
        f"import json, sys, capmodel; print(json.dumps([n for n in {heavy} if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_public_names_are_no_modules_whatever_was_imported_first() -> None:
    for module in pkgutil.iter_modules(cm.__path__):
        if module.name != "__main__":
            importlib.import_module(f"capmodel.{module.name}")
    for name in cm.__all__:
        assert not isinstance(getattr(cm, name), ModuleType), name


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_are_there_and_explain_themselves(name: str) -> None:
    command = group.commands.get(name) or group.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    assert command.help


PUBLIC_FUNCTIONS = [
    name for name in cm.__all__ if inspect.isfunction(inspect.unwrap(getattr(cm, name)))
]


def described(docstring: str) -> set[str]:
    """Names that a docstring explains as `name: meaning` or `one, two and three: meaning`."""
    found: set[str] = set()
    for match in re.finditer(r"([a-z_][\w, ]{0,120}):\s", docstring):
        before = docstring[: match.start()].rstrip()
        if before and not before.endswith((".", ";", ")")):
            continue
        names = [part.strip() for part in re.split(r",| and ", match.group(1))]
        if all(re.fullmatch(r"[a-z_]\w*", part) for part in names):
            found.update(names)
    return found


@pytest.mark.parametrize("name", PUBLIC_FUNCTIONS)
def test_docstrings_and_signatures_agree(name: str) -> None:
    function = getattr(cm, name)
    docstring = inspect.getdoc(function) or ""
    parameters = set(inspect.signature(function).parameters)
    assert described(docstring) <= parameters, "explains what is no parameter"
    inherited = re.search(r"[Tt]akes what `(\w+)` takes", docstring)
    told = docstring + (inspect.getdoc(getattr(cm, inherited.group(1))) or "" if inherited else "")
    missing = [one for one in parameters if not re.search(rf"\b{one}\b", told)]
    assert not missing, f"does not name {missing}"


SCHEMA = {column.name for column in RUNS} | set(FEATURES)
# Columns that rows carry on their way and no runs table keeps, with the room that adds them.
ON_THE_WAY = {"aside": "ingest", "aside_reason": "ingest", "_file": "ingest",
              "true_step_time_s": "datasets"}  # fmt: skip


def columns_of_runs(tree: ast.AST) -> Iterator[str]:
    """Columns that code takes from names that always mean a runs table."""
    tables = ("runs", "featured", "used", "features")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        if node.value.id in tables:
            parts = [part for part in ast.walk(node.slice) if isinstance(part, ast.Constant)]
            yield from (part.value for part in parts if isinstance(part.value, str))


def test_columns_in_code_are_in_the_schema() -> None:
    unknown = {
        (file, column)
        for file, tree in TREES.items()
        for column in columns_of_runs(tree)
        if column not in SCHEMA and ON_THE_WAY.get(column) != room_of(file)
    }
    assert not unknown


def test_column_lists_are_in_the_schema() -> None:
    runs = {column.name for column in RUNS}
    assert {*SHAPE_COLUMNS, *GPU_COLUMNS, *RAW_TEXT, *RAW_NUMBERS, *CONFIGURATION} <= runs
    assert {name for split in SPLITS for name in split.columns} <= runs
    assert {term.column for term in TERMS} <= set(FEATURES)
    assert not runs & set(FEATURES)
