"""Starting weights of the lab's model: two circuits that training would find, but late.

Looking things up takes a head that looks one token back and, a layer on, a head that finds the
token after an earlier copy of the current one (an induction head; Olsson et al., 2022). From
random weights both appear only after thousands of steps; started roughly in place, they are
trained like everything else.
"""

import math

import torch
from torch import nn


@torch.no_grad()
def look_back(
    first: nn.Module,
    embedding: torch.Tensor,
    turns: torch.Tensor,
    distances: tuple[int, ...],
    constant: float = 3.0,
    bands: int = 6,
    strength: float = 7.0,
) -> None:
    """Head i of the layer `first` starts out attending `distances[i]` tokens back.

    One embedding element is made the same for all tokens, so keys and queries made from it do
    not depend on the token; turned by RoPE (`turns` [head_dim / 2], radians a token), their
    product peaks at one distance.
    """
    width, half = embedding.shape[1], len(turns)
    embedding[:, 0] = constant
    seen = constant / math.sqrt(1 + constant**2 / width)
    size = math.sqrt(strength * math.sqrt(2 * half)) / seen
    keys = first.k.weight.view(-1, 2 * half, width)
    keys[:, :, 0] = 0
    keys[:, :bands, 0] = size
    queries = first.q.weight.view(-1, 2 * half, width)
    for head, distance in enumerate(distances):
        queries[head, :, 0] = 0
        queries[head, :bands, 0] = size * torch.cos(distance * turns[:bands])
        queries[head, half : half + bands, 0] = -size * torch.sin(distance * turns[:bands])


@torch.no_grad()
def look_up(
    first: nn.Module,
    second: nn.Module,
    head_dim: int,
    copy: float = 2.0,
    gain: float = 3.0,
    slow: int = 8,
) -> None:
    """Head 0 of `second` starts out passing on the token after an earlier copy of the current one.

    In three subspaces P, R and S at right angles: head 0 of `first` copies P of the token it
    looks at into R. The query is made from P, the key from R, both in the `slow` pairs RoPE turns
    least, and what is found is copied from P into S, for the output to read.
    """
    width = first.q.weight.shape[1]
    token, before, found = _orthonormal(3 * head_dim, width).split(head_dim)
    mixing = torch.linalg.qr(torch.randn(head_dim, 2 * slow))[0].T
    half = head_dim // 2
    rows = [*range(half - slow, half), *range(head_dim - slow, head_dim)]
    for weight, source in ((second.q.weight, token), (second.k.weight, before)):
        weight[:head_dim] = 0
        weight[rows] = gain * (mixing @ source)
    for layer, target in ((first, before), (second, found)):
        layer.v.weight[:head_dim] = token
        layer.o.weight[:, :head_dim] = copy * target.T


def _orthonormal(rows: int, width: int) -> torch.Tensor:
    """[rows, width] orthonormal rows that leave out element 0, the constant one."""
    q = torch.linalg.qr(torch.randn(width - 1, rows))[0]
    return torch.cat([torch.zeros(rows, 1), q.T], 1)
