#!/usr/bin/env python3
"""What golden cases come to under `bf16` and `int8`: training in float64, with numbers rounded where kernels round them.

    pip install numpy==2.4.6 safetensors==0.8.0
    tests/golden/rounded.py check CASE...       # float64 without roundings, and with those of bf16, against PyTorch's trajectory
    tests/golden/rounded.py write CASE...       # int8/trajectory.jsonl of each case
    tests/golden/rounded.py first CASE...       # int8/step0.safetensors of each case
    tests/golden/rounded.py apart CASE...       # how far bf16 and wrong forms of int8 are from those
    tests/golden/rounded.py teacher CASE...     # int8/teacher.json of each case: what int8 changes of the teacher's predictions
    tests/golden/rounded.py spread CASE...      # how far roundings of bf16 that fall otherwise are from PyTorch's trajectory

CASE is a directory of make.py's. Nothing of PyTorch is used: forward and backward passes are written out, because what is
rounded is a gradient as often as a value. The rules, R(x) a rounding to bf16, nearest, even:

    weights             R(master) at every use; masters, moments, gradients of weights and sums of products are not rounded
    between kernels     whatever one kernel leaves to another: GEMMs with bias and residual added, norms, rotated queries and
                        keys, attention's output, SwiGLU, logits, and the gradient of each
    within attention    probabilities before `p v` and `p^T do`, and their gradients before both GEMMs
    int8, forward       y = q(x) q(W)^T, a scale a row of x and of W            (linear layers of blocks: q, k, v; o; gate, up; down)
    int8, of the input  dx = q(dy) q(W^T)^T, a scale a row of dy and a column of W
    int8, of weights    dW = dy^T x, of what bf16 has
    q(row)              rotated by Hadamard matrices along the sum, in blocks of the largest power of two up to 128 that divides it; scale
                        is its largest magnitude / 127; to the nearest integer, even

Of the gated delta rule what its kernels leave to each other is rounded, token by token, and nothing within it.
An adapter's GEMMs are bf16's, on bf16's activations. Of experts those of the experts are int8's, and the router's are bf16's: what a
token's experts compute is added with their weights and the residual, and rounded once.
"""

import argparse
import json
import math
import pathlib
import re

import numpy as np
from safetensors.numpy import save_file

import micro_batches
import weights

GATES = dict(loss=1e-3, kd_loss=3e-3, ce_loss=1e-3, grad_norm=1e-2)
# The step whose norm is ill-conditioned: `make.py spread`.
SENSITIVE = {("qwen3-tied", 15): 3.3e-2}
EXACT = dict(loss=2e-6, kd_loss=2e-5, ce_loss=2e-6, grad_norm=1e-5)


def bf16(x):
    """To the nearest bf16, even: 8 bits of the significand."""
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8)


def hadamard(size):
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return h / math.sqrt(size)


def rotation(depth):
    size = 128
    while depth % size:
        size //= 2
    assert size >= 16, depth
    return size


class Rounding:
    """How values and GEMMs are rounded."""

    def __init__(self, name):
        self.r = (lambda x: x) if name == "exact" else bf16
        self.int8 = name not in ("exact", "bf16")
        self.rotated = name != "int8 unrotated"
        self.levels = 128 if name == "int8 scaled by 128" else 127
        self.columns = name != "int8 forward alone"

    def quantized(self, x):
        """Rows of x, rotated and rounded to 8 bits, as what they stand for."""
        if self.rotated:
            size = rotation(x.shape[-1])
            x = (x.reshape(*x.shape[:-1], -1, size) @ hadamard(size)).reshape(x.shape)
        largest = np.abs(x).max(-1, keepdims=True)
        scale = np.where(largest > 0, largest, 1) / 127
        return np.rint(x / scale) * scale * (127 / self.levels)

    def forward(self, x, w):
        return self.quantized(x) @ self.quantized(w).T if self.int8 else x @ w.T

    def of_input(self, dy, w):
        return self.quantized(dy) @ self.quantized(w.T).T if self.int8 and self.columns else dy @ w


def activation(x, gelu):
    """That of a gate, as a multiple of a sigmoid, and its derivative: SiLU, or GELU by tanh."""
    linear, cubic = (math.sqrt(8 / math.pi), 0.044715 * math.sqrt(8 / math.pi)) if gelu else (1, 0)
    s = 1 / (1 + np.exp(-x * (linear + cubic * x * x)))
    return x * s, s * (1 + x * (1 - s) * (linear + 3 * cubic * x * x))


def softmax_log(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def tables(config, rope, positions):
    """Cosines and sines, [positions, rotated / 2], in float32 as transformers has them."""
    d, f = rotated(config), np.float32
    frequency = f(1) / np.power(f(rope["rope_theta"]), np.arange(0, d, 2, dtype=f) / f(d))
    if rope["rope_type"] == "linear":
        frequency = frequency / f(rope["factor"])
    if rope["rope_type"] == "llama3":
        low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], f(rope["factor"])
        original = rope["original_max_position_embeddings"]
        length = f(2 * math.pi) / frequency
        smooth = (f(original) / length - f(low)) / f(high - low)
        between = (1 - smooth) * frequency / factor + smooth * frequency
        frequency = np.where(length < original / high, frequency, np.where(length > original / low, frequency / factor, between))
    angle = (np.arange(positions, dtype=f)[:, None] * frequency.astype(f)).astype(f).astype(float)
    return np.cos(angle).astype(f).astype(float), np.sin(angle).astype(f).astype(float)


