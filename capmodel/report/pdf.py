"""A `Document` as a tagged PDF (PDF/UA-1), set by Typst offline; equal input, equal bytes."""

import json
import unicodedata
import warnings
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import typst
from matplotlib.font_manager import findSystemFonts, get_font

from capmodel.report.document import Document

# Typst brings Libertinus Serif; matplotlib brings DejaVu Sans, which has Greek, Cyrillic, Arabic
# and signs, and Last Resort, whose labelled boxes stand for whatever no other font has.
_FAMILIES = ("Libertinus Serif", "DejaVu Sans")
_FONT_FOLDER = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


class UndrawnCharacters(UserWarning):
    """Characters that no font of this machine draws: boxes stand for them in the PDF."""


def render_pdf(document: Document) -> bytes:
    """The PDF of `document`.

    Only fonts that come with Typst and matplotlib are used, so the bytes do not depend on the
    machine; a document with characters those lack (Chinese, Japanese, Korean, ...) may use the
    machine's fonts too. What none of them draws is warned of (`UndrawnCharacters`): boxes stand
    for it, though it can be searched and copied. Raises `ValueError` if Typst cannot set the
    document.
    """
    undrawn = undrawn_characters(document)
    if undrawn:
        shown = "".join(sorted(undrawn)[:12]) + ("..." if len(undrawn) > 12 else "")
        warnings.warn(
            f"No font of this machine draws {shown}: the PDF has boxes for them, though they can "
            "be searched and copied. Install a font that does, such as Noto Sans CJK for Chinese, "
            "Japanese and Korean, or take HTML.",
            UndrawnCharacters,
            stacklevel=2,
        )
    pdf = _compile(document, format="pdf", pdf_standards=["ua-1"])
    if not isinstance(pdf, bytes):
        raise ValueError(f"Got {type(pdf).__name__} from Typst, but expected the bytes of a PDF")
    return pdf


def undrawn_characters(document: Document) -> set[str]:
    """The characters of `document` that neither the bundled nor the machine's fonts have."""
    text = json.dumps(document.to_plain(), ensure_ascii=False, allow_nan=False)
    left = {c for c in set(text) - _bundled_characters() if unicodedata.category(c) not in _UNSEEN}
    for path in findSystemFonts() if left else ():
        left -= _characters(path)
        if not left:
            break
    return left


_UNSEEN = {"Cc", "Cf", "Zs"}


@lru_cache(maxsize=1024)
def _characters(path: str) -> frozenset[str]:
    """What a font file has; of a collection, its first face; nothing where it cannot be read."""
    try:
        return frozenset(map(chr, get_font(path).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def render_pages(document: Document, ppi: float = 72) -> list[bytes]:
    """The pages of `document` as PNG images of `ppi` pixels per inch, to look at."""
    pages = _compile(document, format="png", ppi=ppi)
    return pages if isinstance(pages, list) else [pages]


def _compile(document: Document, **options: Any) -> Any:
    data = json.dumps(document.to_plain(), ensure_ascii=False, allow_nan=False)
    with_system = not _bundled_characters().issuperset(data)
    fonts = _fonts(with_system)
    families = list(_FAMILIES) + (_system_families(fonts) if with_system else [])
    template = files("capmodel.report").joinpath("template.typ").read_bytes()
    inputs = {"document": data, "fonts": json.dumps(families)}
    try:
        return typst.compile(template, font_paths=fonts, sys_inputs=inputs, **options)
    except typst.TypstError as error:
        raise ValueError(
            f"Got a report that Typst cannot set ({error.message}); please report this."
        ) from error


@lru_cache(maxsize=2)
def _fonts(with_system: bool) -> Any:
    return typst.Fonts(include_system_fonts=with_system, font_paths=[str(_FONT_FOLDER)])


@lru_cache(maxsize=1)
def _bundled_characters() -> frozenset[str]:
    return _characters(str(_FONT_FOLDER / "DejaVuSans.ttf")) | {"\ufffd"}


def _system_families(fonts: Any) -> list[str]:
    """The machine's own text families, Noto's first."""
    known = {font.family for font in _fonts(False).fonts()}
    found = {font.family for font in fonts.fonts() if font.path} - known
    return sorted(found, key=lambda family: (not family.startswith("Noto Sans"), family))
