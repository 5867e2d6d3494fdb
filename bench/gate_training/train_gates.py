#!/usr/bin/env python3
"""Retention gates trained by plain PyTorch: what kvbound's trainer is compared with.

The same recipe (kvbound gates train --stage local|full: objective, sampled rows, AdamW, clipping,
cosine) as one would write it in PyTorch, for llama models. Prints tokens per second. Needs torch,
numpy and the PyPI package gguf.

    python train_gates.py -m MODEL.gguf --text FILE --stage local --steps 8
"""

import argparse
import math
import re
import resource
import time

import gguf
import torch
import torch.nn.functional as F


class Model:
    """A frozen llama model, f32, from the dequantised GGUF weights."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        value = lambda key: reader.fields[key].contents()
        prefix = value("general.architecture")
        assert prefix == "llama", f"expected a llama model, found {prefix}"
        self.n_layer = value("llama.block_count")
        self.n_head = value("llama.attention.head_count")
        self.n_kv_head = value("llama.attention.head_count_kv")
        self.n_embd = value("llama.embedding_length")
        self.head_dim = self.n_embd // self.n_head
        self.eps = value("llama.attention.layer_norm_rms_epsilon")
        self.base = value("llama.rope.freq_base")
        self.weights = {
            t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy()).float()
            for t in reader.tensors
        }
        self.vocabulary = value("tokenizer.ggml.tokens")
        self.merges = value("tokenizer.ggml.merges")

    def norm(self, x, name):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weights[name]

    def linear(self, x, layer, name):
        return F.linear(x, self.weights[f"blk.{layer}.{name}.weight"])

    def rotate(self, x):  # [heads, T, head_dim], pairs of neighbours as in GGUF's llama
        t, half = x.shape[1], self.head_dim // 2
        angle = torch.arange(t)[:, None] * self.base ** (-torch.arange(half) / half)
        cos, sin = angle.cos(), angle.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    def heads(self, layer, normed):
        split = lambda name, n: self.linear(normed, layer, name).view(-1, n, self.head_dim).transpose(0, 1)
        q = self.rotate(split("attn_q", self.n_head))
        k = self.rotate(split("attn_k", self.n_kv_head))
        v = split("attn_v", self.n_kv_head)
        group = self.n_head // self.n_kv_head
        return q, k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)

    def finish(self, layer, x, attended):
        x = x + self.linear(attended.transpose(0, 1).flatten(1), layer, "attn_output")
        h = self.norm(x, f"blk.{layer}.ffn_norm.weight")
        gate = F.silu(self.linear(h, layer, "ffn_gate")) * self.linear(h, layer, "ffn_up")
        return x + self.linear(gate, layer, "ffn_down")

    def logits(self, x):
        head = self.weights.get("output.weight", self.weights["token_embd.weight"])
        return F.linear(self.norm(x, "output_norm.weight"), head)


class Gate(torch.nn.Module):
    def __init__(self, n_embd, n_hidden, n_kv_head, bias):
        super().__init__()
        self.linear1 = torch.nn.Linear(n_embd, n_hidden)
        self.linear2 = torch.nn.Linear(n_hidden, n_kv_head)
        for linear in (self.linear1, self.linear2):
            torch.nn.init.normal_(linear.weight, std=0.02)
            torch.nn.init.zeros_(linear.bias)
        torch.nn.init.constant_(self.linear2.bias, bias)

    def forward(self, x):  # [n_kv_head, T]
        return F.logsigmoid(self.linear2(F.silu(self.linear1(x)))).t()


def encode(model, text):
    """Byte-pair encoding; words are cut a little more simply than the model's own tokenizer does."""
    ids = {piece: i for i, piece in enumerate(model.vocabulary)}
    rank = {tuple(merge.split(" ", 1)): i for i, merge in enumerate(model.merges)}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in spelled:
            spelled[b] = chr(256 + len(spelled) - len(printable))
    known, tokens = {}, []
    for word in re.findall(r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]+|\s+", text):
        if word not in known:
            parts = [spelled[b] for b in word.encode()]
            while len(parts) > 1:
                pairs = [rank.get(p, math.inf) for p in zip(parts, parts[1:])]
                i = min(range(len(pairs)), key=pairs.__getitem__)
                if pairs[i] == math.inf:
                    break
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            known[word] = [ids[p] for p in parts]
        tokens += known[word]
    return torch.tensor(tokens)


