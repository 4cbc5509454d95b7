#!/usr/bin/env python3
"""Golden cases: tiny models trained by PyTorch, step by step, in float32 without TF32, or in float64 with weights of weights.py.

    pip install torch==2.11.0 transformers==5.17.0 peft==0.21.0 safetensors
    tests/golden/make.py made CASE --precast PROGRAM             # the case with its name in made.py, from nothing
    tests/golden/make.py new CASE                                # the case with its name in FILES: models, data, case.json; then `train`
    tests/golden/make.py new CASE --family qwen2 --seed 1        # another one
    tests/golden/make.py new CASE --lora q_proj,v_proj           # the same, of an adapter of the student
    tests/golden/make.py files DIR                               # every case of FILES: for `cargo xtask truth --golden DIR`
    tests/golden/make.py train CASE                              # what follows from them: trajectory, gradients, result
    tests/golden/make.py check CASE                              # train again and compare with what is there
    tests/golden/make.py spread CASE                             # how far roundings of bf16's size move each step's norm

CASE is a directory: tests/fixtures/golden/made-qwen2. It holds

    case.json               T, alpha, beta, lr, wd, clip, B, S, accum, steps, warmup, sched; lora, where an adapter trains
    teacher/ student/       Hugging Face directories; without teacher/ the loss is the cross entropy; their weights by weights.py
                            where they have none
    tokens.bin              u32, little-endian, chunks of S + 1; micro-batch i takes chunks i B .. i B + B - 1
    rows.jsonl              or, instead: `input_ids` and `labels` of at most S + 1 tokens a line; a label of -100 is not counted.
                            Where `packing` is `rows`, a row of n tokens takes n - 1 of B S places, and a micro-batch takes rows in
                            order as long as the next one fits, max(B, B S / 16) of them at most: each is computed as it is alone.
                            The teacher reads `teacher_prompt`, if a row has one, before the first token that counts; the longer of
                            both takes its places. Where `teacher` is `self` in case.json, the student's present weights teach
    prompts.jsonl           of a student that learns from what it writes: what its run is given; what that trained on is rows.jsonl
    trajectory.jsonl        loss, kd_loss, ce_loss, grad_norm before clipping, lr and tokens of each step; of tokens drawn from the
                            student as it is, with beta and T 1, the mean of log s - log t, and the standard error of that mean
    step0.safetensors       logits of the first sequence (the student's columns of both), grad.<name> before clipping; of cases with
                            weights of weights.py their sums
    final/                  the student after the last step; of cases with weights of weights.py final.safetensors, its sums
    adapter/ final-adapter/ instead, where an adapter trains: before the first step (B is not zero) and after the last one

loss = alpha T^2 D + (1 - alpha) CE, mean over the tokens that count in all micro-batches of the step. D, of softmaxes at T:
KL(t || s) where beta is 0, KL(s || t) where it is 1, between them beta KL(t || m) + (1 - beta) KL(s || m) with
m = beta t + (1 - beta) s; a wider teacher is cut to the student's vocabulary before the softmax. AdamW: betas 0.9 and 0.999,
eps 1e-8, decay on matrices. Learning rate at step i of N, w of warm-up: lr (i + 1) / w, then constant or
lr / 2 (1 + cos(pi (i - w) / (N - w))).
"""

import argparse
import json
import math
import pathlib
import shutil
import tempfile
import types

import torch
import torch.nn.functional as F
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

import delta_rule  # noqa: F401: replaces what transformers computes in float32
import made
import micro_batches
import weights

# Heads of the teacher are 128 wide, of the student 64; the teacher knows more tokens and is not tied.
TEACHER = dict(hidden_size=256, intermediate_size=704, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1,
               vocab_size=640, tie_word_embeddings=False)
STUDENT = dict(hidden_size=128, intermediate_size=320, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
               vocab_size=512, tie_word_embeddings=True)
