"""A `Document` as one self-contained HTML page: no script, no font, no address to fetch."""

import re
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from capmodel.report.document import Document

_STYLE = """
:root { color-scheme: light; --edge: 1.25rem; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff;
       max-width: 60rem; margin: 0 auto; padding: 2rem var(--edge); overflow-wrap: anywhere; }
h1 { line-height: 1.2; margin: 0 0 .3rem; }
h2 { color: #0072b2; margin: 2.4rem 0 .6rem; }
.muted, .small, figcaption, caption, footer { color: #5a5a5a; font-size: .875rem; }
.verdict { border-left: 4px solid #0072b2; background: #eaf3f9; padding: .8rem 1rem;
           margin: 1rem 0; }
.verdict.no { border-color: #d55e00; background: #fcefe5; }
.verdict.caution { border-color: #b57b00; background: #f8f2e5; }
.verdict strong { display: block; font-size: 1.2rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: 1rem;
         margin: 1.2rem 0; }
.facts div { border-top: 2px solid #0072b2; padding-top: .4rem; }
.facts dt, .facts dd.note { font-size: .875rem; color: #5a5a5a; margin: 0; }
.facts dd.value { font-size: 1.6rem; font-weight: 700; margin: 0; line-height: 1.25; }
dl.pairs { display: grid; gap: .2rem 1rem;
           grid-template-columns: minmax(6rem, 20rem) minmax(min-content, 1fr); }
dl.pairs dt { color: #5a5a5a; } dl.pairs dd { margin: 0; overflow-wrap: break-word; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; min-width: min(100%, 26rem); font-size: .875rem;
        font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .4rem; max-width: calc(100vw - 2 * var(--edge)); }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #d8d8d8;
         vertical-align: top; overflow-wrap: normal; }
th { border-bottom: 2px solid #5a5a5a; vertical-align: bottom; }
.number { text-align: right; }
.number, .short { white-space: nowrap; } td.long { min-width: 13rem; }
tr.strong td { font-weight: 700; } tr.faint td { color: #5a5a5a; }
figure { margin: 1.2rem 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 34rem; height: auto; }
pre { background: #f5f5f5; padding: .7rem; white-space: pre-wrap; font-size: .8rem; }
footer { border-top: 1px solid #d8d8d8; margin-top: 3rem; padding-top: .5rem; }
@media print { body { max-width: none; } .scroll, figure { overflow: visible; }
  figure svg { min-width: 0; } .short { white-space: normal; } td.long { min-width: 0; } }
"""

Plain = Mapping[str, Any]


def render_html(document: Document) -> str:
    """The page of `document`; every string is escaped, equal documents give equal pages."""
    doc = document.to_plain()
    title = escape(doc["title"])
    parts = [
        "<!doctype html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body><main>",
        f"<h1>{title}</h1>",
    ]
    lines = [line for line in (doc["subtitle"], doc["date"]) if line]
    parts += [f'<p class="muted">{escape(line)}</p>' for line in lines]
    for section in doc["sections"]:
        parts.append("<section>")
        if section["title"]:
            parts.append(f"<h2>{escape(section['title'])}</h2>")
        parts += [_BLOCKS[block["kind"]](block) for block in section["blocks"]]
        parts.append("</section>")
    parts.append(f"</main><footer>{escape(doc['footer'])}</footer></body></html>")
    return "\n".join(parts) + "\n"


def _own_ids(svg: str, prefix: str) -> str:
    """The SVG with ids no other figure of the page has, and none that nothing refers to."""
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    kept = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
    return re.sub(r'( id="|url\(#|href="#)', lambda m: m[1] + prefix, kept)


def _text(block: Plain) -> str:
    lead = f"<strong>{escape(block['lead'])}</strong> " if block["lead"] else ""
    kind = ' class="small"' if block["small"] else ""
    return f"<p{kind}>{lead}{escape(block['text'])}</p>"


def _bullets(block: Plain) -> str:
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in block["items"]) + "</ul>"


def _verdict(block: Plain) -> str:
    return (
        f'<div class="verdict {escape(block["tone"])}"><strong>{escape(block["headline"])}</strong>'
        f"{escape(block['text'])}</div>"
    )


def _facts(block: Plain) -> str:
    cells = "".join(
        f'<div><dt>{escape(fact["label"])}</dt><dd class="value">{escape(fact["value"])}</dd>'
        f'<dd class="note">{escape(fact["note"])}</dd></div>'
        for fact in block["items"]
    )
    return f'<dl class="facts">{cells}</dl>'


def _pairs(block: Plain) -> str:
    cells = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in block["items"]
    )
    return f'<dl class="pairs">{cells}</dl>'


def _table(block: Plain) -> str:
    columns = block["columns"]
    head = "".join(
        f'<th scope="col"{_right(column)}>{escape(column["title"])}</th>' for column in columns
    )
    rows = []
    for index, row in enumerate(block["rows"]):
        marks = [name for name in ("strong", "faint") if index in block[name]]
        kind = f' class="{" ".join(marks)}"' if marks else ""
        rows.append(f"<tr{kind}>{_cells(columns, row)}</tr>")
    return (
        f'<div class="scroll"><table><caption>{escape(block["caption"])}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(columns: Sequence[Plain], row: Sequence[str]) -> str:
    return "".join(
        f'<td class="{"number" if column["numeric"] else _breadth(cell)}">{escape(cell)}</td>'
        for column, cell in zip(columns, row, strict=True)
    )


def _breadth(cell: str) -> str:
    """Short cells stay on one line, so that a narrow screen scrolls instead of stacking words."""
    return "short" if len(cell) <= _SHORT else "long"


_SHORT = 36


def _right(column: Plain) -> str:
    return ' class="number"' if column["numeric"] else ""


def _picture(block: Plain) -> str:
    svg = block["svg"][block["svg"].index("<svg") :]
    alt = escape(block["alt"], quote=True)
    svg = _own_ids(svg, f"f{zlib.crc32(svg.encode()):08x}-")
    labelled = svg.replace("<svg", f'<svg role="img" aria-label="{alt}"', 1)
    # Verdana is as wide as DejaVu Sans, which not every reader has.
    labelled = labelled.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
    return f"<figure>{labelled}<figcaption>{escape(block['caption'])}</figcaption></figure>"


def _code(block: Plain) -> str:
    return f"<pre><code>{escape(block['text'])}</code></pre>"


_BLOCKS = {
    "text": _text,
    "bullets": _bullets,
    "verdict": _verdict,
    "facts": _facts,
    "pairs": _pairs,
    "table": _table,
    "picture": _picture,
    "code": _code,
}
