#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers/added.json: the ids that transformers gives texts, by what tokenizer_config.json or
added_tokens.json adds to a tokenizer. pip install transformers==5.24.0; python tests/tokenizers/make.py
"""
import json, pathlib, tempfile

from transformers import AutoTokenizer

OUT = pathlib.Path(__file__).parent.parent / "fixtures/tokenizers"
FLAGS = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": False}


def token(content, **changes):
    return {"content": content, **FLAGS, **changes}


TOKENIZER = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": 5, **token("<e>", special=True)}],
    "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
    "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {
        "<": 0, ">": 1, "a": 2, "b": 3, "<u>": 4, "<e>": 5, "c": 6, "<unk>": 7, "think": 8, "x": 9}},
}
TEXTS = ["a <think> b<e>c", "<u>a</u> <Think>", "x <e> <u>", "  <think>  c <img> <x>"]
CONFIGS = [
    {},
    {"added_tokens_decoder": {"5": token("<e>", special=True), "11": token("<img>", lstrip=True), "10": token("<think>")}},
    {"added_tokens_decoder": {"20": token("<think>"), "12": token("<img>")}},
    {"added_tokens_decoder": {"5": token("<e>", lstrip=True)}},
    {"added_tokens_decoder": {"10": {"content": "<think>"}}, "pad_token": "<img>", "bos_token": None},
    {"added_tokens_decoder": {"10": token("<think>", normalized=True)}, "eos_token": "<think>", "image_token": "<img>"},
    {"pad_token": "<x>", "eos_token": "<u>"},
    {"z_token": "<x>", "image_token": "<img>", "pad_token": "<think>"},
    {"eos_token": {"__type": "AddedToken", **token("<u>")}, "additional_special_tokens": ["<img>", "<e>"]},
    {"extra_special_tokens": {"image_token": "<img>"}},
    {"extra_special_tokens": [], "additional_special_tokens": ["<img>"]},
]
# Files of before there was added_tokens_decoder.
ADDED = [
    ({}, {"<img>": 11, "<Think>": 10, "<e>": 5}),
    ({"pad_token": "<Think>", "additional_special_tokens": ["<u>"]}, {"<Think>": 10, "<u>": 4}),
    ({"added_tokens_decoder": {}}, {"<img>": 10}),
]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    cases = []
    with tempfile.TemporaryDirectory() as directory:
        directory = pathlib.Path(directory)
        (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        for config, added in [(config, {}) for config in CONFIGS] + ADDED:
            text = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config})
            (directory / "tokenizer_config.json").write_text(text)
            (directory / "added_tokens.json").write_text(json.dumps(added))
            tokenizer = AutoTokenizer.from_pretrained(str(directory))
            cases.append({"config": text, "added": json.dumps(added), "ids": [tokenizer.encode(one, add_special_tokens=False) for one in TEXTS]})
    (OUT / "added.json").write_text(json.dumps({"tokenizer": TOKENIZER, "texts": TEXTS, "cases": cases}, indent=1) + "\n")


main()
