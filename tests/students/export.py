#!/usr/bin/env python3
"""What `precast export` writes is what llama.cpp's converter writes: each key, each tensor to the last bit, each token of a text.

    cargo xtask peers export

of SmolLM2; of others, after that, with the Python and the llama.cpp that are then below target/peers:

    tests/students/export.py PRECAST .../vendor/llama.cpp TEXT MODEL...

A model is a Hugging Face directory with a tokenizer, TEXT a .txt file whose first MB is made tokens of: by transformers, by llama.cpp
of the exported file, and by the `tokenizer.json` that Precast makes of that. For f32, bf16 and q8_0 both files are compared in the order
of keys and tensors, too. Where the converter does not know a tokenizer by its hash, as that of a tiny model, it is told the name that
Precast found. Precast always says whether a text begins with a token; the converter may leave that out, or say it last.
"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile

import xllamacpp
from tokenizers import Tokenizer
from transformers import AutoTokenizer

ARCHITECTURE, PRE, ADD_BOS = "general.architecture", "tokenizer.ggml.pre", "tokenizer.ggml.add_bos_token"

CONVERT = """
import sys
root, pre = sys.argv.pop(1), sys.argv.pop(1)
sys.path[:0] = [root, root + "/gguf-py"]
import convert_hf_to_gguf, conversion.base
known = conversion.base.TextModel.get_vocab_base_pre
def told(self, tokenizer):
    try:
        return known(self, tokenizer)
    except NotImplementedError:
        print("TOLD")
        return pre
conversion.base.TextModel.get_vocab_base_pre = told
convert_hf_to_gguf.main()
"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def llama_cpp_ids(path, text, special):
    class Params(ctypes.Structure):
        _fields_ = [("words", ctypes.c_uint32 * 256)]

    lib = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
    silent = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    lib.llama_log_set(silent, None)
    lib.llama_model_default_params.restype = Params
    for name in ("llama_model_load_from_file", "llama_model_get_vocab"):
        getattr(lib, name).restype = ctypes.c_void_p
    model = ctypes.c_void_p(lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params()))
    assert model, f"llama.cpp does not load {path}"
    vocab = ctypes.c_void_p(lib.llama_model_get_vocab(model))
    data = text.encode()
    room = (ctypes.c_int32 * (len(data) + 16))()
    count = lib.llama_tokenize(vocab, data, len(data), room, len(room), special, False)
    return list(room[:count])


def keys(reader):
    """Name, types and value of every key, in order; positions and counts of the container are no keys."""
    return [(name, [kind.name for kind in field.types], field.contents())
            for name, field in reader.fields.items() if not name.startswith("GGUF.")]


def shown(value):
    return repr(value)[:90]


def compare(ours, theirs):
    """What differs between two files."""
    wrong = []
    mine, other = keys(ours), keys(theirs)
    order = [[name for name, *_ in side if name != ADD_BOS] for side in (mine, other)]
    if order[0] != order[1]:
        wrong.append(f"keys {order[0]} are not {order[1]}")
    others = {name: rest for name, *rest in other}
    for name, *rest in mine:
        if name in others and rest != others[name]:
            wrong.append(f"{name}: {shown(rest)} is not {shown(others[name])}")
    rows = [[(t.name, t.tensor_type.name, list(t.shape)) for t in reader.tensors] for reader in (ours, theirs)]
    if rows[0] != rows[1]:
        wrong.append(f"tensors: {[pair for pair in zip(*rows) if pair[0] != pair[1]][:4]}")
    for one, two in zip(ours.tensors, theirs.tensors):
        if one.data.tobytes() != two.data.tobytes():
            wrong.append(f"{one.name}: {sum(a != b for a, b in zip(one.data.tobytes(), two.data.tobytes()))} bytes differ")
    return wrong, len(mine), len(rows[0])


def check(program, llama_cpp, text, model, root):
    from gguf import GGUFReader
    wrong = []
    for kind in ("f32", "bf16", "q8_0"):
        ours, theirs = (root / f"{who}-{kind}.gguf" for who in ("ours", "theirs"))
        run(program, "export", "--model", model, "--format", kind, "--out", ours)
        reader = GGUFReader(ours)
        convert = [sys.executable, "-c", CONVERT, llama_cpp, reader.fields[PRE].contents(), model]
        # Of layers that predict further tokens there are none.
        convert += ["--no-mtp"] if reader.fields[ARCHITECTURE].contents() == "qwen35" else []
        told = "TOLD" in run(*convert, "--outtype", kind, "--outfile", theirs, "--model-name", model.name)
        found, key_count, tensor_count = compare(reader, GGUFReader(theirs))
        whole = "the same file" if ours.read_bytes() == theirs.read_bytes() else "other files"
        print(f"  {kind:<5} {key_count} keys, {tensor_count} tensors: {'OTHERS' if found else 'the same'} ({whole}"
              f"{', told the pre-tokenizer' if told else ''})")
        wrong += [f"{model.name} {kind}: {line}" for line in found]
    ours = root / "ours-bf16.gguf"
    expected = AutoTokenizer.from_pretrained(model)(text, add_special_tokens=False)["input_ids"]
    run(program, "init", "--from", ours, "--layers", "0", "--out", root / "read")
    read = Tokenizer.from_file(str(root / "read/tokenizer.json")).encode(text, add_special_tokens=False).ids
    for who, ids in (("Precast", read), ("llama.cpp", llama_cpp_ids(ours, text, False))):
        at = next((at for at, pair in enumerate(zip(ids, expected)) if pair[0] != pair[1]), min(len(ids), len(expected)))
        same = ids == expected
        print(f"  {who:<9} {len(text.encode())} bytes are {len(ids)} tokens: {'the same' if same else 'OTHERS'}")
        if not same:
            wrong.append(f"{model.name} {who}: from {at} on {ids[at:][:8]} is not {expected[at:][:8]}")
    return wrong


def main():
    if len(sys.argv) < 5:
        raise SystemExit(__doc__)
    program, llama_cpp, text, *models = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    sys.path.insert(0, str(llama_cpp / "gguf-py"))
    text, wrong = text.read_bytes()[:1_000_000].decode(errors="ignore"), []
    for model in models:
        print(model.name)
        with tempfile.TemporaryDirectory() as directory:
            wrong += check(program, llama_cpp, text, model, pathlib.Path(directory))
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
