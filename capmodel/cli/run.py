"""`capmodel run`: the main job."""

import shlex
from pathlib import Path

import click

from capmodel.cli import options


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@options.model
@options.gpu
@click.option("--tp", type=click.IntRange(min=1), help="Tensor-parallel GPUs of the plan.")
@options.engine
@click.option(
    "--out", "-o", type=click.Path(path_type=Path), default=Path("reports"), show_default=True,
    help="Folder for the plan and its companions.",
)  # fmt: skip
@options.seed
@options.as_json
def command(
    runs: tuple[Path, ...],
    model: str | None,
    gpu: str | None,
    tp: int | None,
    engine: str | None,
    out: Path,
    seed: int,
    as_json: bool,
) -> int:
    """Ingest RUNS (or the bundled ones), fit, grade, and write the capacity plan to --out."""
    from capmodel.cli.progress import progress_bar
    from capmodel.cli.tables import print_main_job
    from capmodel.datasets.default import default_runs_path
    from capmodel.ingest import file_sha256, read_files, read_runs
    from capmodel.mainjob import run_main_job

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")
    paths = list(runs) or [default_runs_path()]
    read = read_files(paths)
    if read.refused and (len(paths) == 1 or not len(read.runs)):
        read_runs(paths)  # raises with every problem
    names = [str(path) if runs else path.name for path in paths]
    inputs = tuple(
        {"name": path.name, "sha256": file_sha256(path)} for path in paths if path.is_file()
    )
    words = ["capmodel", "run", *(Path(name).name for name in names if runs)]
    for flag, value in (("--model", model), ("--gpu", gpu), ("--tp", tp), ("--engine", engine)):
        words += [flag, str(value)] if value is not None else []
    words += ["--seed", str(seed)] if seed else []
    with progress_bar(quiet=as_json) as progress:
        job = run_main_job(
            read.runs, left_out=read.aside, inputs=inputs, model=model, gpu=gpu, engine=engine,
            tp=tp, seed=seed,
            name=paths[0].stem.lower() if len(paths) == 1 else "runs",
            command=shlex.join(words), progress=progress,
        )  # fmt: skip
    written = job.write(out)
    if as_json:
        options.print_json({**job.metrics(), "written": [str(path) for path in written]})
    else:
        print_main_job(job, written)
    for report in read.refused:
        why = report.reason or report.status
        click.echo(f"capmodel: {report.path} was not read: {why}", err=True)
    return 1 if read.refused else 0
