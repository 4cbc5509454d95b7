#!/usr/bin/env python3
"""An independent reader of the bundle, the wire format of precast, written from fatbins/README.md alone.

The tests run it to show that the page suffices. It makes the page's checks 1 to 5, in their order and with its own
encoder, then compares every entry symbol with key, variant and source digest. What else is in checks 6 and 7 is out of
scope: it has no sources, and the page does not describe what is in a cubin.

Usage: read_bundle.py FILE [--json]
Prints `arch key[variant] sha256` for every module with machine code, in the order of the file. At the first violation
it prints `error: ...` on stderr and exits with 1.
"""

import argparse
import hashlib
import json
import struct
import sys
from itertools import groupby

ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
NAMES = b"\0.precast\0.nv_fatbin\0.shstrtab\0"
MAGIC, OLDER, DOMAIN = b"PRECAST\x02", b"PRECAST\x01", b"precast.manifest"
CAPABILITIES = {"sm_80": 80, "sm_86": 86, "sm_89": 89, "sm_90_portable": 90, "sm_90a": 90, "sm_100": 100, "sm_120": 120,
                "sm_121": 121}  # and sim, which has no machine code

# The manifest's body: a dict is a record with its fields in order, a pair is a list or an option of its second half.
CODE = dict(entry="string", sha256="digest", size="u64", registers="u32", shared="u32", stack="u32", threads="u32")
MODULE = dict(key="string", variant="string", arch="string", params="u32", source="digest", code=("option", CODE))
STRINGS = ("list", "string")
FORMAT_1 = dict(compiler="string", options=STRINGS, built_for=STRINGS, modules=("list", MODULE))
FORMAT_2 = dict(program="string", core="string", **FORMAT_1)


class Bad(Exception):
    """The file is no bundle."""


def require(condition, message):
    if not condition:
        raise Bad(message)


