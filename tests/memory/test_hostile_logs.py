"""Start-up logs that are something else, torn, or say what cannot be: read, or one line."""

import codecs
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.cli import main
from capmodel.memory import compare_log, parse_start_log, read_start_log
from capmodel.units import GIB

VLLM = (
    "INFO vLLM version 0.11.0\n"
    "INFO Initializing a V1 LLM engine (v0.11.0) with config: model='qwen3-14b', "
    "dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=1, kv_cache_dtype=auto\n"
    "INFO Model loading took 27.5185 GiB and 5.3 seconds\n"
    "INFO Available KV cache memory: 6.51 GiB\n"
    "INFO GPU KV cache size: 42,656 tokens\n"
    "INFO Maximum concurrency for 32,768 tokens per request: 1.30x\n"
)
SGLANG = (
    "server_args=ServerArgs(model_path='qwen3-14b', tp_size=1, kv_cache_dtype='auto')\n"
    "KV Cache is allocated. #tokens: 10000, K size: 0.76 GB, V size: 0.76 GB\n"
    "max_total_num_tokens=10000, context_len=4096 dtype=torch.bfloat16\n"
)
LLAMA_CPP = (
    "general.name str = Qwen3-8B\nllama_context: n_ctx = 8192\nllama_context: n_seq_max = 1\n"
    "llama_kv_cache: size = 1152.00 MiB K (f16): 576.00 MiB, V (f16): 576.00 MiB\n"
)
TENSORRT = "[TensorRT-LLM] Allocated 26.91 GiB for max tokens in paged KV cache (220480). x\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_seq_len=,", "max_model_len=''"),
        ("Available KV cache memory: 1.2.3 GiB", "available_bytes='1.2.3'"),
        ("Available KV cache memory: 99999999999999999999 GiB", "at most 1e18 bytes"),
        ("tensor_parallel_size=0", "tp=0"),
        ("block_size=0", "block_size=0"),
        ("max_num_batched_tokens=0", "max_num_batched_tokens=0"),
        ("gpu_memory_utilization=7.5", "fraction=7.5"),
        ("GPU KV cache size: ,,, tokens", "tokens=''"),
        ("llama_kv_cache: size = 11.52.00 MiB", "cache_bytes='11.52.00'"),
    ],
)
def test_a_figure_that_cannot_be_is_named_with_its_file(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "start\nup.log"
    path.write_text(f"vllm {line}\n")
    with pytest.raises(ValueError, match=r"in the log .*start\\nup\.log") as error:
        read_start_log(path)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"\0" * 5000, random.Random(1).randbytes(5000), b"\x7fELF vllm\xff\xfe", b"PK\x03\x04",
     VLLM[:150].encode(), VLLM.encode("utf-16-be")],
)  # fmt: skip
def test_other_files_are_one_line(tmp_path: Path, capsys, content: bytes) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    for more in ([], ["--model", "qwen3-14b"]):
        with pytest.raises(SystemExit) as end:
            main(["kv", "--log", str(path), *more])
        error = capsys.readouterr().err
        assert end.value.code == 2
        assert len(error.splitlines()) == 1
        assert "x.log" in error


def test_a_log_of_powershell_is_utf_16(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(codecs.BOM_UTF16_LE + VLLM.encode("utf-16-le"))
    assert read_start_log(path) == parse_start_log(VLLM)


def test_a_pool_below_zero_holds_no_request() -> None:
    log = parse_start_log(VLLM.replace("6.51 GiB", "-3.10 GiB"))
    comparison = compare_log(log)
    assert comparison.replayed.tokens == 0
    assert comparison.memory[-1].logged_bytes == pytest.approx(-3.10 * GIB)


def test_a_served_path_is_known_by_its_last_part() -> None:
    served = parse_start_log(VLLM.replace("'qwen3-14b'", "'/srv/models/Qwen3-14B/'"))
    assert compare_log(served).tokens_error == 0
    unknown = parse_start_log(VLLM.replace("'qwen3-14b'", "'/srv/models/ours'"))
    with pytest.raises(ValueError, match=r"log's model '/srv/models/ours' is not known.*--model"):
        compare_log(unknown)


def test_the_log_of_another_engine_is_not_taken_for_the_asked_one(tmp_path: Path, capsys) -> None:
    path = tmp_path / "x.log"
    path.write_text(SGLANG)
    for engine, code in (("vllm", 2), ("SGLang", 0), ("vlm", 2)):
        with pytest.raises(SystemExit) as end:
            main(["kv", "--log", str(path), "--engine", engine])
        assert end.value.code == code
        if engine == "vllm":
            assert "sglang wrote the log" in capsys.readouterr().err


@settings(max_examples=400, deadline=None)
@given(
    text=st.sampled_from([VLLM, SGLANG, LLAMA_CPP, TENSORRT]),
    cuts=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 600)), max_size=3),
    inserted=st.sampled_from(
        ["", "0", "-", ".", ",", "9" * 40, "nan", "'", "\n", "\0", "GiB", "tokens", "fp9", "é"]
    ),
    place=st.integers(0, 600),
)
def test_torn_and_changed_logs(text, cuts, inserted, place) -> None:
    for start, length in cuts:
        text = text[:start] + text[start + length :]
    text = text[:place] + inserted + text[place:]
    try:
        said = repr(compare_log(parse_start_log(text), "qwen3-14b", "h100", max_model_len=4096))
    except ValueError as error:
        said = str(error)
    assert said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400", "", "much"])
@pytest.mark.parametrize("flag", ["--available-gib", "--reserve-gib"])
def test_gib_that_cannot_be(capsys, flag: str, value: str) -> None:
    more = ["--engine", "vllm"] if flag == "--available-gib" else ["--gpu", "h100"]
    with pytest.raises(SystemExit) as end:
        main(["kv", "--model", "qwen3-14b", *more, flag, value])
    assert end.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_more_stages_than_layers(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["kv", "--model", "qwen3-14b", "--engine", "vllm", "--available-gib", "6",
              "--pp", "41"])  # fmt: skip
    assert end.value.code == 2
    assert "at most the 40 layers" in capsys.readouterr().err
