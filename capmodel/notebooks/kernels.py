"""Kernels that play notebooks, several at once from one thread, ended whatever happens."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from capmodel.notebooks.stories import tool

Result = TypeVar("Result")
# Kernels run side by side; threads of their own would only get in each other's way. And sums over
# another number of threads differ in their last bits.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def finished(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, done on a loop in another thread.

    So it can be asked for where a loop runs already, as in a notebook, and a signal stops it from
    outside: what is raised here meanwhile, such as KeyboardInterrupt, cancels the work, waits
    until it has cleared up and goes on. Of several errors of tasks the first is raised.
    """
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    with ThreadPoolExecutor(max_workers=1) as pool:
        done = pool.submit(loop.run_until_complete, task)
        try:
            return done.result()
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        except BaseException:
            loop.set_exception_handler(lambda *_: None)  # what is torn down has nothing to tell
            loop.call_soon_threadsafe(task.cancel)
            raise
        finally:
            pool.shutdown()
            loop.close()


async def played(book: Any, count: Callable[[int], None]) -> str | None:
    """Run the cells of `book`, which keeps their outputs, in a kernel of its own.

    count: called with the cells done before each. Returns what stopped it, None where all ran.
    """
    nbclient, managers = tool("nbclient"), tool("jupyter_client.manager")
    # Sockets in a folder of one's own, where the system has such, instead of open local ports.
    place = tempfile.mkdtemp(prefix="capmodel-")
    own = {"transport": "ipc", "connection_file": f"{place}/kernel.json"}
    config = tool("traitlets.config").Config({"KernelManager": own} if os.name == "posix" else {})
    kernel = managers.AsyncKernelManager(kernel_name="python3", config=config)
    client = nbclient.NotebookClient(
        book, km=kernel, config=config, timeout=None, startup_timeout=180,
        on_cell_start=lambda cell, cell_index: count(cell_index),
        resources={"metadata": {"path": str(Path.cwd())}},
    )  # fmt: skip
    idle = False
    try:
        await client.async_execute(env=_ONE_THREAD | os.environ)
        idle = True
    except nbclient.exceptions.CellExecutionError as failure:
        idle = True
        return f"{failure.ename}: {failure.evalue}"
    except nbclient.exceptions.DeadKernelError:
        # nbclient takes being cancelled for a kernel's death.
        if (this := asyncio.current_task()) is not None and this.cancelling():
            raise asyncio.CancelledError from None
        return "the kernel died, perhaps for lack of memory"
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
            client.kc = None
        if kernel.has_kernel:
            await kernel.shutdown_kernel(now=not idle)
        shutil.rmtree(place, ignore_errors=True)
    return None