ROPE = dict(rope_type="default", rope_theta=1e6)
# By family: the class of its configuration, and what its teachers, students, rotary embeddings and cases have of their own.
FAMILIES = {
    "qwen2": dict(config=transformers.Qwen2Config),
    "llama": dict(config=transformers.LlamaConfig),
    # head_dim is apart from hidden_size and num_attention_heads.
    "qwen3": dict(
        config=transformers.Qwen3Config,
        teacher=dict(hidden_size=192, intermediate_size=448, head_dim=128, vocab_size=576),
        student=dict(num_attention_heads=4, num_key_value_heads=2, head_dim=64),
        case=dict(steps=16),
    ),
    # Positions beyond the original length, and frequencies that are low, high and between.
    "llama3": dict(
        config=transformers.LlamaConfig,
        teacher=dict(intermediate_size=384, num_hidden_layers=2, num_key_value_heads=2, vocab_size=300),
        student=dict(hidden_size=192, intermediate_size=272, num_attention_heads=3, vocab_size=300),
        rope=dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64),
        case=dict(T=1.0, alpha=0.9, lr=5e-4, wd=0.1, B=2, S=192, steps=12, warmup=2, sched="cosine"),
    ),
}
# Of an adapter.
LORA = dict(r=8, lora_alpha=16)
LORA_CASE = dict(lr=2e-3, steps=16)
CASE = dict(T=2.0, alpha=0.5, lr=1e-3, wd=0.01, clip=1.0, B=4, S=64, accum=1, steps=20, warmup=0, sched="constant")
# Of cases that begin alike.
LESS = dict(intermediate_size=512, num_hidden_layers=2, vocab_size=512)
# Cases whose weights are in files, which are too large for the tree, by name: what is apart from the above. made.py has their twins.
FILES = {
    "qwen2-tied": dict(seed=1),
    "qwen3-tied": dict(seed=11, family="qwen3"),
    "llama3-rope": dict(seed=12, family="llama3"),
    "lora-qv": dict(seed=13, teacher=LESS, lora="q_proj,v_proj"),
    "sft-mask": dict(seed=14, alone=True, settings=dict(B=3, accum=2, steps=12)),
    "kl-reverse": dict(seed=15, teacher=LESS, settings=dict(beta=1.0, steps=12)),
    "jsd-half": dict(seed=16, teacher=LESS, settings=dict(beta=0.5, T=1.0, alpha=1.0, steps=12)),
}


def exact():
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def new(case, seed, family="qwen2", lora=None, **entry):
    """Models of random weights, norms and biases among them, and tokens that repeat so that there is something to learn."""
    torch.manual_seed(seed)
    case.mkdir(parents=True)
    of = FAMILIES[family]
    rope = of.get("rope", ROPE)
    shapes = {"teacher": TEACHER | of.get("teacher", {}) | entry.get("teacher", {}), "student": STUDENT | of.get("student", {})}
    vocab = shapes["student"]["vocab_size"]
    for role, shape in list(shapes.items())[1 if entry.get("alone") else 0 :]:
        config = of["config"](initializer_range=0.05, rms_norm_eps=1e-6, max_position_embeddings=2048,
                              bos_token_id=None, eos_token_id=None, use_cache=False,
                              rope_parameters=dict(rope), **shape)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(case / role)
    settings = dict(arch=family, seed=seed, rope=rope) | CASE | of.get("case", {}) | entry.get("settings", {})
    if entry.get("alone"):
        del settings["T"], settings["alpha"]
    if lora:
        settings |= dict(lora=LORA | dict(target_modules=lora.split(","))) | LORA_CASE
        model = get_peft_model(model_of(case / "student"), LoraConfig(task_type="CAUSAL_LM", **settings["lora"]))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "lora_B" in name:
                    parameter.copy_(0.05 * torch.randn_like(parameter))
        model.save_pretrained(case / "adapter")
    chunks = settings["steps"] * settings["accum"] * settings["B"]
    if entry.get("alone"):
        made.write_masked(case, settings, vocab, lambda name, count, below: torch.randint(below, (count,)).tolist())
    else:
        # Zipf's law: a token's rank is its number.
        ranks = 1.0 / torch.arange(1, vocab + 1, dtype=torch.float64)
        tokens = torch.multinomial(ranks, chunks * (settings["S"] + 1), replacement=True)
        (case / "tokens.bin").write_bytes(tokens.to(torch.int32).numpy().astype("<u4").tobytes())
    settings |= dict(torch=torch.__version__, transformers=transformers.__version__)
    (case / "case.json").write_text(json.dumps(settings, indent=1))


