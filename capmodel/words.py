"""Words of others inside messages of ours: on one line, and nothing that moves the cursor."""

import unicodedata

# Control and format characters, lone surrogates, line and paragraph separators.
_HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def one_line(text: object) -> str:
    r"""`text` with line breaks, control and direction marks written out: a newline as `\n`."""
    words = str(text)
    if words.isascii() and words.isprintable():
        return words
    return "".join(
        mark.encode("unicode_escape").decode() if unicodedata.category(mark) in _HARMFUL else mark
        for mark in words
    )


def shown(value: object, limit: int = 120) -> str:
    """A value as it is named in a message: its repr on one line, the rest of a long one counted."""
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays, as Python shows such a value
        value = value.tolist()
    try:
        words = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        words = "a number of thousands of digits"
    words = one_line(words)
    if len(words) <= limit:
        return words
    return f"{words[:limit]}... and {len(words) - limit:,} characters more"
