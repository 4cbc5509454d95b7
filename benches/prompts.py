#!/usr/bin/env python3
"""Chats that each ask a question about a paragraph of the demo's English, the same ones every time.

    benches/prompts.py > prompts.jsonl
"""

import json
import pathlib

QUESTIONS = [
    "Summarize this in two sentences.",
    "Who is speaking, and to whom?",
    "What happens here? Answer in one paragraph.",
    "Rewrite this in plain, modern English.",
    "List three facts that the text states.",
]
# Characters of a paragraph: with its question at most half of a row of 1,024 tokens.
SHORTEST, LONGEST = 200, 1600

demo = pathlib.Path(__file__).parent.parent / "xtask/demo/english-train.jsonl"
texts = [json.loads(line)["text"] for line in demo.read_text(encoding="utf-8").splitlines()]
paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n") if SHORTEST <= len(paragraph) <= LONGEST]
# Neighbors of a text lie far apart.
for number in range(len(paragraphs)):
    paragraph = paragraphs[number * 7919 % len(paragraphs)]
    content = f"{paragraph}\n\n{QUESTIONS[number % len(QUESTIONS)]}"
    print(json.dumps({"messages": [{"role": "user", "content": content}]}))