def round_up(size, multiple):
    return -(-size // multiple) * multiple


def pad(data, multiple):
    return data.ljust(round_up(len(data), multiple), b"\0")


def encode(kind, value):
    """The bytes of a value of the manifest."""
    if kind == "string":
        return encode("u64", len(value.encode())) + value.encode()
    if kind == "digest":
        return value
    if kind in ("u32", "u64"):
        return value.to_bytes(int(kind[1:]) // 8, "little")
    if isinstance(kind, dict):
        return b"".join(encode(kind[name], value[name]) for name in kind)
    if kind[0] == "list":
        return encode("u64", len(value)) + b"".join(encode(kind[1], item) for item in value)
    return b"\0" if value is None else b"\1" + encode(kind[1], value)


class Reader:
    """Takes values off the front of the manifest's body."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        require(size <= len(self.data) - self.at, "the manifest ends early")
        self.at += size
        return self.data[self.at - size : self.at]

    def read(self, kind):
        if kind == "string":
            return self.take(self.read("u64")).decode()
        if kind == "digest":
            return self.take(32)
        if kind in ("u32", "u64"):
            return int.from_bytes(self.take(int(kind[1:]) // 8), "little")
        if isinstance(kind, dict):
            return {name: self.read(field) for name, field in kind.items()}
        if kind[0] == "list":  # every item takes bytes, so a false count ends with the data
            items, count = [], self.read("u64")
            while len(items) < count:
                items.append(self.read(kind[1]))
            return items
        tag = self.take(1)
        require(tag in (b"\0", b"\1"), "an option of the manifest begins with neither 0 nor 1")
        return self.read(kind[1]) if tag == b"\1" else None


def digest(body):
    return hashlib.sha256(encode("u64", len(DOMAIN)) + DOMAIN + encode("u64", len(body)) + body).digest()


def encode_fatbin(containers, cubins):
    section, cubins = [], iter(cubins)
    for modules in containers:
        entries = []
        for arch in (module["arch"] for module in modules):
            cubin, flags = pad(next(cubins), 8), 0x100011 if arch.endswith("a") else 0x11
            numbers = 2, 0x0101, 64, len(cubin), 8, 1, CAPABILITIES[arch], flags
            entries += struct.pack("<HHIQ8xHHI8xQ16x", *numbers), cubin
        section += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, sum(map(len, entries))), *entries
    return b"".join(section)


def encode_file(fatbin, precast):
    precast_at = round_up(64 + len(fatbin), 16)
    names_at = precast_at + len(precast)
    headers_at = round_up(names_at + len(NAMES), 8)
    header = ELF_HEADER.pack(b"\x7fELF\2\1\1", 1, 0, 1, 0, 0, headers_at, 0, 64, 0, 0, 64, 4, 3)
    headers = [  # name, type, flags, address, offset, size, link, info, alignment, size of an entry
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (NAMES.index(b".nv_fatbin"), 1, 2, 0, 64, len(fatbin), 0, 0, 16, 0),
        (NAMES.index(b".precast"), 1, 2, 0, precast_at, len(precast), 0, 0, 16, 0),
        (NAMES.index(b".shstrtab"), 3, 0, 0, names_at, len(NAMES), 0, 0, 1, 0),
    ]
    front = pad(pad(header + fatbin, 16) + precast + NAMES, 8)
    return front + b"".join(SECTION_HEADER.pack(*fields) for fields in headers)


def find_sections(file):
    """Check 1: the bytes of `.nv_fatbin` and of `.precast`."""
    require(len(file) >= 64 and file.startswith(b"\x7fELF\2\1\1"), "this is no little-endian ELF64 file")
    headers_at, *shape = (ELF_HEADER.unpack_from(file)[field] for field in (6, 11, 12, 13))
    require(shape == [64, 4, 3] and headers_at + 4 * 64 <= len(file), "there are not four section headers in the file")
    headers = [SECTION_HEADER.unpack_from(file, headers_at + 64 * index) for index in range(4)]
    require(all(header[4] + header[5] <= len(file) for header in headers), "a section is not within the file")
    contents = [file[header[4] : header[4] + header[5]] for header in headers]
    names = [contents[3][header[0] :].partition(b"\0")[0] for header in headers]
    for name in (b".nv_fatbin", b".precast"):
        require(names.count(name) == 1, f"{name.decode()} is there {names.count(name)} times")
    return contents[names.index(b".nv_fatbin")], contents[names.index(b".precast")]


def read_manifest(precast):
    """Check 2: magic, digest, encoding and order."""
    require(precast.startswith((MAGIC, OLDER)), "the manifest's magic or version is another")
    require(precast[8:40] == digest(precast[40:]), "the manifest's digest is another")
    reader = Reader(precast[40:])
    manifest = reader.read(FORMAT_2 if precast.startswith(MAGIC) else FORMAT_1)
    require(reader.at == len(reader.data), "bytes follow the manifest")
    for module in manifest["modules"]:
        arch, code = module["arch"], module["code"]
        require(arch == "sim" or arch in CAPABILITIES, f"{arch!r} is no architecture")
        require((arch == "sim") == (code is None), f"a module for {arch} has code, or lacks it, against the format")
    names = [name.encode() for name in manifest["built_for"]]
    require(names == sorted(names), "the names are not sorted")
    order = [tuple(module[name].encode() for name in ("key", "variant", "arch")) for module in manifest["modules"]]
    require(order == sorted(set(order)), "the modules are not sorted, each once")
    return manifest


def read_cubins(containers, fatbin):
    """Check 3: sizes, headers and padding. What is between them are the cubins."""
    cubins, at = [], 0
    for modules in containers:
        at += 16
        for size in (module["code"]["size"] for module in modules):
            cubins.append(fatbin[at + 64 : at + 64 + size])
            at += 64 + round_up(size, 8)
    require(at == len(fatbin), "the sizes do not add up to .nv_fatbin")
    require(fatbin == encode_fatbin(containers, cubins), "a header or padding byte of .nv_fatbin is another")
    return cubins


def entry_symbol(module):
    """The symbol of a module's key and variant, made from its source digest."""
    operation, _, fields = module["key"].rstrip("}").partition("{")
    named = [pair.replace("=", "_").replace("+", "_") for texts in (fields, module["variant"]) for pair in texts.split(",") if pair]
    return "__".join([operation.replace(".", "_"), *named, module["source"].hex()[:16]])


def read_bundle(file):
    """The manifest's digest, the manifest and the modules with code of a bundle that passes the checks."""
    fatbin, precast = find_sections(file)
    manifest = read_manifest(precast)
    coded = [module for module in manifest["modules"] if module["code"]]
    placed = {}  # kernels of one file share its cubin
    same = lambda module: (module["code"]["sha256"], module["code"]["size"], module["arch"])
    own = [module for module in coded if placed.setdefault(same(module), module) is module]
    containers = [list(group) for _, group in groupby(own, lambda module: (module["key"], module["variant"]))]
    cubins = read_cubins(containers, fatbin)
    body = encode(FORMAT_2 if "program" in manifest else FORMAT_1, manifest)
    again = encode_file(fatbin, precast[:8] + digest(body) + body)  # check 3 has re-encoded .nv_fatbin
    require(file == again, "the file differs from its re-encoding")  # check 4
    for module, cubin in zip(own, cubins):  # check 5
        require(module["code"]["sha256"] == hashlib.sha256(cubin).digest(), "a cubin's SHA-256 is another")
    for module in coded:
        require(module["code"]["entry"] == entry_symbol(module), f"{module['key']}: its entry symbol is another")
    return precast[8:40], manifest, coded


def main():
    parser = argparse.ArgumentParser(description="Reads a bundle and checks it.")
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        with open(arguments.file, "rb") as file:
            manifest_digest, manifest, coded = read_bundle(file.read())
    except (Bad, OSError, UnicodeDecodeError) as error:
        sys.exit(f"error: {error}")
    rows = [dict(arch=m["arch"], key=m["key"], variant=m["variant"], sha256=m["code"]["sha256"].hex()) for m in coded]
    if arguments.json:
        head = {name: manifest.get(name) for name in ("program", "core", "compiler", "options", "built_for")}
        print(json.dumps({"manifest": manifest_digest.hex(), **head, "modules": rows}, indent=2))
    else:
        sys.stdout.writelines("{arch} {key}[{variant}] {sha256}\n".format(**row) for row in rows)


if __name__ == "__main__":
    main()
