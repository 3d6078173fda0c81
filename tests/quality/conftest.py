"""The builder of sound rows."""

import pandas as pd
import pytest
from rows import SOUND, Table


@pytest.fixture
def sound() -> Table:
    """Builder: `sound(n, column=value or list)` gives n rows that no check hits."""

    def build(n: int = 1, **changes: object) -> pd.DataFrame:
        # Other rows are slower the larger they are, and none repeats another.
        table = pd.DataFrame(
            {**{name: [value] * n for name, value in SOUND.items()},
             "run_id": [f"r{i}" for i in range(n)],
             "context_len": [1000.0 + i for i in range(n)],
             "step_time_s": [0.02 + 1e-5 * i for i in range(n)]}
        )  # fmt: skip
        return table.assign(**changes)

    return build
