"""Checks of names that are free: an engine's is in no catalogue, and a typo in it pools nothing."""

import numpy as np
import pandas as pd

from capmodel.engines import engine_doubt
from capmodel.quality.hits import Hit, text
from capmodel.quality.thresholds import FLAG, Thresholds


def unknown_engine(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """An engine whose name is none of those known: a typo, or one that stands by itself."""
    engines = text(featured, "engine")
    doubts = {name: engine_doubt(str(name)) for name in engines.unique()}
    hits = [
        Hit("unknown_engine", FLAG, np.asarray(engines == name), doubt, {})
        for name, doubt in doubts.items()
        if doubt
    ]
    return hits or [Hit("unknown_engine", FLAG, np.zeros(len(featured), dtype=bool), "", {})]
