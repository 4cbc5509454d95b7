#!/usr/bin/env python3
"""Rows become the tokens and labels that transformers, TRL and datasets make of them.

    cargo xtask peers masks

or, with the packages of xtask/peers/masks.txt: tests/masks/check.py PRECAST [SAMPLE]

Chats under real templates, texts, prompts and completions, ids with masks, in every form of file: `precast data --json` says what they
are. A row is equal, or refused by name; what is neither fails. Which characters of a chat count is said by transformers where the
template has generation marks, and else by what rendering adds to the rendering before; a token counts if it overlaps them, as transformers
has it since 5.24. Its own mask must be the same; before, it ends inside of a character of several tokens. SAMPLE receives a few dozen rows
for a test: tests/fixtures/masks.
"""

import csv
import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
warnings.simplefilter("ignore")

import datasets
import jinja2
import transformers
import trl
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers import tokenization_utils_base as base
from trl import SFTTrainer

datasets.disable_caching()

# What templates have rendered, with the places of generation marks, which transformers keeps to itself.
RENDERED = []
render = base.render_jinja_template
base.render_jinja_template = lambda *of, **options: RENDERED.append(render(*of, **options)) or RENDERED[-1]
transformers.logging.set_verbosity_error()

TESTS = pathlib.Path(__file__).parent.parent
VOCAB = 1024
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 32,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": True,
}
ENDINGS = [
    "A model.", "Great job 🎉", "café", "日本語", "n\u0303", "e\u0301", "नमस्ते", "👩‍👩‍👧‍👦", "🇩🇪", "½", "ẞ", "ﬁ", "…", "\u200b", "trailing ", "two  ",
    "tab\t", "line\n", "lines\n\n", "crlf\r\n", " leading", "\u00a0wide\u00a0", "\n", " ", "🎉", "é", "two\n\n🎉🎉", "<b>&amp;</b>", "}", "\"quoted\"",
]
# Keys of a turn that say whether it is learnt.
MARKS = ["weight", "train", "loss"]
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a <city>.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Zürich", "default": None}, "days": {"type": "integer"}},
    "required": ["city"]}}}]
OTHER_TOOLS = [{"type": "function", "function": {"name": "sum", "description": "A sum.", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number", "minimum": 1.5}}, "required": ["a", "b"]}}}]


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, content="", **more):
    return assistant(content, tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}], **more)


def tool_rows():
    result = {"role": "tool", "name": "weather", "content": "{\"sun\": true} ☀️"}
    return [
        {"messages": [user("Weather?"), call("weather", {"city": "Zürich", "days": 2}), result, assistant("Sun ☀️")], "tools": TOOLS},
        {"messages": [user("Sum?"), call("sum", {"a": 1, "b": 2.5})], "tools": OTHER_TOOLS},
        {"messages": [user("Hello"), assistant("Hello! ")], "tools": TOOLS},
        {"messages": [user("None?"), call("weather", {"city": None}, None)], "tools": TOOLS},
    ]


