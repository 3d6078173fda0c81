"""The profile of tables small enough to read off by eye, and of the bundled runs."""

from pathlib import Path

import pandas as pd
import pytest

from capmodel.cli import main
from capmodel.datasets import load_silicon_runs, make_runs
from capmodel.plots.profile import draw_bounds, draw_ceilings, draw_roofline
from capmodel.plots.style import figure
from capmodel.profile import layout_name, profile_runs
from capmodel.saturation import CEILINGS, UNKNOWN, ceiling_counts
from capmodel.shapes import load_shape


def a_series(batches: list[int], seconds: list[float], **more: object) -> pd.DataFrame:
    """Steps of one deployment over the batch."""
    return pd.DataFrame(
        {"engine": "vllm", "model": "llama-3.1-8b", "gpu": "h100-sxm", "weight_dtype": "bf16",
         "kv_dtype": "bf16", "context_len": 1024, "batch_size": batches, "step_time_s": seconds}
        | more
    )  # fmt: skip


def test_throughput_that_stops_growing_has_a_knee() -> None:
    # tokens/s 100, 200, 400, 410, 415: from batch 4 on a doubling gains 2.5 % at most.
    batches = [1, 2, 4, 8, 16]
    runs = a_series(
        batches, [b / s for b, s in zip(batches, [100, 200, 400, 410, 415], strict=True)]
    )
    found = profile_runs(runs).saturation
    assert found["knee_batch"].tolist() == [4]
    assert found["peak_tokens_per_s"].item() == pytest.approx(415)
    # Weights of 16 GB take longer than the cache of 16 sequences (2.1 GB) or computing.
    assert found["ceiling"].tolist() == ["weight reads"]


def test_a_pause_in_growth_is_no_knee() -> None:
    # tokens/s 100, 102, 300, 600: flat once, then growing to the end.
    batches = [1, 2, 4, 8]
    runs = a_series(batches, [b / s for b, s in zip(batches, [100, 102, 300, 600], strict=True)])
    found = profile_runs(runs).saturation
    assert found["knee_batch"].isna().all()
    assert found["ceiling"].tolist() == ["not reached"]


def test_memory_is_the_ceiling_where_twice_the_batch_does_not_fit() -> None:
    # 131,072 bytes a token (Llama-3.1-8B): 128 sequences of 2,048 tokens are 34.4 GB beside
    # 16.1 GB of weights; 256 would be 68.7 GB, over the 80 GB of an H100.
    runs = a_series([32, 64, 128], [0.01, 0.011, 0.012], context_len=2048)
    assert profile_runs(runs).saturation["ceiling"].tolist() == ["cache"]
    assert profile_runs(runs.assign(context_len=1024)).saturation["ceiling"].tolist() == [
        "not reached"
    ]


def test_two_batches_are_no_series() -> None:
    assert len(profile_runs(a_series([1, 2], [0.01, 0.01])).saturation) == 0
    assert ceiling_counts(profile_runs(a_series([1], [0.01])).saturation)["series"].sum() == 0


def test_repeats_are_averaged() -> None:
    runs = a_series([1, 1, 2, 4], [0.01, 0.03, 0.02, 0.02])
    assert profile_runs(runs).saturation["batches"].tolist() == [3]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-2-7b", "MHA"),
        ("llama-3.1-8b", "GQA"),
        ("mixtral-8x7b", "GQA MoE"),
        ("deepseek-v3", "MLA MoE"),
        ("gpt-oss-120b", "GQA windowed MoE"),
        ("decilm-7b", "mixed"),
    ],
)
def test_layout_names(model: str, name: str) -> None:
    assert layout_name(load_shape(model)) == name


def test_gaps_are_listed() -> None:
    runs = pd.concat(
        [
            a_series([1], [0.01]),
            a_series([1], [0.01], gpu="a100-80gb-sxm", weight_dtype="int4"),
        ]
    )
    missing = profile_runs(runs).missing
    combinations = missing[missing["kind"] == "combination"]["what"].tolist()
    assert combinations == ["a100-80gb-sxm / vllm / bf16", "h100-sxm / vllm / int4"]


def test_what_binds_small_and_large_batches() -> None:
    # One sequence of 128 tokens reads weights; 512 of 128 compute (FLOP/byte 512 > ridge 295);
    # 64 of 8,192 tokens hold 68.7 GB of cache, four times the weights. 512 of 512 compute for
    # 7.9 ms, longer than reading weights (4.5), not longer than reading all (10.3 more of cache).
    runs = pd.concat(
        [
            a_series([1], [0.01], context_len=128),
            a_series([512], [0.05], context_len=128),
            a_series([64], [0.05], context_len=8192),
            a_series([512], [0.05], context_len=512),
        ]
    )
    found = profile_runs(runs)
    assert found.features["bound"].tolist() == ["weights", "compute", "kv", "kv"]
    assert found.bounds[["weights", "kv", "compute"]].to_numpy().tolist() == [[1, 2, 1]]


