"""`predict`, `predict_step_time`, `StepTime` and calibration files."""

import copy
import json
import threading
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capmodel as cm
from capmodel.calibration import CalibrationError, fit
from capmodel.datasets import make_runs
from capmodel.evaluation import cross_validate, used_rows
from capmodel.loading import calibration_from, load_calibration
from capmodel.prediction import choose_calibration, shipped_calibrations, step_time

ASK = {"batch_size": 32, "context_len": 4096}


@pytest.fixture(scope="module")
def calibration():
    used = used_rows(make_runs(n=1500, seed=0))
    card = cross_validate(
        used, splits=["random", "model", "gpu"], estimators=["roofline", "regressor"]
    )  # fmt: skip
    return fit(used, name="generated", command="capmodel fit generated", grade_card=card)


def test_shipped_calibrations_name_their_rows_and_command() -> None:
    names = {own.name for own in shipped_calibrations()}
    assert names == {"argonne", "silicon"}
    for own in shipped_calibrations():
        assert own.n_rows > 4000
        assert own.command.startswith("capmodel fit ")
        assert own.sources
        assert own.scores["random"]["regressor"]["mape"] < 0.08


def test_scalars_and_arrays_agree() -> None:
    batches = np.array([1, 8, 64, 300])
    many = cm.predict_step_time("llama-3-8b", "h100", batch_size=batches, context_len=2000)
    each = [
        cm.predict_step_time("llama-3-8b", "h100", batch_size=int(b), context_len=2000)
        for b in batches
    ]
    assert isinstance(many, np.ndarray)
    assert isinstance(each[0], float)
    np.testing.assert_allclose(many, each, rtol=1e-9)  # BLAS sums in another order


def test_broadcast_over_tp() -> None:
    found = cm.predict(
        "llama-3-70b", "h100", batch_size=[[1], [32]], context_len=1024, tp=[1, 2, 4]
    )
    assert found.step_time_s.shape == (2, 3)
    one = cm.predict("llama-3-70b", "h100", batch_size=32, context_len=1024, tp=2)
    assert found.step_time_s[1, 1] == pytest.approx(one.step_time_s)
    assert found.fits[1].tolist() == [False, True, True]


def test_prediction_is_whole() -> None:
    found = cm.predict("llama-3-70b", "h100", tp=4, weight_dtype="fp8", **ASK)
    assert sum(found.terms.values()) == pytest.approx(found.step_time_s)
    assert set(found.terms) == {"weights", "kv", "compute", "fixed", "communication", "prefill"}
    assert found.low_s < found.step_time_s < found.high_s
    assert found.tokens_per_s == pytest.approx(32 / found.step_time_s)
    assert 0 < found.mbu < 1
    assert found.binding == max(found.terms, key=lambda name: found.terms[name])
    assert any("fp8" in reason for reason in found.extrapolation)  # Argonne's rows are fp16


def test_interval_in_the_thin_face() -> None:
    low, estimate, high = cm.predict_step_time("llama-3-8b", "h100", interval=0.9, **ASK)
    wider = cm.predict_step_time("llama-3-8b", "h100", interval=0.95, **ASK)
    assert wider[0] <= low < estimate < high <= wider[2]


def test_no_interval_is_invented() -> None:
    bare = fit(make_runs(n=400, seed=1), name="bare")
    with pytest.raises(ValueError, match="no interval"):
        cm.predict_step_time("llama-3-8b", "h100", calibration=bare, interval=0.9, **ASK)
    assert cm.predict("llama-3-8b", "h100", calibration=bare, **ASK).low_s is None


def test_precedence() -> None:
    assert choose_calibration("vllm", "h100-sxm").name == "argonne"
    assert choose_calibration("sglang", "h100-sxm").name == "silicon"
    assert choose_calibration(None, "b200-sxm").name == "silicon"
    unseen = cm.predict("llama-3-8b", "rtx-4090", **ASK)
    assert any("no rows of this engine" in reason for reason in unseen.extrapolation)


