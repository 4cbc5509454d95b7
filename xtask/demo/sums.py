"""Sums and differences, for the trial of docs/guides/self-distillation.md: train.jsonl, held.jsonl, and ask.jsonl of prompts alone."""

import json
import random

random.seed(1)
seen, rows = set(), []
while len(rows) < 6300:
    a, b = random.randint(1, 99), random.randint(1, 99)
    sign = random.choice("+-")
    if (a, b, sign) in seen or (sign == "-" and b > a):
        continue
    seen.add((a, b, sign))
    question, answer = f"{a} {sign} {b}", str(a + b if sign == "+" else a - b)
    user = lambda text: [dict(role="user", content=text)]
    rows.append(dict(
        prompt=user(f"What is {question}? Answer with the number only."),
        completion=[dict(role="assistant", content=answer)],
        teacher_prompt=user(f"{question} = {answer}. What is {question}? Answer with the number only."),
    ))
write = lambda name, rows: open(name, "w").writelines(json.dumps(row) + "\n" for row in rows)
write("train.jsonl", rows[300:])
write("held.jsonl", rows[:300])
write("ask.jsonl", [dict(prompt=row["prompt"]) for row in rows[:300]])
