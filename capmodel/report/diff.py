"""Two plans side by side: what came out differently, which inputs differ, and why it follows."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from capmodel.report.fields import cell, fleet_name, label
from capmodel.units import format_dollars

Row = Mapping[str, Any]
# Cause -> where a plan records it.
_CAUSES = {
    "model": ("model",),
    "workload": ("workload",),
    "promises": ("slo",),
    "engine": ("engine", "engine_version"),
    "package": ("package_version",),
    "seed": ("seed",),
}
# Ledger lines that the causes above or the prices tell already.
_TOLD = {"load", "lengths", "step time", "price"}
_PARTS = ("gpu", "tp", "weight_dtype", "kv_dtype")


def compare_plans(before: Row, after: Row) -> dict[str, Any]:
    """What changed between two plans, and why.

    `results` and `causes` are rows of name, before, after (numbers raw, in the units of
    `plan.json`) and, for numbers, `change` as a fraction of before; causes carry their `cause`
    too. `why` are sentences that follow from both plans. `same` is whether nothing differs.
    """
    both = before["recommendation"] and after["recommendation"]
    outcome = _outcome if both else _feasibility
    results = list(_changed(outcome(before), outcome(after)))
    causes = list(_causes(before, after))
    return {
        "same": not results and not causes,
        "before": before["message"],
        "after": after["message"],
        "results": results,
        "causes": causes,
        "why": list(_why(before, after, results, causes)),
    }


def _feasibility(plan: Row) -> dict[str, Any]:
    return {"feasible": plan["feasible"]}


def _outcome(plan: Row) -> dict[str, Any]:
    best = plan["recommendation"]
    figures = {key: best[key] for key in (*_PARTS, "replicas", "n_gpus", "limited_by")}
    figures["prefill_replicas"] = best.get("prefill_replicas")
    figures["dollars_per_hour"] = best["dollars_per_hour"]["estimate"]
    figures |= {key: value for key, value in plan["costs"].items() if key.startswith("per_")}
    figures["load_share"] = best["estimate"]["utilisation"]
    figures |= {
        key: value["estimate"] for key, value in plan["latency"].items() if isinstance(value, dict)
    }
    figures["max_num_seqs"] = plan["clients"]["max_num_seqs"]
    figures["clients"] = plan["clients"]["clients"]
    return figures


def _causes(before: Row, after: Row) -> Iterator[dict[str, Any]]:
    for cause, keys in _CAUSES.items():
        for key in keys:
            yield from ({"cause": cause, **row} for row in _section(before, after, key))
    first, second = before["recommendation"], after["recommendation"]
    # What is recorded of a chosen fleet differs with the fleet; it is a cause only where that
    # part of the choice stayed.
    if first and second and first["gpu"] == second["gpu"]:
        changed = _changed(_prices(first), _prices(second))
        yield from ({"cause": "price", **row} for row in changed)
        changed = _section(before, after, "calibration")
        yield from ({"cause": "calibration", **row} for row in changed)
    if first and second and all(first[part] == second[part] for part in _PARTS):
        changed = _changed(_ledger(before), _ledger(after))
        yield from ({"cause": "assumption", **row} for row in changed)
    if before["feasible"] == after["feasible"]:
        changed = _changed({"simulated": before["simulated"]}, {"simulated": after["simulated"]})
        yield from ({"cause": "method", **row} for row in changed)
    read = ({e["name"]: e["sha256"] for e in plan.get("inputs") or ()} for plan in (before, after))
    yield from ({"cause": "files", **row} for row in _changed(*read))
    looked = (", ".join(sorted(_gpus(plan))) for plan in (before, after))
    yield from ({"cause": "candidates", **row} for row in _changed(*({"gpus": g} for g in looked)))


def _section(before: Row, after: Row, key: str) -> Iterator[dict[str, Any]]:
    first, second = before.get(key), after.get(key)
    if isinstance(first, dict) or isinstance(second, dict):
        yield from _changed(_scalars(first), _scalars(second))
    else:
        yield from _changed({key: first}, {key: second})


def _scalars(section: Any) -> dict[str, Any]:
    return {k: v for k, v in (section or {}).items() if not isinstance(v, dict | list)}


def _changed(before: Row, after: Row) -> Iterator[dict[str, Any]]:
    for key in dict.fromkeys((*before, *after)):
        first, second = before.get(key), after.get(key)
        if first != second:
            yield {"name": key, "before": first, "after": second, "change": _change(first, second)}


def _change(first: Any, second: Any) -> float | None:
    numbers = [isinstance(v, int | float) and not isinstance(v, bool) for v in (first, second)]
    return second / first - 1 if all(numbers) and first else None


def _prices(best: Row) -> dict[str, Any]:
    price = best["price_per_gpu_hour"]
    return {f"price of {best['gpu']}": price["estimate"], f"source, {best['gpu']}": price["source"]}


def _ledger(plan: Row) -> dict[str, Any]:
    lines = plan.get("assumptions") or ()
    return {row["what"]: row["value"] for row in lines if row["what"] not in _TOLD}


def _gpus(plan: Row) -> set[str]:
    rows = [*plan["alternatives"], *plan["rejected"]]
    rows += [plan["recommendation"]] if plan["recommendation"] else []
    return {row["gpu"] for row in rows}


def _why(
    before: Row, after: Row, results: list[dict[str, Any]], causes: list[dict[str, Any]]
) -> Iterator[str]:
    if results and not causes:
        yield "No input the plans record differs: look for what they do not record."
    if causes and not results:
        yield "The inputs differ, but nothing that was decided does."
    first, second = before["recommendation"], after["recommendation"]
    if first and second:
        yield from _money(first, second)
    if first and (second is None or any(first[part] != second[part] for part in _PARTS)):
        yield _fate("The first plan's choice", "the second", first, after)
    if second and (first is None or any(first[part] != second[part] for part in _PARTS)):
        yield _fate("The second plan's choice", "the first", second, before)
    kinds = {row["cause"] for row in causes}
    if "engine" in kinds and "calibration" in kinds:
        yield "Another engine may bring another calibration: it has measured rows of its own."
        kinds -= {"calibration"}
    # A file differs because what it holds does, and some assumptions follow from what was asked.
    kinds = kinds - {"files", "assumption"} or kinds
    if results and len(kinds) > 1:
        yield (
            f"Several inputs changed ({', '.join(sorted(kinds))}); plan again with one of them at "
            "a time to tell their effects apart."
        )


def _money(first: Row, second: Row) -> Iterator[str]:
    """The change in cost, split into GPUs (at the old price) and price (on the new GPUs)."""
    old, new = (row["price_per_gpu_hour"]["estimate"] for row in (first, second))
    few, many = first["n_gpus"], second["n_gpus"]
    gpus, price = (many - few) * old, (new - old) * many
    if not gpus and not price:
        return
    cheap, dear = told_apart(old, new, format_dollars)
    whole = f"The cost moves by {_signed(gpus + price)} an hour" if gpus + price else (
        "The cost stays, as two changes even out"
    )  # fmt: skip
    if not price:
        yield f"{whole}, all of it from {few} to {many} GPUs; a GPU-hour stays at {cheap}."
    elif not gpus:
        stay = f"the {few} GPUs stay" if few > 1 else "the one GPU stays"
        yield f"{whole}, all of it from {cheap} to {dear} a GPU-hour; {stay}."
    else:
        yield (
            f"{whole}: {_signed(gpus)} from {few} to {many} GPUs, {_signed(price)} from {cheap} "
            f"to {dear} a GPU-hour."
        )


def _signed(amount: float) -> str:
    return ("-" if amount < 0 else "+") + format_dollars(abs(amount))


def told_apart(first: float, second: float, show: Callable[[float], str]) -> tuple[str, str]:
    """Two figures as `show` prints them; with as many digits as tell them apart, where it does
    not."""
    texts = show(first), show(second)
    if texts[0] != texts[1] or first == second:
        return texts
    dollar = "$" if texts[0].startswith("$") else ""
    for digits in range(4, 18):
        longer = f"{first:,.{digits}g}", f"{second:,.{digits}g}"
        if longer[0] != longer[1]:
            return dollar + longer[0], dollar + longer[1]
    return texts


def _fate(whose: str, where: str, choice: Row, other: Row) -> str:
    """What the other plan says of this candidate."""
    name = f"{whose}, {choice['tp']} × {choice['gpu']} with {choice['weight_dtype']} weights"
    name += f" and {choice['kv_dtype']} cache,"
    for row in other["alternatives"]:
        if all(row[part] == choice[part] for part in _PARTS):
            return (
                f"{name} would cost {format_dollars(row['dollars_per_hour'])} an hour in {where}, "
                f"as {fleet_name(row)}."
            )
    for row in other["rejected"]:
        if all(row[part] == choice[part] for part in _PARTS):
            return f"{name} was set aside in {where}: {row['reason']}."
    return f"{name} was not among the candidates of {where}."


def shown(row: Row) -> tuple[str, str, str, str]:
    """A row of `results` or `causes` in words: name, before, after, change in percent."""
    key, before, after = row["name"], row["before"], row["after"]
    unit = "dollars" if key.startswith("price of") else key
    texts = cell(unit, before), cell(unit, after)
    if texts[0] == texts[1] and row["change"] is not None:
        # Too alike for the unit of the key: the raw figures, with the digits that differ.
        plain: Callable[[float], str] = "{:.4g}".format
        show = format_dollars if texts[0].startswith("$") else plain
        texts = told_apart(float(before), float(after), show)
    change = row["change"]
    percent = "" if change is None else f"{100 * change:+,.1f} %"
    if change and float(f"{100 * change:.1f}") == 0:
        percent = f"{100 * change:+.1g} %"
    return (key if row.get("cause") == "files" else label(key), *texts, percent)