def test_rows_and_steps_agree(calibration) -> None:
    """The pandas path and the pandas-free path are two evaluations of one model."""
    rows = used_rows(make_runs(n=300, seed=9))
    whole = calibration.predict(rows)
    for place in range(0, 300, 37):
        row = rows.iloc[place]
        step = calibration.step_time(
            _shape(row), row["gpu"],
            tp=int(row["tp"]), weight_dtype=row["weight_dtype"], kv_dtype=row["kv_dtype"],
            engine=row["engine"],
        )  # fmt: skip
        asked = float(row["batch_size"]), float(row["batch_size"] * row["context_len"])
        # Kernel curves are kept at powers of two of batch and context, and read between them.
        at_anchor = all(np.log2(row[["batch_size", "context_len"]].astype(float)) % 1 == 0)
        near = 1e-9 if at_anchor else 0.03
        assert replace(step, rising=None).seconds(*asked) == pytest.approx(whole[place], rel=near)
        # What is asked for step by step rises in batch and context; rows are taken as they are.
        assert step.seconds(*asked) >= whole[place] * (1 - near)


def _shape(row: pd.Series):
    from capmodel.features import shape_of_row

    return shape_of_row(row.to_dict())


@settings(max_examples=50, deadline=None)
@given(batch=st.integers(1, 256), context=st.integers(16, 30_000), prompt=st.integers(0, 4096))
def test_step_time_laws(batch: int, context: int, prompt: int) -> None:
    step = step_time("llama-3-8b", "h100", method="roofline")
    base = step.seconds(batch, batch * context, prompt)
    assert base > 0
    assert step.seconds(batch, batch * (context + 100), prompt) >= base
    assert step.seconds(batch + 1, (batch + 1) * context, prompt) >= base
    assert step.seconds(batch, batch * context, prompt + 64) >= base


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "many", None])
def test_numbers_that_cannot_be(value: object) -> None:
    with pytest.raises(ValueError, match="batch_size"):
        cm.predict("llama-3-8b", "h100", batch_size=value, context_len=100)


def test_bad_arguments_are_named() -> None:
    for key, value, said in (
        ("method", "magic", "method"), ("weight_dtype", "fp9", "fp9"), ("tp", 1.5, "tp"),
        ("interval", 1.5, "interval"), ("calibration", "absent.json", "absent.json"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            cm.predict("llama-3-8b", "h100", **{**ASK, key: value})
    with pytest.raises(ValueError, match="bandwidth"):
        cm.predict("llama-3-8b", "sn40l", **ASK)
    with pytest.raises(ValueError, match="broadcast"):
        cm.predict("llama-3-8b", "h100", batch_size=[1, 2], context_len=[1, 2, 3])


def test_threads_agree() -> None:
    found: list[float] = []

    def ask() -> None:
        found.append(cm.predict_step_time("llama-3-8b", "h200", **ASK))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_a_calibration_survives_its_file(calibration, tmp_path) -> None:
    path = tmp_path / "own.json"
    calibration.save(path)
    again = load_calibration(path)
    assert again.calibration_id == calibration.calibration_id
    rows = used_rows(make_runs(n=200, seed=4))
    np.testing.assert_allclose(again.predict(rows), calibration.predict(rows), rtol=1e-5)
    assert [p.name for p in tmp_path.iterdir()] == ["own.json"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda c: json.dumps(c)[:500], "not whole JSON"),
        (lambda c: json.dumps({"a": 1}), "no capmodel calibration"),
        (lambda c: json.dumps(c | {"version": 99}), "version 99"),
        (lambda c: json.dumps(c | {"terms": ["c_w"]}), "other terms"),
        (lambda c: json.dumps({k: v for k, v in c.items() if k != "levels"}), "levels"),
        (lambda c: json.dumps(c | {"levels": []}), "pooled level"),
    ],
)
def test_spoiled_files_are_refused_by_name(calibration, tmp_path, spoil, said: str) -> None:
    path = tmp_path / "spoiled.json"
    path.write_text(spoil(calibration.to_dict()))
    with pytest.raises(CalibrationError, match=said) as caught:
        load_calibration(path)
    assert "spoiled.json" in str(caught.value)