def chat_rows():
    rows = [{"messages": [user("Who are you?"), assistant(end)]} for end in ENDINGS]
    rows += [{"messages": [{"role": "system", "content": "Be brief." + end}, user("Say" + end), assistant("a" + end), user("Again" + end),
                           assistant("b")]} for end in ENDINGS[1::3]]
    rows += [
        {"messages": [user(""), assistant("Nothing asked")]},
        {"messages": [user("Say nothing"), assistant("")]},
        {"messages": [user("Say nothing"), assistant(None)]},
        {"messages": [user("a"), assistant("b"), user("c")]},
        {"messages": [user("a"), user("b"), assistant("c🎉")]},
        {"messages": [user("2 + 2?"), assistant("4", reasoning_content="Two and two 🎉")]},
        {"messages": [user("2 + 2?"), assistant("<think>\nTwo and two.\n</think>\n\n4")]},
        {"messages": [user("2 + 2?"), assistant("4", reasoning_content="Two."), user("3 + 3?"), assistant("6", reasoning_content="Three.")]},
        {"messages": [user("a", name=None, tool_calls=None), assistant("b", name=None, tool_calls=None, reasoning_content=None)]},
        {"messages": [user("a"), assistant("é")], "tools": None},
        {"messages": [user("a"), assistant("é")], "tools": json.dumps(TOOLS)},
        {"messages": [user("a"), assistant("é")], "tools": [json.dumps(TOOLS[0])]},
        {"messages": [user([{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]), assistant([{"type": "text", "text": "é"}])]},
    ]
    return rows + tool_rows()


def turn_rows():
    """Turns that are marked as not to be learnt."""
    return [{"messages": [user("a"), assistant("é", **{name: value}), user("c"), assistant("d🎉", **{name: other})]}
            for name, value, other in [("weight", 0, 1), ("weight", 1, 0), ("train", False, True), ("loss", True, False)]]


def completion_rows():
    prompts = ["Q: What?\nA: ", "Q: What?\nA:", "日本語", "🎉", "end\n\n", "word"]
    rows = [{"prompt": prompts[at % len(prompts)], "completion": end} for at, end in enumerate(ENDINGS)]
    return rows + [{"prompt": "Q: What?\nA:", "completion": " " + end} for end in ENDINGS] + [{"prompt": "", "completion": "all 🎉"}]


def answer_rows():
    return [{"prompt": [user("Who" + end)], "completion": [assistant("I" + end)]} for end in ENDINGS[::2]]


def instruction_rows():
    return [{"instruction": "Add." + end, "input": ["", "2 and 2"][at % 2], "output": "4" + end} for at, end in enumerate(ENDINGS[::2])]


def conversation_rows():
    return [{"conversations": [{"from": "user", "value": "a" + end}, {"from": "assistant", "value": "b" + end}]} for end in ENDINGS[::4]]


def masked_rows():
    ids = list(range(300, 312))
    bit = lambda at, of: [int(place % of != at % of) for place in range(12)]
    return [{"input_ids": ids, "completion_mask": bit(at, 2 + at), "assistant_masks": bit(at, 3)} for at in range(4)]


# Tokenizers, each as models have it.
GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def begins(inner, first):
    return processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first, inner.token_to_id(first))])


def byte_level(texts, specials, normalizer=None, split=None, trims=False, bos=None):
    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizer
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split is None)
    inner.pre_tokenizer = level if split is None else pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(split), "isolated"), level])
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    inner.train_from_iterator(texts, trainer)
    add(inner, specials)
    post = processors.ByteLevel(trim_offsets=trims)
    inner.post_processor = processors.Sequence([post, begins(inner, bos)]) if bos else post
    return inner


def sentence_piece(texts, specials, normalizer=None, metaspace=None):
    inner = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if normalizer:
        inner.normalizer = normalizer
    inner.pre_tokenizer = metaspace
    inner.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    of_bytes = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=520, special_tokens=["<unk>", "<s>", "</s>", *of_bytes], limit_alphabet=70, show_progress=False)
    inner.train_from_iterator([word for text in texts for word in text.split("\n")], trainer)
    # Bytes are no tokens that a text can spell.
    file = json.loads(inner.to_str())
    file["added_tokens"] = [token for token in file["added_tokens"] if token["content"] not in of_bytes]
    inner = Tokenizer.from_str(json.dumps(file))
    add(inner, specials)
    inner.post_processor = begins(inner, "<s>")
    return inner


def add(inner, specials):
    tags = [token for token in specials if not re.match(r"<[|｜]|<s>|</s>|<unk>|<bos>|<eos>", token)]
    inner.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials if token not in tags])
    inner.add_tokens([AddedToken(token, special=False, normalized=False) for token in tags])


def replaced(*before):
    return normalizers.Sequence([*before, normalizers.Replace(" ", "▁")])


TOKENIZERS = {
    "qwen": lambda *of: byte_level(*of, normalizer=normalizers.NFC(), split=GPT4),
    "llama-3": lambda *of: byte_level(*of, split=GPT4, trims=True, bos="<|begin_of_text|>"),
    "gpt-2": lambda *of: byte_level(*of, trims=True),
    "smollm": lambda *of: byte_level(*of),
    "llama-2": lambda *of: sentence_piece(*of, normalizer=replaced(normalizers.Prepend("▁"))),
    "mistral": lambda *of: sentence_piece(*of, metaspace=pre_tokenizers.Metaspace("▁", "first", split=False)),
    "gemma": lambda *of: sentence_piece(*of, normalizer=replaced()),
}

