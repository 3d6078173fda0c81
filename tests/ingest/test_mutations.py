"""Whatever is done to a file, reading it raises nothing but the project's own error.

CAPMODEL_MUTATIONS=10000 makes it thorough.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from capmodel.ingest import Given, read_files, read_runs
from capmodel.runs import RunsError

FORMATS = Path(__file__).resolve().parents[1] / "data" / "formats"
FILES = sorted(path.name for path in FORMATS.iterdir() if path.suffix != ".toml")
FACTS = Given({"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm", "weight_dtype": "bf16",
               "kv_dtype": "bf16", "batch_size": 8, "input_len": 512,
               "output_len": 128})  # fmt: skip
EXAMPLES = int(os.environ.get("CAPMODEL_MUTATIONS", "150"))
thorough = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

_JUNK = [b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"NaN", b"-Infinity", b'"', b"{", b"]", b",",
         b"\t", b"1e999", b"-1", b"null", b"true", b"[[[[", b"9" * 400, b"1.2.3", b"12ms",
         b"\xe2\x80\xae", b"\r\n\r\n", b";"]  # fmt: skip
_VALUES = [None, True, -1, 0, 1e308, float("nan"), float("inf"), "", "NaN", "12 ms", "1,234.5",
           "a" * 50, [], {}, [[1]], {"a": {"b": 1}}, 10**400, "0.01230.0145"]  # fmt: skip


def check(path: Path) -> None:
    """Reads, or is listed with a reason; nothing else is raised."""
    found = read_files([path], given=FACTS)
    report = found.files[0]
    assert report.status == "read" or report.reason
    assert len(found.runs) + len(found.aside) >= report.rows


@thorough
@given(
    name=st.sampled_from(FILES),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.sampled_from(_JUNK)),
                  min_size=1, max_size=3),
    keep=st.one_of(st.just(1.0), st.floats(0, 1)),
)  # fmt: skip
def test_mutated_bytes(
    name: str, cuts: list[tuple[float, int, bytes]], keep: float, tmp_path: Path
) -> None:
    data = (FORMATS / name).read_bytes()
    for place, length, junk in cuts:
        at = int(place * len(data))
        data = data[:at] + junk + data[at + length :]
    path = tmp_path / name
    path.write_bytes(data[: int(keep * len(data))])
    check(path)


@thorough
@given(
    name=st.sampled_from([name for name in FILES if name.endswith((".json", ".jsonl"))]),
    place=st.integers(0, 10_000),
    value=st.sampled_from(_VALUES),
)
@example(name="llmd_report.json", place=0, value="0.9")
@example(name="guidellm.json", place=10, value=[])
def test_mutated_values(name: str, place: int, value: Any, tmp_path: Path) -> None:
    lines = (FORMATS / name).read_text().splitlines()
    text = lines[0] if name.endswith(".jsonl") else "\n".join(lines)
    record = json.loads(text)
    spots = list(_spots(record))
    holder, key = spots[place % len(spots)]
    holder[key] = value
    path = tmp_path / name
    path.write_text(json.dumps(record))
    check(path)


def _spots(value: Any) -> Any:
    """Every place in nested JSON that can hold another value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _spots(inner)


def test_read_runs_raises_the_runs_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_bytes((FORMATS / "vllm_serve.json").read_bytes()[:300])
    with pytest.raises(RunsError, match="ends early"):
        read_runs(path)
