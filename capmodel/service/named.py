"""What the names and tables of a request mean. No text of a client is ever taken for a path."""

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from capmodel.calibration import Calibration
from capmodel.gpus import Gpu, load_gpu
from capmodel.loading import calibration_from
from capmodel.service.errors import EXPECTED_OF, Refused, problem, refused_by_package
from capmodel.shapes import ModelShape, load_shape
from capmodel.shapes.catalogue import find_shape

_LIKE_A_PATH = (".toml", ".json")
_FLAGS = re.compile(r" \(--[a-z][^)]*\)")
# What the package advises callers who have a shell and files -> what a client can do.
_REMEDIES = {
    ". Give the path of": ". Send the content of its config.json instead",
    " (`capmodel catalog gpus` lists all)": " (GET /v1/gpus lists all). Send an object of its "
    "fields instead",
}


def shape_of(model: str | Mapping[str, Any]) -> ModelShape:
    """The catalogued model of a name, or what a config describes. Raises Refused."""
    with told("model"):
        if isinstance(model, str):
            return find_shape(model)
        return load_shape(model)


def gpu_of(gpu: str | Mapping[str, Any], field: str = "gpu") -> Gpu:
    """The catalogued GPU of a name, or the one that fields describe. Raises Refused."""
    with told(field):
        if isinstance(gpu, str):
            _check_gpu_name(gpu, field)
            return load_gpu(gpu)
        return load_gpu(dict(gpu))


def _check_gpu_name(name: str, field: str) -> None:
    """Raise Refused for what the package would read as a file."""
    if name.strip().lower().endswith(_LIKE_A_PATH):
        expected = EXPECTED_OF["gpu"]
        raise Refused(422, [problem(field, expected, f"Got {name!r}, but expected {expected}")])


def calibration_of(content: Mapping[str, Any] | None) -> Calibration | None:
    """The calibration of a file's content, None for the shipped ones. Raises Refused."""
    if content is None:
        return None
    with told("calibration"):
        return calibration_from(dict(content))


@contextmanager
def told(field: str, renamed: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Turn the package's ValueErrors into Refused that name `field`, `renamed` where it is in it.

    "" is the field that the message names.
    """
    try:
        yield
    except (ValueError, RecursionError, OverflowError) as error:
        refused = refused_by_package(error, field)
        for one in refused.problems:
            one.message = _for_http(one.message)
            one.expected = _for_http(one.expected)
            one.field = renamed.get(one.field, one.field)
        raise refused from None


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect the package's warnings as texts; filled when the block ends."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += dict.fromkeys(str(warning.message) for warning in caught)


def _for_http(text: str) -> str:
    """A message of the package with the remedies of a client instead of those of a shell."""
    text = _FLAGS.sub("", text)
    for begin, remedy in _REMEDIES.items():
        known, found, _ = text.partition(begin)
        if found:
            text = known + remedy
    return text