# Templates: their text, the tokens that end a text and begin it, and two tokenizers.
CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ZEPHYR = (
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% elif message['role'] == 'assistant' %}\n"
    "{{ '<|assistant|>\n'  + message['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n"
    "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}"
)
MISTRAL = (
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ message['content'] + eos_token}}{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}"
)
OF_TRL = {
    "qwen2_5": "<|im_end|>", "qwen2_5_training": "<|im_end|>", "qwen3": "<|im_end|>", "qwen3_training": "<|im_end|>",
    "qwen3_instruct_2507": "<|im_end|>", "qwen3_6": "<|im_end|>", "qwen3_6_training": "<|im_end|>", "llama3": "<|eot_id|>",
    "llama3_training": "<|eot_id|>", "llama3_1": "<|eot_id|>", "llama3_2": "<|eot_id|>", "phi3": "<|end|>", "phi3_training": "<|end|>",
    "gemma": "<end_of_turn>", "gemma_training": "<end_of_turn>", "gemma3": "<end_of_turn>", "deepseekv3": "<｜end▁of▁sentence｜>",
    "deepseekv3_training": "<｜end▁of▁sentence｜>", "deepseek_r1_distill": "<｜end▁of▁sentence｜>",
    "deepseek_r1_distill_training": "<｜end▁of▁sentence｜>", "glm4moe": "<|endoftext|>", "glm4moe_training": "<|endoftext|>",
    "nemotron_3_nano_training": "<|im_end|>", "lfm2": "<|im_end|>", "lfm2_training": "<|im_end|>", "cohere": "<|END_OF_TURN_TOKEN|>", "cohere_training": "<|END_OF_TURN_TOKEN|>",
    "nemotron_3_nano": "<|im_end|>", "gptoss": "<|return|>", "gptoss_training": "<|return|>",
}


def templates():
    folder = pathlib.Path(trl.__file__).parent / "chat_templates"
    found = {name: ((folder / f"{name}.jinja").read_text(), eos) for name, eos in OF_TRL.items()}
    smollm = json.loads((TESTS / "fixtures/chat/smollm2.json").read_text())["template"]
    found |= {"smollm2": (smollm, "<|im_end|>"), "chatml": (CHATML, "<|im_end|>"), "zephyr": (ZEPHYR, "</s>"), "mistral": (MISTRAL, "</s>")}
    return found


def specials(all_templates):
    names = ["<s>", "</s>", "<unk>", "<|begin_of_text|>", "<|endoftext|>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>", "<think>",
             "</think>", "<tool_call>", "</tool_call>"]
    for text, eos in all_templates.values():
        names += re.findall(r"<\|[A-Za-z_]+\|>|<｜[^｜'\"]+｜>", text) + [eos]
    return list(dict.fromkeys(names))


class Unknown(Exception):
    """No peer tells what the assistant says."""


def is_silent(message):
    return any(message.get(name, True) in (0, False) for name in MARKS)


