"""What a row check returns: which rows it hit, what to do with them, and why."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.units import format_bytes, format_percent, format_seconds

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hit:
    """Rows one check hit. mask: (rows,). action: "set_aside" or "flag".

    reason: a sentence with {fields}; figures: name -> (rows,) values for the fields, printed by
    the ending of the name: `_s` seconds, `_bytes` bytes, `_share` percent.
    """

    rule: str
    action: str
    mask: Mask
    reason: str
    figures: dict[str, Array]

    def table(self, run_id: pd.Series) -> pd.DataFrame:
        """One row per row hit: run_id, rule, action, reason; the index is the row's position."""
        where = np.flatnonzero(self.mask)
        printed = [_printed(name, values[where]) for name, values in self.figures.items()]
        names = list(self.figures)
        reasons = (
            [
                self.reason.format(**dict(zip(names, row, strict=True)))
                for row in zip(*printed, strict=True)
            ]
            if names
            else [self.reason] * len(where)
        )
        return pd.DataFrame(
            {"run_id": run_id.iloc[where].to_numpy(object), "rule": self.rule,
             "action": self.action, "reason": reasons}, index=where)  # fmt: skip


def column(table: pd.DataFrame, name: str, missing: float = np.nan) -> Array:
    """A column as floats, `missing` where the table has none or a gap."""
    if name not in table:
        return np.full(len(table), missing)
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(float)
    return np.where(np.isnan(values), missing, values)


def text(table: pd.DataFrame, name: str) -> pd.Series:
    """A column as text, empty where the table has none."""
    if name not in table:
        return pd.Series("", index=table.index)
    return table[name].fillna("").astype(str)


def _printed(name: str, values: Array) -> list[str]:
    if name.endswith("_s"):
        return [format_seconds(value) for value in values]
    if name.endswith("_bytes"):
        return [format_bytes(value) for value in values]
    if name.endswith("_share"):
        return [format_percent(value) for value in values]
    return [f"{value:,.6g}" if abs(value) >= 1000 else f"{value:.3g}" for value in values]