def model_of(directory, dtype=torch.float32):
    config = AutoConfig.from_pretrained(directory)
    config.attn_implementation = "eager"
    if (directory / "model.safetensors").exists():
        return AutoModelForCausalLM.from_pretrained(directory, config=config, dtype=dtype)
    config._experts_implementation = "eager"  # float64, which grouped GEMMs do not take
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=dtype)
    tensors = {name: torch.from_numpy(value) for name, value in weights.fused(weights.of_model(directory)).items()}
    assert tensors.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(tensors, strict=False)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = types.MethodType(norm, module)
        if type(module).__name__.endswith("TopKRouter"):
            module.register_forward_hook(assert_gap)
    return model


def assert_gap(router, _, out):
    """No rounding chooses another expert: the last one chosen and the first left out are apart."""
    ranked = out[0].sort(-1, descending=True).values
    gap = (ranked[..., router.top_k - 1] - ranked[..., router.top_k]).min().item()
    assert gap > 1e-4, f"logits of experts are {gap:.1e} apart: take another seed"


def adapted(student, case, c):
    """A student with an adapter whose weights no file holds."""
    model = get_peft_model(student, LoraConfig(task_type="CAUSAL_LM", **c["lora"]))
    factors = weights.of_adapter(case)
    with torch.no_grad():
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        assert {name.replace(".default", "") for name in trained} == factors.keys()
        for name, parameter in trained.items():
            parameter.copy_(torch.from_numpy(factors[name.replace(".default", "")]))
    return model


def norm(self, x):
    """That of transformers is in float32, whatever the model; so is its eager attention."""
    if type(self).__name__ in ("Gemma3RMSNorm", "Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm"):
        return (1 + self.weight) * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))
    return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon))


def rate(c, step):
    if step < c["warmup"]:
        return c["lr"] * (step + 1) / c["warmup"]
    if c["sched"] == "constant":
        return c["lr"]
    done = (step - c["warmup"]) / (c["steps"] - c["warmup"])
    return c["lr"] / 2 * (1 + math.cos(math.pi * done))


def kl(p, q):
    """Sum of KL(p || q) over rows of log-probabilities."""
    return F.kl_div(q, p, log_target=True, reduction="sum")


def divergence(beta, t, s):
    if beta in (0, 1):
        return kl(t, s) if beta == 0 else kl(s, t)
    m = torch.logaddexp(t + math.log(beta), s + math.log(1 - beta))
    return beta * kl(t, m) + (1 - beta) * kl(s, m)


def losses(c, student_logits, teacher_logits, targets):
    """Sums over the tokens that count: (kd, ce)."""
    vocab = student_logits.size(-1)
    counted = targets.reshape(-1) != -100
    student, targets = student_logits.reshape(-1, vocab)[counted], targets.reshape(-1)[counted]
    ce = F.cross_entropy(student, targets, reduction="sum")
    if teacher_logits is None:
        return torch.zeros(()), ce
    teacher = teacher_logits[..., :vocab].reshape(-1, vocab)[counted]
    t, s = F.log_softmax(teacher / c["T"], -1), F.log_softmax(student / c["T"], -1)
    return divergence(c.get("beta", 0), t, s), ce


def log_ratios(student_logits, teacher_logits, targets):
    """Of tokens that count: log s - log t of each, and its variance over tokens that the student might have drawn."""
    counted = targets != -100
    s, t = (F.log_softmax(logits[..., : student_logits.size(-1)][counted], -1) for logits in (student_logits, teacher_logits))
    mean = lambda x: (s.exp() * x).sum(-1)
    return (s - t).gather(-1, targets[counted][:, None])[:, 0], mean((s - t).square()) - mean(s - t).square()


def rows_of(case, c):
    """Inputs and targets, [rows, S] each, and the tokens of each row."""
    if (case / "rows.jsonl").exists():
        rows = [json.loads(line) for line in (case / "rows.jsonl").read_text().splitlines()]
        padded = lambda row, by: row + [by] * (c["S"] + 1 - len(row))
        ids, labels = (torch.tensor([padded(row[name], by) for row in rows]) for name, by in (("input_ids", 0), ("labels", -100)))
        lengths = [len(row["input_ids"]) for row in rows]
    else:
        ids = torch.frombuffer(bytearray((case / "tokens.bin").read_bytes()), dtype=torch.int32).long()
        ids = labels = ids.reshape(-1, c["S"] + 1)
        lengths = [c["S"] + 1] * len(ids)
    return ids[:, :-1], labels[:, 1:], lengths


