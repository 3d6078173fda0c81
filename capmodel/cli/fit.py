"""`capmodel fit`: fit runs, adapt a known calibration to a few, or say which runs to make."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capmodel.cli import options

if TYPE_CHECKING:
    import pandas as pd

    from capmodel.calibration import Calibration
    from capmodel.evaluation import GradeCard


@click.command()
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The JSON file.")
@click.option("--name", help="What the calibration is called; by default the file's name.")
@click.option("--date", default="", help="Date to record with it.")
@click.option("--no-grade", is_flag=True, help="Skip the held-out grade; no intervals then.")
@click.option(
    "--adapt", "base", metavar="NAME|PATH",
    help="Adapt this calibration (argonne, silicon or a file) to RUNS, as few as 3 of a new "
    "engine and GPU, instead of fitting RUNS alone.",
)  # fmt: skip
@click.option(
    "--suggest", type=click.IntRange(1, 100), metavar="N",
    help="Name the N runs to make next for --model on --gpu under --engine, best first.",
)  # fmt: skip
@click.option(
    "--model", "models", multiple=True, metavar="NAME", help="For --suggest; may be given often."
)
@options.gpu
@options.engine
@click.option(
    "--tp", "tps", multiple=True, type=click.IntRange(min=1), default=[1], show_default=True,
    help="For --suggest: tensor-parallel GPUs to choose from; may be given often.",
)  # fmt: skip
@options.weight_dtype
@options.kv_dtype
@options.seed
@options.as_json
def command(
    runs: tuple[Path, ...],
    out: Path | None,
    name: str | None,
    date: str,
    no_grade: bool,
    base: str | None,
    suggest: int | None,
    models: tuple[str, ...],
    gpu: str | None,
    engine: str | None,
    tps: tuple[int, ...],
    weight_dtype: str,
    kv_dtype: str,
    seed: int,
    as_json: bool,
) -> None:
    """Fit a calibration on RUNS and save it; predict with --calibration."""
    from capmodel.evaluation import used_rows
    from capmodel.ingest import read_runs
    from capmodel.quality import screen_runs

    if suggest is None and not runs:
        raise click.UsageError("give RUNS to fit, or --suggest N to be told which to make")
    if suggest is None and out is None:
        raise click.UsageError("give --out, the file to write the calibration to")
    if out is not None and out.is_dir():
        raise ValueError(f"--out {out} is a folder; name a file")
    known = _base(base) if base is not None or not runs else None
    table = read_runs(list(runs)) if runs else None
    left_out = screen_runs(table).aside if table is not None else None
    aside: dict[str, int] = {}
    if left_out is not None:
        aside = {str(rule): int(n) for rule, n in left_out["rule"].value_counts().items()}
    used = used_rows(table) if table is not None else None
    words = ["capmodel", "fit", *(path.name for path in runs)]
    words += ["--adapt", Path(base).name] if base else []
    words += ["-o", out.name] if out else []
    calibration, card = known, None
    if used is not None and (out is not None or known is None):
        named = {"name": name or (out.stem if out else "runs"), "command": shlex.join(words)}
        if known is not None:
            calibration = known.adapt(used, date=date, **named)
        else:
            calibration, card = _fitted(
                used,
                not no_grade and out is not None,
                seed,
                as_json,
                date=date,
                set_aside=aside,
                **named,
            )
    assert calibration is not None  # noqa: S101
    odd = _odd(calibration, used) if known is not None and used is not None else {}
    report: dict[str, object] = {}
    if suggest is not None:
        if not models or gpu is None:
            raise click.UsageError("--suggest needs --model and --gpu: which runs of what?")
        found = calibration.suggest(
            list(models), gpu, engine=engine or "vllm", n=suggest, tp=list(tps),
            weight_dtype=weight_dtype, kv_dtype=kv_dtype, runs=used,
        )  # fmt: skip
        report |= {
            "typical_error_before": found.attrs["typical_error"],
            "suggested": found.to_dict("records"),
        }
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        calibration.save(out)
    if as_json:
        if out is not None:
            report |= {
                "calibration_id": calibration.calibration_id, "rows": calibration.n_rows,
                "coefficients": calibration.summary.to_dict("records"),
                "unsure": {name: list(own) for name, own in calibration.unsure.items()},
                "splits": card.to_dict() if card else {}, "written": str(out),
                "set_aside": aside, "odd": odd,
            }  # fmt: skip
        options.print_json(report)
        return
    if left_out is not None and len(left_out):
        from capmodel.cli.tables import print_aside
        from capmodel.cli.terminal import terminal

        print_aside(left_out, terminal())
    _show(calibration, card, used, out, base)
    for run, factor in odd.items():
        click.echo(
            f"{run} takes {factor:.2g} times what the other runs bear out; measure it again."
        )
    if suggest is not None:
        from capmodel.cli.tables import print_suggested
        from capmodel.cli.terminal import terminal

        print_suggested(found, terminal())


def _base(name: str | None) -> "Calibration":
    """The calibration to start from: a shipped one by its name, a file, or the first shipped."""
    from capmodel.loading import load_calibration
    from capmodel.prediction import shipped_calibrations

    shipped = {own.name: own for own in shipped_calibrations()}
    if name is None:
        return next(iter(shipped.values()))
    if name in shipped:
        return shipped[name]
    if not Path(name).exists():
        raise ValueError(
            f"Got --adapt {name}, but expected {', '.join(shipped)} or a file of `capmodel fit`"
        )
    return load_calibration(name)


def _odd(calibration: "Calibration", used: "pd.DataFrame") -> dict[str, float]:
    """Runs that the others do not bear out: what they are, and measured over expected time."""
    from capmodel.adaptation import odd_runs

    numbered = used.reset_index(drop=True)
    found = odd_runs(calibration.estimator, numbered)
    rows = numbered.loc[found.index]
    names = [
        f"{row.run_id}: {row.model} on {row.gpu}, tp {row.tp}, batch {row.batch_size:,.4g}, "
        f"context {row.context_len:,.0f}"
        for row in rows.itertuples()
    ]
    return dict(zip(names, found.round(3).tolist(), strict=True))


def _fitted(
    used: "pd.DataFrame", graded: bool, seed: int, quiet: bool, *, name: str, command: str,
    date: str, set_aside: dict[str, int],
) -> "tuple[Calibration, GradeCard | None]":  # fmt: skip
    from capmodel.calibration import fit
    from capmodel.cli.progress import progress_bar
    from capmodel.evaluation import cross_validate

    card = None
    if graded:
        with progress_bar(quiet=quiet) as progress:
            card = cross_validate(
                used, estimators=["roofline", "regressor"], seed=seed, progress=progress
            )
    fitted = fit(used, name=name, command=command, grade_card=card, date=date, set_aside=set_aside)
    return fitted, card


def _show(
    calibration: "Calibration", card: "GradeCard | None", used: "pd.DataFrame | None",
    out: Path | None, base: str | None,
) -> None:  # fmt: skip
    from capmodel.cli.tables import print_card, print_coefficients
    from capmodel.cli.terminal import terminal

    if out is None:
        return
    console = terminal()
    summary = calibration.summary
    if base is not None and used is not None:
        pairs = _pairs(used)
        mine = [pair in pairs for pair in zip(summary["engine"], summary["gpu"], strict=True)]
        summary = summary[mine]
    print_coefficients(summary, console)
    for pair, sentences in calibration.unsure.items():
        if base is None or pair in {f"{engine} on {gpu}" for engine, gpu in _pairs(used)}:
            for sentence in sentences:
                console.print(f"{pair}: {sentence}.", soft_wrap=True, markup=False)
    if card is not None:
        print_card(card, console)
    console.print(f"{calibration.calibration_id} written to {out}", soft_wrap=True)


def _pairs(used: "pd.DataFrame | None") -> set[tuple[str, str]]:
    """Engines and GPUs of the rows."""
    if used is None:
        return set()
    return {(str(e), str(g)) for e, g in zip(used["engine"], used["gpu"], strict=True)}
