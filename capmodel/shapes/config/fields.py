"""Typed reading of a config's fields, under every spelling they have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 10**9  # no width, head count or vocabulary comes near; a larger number is a mistake
MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class ConfigFields:
    """A config table and the name it is called by in error messages.

    Every reader takes the spellings of one field, the first being the one errors name, and skips
    those that are absent or null. All raise ValueError for a value of the wrong kind.
    """

    table: Mapping[str, Any]
    label: str

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number of at least `least`; without a default a missing field is an error."""
        value = self.optional(*names, least=least)
        if value is not None:
            return value
        if default is not None:
            return default
        others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
        raise ValueError(f"Got a config of {self.label} without `{names[0]}`{others}; add it")

    def optional(self, *names: str, least: int = 1) -> int | None:
        """A whole number of at least `least`, or None."""
        name, value = self._first(names)
        if value is None:
            return None
        if not _is_whole(value):
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected a whole "
                "number"
            )
        if not least <= value <= LARGEST:
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected {least} to "
                f"{LARGEST:,}"
            )
        return int(value)

    def number(self, *names: str, default: float) -> float:
        """A number, whole or not."""
        name, value = self._first(names)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected a number"
            )
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """A yes or no."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, bool | int) or value not in (0, 1):
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected true or "
                "false"
            )
        return bool(value)

    def text(self, *names: str, default: str = "") -> str:
        """A text."""
        name, value = self._first(names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected a text"
            )
        return value

    def items(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list, of `length` items where given, or None."""
        name, value = self._first(names)
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected a list"
            )
        if length is not None and len(value) != length:
            raise ValueError(
                f"Got {name} with {len(value)} items in a config of {self.label}, but expected "
                f"one for each of its {length} layers"
            )
        return list(value)

    def sub(self, name: str) -> "ConfigFields | None":
        """A nested table, or None."""
        value = self.table.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ValueError(
                f"Got {name}={_short(value)} in a config of {self.label}, but expected a table"
            )
        return ConfigFields(value, f"{self.label}, {name}")

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.table.get(name) is not None

    @property
    def n_layers(self) -> int:
        """Layers of the main stack."""
        names = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers")
        layers = self.optional(*names)
        if layers is None:  # Nemotron-H may write its pattern only
            blocks = self.text("hybrid_override_pattern") or self.items("layers_block_type")
            layers = len(blocks) if blocks else self.integer(*names)
        if layers > MAX_LAYERS:
            raise ValueError(
                f"Got num_hidden_layers={layers} in a config of {self.label}, but expected at "
                f"most {MAX_LAYERS}"
            )
        return layers

    @property
    def hidden(self) -> int:
        """Width of the residual stream."""
        return self.integer("hidden_size", "d_model", "n_embd", "dim", "model_dim")

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.integer(
            "num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads"
        )

    @property
    def max_context(self) -> int | None:
        """Longest context the config names."""
        return self.optional(
            "max_position_embeddings", "model_max_length", "n_positions", "max_sequence_length",
            "max_seq_len", "seq_length", "max_target_positions",
        )  # fmt: skip

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            value = self.table.get(name)
            if value is not None:
                return name, value
        return names[0], None


def _is_whole(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
