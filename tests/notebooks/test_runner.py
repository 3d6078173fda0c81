"""Copying notebooks and running them into HTML."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import capmodel.notebooks as room
import capmodel.notebooks.stories as files
from capmodel.cli import main
from capmodel.cli.notebooks import command
from capmodel.notebooks import (
    copy_notebooks,
    find_notebooks,
    notebook_parameters,
    run_notebooks,
)

STORY = """\
# %% [markdown]
# # A story

# %% tags=["parameters"]
runs_file = ""
divisor = 2

# %%
print("quotient", 12 / divisor, runs_file)
"""
SECOND = STORY.replace("# # A story", "# # Another").replace('runs_file = ""\n', "").replace(
    ", runs_file", ""
)  # fmt: skip


@pytest.fixture
def stories(tmp_path: Path) -> Path:
    folder = tmp_path / "stories"
    folder.mkdir()
    (folder / "01_first.py").write_text(STORY)
    (folder / "02_second.py").write_text(SECOND)
    return folder


def invoke(*words: object) -> Any:
    return CliRunner().invoke(command, [str(word) for word in words])


def test_runs_into_html_that_needs_no_network(stories: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    done = run_notebooks(
        find_notebooks(stories),
        tmp_path / "out",
        {"divisor": 4, "runs_file": "mine.csv"},
        lambda *step: seen.append(step),
    )
    assert [(one.name, one.error) for one in done] == [("01_first", None), ("02_second", None)]
    first = done[0].html.read_text(encoding="utf-8")
    assert "quotient 3.0 mine.csv" in first
    assert "<title>A story</title>" in first
    assert not re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=[\"']?https?:", first)
    assert "cdn" not in first.lower()
    # 3 cells each, one more in each for what was given; all counted, in order.
    assert seen[-1][1:] == (8, 8)
    assert [step[1] for step in seen] == sorted(step[1] for step in seen)
    assert not list((tmp_path / "out").glob(".*"))


# Says how many kernels are at it: each adds a file and waits for as many.
MEETING = (
    STORY
    + """
from pathlib import Path
from time import monotonic, sleep
Path(runs_file).joinpath(str(divisor)).touch()
until = monotonic() + 20
while (met := len(list(Path(runs_file).iterdir()))) < 2 and monotonic() < until:
    sleep(0.02)