class Model:
    """A directory with a tokenizer and a template, as transformers writes it."""

    def __init__(self, directory, inner, template, eos, weights, training=None):
        shutil.copytree(weights, directory)
        of = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token=eos, unk_token=None)
        of.chat_template = template
        of.save_pretrained(directory)
        config = CONFIG | {"eos_token_id": of.eos_token_id, "bos_token_id": of.bos_token_id}
        (directory / "config.json").write_text(json.dumps(config))
        self.directory, self.of, self.training = directory, PreTrainedTokenizerFast.from_pretrained(directory), training
        # Rows whose own mask is another one.
        self.others = 0

    def rendered(self, template, messages, tools, **more):
        """The text of messages, and what generation marks enclose."""
        masked = bool(re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template))
        options = dict(chat_template=template, tools=tools, return_dict=True, return_assistant_tokens_mask=masked)
        out = self.of.apply_chat_template(messages, **options, **more)
        (text,), spans = RENDERED[-1]
        return text, list(spans[0]) if masked else None, out

    def chat(self, row, template=None):
        """Ids and labels of a conversation."""
        template = template or self.of.chat_template
        messages, tools = row["messages"], row.get("tools")
        # As TRL reads a column of text.
        tools = json.loads(tools) if isinstance(tools, str) else tools
        text, spans, own = self.rendered(template, messages, tools)
        if spans is not None:
            whole = list(spans)
            for at in (at for at in reversed(range(len(messages))) if is_silent(messages[at])):
                # Those that rendering adds with the message.
                first, last = (len(self.rendered(template, messages[:end], tools)[1]) for end in (at, at + 1))
                del spans[first:last]
        else:
            learned = [at for at, one in enumerate(messages) if one["role"] == "assistant" and not is_silent(one)]
            whole, spans = None, []
            for at in learned:
                before = self.rendered(template, messages[:at], tools, add_generation_prompt=True)[0]
                after = self.rendered(template, messages[: at + 1], tools)[0]
                if not (text.startswith(after) and after.startswith(before)):
                    if self.training and learned == [len(messages) - 1]:
                        return self.chat(row, self.training)
                    raise Unknown("no rendering adds to the one before")
                spans.append((len(before), len(after)))
        out = self.of(text, add_special_tokens=False, return_offsets_mapping=True)
        ids, counts = out["input_ids"], lambda spans: [
            any(start < last and end > first for first, last in spans) for start, end in out["offset_mapping"]]
        assert own["input_ids"] == ids
        self.others += whole is not None and own["assistant_masks"] != [int(one) for one in counts(whole)]
        return ids, [id if one else -100 for id, one in zip(ids, counts(spans))]

    def trained(self, rows):
        """Ids and labels as TRL prepares them."""
        template = self.of.chat_template
        only = "endgeneration" in template
        args = trl.SFTConfig(output_dir="/nowhere", max_length=None, assistant_only_loss=only, use_cpu=True, bf16=False)
        trainer = types.SimpleNamespace(_tokenizer=self.of, chat_template=template, completion_only_loss=True)
        for row in rows:
            try:
                of_row = datasets.Dataset.from_list([row], on_mixed_types="use_json")
                one = SFTTrainer._prepare_dataset(trainer, of_row, self.of, args, False, None, "rows")[0]
                yield one["input_ids"], one["labels"]
            except (jinja2.TemplateError, TypeError, RuntimeError) as error:
                yield error

    def precast(self, program, *files):
        command = [program, "data", *files, "--model", self.directory, "--json", "--rows", "100000", "--seq-len", "8192", "--chat-date",
                   datetime.date.today().isoformat()]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        rows = {file: {} for file in map(str, files)}
        for line in done.stdout.splitlines():
            row = json.loads(line)
            rows[row["file"]][row["row"]] = row
        if done.returncode not in (0, 5) or not all(rows.values()):
            raise SystemExit(f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr}")
        return [list(of_file.values()) for of_file in rows.values()]


def written(value, feature):
    """A value of a table without the nulls that Arrow filled in: those of JSON were written."""
    if isinstance(feature, dict):
        return {name: written(one, feature[name]) for name, one in value.items() if one is not None}
    if isinstance(feature, datasets.List):
        return [written(one, feature.feature) for one in value]
    return value


def reference(of, row):
    try:
        return of.chat(row)
    except (jinja2.TemplateError, TypeError, ValueError, Unknown) as error:
        return error
    finally:
        RENDERED.clear()


def lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def alpaca(row):
    paired = ", paired with an input that provides further context" if row["input"] else ""
    middle = f"### Input:\n{row['input']}\n\n" if row["input"] else ""
    prompt = (f"Below is an instruction that describes a task{paired}. Write a response that appropriately completes the request.\n\n"
              f"### Instruction:\n{row['instruction']}\n\n{middle}### Response:\n")
    return {"prompt": prompt, "completion": row["output"]}


def table(path, rows):
    with open(path, "w", newline="") as file:
        to = csv.DictWriter(file, list(rows[0]))
        to.writeheader()
        to.writerows(rows)
    return path


