"""`capmodel lab`: tables and JSON with the same content, one line for bad input."""

import json
from pathlib import Path

import pytest

from capmodel.cli import main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["lab", *args])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def test_proof_prints_every_claim_and_its_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "proof")
    assert code == 0
    assert "16 against 136" in out
    assert "18 of 18 hold" in out
    code, out, _ = run(capsys, "proof", "--json", "--seed", "3")
    assert code == 0
    assert {"claim", "measured", "holds"} == set(json.loads(out)[0])


def test_a_failing_claim_is_exit_code_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from capmodel.lab import proof

    monkeypatch.setattr(proof, "prove", lambda seed: [proof.Check("water is dry", "wet", False)])
    code, out, _ = run(capsys, "proof")
    assert code == 1
    assert "FAILS" in out
    assert "0 of 1 hold" in out


def test_paging_tells_three_things_apart(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "paging", "--json")
    data = json.loads(out)
    assert code == 0
    assert [r["tokens_computed"] for r in data["requests"]] == [29, 10, 8]
    code, out, _ = run(capsys, "paging", "--no-share")
    assert "0 of 8" in out
    assert "Three different" in out


def test_steps_are_json_for_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "steps", "--tokens", "4", "--json")
    data = json.loads(out)
    assert code == 0
    assert len(data["kinds"]) == 6
    assert [s["length"] for s in data["kinds"]["mla"]["cached"]] == [1, 2, 3, 4]


def test_steps_print_the_last_one_of_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "steps", "--tokens", "16", "--json")
    kinds = json.loads(out)["kinds"]
    code, out, _ = run(capsys, "steps", "--tokens", "16")
    assert code == 0
    for kind, data in kinds.items():
        row = next(line.split() for line in out.splitlines() if line.split()[:1] == [kind])
        last = data["cached"][-1]
        assert row[1:3] == ["1", "16"]
        assert row[3] == f"{last['flop']:,}"
        assert row[6] == f"{last['cache_bytes']:,}"


@pytest.mark.parametrize("columns", ["80", "40"])
@pytest.mark.parametrize("command", ["proof", "paging", "steps"])
def test_nothing_is_cut_and_units_stand_in_the_headings(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    columns: str,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    _, out, _ = run(capsys, command)
    assert "…" not in out
    if command != "proof":
        assert "[byte]" in out
    monkeypatch.setenv("COLUMNS", "200")
    _, wide, _ = run(capsys, command)
    narrow_words, wide_words = (
        sorted(word for word in printed.split() if word.strip("─")) for printed in (out, wide)
    )
    assert narrow_words == wide_words


def test_help_lists_commands_with_whole_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--help")
    assert "..." not in out.partition("Commands:")[2]


def test_progress_is_on_stderr_and_the_figure_is_drawn(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from capmodel.lab import compress

    small = compress.measure
    monkeypatch.setattr(
        compress, "measure", lambda model, chosen, seed: small(model, chosen, 2, 2, seed)
    )
    path = tmp_path / "figure.png"
    code, out, err = run(capsys, "evict", "--budgets", "8,8", "--figure", str(path))
    assert code == 0
    assert "5/5 caches" in err
    assert out.count("random, 8 tokens") == 1
    assert path.read_bytes().startswith(b"\x89PNG")
    one = compress.evictions((8,))[:1]
    monkeypatch.setattr(compress, "evictions", lambda budgets, seed: one)
    code, _, err = run(capsys, "evict", "--figure", str(tmp_path / "figure.PDF"))
    assert code == 0
    assert "2/2 caches" in err
    assert (tmp_path / "figure.PDF").read_bytes().startswith(b"%PDF")


def test_evict_measures_the_budgets_it_is_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from capmodel.lab import compress

    small = compress.measure
    monkeypatch.setattr(
        compress, "measure", lambda model, chosen, seed: small(model, chosen, 2, 2, seed)
    )
    code, out, _ = run(capsys, "evict", "--budgets", "16", "--json")
    data = json.loads(out)
    assert code == 0
    assert len(data["outcomes"]) == 1 + 4
    assert {row["policy"] for row in data["breaking"]} == {
        o["policy"] for o in data["outcomes"][1:]
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("evict", "--budgets", "64,x"), "expected whole numbers with commas"),
        (("evict", "--budgets", "2"), "Got budget=2, but expected a whole number from 6 to 256"),
        (("evict", "--budgets", "64,999999999"), "Got budget=999999999, but expected a whole"),
        (("evict", "--budgets", "²"), "expected whole numbers with commas"),
        (("evict", "--budgets", ""), "expected whole numbers with commas"),
        (("evict", "--budgets", "9" * 5000), "expected whole numbers with commas"),
        (("evict", "--figure", "/proc/made.png"), "expected a folder that can be written to"),
        (("evict", "--figure", "made.jpg"), "expected a name that ends in .png, .svg, .pdf"),
        (("evict", "--figure", "no/such/made.png"), "a folder that exists"),
        (("paging", "--block-size", "0"), "Invalid value for '--block-size': 0"),
        (("paging", "--block-size", "100000000000"), "but expected a whole number from 1 to 4,096"),
        (("paging", "--seed", "-1"), "-1 is not in the range x>=0"),
        (("steps", "--tokens", "0"), "Invalid value for '--tokens': 0"),
        (
            ("steps", "--tokens", "100000"),
            "Got n_tokens=100000, but expected a whole number",
        ),
        (("model", "naïve"), "Got character 'ï' at position 2"),
        (("model", "😀"), "Got character '😀' at position 0"),
        (("model", "a\udcff"), "Got character '\\udcff' at position 1"),
        (("model", ""), "Got a prompt of 0 tokens, but expected 1 to 256"),
        (("model", "And " * 300), "Got a prompt of 301 tokens, but expected 1 to 256"),
        (("model", "--tokens", "3"), "without PROMPT"),
        (("model", "And", "--tokens", "1" * 30), "but expected a whole number from 1 to 256"),
        (("model", "And", "--tokens", "0"), "Invalid value for '--tokens': 0"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_is_no_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "made.png"
    folder.mkdir()
    code, _, err = run(capsys, "compress", "--figure", str(folder))
    assert code == 2
    assert "a folder, but expected the name of a file" in err