JUNK = (None, True, "x", "nan", -1, float("nan"), float("inf"), 10**400, [], {}, [[1]])


def _places(node: object, before: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Where each kind of value of a file stands; of a list the last entry stands for all."""
    inner = list(node.items()) if isinstance(node, dict) else []
    inner += [(len(node) - 1, node[-1])] if isinstance(node, list) and node else []
    return [before, *(place for key, value in inner for place in _places(value, (*before, key)))]


def _with(content: dict, place: tuple, value: object) -> dict:
    """`content` with another value at a place; what is not on the way there is shared."""
    top = node = copy.copy(content)
    for key in place[:-1]:
        node[key] = copy.copy(node[key])
        node = node[key]
    node[place[-1]] = value
    return top


@pytest.fixture(scope="module")
def small_file() -> dict:
    """A calibration file's content, one of each kind of entry."""
    measured, composed = (one.to_dict() for one in shipped_calibrations())
    levels = {len(own["level"]): own for own in measured["levels"]}
    curves = [own | {"kinds": own["kinds"][:1]} for own in composed["curves"][:1]]
    small = {"scores": {}, "evidence": {}, "levels": list(levels.values()), "curves": curves}
    small |= {name: measured[name][-1:] for name in ("corrections", "coverage")}
    return json.loads(json.dumps(measured | small))


def test_any_wrong_value_of_a_file_is_refused_or_harmless(small_file) -> None:
    """What is read despite a wrong value predicts finite seconds and bounds about them."""
    pair = {name: small_file["coverage"][0][name] for name in ("engine", "gpu")}
    ask = {**pair, "batch_size": [1, 4096], "context_len": [100, 90_000], "interval": 0.9}
    said: list[str] = []
    for place in _places(small_file)[1:]:
        for junk in JUNK:
            try:
                found = calibration_from(_with(small_file, place, junk), "spoiled.json")
            except CalibrationError as error:
                said.append(str(error))
                continue
            step = cm.predict("llama-3-8b", calibration=found, **ask)
            assert np.isfinite(step.step_time_s).all(), (place, junk)
            if step.low_s is not None:
                assert (step.low_s <= step.step_time_s).all(), (place, junk)
                assert (step.step_time_s <= step.high_s).all(), (place, junk)
                assert np.isfinite(step.high_s).all(), (place, junk)
    assert len(said) > 300
    assert all(line.startswith("spoiled.json") and len(line.splitlines()) == 1 for line in said)
    assert max(map(len, said)) < 400


@pytest.mark.parametrize(
    ("place", "spoil"),
    [
        (("coverage",), lambda own: [*own, *own]),
        (("levels",), lambda own: [*own, own[0]]),
        (("corrections",), lambda own: [*own, *own]),
        (("intervals",), lambda own: [*own, own[0]]),
        (("coverage", 0, "deployments"), lambda own: [*own, own[0]]),
        (("coverage", 0, "deployments", 0), lambda own: [*own[:5], 1e9, *own[6:]]),
        (("coverage", 0, "deployments", 0), lambda own: own[:7]),
        (("coverage", 0, "batch_range"), lambda own: own[::-1]),
        (("corrections", 0, "range"), lambda own: [1.0, -1.0]),
        (("corrections", 0, "weights"), lambda own: own[1:]),
        (("intervals", 0, "levels"), lambda own: [0.1, *own[1:]]),
        (("intervals", 0, "log_factors", 0), lambda own: [0.2, 0.1]),
        (("levels", 0, "values", 0), lambda own: -1e-9),
        (("levels", 1, "identified"), lambda own: own[1:]),
        (("levels", 1, "standard_errors"), lambda own: own[1:]),
        (("levels", 1, "level"), lambda own: "vllm"),
    ],
)
def test_files_that_contradict_themselves_are_refused(small_file, place, spoil) -> None:
    value = small_file
    for key in place:
        value = value[key]
    with pytest.raises(CalibrationError, match=r"f\.json"):
        calibration_from(_with(small_file, place, spoil(value)), "f.json")
    calibration_from(small_file, "f.json")


@pytest.mark.parametrize("path", [5, None, b"x", "", "a\0b", "no/such/folder/x.json", "."])
def test_paths_that_cannot_be_are_refused(calibration, path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (load_calibration, calibration.save):
        with pytest.raises(CalibrationError):
            use(path)
    assert not list(tmp_path.iterdir())


def test_rows_in_any_spelling_are_the_same_rows() -> None:
    """A table that was built in Python, with the names a user would write."""
    plain = make_runs(n=60, seed=4).assign(
        gpu="b200-sxm", engine="tensorrt-llm", model="llama-3-8b"
    )
    spelled = plain.assign(gpu="b200", engine="TRTLLM", model="meta-llama/Meta-Llama-3-8B")
    one, other = fit(plain), fit(spelled)
    assert one.calibration_id == other.calibration_id
    assert one.pairs == (("tensorrt-llm", "b200-sxm"),)
    assert (one.predict(spelled) == one.predict(plain)).all()
    shipped = shipped_calibrations()[-1]
    for left, right in zip(
        shipped.interval_factors(spelled), shipped.interval_factors(plain), strict=True
    ):
        assert (left == right).all()


@pytest.mark.parametrize("coverage", [0, 1, np.nan, "x", True])
def test_a_coverage_of_rows_is_a_share(calibration, coverage) -> None:
    with pytest.raises(ValueError, match="coverage"):
        calibration.interval_factors(make_runs(n=20, seed=4), coverage=coverage)


def test_tables_without_rows() -> None:
    none = make_runs(n=20, seed=4).iloc[:0]
    for shipped in shipped_calibrations():
        assert shipped.predict(none).shape == (0,)
        assert shipped.interval_factors(none)[0].shape == (0,)
        with pytest.raises(ValueError, match="without rows"):
            shipped.adapt(none)


def test_intervals_never_shrink_with_novelty(calibration) -> None:
    found = calibration.intervals.quantiles
    for method in ("roofline", "regressor"):
        widths = [
            [high - low for low, high in found[method, kind, "", ""]]
            for kind in ("known", "model", "gpu")
        ]
        assert all(a <= b <= c for a, b, c in zip(*widths, strict=True))
        for (own_method, novelty, engine, gpu), own in found.items():
            if own_method == method and novelty == "model" and engine:
                known = found.get((method, "known", engine, gpu), found[method, "known", "", ""])
                assert all(m[0] <= k[0] and m[1] >= k[1] for m, k in zip(own, known, strict=True))


def test_a_tp_that_cannot_split_the_heads_is_refused_at_once() -> None:
    for tp in (3, 10**15):
        with pytest.raises(ValueError, match="tp="):
            cm.predict("llama-3-70b", "h100", tp=tp if tp < 10**12 else 10**11, **ASK)
    with pytest.raises(ValueError, match="use 4, 8, 16, 32"):
        cm.max_concurrency("llama-3-8b", "h100", 1000, tp=10**15)


class TestRises:
    """No prediction says that more sequences or a longer context are faster."""

    GRID = 2.0 ** np.arange(0, 12)

    @pytest.mark.parametrize(
        ("model", "gpu", "engine"),
        [
            ("llama-3-8b", "mi300x", "vllm"),  # rows without a clean decode step at batch 1
            ("mistral-7b-v0.1", "mi300x", "vllm"),
            ("qwen3-0.6b", "l40s", "vllm"),
            ("qwen2-7b", "max-1550", "vllm"),
        ],
    )
    @pytest.mark.parametrize("tp", [1, 2])
    def test_in_batch_and_context(self, model: str, gpu: str, engine: str, tp: int) -> None:
        batch, context = np.meshgrid(self.GRID, 2.0 ** np.arange(7, 17), indexing="ij")
        seconds = np.asarray(cm.predict_step_time(
            model, gpu, engine=engine, tp=tp, batch_size=batch, context_len=context
        ))  # fmt: skip
        assert (seconds[1:] >= seconds[:-1] * 0.999).all()
        assert (seconds[:, 1:] >= seconds[:, :-1] * 0.999).all()

    def test_between_the_anchors_to_five_percent(self) -> None:
        batch = np.arange(1, 513)
        for context in (300.0, 700.0, 1500.0, 5000.0):
            seconds = np.asarray(cm.predict_step_time(
                "llama-3-8b", "mi300x", engine="vllm", batch_size=batch, context_len=context
            ))  # fmt: skip
            assert (seconds >= np.maximum.accumulate(seconds) * 0.95).all()

    def test_one_step_and_many_agree(self) -> None:
        batch, context = [1, 2, 3, 48, 700], [100, 900, 3000, 20_000, 70_000]
        many = np.asarray(cm.predict_step_time(
            "llama-3-8b", "mi300x", engine="vllm", batch_size=batch, context_len=context
        ))  # fmt: skip
        for size, length, seconds in zip(batch, context, many, strict=True):
            one = cm.predict_step_time(
                "llama-3-8b", "mi300x", engine="vllm", batch_size=size, context_len=length
            )
            assert one == pytest.approx(seconds, rel=1e-9)


def test_no_step_beats_the_peak() -> None:
    """The pooled fit has no compute term of its own; the peak still holds."""
    batch = 2.0 ** np.arange(0, 20)
    for gpu in ("gb200", "b200-sxm", "h100-sxm"):
        for method in ("roofline", "regressor"):
            found = cm.predict(
                "llama-3-8b", gpu, batch_size=batch, context_len=128, method=method, engine="sglang"
            )
            assert (np.asarray(found.mfu) <= 1.0 + 1e-9).all()
            assert (np.asarray(found.mbu) <= 1.0 + 1e-9).all()


def test_a_prompt_attends_to_itself_and_not_to_the_decoders() -> None:
    step = step_time("llama-3-8b", "h100-sxm", engine="vllm", method="roofline")
    alone = step.seconds(0, 0, 2048, 8192) - step.seconds(0, 0, 2048)
    beside_short = step.seconds(8, 8 * 100, 2048, 8192) - step.seconds(8, 8 * 100, 2048)
    beside_long = step.seconds(8, 8 * 9000, 2048, 8192) - step.seconds(8, 8 * 9000, 2048)
    assert alone > 0
    assert beside_short == pytest.approx(alone)
    assert beside_long == pytest.approx(alone)


def test_a_calibration_keeps_what_a_reader_asks_for(calibration, tmp_path) -> None:
    """Residuals, the noise floor and rows set aside go with the file, for the plan's card."""
    calibration.save(tmp_path / "kept.json")
    kept = load_calibration(tmp_path / "kept.json").evidence
    assert len(kept["residuals"]["measured_s"]) == len(kept["residuals"]["group"]) == 300
    missed = np.array(kept["residuals"]["predicted_s"]) / kept["residuals"]["measured_s"] - 1
    assert np.abs(missed).mean() == pytest.approx(
        calibration.scores["random"]["regressor"]["mape"], rel=0.5
    )
    assert set(kept) >= {"noise_floor_mape", "absent_splits"}


def test_a_calibration_s_name_is_a_text_on_one_line() -> None:
    rows = used_rows(make_runs(n=60, seed=0))
    assert fit(rows, name="two\nlines").name == r"two\nlines"
    for name in (5, "", None):
        with pytest.raises(ValueError, match="Got name="):
            fit(rows, name=name)  # type: ignore[arg-type]


def test_an_intervals_lower_end_is_not_below_the_floor() -> None:
    """From a few tokens to far beyond all rows, where bounds are widest."""
    for engine, gpu in (("llama.cpp", "h100-sxm"), ("vllm", "a100-40gb-sxm")):
        batch, context = np.meshgrid([1, 32, 256], [64, 8192, 65_536])
        found = cm.predict("llama-3-8b", gpu, engine=engine, batch_size=batch, context_len=context,
                           interval=0.99)  # fmt: skip
        card = cm.load_gpu(gpu)
        read = cm.weight_bytes("llama-3-8b") + batch * context * cm.kv_bytes_per_token("llama-3-8b")
        floor = 0.9 * read / card.bandwidth_bytes_per_s  # input embeddings are not read
        assert (found.low_s >= floor).all()
        assert (found.low_s <= found.step_time_s).all()