def sample(directory, scratch, texts, all_templates):
    """Writes what a few models make of a few rows."""
    few = {name: scratch / f"sample.{name}" for name in ("jsonl", "csv", "parquet")}
    lines(few["jsonl"], chat_rows()[1:30:3])
    table(few["csv"], completion_rows()[:30:4])
    datasets.Dataset.from_list(tool_rows()[:2]).to_parquet(few["parquet"])
    for name, tokenizer in (("chatml", "qwen"), ("qwen3_training", "gpt-2"), ("zephyr", "llama-2")):
        inner = TOKENIZERS[tokenizer](texts, specials({name: all_templates[name]}))
        of = Model(scratch / f"sample {name}", inner, *all_templates[name], scratch / "weights")
        to = directory / name
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        shutil.copy(of.directory / "chat_template.jinja", to)
        for file in ("tokenizer.json", "tokenizer_config.json", "config.json"):
            (to / file).write_text(json.dumps(json.loads((of.directory / file).read_text()), separators=(",", ":")) + "\n")
        read = datasets.load_dataset("parquet", data_files=str(few["parquet"]), split="train")
        rows = [of.chat(row) for row in chat_rows()[1:30:3]] + list(of.trained(completion_rows()[:30:4]))
        rows += [of.chat(written(row, dict(read.features))) for row in read]
        bits = lambda labels: "".join(str(int(label != -100)) for label in labels)
        lines(to / "expected.jsonl", [{"ids": ids, "counts": bits(labels)} for ids, labels in rows])
    for name, path in few.items():
        shutil.copy(path, directory / f"rows.{name}")


