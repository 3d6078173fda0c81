"""The pages in a real browser: plan, share, calibrate, step through the lab, errors, phone.

Needs Chromium (Debian's) and the Python packages playwright and axe-playwright-python.
"""

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import capmodel as cm

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip("no Chromium here: apt-get install chromium", allow_module_level=True)

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
PLANNED = "#results[aria-busy=false]"
LONG = 90_000  # [ms]; the machine may be busy with other tests


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A service started as a user starts it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "capmodel", "serve", "--port", str(port), "--jobs", "1",
               "--prefix", "/cap"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as service:
        url = f"http://127.0.0.1:{port}/cap"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/healthz")
                break
            except OSError:
                assert service.poll() is None, service.communicate()[1]
                time.sleep(0.2)
        yield url
        service.terminate()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page that fails the test for an error in its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(LONG)
    opened = context.new_page()
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda line: said.append(line.text)
              if line.type == "error" and "status of 422" not in line.text else None)  # fmt: skip
    yield opened
    context.close()
    assert not said


def figures(page: Any) -> dict[str, str]:
    names = page.locator("#figures dt").all_inner_texts()
    return dict(zip(names, page.locator("#figures dd").all_inner_texts(), strict=True))


def test_plan_as_typed_share_and_download(page: Any, address: str, tmp_path: Path) -> None:
    page.goto(address + "/")
    page.wait_for_selector(PLANNED)
    page.fill("#model", "llama-3-8b")
    page.fill("#amount", "3")
    page.fill("#input_len", "700")
    page.wait_for_selector(PLANNED)
    own = cm.plan(
        "llama-3-8b", "h100-sxm", rate=3, input_len=700, output_len=200, slo_ttft_p95=2,
        slo_tpot_p95=0.08,
    ).to_dict()  # fmt: skip
    best = own["recommendation"]
    assert page.inner_text("#fleet") == f"{best['n_gpus']} × {best['gpu']}"
    assert own["message"] in page.inner_text("#message")
    assert "--rate 3" in page.inner_text("#command")
    assert "input_len=700" in page.inner_text("#python")

    shared = page.context.new_page()
    shared.goto(page.url)
    shared.wait_for_selector(PLANNED)
    assert shared.input_value("#model") == "llama-3-8b"
    assert figures(shared) == figures(page)
    shared.close()
    page.uncheck("#simulate")
    page.wait_for_selector(PLANNED)
    assert "simulate=0" in page.url

    for kind, start in (
        ("csv", b"status,gpu"),
        ("json", b'{\n  "schema_version"'),
        ("pdf", b"%PDF"),
    ):
        with page.expect_download() as started:
            page.click(f"#downloads [data-format={kind}]")
        target = tmp_path / started.value.suggested_filename
        started.value.save_as(target)
        assert target.read_bytes().startswith(start)


def test_the_python_call_and_the_command_run(page: Any, address: str) -> None:
    page.goto(
        address + "/?model=llama-3-8b&gpu=h100-sxm&load=concurrency&amount=16&input_len=300"
        "&output_len=90&length_cv=0.5&tp=1&weight_dtype=bf16&kv_dtype=fp8"
    )
    page.wait_for_selector(PLANNED)
    scope: dict[str, Any] = {}
    exec(page.inner_text("#python"), scope)
    said = page.inner_text("#message")
    assert scope["plan"].message in said
    words = page.inner_text("#command").replace("\\\n", " ").split()
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["message"] in said


def test_a_pasted_config_is_planned_and_shared(page: Any, address: str) -> None:
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
              "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 12,
              "intermediate_size": 5632, "vocab_size": 32000,
              "max_position_embeddings": 4096}  # fmt: skip
    page.goto(address + "/?gpu=h100-sxm&load=rate&amount=2&input_len=300&output_len=90")
    page.wait_for_selector(PLANNED)
    page.click("#own-model summary")
    page.fill("#config", json.dumps(config))
    page.wait_for_selector("#answer:not([hidden])")
    again = page.context.new_page()
    again.goto(page.url)
    again.wait_for_selector("#answer:not([hidden])")
    assert again.inner_text("#fleet") == "1 × h100-sxm"


def test_errors_name_the_field_and_go_away(page: Any, address: str) -> None:
    page.goto(
        address + "/?model=lama-3-8b&load=rate&amount=2&input_len=300&output_len=90&gpu=h100-sxm"
    )
    page.wait_for_selector(PLANNED)
    assert page.locator("#problem").is_visible()
    assert "llama-3-8b" in page.inner_text("#problem")
    assert page.get_attribute("#model", "aria-invalid") == "true"
    assert not page.locator("#answer").is_visible()
    page.fill("#model", "llama-3-8b")
    page.wait_for_selector("#answer:not([hidden])")
    page.wait_for_selector(PLANNED)
    assert not page.locator("#problem").is_visible()
    assert page.get_attribute("#model", "aria-invalid") is None


def test_a_problem_beside_its_field_does_not_name_it_again(page: Any, address: str) -> None:
    page.goto(address + "/?model=llama-3-8b&load=rate&amount=0&input_len=9&output_len=9")
    page.wait_for_selector(PLANNED)
    assert page.inner_text("#amount-wrong") == "expected a number greater than 0"


