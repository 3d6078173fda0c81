"""Tables to download, as CSV that a spreadsheet opens without running anything."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

COLUMNS = (
    "status", "gpu", "tp", "weight_dtype", "kv_dtype", "replicas", "n_gpus", "dollars_per_hour",
    "ttft_p95_s", "tpot_p95_s", "reason",
)  # fmt: skip


def plan_csv(document: Mapping[str, Any]) -> str:
    """One deployment a row: the chosen one, the alternatives, those set aside and why."""
    best = document["recommendation"]
    rows = []
    if best is not None:
        rows.append(
            {
                **best,
                **best["estimate"],
                "status": "chosen",
                "dollars_per_hour": best["dollars_per_hour"]["estimate"],
                "reason": document["message"],
            }
        )
    rows += [{**row, **row["estimate"], "status": "alternative"}
             for row in document["alternatives"]]  # fmt: skip
    rows += [{**row, "status": f"set aside ({row['stage']})"} for row in document["rejected"]]
    return to_csv(rows, COLUMNS)


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """`rows` under `columns`; missing values are empty, texts that look like formulas quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
