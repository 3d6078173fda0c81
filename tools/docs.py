"""Build docs/ into HTML, offline, and check its links and code blocks.

    python tools/docs.py [--out build/docs] [--no-run]

Pages are Markdown. The reference pages are made from docstrings, the commands' own help and the
runs table's schema. Exit code 1 where a link leads nowhere or a block fails.
"""

import argparse
import html
import re
import sys
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from docs_blocks import run_blocks
from docs_reference import reference_pages
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

SOURCE = Path(__file__).resolve().parents[1] / "docs"
FIRST = (
    "index",
    "own_gpu",
    "own_model",
    "own_format",
    "calibrate",
    "plan",
    "service",
    "notebooks",
    "lab",
    "concepts",
)
STYLE = """
:root { --ink: #1a1a1a; --soft: #6b6b6b; --line: #dddddd; --link: #0060a0; --code: #f6f6f4; }
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); font: 16px/1.55 system-ui, sans-serif; display: flex; }
nav { flex: 0 0 14rem; padding: 1.5rem 1rem; border-right: 1px solid var(--line);
      min-height: 100vh; font-size: .92rem; }
nav a { display: block; padding: .15rem 0; }
main { max-width: 52rem; padding: 1rem 2rem 4rem; min-width: 0; flex: 1; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.2rem; font-size: 1.25rem; }
h3 { margin-top: 1.6rem; font-size: 1.02rem; }
code { font-family: ui-monospace, monospace; font-size: .88em; background: var(--code); }
pre { background: var(--code); padding: .8rem 1rem; overflow-x: auto; line-height: 1.4; }
pre code { background: none; }
.file { color: var(--soft); font-size: .85rem; margin-bottom: -.8rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .9rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .9rem .3rem 0;
         border-bottom: 1px solid var(--line); }
.here { font-weight: 600; color: var(--ink); }
@media (max-width: 50rem) { body { display: block; } nav { min-height: 0; } }
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One page: its name, Markdown and the headings one can link to."""

    name: str
    text: str

    @property
    def title(self) -> str:
        return next(
            (line[2:] for line in self.text.splitlines() if line.startswith("# ")), self.name
        )

    def tokens(self) -> list[Token]:
        return MARKDOWN.parse(self.text)

    def anchors(self) -> set[str]:
        return {anchor for _, anchor in headings(self.tokens())}


def _code(text: str, language: str, _attributes: str) -> str:
    try:
        lexer = get_lexer_by_name(language or "text")
    except ClassNotFound:
        return html.escape(text)
    return str(highlight(text, lexer, HtmlFormatter(nowrap=True)))


MARKDOWN = MarkdownIt("commonmark", {"html": False, "highlight": _code}).enable("table")


def load_pages(source: Path = SOURCE) -> dict[str, Page]:
    """Hand-written pages, then the generated ones, in the order of the menu."""
    written = {path.stem: path.read_text(encoding="utf-8") for path in source.glob("*.md")}
    order = [name for name in FIRST if name in written] + sorted(set(written) - set(FIRST))
    texts = {name: written[name] for name in order} | reference_pages()
    return {name: Page(name, text) for name, text in texts.items()}


def slug(text: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = unicodedata.normalize("NFKC", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def headings(tokens: list[Token]) -> list[tuple[Token, str]]:
    """(opening token, anchor) of each heading; a repeated one is numbered."""
    found: list[tuple[Token, str]] = []
    seen: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type != "heading_open":
            continue
        words = "".join(child.content for child in inline.children or [])
        base = slug(words)
        seen[base] = seen.get(base, -1) + 1
        found.append((opening, f"{base}-{seen[base]}" if seen[base] else base))
    return found


def links(tokens: list[Token]) -> list[tuple[Token, str]]:
    """Every link of a page with where it leads."""
    inlines = [token for token in tokens if token.type == "inline"]
    return [
        (child, str(child.attrs["href"]))
        for inline in inlines
        for child in inline.children or []
        if child.type == "link_open"
    ]


def broken_links(pages: Mapping[str, Page]) -> list[str]:
    """Links to a page or heading that is not there; links out of the docs are not followed."""
    anchors = {name: page.anchors() for name, page in pages.items()}
    found = []
    for name, page in pages.items():
        for _, target in links(page.tokens()):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            where = file.removesuffix(".md") if file else name
            if where not in pages or (file and not file.endswith(".md")):
                found.append(f"{name}.md: {target} leads to no page")
            elif anchor and anchor not in anchors[where]:
                found.append(f"{name}.md: {target} leads to no heading of {where}.md")
    return found


def render(page: Page, pages: Mapping[str, Page]) -> str:
    """The page as HTML, with the menu, its links pointing at HTML files."""
    tokens = page.tokens()
    for opening, anchor in headings(tokens):
        opening.attrSet("id", anchor)
    for link, target in links(tokens):
        link.attrSet("href", re.sub(r"\.md(?=#|$)", ".html", target))
    for place, token in reversed(list(enumerate(tokens))):
        name = token.info.partition(" ")[2]
        if token.type == "fence" and name and name != "no-run":
            label = Token("html_block", "", 0, content=f'<p class="file">{html.escape(name)}</p>\n')
            tokens.insert(place, label)
    body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    menu = "\n".join(
        f'<a href="{name}.html"{" class=here" if name == page.name else ""}>'
        f"{html.escape(other.title)}</a>"
        for name, other in pages.items()
    )
    colours = HtmlFormatter().get_style_defs("pre")
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(page.title)}</title>\n<style>{STYLE}{colours}</style></head>\n"
        f"<body><nav>{menu}</nav><main>\n{body}</main></body></html>\n"
    )


def build(out: Path, pages: Mapping[str, Page]) -> list[Path]:
    """Write every page as HTML into `out`; return the paths."""
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, page in pages.items():
        path = out / f"{name}.html"
        path.write_text(render(page, pages), encoding="utf-8")
        written.append(path)
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=SOURCE.parent / "build" / "docs")
    parser.add_argument("--no-run", action="store_true", help="do not run the code blocks")
    given = parser.parse_args()
    pages = load_pages()
    written = build(given.out, pages)
    problems = broken_links(pages)
    if not given.no_run:
        for name in FIRST:
            print(f"running the code blocks of {name}.md", file=sys.stderr, flush=True)
            problems += run_blocks(name, pages[name].tokens())
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(written)} pages in {given.out}; open {written[0]}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
