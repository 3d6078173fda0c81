"""Where bundled files lie: inside an installed wheel, or at the top of a checkout."""

from importlib.resources import files
from pathlib import Path


def bundled_path(name: str, kind: str = "data") -> Path:
    """Path of a bundled file, such as `bundled_path("silicon_runs.parquet")`.

    kind: `"data"` or `"notebooks"`. Raises FileNotFoundError naming both places looked at.
    """
    package = Path(str(files("capmodel")))
    places = [package / "_bundled" / kind / name, package.parent / kind / name]
    for place in places:
        if place.exists():
            return place
    raise FileNotFoundError(f"{name} is in neither {places[0]} nor {places[1]}; reinstall capmodel")
