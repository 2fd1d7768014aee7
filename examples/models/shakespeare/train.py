#!/usr/bin/env python3
"""Trains the byte-level Shakespeare model of the examples and exports it.

How to run
    Needs PyTorch >= 2.4; a CPU is enough. The published weights were made with
    the packages of Debian sid:

        apt-get install --no-install-recommends \\
            python3-torch python3-numpy libopenblas0-pthread

        python3 train.py train  --data tinyshakespeare.txt --out model.safetensors
        python3 train.py export --data tinyshakespeare.txt --out model.safetensors \\
            --checkpoint model.ckpt.best

    `train` writes a checkpoint next to --out at every evaluation (`.ckpt.last`,
    and `.ckpt.best` for the lowest validation loss so far), continues from
    `.ckpt.last` with --resume, and exports the best one at the end. `export`
    writes model.safetensors and reference.json from a checkpoint. `check`
    measures the validation loss of a model.safetensors and prints a sample.

Model
    A decoder over bytes like Llama: RMSNorm before each block, rotary
    positions in the NeoX pairing (i, i + head_dim / 2), grouped-query
    attention, SwiGLU, embedding tied to the output. All layers except the last
    attend to a sliding window (query p sees the keys p - window + 1 .. p). The
    last one attends to all earlier keys.
"""

import argparse
import functools
import json
import math
import os
import struct
import sys
import time
from dataclasses import dataclass, field, fields
from typing import ClassVar

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    name: ClassVar[str] = "shakespeare"
    architecture: ClassVar[str] = "llama"

    vocab_size: int = 256
    hidden_size: int = 160
    intermediate_size: int = 336
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 40
    sliding_window: int = 32
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    max_position_embeddings: int = 256
    layer_types: list = field(
        default_factory=lambda: ["sliding_attention"] * 5 + ["full_attention"]
    )

    def metadata(self):
        return {
            "format": "cellar-example-1",
            "name": self.name,
            "license": "Apache-2.0 WITH LLVM-exception",
            "architecture": self.architecture,
            "tokenizer": "bytes",
            "vocab_size": str(self.vocab_size),
            "hidden_size": str(self.hidden_size),
            "intermediate_size": str(self.intermediate_size),
            "num_hidden_layers": str(len(self.layer_types)),
            "num_attention_heads": str(self.num_attention_heads),
            "num_key_value_heads": str(self.num_key_value_heads),
            "head_dim": str(self.head_dim),
            "layer_types": ",".join(self.layer_types),
            "sliding_window": str(self.sliding_window),
            "rope_theta": str(self.rope_theta),
            "rope_pairing": "neox",
            "rms_norm_eps": str(self.rms_norm_eps),
            "max_position_embeddings": str(self.max_position_embeddings),
            "tie_word_embeddings": "true",
        }

    @classmethod
    def from_metadata(cls, m):
        return cls(
            layer_types=m["layer_types"].split(","),
            **{f.name: f.type(m[f.name]) for f in fields(cls) if f.name != "layer_types"},
        )


# ---------------------------------------------------------------------------
# The model. The parameters have the names of Hugging Face's Llama.
# ---------------------------------------------------------------------------


def dropout(x, p, training):
    """F.dropout with a probability of p rounded to 1/256.

    Draws one random byte per element, because on a CPU the random numbers take
    most of the time of F.dropout.
    """
    threshold = round(p * 256)
    if not training or threshold == 0:
        return x
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    keep = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= threshold
    return x * (keep * (256 / (256 - threshold)))


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


def rope_table(positions, c, dtype):
    """cos and sin [positions, 1, head_dim / 2], computed in float64."""
    i = np.arange(c.head_dim // 2, dtype=np.float64)
    angle = np.outer(np.asarray(positions, np.float64), c.rope_theta ** (-2.0 * i / c.head_dim))
    return tuple(torch.from_numpy(f(angle)).to(dtype).unsqueeze(1) for f in (np.cos, np.sin))


def rotate(x, table):
    """x is [batch, position, head, head_dim]."""
    cos, sin = table
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def attend(q, k, v, mask=None):
    """[batch, position, head, head_dim] -> the same. Causal without a mask."""
    group = q.shape[2] // k.shape[2]
    k, v = (t.repeat_interleave(group, dim=2).transpose(1, 2) for t in (k, v))
    y = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, attn_mask=mask, is_causal=mask is None
    )
    return y.transpose(1, 2)


