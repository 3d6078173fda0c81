"""Words of others in our messages, and the names of engines."""

import pytest

from capmodel.engines import ENGINES, engine_doubt, nearest_engines
from capmodel.words import one_line, shown


@pytest.mark.parametrize(
    "text", ["a\nb", "a\r\nb", "\x1b[31mred", "\u202eright to left", "\ufeff", "a\u2028b", "\udcff"]
)
def test_no_message_breaks_its_line_or_moves_the_cursor(text: str) -> None:
    line = one_line(text)
    assert line.isprintable()
    assert line.splitlines() == [line]
    line.encode("utf-8")


def test_printable_words_stay_as_they_are() -> None:
    assert one_line("80 GB µs ’ 模型") == "80 GB µs ’ 模型"


def test_long_values_are_counted_not_printed() -> None:
    assert shown("x" * 1000).endswith("characters more")
    assert len(shown("x" * 10**6)) < 200
    assert "digits" in shown(10**5000)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("vlm", "vllm"), ("vLLLM", "vllm"), ("sglng", "sglang"), ("tensorrt-lm", "tensorrt-llm"),
     ("llamacpp", "llama.cpp"), ("trtllm", "tensorrt-llm"), ("deepspeed_mi", "deepspeed-mii")],
)  # fmt: skip
def test_a_typo_names_the_nearest_engine(name: str, nearest: str) -> None:
    assert nearest in nearest_engines(name)
    assert nearest in str(engine_doubt(name))


def test_known_engines_are_not_doubted() -> None:
    assert not [name for name in ENGINES if engine_doubt(name)]
    assert engine_doubt("vLLM ") is None
    assert engine_doubt(None) is None
    assert "stands by itself" in str(engine_doubt("our-own-server"))
