#!/usr/bin/env python3
"""What the mainloop of a GEMM is made of, counted in its machine code.

usage: mainloop.py CUBIN [FUNCTION...]    (cuobjdump and nvdisasm on PATH; functions by regular expression)

The mainloop is the loop with the most tensor instructions. Printed of it: tensor instructions, instructions a tensor
instruction, bytes that a warp reads from shared memory (ldmatrix, loads) for 1000 multiply-adds, how many of its operands come
from the operand cache (`.reuse`) and barriers; of the kernel: registers a thread.
"""
import re
import subprocess
import sys

# Multiply-adds of a warp's tensor instruction, by shape.
SHAPE = {"16816": 16 * 8 * 16, "1688": 16 * 8 * 8, "16832": 16 * 8 * 32, "16864": 16 * 8 * 64}
WIDTH = {"": 4, "32": 4, "64": 8, "128": 16, "U8": 1, "U16": 2}


def functions(cubin):
    text = subprocess.run(["cuobjdump", "-sass", cubin], check=True, capture_output=True, text=True).stdout
    for part in re.split(r"\n\s*Function : ", text)[1:]:
        name, body = part.split("\n", 1)
        # Labels are addresses here: a loop is a branch to a lower one.
        code = re.findall(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_.]+)([^;]*);", body)
        yield name.strip(), [(int(address, 16), op, rest) for address, op, rest in code]


def registers(cubin):
    text = subprocess.run(["cuobjdump", "-res-usage", cubin], check=True, capture_output=True, text=True)
    pairs = re.findall(r"Function (\S+):\s*\n\s*REG:(\d+)", text.stdout + text.stderr)
    return {name: int(count) for name, count in pairs}


def mainloop(code):
    best = (0, [])
    for address, op, rest in code:
        target = re.search(r"0x([0-9a-f]+)", rest) if op.startswith("BRA") else None
        if target and int(target[1], 16) < address:
            body = [one for one in code if int(target[1], 16) <= one[0] <= address]
            tensor = sum(op.startswith(("HMMA", "IMMA")) for _, op, _ in body)
            # Of nested loops the inner one: as many in fewer instructions.
            if (tensor, -len(body)) > (best[0], -len(best[1])):
                best = (tensor, body)
    return best


def shared_bytes(op):
    """Bytes that a warp reads."""
    if op.startswith("LDSM"):
        return 128 * int(op[-1]) if op[-1] in "24" else 128
    if op.startswith("LDS"):
        width = op.split(".")[-1] if "." in op else ""
        return 32 * WIDTH.get(width, 4)
    return 0


def main():
    cubin, wanted = sys.argv[1], [re.compile(one) for one in sys.argv[2:]]
    usage = registers(cubin)
    print("tensor  instr/tensor  B/1000 MAC  reuse/tensor  barriers  registers  function")
    for name, code in functions(cubin):
        if wanted and not any(one.search(name) for one in wanted):
            continue
        count, body = mainloop(code)
        if not count:
            continue
        ops = [op for _, op, _ in body]
        tensor = [(op, rest) for _, op, rest in body if op.startswith(("HMMA", "IMMA"))]
        macs = sum(SHAPE[op.split(".")[1]] for op, _ in tensor)
        reuse = sum(rest.count(".reuse") for _, rest in tensor)
        read = sum(map(shared_bytes, ops))
        barriers = sum(op.startswith(("BAR", "SYNCS")) for op in ops)
        print(f"{count:6}  {len(ops) / count:12.2f}  {1000 * read / macs:10.1f}  {reuse / count:12.2f}  {barriers:8}  "
              f"{usage.get(name, 0):9}  {name}")


main()
