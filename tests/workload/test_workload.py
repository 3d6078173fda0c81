"""Workloads: stated moments, seeds, traces in three formats, and input that cannot be."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.workload import (
    Empirical,
    Fixed,
    Lognormal,
    Requests,
    SharedPrefix,
    Slo,
    Uniform,
    Workload,
    arrival_times,
    read_trace,
)


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_the_cv_asked_for(cv):
    """200,000 gaps: the mean is good to cv / 447, the cv to about cv^2 / 100."""
    times = arrival_times(200_000, 5.0, cv, seed=1)
    gaps = np.diff(times)
    assert gaps.mean() == pytest.approx(0.2, rel=0.005 + 0.01 * cv)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.005 + 0.03 * cv)


@settings(max_examples=30, deadline=None)
@given(mean=st.floats(50, 5000), cv=st.floats(0, 1.5), seed=st.integers(0, 99))
def test_lognormal_lengths_have_the_mean_and_stay_in_range(mean, cv, seed):
    lengths = Lognormal(mean, cv).draw(60_000, np.random.default_rng(seed))
    assert lengths.min() >= 1
    assert lengths.mean() == pytest.approx(mean, rel=0.04, abs=0.6)
    cut = Lognormal(mean, cv, longest=40).draw(100, np.random.default_rng(seed))
    assert cut.max() <= 40


def test_lognormal_quantile_is_that_of_its_draws():
    lengths = Lognormal(1000, 1.0)
    drawn = np.quantile(lengths.draw(200_000, np.random.default_rng(0)), 0.95)
    assert drawn == pytest.approx(lengths.quantile(0.95), rel=0.02)


def test_uniform_around_is_the_published_benchmark_protocol():
    lengths = Uniform.around(1000, 0.8)
    drawn = lengths.draw(5000, np.random.default_rng(0))
    assert (drawn.min(), drawn.max()) == (800, 1000)


def test_empirical_keeps_the_distribution_of_long_samples():
    values = np.random.default_rng(0).integers(1, 1000, 100_000)
    lengths = Empirical.of(values)
    assert len(lengths.values) == 4096
    assert lengths.draw(50_000, np.random.default_rng(1)).mean() == pytest.approx(500, rel=0.02)


def test_a_seed_fixes_the_draw_and_another_changes_it():
    workload = Workload(Lognormal(500, 1), Fixed(10), rate=2.0)
    first, again, other = (workload.draw(50, seed) for seed in (3, 3, 4))
    assert (first.arrival_s == again.arrival_s).all()
    assert (first.prompt_tokens == again.prompt_tokens).all()
    assert (first.prompt_tokens != other.prompt_tokens).any()


def test_shared_prefixes_cover_whole_blocks_of_the_share_asked_for():
    """600 tokens are 37 whole blocks of 16; a prompt of 100 tokens shares 6 of them."""
    prefix = SharedPrefix(600, 0.25, n_prefixes=4)
    requests = Workload(Fixed(1000), Fixed(1), rate=1.0, prefix=prefix).draw(8000, 0)
    counts = np.diff(requests.prefix_offsets)
    assert set(counts.tolist()) == {0, 37}
    assert (counts > 0).mean() == pytest.approx(0.25, abs=0.02)
    assert len(np.unique(requests.prefix_ids)) == 4 * 37
    short = Workload(Fixed(100), Fixed(1), rate=1.0, prefix=SharedPrefix(600)).draw(5, 0)
    assert np.diff(short.prefix_offsets).tolist() == [6] * 5


def test_a_stretched_trace_has_the_rate_and_the_same_requests():
    requests = Workload(Lognormal(500, 1), Fixed(10), rate=2.0).draw(500, 1)
    faster = requests.at_rate(7.0)
    assert faster.rate == pytest.approx(7.0)
    assert faster.interarrival_cv == pytest.approx(requests.interarrival_cv)
    assert (faster.prompt_tokens == requests.prompt_tokens).all()


def test_azure_trace(shared_data):
    """The published hour: 19,366 requests, gaps with CV 1.1; code has CV 13."""
    traces = shared_data / "traces"
    conv = read_trace(traces / "AzureLLMInferenceTrace_conv.csv")
    assert len(conv) == 19_366
    assert conv.prompt_tokens[:3].tolist() == [374, 396, 879]
    assert conv.output_tokens[:3].tolist() == [44, 109, 55]
    assert conv.arrival_s[1] == pytest.approx(4.314579)
    assert conv.interarrival_cv == pytest.approx(1.1, abs=0.05)
    code = read_trace(traces / "AzureLLMInferenceTrace_code.csv")
    assert len(code) == 8_819
    assert code.interarrival_cv == pytest.approx(13, abs=0.5)


def test_mooncake_trace(shared_data):
    """The published release: 12,031 requests, 512-token ids, milliseconds."""
    trace = read_trace(shared_data / "traces" / "mooncake_conversation_trace.jsonl")
    assert len(trace) == 12_031
    assert trace.prefix_block == 512
    assert trace.prefix_ids[:3].tolist() == [0, 1, 2]
    assert trace.prefix_offsets[:2].tolist() == [0, 14]
    assert trace.duration_s == pytest.approx(3536.999)


def test_plain_and_mooncake_text_round_trip(tmp_path):
    plain = tmp_path / "plain.csv"
    plain.write_text("arrival_s, prompt_tokens, output_tokens\n10.0,5,2\n10.5,7,1\n")
    requests = read_trace(plain)
    assert requests.arrival_s.tolist() == [0.0, 0.5]
    assert requests.prompt_tokens.tolist() == [5, 7]
    lines = tmp_path / "anything.txt"
    rows = [
        {"timestamp": 1000, "input_length": 600, "output_length": 2, "hash_ids": [7, 8]},
        {"timestamp": 1500, "input_length": 30, "output_length": 3, "hash_ids": [9]},
    ]
    lines.write_text("\n".join(json.dumps(row) for row in rows))
    requests = read_trace(lines)
    assert requests.arrival_s.tolist() == [0.0, 0.5]
    assert requests.prefix_offsets.tolist() == [0, 2, 3]
    assert len(requests.head(1).prefix_ids) == 2


H = "arrival_s,prompt_tokens,output_tokens\n"
BAD = {
    "empty": ("", "is empty"),
    "header only": (H, "no rows"),
    "unknown columns": ("a,b\n1,2\n", "has the columns 'a, b'"),
    "unsorted": (
        f"{H}1,5,2\n3,5,2\n2,5,2\n",
        "line 4: arrival_s is 2, but expected nothing before the 3 above it; sort the rows",
    ),
    "not a number": (f"{H}1,5,2\n2,x,2\n", "line 3: prompt_tokens is 'x', .* leave it out"),
    "after blank lines": (f"\n{H}1,5,2\n\n2,x,2\n", "line 5: prompt_tokens is 'x'"),
    "a switch": (f"{H}1,True,2\n", "line 2: prompt_tokens is True"),
    "a half": (f"{H}1,5.5,2\n", r"line 2: prompt_tokens is 5\.5"),
    "huge": (f"{H}1,1e300,2\n", r"line 2: prompt_tokens is 1e\+300.*up to 1e9"),
    "zero output": (f"{H}1,5,0\n", "line 2: output_tokens is 0"),
    "missing arrival": (f"{H}1,5,2\n,5,2\n", "line 3: arrival_s is empty"),
    "never": (f"{H}1,5,2\ninf,5,2\n", "line 3: arrival_s is inf"),
    "too many fields": (f"{H}1,5,2,7,8\n1,1,1\n", "more fields than its 3 headings"),
    "too few fields": (f"{H}1,5\n1,1,1\n", "line 2: output_tokens is empty"),
    "twice": ("arrival_s,prompt_tokens,Prompt_Tokens,output_tokens\n0,1,2,3\n", "more than once"),
    "semicolons": (H.replace(",", ";"), "';' between them: write commas"),
    "one array": ('[{"timestamp": 0}]', "one JSON array, but expected an object a line"),
    "bad time": ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,5,2\n", "TIMESTAMP is 'noon'"),
    "seconds": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n17000000000,5,2\n",
        "is 17000000000, but",
    ),
    "cut JSON": ('{"timestamp": 0, "input_le', "line 1: not JSON"),
    "keys missing": ('{"timestamp": 0}\n', "input_length, output_length missing"),
    "list line": ('{"timestamp":0,"input_length":1,"output_length":1}\n[1]\n', "line 2"),
    "no time": (
        '\n{"timestamp":NaN,"input_length":1,"output_length":1}',
        "line 2: timestamp is empty",
    ),
}


@pytest.mark.parametrize(
    "text",
    [
        f"{H}0,5,2\n1.5,7,3\n",
        f"{H}0,5,2\n1.5,7,3\n".replace("\n", "\r\n"),
        f"\ufeff{H}0,5,2\n1.5,7,3\n",
        f"{H.upper()}0,5,2\n\n1.5,7,3\n\n",
        '"arrival_s", "prompt_tokens","output_tokens"\n0,5,2\n1.5,"7",3',
        "id,output_tokens,arrival_s,prompt_tokens\na,2,1700000000,5\nb,3,1700000001.5,7\n",
        "TimeStamp,ContextTokens,GeneratedTokens\n2023-11-16 18:15,5,2\n2023-11-16T18:15:01.5Z,7,3",
    ],
)
def test_what_other_tools_write_reads_the_same(text, tmp_path):
    file = tmp_path / "trace.csv"
    file.write_bytes(text.encode())
    found = read_trace(file)
    assert found.arrival_s.tolist() == [0.0, 1.5]
    assert found.prompt_tokens.tolist() == [5, 7]
    assert found.output_tokens.tolist() == [2, 3]


@pytest.mark.parametrize("name", BAD)
def test_bad_traces_name_the_file_and_the_place(name, tmp_path):
    text, message = BAD[name]
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_trace(file)


def test_files_that_are_not_there_or_not_text(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_trace(tmp_path / "binary")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Workload.fixed(10, 10), "exactly one"),
        (lambda: Workload.fixed(10, 10, rate=1.0, concurrency=3), "exactly one"),
        (lambda: Workload.fixed(10, 10, rate=0.0), "rate=0.0"),
        (lambda: Workload.fixed(10, 10, rate=float("nan")), "rate=nan"),
        (lambda: Workload.fixed(10, 10, concurrency=0), "concurrency=0"),
        (lambda: Workload.fixed(0, 10, rate=1.0), "tokens=0"),
        (lambda: Workload(Fixed(1), Fixed(1), rate=1.0, cv=-1), "cv=-1"),
        (lambda: Workload.fixed(1, 1, rate=1.0).draw(0), "n=0"),
        (lambda: Lognormal(float("nan"), 1), "mean=nan"),
        (lambda: Uniform(5, 4), "high=4"),
        (lambda: Uniform.around(100, 0.0), "low_fraction"),
        (lambda: Empirical(()), "no lengths"),
        (lambda: Empirical.of([3, float("nan")]), r"lengths\[1\]=nan"),
        (lambda: SharedPrefix(100, 1.5), "share=1.5"),
        (lambda: Slo(ttft_s=0.0), "ttft_s=0"),
        (lambda: Slo(percentile=100), "percentile=100"),
        (lambda: Requests(np.zeros(0), np.zeros(0), np.zeros(0)), "without a request"),
        (lambda: Requests(np.zeros(2), np.ones(1), np.ones(2)), "as many of each"),
        (lambda: Requests(np.zeros(2), np.ones(2), np.ones(2)).at_rate(1.0), "one moment"),
    ],
)
def test_what_cannot_be_is_refused_by_name(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_prompts_over_the_context_limit_are_counted():
    requests = Requests(np.zeros(3), np.array([10, 200, 300]), np.array([5, 5, 5]))
    requests.check_context(305)
    with pytest.raises(ValueError, match=r"2 of 3 requests .* request 1 with 205"):
        requests.check_context(100)


def test_missed_promises_are_named():
    slo = Slo(ttft_s=1.0, tpot_s=0.05)
    assert slo.missed(0.9, 0.04) == ()
    assert slo.missed(1.1, float("nan")) == ("ttft", "tpot")
