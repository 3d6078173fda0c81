"""`capmodel report`: a plan's JSON as PDF or HTML."""

from pathlib import Path

import click

from capmodel.cli import options


@click.command(name="report")
@click.argument("plan", type=click.Path(path_type=Path))
@options.out
def command(plan: Path, out: Path | None) -> None:
    """Render PLAN (what `capmodel plan -o plan.json` wrote) as a document.

    \b
    capmodel report plan.json -o plan.pdf
    capmodel report plan.json -o plan.html

    Without --out the PDF is written beside PLAN.
    """
    from capmodel.report import write_plan_html, write_plan_pdf
    from capmodel.report.load import load_plan

    target = out or plan.with_suffix(".pdf")
    write = {".pdf": write_plan_pdf, ".html": write_plan_html}.get(target.suffix.lower())
    if write is None:
        raise click.UsageError(f"--out {target}: expected a name that ends in .pdf or .html")
    read = load_plan(plan)
    if target.exists() and target.samefile(plan):
        raise click.UsageError(f"--out {target}: expected another file than the plan that is read")
    write(read, target)
    click.echo(f"Report in {target}")
