"""Golden cases whose weights no file holds, from nothing: a table, and what make.py and the program are given of each."""

import json
import pathlib
import shutil
import subprocess
import tempfile
from importlib.metadata import version

import numpy as np
import transformers
from safetensors.numpy import save_file

import weights

# The teacher knows more tokens and is not tied.
SMALL = dict(
    teacher=dict(hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                 vocab_size=224, tie_word_embeddings=False, initializer_range=0.35),
    student=dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                 vocab_size=200, tie_word_embeddings=True, initializer_range=0.5),
)
MEDIUM = dict(
    teacher=dict(hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=128,
                 vocab_size=320, tie_word_embeddings=False, initializer_range=0.1),
    student=dict(hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=64,
                 vocab_size=256, tie_word_embeddings=True, initializer_range=0.1),
)
# No position is so slow that it leaves a key's bias without a gradient, which rounding would then be.
ROPE = dict(rope_type="default", rope_theta=1e2)
# Positions beyond the original length, and frequencies that are low, high and between.
SLIDING, FULL, LINEAR = "sliding_attention", "full_attention", "linear_attention"
GATED_ROPE = dict(ROPE, partial_rotary_factor=0.25)
LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=1e3, factor=8.0, original_max_position_embeddings=32)
TRAINED = dict(shapes=MEDIUM, case=dict(T=2.0, alpha=0.5, lr=1e-3, wd=0.01, clip=1.0, B=4, S=64, accum=1, steps=12, warmup=0, sched="constant"))
# `options` are those of the run whose student writes what it learns from.
WRITTEN = dict(shapes=SMALL, case=dict(alpha=1.0, T=1.0, lr=2e-3, wd=0.01, clip=1.0, B=2, S=32, accum=4, steps=20, warmup=0, sched="constant"))
STOPS = [3, 50, 101, 150, 199]
# By name: what is apart from the common shapes and settings above.
MADE = {
    "made-qwen2": dict(of=TRAINED),
    "made-mask": dict(of=TRAINED, alone=True, case=dict(B=3, accum=2)),
    # Rows of 2 to S + 1 tokens, end to end.
    "made-packed": dict(of=TRAINED, case=dict(B=2, accum=2, packing="rows")),
    # Two rows of three have another prompt for the teacher, shorter or longer, of which some leave the completion less room.
    "made-own-prompt": dict(of=TRAINED, case=dict(B=2, accum=2, steps=6, packing="rows", own_prompts=True)),
    "made-self": dict(of=TRAINED, alone="self", case=dict(B=2, accum=2, steps=6, packing="rows", own_prompts=True, teacher="self")),
    "made-packed-lora": dict(of=TRAINED, case=dict(B=2, accum=2, packing="rows", steps=6, lr=2e-3, lora=dict(
        r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))),
    "made-reverse": dict(of=TRAINED, case=dict(beta=1.0)),
    "made-half": dict(of=TRAINED, case=dict(beta=0.5, T=1.0, alpha=1.0)),
    # Lookups of the most frequent token give its row no gradient; the head, which is tied, does.
    "made-padding": dict(of=TRAINED, student=dict(pad_token_id=0)),
    "made-qwen3": dict(of=TRAINED, model="qwen3", student=dict(num_attention_heads=4, num_key_value_heads=2)),
    "made-llama3": dict(of=TRAINED, model="llama", rope=LLAMA3, teacher=dict(num_key_value_heads=2, vocab_size=256),
                        student=dict(num_attention_heads=3),
                        case=dict(T=1.0, alpha=0.9, lr=5e-4, wd=0.1, B=2, S=192, warmup=2, sched="cosine")),
    # The second of three layers is not rotated: as a list, and by the interval.
    "made-smollm3": dict(of=TRAINED, model="smollm3", teacher=dict(num_hidden_layers=3, no_rope_layers=[1, 0, 1], pad_token_id=None),
                         student=dict(num_hidden_layers=3, no_rope_layer_interval=2, pad_token_id=None)),
    # The vocabulary is no multiple of 8.
    "made-granite": dict(of=TRAINED, model="granite", teacher=dict(attention_multiplier=0.2, embedding_multiplier=4.0,
                         residual_multiplier=0.3, logits_scaling=0.5), student=dict(attention_multiplier=0.05,
                         embedding_multiplier=6.0, residual_multiplier=0.4, logits_scaling=3.0, vocab_size=251)),
    # A window of 20 in each of the student's layers.
    "made-mistral": dict(of=TRAINED, model="mistral", teacher=dict(sliding_window=None), student=dict(sliding_window=20)),
    # Norms behind attention and MLP only, and of the whole of q and of k; no biases.
    "made-olmo2": dict(of=TRAINED, model="olmo2", teacher=dict(num_attention_heads=4, num_key_value_heads=2, pad_token_id=None),
                       student=dict(num_attention_heads=4, num_key_value_heads=2, pad_token_id=None)),
    # As OLMo 2's; two rotary tables, of the full layers' `yarn` in both: of the teacher's third layer and the student's second.
    "made-olmo3": dict(of=TRAINED, model="olmo3", teacher=dict(num_attention_heads=4, num_key_value_heads=2, pad_token_id=None,
                       num_hidden_layers=3, sliding_window=24, layer_types=[SLIDING, SLIDING, FULL],
                       rope_parameters={SLIDING: ROPE, FULL: YARN}),
                       student=dict(num_attention_heads=4, num_key_value_heads=2, pad_token_id=None, sliding_window=20,
                       layer_types=[SLIDING, FULL], rope_parameters={SLIDING: ROPE, FULL: dict(YARN, attention_factor=0.8)})),
    # Heads of 256 and of 64, two rotary tables, one of them `linear` in the teacher; its third layer and the student's second are full.
    "made-gemma3": dict(of=TRAINED, model="gemma3", teacher=dict(head_dim=256, num_hidden_layers=3, query_pre_attn_scalar=40,
                        initializer_range=0.05, sliding_window=24, pad_token_id=None, layer_types=[SLIDING, SLIDING, FULL],
                        rope_parameters={SLIDING: ROPE, FULL: dict(rope_type="linear", rope_theta=1e3, factor=8.0)}),
                        student=dict(query_pre_attn_scalar=64, sliding_window=24, pad_token_id=None, layer_types=[SLIDING, FULL],
                        rope_parameters={SLIDING: ROPE, FULL: dict(rope_type="default", rope_theta=1e3)})),
    # Two chunks of the gated delta rule and a part, two value heads a key head, of the student four: int8 rotates sixteen columns. The last
    # layer attends, of the student's by the interval.
    "made-qwen35": dict(of=TRAINED, model="qwen3_5", rope=GATED_ROPE, case=dict(B=2, S=150, steps=6),
                        teacher=dict(layer_types=[LINEAR, FULL], linear_num_key_heads=1, linear_num_value_heads=2),
                        student=dict(num_hidden_layers=3, full_attention_interval=3, linear_num_key_heads=2, linear_num_value_heads=8)),
    # Experts in the teacher, of which weights do not add up to 1; then with a shared one.
    "made-moe": dict(of=TRAINED, model="qwen3", teacher_model="qwen3_moe", case=dict(B=2, S=48, steps=4),
                     teacher=dict(num_experts=16, num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=False)),
    "made-qwen35-moe": dict(of=TRAINED, model="qwen3_5", teacher_model="qwen3_5_moe", rope=GATED_ROPE, case=dict(B=2, S=70, steps=3),
                            teacher=dict(layer_types=[LINEAR, FULL], linear_num_key_heads=1, linear_num_value_heads=2, num_experts=12,
                                         num_experts_per_tok=4, moe_intermediate_size=32, shared_expert_intermediate_size=32),
                            student=dict(num_hidden_layers=2, full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=4)),
    "made-lora": dict(of=TRAINED, case=dict(lr=2e-3, lora=dict(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"]))),
    "rollouts-reverse": dict(of=WRITTEN, case=dict(beta=1.0, options="--on-policy --max-tokens 16")),
    "rollouts-jsd": dict(of=WRITTEN, model="qwen3", case=dict(
        beta=0.5, T=1.5, wd=0.1, warmup=4, sched="cosine", options="--on-policy 0.5 --max-tokens 16")),
    "rollouts-forward": dict(of=WRITTEN, model="llama", case=dict(
        beta=0.0, clip=0.5, options="--on-policy --max-tokens 16 --group-size 2 --sampling-temperature 0.8 --top-k 40 --top-p 0.95")),
}
CLASSES = dict(gemma3="Gemma3", granite="Granite", llama="Llama", mistral="Mistral", olmo2="Olmo2", olmo3="Olmo3", qwen2="Qwen2", qwen3="Qwen3", qwen3_5="Qwen3_5",
               qwen3_5_moe="Qwen3_5Moe", qwen3_moe="Qwen3Moe", smollm3="SmolLM3")


def make(case, program):
    """Writes all of a case that training does not."""
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    entry = MADE[case.name]
    c = dict(seed=1, dtype="float64") | entry["of"]["case"] | entry.get("case", {})
    if entry.get("alone") is True:
        del c["T"], c["alpha"]
    write = lambda: (case / "case.json").write_text(json.dumps(c, indent=1) + "\n")
    write()
    c["weights"] = {}
    for role in ["student"] if entry.get("alone") else ["teacher", "student"]:
        name = CLASSES[entry.get(f"{role}_model", entry.get("model", "qwen2"))]
        of_text = "Text" if name in ("Gemma3", "Qwen3_5", "Qwen3_5Moe") else ""
        shape = dict(rope_parameters=dict(entry.get("rope", ROPE))) | entry["of"]["shapes"][role] | entry.get(role, {})
        config = getattr(transformers, f"{name}{of_text}Config")(
            architectures=[f"{name}ForCausalLM"], rms_norm_eps=1e-6, max_position_embeddings=512, bos_token_id=None, eos_token_id=None,
            use_cache=False, **shape)
        config.save_pretrained(case / role)
        c["weights"][role] = weights.digest(weights.of_model(case / role))
    if "lora" in c:
        c["weights"]["adapter"] = weights.digest(weights.of_adapter(case))
        (case / "adapter").mkdir()
        (case / "adapter/adapter_config.json").write_text(json.dumps(dict(peft_type="LORA", **c["lora"]), indent=1) + "\n")
    c |= {library: version(library) for library in ("torch", "transformers")}
    write()
    drawn = lambda name, count, below: [int(word) % below for word in weights.words(c["seed"], name, count)]
    vocab = json.loads((case / "student/config.json").read_text())["vocab_size"]
    if "options" in c:
        transformers.GenerationConfig(eos_token_id=STOPS).save_pretrained(case / "student")
        lengths = zip(drawn("prompts", 43, 16), drawn("completions", 43, 16))
        rows = [row(drawn, number, of_row, vocab) for number, of_row in enumerate(lengths)]
        write_rows(case / "prompts.jsonl", rows)
        write_rows(case / "rows.jsonl", sequences(rows, c, rollouts(case, c, program)))
    elif entry.get("alone") is True:
        write_masked(case, c, vocab, drawn)
    elif "packing" in c:
        write_packed(case, c, vocab, drawn)
    else:
        # Zipf's law: a token's rank is its number.
        ranks = np.cumsum(1 / np.arange(1, vocab + 1))
        places = weights.words(c["seed"], "tokens", c["steps"] * c["accum"] * c["B"] * (c["S"] + 1)) / 2**24 * ranks[-1]
        (case / "tokens.bin").write_bytes(np.searchsorted(ranks, places).astype("<u4").tobytes())


def write_masked(case, c, vocab, drawn):
    """Rows for every step, of which prompts and some tokens behind them do not count."""
    lengths = ((before, c["S"] - 1 - before) for before in drawn("prompts", c["steps"] * c["accum"] * c["B"], c["S"] - 1))
    write_rows(case / "rows.jsonl", [row(drawn, number, of_row, vocab) for number, of_row in enumerate(lengths)])


def write_packed(case, c, vocab, drawn):
    """Rows for every step, of which every seventh takes S places and the others fewer."""
    prompts, behind = drawn("prompts", 20 * c["steps"], 8), drawn("completions", 20 * c["steps"], c["S"] // 2)
    lengths = ((before, c["S"] - 1 - before if number % 7 == 3 else after) for number, (before, after) in enumerate(zip(prompts, behind)))
    rows = [row(drawn, number, of_row, vocab) for number, of_row in enumerate(lengths)]
    for number, one in enumerate(rows):
        if c.get("own_prompts") and number % 3 < 2:
            prompt = drawn(f"teacher prompt {number}", 1 + number % 13, vocab)
            begin = next(at for at, label in enumerate(one["labels"]) if label != -100)
            # As a run cuts both.
            most = c["S"] + 1 + min(0, begin - len(prompt))
            rows[number] = {name: values[:most] for name, values in one.items()} | dict(teacher_prompt=prompt)
    write_rows(case / "rows.jsonl", rows)


def row(drawn, number, lengths, vocab):
    """A prompt of one token and more, and a completion of which some tokens behind the first do not count."""
    before, behind = lengths
    ids = drawn(f"row {number}", before + behind + 2, vocab)
    counts = [False] * (before + 1) + [True] + [draw < 3 for draw in drawn(f"mask {number}", behind, 4)]
    return dict(input_ids=ids, labels=[id if counted else -100 for id, counted in zip(ids, counts)])


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows))


def sequences(rows, c, samples):
    """What the steps of a case train on, in order: what its student has written, and the data's rows in other places."""
    options = c["options"].split()
    group = int(options[options.index("--group-size") + 1]) if "--group-size" in options else 1
    all = [dict(rows[number // group % len(rows)]) for number in range(c["steps"] * c["B"] * c["accum"])]
    for sample in samples:
        prompt, completion = sample["prompt_ids"], sample["completion_ids"]
        before = [-100] * len(prompt)
        assert all[sample["sequence"]]["input_ids"][: len(prompt)] == prompt and all[sample["sequence"]]["labels"][: len(prompt)] == before
        all[sample["sequence"]] = dict(input_ids=prompt + completion, labels=before + completion)
    return all


def rollouts(case, c, program):
    """What the student of a case writes for each step, in fp32 on the program's simulated GPU."""
    options = dict(alpha=c["alpha"], temperature=c["T"], beta=c["beta"], steps=c["steps"], batch_size=c["B"], seq_len=c["S"],
                   grad_accum=c["accum"], lr=c["lr"], warmup=c["warmup"], schedule=c["sched"], weight_decay=c["wd"], clip=c["clip"],
                   precision="fp32", checkpoint_every=0, samples_every=1, device="sim", data=case / "prompts.jsonl")
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        for role in ("teacher", "student"):
            shutil.copytree(case / role, scratch / role)
            save_file(weights.of_model(case / role), scratch / role / "model.safetensors")
            options[role] = scratch / role
        given = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        subprocess.run([program, "distill", "--out", scratch / "run", *given, *c["options"].split()], check=True)
        return [json.loads(line) for line in (scratch / "run/samples.jsonl").read_text().splitlines()]
