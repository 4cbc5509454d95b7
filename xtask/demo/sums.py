"""Tasks for trials of the guides, each as train.jsonl, held.jsonl, and ask.jsonl of prompts alone: sums and differences, and below sort/ numbers to sort."""

import json
import os
import random

random.seed(1)
user = lambda text: [dict(role="user", content=text)]
answered = lambda text: [dict(role="assistant", content=text)]
seen, rows = set(), []
while len(rows) < 6300:
    a, b = random.randint(1, 99), random.randint(1, 99)
    sign = random.choice("+-")
    if (a, b, sign) in seen or (sign == "-" and b > a):
        continue
    seen.add((a, b, sign))
    question, answer = f"{a} {sign} {b}", str(a + b if sign == "+" else a - b)
    rows.append(dict(
        prompt=user(f"What is {question}? Answer with the number only."),
        completion=answered(answer),
        teacher_prompt=user(f"{question} = {answer}. What is {question}? Answer with the number only."),
    ))


def write(folder, rows):
    os.makedirs(folder, exist_ok=True)
    asked = [dict(prompt=row["prompt"]) for row in rows[:300]]
    for name, part in [("train", rows[300:]), ("held", rows[:300]), ("ask", asked)]:
        with open(f"{folder}/{name}.jsonl", "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in part)


write(".", rows)
seen, rows = set(), []
while len(rows) < 6300:
    numbers = tuple(random.sample(range(1, 100), 4))
    if numbers in seen:
        continue
    seen.add(numbers)
    listed = lambda numbers: ", ".join(map(str, numbers))
    rows.append(dict(
        prompt=user(f"Sort {listed(numbers)} from the smallest to the largest. Answer with the numbers only."),
        completion=answered(listed(sorted(numbers))),
    ))
write("sort", rows)
