#!/usr/bin/env python3
"""Students and adapters go to transformers, peft and llama.cpp: the same tokens and the same likelihood, on the CPU.

    cargo xtask peers students

of SmolLM2; of others, after that, with the Python and the llama.cpp that are then below target/peers:

    tests/students/check.py PRECAST .../vendor/llama.cpp TEXT TEACHER...

A teacher is a Hugging Face directory or a GGUF file with a tokenizer, TEXT a .txt file of English. For each teacher Precast writes a
student with all layers, one with every second layer that it distills for a few steps, and an adapter; nothing is changed by hand. Each
student is read by transformers, converted by `convert_hf_to_gguf.py --outtype f32`, and what that writes is read by llama.cpp and
by Precast again. Compared are token ids, mean negative log likelihoods of TEXT, nats, and 64 greedily decoded tokens.
"""

import ctypes
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers
import xllamacpp
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

TOKENS, GREEDY = 255, 64
# llama.cpp keeps keys and values in f16.
OF_TRANSFORMERS, OF_LLAMA_CPP = 1e-4, 1e-2
PROMPT = "Once upon a time"


class LlamaCpp:
    """A model in llama.cpp, by the C interface that the wheel of xllamacpp exports."""

    class Params(ctypes.Structure):
        """Parameters of models and contexts begin with what is set here; the rest is what the library puts there."""
        _fields_ = [("words", ctypes.c_uint32 * 256)]

    class Batch(ctypes.Structure):
        _fields_ = [("n_tokens", ctypes.c_int32)] + [(name, ctypes.c_void_p) for name in
                                                     ("token", "embd", "pos", "n_seq_id", "seq_id", "logits")]

    SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)

    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(xllamacpp.xllamacpp.__file__)
        lib.llama_log_set(self.SILENT, None)
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(lib, name).restype = self.Params
        for name in ("llama_model_load_from_file", "llama_model_get_vocab", "llama_init_from_model"):
            getattr(lib, name).restype = ctypes.c_void_p
        lib.llama_get_logits.restype = ctypes.POINTER(ctypes.c_float)
        lib.llama_batch_get_one.restype = self.Batch
        self.model = ctypes.c_void_p(lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params()))
        assert self.model, f"llama.cpp does not load {path}"
        self.vocab = ctypes.c_void_p(lib.llama_model_get_vocab(self.model))

    def ids(self, text):
        room, data = (ctypes.c_int32 * 65536)(), text.encode()
        count = self.lib.llama_tokenize(self.vocab, data, len(data), room, len(room), True, False)
        return list(room[:count])

    def logits(self, ids):
        """Of every position, [tokens, vocabulary]."""
        lib, params = self.lib, self.lib.llama_context_default_params()
        params.words[0:3] = [max(256, len(ids))] * 3  # n_ctx, n_batch, n_ubatch
        context = ctypes.c_void_p(lib.llama_init_from_model(self.model, params))
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        batch = lib.llama_batch_get_one(tokens, len(ids))
        every = (ctypes.c_int8 * len(ids))(*[1] * len(ids))
        batch.logits = ctypes.addressof(every)
        assert lib.llama_decode(context, batch) == 0, "llama.cpp does not decode"
        vocab = lib.llama_vocab_n_tokens(self.vocab)
        values = torch.tensor(lib.llama_get_logits(context)[:len(ids) * vocab]).reshape(len(ids), vocab)
        lib.llama_free(context)
        return values


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def nll(logits, ids):
    """Of every token but the first, mean."""
    return F.cross_entropy(logits[:-1].double(), torch.tensor(ids[1:])).item()


