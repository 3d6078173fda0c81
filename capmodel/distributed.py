"""The same function over many parts, on this machine or on a Dask cluster.

Results come in the order of the parts, so both ways give the same rows. Dask is an optional
package (`pip install 'capmodel[dask]'`); it is imported only where an address is given.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeVar

Part = TypeVar("Part")
Result = TypeVar("Result")

# Parts a worker holds or has queued, so that memory stays bounded.
_PER_WORKER = 2


def in_order(
    function: Callable[[Part], Result], parts: Iterable[Part], dask: str | None = None
) -> Iterator[Result]:
    """`function(part)` for each part, in order.

    dask: address of a scheduler ("tcp://host:8786"); None works here, one part at a time. At
    most two parts per worker are under way.
    Raises ValueError where Dask is not installed or no scheduler answers.
    """
    if dask is None:
        yield from map(function, parts)
        return
    client = _client(dask)
    with client:
        window = max(_PER_WORKER, _PER_WORKER * len(client.scheduler_info()["workers"]))
        waiting: deque[Any] = deque()
        for part in parts:
            waiting.append(client.submit(function, part, pure=False))
            if len(waiting) >= window:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _client(address: str) -> Any:
    try:
        distributed = import_module("dask.distributed")
    except ImportError as error:
        raise ValueError(
            f"Got the Dask scheduler {address}, but dask is not installed: "
            "pip install 'capmodel[dask]'"
        ) from error
    try:
        return distributed.Client(address, timeout=10)
    except (OSError, ValueError) as error:
        raise ValueError(f"No Dask scheduler answers at {address}: {error}") from error
