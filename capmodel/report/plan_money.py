"""What a plan costs: an hour, a million tokens, against an API, in energy."""

from collections.abc import Mapping
from typing import Any

from capmodel.report.document import Block, Column, Pairs, Table, Text
from capmodel.report.fields import cell, pairs
from capmodel.report.numbers import number
from capmodel.units import format_dollars

Row = Mapping[str, Any]


def money_blocks(plan: Row) -> list[Block]:
    """Cost an hour and a million tokens, the load from which an API is dearer, energy."""
    best, costs, price = plan["recommendation"], plan["costs"], _price(plan)
    cost = best["dollars_per_hour"]
    rows = [
        (
            "The fleet, an hour",
            *(format_dollars(cost[end]) for end in ("low", "estimate", "high")),
        ),
        ("One GPU, an hour", *(format_dollars(price[end]) for end in ("low", "estimate", "high"))),
    ]
    kind = "given for this plan" if price["given"] else f"not given; from {price['source']}"
    blocks: list[Block] = [
        Table(
            f"Cost. The price of a GPU was {kind}. Low and high combine the price's range with the "
            "step time's.",
            (Column(""), Column("Low", True), Column("Estimate", True), Column("High", True)),
            tuple(rows),
        ),
        Text("", lead="At the mean load."),
        Pairs(pairs(costs, "capacity_per_s")),
    ]
    if costs.get("capacity_per_s") is not None:
        promised = any(plan["slo"].get(f"{name}_s") is not None for name in ("ttft", "tpot", "e2e"))
        blocks.append(
            Text(
                f"{number(costs['capacity_per_s'])} requests a second"
                + (" within the promises." if promised else ", whatever their latency."),
                lead="The most this fleet carries.",
            )
        )
    if plan["break_even"]:
        blocks.append(
            Table(
                "Where the fleet costs as much as an API that bills every token alike; above that "
                "load the fleet is cheaper.",
                (
                    Column("API price [$/M tokens]", True),
                    Column("Requests a second", True),
                    Column("Million tokens a day", True),
                    Column("Within this fleet"),
                ),
                tuple(
                    (
                        cell("api_price", row["api_price"]),
                        number(row["requests_per_s"]),
                        cell("tokens_per_day", row["tokens_per_day"]),
                        cell("", row["reachable"]),
                    )
                    for row in plan["break_even"]
                ),
            )
        )
    if plan["energy"]:
        blocks += [
            Text("Every GPU at its rated power all the time.", lead="Energy, at most."),
            Pairs(pairs(plan["energy"])),
        ]
    return blocks


def _price(plan: Row) -> Row:
    price: Row = plan["recommendation"]["price_per_gpu_hour"]
    return price
