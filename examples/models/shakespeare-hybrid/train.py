#!/usr/bin/env python3
"""Trains the byte-level hybrid Shakespeare model of the examples and exports it.

How to run
    Like ../shakespeare/train.py, which this script extends by recurrent
    layers; its first lines say what to install. The published weights were
    made with

        export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
        python3 train.py train --data tinyshakespeare.txt --out model.safetensors \\
            --minutes 82 --eval-every 500

    Debian's PyTorch does not pass --threads to OpenBLAS. On a busy machine its
    threads wait for each other: a step took ten times as long without the
    second variable.

Model
    A small Griffin (De et al., 2024, arXiv:2402.19427): most layers mix
    positions with a gated linear recurrence after a short causal convolution,
    some with attention in a sliding window, the last one with full attention.
    The attention layers, the norms and the feed-forward networks are those of
    the first model.
"""

import math
import os
import sys
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../shakespeare"))
import train as base  # noqa: E402


@dataclass
class Config(base.Config):
    name: ClassVar[str] = "shakespeare-hybrid"
    architecture: ClassVar[str] = "griffin"

    hidden_size: int = 128
    intermediate_size: int = 320
    head_dim: int = 32
    lru_width: int = 160
    lru_blocks: int = 4
    conv1d_width: int = 4
    layer_types: list = field(
        default_factory=lambda: ["recurrent", "recurrent", "sliding_attention"] * 2
        + ["full_attention"]
    )

    def metadata(self):
        return {
            **super().metadata(),
            "lru_width": str(self.lru_width),
            "lru_blocks": str(self.lru_blocks),
            "conv1d_width": str(self.conv1d_width),
        }


class Scan(torch.autograd.Function):
    """h[t] = a[t] * h[t - 1] + x[t] along dimension 1, from h = 0.

    Has its own gradient, because autograd would keep a node and a tensor per step.
    """

    @staticmethod
    def forward(ctx, a, x):
        h = torch.empty_like(x)
        before = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            before = torch.addcmul(x[:, t], a[:, t], before, out=h[:, t])
        ctx.save_for_backward(a, h)
        return h

    @staticmethod
    def backward(ctx, grad):
        a, h = ctx.saved_tensors
        grad = grad.clone()
        for t in range(grad.shape[1] - 2, -1, -1):
            grad[:, t].addcmul_(a[:, t + 1], grad[:, t + 1])
        grad_a = torch.zeros_like(a)
        torch.mul(grad[:, 1:], h[:, :-1], out=grad_a[:, 1:])
        return grad_a, grad


class Recurrence(nn.Module):
    """The real-gated linear recurrent unit (RG-LRU).

    h[t] = a * h[t - 1] + sqrt(1 - a^2) * (i * x[t]), where
    a = exp(-8 softplus(recurrent_param) r). r and i are logistic gates of x[t].
    Each block of channels has its own matrix: row o of the weights of a gate
    has the weights of output o for the inputs of its block.
    """

    def __init__(self, c):
        super().__init__()
        self.blocks = c.lru_blocks
        block_width = c.lru_width // c.lru_blocks
        # With r = 1, the channels forget 0.1 to 10 % of their state at each step.
        rate = -torch.linspace(0.9, 0.999, block_width).repeat(c.lru_blocks).log() / 8
        self.recurrent_param = nn.Parameter(rate.expm1().log())
        self.input_gate_weight = nn.Parameter(torch.empty(c.lru_width, block_width))
        self.input_gate_bias = nn.Parameter(torch.zeros(c.lru_width))
        self.recurrent_gate_weight = nn.Parameter(torch.empty(c.lru_width, block_width))
        self.recurrent_gate_bias = nn.Parameter(torch.zeros(c.lru_width))

    def gate(self, x, weight, bias):
        """x is [batch, position, width]."""
        inputs = x.flatten(0, 1).unflatten(1, (self.blocks, -1)).transpose(0, 1)
        y = torch.bmm(inputs, weight.unflatten(0, (self.blocks, -1)).transpose(1, 2))
        return torch.sigmoid(y.transpose(0, 1).reshape(x.shape) + bias)

    def forward(self, x):
        r = self.gate(x, self.recurrent_gate_weight, self.recurrent_gate_bias)
        i = self.gate(x, self.input_gate_weight, self.input_gate_bias)
        log_a = (-8.0 * F.softplus(self.recurrent_param)) * r
        return Scan.apply(log_a.exp(), torch.sqrt(-torch.expm1(2.0 * log_a)) * (i * x))


class RecurrentBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.linear_x = nn.Linear(c.hidden_size, c.lru_width, bias=False)
        self.linear_y = nn.Linear(c.hidden_size, c.lru_width, bias=False)
        self.linear_out = nn.Linear(c.lru_width, c.hidden_size, bias=False)
        self.conv_weight = nn.Parameter(torch.empty(c.lru_width, c.conv1d_width))
        self.conv_bias = nn.Parameter(torch.zeros(c.lru_width))
        self.rg_lru = Recurrence(c)

    def convolve(self, x):
        """A causal convolution per channel. The last weight is that of the newest input."""
        width = self.conv_weight.shape[1]
        padded = F.pad(x, (0, 0, width - 1, 0))
        y = self.conv_bias
        for k in range(width):
            y = torch.addcmul(y, padded[:, k : k + x.shape[1]], self.conv_weight[:, k])
        return y

    def forward(self, x, table):
        gate = F.silu(self.linear_y(x))
        return self.linear_out(gate * self.rg_lru(self.convolve(self.linear_x(x))))


class RecurrentLayer(base.Layer):
    mixer = "recurrent"

    def make_mixer(self, c, kind):
        return RecurrentBlock(c)


class Model(base.Model):
    config = Config
    into_residual = base.Model.into_residual + ("linear_out.weight",)

    def make_layer(self, c, kind):
        layer = RecurrentLayer if kind == "recurrent" else base.Layer
        return layer(c, kind, self.dropout)


if __name__ == "__main__":
    base.main(Model, __doc__.split("\n")[0], batch=8, workers=1, dropout=0.2, decay_from=0.4)
