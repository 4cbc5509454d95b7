"""Writes a tiny model as an APR file of version 2, from the format's page alone, and beside it what the file says: a Hugging
Face directory of the same values in f32. Nothing of the trainer is used.

    write.py OUT [--family qwen2|llama] [--tied] [--older] [--rope 0|2] [--only DTYPE] [--small] [--flags N] [--set KEY=JSON]...

makes OUT/model.apr and OUT/expected/. Matrices have one type after the other; --older spells AprQ4 and AprQ8 8 and 9.
"""

import argparse
import json
import os
import random
import struct
import zlib

CODES = {"F32": 0, "F16": 1, "BF16": 30, "Q4_K": 12, "Q6_K": 14, "AprQ4": 128, "AprQ8": 129}
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 256, 32, 4, 2, 16, 40


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def f16(x):
    return struct.pack("<e", x)


def half(b):
    return struct.unpack("<e", b)[0]


def bits(n):
    return bytes(rng.getrandbits(8) for _ in range(n))


def q4_k(count):
    """Blocks of 256: scale and minimum in f16, eight 6-bit pairs of them in 12 bytes, 128 bytes of nibbles."""
    data, values = b"", []
    for _ in range(count // 256):
        s, q = bits(12), bits(128)
        head = f16(0.0003 * (0.5 + rng.random())) + f16(0.0023 * (0.5 + rng.random()))
        d, dmin = half(head[:2]), half(head[2:])
        data += head + s + q
        for j in range(8):
            if j < 4:
                scale, low = s[j] & 63, s[j + 4] & 63
            else:
                scale, low = s[j + 4] & 15 | s[j - 4] >> 6 << 4, s[j + 4] >> 4 | s[j] >> 6 << 4
            nibbles = [b >> 4 if j % 2 else b & 15 for b in q[32 * (j // 2) : 32 * (j // 2) + 32]]
            values += [f32(f32(f32(d * scale) * n) - f32(dmin * low)) for n in nibbles]
    return data, values


def q6_k(count):
    """Blocks of 256: 128 bytes of low nibbles, 64 of high pairs, sixteen i8 scales, a scale in f16."""
    data, values = b"", []
    for _ in range(count // 256):
        low, high, s, d = bits(128), bits(64), bits(16), f16(0.00004 * (0.5 + rng.random()))
        data += low + high + s + d
        scales = struct.unpack("16b", s)
        for i in range(256):
            n, at = divmod(i, 128)
            quarter, l = divmod(at, 32)
            byte = low[64 * n + 32 * (quarter % 2) + l]
            q = (byte >> 4 if quarter >= 2 else byte & 15) | (high[32 * n + l] >> 2 * quarter & 3) << 4
            values.append(f32(f32(half(d) * scales[8 * n + 2 * quarter + l // 16]) * (q - 32)))
    return data, values


def encode(dtype, count, around=0.0):
    """Random values of a type: their bytes and what those say."""
    if dtype == "Q4_K":
        return q4_k(count)
    if dtype == "Q6_K":
        return q6_k(count)
    if dtype == "AprQ8":
        scale, q = struct.pack("<f", 0.0007), bits(count)
        return scale + q, [f32(n * f32(0.0007)) for n in struct.unpack(f"{count}b", q)]
    if dtype == "AprQ4":
        data, values = b"", []
        for start in range(0, count, 32):
            scale, q = f16(0.01 * (0.5 + rng.random())), bits(16)
            data += scale + q
            nibbles = [n for b in q for n in (b & 15, b >> 4)]
            values += [f32((n - 8) * half(scale)) for n in nibbles[: min(32, count - start)]]
        return data, values
    values = [f32(around + rng.uniform(-0.1, 0.1)) for _ in range(count)]
    if dtype == "F32":
        return struct.pack(f"<{count}f", *values), values
    if dtype == "F16":
        data = struct.pack(f"<{count}e", *values)
        return data, list(struct.unpack(f"<{count}e", data))
    data = b"".join(struct.pack("<f", v)[2:] for v in values)
    return data, [struct.unpack("<f", b"\0\0" + data[2 * i : 2 * i + 2])[0] for i in range(count)]


def halves_apart(values, heads, columns):
    """Rows of heads whose halves are interleaved, as Hugging Face has them."""
    rows = [values[i : i + columns] for i in range(0, len(values), columns)]
    each = len(rows) // heads
    order = [h * each + 2 * (i % (each // 2)) + i // (each // 2) for h in range(heads) for i in range(each)]
    return [v for row in order for v in rows[row]]


def pad(data, to=64):
    return data + b"\0" * (-len(data) % to)


def tensors(args):
    def fits(dtype, columns):
        return columns % 256 == 0 or dtype not in ("Q4_K", "Q6_K")

    shapes = {"model.embed_tokens.weight": [VOCAB, HIDDEN], "model.norm.weight": [HIDDEN]}
    if not args.tied:
        shapes["lm_head.weight"] = [VOCAB, HIDDEN]
    layer = "model.layers.0."
    attention, mlp = layer + "self_attn.", layer + "mlp."
    for name, rows in (("q", HEADS * HEAD_DIM), ("k", KV_HEADS * HEAD_DIM), ("v", KV_HEADS * HEAD_DIM)):
        shapes[f"{attention}{name}_proj.weight"] = [rows, HIDDEN]
        if args.family == "qwen2":
            shapes[f"{attention}{name}_proj.bias"] = [rows]
    shapes[attention + "o_proj.weight"] = [HIDDEN, HEADS * HEAD_DIM]
    shapes[mlp + "gate_proj.weight"] = shapes[mlp + "up_proj.weight"] = [INTERMEDIATE, HIDDEN]
    shapes[mlp + "down_proj.weight"] = [HIDDEN, INTERMEDIATE]
    shapes[layer + "input_layernorm.weight"] = shapes[layer + "post_attention_layernorm.weight"] = [HIDDEN]

    turn = list(CODES)
    written, expected = {}, {}
    for index, (name, shape) in enumerate(sorted(shapes.items())):
        count, columns = shape[0] * (shape[1] if len(shape) == 2 else 1), shape[-1]
        dtype = "F32"
        if len(shape) == 2:
            choice = args.only or turn[index % len(turn)]
            dtype = choice if fits(choice, columns) else "BF16"
        data, values = encode(dtype, count, 1.0 if "norm" in name else 0.0)
        code = CODES[dtype]
        written[name] = (code - 120 if args.older and code >= 128 else code, shape, data)
        for part, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS)):
            if args.rope == 0 and part in name:
                values = halves_apart(values, heads, columns if len(shape) == 2 else 1)
        expected[name] = (shape, values)
    if args.tied:
        written["lm_head.weight"] = (0, [0], b"")
    return written, expected


def apr(args, written):
    metadata = {
        "model_type": args.family, "name": "tiny", "architecture": args.family, "hidden_size": HIDDEN, "num_layers": 1,
        "num_heads": HEADS, "num_kv_heads": KV_HEADS, "vocab_size": VOCAB, "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": 128, "rope_theta": 1e6, "rope_type": args.rope, "rms_norm_eps": 1e-6,
        "head_dim": HEAD_DIM, "eos_token_id": 2,
    }
    for setting in args.set:
        key, value = setting.split("=", 1)
        metadata[key] = json.loads(value)
    metadata = json.dumps({key: value for key, value in metadata.items() if value is not None}).encode()
    index, data = b"", b""
    for name, (code, shape, values) in sorted(written.items()):
        index += struct.pack("<H", len(name)) + name.encode() + struct.pack("<BB", code, len(shape))
        index += struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<QQ", len(data), len(values))
        data += pad(values)
    sections = pad(metadata) + pad(index)
    start = 64 + len(pad(metadata))
    header = b"APR\0" + struct.pack("<BBHIQI", 2, 0, args.flags, len(written), 64, len(metadata))
    header += struct.pack("<QQ", start, 64 + len(sections))
    header += struct.pack("<I", zlib.crc32(header + b"\0" * 20)) + b"\0" * 20
    whole = header + sections + data
    return whole + struct.pack("<I", zlib.crc32(whole))


def safetensors(expected):
    header, data = {}, b""
    for name, (shape, values) in expected.items():
        start = len(data)
        data += struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(data)]}
    header = pad(json.dumps(header).encode(), 8).replace(b"\0", b" ")
    return struct.pack("<Q", len(header)) + header + data


parser = argparse.ArgumentParser()
parser.add_argument("out")
parser.add_argument("--family", default="qwen2")
parser.add_argument("--tied", action="store_true")
parser.add_argument("--older", action="store_true")
parser.add_argument("--rope", type=int, default=2)
parser.add_argument("--only")
parser.add_argument("--small", action="store_true")
parser.add_argument("--flags", type=lambda text: int(text, 0), default=0x420)
parser.add_argument("--set", action="append", default=[])
args = parser.parse_args()
if args.small:
    HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 8, 8, 1, 1, 16, 6
rng = random.Random(1)
written, expected = tensors(args)
os.makedirs(args.out + "/expected", exist_ok=True)
with open(args.out + "/model.apr", "wb") as file:
    file.write(apr(args, written))
with open(args.out + "/expected/model.safetensors", "wb") as file:
    file.write(safetensors(expected))
config = {
    "architectures": [{"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[args.family]], "model_type": args.family,
    "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "num_hidden_layers": 1, "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "vocab_size": VOCAB, "max_position_embeddings": 128,
    "rope_theta": 1e6, "rms_norm_eps": 1e-6, "tie_word_embeddings": args.tied, "hidden_act": "silu", "eos_token_id": 2,
}
with open(args.out + "/expected/config.json", "w") as file:
    json.dump(config, file)
