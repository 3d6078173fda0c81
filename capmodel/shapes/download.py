"""Fetching a config from the Hugging Face hub; the only part of `shapes` that uses a network."""

from pathlib import Path
from typing import Any

from capmodel.shapes.files import read_table


def fetch_config(model_id: str) -> dict[str, Any]:
    """The `config.json` of a Hugging Face id, through the hub's own cache.

    Raises ValueError where huggingface_hub is not installed or the hub does not give the file.
    """
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError
    except ImportError:
        raise ValueError(
            f"Got download=True for {model_id!r}, but huggingface_hub is not installed; "
            "run `pip install huggingface_hub`"
        ) from None
    try:
        file = hf_hub_download(model_id, "config.json")
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().splitlines()
        raise ValueError(
            f"Got model {model_id!r}, but its config.json could not be fetched: "
            f"{reason[0] if reason else type(error).__name__}"
        ) from None
    return read_table(Path(file))
