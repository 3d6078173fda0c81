"""`capmodel grade`: held-out errors."""

from pathlib import Path

import click

from capmodel.cli import options


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--test", "hidden", type=click.Path(path_type=Path), help="Fit RUNS, grade these.")
@click.option(
    "--calibration", type=click.Path(path_type=Path), help="Grade RUNS with it, without fitting."
)
@click.option("--milestones", "want_milestones", is_flag=True, help="The milestone table instead.")
@click.option(
    "--split", "splits", multiple=True,
    type=click.Choice(["random", "config", "deployment", "model", "gpu"]),
    help="Only these splits; by default all.",
)  # fmt: skip
@click.option(
    "--estimator", "estimators", multiple=True,
    type=click.Choice(["raw_linear", "raw_boosting", "nearest", "roofline", "regressor"]),
    help="Only these estimators; by default all.",
)  # fmt: skip
@options.seed
@options.as_json
def command(
    runs: tuple[Path, ...],
    hidden: Path | None,
    calibration: Path | None,
    want_milestones: bool,
    splits: tuple[str, ...],
    estimators: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> int:
    """Cross-validate RUNS; or fit RUNS and grade --test; or grade RUNS with --calibration."""
    from capmodel.cli.progress import progress_bar
    from capmodel.cli.tables import print_aside, print_card, print_used
    from capmodel.cli.terminal import terminal
    from capmodel.datasets.default import default_runs_path
    from capmodel.evaluation import cross_validate, grade_calibration, grade_test, used_rows
    from capmodel.ingest import read_runs
    from capmodel.loading import load_calibration
    from capmodel.quality import screen_runs

    if hidden is not None and calibration is not None:
        raise ValueError("give --test or --calibration, not both")
    if want_milestones and (splits or estimators):
        raise ValueError(
            "Got --milestones with --split or --estimator, but expected it without: it grades "
            "every estimator on random rows, or on --test"
        )
    if want_milestones:
        splits = ("random",)  # what they are read from; the other four would only be waited for
    table = read_runs(list(runs) or [default_runs_path()])
    test = read_runs(hidden) if hidden is not None else None
    graded = test if test is not None else table
    aside = screen_runs(graded).aside
    used = used_rows(graded)
    names = list(estimators) or None
    if calibration is not None:
        card = grade_calibration(used, load_calibration(calibration))
    elif test is not None:
        card = grade_test(used_rows(table), used, estimators=names)
    else:
        with progress_bar(quiet=as_json) as progress:
            card = cross_validate(
                used, splits=list(splits) or None, estimators=names, seed=seed, progress=progress
            )
    if want_milestones:
        return _milestones(table, test, card, as_json)
    if as_json:
        counts = aside["rule"].value_counts()
        options.print_json({
            "rows": {"read": len(graded), "used": len(used),
                     "set_aside": {str(rule): int(n) for rule, n in counts.items()}},
            "noise_floor_mape": card.noise_floor_mape,
            "splits": card.to_dict(), "absent_splits": card.absent,
        })  # fmt: skip
        return 0
    console = terminal()
    console.print(f"[bold]{len(graded):,} rows read, {len(used):,} used[/bold]")
    print_aside(aside, console)
    print_used(used, console)
    print_card(card, console)
    return 0


def _milestones(table: object, test: object, card: object, as_json: bool) -> int:
    from capmodel.cli.tables import print_milestones
    from capmodel.cli.terminal import terminal
    from capmodel.milestones import milestones, missed

    found = milestones(table, test, card=card.table)  # type: ignore[arg-type,attr-defined]
    if as_json:
        options.print_json(found.to_dict("records"))
    else:
        print_milestones(found, terminal())
    return 1 if missed(found) else 0
