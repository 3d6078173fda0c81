"""`capmodel fit`: a calibration from runs."""

import shlex
from pathlib import Path

import click

from capmodel.cli import options


@click.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="The JSON file.")
@click.option("--name", help="What the calibration is called; by default the file's name.")
@click.option("--date", default="", help="Date to record with it.")
@click.option("--no-grade", is_flag=True, help="Skip the held-out grade; no intervals then.")
@options.seed
@options.as_json
def command(
    runs: tuple[Path, ...],
    out: Path,
    name: str | None,
    date: str,
    no_grade: bool,
    seed: int,
    as_json: bool,
) -> None:
    """Fit a calibration on RUNS and save it; predict with --calibration."""
    from capmodel.calibration import fit
    from capmodel.cli.progress import progress_bar
    from capmodel.cli.tables import print_card, print_coefficients
    from capmodel.cli.terminal import terminal
    from capmodel.evaluation import cross_validate, used_rows
    from capmodel.ingest import read_runs

    if out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file")
    used = used_rows(read_runs(list(runs)))
    card = None
    if not no_grade:
        with progress_bar(quiet=as_json) as progress:
            card = cross_validate(
                used, estimators=["roofline", "regressor"], seed=seed, progress=progress
            )
    words = ["capmodel", "fit", *(path.name for path in runs), "-o", out.name]
    calibration = fit(
        used, name=name or out.stem, command=shlex.join(words), grade_card=card, date=date
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    calibration.save(out)
    if as_json:
        options.print_json({
            "calibration_id": calibration.calibration_id, "rows": calibration.n_rows,
            "coefficients": calibration.summary.to_dict("records"),
            "splits": card.to_dict() if card else {}, "written": str(out),
        })  # fmt: skip
        return
    console = terminal()
    print_coefficients(calibration.summary, console)
    if card is not None:
        print_card(card, console)
    console.print(f"{calibration.calibration_id} written to {out}", soft_wrap=True)
