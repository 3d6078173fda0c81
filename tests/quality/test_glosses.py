"""Every rule that can hit a row is explained in a line."""

import ast
from collections.abc import Iterator
from pathlib import Path

import capmodel
from capmodel.quality import GLOSSES, gloss

PACKAGE = Path(capmodel.__file__).parent
# Call -> the place of the rule's name among its arguments.
CALLS = {"Hit": 0, "set_aside": 2, "add_flag": 2, "_by_whose": 1}


def rules_in_code() -> Iterator[str]:
    for path in [*(PACKAGE / "quality").glob("*.py"), *(PACKAGE / "ingest").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = CALLS.get(node.func.id)
                if place is not None and len(node.args) > place:
                    name = node.args[place]
                    if isinstance(name, ast.Constant):
                        yield name.value


def test_every_rule_has_a_gloss_of_one_line() -> None:
    found = set(rules_in_code())
    assert {"below_floor", "kv_dtype_assumed", "prefill_only", "unknown_engine"} <= found
    assert found - set(GLOSSES) == set()
    assert all(0 < len(words) < 80 and "\n" not in words for words in GLOSSES.values())


def test_no_gloss_outlives_its_rule() -> None:
    by_value = {"unknown_model", "unknown_gpu", "no_features", "wrong_unit", "differenced"}
    assert set(GLOSSES) - set(rules_in_code()) == by_value


def test_a_flag_of_the_tables_own_has_none() -> None:
    assert gloss("mine") == ""
