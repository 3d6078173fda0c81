"""What kind of file a path is, by its content."""

import re
from pathlib import Path

from capmodel.ingest.documents import Document, head_of, refuse, text_encoding
from capmodel.ingest.json_text import json_document, yaml_document
from capmodel.ingest.tabular import csv_document, is_markdown, markdown_document, parquet_document

_YAML = (".yaml", ".yml")


def open_document(path: Path) -> Document:
    """What kind of file `path` is, by its content. Raises RunsError where it is none we read."""
    head = head_of(path)
    if head[:4] == b"PAR1":
        return parquet_document(path)
    encoding = text_encoding(path, head)
    start = head.decode(encoding, errors="replace").lstrip("\ufeff \t\r\n")
    if not start:
        raise refuse(path, "file", "it is empty; expected a benchmark's output or a runs table")
    if start[0] in "{[":
        return json_document(path, encoding)
    if is_markdown(start):
        return markdown_document(path, encoding, start)
    if re.match(r"(---\s*\n)?\s*[A-Za-z_]\w*:(\s|$)", start) and path.suffix.lower() in _YAML:
        return yaml_document(path, encoding)
    return csv_document(path, encoding)