def test_a_gpu_nobody_knows_is_told_and_not_dropped(page: Any, address: str) -> None:
    page.goto(address + "/?model=llama-3-8b&gpu=h9000&load=rate&amount=1&input_len=9&output_len=9")
    page.wait_for_selector(PLANNED)
    assert "h9000" in page.inner_text("#problem")
    assert page.is_checked("input[name=gpu][value=h9000]")


def test_a_script_in_the_address_is_text(page: Any, address: str) -> None:
    page.goto(address + "/?model=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&tp=%22onfocus=x"
              "&load=rate&amount=1&input_len=9&output_len=9")  # fmt: skip
    page.wait_for_selector(PLANNED)
    assert page.input_value("#model") == '"><script>alert(1)</script>'
    assert page.locator("form script").count() == 0


def test_upload_calibrate_and_plan_with_it(page: Any, address: str, tmp_path: Path) -> None:
    runs = tmp_path / "mine.csv"
    cm.make_runs(n=120, seed=2).to_csv(runs, index=False)
    page.goto(address + "/calibrate")
    page.set_input_files("#file", runs)
    page.wait_for_selector("#answer:not([hidden])")
    assert figures(page)["Rows used"].startswith("1")
    assert page.locator("#pictures img").count() == 2
    assert all(page.evaluate("[...document.images].map((one) => one.naturalWidth > 0)"))
    with page.expect_download() as started:
        page.click("#save")
    target = tmp_path / "own.json"
    started.value.save_as(target)
    calibration = cm.load_calibration(target)
    assert page.inner_text("#name") == calibration.calibration_id
    with page.expect_navigation():
        page.click("#use")
    page.wait_for_selector(PLANNED)
    page.wait_for_selector("#answer:not([hidden])")
    assert calibration.calibration_id in page.inner_text("#own-calibration")
    assert figures(page)["Calibration"].startswith("mine")


def test_a_file_that_is_none_is_told(page: Any, address: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("a,b\n1,2\n", encoding="utf-8")
    page.goto(address + "/calibrate")
    page.set_input_files("#file", wrong)
    page.wait_for_selector("#problem:not([hidden])")
    assert "wrong.csv" in page.inner_text("#problem")


def number(text: str) -> int:
    return int(re.sub(r"[^\d]", "", text.split("\n")[0]))


def test_the_labs_counters_are_the_decoders(page: Any, address: str) -> None:
    page.goto(address + "/lab")
    page.wait_for_selector("#answer:not([hidden])")
    told = subprocess.run(
        [sys.executable, "-m", "capmodel", "lab", "steps", "--tokens", "24", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    own: Any = json.loads(told.stdout)["kinds"]
    assert page.locator("input[name=kind]").count() == len(own)
    for kind in own:
        page.check(f"input[name=kind][value={kind}]", force=True)
        for mode in ("cached", "uncached"):
            page.check(f"input[name=cache][value={mode}]", force=True)
            page.focus("#step")
            page.keyboard.press("Home")
            for step in range(1, 4):
                expected = own[kind][mode][step - 1]
                assert number(page.inner_text("#f-work")) == expected["flop"]
                assert number(page.inner_text("#f-total")) == expected["cumulative_flop"]
                assert number(page.inner_text("#f-read")) == expected["bytes_read"]
                assert number(page.inner_text("#f-computed")) == expected["tokens_computed"]
                page.click("#next")
    page.check("input[name=cache][value=cached]", force=True)
    page.select_option("#dtype", "fp32")
    step = number(page.inner_text("#step-of").split(" of ")[0])
    assert number(page.inner_text("#f-cache")) == own[kind]["cached"][step - 1]["cache_bytes"]
    assert "344 GB" in page.inner_text("#model-note")


def test_the_labs_blocks_share_a_prefix(page: Any, address: str) -> None:
    page.goto(address + "/lab")
    page.wait_for_selector("#answer:not([hidden])")
    shared = page.locator(".block").count(), page.locator(".block.shared").count()
    page.check("input[name=sharing][value=alone]", force=True)
    assert page.locator(".block.shared").count() == 0
    assert shared[1] > 0
    assert page.locator(".block").count() == shared[0]
    assert "the same" in page.inner_text("#paging-told")


def test_a_phone_shows_the_newest_cell(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True)
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(f"{address}/lab")
    page.wait_for_selector("#answer:not([hidden])")
    page.focus("#step")
    page.keyboard.press("End")
    newest = page.locator("#picture .cell").last.bounding_box()
    context.close()
    assert newest["width"] == pytest.approx(newest["height"], abs=1)
    assert newest["width"] > 6
    assert newest["x"] + newest["width"] < 360


@pytest.mark.parametrize("path", ["/", "/lab", "/calibrate"])
def test_a_phone_shows_all_without_scrolling_sideways(
    browser: Any, address: str, path: str
) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, is_mobile=True)
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(address + path)
    if path != "/calibrate":
        page.wait_for_selector("#answer:not([hidden])")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/lab", "/calibrate"])
def test_axe_finds_nothing_serious(browser: Any, address: str, path: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    context = browser.new_context(color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(LONG)
    page = context.new_page()
    page.goto(address + path)
    if path != "/calibrate":
        page.wait_for_selector("#answer:not([hidden])")
    if path == "/":
        page.wait_for_selector(PLANNED)
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    found = axe.Axe().run(page).response["violations"]
    serious = [
        (one["id"], one["help"], [node["html"][:120] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]
    assert not serious
    context.close()