def capacity(sums, position, memory):
    excess = (sums - memory).clamp_min(0) / (position - memory).clamp_min(1)
    return excess.sum() / (excess > 0).sum().clamp_min(1)


def local_loss(model, gates, tokens, args):
    """Layer by layer; the model runs without gradients, autograd covers the gates."""
    t = len(tokens)
    rows = torch.arange(args.offset % 4, t, 4)
    rows = rows[rows > 0]
    index = torch.arange(t)
    age = (rows[:, None] - index).clamp_min(0)
    seen = (rows[:, None] >= index).float()
    counts = seen * (index >= args.sinks)
    mask = torch.full((t, t), -math.inf).triu(1)
    group = model.n_head // model.n_kv_head
    x = model.weights["token_embd.weight"][tokens]
    logs, sums = [], []
    for layer in range(model.n_layer):
        with torch.no_grad():
            normed = model.norm(x, f"blk.{layer}.attn_norm.weight")
            q, k, v = model.heads(layer, normed)
            weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(model.head_dim) + mask, -1)
            x = model.finish(layer, x, weights @ v)
            w = weights[:, rows] * v.norm(dim=-1)[:, None]
            w = w / w.sum(-1, keepdim=True)
        log_beta = gates[layer](normed) * (index >= args.sinks)
        left = torch.exp(log_beta[:, None] * age)  # [n_kv_head, rows, T]
        logs.append(-(w * left.repeat_interleave(group, 0)).sum(-1).log().mean())
        sums.append((left * counts).sum(-1))
    return torch.stack(logs).mean() + capacity(torch.stack(sums), rows, args.memory)


def full_loss(model, gates, tokens, args):
    """TRIM-KV: decayed attention everywhere, KL to the undecayed model and the next token."""
    t = len(tokens)
    index = torch.arange(t)
    age = index[:, None] - index
    mask = torch.full((t, t), -math.inf).triu(1)
    group = model.n_head // model.n_kv_head
    embedded = model.weights["token_embd.weight"][tokens]

    def forward(sums):
        x = embedded
        for layer in range(model.n_layer):
            normed = model.norm(x, f"blk.{layer}.attn_norm.weight")
            q, k, v = model.heads(layer, normed)
            scores = q @ k.transpose(1, 2) / math.sqrt(model.head_dim) + mask
            if sums is not None:
                log_beta = gates[layer](normed) * (index >= args.sinks)
                decay = log_beta[:, None] * age.clamp_min(0)
                scores = scores + decay.repeat_interleave(group, 0)
                seen = (age >= 0) & (index >= args.sinks)
                sums.append((decay.exp() * seen).sum(-1))
            x = model.finish(layer, x, torch.softmax(scores, -1) @ v)
        return model.logits(x)

    with torch.no_grad():
        teacher = F.log_softmax(forward(None), -1)
    sums = []
    student = F.log_softmax(forward(sums), -1)
    kl = F.kl_div(student, teacher, reduction="batchmean", log_target=True)
    ce = F.nll_loss(student[:-1], tokens[1:])
    return (kl + ce) / 2 + capacity(torch.stack(sums), index, args.memory)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--stage", choices=("local", "full"), default="local")
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--memory", type=int, default=128)
    parser.add_argument("--sinks", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    model = Model(args.model)
    with open(args.text, encoding="utf-8-sig") as file:
        tokens = encode(model, file.read(args.seq_len * args.steps * 8))
    gates = torch.nn.ModuleList(
        Gate(model.n_embd, args.hidden, model.n_kv_head, 6.0) for _ in range(model.n_layer)
    )
    rate = 1e-3 if args.stage == "local" else 4e-4
    optimizer = torch.optim.AdamW(gates.parameters(), lr=rate, weight_decay=0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps, rate * 0.05)
    loss_of = local_loss if args.stage == "local" else full_loss
    start = time.perf_counter()
    for step in range(args.steps):
        args.offset = step
        loss = loss_of(model, gates, tokens[step * args.seq_len : (step + 1) * args.seq_len], args)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(gates.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        rate = args.seq_len * (step + 1) / (time.perf_counter() - start)
        print(f"step {step + 1}/{args.steps}  loss {loss.item():.4f}  {rate:.0f} tokens/s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{args.stage}: {rate:.0f} tokens/s, peak memory {peak:.2f} GiB")


if __name__ == "__main__":
    main()
