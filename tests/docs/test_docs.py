"""The documentation builds offline, its links lead somewhere, and its code blocks run."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import capmodel as cm
from capmodel.cli import COMMANDS
from capmodel.features import FEATURES
from capmodel.runs import RUNS

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

from docs_blocks import run_blocks  # noqa: E402

import docs  # noqa: E402

PAGES = docs.load_pages()
VOID = {"meta", "br", "hr", "img", "link"}


def page(text: str) -> docs.Page:
    return docs.Page("page", text)


@pytest.mark.parametrize("name", docs.FIRST)
def test_code_blocks_run(name: str) -> None:
    assert run_blocks(name, PAGES[name].tokens()) == []


def test_every_page_is_in_the_menu_and_reached_from_the_first() -> None:
    written = {path.stem for path in docs.SOURCE.glob("*.md")}
    assert written == set(docs.FIRST)
    linked = {target.partition("#")[0] for _, target in docs.links(PAGES["index"].tokens())}
    assert linked == {f"{name}.md" for name in PAGES if name != "index"}


def test_links_lead_somewhere() -> None:
    assert docs.broken_links(PAGES) == []


def test_html_is_whole_and_needs_no_network(tmp_path: Path) -> None:
    for path in docs.build(tmp_path, PAGES):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r"(?:src|href)=\"?(?:https?:|//)", text)
        assert ".md" not in "".join(re.findall(r'href="[^"]*"', text))
        opened: list[str] = []

        class Nesting(HTMLParser):
            def handle_starttag(self, tag: str, attrs: object, opened: list[str] = opened) -> None:
                opened.extend([tag] if tag not in VOID else [])

            def handle_endtag(self, tag: str, opened: list[str] = opened) -> None:
                assert opened.pop() == tag

        Nesting().feed(text)
        assert opened == []


def test_reference_has_every_public_name_command_and_column() -> None:
    functions = PAGES["reference_python"].anchors()
    assert {name.lower() for name in cm.__all__ if name != "__version__"} <= functions
    assert {f"capmodel-{name}" for name in COMMANDS} <= PAGES["reference_commands"].anchors()
    runs = PAGES["reference_runs"].text
    assert all(f"| `{name}` |" in runs for name in [c.name for c in RUNS] + list(FEATURES))


# The checks themselves: each of these must be caught.


def test_a_broken_link_is_found() -> None:
    pages = {"page": page("# A\n[x](gone.md) [y](#b) [z](#a) [w](page.md#a) [u](file.txt)")}
    assert docs.broken_links(pages) == [
        "page.md: gone.md leads to no page",
        "page.md: #b leads to no heading of page.md",
        "page.md: file.txt leads to no page",
    ]


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("```python\n1 / 0\n```", "page.md:1: ZeroDivisionError: division by zero"),
        ("```sh\ncapmodel kv --model no-such-model\n```", "exit code 2"),
        ("```sh no-run\ncapmodel kv --modle x\n```", "No such option '--modle'"),
        ("```sh no-run\ncapmodel gone\n```", "no command 'gone'"),
        ("```sh\nrm -r .\n```", "only capmodel is checked"),
        ("```\nanything\n```", "a block of no language is not checked"),
    ],
)
def test_a_bad_block_is_found(block: str, problem: str) -> None:
    found = run_blocks("page", page(block).tokens())
    assert len(found) == 1
    assert problem in found[0]


def test_blocks_of_a_page_share_names_and_files_and_leave_nothing(tmp_path: Path) -> None:
    text = "```toml a/b.toml\nx = 1\n```\n\n```python\ny = open('a/b.toml').read()\n```\n\n"
    text += "```python\nassert y == 'x = 1\\n'\n```"
    here = set(Path.cwd().iterdir())
    assert run_blocks("page", page(text).tokens()) == []
    assert set(Path.cwd().iterdir()) == here


def test_headings_are_numbered_where_they_repeat() -> None:
    assert page("# Same\n\n## Same\n\n## `code` & more!").anchors() == {
        "same", "same-1", "code--more",
    }  # fmt: skip
