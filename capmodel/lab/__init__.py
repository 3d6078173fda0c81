"""A small decoder in NumPy: an independent check of the cache arithmetic.

Nothing here reads the KV formulas of `capmodel.kvcache`; bytes come from the arrays
themselves, and `proof` and the tests hold the two against each other.
"""

from capmodel.lab.cache import KVCache
from capmodel.lab.config import ToyConfig, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder

__all__ = ["Counters", "KVCache", "ToyConfig", "ToyDecoder", "make_config"]
