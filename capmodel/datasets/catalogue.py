"""What reference runs there are."""

import pandas as pd

from capmodel.datasets.fetched import REMOTE_FILES

_OWN = (
    (
        "silicon",
        "bundled",
        "Apache-2.0",
        "decode steps composed from kernel times measured on A100, H100, H200, B200 and L40S",
    ),
    (
        "generated",
        "generated",
        "Apache-2.0",
        "synthetic runs with a known truth; never measured",
    ),
)


def dataset_table() -> pd.DataFrame:
    """Columns `name`, `how` (bundled, generated, packaged, fetched), `licence` and `about`."""
    fetched = [
        (f.name, "fetched" if f.url else "packaged", f.licence, f.about) for f in REMOTE_FILES
    ]
    return pd.DataFrame([*_OWN, *fetched], columns=["name", "how", "licence", "about"])
