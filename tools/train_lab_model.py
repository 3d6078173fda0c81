"""Train the lab's small language model and write `data/lab_model.npz`.

    apt-get download bible-kjv bible-kjv-text          # Debian; public-domain text
    for f in bible-kjv*.deb; do dpkg -x $f kjv; done
    (cd kjv/usr/lib && ../bin/bible -f -p $PWD gen1:1-rev22:21) > kjv.txt
    pip install -e '.[train]'
    python tools/train_lab_model.py kjv.txt --minutes 16

PyTorch on one CPU thread. The text is cut into whole books; HELD_OUT is never trained on, and
its words never reach the tokenizer's merges. `--baseline` prints the n-gram baselines only.
"""

import argparse
import hashlib
import json
import math
import re
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from lab_ngram import best_ngram
from lab_start import look_back, look_up
from torch import nn

from capmodel.lab.retrieval import make_copies, make_retrieval
from capmodel.lab.tokenizer import SPECIALS, Tokenizer, merge_pair, split_words

HELD_OUT = ("Ruth", "Est", "Jonah", "Phi", "Jas", "1Jn")
N_VOCAB, LENGTH = 1024, 256
N_LAYERS, WIDTH, N_HEADS, N_KV_HEADS, HEAD_DIM, MLP = 3, 128, 4, 2, 32, 352
ROPE_BASE = 100_000.0
LOOK_BACK = (1, 2, 3)
ANSWER_WEIGHT = 1.5
# Rows that are text, questions right after their facts, questions far from them, and copies.
SHARES = (0.78, 0.08, 0.11, 0.03)


def read_books(path: Path) -> dict[str, str]:
    """Text of each book, one verse a line, from `Ge1:1 In the beginning ...` lines."""
    books: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        match = re.match(r"(.+?)\d+:\d+ (.*)$", line)
        if match is None:
            raise ValueError(f"Got line {line[:40]!r}, but expected a verse such as 'Ge1:1 In the'")
        books.setdefault(match.group(1), []).append(match.group(2))
    missing = [name for name in HELD_OUT if name not in books]
    if missing:
        raise ValueError(f"Got no book {missing[0]!r} in {path}, but expected all of {HELD_OUT}")
    return {name: "\n".join(verses) + "\n" for name, verses in books.items()}


def learn_tokenizer(text: str, alphabet: str) -> Tokenizer:
    """Most frequent pair first, inside words, until the vocabulary is full."""
    counts = Counter(split_words(text))
    words = {word: [alphabet.index(character) for character in word] for word in counts}
    merges: list[tuple[int, int]] = []
    pairs: Counter[tuple[int, int]] = Counter()
    for word, ids in words.items():
        count_pairs(pairs, ids, counts[word])
    while len(alphabet) + len(merges) + len(SPECIALS) < N_VOCAB:
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        for word, ids in words.items():
            if best[0] in ids and best[1] in ids:
                words[word] = merge_pair(ids, best, len(alphabet) + len(merges))
                count_pairs(pairs, ids, -counts[word])
                count_pairs(pairs, words[word], counts[word])
        merges.append(best)
    return Tokenizer(alphabet, tuple(merges))


def count_pairs(pairs: Counter[tuple[int, int]], ids: list[int], times: int) -> None:
    """Add `times` for each neighbouring pair of `ids`."""
    for pair in pairwise(ids):
        pairs[pair] += times


class Block(nn.Module):
    """RMSNorm, grouped-query attention with RoPE, RMSNorm, gated MLP: Llama's block."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.mlp_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.q = nn.Linear(WIDTH, N_HEADS * HEAD_DIM, bias=False)
        self.k = nn.Linear(WIDTH, N_KV_HEADS * HEAD_DIM, bias=False)
        self.v = nn.Linear(WIDTH, N_KV_HEADS * HEAD_DIM, bias=False)
        self.o = nn.Linear(N_HEADS * HEAD_DIM, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, MLP, bias=False)
        self.up = nn.Linear(WIDTH, MLP, bias=False)
        self.down = nn.Linear(MLP, WIDTH, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x [batch, length, width]."""
        batch, length, _ = x.shape
        y = self.attention_norm(x)
        q = self.q(y).view(batch, length, N_HEADS, HEAD_DIM).transpose(1, 2)
        k = self.k(y).view(batch, length, N_KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.v(y).view(batch, length, N_KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        repeats = N_HEADS // N_KV_HEADS
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, -1))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """Decoder; the output matrix is its own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(N_VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(N_LAYERS))
        self.final_norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.register_buffer("turns", ROPE_BASE ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        angles = torch.outer(torch.arange(LENGTH), self.turns)
        self.register_buffer("cos", torch.cat([angles.cos()] * 2, 1))
        self.register_buffer("sin", torch.cat([angles.sin()] * 2, 1))
        nn.init.normal_(self.embedding.weight, std=1.0)
        self.head = nn.Linear(WIDTH, N_VOCAB, bias=False)
        for name, weight in self.named_parameters():
            if name.startswith("head"):
                nn.init.zeros_(weight)
            elif weight.ndim == 2 and not name.startswith("embedding"):
                scale = 0.5 if name.endswith(("o.weight", "down.weight")) else 1.0
                nn.init.normal_(weight, std=scale / math.sqrt(weight.shape[1]))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits [batch, length, vocab] of tokens [batch, length]."""
        length = tokens.shape[1]
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return self.head(self.final_norm(x))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE in halves, as Llama stores it."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], -1) * sin


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal by five Newton-Schulz steps (Jordan, 2024)."""

    def __init__(self, params: list[torch.Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of every matrix from its gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("buffer", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(buffer, group["momentum"])
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                x = x.T if tall else x
                p.add_(x, alpha=-group["lr"] * max(1.0, p.shape[0] / p.shape[1]) ** 0.5)


def text_windows(text: np.ndarray, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Windows of LENGTH + 1 tokens: epoch after epoch, cut from another offset, shuffled."""
    while True:
        offset = int(rng.integers(0, LENGTH))
        starts = np.arange(offset, len(text) - LENGTH - 1, LENGTH)
        for start in rng.permutation(starts):
            yield text[start : start + LENGTH + 1]