class Check:
    def __init__(self, program, converter, text, root):
        self.program, self.converter, self.text, self.root, self.wrong = program, converter, text, root, []

    def precast(self, command, *arguments):
        return run(self.program, command, "--device", "sim", "--precision", "fp32", *arguments)

    def eval(self, *arguments):
        score = json.loads(self.precast("eval", "--json", "--untrained", "--seq-len", TOKENS, "--data", self.text, *arguments))
        return score["nll"]

    def generated(self, model, *arguments):
        return json.loads(self.precast("generate", "--json", "--model", model, "--max-tokens", GREEDY, "--prompt", PROMPT, *arguments))

    def expect(self, good, what):
        if not good:
            self.wrong.append(what)

    def same(self, title, found, expected):
        at = next((at for at, pair in enumerate(itertools.zip_longest(found, expected)) if pair[0] != pair[1]), None)
        self.expect(at is None, f"{title}: from {at} on {found[at:][:9]} is not {expected[at:][:9]}" if at is not None else "")
        print(f"  {title:<44} {len(expected)} tokens, {'the same' if at is None else 'OTHERS'}")

    def near(self, title, ours, theirs, most):
        print(f"  {title:<44} {theirs:.6f}  {abs(theirs - ours):.1e} from Precast's")
        self.expect(abs(theirs - ours) <= most, f"{title}: {theirs} is not {ours}")

    def greedy(self, title, model, tokenizer, ids, found):
        """Greedily decoded tokens, against transformers'."""
        with torch.no_grad():
            expected = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=GREEDY)[0, len(ids):].tolist()
        self.same(title, found["prompt_ids"] + found["ids"], ids + expected)
        print(f"    {tokenizer.decode(expected)[:90]!r}")

    def student(self, student):
        """A student, everywhere."""
        ours = self.eval("--model", student)
        print(f"  {'precast eval':<44} {ours:.6f}")
        tokenizer = AutoTokenizer.from_pretrained(student)
        ids = tokenizer(self.text.read_text())["input_ids"]
        assert GREEDY < len(ids) <= TOKENS, f"{self.text} has {len(ids)} tokens"
        model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32).eval()
        with torch.no_grad():
            self.near("transformers", ours, nll(model(torch.tensor([ids])).logits[0], ids), OF_TRANSFORMERS)
        file = self.root / f"{student.name}.gguf"
        run(sys.executable, self.converter, student, "--outtype", "f32", "--outfile", file)
        llama = LlamaCpp(file)
        self.same("llama.cpp reads the text as", llama.ids(self.text.read_text()), ids)
        self.near("llama.cpp, converted file", ours, nll(llama.logits(ids), ids), OF_LLAMA_CPP)
        self.near("precast eval, converted file", ours, self.eval("--model", file), OF_TRANSFORMERS)
        raw = tokenizer(PROMPT)["input_ids"]
        self.greedy("greedy", model, tokenizer, raw, self.generated(student, "--raw"))
        self.greedy("greedy, converted file", model, tokenizer, raw, self.generated(file, "--raw"))
        if tokenizer.chat_template:
            chat = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_dict=False)
            self.greedy("greedy, as a chat", model, tokenizer, chat, self.generated(student))
        return model, ids

    def adapter(self, base, adapter):
        """An adapter, in peft."""
        ours = self.eval("--model", base, "--adapter", adapter)
        print(f"  {'precast eval --adapter':<44} {ours:.6f}")
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
        ids = AutoTokenizer.from_pretrained(base)(self.text.read_text())["input_ids"]
        with torch.no_grad():
            alone = nll(model(torch.tensor([ids])).logits[0], ids)
            adapted = PeftModel.from_pretrained(model, adapter).eval()
            theirs = nll(adapted(torch.tensor([ids])).logits[0], ids)
        self.expect(abs(theirs - alone) > 1e-3, "the adapter does nothing")
        self.near("peft", ours, theirs, OF_TRANSFORMERS)


def main():
    if len(sys.argv) < 5:
        raise SystemExit(__doc__)
    program, llama_cpp, text, *teachers = (pathlib.Path(path).resolve() for path in sys.argv[1:])
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as directory:
        for number, teacher in enumerate(teachers):
            root = pathlib.Path(directory) / str(number)
            root.mkdir()
            check = Check(program, llama_cpp / "convert_hf_to_gguf.py", text, root)
            whole, half, small, adapted = (root / name for name in ("whole", "half", "distilled", "adapted"))
            of_file = {} if teacher.is_dir() else dict(gguf_file=teacher.name)
            layers = AutoConfig.from_pretrained(teacher if teacher.is_dir() else teacher.parent, **of_file).num_hidden_layers
            of = lambda step: ["--layers", ",".join(map(str, range(0, layers, step)))]
            print(f"{teacher}, written by Precast")
            run(program, "init", "--from", teacher, *of(1), "--out", whole)
            check.student(whole)
            print(f"{teacher}, every second layer, distilled")
            run(program, "init", "--from", teacher, *of(2), "--out", half)
            work = ["--data", text, "--device", "sim", "--batch-size", 2, "--seq-len", 64, "--steps", 5, "--checkpoint-every", 0]
            run(program, "distill", "--teacher", whole, "--student", half, *work, "--lr", "1e-4", "--out", small)
            check.student(small / "student")
            print(f"{teacher}, with an adapter")
            run(program, "train", "--model", whole, *work, "--lora-rank", 8, "--lr", "1e-2", "--precision", "fp32", "--out", adapted)
            check.adapter(whole, adapted / "adapter")
            if check.wrong:
                raise SystemExit("\n".join(check.wrong))


if __name__ == "__main__":
    main()
