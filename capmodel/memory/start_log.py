"""Reading what an engine printed at start-up: settings, memory, and the cache it laid out.

vLLM (both engines and its forks), SGLang, TensorRT-LLM and llama.cpp. Engines that write GB mean
GiB. Every rank prints its memory; the pool is cut to the least of them.
"""

import codecs
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from capmodel.arguments import COUNT, COUNT_OR_NONE, FRACTION, GPUS, Span, number
from capmodel.memory.start_log_lines import LINES, SIGNS
from capmodel.units import GIB
from capmodel.words import one_line

_MOST = 8 * 2**20
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_LLAMA_SIZE = re.compile(r"(?:KV self size|: size) += +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class StartLog:
    """What the log says; None where it does not. Sizes in [byte], of the rank worst off.

    rounding_bytes: half of the last printed digit of `available_bytes`. cache_bytes: what
    llama.cpp allocated, all its caches together.
    """

    engine: str
    version: str | None = None
    model: str | None = None
    tp: int = 1
    pp: int = 1
    context_parallel: int = 1
    dtype: str | None = None
    kv_dtype: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    state_mode: str | None = None
    draft_tokens: int = 0
    fraction: float | None = None
    total_bytes: float | None = None
    weights_bytes: float | None = None
    activation_bytes: float | None = None
    non_torch_bytes: float | None = None
    graphs_bytes: float | None = None
    available_bytes: float | None = None
    rounding_bytes: float = 0.0
    blocks: int | None = None
    tokens: int | None = None
    concurrency: float | None = None
    cache_bytes: float | None = None
    slots: int = 1
    unified: bool = False
    micro_batch: int = 512


def read_start_log(path: str | Path) -> StartLog:
    """The start-up log in `path`, of which the first 8 MiB are read: a start-up is at the start.

    Raises ValueError where no known engine wrote it, and for a figure that cannot be.
    """
    where = one_line(path)
    try:
        with Path(path).open("rb") as handle:
            content = handle.read(_MOST)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or one_line(error)
        raise ValueError(f"Log {where} cannot be read: {why}") from error
    wide = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # PowerShell's redirection
    return parse_start_log(content.decode("utf-16" if wide else "utf-8-sig", "replace"), where)


def parse_start_log(text: str, where: str = "text") -> StartLog:
    """The same from the text itself."""
    text = _ANSI.sub("", text)
    engine = next((name for name, sign in SIGNS if re.search(sign, text)), None)
    if engine is None:
        raise ValueError(
            f"{where} holds no line that vLLM, SGLang, TensorRT-LLM or llama.cpp prints about "
            "its cache; give the start-up part of the log"
        )
    found = {name: _find(pattern, text) for name, pattern in LINES[engine]}
    served = found.pop("served", [])
    found["model"] = found["model"] or served
    try:
        values: dict[str, Any] = {
            name: _value(name, matches) for name, matches in found.items() if matches
        }
        sizes = [_size("cache_bytes", size) / GIB * 2**20 for size in _LLAMA_SIZE.findall(text)]
    except ValueError as error:
        raise ValueError(f"{error} (in the log {where})") from None
    if engine == "sglang" and "key_bytes" in values:
        values["available_bytes"] = values["key_bytes"] + values.get("value_bytes", 0.0)
        values["rounding_bytes"] = 2 * _half_digit(found["key_bytes"][0])
    elif found.get("available_bytes"):
        values["rounding_bytes"] = _half_digit(found["available_bytes"][0])
    if engine == "vllm" and "blocks" in values and "version" not in values:
        values["version"] = "0.6 V0"  # only the first engine prints "# GPU blocks"
        values.setdefault("tokens", values["blocks"] * values.get("block_size", 16))
    if "peak_bytes" in values and "weights_bytes" in values:
        values.setdefault("activation_bytes", values["peak_bytes"] - values["weights_bytes"])
    if engine == "llama.cpp":
        values["cache_bytes"] = sum(sizes) if sizes else None
        values["kv_dtype"] = f"{values.get('kv_dtype', 'f16')},{values.pop('value_dtype', 'f16')}"
    elif values.get("kv_dtype") in ("auto", None):
        values["kv_dtype"] = values.get("dtype")
    known = {field.name for field in fields(StartLog)}
    return StartLog(engine, **{name: value for name, value in values.items() if name in known})


def _find(pattern: str, text: str) -> list[str]:
    """Every match of the pattern's group that took part, in order."""
    return [
        next(group for group in match.groups() if group is not None)
        for match in re.finditer(pattern, text)
    ]


_COUNTS = {
    "tp": GPUS, "draft_tokens": COUNT_OR_NONE, "blocks": COUNT_OR_NONE, "tokens": COUNT_OR_NONE,
}  # fmt: skip
_REQUESTS = Span("0 or more requests", 0.0, 1e12)
# A size in bytes; an engine prints one below zero where nothing is left.
_SIZES = Span("a size of at most 1e18 bytes", -1e18, 1e18)


def _value(name: str, matches: list[str]) -> Any:
    """What the matches of a field say. Raises ValueError for what is no such figure."""
    if name.endswith("_bytes"):
        worst = min if name in ("available_bytes", "total_bytes") else max
        return worst(_size(name, match) for match in matches)
    if name in ("prefix_caching", "unified"):
        return matches[0].lower() == "true"
    if name in ("version", "model", "dtype", "kv_dtype", "value_dtype", "state_mode"):
        return one_line(matches[0].strip())
    if name in ("fraction", "concurrency"):
        span = FRACTION if name == "fraction" else _REQUESTS
        return number(name, _read(float, matches[0]), span)
    return number(name, _read(int, matches[0].replace(",", "")), _COUNTS.get(name, COUNT))


def _size(name: str, text: str) -> float:
    """A size printed in GiB [byte]."""
    found = _read(float, text)
    return float(number(name, found * GIB if isinstance(found, float) else found, _SIZES))


def _read(kind: type[int] | type[float], text: str) -> Any:
    """The number written in `text`, or the text itself where it is none."""
    try:
        return kind(text)
    except ValueError:
        return text


def _half_digit(text: str) -> float:
    return 0.5 * 10.0 ** -len(text.partition(".")[2]) * GIB
