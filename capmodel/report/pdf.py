"""A `Document` as a tagged PDF (PDF/UA-1), set by Typst offline; equal input, equal bytes."""

import json
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import matplotlib
import typst
from matplotlib.font_manager import get_font

from capmodel.report.document import Document

# Typst brings Libertinus Serif; matplotlib brings DejaVu Sans, which has Greek, Cyrillic, Arabic
# and signs, and Last Resort, whose labelled boxes stand for whatever no other font has.
_FAMILIES = ("Libertinus Serif", "DejaVu Sans")
_FONT_FOLDER = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


def render_pdf(document: Document) -> bytes:
    """The PDF of `document`.

    Only fonts that come with Typst and matplotlib are used, so the bytes do not depend on the
    machine; a document with characters those lack (Chinese, Japanese, Korean, ...) may use the
    machine's fonts too. Raises `ValueError` if Typst cannot set the document.
    """
    pdf = _compile(document, format="pdf", pdf_standards=["ua-1"])
    if not isinstance(pdf, bytes):
        raise ValueError(f"Got {type(pdf).__name__} from Typst, but expected the bytes of a PDF")
    return pdf


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
    charmap = get_font(str(_FONT_FOLDER / "DejaVuSans.ttf")).get_charmap()
    return frozenset(chr(code) for code in charmap) | {"\ufffd"}


def _system_families(fonts: Any) -> list[str]:
    """The machine's own text families, Noto's first."""
    known = {font.family for font in _fonts(False).fonts()}
    found = {font.family for font in fonts.fonts() if font.path} - known
    return sorted(found, key=lambda family: (not family.startswith("Noto Sans"), family))