def taught(case, c):
    """Inputs of the teacher by row, or none where it reads the student's, and their first place that the completion predicts."""
    if not (case / "rows.jsonl").exists():
        return None
    rows = [json.loads(line) for line in (case / "rows.jsonl").read_text().splitlines()]
    if not any("teacher_prompt" in row for row in rows):
        return None
    begins = [next(at for at, label in enumerate(row["labels"]) if label != -100) for row in rows]
    prompts = [row.get("teacher_prompt") or row["input_ids"][:begin] for row, begin in zip(rows, begins)]
    ids = [prompt + row["input_ids"][begin:] for row, prompt, begin in zip(rows, prompts, begins)]
    inputs = torch.tensor([row[:-1] + [0] * (c["S"] + 1 - len(row)) for row in ids])
    return inputs, [(begin - 1, len(prompt) - 1) for prompt, begin in zip(prompts, begins)], [len(row) for row in ids]


def at_student(logits, places):
    """A teacher's logits at the student's positions, the same where it predicts nothing of the completion."""
    rows = [of_row.roll(own - other, 0) for of_row, (own, other) in zip(logits, places)]
    return torch.stack(rows)


def train(case, out, moved=None):
    """Writes trajectory.jsonl, step0.safetensors and final/ or final-adapter/ of a case into `out`; with `moved`, of a student
    whose weights that seed has moved by up to half a unit in the last place of bf16."""
    c = json.loads((case / "case.json").read_text())
    dtype = getattr(torch, c.get("dtype", "float32"))
    student = model_of(case / "student", dtype).train()
    if moved is not None:
        torch.manual_seed(moved)
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.mul_(1 + 2**-9 * (2 * torch.rand_like(parameter) - 1))
    if "lora" in c and "weights" in c:
        student = adapted(student, case, c).to(dtype)
    elif "lora" in c:
        student = PeftModel.from_pretrained(student, case / "adapter", is_trainable=True)
    is_self = c.get("teacher") == "self"
    has_teacher = is_self or (case / "teacher").exists()
    teacher = student if is_self else model_of(case / "teacher", dtype).eval().requires_grad_(False) if has_teacher else None
    alpha = c["alpha"] if has_teacher else 0.0
    inputs, targets, lengths = rows_of(case, c)
    own = taught(case, c)
    batches = micro_batches.of(c, [max(both) for both in zip(lengths, own[2])] if own else lengths)
    trained = {name: p for name, p in student.named_parameters() if p.requires_grad}
    matrices = [p for p in trained.values() if p.dim() > 1]
    vectors = [p for p in trained.values() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=c["wd"]), dict(params=vectors, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=c["lr"], betas=(0.9, 0.999), eps=1e-8, foreach=False)
    is_drawn = c.get("beta") == 1 and c["T"] == 1 and c.get("options", "").startswith("--on-policy --max-tokens")
    lines = []
    for step in range(c["steps"]):
        micro = [(inputs[rows], targets[rows], rows) for rows in batches[step * c["accum"]:(step + 1) * c["accum"]]]
        tokens = sum((y != -100).sum().item() for _, y, _ in micro)
        kd_sum = ce_sum = 0.0
        ratios = []
        optimizer.zero_grad(set_to_none=True)
        for index, (x, y, rows) in enumerate(micro):
            student_logits = student(x).logits
            with torch.no_grad():
                teacher_logits = teacher(x).logits if has_teacher else None
                if step == 0 and index == 0 and has_teacher:
                    of_first = teacher_logits
                if own:
                    teacher_logits = at_student(teacher(own[0][rows]).logits, own[1][rows])
            kd, ce = losses(c, student_logits, teacher_logits, y)
            scaled = alpha * c.get("T", 1.0) ** 2 * kd + (1 - alpha) * ce
            (scaled / tokens).backward()
            kd_sum, ce_sum = kd_sum + kd.item(), ce_sum + ce.item()
            if is_drawn:
                ratios.append(torch.stack(log_ratios(student_logits.detach(), teacher_logits, y)))
            if step == 0 and index == 0:
                columns, length = student_logits.size(-1), lengths[0] - 1 if "packing" in c else c["S"]
                first_logits = {"student_logits": student_logits[0, :length].detach().clone()}
                if has_teacher:
                    first_logits["teacher_logits"] = of_first[0, :length, :columns].clone()
        if step == 0:
            gradients = {f"grad.{name}": p.grad.clone() for name, p in trained.items()}
            whole = first_logits | gradients
            kept = sums_of({name: value.numpy() for name, value in whole.items()}) if "weights" in c else whole
            save_file(kept, out / "step0.safetensors")
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), c["clip"] or math.inf, foreach=False).item()
        for group in optimizer.param_groups:
            group["lr"] = rate(c, step)
        optimizer.step()
        kd, ce = kd_sum / tokens, ce_sum / tokens
        loss = alpha * c.get("T", 1.0) ** 2 * kd + (1 - alpha) * ce
        lines.append(dict(step=step + 1, loss=loss, kd_loss=kd, ce_loss=ce, grad_norm=norm, lr=rate(c, step), tokens=tokens))
        if is_drawn:
            of_tokens, variances = torch.cat(ratios, 1).sum(1).tolist()
            lines[-1] |= dict(log_ratio=of_tokens / tokens, log_ratio_error=math.sqrt(variances) / tokens)
    (out / "trajectory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "weights" in c:
        final = {name.replace(".default", ""): p.detach().numpy() for name, p in trained.items()}
        save_file(sums_of(final), out / "final.safetensors")
    else:
        student.save_pretrained(out / ("final-adapter" if "lora" in c else "final"))


def sums_of(tensors):
    return {name: torch.from_numpy(weights.sums(name, value)) for name, value in tensors.items()}


def check(case):
    """Trains again and compares. Losses move by less than 1e-6 and norms by less than 5e-6 from machine to machine."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory)
        train(case, out)
        read = lambda path: [json.loads(line) for line in path.read_text().splitlines()]
        found, expected = read(out / "trajectory.jsonl"), read(case / "trajectory.jsonl")
        assert len(found) == len(expected), "another number of steps"
        gates = dict(loss=2e-6, kd_loss=2e-6, ce_loss=2e-6, grad_norm=1e-5)
        for name, gate in gates.items():
            worst = max(abs(a[name] - b[name]) / max(abs(b[name]), 1e-12) for a, b in zip(found, expected))
            print(f"{name}: {worst:.1e} (allowed {gate:.0e})")
            assert worst <= gate, name
        for name in ("step0.safetensors", "final.safetensors"):
            if (case / name).exists():
                found, expected = load_file(out / name), load_file(case / name)
                assert found.keys() == expected.keys()
                worst = max((torch.norm(found[key] - expected[key]) / torch.norm(expected[key])).item() for key in found)
                print(f"{name}: {worst:.1e} (allowed 1e-05)")
                assert worst <= 1e-5, name


def spread(case, runs):
    """Prints, step by step, how far the norm is from the trajectory's where the initial weights are rounded otherwise."""
    read = lambda path: [json.loads(line)["grad_norm"] for line in path.read_text().splitlines()]
    expected, found = torch.tensor(read(case / "trajectory.jsonl")), []
    for seed in range(runs):
        with tempfile.TemporaryDirectory() as directory:
            train(case, pathlib.Path(directory), seed)
            found.append(torch.tensor(read(pathlib.Path(directory) / "trajectory.jsonl")))
    for step, off in enumerate((torch.stack(found) / expected - 1).T, 1):
        print(f"step {step}: {off.std():.1e} (standard deviation), {off.abs().max():.1e} at most")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["new", "made", "files", "train", "check", "spread"])
    parser.add_argument("case", type=pathlib.Path)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="qwen2")
    parser.add_argument("--lora", metavar="TARGETS", help="an adapter of the student trains, on these projections")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precast", type=pathlib.Path, default="target/debug/precast", help="the program that writes rollouts")
    parser.add_argument("--runs", type=int, default=60, help="of spread")
    arguments = parser.parse_args()
    exact()
    if arguments.what == "files":
        for name, entry in FILES.items():
            new(arguments.case / name, **entry)
            train(arguments.case / name, arguments.case / name)
        return
    if arguments.what == "new":
        given = dict(family=arguments.family, seed=arguments.seed, lora=arguments.lora)
        new(arguments.case, **FILES.get(arguments.case.name, given))
    if arguments.what == "made":
        made.make(arguments.case, arguments.precast)
    if arguments.what == "check":
        return check(arguments.case)
    if arguments.what == "spread":
        return spread(arguments.case, arguments.runs)
    for result in ("final", "final-adapter"):
        shutil.rmtree(arguments.case / result, ignore_errors=True)
    train(arguments.case, arguments.case)


if __name__ == "__main__":
    main()