def test_nothing_is_said_to_bind_where_a_figure_is_unknown() -> None:
    # SambaNova publishes no bandwidth of the SN40L's HBM: neither weights nor cache may win there.
    flat = a_series([1, 2, 4], [0.01, 0.02, 0.04], gpu="sn40l", weight_dtype="bf16")
    runs = pd.concat([flat, a_series([1, 2, 4], [0.01, 0.02, 0.04])])
    found = profile_runs(runs)
    assert found.features["bound"].tolist() == [UNKNOWN] * 3 + ["weights"] * 3
    assert found.bounds.set_index("gpu")[UNKNOWN].to_dict() == {"sn40l": 3, "h100-sxm": 0}
    assert set(found.saturation["ceiling"]) == {UNKNOWN, "weight reads"}
    assert ceiling_counts(found.saturation)["series"].sum() == 2
    summary = dict(zip(found.summary["what"], found.summary["value"], strict=True))
    assert (summary["memory-bound rows"], summary["compute-bound rows"]) == (3, 0)
    assert found.layouts["memory_bound_share"].tolist() == [1.0]
    assert found.missing.loc[found.missing["kind"] == "gpu", "what"].tolist() == ["sn40l"]
    # Columns that the features add are nobody's gaps.
    assert not (found.missing["kind"] == "column").any()
    only = profile_runs(flat)
    assert only.layouts["memory_bound_share"].isna().all()
    with figure() as fig:
        axes = draw_roofline(fig.subplots(), only.features)
        draw_bounds(axes.figure.add_subplot(), found.bounds)
    assert not axes.get_legend_handles_labels()[1]
    assert "without published figures: sn40l" in axes.texts[-1].get_text()


def test_steps_above_the_datasheet_are_counted_in_the_figure() -> None:
    # 16 GB of weights take an H100 4.8 ms: the first step is impossible.
    features = profile_runs(a_series([1, 2], [0.001, 0.02])).features
    with figure() as fig:
        axes = draw_roofline(fig.subplots(), features)
    assert "1 of 2 steps lie above the line" in axes.texts[-1].get_text()


def test_a_series_that_memory_ends_is_not_called_flat() -> None:
    growing = a_series([32, 64, 128], [0.01, 0.011, 0.012], context_len=2048)
    counts = ceiling_counts(profile_runs(growing).saturation).set_index("ceiling")
    assert counts.loc["cache", ["series", "flat_series"]].tolist() == [1, 0]
    with figure() as fig:
        axes = draw_ceilings(fig.subplots(), counts.reset_index())
    assert [text.get_text() for text in axes.texts] == ["1", "0", "0", "0", "0"]


def test_many_sources_are_counted() -> None:
    runs = pd.concat([a_series([1], [0.01], source=f"file {i}") for i in range(6)])
    summary = dict(profile_runs(runs).summary.to_numpy().tolist())
    assert summary["sources"] == "file 0, file 1, file 2, file 3 and 2 more"


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/none"])
def test_a_folder_for_figures_that_cannot_be_is_refused_first(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a file").touch()
    with pytest.raises(SystemExit) as stop:
        main(["profile", "no-such-runs.csv", "--figures", str(tmp_path / place)])
    error = capsys.readouterr().err
    assert stop.value.code == 2
    assert "but expected a folder that can be written to" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("source", ["silicon", "generated"])
def test_bundled_runs_meet_the_milestone(source: str) -> None:
    runs = load_silicon_runs() if source == "silicon" else make_runs()
    found = profile_runs(runs)
    summary = dict(zip(found.summary["what"], found.summary["value"], strict=True))
    assert summary["throughput range"] > 7_000
    assert {"MHA", "GQA", "MQA"} <= set(found.layouts["layout"])
    assert summary["rows below their floor"] == 0
    assert found.bounds[["weights", "kv", "compute"]].to_numpy().sum() == len(runs)
    assert set(found.saturation["ceiling"]) <= set(CEILINGS)


def test_figures_can_be_drawn(tmp_path: Path) -> None:
    from capmodel.cli.profile import command

    runs = load_silicon_runs().iloc[::40]
    file = tmp_path / "runs.parquet"
    runs.to_parquet(file)
    from click.testing import CliRunner

    folder = tmp_path / "figures"
    result = CliRunner().invoke(command, [str(file), "--json", "--figures", str(folder)])
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"profile_{n}.png" for n in
                     ("bounds", "ceilings", "coverage", "roofline", "throughput")]  # fmt: skip
    assert all(path.stat().st_size > 5_000 for path in folder.iterdir())
