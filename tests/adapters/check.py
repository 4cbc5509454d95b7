#!/usr/bin/env python3
"""Adapters go to PEFT and come from it: the same logits within 1e-5, fp32, on the CPU.

    cargo xtask peers adapters

or, with the packages of xtask/peers/requirements.txt: tests/adapters/check.py PRECAST.

A tiny model, and adapters of it: made by PEFT (ranks and scales by pattern, rank-stabilized scales, other dtypes) and gone on from
here; made here and read by PEFT. What Precast computes is seen as the negative log likelihood that `precast eval --adapter`
reports, and in full as the logits of what `precast merge` writes.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen3Config

ROWS, LENGTH, VOCAB = 8, 33, 96
LIMIT = 1e-5
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MADE_BY_PEFT = {
    "list": dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]),
    "patterns": dict(r=5, lora_alpha=3, target_modules=ALL, use_rslora=True, rank_pattern={"q_proj": 3, r"layers\.1\.mlp\..*": 17},
                     alpha_pattern={"down_proj": 7}),
    "regex": dict(r=4, lora_alpha=4, target_modules=r".*\.layers\.1\.(self_attn\.o_proj|mlp\.(up|gate)_proj)"),
    "layers": dict(r=1, lora_alpha=2, target_modules="all-linear"),
    "chosen": dict(r=6, lora_alpha=2, target_modules=["k_proj", "down_proj"], layers_to_transform=[0]),
}
MADE_HERE = {
    "all": ["--lora-rank", "17"],
    "some": ["--lora-rank", "3", "--lora-alpha", "5", "--lora-targets", "gate_proj,q_proj", "--lora-rslora"],
}


def precast(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def logits_of(model, ids):
    with torch.no_grad():
        return model.eval()(ids[:, :-1]).logits


def nll(logits, ids):
    return F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1)).item()


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        base, data = root / "base", root / "data.bin"
        config = Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                             num_key_value_heads=2, head_dim=16, vocab_size=VOCAB, tie_word_embeddings=True,
                             initializer_range=0.1, max_position_embeddings=128, bos_token_id=None, eos_token_id=None)
        AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(base)
        ids = torch.randint(0, VOCAB, (ROWS, LENGTH))
        data.write_bytes(ids.to(torch.int32).numpy().astype("<u4").tobytes())
        model_of = lambda path: AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
        worst = dict(logits=0.0, nll=0.0, merged=0.0)

        def compare(name, adapter):
            """The adapter in PEFT and here."""
            adapted = PeftModel.from_pretrained(model_of(base), adapter)
            expected = logits_of(adapted, ids)
            alone = logits_of(model_of(base), ids)
            assert (expected - alone).abs().max() > 1e-3, f"{name}: the adapter does nothing"
            score = json.loads(precast(program, "eval", "--json", "--untrained", "--device", "sim", "--seq-len", LENGTH - 1,
                                       "--model", base, "--adapter", adapter, "--data", data))
            merged = root / f"merged-{name}"
            precast(program, "merge", "--model", base, "--adapter", adapter, "--out", merged)
            found = logits_of(model_of(merged), ids)
            theirs = adapted.merge_and_unload().state_dict()
            ours = load_file(merged / "model.safetensors")
            of = dict(logits=(found - expected).abs().max().item(), nll=abs(score["nll"] - nll(expected, ids)),
                      merged=max((ours[key] - theirs[key]).abs().max().item() for key in ours))
            print(f"{name:<20}", "  ".join(f"{what} {value:.1e}" for what, value in of.items()))
            for what, value in of.items():
                worst[what] = max(worst[what], value)

        train = ["train", "--model", base, "--data", data, "--device", "sim", "--precision", "fp32", "--batch-size", ROWS,
                 "--seq-len", LENGTH - 1, "--steps", 3, "--lr", "1e-2", "--checkpoint-every", 0]
        for name, settings in MADE_BY_PEFT.items():
            made = get_peft_model(model_of(base), LoraConfig(task_type="CAUSAL_LM", **settings))
            with torch.no_grad():
                for key, parameter in made.named_parameters():
                    if "lora_B" in key:
                        parameter.copy_(0.1 * torch.randn_like(parameter))
            made.save_pretrained(root / name)
            compare(name, root / name)
            precast(program, *train, "--adapter", root / name, "--out", root / f"{name}-run")
            after = root / f"{name}-run" / "adapter"
            before, now = (load_file(path / "adapter_model.safetensors") for path in (root / name, after))
            assert before.keys() == now.keys(), f"{name}: other tensors"
            assert all((before[key] != now[key]).any() for key in before), f"{name}: something did not train"
            compare(f"{name}, gone on", after)
        for dtype in (torch.float16, torch.bfloat16):
            narrow = root / str(dtype)
            (root / "list").rename(narrow)
            tensors = load_file(narrow / "adapter_model.safetensors")
            save_file({key: value.to(dtype) for key, value in tensors.items()}, narrow / "adapter_model.safetensors", {"format": "pt"})
            compare(str(dtype), narrow)
            narrow.rename(root / "list")
        for name, arguments in MADE_HERE.items():
            precast(program, *train, *arguments, "--out", root / f"{name}-run")
            compare(f"{name}, made here", root / f"{name}-run" / "adapter")
        print("worst:", "  ".join(f"{what} {value:.1e}" for what, value in worst.items()), f"(allowed {LIMIT:.0e})")
        assert max(worst.values()) <= LIMIT


if __name__ == "__main__":
    main()