def window_mask(length, window):
    p = torch.arange(length)
    distance = p[:, None] - p[None, :]
    return (distance >= 0) & (distance < window)


def attend_window(q, k, v, window):
    """The same as `attend` with window_mask, in blocks of `window` queries.

    A block of queries needs only its own keys and those of the previous block,
    so the cost is linear in the length, a multiple of the window.
    """
    batch, length = q.shape[:2]
    blocks = length // window

    def with_previous(t):
        t = t.reshape(batch, blocks, window, *t.shape[2:])
        previous = F.pad(t[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
        return torch.cat((previous, t), dim=2).flatten(0, 1)

    mask = window_mask(2 * window, window)[window:].expand(blocks, -1, -1).clone()
    mask[0, :, :window] = False  # the first block has no previous one
    mask = mask.repeat(batch, 1, 1).unsqueeze(1)
    q = q.reshape(batch * blocks, window, *q.shape[2:])
    y = attend(q, with_previous(k), with_previous(v), mask)
    return y.reshape(batch, length, *y.shape[2:])


class Attention(nn.Module):
    def __init__(self, c, sliding):
        super().__init__()
        self.c, self.sliding = c, sliding
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=False)

    def forward(self, x, table):
        batch, length, _ = x.shape
        q, k, v = (
            p(x).view(batch, length, -1, self.c.head_dim)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotate(q, table), rotate(k, table)
        window = self.c.sliding_window
        if not self.sliding:
            y = attend(q, k, v)
        elif length % window == 0:
            y = attend_window(q, k, v, window)
        else:
            y = attend(q, k, v, window_mask(length, window))
        return self.o_proj(y.reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """A block that mixes positions, named `mixer`, then one that works on each position."""

    mixer = "self_attn"

    def __init__(self, c, kind, dropout):
        super().__init__()
        self.input_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.add_module(self.mixer, self.make_mixer(c, kind))
        self.post_attention_layernorm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)
        self.dropout = dropout

    def make_mixer(self, c, kind):
        return Attention(c, kind == "sliding_attention")

    def forward(self, x, table):
        h = getattr(self, self.mixer)(self.input_layernorm(x), table)
        x = x + dropout(h, self.dropout, self.training)
        h = self.mlp(self.post_attention_layernorm(x))
        return x + dropout(h, self.dropout, self.training)


class Model(nn.Module):
    config = Config
    into_residual = ("o_proj.weight", "down_proj.weight")

    def __init__(self, c, dropout=0.0):
        super().__init__()
        self.c, self.dropout = c, dropout
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(self.make_layer(c, kind) for kind in c.layer_types)
        self.norm = RMSNorm(c.hidden_size, c.rms_norm_eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                std = 0.02 if name.startswith("embed") else p.shape[1] ** -0.5
                if name.endswith(self.into_residual):
                    std /= math.sqrt(2 * len(c.layer_types))
                nn.init.normal_(p, std=std)

    def make_layer(self, c, kind):
        return Layer(c, kind, self.dropout)

    def forward(self, tokens):
        """[batch, position] -> logits [batch, position, vocabulary]"""
        x = dropout(self.embed_tokens(tokens), self.dropout, self.training)
        table = rope_table(range(tokens.shape[1]), self.c, x.dtype)
        for layer in self.layers:
            x = layer(x, table)
        return F.linear(self.norm(x), self.embed_tokens.weight)


# ---------------------------------------------------------------------------
# Data and evaluation
# ---------------------------------------------------------------------------


def read_data(path):
    """The bytes of the file: the first 90 % for training, the last 10 % for validation."""
    data = np.fromfile(path, dtype=np.uint8)
    n = int(len(data) * 0.9)
    return torch.from_numpy(data[:n].astype(np.int64)), torch.from_numpy(data[n:].astype(np.int64))


class Batches:
    """Windows of the training text without repetition within an epoch.

    Each epoch cuts the text at a random offset and shuffles the pieces. A batch
    depends only on the seed and the step, so resuming is exact.
    """

    def __init__(self, data, batch, context, seed):
        self.data, self.batch, self.context, self.seed = data, batch, context, seed
        self.per_epoch = (len(data) - 1 - context) // context // batch
        self.epoch = None

    def __call__(self, step):
        epoch, i = divmod(step, self.per_epoch)
        if epoch != self.epoch:
            self.epoch = epoch
            rng = np.random.default_rng([self.seed, epoch])
            offset = int(rng.integers(self.context))
            pieces = (len(self.data) - 1 - offset) // self.context
            self.starts = offset + self.context * rng.permutation(pieces)
        starts = self.starts[i * self.batch : (i + 1) * self.batch]
        rows = torch.stack([self.data[s : s + self.context + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]


class Workers:
    """One or more processes that share a batch, each with its own threads.

    On a busy machine this is much faster than the threads of a BLAS library,
    because those wait for each other in every matrix product, the processes
    once per step.
    """

    def __init__(self, rank=0, count=1, rendezvous=None):
        self.rank, self.count = rank, count
        if count > 1:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group(
                "gloo", init_method="file://" + rendezvous, rank=rank, world_size=count
            )

    def close(self):
        if self.count > 1:
            dist.destroy_process_group()

    def sum(self, tensor):
        if self.count > 1:
            dist.all_reduce(tensor)
        return tensor

    def average_gradients(self, parameters, loss):
        """Averages the gradients. Returns the average loss."""
        flat = torch.cat([p.grad.flatten() for p in parameters] + [loss.detach().view(1)])
        self.sum(flat).div_(self.count)
        i = 0
        for p in parameters:
            p.grad.copy_(flat[i : i + p.numel()].view_as(p))
            i += p.numel()
        return flat[-1].item()


@torch.no_grad()
def evaluate(model, data, context, workers=Workers()):
    """Mean loss (nats per byte) over all of `data`, cut into windows of `context`.

    Every byte except the first is predicted exactly once. A window does not see
    the previous one, so its first bytes are predicted from little context.
    """
    model.eval()
    n = (len(data) - 1) // context
    x, y = data[: n * context].view(n, context), data[1 : n * context + 1].view(n, context)
    pieces = [(x[i : i + 32], y[i : i + 32]) for i in range(0, n, 32)]
    if n * context < len(data) - 1:
        pieces.append((data[n * context : -1][None], data[n * context + 1 :][None]))
    total = torch.zeros(1, dtype=torch.float64)
    for x, y in pieces[workers.rank :: workers.count]:
        total += F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum").item()
    model.train()
    return workers.sum(total).item() / (len(data) - 1)


def rounded_to_half(model):
    """A copy of the model with weights rounded to float16."""
    copy = type(model)(model.c)
    copy.load_state_dict({k: v.half().float() for k, v in model.state_dict().items()})
    return copy.eval()


@torch.no_grad()
def sample(model, prompt, length, temperature, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = list(prompt)
    context = model.c.max_position_embeddings
    for _ in range(length):
        logits = model(torch.tensor([tokens[-context:]]))[0, -1]
        p = F.softmax(logits / temperature, dim=-1)
        tokens.append(torch.multinomial(p, 1, generator=generator).item())
    return bytes(tokens)


# ---------------------------------------------------------------------------
# Export: model.safetensors and reference.json
# ---------------------------------------------------------------------------


def write_safetensors(path, tensors, meta):
    """Writes the header length (u64), the JSON header padded with spaces to 8 bytes, the data."""
    header, blobs, offset = {"__metadata__": meta}, [], 0
    for name, t in tensors.items():
        blob = t.detach().half().contiguous().numpy().astype("<f2").tobytes()
        header[name] = {
            "dtype": "F16",
            "shape": list(t.shape),
            "data_offsets": [offset, offset + len(blob)],
        }
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path + ".tmp"
    with open(temporary, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    os.replace(temporary, path)


def read_safetensors(path, kind):
    """Reads a model in float32 from a file of write_safetensors."""
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    m = header.pop("__metadata__")
    state = {}
    for name, t in header.items():
        begin, end = t["data_offsets"]
        values = np.frombuffer(data[begin:end], "<f2").astype(np.float32).reshape(t["shape"])
        state[name.removeprefix("model.")] = torch.from_numpy(values)
    model = kind(kind.config.from_metadata(m))
    model.load_state_dict(state)
    return model.eval()


def prompts(validation):
    """(name, bytes): two well-known lines and two speeches of the validation text."""
    text = bytes(validation.to(torch.uint8).tolist())

    def speech(after, length):  # begins at a speaker's name
        start = text.index(b"\n\n", after) + 2
        return text[start : start + length]

    return [
        ("short", b"ROMEO"),
        ("line", b"HAMLET:\nTo be, or not to be: that is the question:\nWhether 'tis nobler"),
        ("validation-150", speech(20000, 150)),
        ("validation-200", speech(60000, 200)),
    ]


@torch.no_grad()
def reference(model, validation, greedy_length=100):
    """Logits and greedy continuations of the prompts, in float32 and in float64."""
    double = type(model)(model.c).double()
    double.load_state_dict(model.state_dict())
    double.eval()
    context = model.c.max_position_embeddings
    result, worst = [], 0.0
    for name, prompt in prompts(validation):
        tokens = torch.tensor([list(prompt)])
        single, exact = model(tokens)[0], double(tokens)[0]
        difference = (single.double() - exact).abs().max().item()
        wanted = [0, 1, 30, 31, 32, 33, 63, 64, len(prompt) - 1]
        positions = sorted({p for p in wanted if p < len(prompt)})
        sequence, gap, gap64 = list(prompt), math.inf, math.inf
        for _ in range(min(greedy_length, context - len(prompt))):
            logits = model(torch.tensor([sequence]))[0, -1]
            exact = double(torch.tensor([sequence]))[0, -1]
            difference = max(difference, (logits.double() - exact).abs().max().item())
            best = logits.topk(2)
            gap = min(gap, (best.values[0] - best.values[1]).item())
            best64 = exact.topk(2)
            gap64 = min(gap64, (best64.values[0] - best64.values[1]).item())
            if best.indices[0] != best64.indices[0]:
                sys.exit(f"{name}: float32 and float64 disagree on the greedy continuation")
            sequence.append(best.indices[0].item())
        worst = max(worst, difference)
        continuation = sequence[len(prompt) :]
        result.append(
            {
                "name": name,
                "text": prompt.decode("ascii"),
                "tokens": list(prompt),
                "positions": positions,
                "logits": [[float(f"{x:.7g}") for x in single[p].tolist()] for p in positions],
                "max_abs_difference_float64": float(f"{difference:.3g}"),
                "greedy": {
                    "length": len(continuation),
                    "text": bytes(continuation).decode("latin-1"),
                    "tokens": continuation,
                    "min_top1_top2_gap": float(f"{gap:.7g}"),
                    "min_top1_top2_gap_float64": float(f"{gap64:.7g}"),
                },
            }
        )
    return {
        "format": "cellar-example-reference-1",
        "model": "model.safetensors",
        "about": (
            "Computed by train.py with PyTorch from the float16 weights of the file, in float32; "
            "logits[i] are those after the token at positions[i], for the token that follows it. "
            "The cosines and sines of the rotary positions are computed in float64 and rounded. "
            "max_abs_difference_float64 is the largest difference from the same computation in "
            "float64, over all positions of the prompt and the steps of the continuation. A "
            "continuation ends after 100 tokens or at max_position_embeddings tokens in all."
        ),
        "torch": torch.__version__,
        "max_abs_difference_float64": float(f"{worst:.3g}"),
        "prompts": result,
    }


def check_attention(c):
    """Checks that attend_window equals attend with window_mask."""
    g = torch.Generator().manual_seed(0)
    length = 4 * c.sliding_window
    q, k, v = (torch.randn(2, length, h, c.head_dim, generator=g) for h in (4, 2, 2))
    a = attend_window(q, k, v, c.sliding_window)
    b = attend(q, k, v, window_mask(length, c.sliding_window))
    assert torch.allclose(a, b, atol=1e-5), (a - b).abs().max()


def export(model, validation, out):
    write_safetensors(
        out, {"model." + k: v for k, v in model.state_dict().items()}, model.c.metadata()
    )
    model = read_safetensors(out, type(model))
    path = os.path.join(os.path.dirname(out), "reference.json")
    with open(path + ".tmp", "w", encoding="utf-8", newline="\n") as f:
        r = reference(model, validation)
        items = r.pop("prompts")
        f.write(json.dumps(r, indent=1)[:-2] + ',\n "prompts": [\n')
        f.write(",\n".join(json.dumps(i, separators=(",", ":")) for i in items) + "\n ]\n}\n")
    os.replace(path + ".tmp", path)
    loss = evaluate(model, validation, model.c.max_position_embeddings)
    print(f"exported {out} ({os.path.getsize(out)} bytes), {path} ({os.path.getsize(path)} bytes)")
    print(f"validation loss of the exported file: {loss:.4f} nats per byte", flush=True)


# ---------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------


def share_done(step, seconds, a):
    """The share of the run that is done, 0 to 1: of its steps, or of its time with --minutes."""
    return min(1.0, seconds / (60 * a.minutes)) if a.minutes else step / a.steps


def learning_rate(step, done, a):
    """Linear warm-up, constant, then linear to a.lr_floor, starting at the share a.decay_from.

    Before the decay, the rate does not depend on the length of the run, so
    --resume may change --steps.
    """
    if step < a.warmup:
        return a.lr * (step + 1) / a.warmup
    progress = max(0.0, (done - a.decay_from) / (1 - a.decay_from))
    return a.lr * (1 - (1 - a.lr_floor) * progress)


def train(a, kind):
    stem = a.checkpoint or os.path.splitext(a.out)[0]
    if a.workers > 1:
        rendezvous = os.path.abspath(stem + ".rendezvous")
        if os.path.exists(rendezvous):
            os.remove(rendezvous)
        torch.multiprocessing.spawn(train_worker, (a, kind, stem, rendezvous), a.workers)
        os.remove(rendezvous)
    else:
        train_worker(0, a, kind, stem, None)
    if not a.no_export:
        export_checkpoint(stem + ".ckpt.best", kind, read_data(a.data)[1], a.out)


def train_worker(rank, a, kind, stem, rendezvous):
    if a.threads:
        torch.set_num_threads(a.threads)
    workers = Workers(rank, a.workers, rendezvous)
    c = kind.config()
    check_attention(c)
    torch.manual_seed(a.seed)
    training, validation = read_data(a.data)
    batches = Batches(training, a.batch, c.max_position_embeddings, a.seed)
    model = kind(c, a.dropout)
    count = sum(p.numel() for p in model.parameters())
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": a.weight_decay},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=a.lr, betas=(0.9, a.beta2), foreach=True)
    last, best = stem + ".ckpt.last", stem + ".ckpt.best"
    first, best_loss, spent = 0, math.inf, 0.0
    if a.resume:
        s = torch.load(last, weights_only=True)
        model.load_state_dict(s["model"])
        optimizer.load_state_dict(s["optimizer"])
        first, best_loss, spent = s["step"], s["best_loss"], s["seconds"]
    tokens = a.batch * c.max_position_embeddings
    report = functools.partial(print, flush=True) if rank == 0 else lambda text: None
    report(
        f"{count} parameters, {f'{a.minutes} minutes' if a.minutes else f'{a.steps} steps'}, "
        f"{tokens} tokens a step, {batches.per_epoch} steps an epoch, seed {a.seed}, "
        f"{a.workers} processes of {torch.get_num_threads()} threads"
    )
    model.train()
    start = mark = time.perf_counter()
    running, seen = 0.0, 0

    def share_done_after(step):  # equal in all processes, because the schedule depends on it
        elapsed = torch.tensor([spent + time.perf_counter() - start], dtype=torch.float64)
        return share_done(step, workers.sum(elapsed).item() / workers.count, a)

    step, done = first, share_done_after(first)
    while done < 1:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, done, a)
        torch.manual_seed((a.seed << 32) + step * a.workers + rank)  # for dropout
        x, y = (t.tensor_split(a.workers)[rank] for t in batches(step))
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        running += workers.average_gradients(list(model.parameters()), loss)
        seen += 1
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        done = share_done_after(step)
        if step % a.log_every == 0:
            now = time.perf_counter()
            rate = seen * tokens / (now - mark)
            report(
                f"step {step} loss {running / seen:.4f} {rate:.0f} tokens/s "
                f"{spent + now - start:.0f} s, {100 * done:.1f} % done"
            )
            mark, running, seen = now, 0.0, 0
        if step % a.eval_every == 0 or done >= 1:
            loss = evaluate(
                rounded_to_half(model), validation, c.max_position_embeddings, workers
            )
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "best_loss": min(best_loss, loss),
                "seconds": spent + time.perf_counter() - start,
                "loss": loss,
                "arguments": vars(a),
            }
            for path in [last] + ([best] if loss < best_loss else []):
                if rank == 0:
                    torch.save(state, path + ".tmp")
                    os.replace(path + ".tmp", path)
            best_loss = min(best_loss, loss)
            report(f"step {step} validation {loss:.4f} best {best_loss:.4f}")
            mark = time.perf_counter()
            running, seen = 0.0, 0
    workers.close()
    report(f"trained in {spent + time.perf_counter() - start:.0f} s")


def export_checkpoint(path, kind, validation, out):
    s = torch.load(path, weights_only=True)
    print(f"{path}: step {s['step']}, validation {s['loss']:.4f}, {s['seconds']:.0f} s")
    model = kind(kind.config())
    model.load_state_dict(s["model"])
    export(model.eval(), validation, out)


def main(kind, description, **defaults):
    p = argparse.ArgumentParser(description=description)
    p.add_argument("command", choices=["train", "export", "check"])
    p.add_argument("--data", required=True, help="the text, for example tinyshakespeare.txt")
    p.add_argument("--out", default="model.safetensors")
    p.add_argument(
        "--checkpoint",
        help="export: the file; train: the prefix of the file names",
    )
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--steps", type=int, default=2500)
    p.add_argument("--minutes", type=float, help="end after this time instead of after --steps")
    p.add_argument("--batch", type=int, default=16, help="windows of 256 bytes per step")
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--lr-floor", type=float, default=0.02, help="last rate, as a fraction of --lr")
    p.add_argument("--decay-from", type=float, default=0.5, help="share of the run before it falls")
    p.add_argument("--warmup", type=int, default=100)
    p.add_argument("--beta2", type=float, default=0.99)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--threads", type=int, default=1, help="per process; 0: PyTorch's default")
    p.add_argument("--workers", type=int, default=2, help="train: processes that share a batch")
    p.add_argument("--eval-every", type=int, default=250)
    p.add_argument("--log-every", type=int, default=50)
    p.add_argument("--resume", action="store_true", help="train: continue from .ckpt.last")
    p.add_argument("--no-export", action="store_true", help="train: write checkpoints only")
    p.add_argument("--prompt", default="ROMEO:\n", help="check: start of the sample")
    p.add_argument("--length", type=int, default=500, help="check: bytes to sample")
    p.add_argument("--temperature", type=float, default=0.8)
    p.set_defaults(**defaults)
    a = p.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    assert a.batch % a.workers == 0
    if a.command == "train":
        train(a, kind)
    elif a.command == "export":
        export_checkpoint(a.checkpoint, kind, read_data(a.data)[1], a.out)
    else:
        model = read_safetensors(a.out, kind)
        validation = read_data(a.data)[1]
        loss = evaluate(model, validation, model.c.max_position_embeddings)
        print(f"{len(validation)} bytes, {loss:.4f} nats per byte, {loss / math.log(2):.4f} bits")
        text = sample(model, a.prompt.encode(), a.length, a.temperature, a.seed)
        print(f"seed {a.seed}, temperature {a.temperature}:\n{text.decode('latin-1')}")


if __name__ == "__main__":
    main(Model, __doc__.split("\n")[0])