print("met", met)
"""
)


def test_as_many_run_at_once_as_were_asked_for(tmp_path: Path) -> None:
    for folder in ("stories", "meeting", "out"):
        (tmp_path / folder).mkdir()
    (tmp_path / "stories" / "01_first.py").write_text(MEETING)
    (tmp_path / "stories" / "02_second.py").write_text(MEETING.replace("= 2\n", "= 3\n", 1))
    given = {"runs_file": str(tmp_path / "meeting")}
    labels: set[str] = set()
    done = run_notebooks(
        find_notebooks(tmp_path / "stories"), tmp_path / "out", given,
        lambda label, *_: labels.add(label), jobs=2,
    )  # fmt: skip
    assert [one.name for one in done] == ["01_first", "02_second"]
    assert all("met 2" in one.html.read_text(encoding="utf-8") for one in done)
    assert "notebooks 01, 02" in labels
    # Alone it writes the same, to the byte.
    (alone,) = run_notebooks(
        find_notebooks(tmp_path / "stories", ["01"]), tmp_path / "alone", given
    )
    assert alone.html.read_bytes() == done[0].html.read_bytes()
    with pytest.raises(ValueError, match="Got jobs=0, but expected a whole number of at least 1"):
        run_notebooks(find_notebooks(tmp_path / "stories"), tmp_path / "no", jobs=0)


def test_told_to_end_it_leaves_no_kernel_and_no_half_file(tmp_path: Path) -> None:
    (tmp_path / "01_long.py").write_text(
        "# %% tags=[\"parameters\"]\nplace = ''\n\n# %%\nimport os, pathlib, time\n"
        "pathlib.Path(place).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    mark = tmp_path / "pid"
    words = ["notebooks", "run", "--folder", tmp_path, "--set", f"place={mark}", "-o", tmp_path]
    command = [sys.executable, "-m", "capmodel", *map(str, words)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()):
            assert time.monotonic() < until
            time.sleep(0.05)
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said.splitlines()[-1] == "capmodel: stopped"
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["01_long.py", "pid"]


def test_one_that_stops_is_written_and_the_next_is_run(
    stories: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["notebooks", "run", "--folder", str(stories), "--set", "divisor=0"]
    with pytest.raises(SystemExit) as stop:
        main([*words, "-o", str(tmp_path), "--json"])
    assert stop.value.code == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["error"] for row in rows] == ["ZeroDivisionError: division by zero"] * 2
    assert "ZeroDivisionError" in Path(rows[1]["html"]).read_text(encoding="utf-8")


def test_runs_flag_reaches_the_notebooks_as_an_absolute_path(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "mine.csv").write_text("model\n")
    given: dict[str, Any] = {}

    def fake(paths: object, out: object, parameters: dict[str, Any], *_: object) -> list[Any]:
        given.update(parameters)
        return []

    monkeypatch.setattr(room, "run_notebooks", fake)
    words = ("--runs", "runs/*.csv", "--set", "gpus=['a', 'b']", "--set", "model=llama", "-o", "x")
    assert invoke("run", "--folder", stories, *words).exit_code == 0
    assert given == {
        "runs_file": str(tmp_path / "runs/*.csv"),
        "gpus": ["a", "b"],
        "model": "llama",
    }
    refused = invoke("run", "--folder", stories, "--runs", "no/such.csv", "-o", "x")
    assert isinstance(refused.exception, ValueError)
    assert "--runs no/such.csv" in str(refused.exception)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("run", "09"), "expected one of 01_main_job, 02_profile_runs"),
        (("run", "03", "--set", "tokens=3"), "expected some of n_tokens, seed"),
        (("run", "03", "--set", "tokens"), "expected NAME=VALUE"),
        (("run", "03", "--set", "n_tokens=many"), "Got n_tokens='many', but expected a number"),
        (("run", "03", "--set", "n_tokens=True"), "Got n_tokens=True, but expected a number"),
        (("run", "05", "--set", "gpus=h100"), "Got gpus='h100', but expected a list, such as ["),
        (("run", "05", "--set", "model=7"), "Got model=7, but expected text, such as '"),
        (("run", "03", "-o", "{tmp}/file/below"), "cannot be made (not a directory)"),
        (("copy", "{tmp}/file/below"), "cannot be made (not a directory)"),
        (("run", "--folder", "{tmp}"), "expected a folder of notebooks"),
        (("run", "03", "-o", "{tmp}/file"), "is a file; name a folder"),
    ],
)
def test_bad_calls_say_what_was_expected(
    words: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    result = invoke(*(word.replace("{tmp}", str(tmp_path)) for word in words))
    assert result.exit_code != 0
    assert reason in f"{result.output} {result.exception}"
    assert isinstance(result.exception, ValueError | SystemExit)


def test_names_by_number_and_by_name() -> None:
    assert [path.stem for path in find_notebooks(names=["05", "03_decode_with_a_cache"])] == [
        "03_decode_with_a_cache",
        "05_capacity_plan",
    ]


def test_copies_are_the_notebooks_and_are_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "mine"
    assert invoke("copy", target).exit_code == 0
    for path in find_notebooks():
        assert (target / path.name).read_bytes() == path.read_bytes()
    (target / "01_main_job.py").write_text("edited")
    result = invoke("copy", target)
    assert "already holds 01_main_job.py" in str(result.exception)
    assert (target / "01_main_job.py").read_text() == "edited"
    assert invoke("copy", target, "--force").exit_code == 0
    assert (target / "01_main_job.py").read_text() != "edited"


def test_copies_as_jupyter_files(tmp_path: Path) -> None:
    written = copy_notebooks(tmp_path, as_ipynb=True)
    assert {path.suffix for path in written} == {".ipynb"}
    book = json.loads(written[0].read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in book["cells"])


def test_list_has_every_notebook_with_its_parameters() -> None:
    rows = {row["name"]: row for row in json.loads(invoke("list", "--json").stdout)}
    assert rows["05_capacity_plan"]["parameters"]["slo_ttft_p95"] == 1.0
    assert rows["03_decode_with_a_cache"]["title"] == "Decoding with a cache"


def test_parameters_must_be_literals(tmp_path: Path) -> None:
    path = tmp_path / "01_bad.py"
    path.write_text('# %% tags=["parameters"]\nn = 1 + len("a")\n')
    with pytest.raises(ValueError, match=r"01_bad\.py: parameter n must be a plain"):
        notebook_parameters(path)


def test_a_missing_extra_is_named_with_its_command(
    stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(files, "import_module", missing)
    with pytest.raises(ValueError, match=r"jupytext.*pip install 'capmodel\[notebooks\]'"):
        run_notebooks(find_notebooks(stories), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert copy_notebooks(tmp_path / "plain")  # needs no extra
