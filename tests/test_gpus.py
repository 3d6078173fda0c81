"""The GPU catalogue: names, aliases, own entries, and facts that stay apart."""

import pytest

from capmodel.gpus import Gpu, gpu_names, load_gpu


def test_every_gpu_has_a_source_and_plausible_figures() -> None:
    assert len(gpu_names()) >= 20
    for name in gpu_names():
        gpu = load_gpu(name)
        assert gpu.source, name
        assert 1e10 <= gpu.memory_bytes <= 4e11, name
        if gpu.bandwidth_bytes_per_s is not None:
            assert 2e11 <= gpu.bandwidth_bytes_per_s <= 1e13, name
        if gpu.memory_reported_bytes is not None:
            assert 0.9 < gpu.memory_reported_bytes / gpu.memory_bytes < 1.1, name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("h100", "h100-sxm"),
        ("H100_SXM", "h100-sxm"),
        ("a100-80gb", "a100-80gb-sxm"),
        ("Intel PVC", "max-1550"),
        ("intel max 1550", "max-1550"),
        ("AMD MI300X", "mi300x"),
        ("Habana Gaudi2", "gaudi2"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert load_gpu(alias).name == name


def test_a_short_name_says_what_it_was_taken_for() -> None:
    assert "80 GB SXM" in load_gpu("h100").assumption


def test_ambiguous_name_lists_the_candidates() -> None:
    with pytest.raises(ValueError, match=r"a100-40gb-pcie.*a100-80gb-sxm"):
        load_gpu("a100")


def test_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(ValueError, match="h200-sxm"):
        load_gpu("h20-sxm")


def test_dense_peaks_are_not_the_sparse_marketing_ones() -> None:
    # Dense bf16: H100 SXM 989, MI300X 1307 TFLOP/s; 1979 and 2615 are their fp8 figures.
    assert load_gpu("h100").bf16_flops_per_s == 989e12
    assert load_gpu("mi300x").bf16_flops_per_s == pytest.approx(1307.4e12)


def test_matmul_dtype_of_quantised_weights() -> None:
    a100, h100 = load_gpu("a100-80gb"), load_gpu("h100")
    assert a100.matmul_flops_per_s("fp8") == a100.bf16_flops_per_s  # no fp8 on an A100
    assert h100.matmul_flops_per_s("fp8") == h100.fp8_flops_per_s
    assert h100.matmul_flops_per_s("int4") == h100.bf16_flops_per_s


def test_own_toml_file_and_folder(tmp_path, monkeypatch) -> None:
    path = tmp_path / "my-card.toml"
    path.write_text('memory_bytes = 48e9\nbandwidth_bytes_per_s = 1e12\naliases = ["mine"]\n')
    assert load_gpu(str(path)) == Gpu(
        "my-card", 48e9, bandwidth_bytes_per_s=1e12, aliases=("mine",)
    )
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    assert load_gpu("mine").memory_bytes == 48e9


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"memory_bytes": -1}, "memory_bytes is -1"),
        ({"memory_byte": 1e9}, "did you mean memory_bytes"),
        ({"name": "x"}, "memory_bytes is missing"),
        ({"memory_bytes": 1e9, "bandwidth_bytes_per_s": "fast"}, "expected a positive number"),
    ],
)
def test_wrong_entries_are_named(entry: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_gpu(entry)


def test_unreadable_files_are_named(tmp_path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        load_gpu(str(tmp_path / "absent.toml"))
    broken = tmp_path / "broken.toml"
    broken.write_text("memory_bytes = = 3")
    with pytest.raises(ValueError, match="is not TOML"):
        load_gpu(str(broken))
