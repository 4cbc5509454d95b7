"""PyTorch on the work of a training step: peers.py eager|compile|liger|ops [--teacher CONFIG] --student CONFIG."""

import argparse
import functools
import itertools
import json
import os
import statistics
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ALPHA, TEMPERATURE, CLIP = 0.5, 2.0, 1.0
WARM_STEPS = 3


def seconds_since_process_start():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def model(config):
    """Random bf16 weights of a shape."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if config["model_type"] == "qwen3_5_text":
        import fla_layers  # noqa: F401: replaces what transformers computes by chunks in PyTorch
    config = AutoConfig.for_model(**{**config, "use_cache": False})
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return made


def kd_loss(student, teacher, targets):
    student, teacher = student.float().flatten(0, 1), teacher.float().flatten(0, 1)
    ce = F.cross_entropy(student, targets.flatten())
    student, teacher = F.log_softmax(student / TEMPERATURE, -1), F.log_softmax(teacher / TEMPERATURE, -1)
    kl = F.kl_div(student, teacher, log_target=True, reduction="batchmean")
    return ALPHA * TEMPERATURE**2 * kl + (1 - ALPHA) * ce


def ce_loss(student, targets):
    return F.cross_entropy(student.float().flatten(0, 1), targets.flatten())


def torch_head(mode, vocab):
    """The loss by whole logits, from the final hidden states of both models, or of one without a teacher."""
    loss, alone = (torch.compile(one) if mode == "compile" else one for one in (kd_loss, ce_loss))

    def head(student, hidden, teacher, teacher_hidden, targets):
        if teacher is None:
            return alone(student.lm_head(hidden), targets)
        with torch.no_grad():
            # The student knows a part of the teacher's vocabulary.
            taught = teacher.lm_head(teacher_hidden)[..., :vocab]
        return loss(student.lm_head(hidden), taught, targets)

    return head


def liger_head(student, teacher, vocab):
    """Liger's kernels in both models, and its loss in chunks of tokens: beta 0 is KL(teacher || student)."""
    from liger_kernel.chunked_loss import LigerFusedLinearJSDLoss
    from liger_kernel.transformers import apply_liger_kernel_to_qwen2

    for patched in (student, teacher):
        apply_liger_kernel_to_qwen2(model=patched)
    loss = LigerFusedLinearJSDLoss(1 - ALPHA, ALPHA * TEMPERATURE**2, beta=0.0, temperature=TEMPERATURE)

    def head(student, hidden, teacher, teacher_hidden, targets):
        hidden, teacher_hidden = hidden.flatten(0, 1), teacher_hidden.flatten(0, 1)
        return loss(hidden, student.lm_head.weight, teacher_hidden, teacher.lm_head.weight[:vocab], targets.flatten())

    return head


