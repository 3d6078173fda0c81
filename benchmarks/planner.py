"""The planner measured: published claims, accuracy on serving runs, speed.

python benchmarks/planner.py claims --trace conv.csv
python benchmarks/planner.py accuracy --runs measured_serving_runs.csv [--every 8]
python benchmarks/planner.py speed --trace conv.csv
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pandas as pd


def claims(arguments: argparse.Namespace) -> None:
    """The table of published figures beside ours."""
    from planner_claims import StepRates, azure_within, cache_claims, deepseek_claim, sharegpt_like

    from capmodel.planner.main import Shipped

    calibration = Shipped()
    found = cache_claims(calibration, "llama-13b", "a100-40gb-sxm", sharegpt_like(), 2048)
    if arguments.trace:
        azure = azure_within(arguments.trace, 4096)
        found += cache_claims(calibration, "llama-2-13b", "a100-40gb-sxm", azure, 4096)
    found += [deepseek_claim(StepRates(), context) for context in (1000, 3000)]
    for claim in found:
        print(f"\n{claim.claim}\n  where      {claim.setting}")
        print(
            f"  published  {claim.published}\n  ours       {claim.ours}\n  why        {claim.why}"
        )


def accuracy(arguments: argparse.Namespace) -> None:
    """TPOT and TTFT by simulation on deployments that were not fitted."""
    from planner_accuracy import by_group, evaluate, of_all, scores

    for seed in range(arguments.seeds):
        rows = evaluate(arguments.runs, every=arguments.every, spread=arguments.spread, seed=seed)
        print(f"\nfolds drawn with seed {seed}")
        print(scores(rows).round(3).to_string(index=False), flush=True)
    print("\nby engine and GPU (last draw of the folds)")
    print(by_group(rows).round(3).to_string(), flush=True)
    print(
        "\nprompts and front ends of all rows, and whether runs of one length marched in lockstep"
    )
    for told in of_all(arguments.runs, arguments.every, arguments.spread):
        print(*told)


def speed(arguments: argparse.Namespace) -> None:
    """Seconds of wall clock and of this process."""
    import capmodel as cm
    from capmodel.simulation import Server, simulate
    from capmodel.workload import read_trace

    trace = read_trace(arguments.trace)
    promises = {"slo_ttft_p95": 2.0, "slo_tpot_p95": 0.05}
    three = ["h100", "h200", "a100-80gb"]
    server = None
    for name, gpu, simulated in (
        ("3 GPUs, simulated", three, True),
        ("3 GPUs", three, False),
        ("8 GPUs", [*three, "b200", "l40s", "a100-40gb-sxm", "mi300x", "gaudi3"], False),
        ("catalogue", None, False),
        ("catalogue, simulated", None, True),
    ):
        cm.plan("llama-3-70b", gpu, trace=trace, simulate=False, **promises)
        plan = _timed(
            f"plan, {name}",
            lambda gpu=gpu, simulated=simulated: cm.plan(
                "llama-3-70b", gpu, trace=trace, simulate=simulated, **promises
            ),
        )
        print(f"    {len(plan.options) + len(plan.rejections)} candidates: {plan.message}")
        server = server or plan.chosen.replica.server(False, plan.demand.longest)
    if isinstance(server, Server):
        within = trace.within_context(8192)
        _timed(
            f"simulation of {len(within):,} requests on 8 replicas",
            lambda: simulate(within, server, replicas=8),
        )


def _timed(name: str, run: Callable[[], object]) -> object:
    wall, own = time.perf_counter(), time.process_time()
    result = run()
    print(f"{name}: {time.perf_counter() - wall:.2f} s wall, {time.process_time() - own:.2f} s CPU")
    return result


def main() -> None:
    """Parse and run one of the three."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["claims", "accuracy", "speed"])
    parser.add_argument("--trace", help="Azure's conversation trace")
    parser.add_argument("--runs", help="AIConfigurator's sample of measured serving runs")
    parser.add_argument("--every", type=int, default=1, help="take every n-th row")
    parser.add_argument("--spread", type=float, default=0.1, help="lengths vary by this share")
    parser.add_argument("--seeds", type=int, default=1, help="draws of the folds")
    arguments = parser.parse_args()
    needed = {"accuracy": "runs", "speed": "trace"}.get(arguments.what)
    if needed and not Path(str(getattr(arguments, needed))).is_file():
        parser.error(f"{arguments.what} needs --{needed} with a file")
    warnings.simplefilter("ignore")
    pd.set_option("display.width", 200)
    {"claims": claims, "accuracy": accuracy, "speed": speed}[arguments.what](arguments)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
