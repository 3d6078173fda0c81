"""What a report is made of: sections of a few kinds of block, plain data from top to bottom.

`run.py` and `plan.py` turn a dict into a `Document`; `pdf.py` and `html.py` turn a `Document`
into a file. Nothing here knows of Typst or HTML, and no string is markup.
"""

import math
import unicodedata
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `lead` is set bold before it; `small` for remarks."""

    text: str
    lead: str = ""
    small: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in a box. `tone` is `yes`, `no` or `caution`."""

    headline: str
    text: str
    tone: str = "yes"


@dataclass(frozen=True, slots=True)
class Fact:
    """One large figure with what it means and what it rests on."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Up to four large figures in a row."""

    items: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values, one pair a line."""

    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A table column; `numeric` ones are set right."""

    title: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A captioned table; `strong` are the rows (from 0) to set bold, `faint` those to set grey."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: tuple[int, ...] = ()
    faint: tuple[int, ...] = ()

    @property
    def whole(self) -> bool:
        """Short enough to stand on one page unbroken: no higher than 24 rows of one line.

        A letter is reckoned as 4 pt wide, a row as 13.4 pt high and 11 pt more for each further
        line.
        """
        rooms = [max((width - 9) / 4.0, 1.0) for width in self._widths(4.0)]
        lines = [
            max((math.ceil(len(text) / room) for text, room in zip(row, rooms, strict=True)))
            for row in self.rows
        ]
        return 13.4 * len(lines) + 11.0 * sum(max(n - 1, 0) for n in lines) <= 24 * 13.4

    @property
    def room(self) -> int:
        """Letters that a word may have and surely fit its column, at most 40.

        A letter is reckoned as 6 pt wide.
        """
        wanted = self._wanted(6.0)
        cramped = [
            width for width, own in zip(self._widths(6.0), wanted, strict=True) if width < own
        ]
        return min(int((cramped[0] - 9) / 6), 40) if cramped else 40

    def _wanted(self, letter: float) -> list[float]:
        """Width [pt] of each column with every cell on one line, of letters so wide [pt]."""
        cells = zip(*self.rows, [column.title for column in self.columns], strict=True)
        return [letter * max(len(text.encode()) for text in column) + 9 for column in cells]

    def _widths(self, letter: float) -> list[float]:
        """The same, where what narrow columns leave of a page of 17 cm is shared out evenly among
        the others, as the page does it."""
        wanted = self._wanted(letter)
        left, number = 482.0, len(wanted)
        for width in sorted(wanted):
            if width > left / number:
                return [min(own, left / number) for own in wanted]
            left, number = left - width, number - 1
        return wanted

    def __post_init__(self) -> None:
        wrong = [len(row) for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise ValueError(
                f"Got a row of {wrong[0]} cells, but expected {len(self.columns)}: {self.caption}"
            )


@dataclass(frozen=True, slots=True)
class Picture:
    """A vector figure: SVG text, its caption, and `alt` for those who cannot see it."""

    svg: str
    caption: str
    alt: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text to be copied as it stands: a command, a checksum."""

    text: str


Block = Text | Bullets | Verdict | Facts | Pairs | Table | Picture | Code


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it; `new_page` starts it on one."""

    title: str
    blocks: tuple[Block, ...]
    new_page: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A report. `date` is an ISO day, or None to print none; `footer` stands on every page."""

    title: str
    subtitle: str
    date: str | None
    footer: str
    sections: tuple[Section, ...]

    def to_plain(self) -> dict[str, Any]:
        """Dicts, lists and printable strings; every block says its `kind`."""
        return {
            "title": printable(self.title),
            "subtitle": printable(self.subtitle),
            "date": self.date,
            "footer": printable(self.footer),
            "sections": [
                {
                    "title": printable(section.title),
                    "new_page": section.new_page,
                    "blocks": [_plain_block(block) for block in section.blocks],
                }
                for section in self.sections
            ],
        }


def printable(text: str) -> str:
    """`text` with what no font can show (controls, surrogates, unassigned) as U+FFFD.

    Line ends and tabs become spaces.
    """
    spaced = " ".join(text.split()) if any(c in text for c in "\n\r\t\v\f") else text
    return "".join(
        "\ufffd" if unicodedata.category(c) in {"Cc", "Cs", "Cn", "Co"} else c for c in spaced
    )


def _plain_block(block: Block) -> dict[str, Any]:
    plain = asdict(block)
    shown: dict[str, Any]
    if isinstance(block, Picture):
        shown = {"svg": block.svg, "caption": printable(block.caption), "alt": printable(block.alt)}
    elif isinstance(block, Code):
        shown = {"text": "\n".join(printable(line) for line in block.text.splitlines())}
    else:
        shown = {field.name: _printable_in(plain[field.name]) for field in fields(block)}
        if isinstance(block, Table):
            shown |= {"whole": block.whole, "room": block.room}
    return {"kind": type(block).__name__.lower(), **shown}


def _printable_in(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable_in(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable_in(item) for item in value]
    return value
