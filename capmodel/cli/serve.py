"""`capmodel serve`: the planner over HTTP and in a browser."""

import os
from importlib.util import find_spec

import click

_PORTS = click.IntRange(0, 65_535)


@click.command(name="serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=_PORTS, default=8000, show_default=True, help="0: any free one.")
@click.option(
    "--workers", type=click.IntRange(1, 64), default=1, show_default=True, help="Processes."
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=2, show_default=True,
    help="Plans, fits and grades at once, a worker.",
)  # fmt: skip
@click.option(
    "--prefix", default="", metavar="/PATH", help="Path under which a proxy publishes it."
)
@click.option("--access-log/--no-access-log", default=False, show_default=True)
def command(host: str, port: int, workers: int, jobs: int, prefix: str, access_log: bool) -> None:
    """The planner, the lab and the API at http://HOST:PORT/; stop with Ctrl-C.

    \b
    capmodel serve
    capmodel serve --host 0.0.0.0 --port 8080 --workers 2 --prefix /planner

    There is no login: whoever reaches the port may use it. Needs the extra [service].
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # many small products; threads get in their way
    for name in ("fastapi", "uvicorn", "jinja2", "multipart", "prometheus_client"):
        if find_spec(name) is None:  # imported later, where it delays nothing
            raise click.ClickException(
                f"{name} is not installed; get it with pip install 'capmodel[service]'"
            )
    from capmodel.service.settings import Settings
    from capmodel.service.start import bind, run_service

    if workers > 1 and not hasattr(os, "fork"):
        raise click.UsageError(
            f"Got --workers {workers}, but this system makes one only; start it again at another "
            "--port, and put a proxy before both"
        )
    settings = Settings(prefix=_checked(prefix), jobs=jobs)
    try:
        if not host.strip():
            raise OSError("it is no address")
        listening = bind(host, port, settings.prefix)
    except (OSError, OverflowError, ValueError) as error:
        raise click.UsageError(
            f"Got --host {host} --port {port}, but nothing can listen there "
            f"({getattr(error, 'strerror', None) or error}); give another, or --port 0"
        ) from error
    run_service(listening, workers, settings, access_log)


def _checked(prefix: str) -> str:
    """`/planner` from any spelling of it; "" for none."""
    path = prefix.strip("/")
    if not path:
        return ""
    if not all(part.replace("-", "").replace("_", "").isalnum() for part in path.split("/")):
        raise click.UsageError(
            f"Got --prefix {prefix!r}, but expected a path such as /planner: letters, digits, - _"
        )
    return f"/{path}"
