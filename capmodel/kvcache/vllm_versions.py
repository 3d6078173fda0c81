"""What each vLLM version does with the cache, as far as it changes a printed number.

Dates of the changes, by vLLM's own pull requests:
0.7.2   entries of MLA aligned to 256 bytes (#12676), until 0.8.0 (#14842)
0.9.1   groups of layers with tables of their own (#17996); concurrency counts windows (#19029)
0.12.0  groups padded to the largest bucket if that is under 1.25 times the smallest (#29303)
0.18.0  the same below 1.5 times (#36684)
0.21.0  "GPU KV cache size" is concurrency x max_model_len (issue #43308 has both versions)
0.26.0  windows hold the tokens of every batch in flight, two with async scheduling (#47728)
0.28.0  prefix caching on for hybrid models, in align mode (#50991; opt-in still in 0.27.1)
"""

import re
from dataclasses import dataclass
from functools import lru_cache

NEWEST = (0, 28, 0)

_NUMBER = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?(x?)")


@dataclass(frozen=True, slots=True)
class VllmRules:
    """What one version does; see the module's list.

    grouped: layers of different kinds have tables of their own.
    prints: what "KV cache size" means: "blocks", "groups" (blocks // groups) or "concurrency".
    pad_ratio: buckets closer than this are padded to the largest; 1 = never.
    mla_alignment: [byte] an MLA entry is rounded up to.
    """

    version: tuple[int, int, int]
    grouped: bool
    prints: str
    pad_ratio: float
    mla_alignment: int
    batches_in_flight: int
    prefix_caching_hybrid: bool


@lru_cache(maxsize=256)
def vllm_rules(version: str | None) -> VllmRules:
    """The rules of `version`; None is the newest known here.

    "0.8.5 V0" is the first engine of that release, "0.20/0.21" the older of the two, "0.20+"
    something newer than 0.20, "0.1x" the oldest it may be. Raises ValueError for text without a
    version number.
    """
    number, first_engine = _parse(version)
    grouped = number >= (0, 9, 1) and not first_engine
    prints = "blocks"
    if grouped:
        prints = "concurrency" if number >= (0, 21, 0) else "groups"
    return VllmRules(
        version=number,
        grouped=grouped,
        prints=prints,
        pad_ratio=1.5 if number >= (0, 18, 0) else 1.25 if number >= (0, 12, 0) else 1.0,
        mla_alignment=256 if (0, 7, 2) <= number < (0, 8, 0) else 1,
        batches_in_flight=2 if number >= (0, 26, 0) else 1,
        prefix_caching_hybrid=number >= (0, 28, 0),
    )


def _parse(version: str | None) -> tuple[tuple[int, int, int], bool]:
    if version is None:
        return NEWEST, False
    found = _NUMBER.search(version)
    if found is None:
        raise ValueError(
            f"Got engine version {version!r}, but expected a number such as 0.11.0, or '0.8.5 V0'"
        )
    major, minor, patch, wildcard = found.groups()
    number = (int(major), int(minor), int(patch or 0))
    if wildcard and patch is None:  # 0.1x: one of 0.10 to 0.19
        number = (number[0], number[1] * 10, 0)
    if version[found.end() :].startswith("+"):
        number = (number[0], number[1] + 1, 0)
    first_engine = bool(re.search(r"\bV0\b", version)) or number < (0, 8, 0)
    return number, first_engine