class Report:
    def __init__(self):
        self.counts, self.refused, self.wrong = {}, {}, []

    def add(self, kind, where, row, expected, found):
        count = self.counts.setdefault(kind, dict(rows=0, equal=0, both=0, refused=0, differ=0))
        count["rows"] += 1
        raises = isinstance(expected, Exception)
        if "error" in found:
            reason = re.sub(r"\d+|`[^`]*`|\"[^\"]*\"", "_", found["error"].split(": ", 1)[1])
            self.refused.setdefault((kind, raises, reason), []).append((where, row))
            count["both" if raises else "refused"] += 1
        elif not raises and (found["input_ids"], found["labels"]) == (list(expected[0]), list(expected[1])):
            count["equal"] += 1
        else:
            count["differ"] += 1
            self.wrong.append((kind, where, row, expected, found))

    def show(self, decode):
        names = ["rows", "equal", "both", "refused", "differ"]
        print(f"{'':24}" + "".join(f"{name:>12}" for name in ["rows", "equal", "both refuse", "refused", "differ"]))
        for kind, count in self.counts.items():
            print(f"{kind:24}" + "".join(f"{count[name]:12}" for name in names))
        total = {name: sum(count[name] for count in self.counts.values()) for name in names}
        print(f"{'all':24}" + "".join(f"{total[name]:12}" for name in names))
        for (kind, raises, reason), rows in sorted(self.refused.items(), key=lambda one: (one[0][1], -len(one[1]))):
            print(f"{'both refuse' if raises else 'refused'}, {len(rows)} of {kind}, as {rows[0][0]}: {reason}")
        for kind, where, row, expected, found in self.wrong[: int(os.environ.get("DIFFER", 20))]:
            print(f"\n{kind}, {where}: {json.dumps(row, ensure_ascii=False)}")
            if isinstance(expected, Exception):
                print(f"  peers: {expected!r}\n  precast: {decode(found['input_ids'])}")
                continue
            sides = [list(zip(*expected)), list(zip(found["input_ids"], found["labels"]))]
            same = next((at for at, (one, other) in enumerate(zip(*sides)) if one != other), min(map(len, sides)))
            for name, side in zip(("peers", "precast"), sides):
                part = side[max(0, same - 4) : same + 12]
                print(f"  {name}: {len(side)} tokens, from {max(0, same - 4)}: {decode(*zip(*part))}")
        return not self.wrong


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    all_templates = templates()
    tokens, report, others = specials(all_templates), Report(), 0
    texts = [json.dumps(row, ensure_ascii=False) for row in chat_rows() + completion_rows()] + [text for text, _ in all_templates.values()]
    inner = {name: make(texts, tokens) for name, make in TOKENIZERS.items()}
    assert all(one.get_vocab_size() <= VOCAB for one in inner.values())
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "config.json").write_text(json.dumps(CONFIG))
        subprocess.run([program, "init", "--config", scratch / "config.json", "--out", scratch / "weights"], check=True, capture_output=True)
        chats = {
            "chats, jsonl": (lines(scratch / "chats.jsonl", chat_rows()), chat_rows()),
            "turns that are marked": (lines(scratch / "turns.jsonl", turn_rows()), turn_rows()),
            "conversations": (lines(scratch / "conversations.jsonl", conversation_rows()),
                              [trl.maybe_convert_to_chatml(row) for row in conversation_rows()]),
        }
        marked = datasets.load_dataset("json", data_files=str(lines(scratch / "tools.jsonl", tool_rows() + chat_rows()[:8])), split="train")
        filled = datasets.Dataset.from_list(tool_rows() + chat_rows()[:8])
        for kind, rows in {"JSON": marked, "structs": filled}.items():
            path = scratch / f"{kind}.parquet"
            rows.to_parquet(path)
            read = datasets.load_dataset("parquet", data_files=str(path), split="train")
            chats[f"parquet, {kind}"] = (path, [written(row, dict(read.features)) for row in read])
        names = list(TOKENIZERS)
        for at, (name, (template, eos)) in enumerate(all_templates.items()):
            for tokenizer in (names[at % len(names)], names[(at + 3) % len(names)]):
                where = f"{name}, {tokenizer}"
                # Of reasoning TRL drops here what it keeps in the template that renders the same otherwise.
                keeps = "deepseek_r1_distill" if name == "deepseekv3" else name
                training = all_templates.get(f"{keeps}_training", [None])[0]
                of = Model(scratch / where, inner[tokenizer], template, eos, scratch / "weights", training)
                found = of.precast(program, *(path for path, _ in chats.values()))
                for (kind, (path, rows)), of_file in zip(chats.items(), found):
                    for row, one in zip(rows, of_file, strict=True):
                        report.add(kind, where, row, reference(of, row), one)
                others += of.others
        for at, tokenizer in enumerate(2 * names):
            template = ["qwen2_5_training", "llama3"][at // len(names)]
            where = f"{template}, {tokenizer}"
            of = Model(scratch / f"files of {where}", inner[tokenizer], *all_templates[template], scratch / "weights")
            files = {
                "prompt and completion": (lines(scratch / "completions.jsonl", completion_rows()), completion_rows()),
                "messages behind a prompt": (lines(scratch / "answers.jsonl", answer_rows()), answer_rows()),
                "instruction": (lines(scratch / "instructions.ndjson", instruction_rows()), list(map(alpaca, instruction_rows()))),
                "text": (lines(scratch / "text.jsonl", [{"text": "a" + end} for end in ENDINGS]), [{"text": "a" + end} for end in ENDINGS]),
                "ids and masks": (lines(scratch / "masked.jsonl", masked_rows()), masked_rows()),
            }
            compressed = scratch / "completions.jsonl.gz"
            compressed.write_bytes(gzip.compress(files["prompt and completion"][0].read_bytes()))
            files["jsonl.gz"] = (compressed, list(datasets.load_dataset("json", data_files=str(compressed), split="train")))
            # An empty cell is null to pandas.
            full = table(scratch / "completions.csv", [row for row in completion_rows() if all(row.values())])
            files["csv"] = (full, list(datasets.load_dataset("csv", data_files=str(full), split="train")))
            found = of.precast(program, *(path for path, _ in files.values()))
            for (kind, (_, rows)), of_file in zip(files.items(), found):
                for row, expected, one in zip(rows, of.trained(rows), of_file, strict=True):
                    report.add(kind, where, row, expected, one)
        if len(sys.argv) > 2:
            sample(pathlib.Path(sys.argv[2]), scratch, texts, all_templates)
        known = {id: text for one in inner.values() for text, id in one.get_vocab().items()}

        def decode(ids, labels=None):
            spell = lambda id, label: known[id] if label == id else f"({known[id]})" if label == -100 else f"{known[id]}->{label}"
            return " ".join(spell(id, label) for id, label in zip(ids, labels or ids))

        good = report.show(decode)
        print(f"transformers {transformers.__version__}, whose own mask is another one in {others} rows of chats with generation marks")
        if not good:
            raise SystemExit("rows differ and nothing says so")


main()
