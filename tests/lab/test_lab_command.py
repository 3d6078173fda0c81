"""`capmodel lab`: tables and JSON with the same content, one line for bad input."""

import json

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
    code, out, _ = run(capsys, "steps", "--tokens", "4")
    data = json.loads(out)
    assert code == 0
    assert len(data["kinds"]) == 6
    assert [s["length"] for s in data["kinds"]["mla"]["cached"]] == [1, 2, 3, 4]


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
        (("evict", "--budgets", "2"), "Got budget=2, but expected at least 6"),
        (("paging", "--block-size", "0"), "Got block_size=0, but expected at least 1"),
        (("steps", "--tokens", "0"), "Got n_tokens=0, but expected at least 1"),
        (("model", "naïve"), "Got character 'ï' at position 2"),
        (("model", "And", "--tokens", "0"), "Got n_new=0"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], message: str
) -> None:
    code, _, err = run(capsys, *args)
    assert code == 2
    assert message in err
    assert "Traceback" not in err