def training_batch(
    tokenizer: Tokenizer,
    text: np.ndarray,
    windows: Iterator[np.ndarray],
    rows: int,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """tokens [rows, LENGTH + 1] and loss weights [rows, LENGTH]; each row is of one kind.

    An answer weighs as much as ANSWER_WEIGHT tokens of text.
    """
    tokens, weights = [], []
    for kind in rng.choice(4, size=rows, p=SHARES):
        seed = int(rng.integers(2**31))
        if kind == 0:
            tokens.append(next(windows)[None])
            weights.append(np.ones((1, LENGTH + 1)))
            continue
        if kind == 3:
            made = make_copies(tokenizer, text, 1, LENGTH + 1, seed)
        else:
            far = kind == 2
            n_facts = int(rng.integers(4, 25 if far else 29))
            before = int(rng.integers(0, 48)) if far else 0
            room = LENGTH - 1 - before - 2 * n_facts
            n_questions = int(rng.integers(8, 25)) if far else room // 2
            made = make_retrieval(
                tokenizer, text, 1, LENGTH + 1, n_facts, n_questions, before, seed
            )  # fmt: skip
        tokens.append(made.tokens)
        weights.append(ANSWER_WEIGHT * made.answers + made.text)
    return (
        torch.from_numpy(np.concatenate(tokens).astype(np.int64)),
        torch.from_numpy(np.concatenate(weights)[:, :-1].astype(np.float32)),
    )


@torch.no_grad()
def grade(
    model: nn.Module, tokenizer: Tokenizer, held_out: np.ndarray
) -> tuple[float, float, float]:
    """Mean loss [nat/token] on held-out windows; answers right when facts are far, and near."""
    n = (len(held_out) - 1) // LENGTH
    x = torch.from_numpy(held_out[: n * LENGTH].reshape(n, LENGTH))
    y = torch.from_numpy(held_out[1 : n * LENGTH + 1].reshape(n, LENGTH))
    losses = [
        F.cross_entropy(model(a).flatten(0, 1), b.flatten()).item() * len(a)
        for a, b in zip(x.split(16), y.split(16), strict=True)
    ]
    shares = []
    for n_questions, before in ((8, 16), (111, 0)):
        made = make_retrieval(tokenizer, held_out, 16, LENGTH, 16, n_questions, before, seed=1)
        guesses = model(torch.from_numpy(made.tokens)).argmax(-1)[:, :-1].numpy()
        right = guesses == made.tokens[:, 1:]
        shares.append(float(right[made.answers[:, :-1]].mean()))
    return sum(losses) / n, shares[0], shares[1]


def train(
    tokenizer: Tokenizer, text: np.ndarray, held_out: np.ndarray, minutes: float, rows: int
) -> tuple[Model, dict[str, float]]:
    """Train for `minutes` of CPU time; the learning rate follows that clock down to zero."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    windows = text_windows(text, rng)
    model = Model()
    look_back(model.blocks[0], model.embedding.weight, model.turns, LOOK_BACK)
    look_up(model.blocks[0], model.blocks[1], HEAD_DIM)
    named = dict(model.named_parameters())
    matrices = [p for name, p in named.items() if name.startswith("blocks") and p.ndim == 2]
    norms = [p for p in named.values() if p.ndim == 1]
    optimizers: list[torch.optim.Optimizer] = [
        Muon(matrices, lr=0.02),
        torch.optim.Adam([named["embedding.weight"]], lr=0.05, betas=(0.9, 0.95)),
        torch.optim.Adam([named["head.weight"]], lr=0.006, betas=(0.9, 0.95)),
        torch.optim.Adam(norms, lr=3e-3, betas=(0.9, 0.95)),
    ]
    peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
    start, step, logged = time.process_time(), 0, 0.0
    while (elapsed := time.process_time() - start) < 60 * minutes:
        done = elapsed / (60 * minutes)
        scale = min(1.0, (step + 1) / 50) * min(1.0, (1 - done) / 0.6)
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * scale
        tokens, weights = training_batch(tokenizer, text, windows, rows, rng)
        logits = model(tokens[:, :-1])
        losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        loss = (losses * weights.flatten()).sum() / weights.sum()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        if elapsed - logged > 60:
            logged = elapsed
            nats, far, near = grade(model, tokenizer, held_out[: 16 * LENGTH + 1])
            print(
                f"{elapsed:5.0f} s step {step:5d} train {loss.item():.3f} held-out {nats:.3f} "
                f"retrieval {far:.3f} near {near:.3f}",
                flush=True,
            )
    return model, {"steps": step, "cpu_minutes": minutes, "tokens": step * rows * LENGTH}


def export(model: Model, tokenizer: Tokenizer, held_out: str, facts: dict, path: Path) -> None:
    """Write float16 matrices [in, out] stacked over layers, the tokenizer and the held-out text."""

    def stacked(name: str) -> np.ndarray:
        layers = [dict(block.named_parameters())[f"{name}.weight"] for block in model.blocks]
        arrays = [layer.detach().numpy() for layer in layers]
        return np.stack([a.T if a.ndim == 2 else a for a in arrays]).astype(np.float16)

    config = {
        "hidden_size": WIDTH, "n_layers": N_LAYERS, "n_heads": N_HEADS, "n_kv_heads": N_KV_HEADS,
        "head_dim": HEAD_DIM, "intermediate": MLP, "vocab_size": N_VOCAB, "rope_base": ROPE_BASE,
        "norm_eps": 1e-5, "context": LENGTH,
    }  # fmt: skip
    names = ("q", "k", "v", "o", "gate", "up", "down", "attention_norm", "mlp_norm")
    np.savez_compressed(
        path,
        embedding=model.embedding.weight.detach().numpy().astype(np.float16),
        head=model.head.weight.detach().numpy().T.astype(np.float16),
        final_norm=model.final_norm.weight.detach().numpy().astype(np.float16),
        merges=np.array(tokenizer.merges, dtype=np.uint16),
        alphabet=np.frombuffer(tokenizer.alphabet.encode(), dtype=np.uint8),
        held_out=np.frombuffer(held_out.encode(), dtype=np.uint8),
        config=np.frombuffer(json.dumps(config).encode(), dtype=np.uint8),
        training=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
        **{name: stacked(name) for name in names},
    )


def main() -> None:
    """Read, tokenise, baseline, train, export."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--minutes", type=float, default=16.0, help="CPU time of one thread")
    parser.add_argument("--rows", type=int, default=4, help="sequences a step")
    parser.add_argument("--out", type=Path, default=Path("data/lab_model.npz"))
    parser.add_argument("--baseline", action="store_true", help="print the n-gram baselines only")
    args = parser.parse_args()
    torch.set_num_threads(1)
    books = read_books(args.text)
    held_text = "".join(books[name] for name in HELD_OUT)
    train_text = "".join(text for name, text in books.items() if name not in HELD_OUT)
    start = time.perf_counter()
    alphabet = "".join(sorted(set(train_text) | set(held_text)))
    tokenizer = learn_tokenizer(train_text, alphabet)
    text, held_out = (np.array(tokenizer.encode(t)) for t in (train_text, held_text))
    per_token = len(held_text) / len(held_out)
    print(
        f"tokenizer {time.perf_counter() - start:.0f} s: {len(text):,} + {len(held_out):,} tokens, "
        f"{per_token:.2f} characters each"
    )
    order, ngram_nats = best_ngram(text, held_out, N_VOCAB)
    if args.baseline:
        return
    model, facts = train(tokenizer, text, held_out, args.minutes, args.rows)
    nats, accuracy, _ = grade(model, tokenizer, held_out)
    facts |= {
        "held_out_books": list(HELD_OUT),
        "held_out_characters": len(held_text),
        "held_out_tokens": len(held_out),
        "ngram_order": order,
        "ngram_perplexity": math.exp(ngram_nats),
        "perplexity_without_overlap": math.exp(nats),
        "retrieval_accuracy": accuracy,
    }
    export(model, tokenizer, held_text, facts, args.out)
    print(json.dumps(facts, indent=1))
    digest = hashlib.sha256(args.out.read_bytes()).hexdigest()
    print(f"sha256 {digest}: goes into capmodel/lab/weights.py and data/lab_model.md")
    print(f"bits per character: model {nats / math.log(2) / per_token:.3f}, "
          f"{order}-gram {ngram_nats / math.log(2) / per_token:.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