def layers(config):
    """Window and rotary parameters of each layer, or none."""
    count, window = config["num_hidden_layers"], config.get("sliding_window")
    types = config.get("layer_types") or ["full_attention" if config["model_type"] != "mistral" else "sliding_attention"] * count
    rope = config.get("rope_parameters") or dict(rope_theta=config.get("rope_theta", 1e4), rope_type="default")
    every = config.get("no_rope_layer_interval") or 4
    turned = config.get("no_rope_layers") or [(layer + 1) % every for layer in range(count)]
    for kind, is_turned in zip(types, turned):
        slides, of_kind = kind == "sliding_attention", rope.get(kind, rope)
        yield window if slides else None, None if config["model_type"] == "smollm3" and not is_turned else of_kind


def head_dim(config):
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def rotated(config):
    """Elements of a head that rope rotates."""
    return int(head_dim(config) * config.get("partial_rotary_factor", 1))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    """And its derivative."""
    return activation(x, False)


class Model:
    def __init__(self, directory, rounding, trains, adapter=None):
        self.config = json.loads((directory / "config.json").read_text())
        masters = {name: value.astype(float) for name, value in weights.of_model(directory).items()}
        if self.config["tie_word_embeddings"]:
            masters.pop("lm_head.weight", None)
        self.gated = self.config["model_type"] == "qwen3_5_text"
        for name in [name for name in masters if self.gated and name.endswith("self_attn.q_proj.weight")]:
            # Queries and gates of heads in turn; kernels have gates behind the values.
            heads = masters[name].reshape(-1, 2, head_dim(self.config), masters[name].shape[-1])
            masters[name], masters[name.replace("q_proj", "gate_proj")] = (heads[:, i].reshape(-1, heads.shape[-1]) for i in (0, 1))
        self.masters, self.lora, self.rounding = masters, {}, rounding
        self.d, self.heads, self.kv = head_dim(self.config), self.config["num_attention_heads"], self.config["num_key_value_heads"]
        self.trained = list(masters) if trains else []
        c, self.gemma, self.of_rows = self.config, self.config["model_type"] == "gemma3_text", self.config["model_type"] == "olmo2"
        self.multipliers = [c.get(name, 1.0) for name in ("embedding_multiplier", "residual_multiplier")] + [1 / c.get("logits_scaling", 1.0)]
        if self.gemma:
            self.multipliers[0] = self.rounding.r(math.sqrt(c["hidden_size"]))
        self.score = c.get("attention_multiplier", 1 / math.sqrt(c.get("query_pre_attn_scalar") or self.d))
        if adapter:
            settings = json.loads((adapter / "adapter_config.json").read_text())
            factors = weights.of_adapter(adapter.parent)
            self.masters |= {name: value.astype(float) for name, value in factors.items()}
            self.trained = sorted(factors)
            self.scale = settings["lora_alpha"] / settings["r"]
            for name in factors:
                module = name.removeprefix("base_model.model.").rsplit(".lora_", 1)[0]
                self.lora[module] = [name.rsplit(".lora_", 1)[0] + f".lora_{factor}.weight" for factor in "AB"]

    def of_files(self, tensors):
        """With gates beside their queries again."""
        found = dict(tensors)
        for name in [name for name in tensors if name.endswith("self_attn.gate_proj.weight")]:
            parts = [found.pop(of).reshape(self.heads, self.d, -1) for of in (name.replace("gate_proj", "q_proj"), name)]
            found[name.replace("gate_proj", "q_proj")] = np.stack(parts, 1).reshape(-1, parts[0].shape[-1])
        return found

    def w(self, name):
        return self.rounding.r(self.masters[name])

    # Linear layers: several projections of one input are one GEMM with stacked weights.

    def stacked(self, modules):
        w = np.concatenate([self.w(f"{module}.weight") for module in modules])
        has_bias = f"{modules[0]}.bias" in self.masters
        return w, np.concatenate([self.w(f"{module}.bias") for module in modules]) if has_bias else 0

    def parts(self, modules):
        start = 0
        for module in modules:
            width = len(self.masters[f"{module}.weight"])
            yield module, slice(start, start + width)
            start += width

    def linear(self, modules, x, residual=0):
        r, (w, bias) = self.rounding.r, self.stacked(modules)
        y = r(self.rounding.forward(x, w) + bias + residual)
        ranks = {}
        for module, part in self.parts(modules):
            if module in self.lora:
                a, b = (self.w(name) for name in self.lora[module])
                ranks[module] = r(self.scale * (x @ a.T))
                y[:, part] = r(y[:, part] + ranks[module] @ b.T)
        return y, ranks

    def linear_backward(self, modules, dy, x, ranks, grads):
        r, (w, _) = self.rounding.r, self.stacked(modules)
        dx = r(self.rounding.of_input(dy, w))
        adapters = 0
        for module, part in self.parts(modules):
            self.add(grads, f"{module}.weight", lambda part=part: dy[:, part].T @ x)
            self.add(grads, f"{module}.bias", lambda part=part: dy[:, part].sum(0))
            if module in self.lora:
                (a_name, b_name), (a, b) = self.lora[module], (self.w(name) for name in self.lora[module])
                dt = r(self.scale * (dy[:, part] @ b))
                self.add(grads, b_name, lambda part=part: dy[:, part].T @ ranks[module])
                self.add(grads, a_name, lambda: dt.T @ x)
                adapters = adapters + dt @ a
        return r(dx + adapters) if np.ndim(adapters) else dx

    def add(self, grads, name, value):
        if name in self.trained:
            grads[name] = grads.get(name, 0) + value()

    def gamma(self, name):
        return self.w(f"{name}.weight") + (self.gemma or self.gated)

    def norm(self, name, x):
        """None changes nothing."""
        if f"{name}.weight" not in self.masters:
            return x, None
        scale = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["rms_norm_eps"])
        return self.rounding.r(self.gamma(name) * (x * scale)), scale

    def norm_backward(self, name, dy, x, scale, residual, grads):
        if scale is None:
            return self.rounding.r(residual + dy) if np.ndim(residual) else dy
        gamma, n = self.gamma(name), x * scale
        self.add(grads, f"{name}.weight", lambda: (dy * n).sum(0))
        mean = (gamma * dy * n).mean(-1, keepdims=True)
        return self.rounding.r(residual + scale * (gamma * dy - n * mean))

    def turned(self, x, table, direction=1):
        """Heads [.., d] rotated by their positions."""
        if table is None:
            return x
        half = table[0].shape[-1]
        a, b, rest = np.split(x, [half, 2 * half], -1)
        cos, sin = table[0][:, None], direction * table[1][:, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    # Tensors are [tokens, features]; within attention [batch, positions, heads, d].

    def forward(self, ids):
        r, c = self.rounding.r, self.config
        batch, positions = ids.shape
        causal = np.tril(np.ones((positions, positions), bool))
        of_embedding, of_branch, of_logits = self.multipliers
        behind = self.behind()
        stream, saved = r(of_embedding * self.w("model.embed_tokens.weight")[ids.reshape(-1)]), []
        for layer, (window, rope) in enumerate(layers(c)):
            at = f"model.layers.{layer}."
            mask = causal & ~np.tril(causal, -window) if window else causal
            k = dict(input=stream, shape=ids.shape, table=rope and tables(c, rope, positions))
            k["normed"], k["input_scale"] = self.norm(at + "input_layernorm", stream)
            if f"{at}linear_attn.A_log" in self.masters:
                k["attended"] = self.delta_rule(at + "linear_attn.", k)
            else:
                k["attended"] = self.attention(at + "self_attn.", mask, k)
            branch, k["attended_scale"] = self.norm(at + behind[0], k["attended"])
            k["middle"] = r(stream + of_branch * branch)
            k["post"], k["post_scale"] = self.norm(at + behind[1], k["middle"])
            if f"{at}mlp.gate.weight" in self.masters:
                stream = self.experts(at + "mlp.", k["post"], k["middle"])
                saved.append(k)
                continue
            k["gate_up"], k["gate_up_ranks"] = self.linear([at + f"mlp.{p}_proj" for p in ("gate", "up")], k["post"])
            gate, up = np.split(k["gate_up"], 2, -1)
            k["gated"] = r(activation(gate, self.gemma)[0] * up)
            # A branch that nothing changes is added before it is rounded.
            alone = f"{at}{behind[2]}.weight" not in self.masters and of_branch == 1
            k["mlp"], k["down_ranks"] = self.linear([at + "mlp.down_proj"], k["gated"], k["middle"] if alone else 0)
            branch, k["mlp_scale"] = self.norm(at + behind[2], k["mlp"])
            stream = branch if alone else r(k["middle"] + of_branch * branch)
            saved.append(k)
        hidden, scale = self.norm("model.norm", stream)
        hidden = r(of_logits * hidden)
        self.saved = dict(layers=saved, last=stream, scale=scale, hidden=hidden, ids=ids)
        return r(hidden @ self.w(self.head()).T)

    def projections(self, at):
        return [f"{at}{p}_proj" for p in (*"qkv", *(["gate"] if self.gated else []))]

    def attention(self, at, mask, k):
        r, c, (batch, positions) = self.rounding.r, self.config, k["shape"]
        projected, k["qkv_ranks"] = self.linear(self.projections(at), k["normed"])
        projected = projected.reshape(batch, positions, -1, self.d)
        qkv, k["gate"] = np.split(projected, [self.heads + 2 * self.kv], 2)
        k["raw"] = raw = qkv[:, :, : self.heads + self.kv]
        if self.has_norms(at):
            k["qk_scale"] = 1 / np.sqrt(self.mean(raw * raw) + c["rms_norm_eps"])
            raw = self.qk_gamma(at) * (raw * k["qk_scale"])
        qk, k["v"] = r(self.turned(raw, k["table"])), qkv[:, :, self.heads + self.kv :]
        k["q"], k["k"] = qk[:, :, : self.heads], qk[:, :, self.heads :]
        keys, values = (np.repeat(k[name], self.heads // self.kv, 2) for name in "kv")
        scores = np.einsum("bihd,bjhd->bhij", k["q"], keys) * self.score
        scores = np.where(mask, scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        total = p.sum(-1, keepdims=True)
        k["p"] = p / total
        k["o"] = r(np.einsum("bhij,bjhd->bihd", r(p), values) / total.transpose(0, 2, 1, 3))
        y = r(k["o"] * sigmoid(k["gate"])) if self.gated else k["o"]
        k["y"] = y.reshape(batch * positions, -1)
        attended, k["o_ranks"] = self.linear([f"{at}o_proj"], k["y"])
        return attended

    def attention_backward(self, at, dbranch, k, grads):
        r, (batch, positions) = self.rounding.r, k["shape"]
        d_o = self.linear_backward([f"{at}o_proj"], dbranch, k["y"], k["o_ranks"], grads)
        d_o, o = d_o.reshape(batch, positions, self.heads, self.d), k["o"]
        dgate = []
        if self.gated:
            s = sigmoid(k["gate"])
            d_o, dgate = r(d_o * s), [r(d_o * o * s * (1 - s))]
        keys, values = (np.repeat(k[name], self.heads // self.kv, 2) for name in "kv")
        delta = (o * d_o).sum(-1).transpose(0, 2, 1)[..., None]
        dp = np.einsum("bihd,bjhd->bhij", d_o, values)
        ds, p = r(k["p"] * (dp - delta)), r(k["p"])
        grouped = lambda x: x.reshape(batch, positions, self.kv, -1, self.d).sum(3)
        dv = grouped(np.einsum("bhij,bihd->bjhd", p, d_o))
        dk = grouped(np.einsum("bhij,bihd->bjhd", ds, k["q"])) * self.score
        dq = np.einsum("bhij,bjhd->bihd", ds, keys) * self.score
        dqk, dv = r(np.concatenate([dq, dk], 2)), r(dv)
        dqk = self.turned(dqk, k["table"], -1)
        if "qk_scale" in k:
            gamma, n = self.qk_gamma(at), k["raw"] * k["qk_scale"]
            of_gamma = (dqk * n).sum((0, 1))
            summed = (lambda part: part.reshape(-1)) if self.of_rows else (lambda part: part.sum(0))
            self.add(grads, at + "q_norm.weight", lambda: summed(of_gamma[: self.heads]))
            self.add(grads, at + "k_norm.weight", lambda: summed(of_gamma[self.heads :]))
            dqk = k["qk_scale"] * (gamma * dqk - n * self.mean(gamma * dqk * n))
        dqkv = np.concatenate([r(dqk), dv, *dgate], 2).reshape(batch * positions, -1)
        return self.linear_backward(self.projections(at), dqkv, k["normed"], k["qkv_ranks"], grads)

    # The gated delta rule; its tensors are [batch, positions, heads, 128].

    def delta_rule(self, at, k):
        r, c, (batch, positions) = self.rounding.r, self.config, k["shape"]
        keys, values, d = c["linear_num_key_heads"], c["linear_num_value_heads"], 128
        k["rule"] = rule = {}
        projected, rule["ranks"] = self.linear([f"{at}in_proj_{p}" for p in ("qkv", "z", "b", "a")], k["normed"])
        x, z, b, a = np.split(projected.reshape(batch, positions, -1), np.cumsum([(2 * keys + values) * d, values * d, values]), -1)
        taps = self.w(f"{at}conv1d.weight")[:, 0]
        before = np.pad(x, ((0, 0), (3, 0), (0, 0)))
        rule["conv"] = r(sum(taps[:, j] * before[:, j : j + positions] for j in range(4)))
        heads = r(silu(rule["conv"])[0]).reshape(batch, positions, -1, d)
        rule |= dict(before=before, z=z.reshape(batch, positions, values, d), decay=-np.exp(self.masters[f"{at}A_log"]))
        rule["step"] = a + self.masters[f"{at}dt_bias"]
        q, key, v = np.split(heads, [keys, 2 * keys], 2)
        unit = lambda x: 1 / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)
        rule |= dict(q_scale=unit(q), k_scale=unit(key), v=v, beta=r(sigmoid(b)), g=rule["decay"] * np.logaddexp(0, rule["step"]))
        rule["q"], rule["k"] = q * rule["q_scale"], key * rule["k_scale"]
        wide = lambda x: np.repeat(x, values // keys, 2)
        state, states, o = np.zeros((batch, values, d, d)), [], np.empty_like(v)
        for t, (q, key) in enumerate(zip(*(wide(rule[name]).transpose(1, 0, 2, 3) for name in "qk"))):
            states.append(state)
            state = np.exp(rule["g"][:, t])[..., None, None] * state
            read = np.einsum("bhij,bhi->bhj", state, key)
            state = state + key[..., None] * (rule["beta"][:, t, :, None] * (v[:, t] - read))[..., None, :]
            o[:, t] = np.einsum("bhij,bhi->bhj", state, q) / math.sqrt(d)
        rule |= dict(states=states, o=r(o), wide=wide)
        rule["o_scale"] = 1 / np.sqrt((rule["o"] * rule["o"]).mean(-1, keepdims=True) + c["rms_norm_eps"])
        k["y"] = r(self.w(f"{at}norm.weight") * r(rule["o"] * rule["o_scale"]) * silu(rule["z"])[0]).reshape(batch * positions, -1)
        attended, k["o_ranks"] = self.linear([f"{at}out_proj"], k["y"])
        return attended

    def delta_rule_backward(self, at, dbranch, k, grads):
        r, rule, (batch, positions), d = self.rounding.r, k["rule"], k["shape"], 128
        o, z, v, beta, g = (rule[name] for name in ("o", "z", "v", "beta", "g"))
        dy = self.linear_backward([f"{at}out_proj"], dbranch, k["y"], k["o_ranks"], grads).reshape(o.shape)
        gamma, n, (gate, slope) = self.w(f"{at}norm.weight"), r(o * rule["o_scale"]), silu(z)
        dz, dn = r(dy * gamma * n * slope), dy * gate
        self.add(grads, f"{at}norm.weight", lambda: (dn * n).sum((0, 1, 2)))
        mean = (gamma * dn * o * rule["o_scale"]).mean(-1, keepdims=True)
        d_o = r(rule["o_scale"] * (gamma * dn - o * rule["o_scale"] * mean)) / math.sqrt(d)
        queries, keys = (rule["wide"](rule[name]) for name in "qk")
        dq, dk, dv, dbeta, dg = (np.empty_like(x) for x in (v, v, v, beta, g))
        dstate = 0
        for t in reversed(range(positions)):
            q, key, value, step, grown = queries[:, t], keys[:, t], v[:, t], beta[:, t, :, None], np.exp(g[:, t])[..., None, None]
            state = grown * rule["states"][t]
            left = value - np.einsum("bhij,bhi->bhj", state, key)
            after = state + key[..., None] * (step * left)[..., None, :]
            dstate = dstate + q[..., None] * d_o[:, t, :, None, :]
            dq[:, t] = np.einsum("bhij,bhj->bhi", after, d_o[:, t])
            dchange = np.einsum("bhij,bhi->bhj", dstate, key)
            dbeta[:, t], dv[:, t] = (dchange * left).sum(-1), step * dchange
            dk[:, t] = np.einsum("bhij,bhj->bhi", dstate, step * left) - np.einsum("bhij,bhj->bhi", state, dv[:, t])
            dstate = dstate - key[..., None] * dv[:, t, :, None, :]
            dg[:, t] = (dstate * state).sum((-2, -1))
            dstate = grown * dstate

        def of_raw(dx, x, scale):
            dx = dx.reshape(*x.shape[:3], -1, d).sum(3)
            return scale * (dx - x * (x * dx).sum(-1, keepdims=True))

        dheads = [of_raw(dq, rule["q"], rule["q_scale"]), of_raw(dk, rule["k"], rule["k_scale"]), dv]
        dsum = r(np.concatenate(dheads, 2)).reshape(batch, positions, -1) * silu(rule["conv"])[1]
        taps, behind = self.w(f"{at}conv1d.weight")[:, 0], np.pad(dsum, ((0, 0), (0, 3), (0, 0)))
        dx = r(sum(taps[:, j] * behind[:, 3 - j : 3 - j + positions] for j in range(4)))
        of_taps = [(dsum * rule["before"][:, j : j + positions]).sum((0, 1)) for j in range(4)]
        self.add(grads, f"{at}conv1d.weight", lambda: np.stack(of_taps, -1)[:, None])
        self.add(grads, f"{at}A_log", lambda: (dg * g).sum((0, 1)))
        da = dg * rule["decay"] * sigmoid(rule["step"])
        self.add(grads, f"{at}dt_bias", lambda: da.sum((0, 1)))
        dprojected = np.concatenate([dx, dz.reshape(batch, positions, -1), r(dbeta * beta * (1 - beta)), r(da)], -1)
        names = [f"{at}in_proj_{p}" for p in ("qkv", "z", "b", "a")]
        return self.linear_backward(names, dprojected.reshape(batch * positions, -1), k["normed"], rule["ranks"], grads)

    def experts(self, at, x, residual):
        r, chosen = self.rounding.r, self.config["num_experts_per_tok"]
        logits = r(x @ self.w(f"{at}gate.weight").T)
        weights = np.exp(softmax_log(logits))
        # Of equal logits the lower expert.
        choices = np.argsort(-logits, -1, kind="stable")[:, :chosen]
        if self.config["norm_topk_prob"]:
            weights = weights / np.take_along_axis(weights, choices, -1).sum(-1, keepdims=True)
        out = residual.copy()
        for expert in range(logits.shape[-1]):
            rows = (choices == expert).any(-1)
            if rows.any():
                of = f"{at}experts.{expert}."
                gate, up = np.split(self.linear([f"{of}{p}_proj" for p in ("gate", "up")], x[rows])[0], 2, -1)
                down, _ = self.linear([f"{of}down_proj"], r(activation(gate, self.gemma)[0] * up))
                out[rows] += weights[rows, expert : expert + 1] * down
        return r(out)

    def head(self):
        return "model.embed_tokens.weight" if self.config["tie_word_embeddings"] else "lm_head.weight"

    def has_norms(self, at):
        return f"{at}q_norm.weight" in self.masters

    def behind(self):
        """Norms behind attention, before the MLP and behind it: those that a family has not are in no file."""
        return {"olmo2": ("post_attention_layernorm", "-", "post_feedforward_layernorm"),
                "gemma3_text": ("post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")}.get(
                    self.config["model_type"], ("-", "post_attention_layernorm", "-"))

    def mean(self, x):
        """Of what is normalized together: a head, or all of q, or of k."""
        if not self.of_rows:
            return x.mean(-1, keepdims=True)
        parts = x[..., : self.heads, :], x[..., self.heads :, :]
        return np.concatenate([np.broadcast_to(part.mean((-2, -1), keepdims=True), (*part.shape[:-1], 1)) for part in parts], -2)

    def qk_gamma(self, at):
        parts = (("q", self.heads), ("k", self.kv))
        if self.of_rows:
            return np.concatenate([self.gamma(f"{at}{p}_norm").reshape(count, -1) for p, count in parts])
        return np.concatenate([np.tile(self.gamma(f"{at}{p}_norm"), (count, 1)) for p, count in parts])

    def backward(self, dlogits, grads):
        r, s, behind = self.rounding.r, self.saved, self.behind()
        of_embedding, of_branch, of_logits = self.multipliers
        batch, positions = s["ids"].shape
        self.add(grads, self.head(), lambda: dlogits.T @ s["hidden"])
        dhidden = r(of_logits * r(dlogits @ self.w(self.head())))
        dstream = self.norm_backward("model.norm", dhidden, s["last"], s["scale"], 0, grads)
        for layer in reversed(range(len(s["layers"]))):
            at, k = f"model.layers.{layer}.", s["layers"][layer]
            dbranch = self.norm_backward(at + behind[2], r(of_branch * dstream), k["mlp"], k["mlp_scale"], 0, grads)
            dgated = self.linear_backward([at + "mlp.down_proj"], dbranch, k["gated"], k["down_ranks"], grads)
            gate, up = np.split(k["gate_up"], 2, -1)
            value, slope = activation(gate, self.gemma)
            dgate_up = r(np.concatenate([dgated * up * slope, dgated * value], -1))
            dpost = self.linear_backward([at + f"mlp.{p}_proj" for p in ("gate", "up")], dgate_up, k["post"], k["gate_up_ranks"], grads)
            dmiddle = self.norm_backward(at + behind[1], dpost, k["middle"], k["post_scale"], dstream, grads)
            dbranch = self.norm_backward(at + behind[0], r(of_branch * dmiddle), k["attended"], k["attended_scale"], 0, grads)
            if "rule" in k:
                dnormed = self.delta_rule_backward(at + "linear_attn.", dbranch, k, grads)
            else:
                dnormed = self.attention_backward(at + "self_attn.", dbranch, k, grads)
            dstream = self.norm_backward(at + "input_layernorm", dnormed, k["input"], k["input_scale"], dmiddle, grads)
        table = "model.embed_tokens.weight"
        if table in self.trained:
            rows = np.zeros_like(self.masters[table])
            np.add.at(rows, s["ids"].reshape(-1), r(of_embedding * dstream))
            self.add(grads, table, lambda: rows)


def losses(c, student, teacher, targets):
    """Sums over the tokens that count, (kd, ce), and the gradient of loss sums for the student's logits."""
    vocab, counted = student.shape[-1], (targets != -100)[:, None]
    log = softmax_log(student)
    target = np.where(targets == -100, 0, targets)
    ce = -(log[np.arange(len(log)), target] * counted[:, 0]).sum()
    dce = np.exp(log)
    dce[np.arange(len(log)), target] -= 1
    if teacher is None:
        return 0.0, ce, dce * counted
    temperature, beta, alpha = c["T"], c.get("beta", 0), c["alpha"]
    t, s = softmax_log(teacher[:, :vocab] / temperature), softmax_log(student / temperature)
    p, q = np.exp(t), np.exp(s)
    if beta == 0:
        each, of_logit = (p * (t - s)).sum(-1), q - p
    elif beta == 1:
        each = (q * (s - t)).sum(-1)
        of_logit = q * (s - t - each[:, None])
    else:
        m = np.logaddexp(t + math.log(beta), s + math.log(1 - beta))
        of_student = (q * (s - m)).sum(-1)
        each = beta * (p * (t - m)).sum(-1) + (1 - beta) * of_student
        of_logit = (1 - beta) * q * (s - m - of_student[:, None])
    kd = (each * counted[:, 0]).sum()
    return kd, ce, (alpha * temperature * of_logit + (1 - alpha) * dce) * counted


def rate(c, step):
    if step < c["warmup"]:
        return c["lr"] * (step + 1) / c["warmup"]
    done = (step - c["warmup"]) / (c["steps"] - c["warmup"])
    return c["lr"] if c["sched"] == "constant" else c["lr"] / 2 * (1 + math.cos(math.pi * done))


def rows_of(case, c):
    """Inputs and targets, [rows, S] each, and the tokens of each row."""
    if (case / "rows.jsonl").exists():
        rows = [json.loads(line) for line in (case / "rows.jsonl").read_text().splitlines()]
        padded = lambda row, by: row + [by] * (c["S"] + 1 - len(row))
        ids, labels = (np.array([padded(row[name], by) for row in rows]) for name, by in (("input_ids", 0), ("labels", -100)))
        lengths = [len(row["input_ids"]) for row in rows]
    else:
        ids = labels = np.fromfile(case / "tokens.bin", "<u4").astype(int).reshape(-1, c["S"] + 1)
        lengths = [c["S"] + 1] * len(ids)
    return ids[:, :-1], labels[:, 1:], lengths


def student_of(case, rounding, trains=True, moved=0.0, seed=0):
    """The student of a case, of weights that are `moved`."""
    adapter = case / "adapter" if (case / "adapter").exists() else None
    return displaced(Model(case / "student", rounding, trains and adapter is None, adapter if trains else None), moved, seed)


def displaced(model, moved, seed):
    """A model whose weights are `moved`, by so much of each at most, before they are rounded."""
    random = np.random.default_rng(seed)
    for weight, value in model.masters.items():
        model.masters[weight] = value * (1 + moved * random.uniform(-1, 1, value.shape))
    return model


def train(case, name, moved=0.0, seed=0, steps=None):
    """The trajectory under a rounding, of its first steps if `steps` says how many, and the first one's gradients and logits."""
    c, rounding = json.loads((case / "case.json").read_text()), Rounding(name)
    student = student_of(case, rounding, moved=moved, seed=seed)
    plain = Rounding("exact" if name == "exact" else "bf16")
    teacher = Model(case / "teacher", plain, False) if (case / "teacher").exists() else None
    alpha = c["alpha"] if teacher else 0.0
    inputs, targets, lengths = rows_of(case, c)
    batches = micro_batches.of(c, lengths)
    moments = {name: (0.0, 0.0) for name in student.trained}
    lines, first = [], None
    for step in range(steps or c["steps"]):
        micro = batches[step * c["accum"] : (step + 1) * c["accum"]]
        tokens = sum((targets[rows] != -100).sum() for rows in micro)
        grads, kd, ce = {}, 0.0, 0.0
        for rows in micro:
            logits = student.forward(inputs[rows])
            of_teacher = teacher.forward(inputs[rows]) if teacher else None
            of_kd, of_ce, gradient = losses(c, logits, of_teacher, targets[rows].reshape(-1))
            kd, ce = kd + of_kd, ce + of_ce
            student.backward(rounding.r(gradient / tokens), grads)
        if first is None:
            first = {f"grad.{name}": value for name, value in student.of_files(grads).items()} | dict(student_logits=logits[: c["S"]])
        norm = math.sqrt(sum((g * g).sum() for g in grads.values()))
        clip = min(1.0, c["clip"] / (norm + 1e-6)) if c["clip"] else 1.0
        lr, corrections = rate(c, step), (1 - 0.9 ** (step + 1), 1 - 0.999 ** (step + 1))
        for name, g in grads.items():
            g, (m, v), w = clip * g, moments[name], student.masters[name]
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            moments[name] = m, v
            decay = c["wd"] if w.ndim > 1 else 0.0
            student.masters[name] = w - lr * (decay * w + m / corrections[0] / (np.sqrt(v / corrections[1]) + 1e-8))
        kd, ce = kd / tokens, ce / tokens
        loss = alpha * c.get("T", 1.0) ** 2 * kd + (1 - alpha) * ce
        lines.append(dict(step=step + 1, loss=loss, kd_loss=kd, ce_loss=ce, grad_norm=norm, lr=lr, tokens=int(tokens)))
    return lines, first


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def apart(found, expected):
    """Largest relative differences over the steps of both, by name."""
    differences = {}
    for name in GATES:
        differences[name] = max(abs(a[name] - b[name]) / max(abs(b[name]), 1e-12) for a, b in zip(found, expected))
    return differences


def of_gradients(found, expected):
    """Distances of the gradients of the lowest layer's matrices, relative to their norms."""
    names = [n for n in expected if ".layers.0." in n and expected[n].ndim > 1]
    return {n.split(".")[-2]: np.linalg.norm(found[n] - expected[n]) / np.linalg.norm(expected[n]) for n in names}


def said(differences):
    return ", ".join(f"{name} {value:.1e}" for name, value in differences.items())


def check(case):
    expected, c = read(case / "trajectory.jsonl"), dict(alpha=0) | json.loads((case / "case.json").read_text())
    for name, gates in (("exact", EXACT), ("bf16", GATES)):
        found, _ = train(case, name)
        assert len(found) == len(expected), "another number of steps"
        print(f"{case.name}, {name}: {said(apart(found, expected))}")
        for a, b in zip(found, expected):
            for quantity, gate in gates.items():
                # Where all of the loss is the teacher's, it is off as the divergence is.
                gate = gates["kd_loss"] if quantity == "loss" and c["alpha"] == 1 else gate
                off = abs(a[quantity] - b[quantity]) / max(abs(b[quantity]), 1e-12)
                if quantity == "grad_norm" and name == "bf16":
                    gate = SENSITIVE.get((case.name, a["step"]), gate)
                assert off <= gate, f"{case.name}, {name}, step {a['step']}, {quantity}: {off:.1e} > {gate:.0e}"


# Runs whose mean is what a run must come to, of weights that are moved by roundings of f32, and how far.
RUNS, MOVED = 12, 2**-22
# `GATE` of tests/golden_int8.rs.
BEYOND = 1.5


def write(case):
    """A rounding to 8 bits that falls otherwise moves a step as roundings of bf16 do, and single ones always do: what is written is the
    mean of runs whose weights have been moved by less than anything rounds, and their standard deviation over the mean, `spread`."""
    runs = [train(case, "int8", MOVED, seed)[0] for seed in range(RUNS)]
    lines = []
    for of_step in zip(*runs):
        values = {name: np.array([line[name] for line in of_step]) for name in GATES}
        mean = {name: float(value.mean()) for name, value in values.items()}
        spread = {name: float(value.std(ddof=1) / max(abs(mean[name]), 1e-12)) for name, value in values.items()}
        lines.append(of_step[0] | mean | dict(spread={name: round(value, 6) for name, value in spread.items()}))
    out = case / "int8"
    out.mkdir(exist_ok=True)
    (out / "trajectory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    largest = {name: max(line["spread"][name] for line in lines) for name in GATES}
    print(f"{case.name}: {said(apart(lines, read(case / 'trajectory.jsonl')))} from PyTorch's; spread {said(largest)}", flush=True)


def divergence(case, name, moved=0.0, seed=0):
    """Mean KL of the student's predictions in bf16 to those under a rounding, nats a token, over the first micro-batch."""
    c = json.loads((case / "case.json").read_text())
    inputs, targets = (rows[: c["B"]] for rows in rows_of(case, c)[:2])
    exact, other = (softmax_log(student_of(case, Rounding(of), False, moved, seed).forward(inputs)) for of in ("bf16", name))
    return (np.exp(exact) * (exact - other)).sum(-1)[targets.reshape(-1) != -100].mean()


def write_teacher(case):
    """Mean KL of the teacher's predictions in bf16 to those in int8, nats a token, over all rows: of runs whose weights have been moved."""
    inputs = rows_of(case, json.loads((case / "case.json").read_text()))[0]

    def kl(name, seed):
        predict = lambda of: softmax_log(displaced(Model(case / "teacher", Rounding(of), False), MOVED, seed).forward(inputs))
        exact, other = predict("bf16"), predict(name)
        return (np.exp(exact) * (exact - other)).sum(-1).mean()

    of_runs = np.array([kl("int8", seed) for seed in range(RUNS)])
    (case / "int8").mkdir(exist_ok=True)
    kept = dict(kl=float(of_runs.mean()), deviation=float(of_runs.std(ddof=1)))
    (case / "int8/teacher.json").write_text(json.dumps(kept) + "\n")
    print(f"{case.name}: {kept}; " + ", ".join(f"{name} {kl(name, 0):.2e}" for name in OTHERS), flush=True)


OTHERS = ("exact", "bf16", "int8 unrotated", "int8 scaled by 128", "int8 forward alone")


def write_first(case):
    """Of the first step in int8: sums of the gradient of each matrix, means of runs whose weights have been moved; `apart.NAME`, how far
    the farthest of them is from that, and bf16's; and `kl`, the mean of `divergence`."""
    runs = [train(case, "int8", MOVED, seed, 1)[1] for seed in range(RUNS)]
    others = {name: train(case, name, steps=1)[1] for name in OTHERS}
    kept, beyond = {}, dict.fromkeys(OTHERS, 0)
    for name in (name for name, value in runs[0].items() if name.startswith("grad.") and value.ndim > 1):
        # As PyTorch calls an adapter's.
        known = re.sub("(lora_[AB])", r"\1.default", name)
        mean = weights.sums(known, sum(run[name] for run in runs) / RUNS)
        off = lambda run: math.sqrt(np.square(weights.sums(known, run[name])[:-1] - mean[:-1]).mean()) / mean[-1]
        farthest, of_others = max(map(off, runs)), {other: off(first) for other, first in others.items()}
        beyond = {other: count + (of_others[other] > BEYOND * farthest) for other, count in beyond.items()}
        kept |= {known: mean, f"apart.{known}": np.array([farthest, of_others["bf16"]])}
        print(f"{case.name}, {known}: {farthest:.1e}, {said(of_others)}")
    print(f"{case.name}, of {len(kept) // 2} gradients not int8's: {', '.join(f'{other} {count}' for other, count in beyond.items())}")
    of_runs = np.array([divergence(case, "int8", MOVED, seed) for seed in range(RUNS)])
    kept["kl"] = np.array([of_runs.mean()])
    (case / "int8").mkdir(exist_ok=True)
    save_file(kept, case / "int8/step0.safetensors")
    said_of = ", ".join(f"{name} {divergence(case, name):.2e}" for name in OTHERS)
    print(f"{case.name}, KL: {of_runs.mean():.2e}, standard deviation {of_runs.std(ddof=1):.0e}; {said_of}", flush=True)


def compare(case):
    expected, first = train(case, "int8")
    found, gradients = train(case, "int8", MOVED)
    print(f"{case.name}, int8 of weights moved by 2^-22: {said(apart(found, expected))}; first gradients {said(of_gradients(gradients, first))}")
    for name in OTHERS:
        found, gradients = train(case, name)
        print(f"{case.name}, {name}: {said(apart(found, expected))}; first gradients {said(of_gradients(gradients, first))}")


def spread(case, runs=30):
    """Of runs under `bf16` whose weights have been moved by less than anything rounds: what the gates must allow."""
    expected, (_, exact) = read(case / "trajectory.jsonl"), train(case, "exact", steps=1)
    off, farthest = {name: [] for name in GATES}, []
    for seed in range(runs):
        found, first = train(case, "bf16", MOVED, seed)
        farthest.append(max((np.linalg.norm(first[name] - exact[name]) / np.linalg.norm(exact[name]), name) for name in exact if "grad." in name))
        for name, values in off.items():
            values.append([a[name] / b[name] - 1 if b[name] else 0.0 for a, b in zip(found, expected)])
    for name, values in off.items():
        values = np.array(values)
        worst, deviation = np.abs(values).max(1), values.std(0, ddof=1)
        step = deviation.argmax()
        print(f"{case.name}, {name}: largest of a run {worst.min():.2e} to {worst.max():.2e}, in {(worst > GATES[name]).sum()} of "
              f"{runs} above {GATES[name]:.0e}; largest standard deviation {deviation[step]:.1e}, at step {step + 1}", flush=True)
    (least, _), (most, name) = min(farthest), max(farthest)
    print(f"{case.name}, first gradients: the farthest of a run {least:.1e} to {most:.1e}, {name}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "write", "first", "apart", "teacher", "spread"])
    parser.add_argument("case", type=pathlib.Path, nargs="+")
    arguments = parser.parse_args()
    for case in arguments.case:
        {"check": check, "write": write, "first": write_first, "apart": compare, "teacher": write_teacher, "spread": spread}[arguments.what](
            case.resolve())


if __name__ == "__main__":
    main()
