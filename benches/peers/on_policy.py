"""PyTorch on the work of an on-policy step: on_policy.py --rollouts N [--prompt-tokens P] [--max-tokens M] [--steps S] [--micro B].

A step is that of TRL's GKDTrainer, in transformers alone: completions by `generate`, sampled at temperature 1 and never ended early; then
micro-batches, the student's forward and backward and the teacher's forward; KL(student || teacher) over the whole vocabulary at each
token of a completion; one update by AdamW. The student has fp32 weights under bf16 autocast. A bf16 copy of it generates, refreshed in
every step, and the head computes completions alone: both are kinder than TRL. Prints a JSON object.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from peers import seconds_since_process_start

PROMPT_IDS = 151643  # those of Qwen2.5 that are no special tokens


def model(config, dtype):
    with open(config) as file:
        shape = json.load(file)
    ends = dict(bos_token_id=None, eos_token_id=None, pad_token_id=0)
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(**{**shape, **ends}), attn_implementation="sdpa")
    torch.set_default_dtype(torch.float32)
    return made


class Step:
    def __init__(self, options):
        self.options = options
        self.student = model(options.student, torch.float32).train()
        self.sampler = model(options.student, torch.bfloat16).eval().requires_grad_(False)
        self.teacher = model(options.teacher, torch.bfloat16).eval().requires_grad_(False)
        self.adamw = torch.optim.AdamW(self.student.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
        self.random = torch.Generator(device="cuda").manual_seed(1)

    @torch.no_grad()
    def write(self, rollouts, prompt_tokens, max_tokens, **more):
        for copy, weight in zip(self.sampler.parameters(), self.student.parameters()):
            copy.copy_(weight)
        prompts = torch.randint(0, PROMPT_IDS, (rollouts, prompt_tokens), device="cuda", generator=self.random)
        draws = dict(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=None, pad_token_id=0)
        config = GenerationConfig(max_new_tokens=max_tokens, use_cache=True, return_dict_in_generate=True, **draws, **more)
        return self.sampler.generate(prompts, attention_mask=torch.ones_like(prompts), generation_config=config)

    def logits(self, of, ids):
        hidden = of.model(ids, use_cache=False).last_hidden_state
        return of.lm_head(hidden[:, self.options.prompt_tokens - 1 :])

    def train(self, sequences):
        counted = sequences.size(0) * self.options.max_tokens
        for rows in sequences.split(self.options.micro):
            with torch.autocast("cuda", torch.bfloat16):
                student = self.logits(self.student, rows[:, :-1])
                with torch.no_grad():
                    teacher = self.logits(self.teacher, rows[:, :-1])
                student = F.log_softmax(student.float(), -1)
                teacher = F.log_softmax(teacher[..., : student.size(-1)].float(), -1)
                ((student.exp() * (student - teacher)).sum() / counted).backward()
        torch.nn.utils.clip_grad_norm_(self.student.parameters(), 1.0, foreach=True)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)

    @torch.no_grad()
    def mismatch(self):
        """Log-probabilities of sampled tokens in `generate` and in the forward pass of training."""
        prompt_tokens = min(self.options.prompt_tokens, 128)
        written = self.write(16, prompt_tokens, 64, output_logits=True)
        drawn = written.sequences[:, prompt_tokens:, None]
        sampled = torch.stack(written.logits, 1).float().log_softmax(-1).gather(-1, drawn)
        with torch.autocast("cuda", torch.bfloat16):
            logits = self.student(written.sequences[:, :-1], use_cache=False).logits[:, prompt_tokens - 1 :]
        distance = (logits.float().log_softmax(-1).gather(-1, drawn) - sampled).abs()
        return dict(tokens=distance.numel(), differ=int((distance > 0).sum()), mean_nats=float(distance.mean()))


def main():
    parser = argparse.ArgumentParser()
    for name, default in [("rollouts", 256), ("prompt-tokens", 256), ("max-tokens", 768), ("steps", 1), ("micro", 8)]:
        parser.add_argument(f"--{name}", type=int, default=default)
    for name in ("teacher", "student"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    step, times = Step(options), []
    for number in range(options.steps + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        sequences = step.write(options.rollouts, options.prompt_tokens, options.max_tokens).sequences
        torch.cuda.synchronize()
        written = time.perf_counter()
        step.train(sequences)
        torch.cuda.synchronize()
        times.append((written - began, time.perf_counter() - written))
        if number == 0:
            first_step_s = seconds_since_process_start()
    writing_s, training_s = (statistics.median(column) for column in zip(*times[1:]))
    step_s = writing_s + training_s
    new = options.rollouts * options.max_tokens
    print(json.dumps(dict(
        mode="on-policy", rollouts=options.rollouts, first_step_s=round(first_step_s, 1), writing_s=round(writing_s, 3),
        training_s=round(training_s, 3), step_s=round(step_s, 3), written_tokens_per_s=round(new / writing_s),
        new_tokens_per_s=round(new / step_s), positions_per_s=round(sequences.numel() / step_s),
        memory_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2), mismatch=step.mismatch(),
    )))


if __name__ == "__main__":
    main()