class Master:
    """AdamW on fp32 copies of bf16 parameters."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.copies = [p.detach().float().requires_grad_() for p in self.parameters]
        for copy in self.copies:
            copy.grad = torch.zeros_like(copy)
        self.adamw = torch.optim.AdamW(self.copies, lr=1e-4, weight_decay=0.01, fused=True)

    @torch.no_grad()
    def step(self):
        torch._foreach_copy_([c.grad for c in self.copies], [p.grad for p in self.parameters])
        torch.nn.utils.clip_grad_norm_(self.copies, CLIP, foreach=True)
        self.adamw.step()
        torch._foreach_copy_(self.parameters, self.copies)
        for parameter in self.parameters:
            parameter.grad = None


class Adapters:
    """LoRA on every projection of a layer under peft, and AdamW on the adapters, which are fp32."""

    def __init__(self, student, rank):
        from peft import LoraConfig, get_peft_model

        projections = "q_proj k_proj v_proj o_proj gate_proj up_proj down_proj".split()
        # The adapters are put into the student itself.
        get_peft_model(student, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=projections))
        self.parameters = [p for p in student.parameters() if p.requires_grad]
        for parameter in self.parameters:
            parameter.data = parameter.data.float()
        self.adamw = torch.optim.AdamW(self.parameters, lr=1e-4, weight_decay=0.01, fused=True)

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP, foreach=True)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)


def train(mode, teacher_config, student_config, batch, seq, steps, lora_rank, experts):
    torch.manual_seed(0)
    teacher = model(teacher_config).eval().requires_grad_(False) if teacher_config else None
    if experts:
        teacher.set_experts_implementation(experts)
    student = model(student_config).train()
    master = Adapters(student, lora_rank) if lora_rank else Master(student.parameters())
    # Adapters in fp32 compute in bf16, too.
    precision = torch.autocast("cuda", torch.bfloat16, enabled=lora_rank > 0)
    vocab = student_config["vocab_size"]
    head = liger_head(student, teacher, vocab) if mode == "liger" else torch_head(mode, vocab)
    if mode == "compile":
        for one in filter(None, (teacher, student)):
            one.model = torch.compile(one.model)
    tokens = [torch.randint(0, vocab, (batch, seq + 1), device="cuda") for _ in range(4)]

    def step(tokens):
        ids, targets = tokens[:, :-1], tokens[:, 1:]
        with torch.no_grad():
            taught = teacher.model(ids).last_hidden_state if teacher else None
        with precision:
            loss = head(student, student.model(ids).last_hidden_state, teacher, taught, targets)
        loss.backward()
        master.step()
        torch.cuda.synchronize()

    step(tokens[0])
    first_step_s = seconds_since_process_start()
    for index in range(WARM_STEPS):
        step(tokens[index % 4])
    # What a step takes, without what compiling took.
    torch.cuda.reset_peak_memory_stats()
    times = []
    for index in range(steps):
        start = time.perf_counter()
        step(tokens[index % 4])
        times.append(time.perf_counter() - start)
    step_s = statistics.median(times)
    report(
        mode=mode,
        **({"experts": experts} if experts else {}),
        first_step_s=first_step_s,
        step_ms=1e3 * step_s,
        tokens_per_s=batch * seq / step_s,
        peak_gib=torch.cuda.max_memory_allocated() / 2**30,
    )


def seconds(call, operands, calls=48, samples=5):
    """Median time of one call, each on the next of several operands, as `precast bench` measures a kernel: on a device
    that a tenth of a second of GEMMs has warmed, during which the host gets ahead of it."""
    operands, events = itertools.cycle(operands), []
    call(next(operands))
    x, y = random(8192, 8192), random(8192, 8192)
    for _ in range(64):
        x @ y
    for _ in range(samples):
        events.append(torch.cuda.Event(enable_timing=True))
        events[-1].record()
        for _ in range(calls):
            call(next(operands))
    events.append(torch.cuda.Event(enable_timing=True))
    events[-1].record()
    events[-1].synchronize()
    return statistics.median(a.elapsed_time(b) / 1e3 / calls for a, b in zip(events, events[1:]))


def measure(name, shape, flops, call, operands):
    try:
        took = seconds(call, operands)
        report(mode="ops", op=name, shape=shape, us=1e6 * took, tflop_per_s=flops / took / 1e12)
    except RuntimeError as error:
        report(mode="ops", op=name, shape=shape, error=str(error)[:200])


def random(*shape, grad=False):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=grad)


def limits():
    """What the device reaches: a large GEMM, and a copy that reads and writes 4 GiB."""
    side, count = 8192, 2**31
    squares = [(random(side, side), random(side, side)) for _ in range(3)]
    measure("limit.gemm", f"{side}x{side}x{side}", 2 * side**3, lambda o: o[0] @ o[1].t(), squares)
    x = torch.empty(count, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    took = seconds(lambda o: o[1].copy_(o[0]), [(x, y)])
    report(mode="ops", op="limit.copy", shape=str(count), us=1e6 * took, tb_per_s=4 * count / took / 1e12)


def gemms(role, config, tokens, backward):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    width = head_dim * config["num_attention_heads"]
    kv = head_dim * config["num_key_value_heads"]
    # y = x w^T as (outputs, inputs).
    layers = {
        "qkv": (width + 2 * kv, hidden),
        "o": (hidden, width),
        "gate_up": (2 * inner, hidden),
        "down": (hidden, inner),
        "lm_head": (config["vocab_size"], hidden),
    }
    for name, (outputs, inputs) in layers.items():
        flops, copies = 2 * tokens * outputs * inputs, range(2 if name == "lm_head" else 4)
        x, w, dy = (
            [random(*shape) for _ in copies] for shape in ((tokens, inputs), (outputs, inputs), (tokens, outputs))
        )
        shape = f"{tokens}x{outputs}x{inputs}"
        measure(f"{role}.{name}.fwd", shape, flops, lambda o: o[0] @ o[1].t(), list(zip(x, w)))
        if name == "down":  # As Precast has it.
            residual = [(r, a, b.t()) for r, a, b in zip(dy, x, w)]
            measure(f"{role}.{name}.fwd.residual", shape, flops, lambda o: torch.addmm(*o), residual)
        if backward:
            measure(f"{role}.{name}.dgrad", shape, flops, lambda o: o[0] @ o[1], list(zip(dy, w)))
            wgrad = functools.partial(torch.mm, out_dtype=torch.float32)
            measure(f"{role}.{name}.wgrad", shape, flops, lambda o: wgrad(o[0].t(), o[1]), list(zip(dy, x)))


def attention(role, config, batch, seq, backward):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    shape = (batch, heads, seq, head_dim)
    # Causal: half of the scores.
    flops = 4 * batch * heads * seq * seq * head_dim / 2
    operands = [tuple(random(*shape, grad=True) for _ in range(3)) for _ in range(4)]

    def forward(qkv):
        return F.scaled_dot_product_attention(*qkv, is_causal=True)

    def gradients(work):
        return torch.autograd.grad(*work, retain_graph=True)

    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        name = f"{role}.attention.{backend.name.removesuffix('_ATTENTION').lower()}"
        with sdpa_kernel(backend):
            measure(f"{name}.fwd", "x".join(map(str, shape)), flops, forward, operands)
            if backward:
                try:
                    work = [(y, qkv, torch.randn_like(y)) for qkv in operands for y in [forward(qkv)]]
                except RuntimeError:
                    continue  # As the line above says.
                measure(f"{name}.bwd", "x".join(map(str, shape)), 2.5 * flops, gradients, work)


def report(**fields):
    device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    print(json.dumps({**fields, **device}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=["eager", "compile", "liger", "ops"])
    parser.add_argument("--teacher", help="a config.json; without it the loss is the cross entropy")
    parser.add_argument("--student", required=True, help="a config.json")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lora-rank", type=int, default=0, help="train adapters of this rank; 0: all weights")
    parser.add_argument("--experts", help="transformers' GEMMs of a teacher's experts: eager, batched_mm, grouped_mm")
    arguments = parser.parse_args()
    configs = {}
    for role in ("teacher", "student"):
        if path := getattr(arguments, role):
            with open(path) as file:
                configs[role] = json.load(file)
    if arguments.mode != "ops":
        try:
            shape = (arguments.batch, arguments.seq, arguments.steps)
            train(arguments.mode, configs.get("teacher"), configs["student"], *shape, arguments.lora_rank, arguments.experts)
        except (ModuleNotFoundError, torch.OutOfMemoryError) as error:
            report(mode=arguments.mode, experts=arguments.experts, error=f"not measured: {error}")
        return
    limits()
    for role, config in configs.items():
        gemms(role, config, arguments.batch * arguments.seq, backward=role == "student")
        attention(role, config, arguments.batch, arguments.seq, backward=role == "student")


if __name__ == "__main__":
    main()
