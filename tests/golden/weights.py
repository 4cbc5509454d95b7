"""Weights that no file holds: functions of a seed, a name and an index, with the same bits here and in tests/golden_weights.rs.

Element i of tensor NAME of a model with role ROLE (teacher, student, adapter), in float32:

    z = splitmix64's output number i of the state seed ^ FNV-1a("ROLE.NAME")
    u = (z >> 40) / 2^23 - 1                                    24 bits, from -1 to below 1: exact
    weight = initializer_range u, and 1 + that of norms         rounded after the product and after the sum; Gemma's norms add the 1,
                                                                as Qwen3.5's do but for the gated one

Of gradients and logits 24 sums of their elements are kept, each with signs of its own, and their norm: the squares of the differences
of two tensors' sums are, on the average, the square of the distance between the tensors.
"""

import hashlib
import json

import numpy as np
from safetensors.numpy import load_file


def words(seed, name, count):
    """Words of 24 bits."""
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed ^ state) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            z = (z ^ z >> np.uint64(shift)) * np.uint64(factor)
    return (z ^ z >> np.uint64(31)) >> np.uint64(40)


def tensor(seed, scale, name, shape, gamma=1):
    u = words(seed, name, int(np.prod(shape))).astype(np.float32) * np.float32(2.0**-23) - np.float32(1)
    is_gated = name.endswith("linear_attn.norm.weight")
    base = np.float32(1 if is_gated else gamma if name.endswith("norm.weight") else 0)
    return (base + np.float32(scale) * u).reshape(shape)


QWEN3_5 = ("qwen3_5_text", "qwen3_5_moe_text")
# Norms of layers: those of every family but these.
NORMS = ("input_layernorm", "post_attention_layernorm")
BEHIND = ("post_attention_layernorm", "post_feedforward_layernorm")
NORMS_OF = dict(olmo2=BEHIND, olmo3=BEHIND, gemma3_text=(*NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm"))


def delta_rule(at, config):
    """Those of a layer of the gated delta rule."""
    hidden, keys, values = (config[name] for name in ("hidden_size", "linear_num_key_heads", "linear_num_value_heads"))
    channels, width = (2 * keys + values) * 128, values * 128
    for part, rows in (("qkv", channels), ("z", width), ("b", values), ("a", values)):
        yield f"{at}in_proj_{part}.weight", (rows, hidden)
    yield f"{at}conv1d.weight", (channels, 1, 4)
    yield f"{at}A_log", (values,)
    yield f"{at}dt_bias", (values,)
    yield f"{at}norm.weight", (128,)
    yield f"{at}out_proj.weight", (hidden, width)


def mlp(at, hidden, width):
    """Those of an MLP."""
    for projection in ("gate", "up"):
        yield f"{at}{projection}_proj.weight", (width, hidden)
    yield f"{at}down_proj.weight", (hidden, width)


def experts(at, config):
    """Those of a mixture of experts, one expert after another."""
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    count = config.get("num_experts") or config["num_local_experts"]
    yield f"{at}gate.weight", (count, hidden)
    for expert in range(count):
        yield from mlp(f"{at}experts.{expert}.", hidden, width)
    if "shared_expert_intermediate_size" in config:
        yield f"{at}shared_expert_gate.weight", (1, hidden)
        yield from mlp(f"{at}shared_expert.", hidden, config["shared_expert_intermediate_size"])


def fused(tensors):
    """Those of a model as transformers has them in memory: gate and up, and down, of all experts in one tensor each."""
    parts = {}
    for name in [name for name in tensors if ".mlp.experts." in name]:
        layer, rest = name.split(".mlp.experts.")
        parts.setdefault(layer, {})[rest.removesuffix("_proj.weight")] = tensors.pop(name)
    for layer, of in parts.items():
        count = len(of) // 3
        gate_up = [np.concatenate([of[f"{expert}.gate"], of[f"{expert}.up"]]) for expert in range(count)]
        tensors[f"{layer}.mlp.experts.gate_up_proj"] = np.stack(gate_up)
        tensors[f"{layer}.mlp.experts.down_proj"] = np.stack([of[f"{expert}.down"] for expert in range(count)])
    return tensors


def shapes(config):
    """Names and shapes of a model's parameters."""
    hidden, heads, kv = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    d = config.get("head_dim") or hidden // heads
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    yield "model.norm.weight", (hidden,)
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for norm in NORMS_OF.get(config["model_type"], NORMS):
            yield f"{at}{norm}.weight", (hidden,)
        yield from experts(f"{at}mlp.", config) if "moe_intermediate_size" in config else mlp(f"{at}mlp.", hidden, config["intermediate_size"])
        if config.get("layer_types", [])[layer : layer + 1] == ["linear_attention"]:
            yield from delta_rule(f"{at}linear_attn.", config)
            continue
        is_gated = config["model_type"] in QWEN3_5
        for projection, count in (("q", heads * (2 if is_gated else 1)), ("k", kv), ("v", kv)):
            yield f"{at}self_attn.{projection}_proj.weight", (count * d, hidden)
            if config["model_type"] == "qwen2":
                yield f"{at}self_attn.{projection}_proj.bias", (count * d,)
            if config["model_type"] in ("qwen3", "qwen3_moe", "olmo2", "olmo3", "gemma3_text", *QWEN3_5) and projection != "v":
                yield f"{at}self_attn.{projection}_norm.weight", (count * d if "olmo" in config["model_type"] else d,)
        yield f"{at}self_attn.o_proj.weight", (hidden, heads * d)


def of_model(directory):
    """The tensors of a model by their names, float32: those of its file, or by its case's seed."""
    if (directory / "model.safetensors").exists():
        return load_file(directory / "model.safetensors")
    config = json.loads((directory / "config.json").read_text())
    return made(directory.parent, directory.name, config, shapes(config))


def of_adapter(case):
    """The factors of a case's adapter by their names, float32: those of its file, or by its seed."""
    if (case / "adapter/adapter_model.safetensors").exists():
        return load_file(case / "adapter/adapter_model.safetensors")
    c, config = (json.loads((case / name).read_text()) for name in ("case.json", "student/config.json"))
    modules = ((name.removesuffix(".weight"), shape) for name, shape in shapes(config))
    adapted = [(module, shape) for module, shape in modules if module.rsplit(".", 1)[-1] in c["lora"]["target_modules"] and len(shape) == 2]
    factors = lambda out, of: (("A", (c["lora"]["r"], of)), ("B", (out, c["lora"]["r"])))
    named = [(f"base_model.model.{module}.lora_{factor}.weight", shape) for module, whole in adapted for factor, shape in factors(*whole)]
    return made(case, "adapter", config, named)


def made(case, role, config, shapes):
    seed = json.loads((case / "case.json").read_text())["seed"]
    gamma = 0 if config["model_type"] in ("gemma3_text", *QWEN3_5) else 1
    return {name: tensor(seed, config["initializer_range"], f"{role}.{name}", shape, gamma) for name, shape in shapes}


def sums(name, tensor):
    """Sum k has the sign - where bit k of an element's word is 0; the norm is behind them. Float64."""
    drawn, values = words(0, f"signs.{name}", tensor.size), tensor.astype(float).reshape(-1)
    signed = [np.where(drawn >> np.uint64(bit) & np.uint64(1), values, -values).sum() for bit in range(24)]
    return np.array([*signed, np.linalg.norm(values)])


def digest(tensors):
    """SHA-256 of all tensors, little-endian, in the order of their names."""
    return hashlib.sha256(b"".join(tensors[name].astype("<f4").tobytes() for name in sorted(tensors))).hexdigest()
