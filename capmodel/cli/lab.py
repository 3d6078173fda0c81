"""`capmodel lab`: a small decoder that proves the cache arithmetic and measures compression."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, TypeVar

import click

from capmodel.cli import options
from capmodel.words import shown

if TYPE_CHECKING:
    from capmodel.lab.compress import Outcome
    from capmodel.lab.entropy import Coding

FIGURES = (".png", ".svg", ".pdf")
DIGITS = 18  # more than any budget has
STEPS = 60  # tokens a prompt is continued by
Item = TypeVar("Item")
Show = Callable[[str, int, int], None]


def _figure_path(
    _context: click.Context, _option: click.Parameter, path: Path | None
) -> Path | None:
    """Refuse before a minute of measuring what could not be written after it."""
    if path is None:
        return None
    if path.suffix.lower() not in FIGURES:
        raise click.UsageError(
            f"Got --figure {path}, but expected a name that ends in {', '.join(FIGURES)}"
        )
    if path.is_dir():
        raise click.UsageError(f"Got --figure {path}, a folder, but expected the name of a file")
    if not path.parent.is_dir():
        raise click.UsageError(
            f"Got --figure {path}, but expected a file in a folder that exists: make it first"
        )
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise click.UsageError(
            f"Got --figure {path}, but expected a folder that can be written to ({error.strerror})"
        ) from None
    return path


figure_option = click.option(
    "--figure",
    type=click.Path(path_type=Path),
    callback=_figure_path,
    help="Draw it into a .png, .svg or .pdf.",
)


@click.group(name="lab", cls=options.Group)
def command() -> None:
    """A small decoder in NumPy: proofs about the KV cache, and what compressing it costs.

    proof, paging and steps run decoders with random weights; model, compress and evict run a small
    language model that was trained on text. None needs a GPU or the network.
    """


@command.command()
@options.seed
@options.as_json
def proof(seed: int, as_json: bool) -> int:
    """Check the claims about caching on arrays.

    Cached decoding against full recomputation, bytes of the arrays against `kv_bytes`, MLA
    absorbed against expanded, paging, shared prefixes. Exit code 1 if one fails.
    """
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
    """Quality against bytes of quantised, evicted and coded caches, about a minute.

    Every way to make the cache smaller is graded on text the model never saw (perplexity) and on
    questions about facts far back (answers), and set against the bytes it keeps.
    """
    from capmodel.cli.progress import progress_bar
    from capmodel.lab.compress import measure, treatments
    from capmodel.lab.entropy import DTYPES, code_cache, held_entries
    from capmodel.lab.language_model import load_language_model
    from capmodel.lab.predicted import TWINS, code_given_twin

    model = load_language_model()
    chosen = treatments(seed)
    with progress_bar() as show:
        outcomes = list(_shown(measure(model, chosen, seed=seed), "caches", len(chosen), show))
        entries = held_entries(model, 12)
        coded = (code_cache(entries, dtype) for dtype in DTYPES)
        codings = list(_shown(coded, "lossless coding", len(DTYPES), show))
        guessed = (code_given_twin(model, twin, 12) for twin in TWINS)
        predicted = list(_shown(guessed, "coding against a guess", len(TWINS), show))
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
    """Forget tokens: each policy at several budgets, and where it breaks, about a minute."""
    from capmodel.cli.progress import progress_bar
    from capmodel.lab.breaking import breaking_points
    from capmodel.lab.compress import evictions, full_cache, measure
    from capmodel.lab.language_model import load_language_model

    chosen = [full_cache(), *evictions(_numbers(budgets), seed)]
    measured = measure(load_language_model(), chosen, seed=seed)
    with progress_bar() as show:
        outcomes = list(_shown(measured, "caches", len(chosen), show))
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
@click.option(
    "--block-size", type=click.IntRange(1), default=4, show_default=True, help="Tokens a block."
)
@click.option("--share/--no-share", default=True, help="Share blocks of equal prefixes.")
@options.seed
@options.as_json
def paging(block_size: int, share: bool, seed: int, as_json: bool) -> None:
    """Requests in a pool of blocks: tables, waste, and what sharing a prefix spares."""
    from capmodel.lab.paging_story import paged_requests

    requests, pool = paged_requests(block_size, prefix_sharing=share, seed=seed)
    if as_json:
        options.print_json(
            {
                "block_size": block_size,
                "pool": asdict(pool),
                "requests": [asdict(r) for r in requests],
            }
        )
    else:
        from capmodel.cli.lab_tables import print_requests

        print_requests(requests, block_size, pool)


@command.command()
@click.option(
    "--tokens", type=click.IntRange(1), default=16, show_default=True, help="Steps to take."
)
@options.seed
@options.as_json
def steps(tokens: int, seed: int, as_json: bool) -> None:
    """Decode with the cache off and on, per attention kind.

    The table shows the last step; --json gives every step, as the web lab draws them.
    """
    if as_json:
        from capmodel.lab.steps import lab_steps

        options.print_json(lab_steps(tokens, seed))
    else:
        from capmodel.cli.lab_tables import print_steps
        from capmodel.lab.steps import kind_steps

        print_steps(kind_steps(tokens, seed))


@command.command()
@click.argument("prompt", required=False)
@click.option(
    "--tokens", type=click.IntRange(1), help=f"Tokens to add to PROMPT.  [default: {STEPS}]"
)
@options.as_json
def model(prompt: str | None, tokens: int | None, as_json: bool) -> None:
    """The small language model: its figures, or how it goes on after PROMPT.

    PROMPT is plain English text, such as 'And he said unto'; quote it.
    """
    from capmodel.cli.progress import progress_bar
    from capmodel.lab.language_model import load_language_model, model_card

    if prompt is None and tokens is not None:
        raise click.UsageError(
            f"Got --tokens {tokens} without PROMPT, but expected a text to go on"
        )
    loaded = load_language_model()
    if prompt is not None:
        text = loaded.complete(prompt, STEPS if tokens is None else tokens)
        if as_json:
            options.print_json({"prompt": prompt, "completion": text})
        else:
            click.echo(prompt + text)
        return
    with progress_bar() as show:
        card = model_card(loaded, progress=show)
    if as_json:
        options.print_json(asdict(card))
    else:
        from capmodel.cli.lab_tables import print_card

        print_card(card)


def _shown(items: Iterable[Item], label: str, total: int, show: Show) -> Iterator[Item]:
    """The same items, each counted on a bar or in lines on stderr."""
    show(label, 0, total)
    for done, item in enumerate(items, start=1):
        show(label, done, total)
        yield item


def _draw(outcomes: "Sequence[Outcome]", codings: "Sequence[Coding]", path: Path) -> None:
    import io

    from capmodel.plots.lab import draw_perplexity, draw_retrieval
    from capmodel.plots.style import figure
    from capmodel.report.files import write_whole

    drawn = io.BytesIO()
    with figure(7.2, 3.4) as drawing:
        left, right = drawing.subplots(1, 2)
        draw_perplexity(left, outcomes, codings)
        draw_retrieval(right, outcomes)
        right.legend(loc="upper left", bbox_to_anchor=(0.0, 0.97))
        drawing.savefig(drawn, format=path.suffix[1:].lower())
    write_whole(path, drawn.getvalue())
    click.echo(f"Figure in {path}", err=True)


def _numbers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) <= DIGITS for part in parts):
        raise click.UsageError(
            f"Got --budgets {shown(text)}, but expected whole numbers with commas, "
            "such as 128,64,32"
        )
    return list(dict.fromkeys(int(part) for part in parts))
