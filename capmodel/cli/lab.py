"""`capmodel lab`: a small decoder that proves the cache arithmetic and measures compression."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from capmodel.cli import options

if TYPE_CHECKING:
    from capmodel.lab.compress import Outcome, Treatment
    from capmodel.lab.entropy import Coding

figure_option = click.option(
    "--figure", type=click.Path(path_type=Path), help="Draw it into a PNG, SVG or PDF."
)


@click.group(name="lab")
def command() -> None:
    """A small decoder in NumPy: proofs about the KV cache, and what compressing it costs."""


@command.command()
@options.seed
@options.as_json
def proof(seed: int, as_json: bool) -> int:
    """Check the claims about caching on arrays; exit code 1 if one fails."""
    from capmodel.lab.proof import prove

    checks = prove(seed)
    if as_json:
        options.print_json([asdict(check) for check in checks])
    else:
        from capmodel.cli.lab_tables import print_checks

        print_checks(checks)
    return 0 if all(check.holds for check in checks) else 1


@command.command()
@options.seed
@options.as_json
@figure_option
def compress(seed: int, as_json: bool, figure: Path | None) -> None:
    """Quality against bytes: quantised, evicted and entropy-coded caches of a real small model."""
    from capmodel.lab.compress import treatments
    from capmodel.lab.entropy import DTYPES, code_cache, held_entries
    from capmodel.lab.language_model import load_language_model
    from capmodel.lab.predicted import code_given_twin

    model = load_language_model()
    outcomes = _measured(treatments(), seed)
    entries = held_entries(model, 12)
    codings = [code_cache(entries, dtype) for dtype in DTYPES]
    predicted = [code_given_twin(model, twin, 12) for twin in ("e4m3", "int8", "int4")]
    if as_json:
        options.print_json(
            {
                "model_sha256": model.sha256,
                "outcomes": [asdict(outcome) for outcome in outcomes],
                "lossless": [asdict(coding) for coding in codings],
                "lossless_predicted": [asdict(coding) for coding in predicted],
            }
        )
    else:
        from capmodel.cli import lab_tables

        lab_tables.print_outcomes(outcomes, "What a smaller cache costs")
        lab_tables.print_codings(codings, predicted)
    if figure is not None:
        _draw(outcomes, codings, figure)


@command.command()
@click.option(
    "--budgets",
    default="192,128,96,64,48,32,16,8",
    show_default=True,
    metavar="N,N",
    help="Tokens kept a head, of 256.",
)
@options.seed
@options.as_json
@figure_option
def evict(budgets: str, seed: int, as_json: bool, figure: Path | None) -> None:
    """Forget tokens: each policy at several budgets, and where it breaks."""
    from capmodel.lab.breaking import breaking_points
    from capmodel.lab.compress import evictions, full_cache

    outcomes = _measured([full_cache(), *evictions(_numbers(budgets))], seed)
    breaking = breaking_points(outcomes, outcomes[0].retrieval)
    if as_json:
        options.print_json(
            {
                "outcomes": [asdict(outcome) for outcome in outcomes],
                "breaking": [asdict(row) for row in breaking],
            }
        )
    else:
        from capmodel.cli import lab_tables

        lab_tables.print_outcomes(outcomes, "What forgetting costs")
        lab_tables.print_breaking(breaking)
    if figure is not None:
        _draw(outcomes, (), figure)


@command.command()
@click.option("--block-size", type=int, default=4, show_default=True, help="Tokens a block.")
@click.option("--share/--no-share", default=True, help="Share blocks of equal prefixes.")
@options.seed
@options.as_json
def paging(block_size: int, share: bool, seed: int, as_json: bool) -> None:
    """Requests in a pool of blocks: tables, waste, and what sharing a prefix spares."""
    from capmodel.lab.paging_story import paged_requests

    requests, n_free = paged_requests(block_size, prefix_sharing=share, seed=seed)
    if as_json:
        options.print_json(
            {"block_size": block_size, "n_free": n_free, "requests": [asdict(r) for r in requests]}
        )
    else:
        from capmodel.cli.lab_tables import print_requests

        print_requests(requests, block_size, n_free)


@command.command()
@click.option("--tokens", type=int, default=16, show_default=True, help="Steps to take.")
@options.seed
def steps(tokens: int, seed: int) -> None:
    """Step by step, cache off and on, per attention kind: data for the web lab, as JSON."""
    from capmodel.lab.steps import lab_steps

    options.print_json(lab_steps(tokens, seed))


@command.command()
@click.argument("prompt", required=False)
@click.option("--tokens", type=int, default=60, show_default=True, help="Tokens to add to PROMPT.")
@options.as_json
def model(prompt: str | None, tokens: int, as_json: bool) -> None:
    """The small language model: its figures, or how it goes on after PROMPT."""
    from capmodel.lab.language_model import load_language_model, model_card

    loaded = load_language_model()
    if prompt is not None:
        text = loaded.complete(prompt, tokens)
        if as_json:
            options.print_json({"prompt": prompt, "completion": text})
        else:
            click.echo(prompt + text)
        return
    card = model_card(loaded)
    if as_json:
        options.print_json(asdict(card))
    else:
        from capmodel.cli.lab_tables import print_card

        print_card(card)


def _measured(chosen: "Sequence[Treatment]", seed: int) -> "list[Outcome]":
    """Outcomes under a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import track

    from capmodel.lab.compress import measure
    from capmodel.lab.language_model import load_language_model

    outcomes = measure(load_language_model(), chosen, seed=seed)
    console = Console(stderr=True)
    bar = track(outcomes, "Measuring caches", len(chosen), console=console, transient=True)
    return list(bar)


def _draw(outcomes: "Sequence[Outcome]", codings: "Sequence[Coding]", path: Path) -> None:
    from capmodel.plots.lab import draw_perplexity, draw_retrieval
    from capmodel.plots.style import figure

    with figure(7.2, 3.4) as drawing:
        left, right = drawing.subplots(1, 2)
        draw_perplexity(left, outcomes, codings)
        draw_retrieval(right, outcomes)
        right.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97))
        drawing.savefig(path)
    click.echo(f"Figure in {path}", err=True)


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() for part in parts):
        raise click.UsageError(
            f"Got --budgets {text!r}, but expected whole numbers with commas, such as 128,64,32"
        )
    return [int(part) for part in parts]
