#!/usr/bin/env python3
"""English text to train a small model on from random weights: the documentation of some Debian packages, as token ids.

    pip install tokenizers==0.23.1
    benches/int8/corpus.py OUT [--packages DIR]

Fetches PACKAGES with `apt-get download` (or reads .deb files of DIR), takes the text of their .rst, .txt, .pod and English .html
files, drops every paragraph that stood anywhere before, and files that are short or not ASCII for the most part. A hundredth of the files
are held out. Writes OUT/train.bin and OUT/heldout.bin (u32, files in an order by digest, id 0 between them), OUT/tokenizer.json
(byte-level BPE, trained on what is not held out) and OUT/corpus.json: packages, versions and what each gave.
"""

import argparse
import array
import collections
import gzip
import hashlib
import html.parser
import json
import pathlib
import re
import subprocess
import tempfile

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

# By license, as each package's `copyright` has it.
PACKAGES = {
    "linux-doc-6.1": "GPL-2", "git-doc": "GPL-2", "debian-policy": "GPL-2+", "developers-reference": "GPL-2+",
    "debian-reference-en": "GPL-2+", "debian-faq": "GPL-2+", "debian-handbook": "CC-BY-SA-3.0 or GPL-2+", "anarchism": "GPL-2 or GFDL",
    "installation-guide-amd64": "GPL-2+", "python3.11-doc": "PSF", "perl-doc": "Artistic or GPL-1+", "vim-doc": "Vim",
    "postgresql-doc-15": "PostgreSQL", "sqlite3-doc": "public domain", "python-django-doc": "BSD-3-clause",
    "python-sqlalchemy-doc": "MIT", "jargon-text": "public domain",
}
VOCABULARY = 16384
SHORT = 400
# Translations, lists of changes, and what is generated from what is there in another form.
NOT = re.compile(r"/translations/|changelog|/copyright|genindex|py-modindex|/search|NEWS|_modules/|/html/.*\.rst\.txt(?!$)")
FORMS = re.compile(r"\.(rst|txt|pod|html)(\.txt)?(\.gz)?$")
BLOCKS = {"p", "div", "li", "tr", "dt", "dd", "br", "h1", "h2", "h3", "h4", "pre", "table", "blockquote", "section"}


class Text(html.parser.HTMLParser):
    """What a page says, a paragraph a block."""

    def __init__(self):
        super().__init__()
        self.parts, self.hidden = [], 0

    def handle_starttag(self, tag, attributes):
        self.hidden += tag in ("script", "style", "nav", "head")
        if tag in BLOCKS:
            self.parts.append("\n\n" if tag != "br" else "\n")

    def handle_endtag(self, tag):
        self.hidden -= tag in ("script", "style", "nav", "head") and self.hidden > 0
        if tag in BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data):
        if not self.hidden:
            self.parts.append(data)


def is_english(path):
    """Of packages that hold one text in many languages."""
    for package, english in (("/debian-handbook/", "/en-US/"), ("/installation-guide-amd64/", "/en/")):
        if package in path:
            return english in path
    return True


def text_of(path):
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
    text = raw.decode("utf-8", "replace")
    if ".html" in path.name:
        page = Text()
        page.feed(text)
        text = "".join(page.parts)
    return text


def documents(tree):
    """Files in name order; where a package has sources of its pages, those alone."""
    files = sorted(path for path in tree.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if FORMS.search(path.name) and not NOT.search(str(path)) and is_english(str(path))]
    has_sources = any(".rst" in path.name or "_sources" in str(path) for path in files)
    for path in files:
        if not (has_sources and ".html" in path.name):
            yield path


def kept(text, seen):
    """The paragraphs that are new, with single blank lines between them."""
    fresh = []
    for paragraph in re.split(r"\n\s*\n", text):
        words = " ".join(paragraph.split())
        mark = hashlib.blake2b(words.encode(), digest_size=10).digest()
        if words and (len(words) < 20 or mark not in seen):
            seen.add(mark)
            fresh.append(paragraph.strip("\n"))
    return "\n\n".join(fresh)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--packages", type=pathlib.Path)
    arguments = parser.parse_args()
    out = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        debs = arguments.packages or scratch
        if not arguments.packages:
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
        seen, texts, about = set(), {}, []
        for package, license in PACKAGES.items():
            (deb,) = debs.glob(f"{package}_*.deb")
            subprocess.run(["dpkg-deb", "-x", deb, scratch / package], check=True)
            counts = collections.Counter()
            for path in documents(scratch / package):
                text = kept(text_of(path), seen)
                ascii_only = sum(character < "\x7f" for character in text)
                if len(text) >= SHORT and ascii_only >= 0.97 * len(text):
                    texts[hashlib.sha256(text.encode()).hexdigest()] = text
                    counts.update(files=1, characters=len(text))
            about.append(dict(package=deb.name, license=license, **counts))
            print(about[-1], flush=True)
    order = sorted(texts)
    parts = dict(heldout=[d for d in order if int(d[:8], 16) % 100 == 0], train=[d for d in order if int(d[:8], 16) % 100])
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=["<|end|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    # A third is enough to learn merges from.
    tokenizer.train_from_iterator((texts[d] for d in parts["train"][::3]), trainer)
    tokenizer.save(str(out / "tokenizer.json"))
    sizes = {}
    for name, digests in parts.items():
        ids = []
        for begin in range(0, len(digests), 256):
            for encoded in tokenizer.encode_batch([texts[d] for d in digests[begin : begin + 256]]):
                ids += [*encoded.ids, 0]
        (out / f"{name}.bin").write_bytes(array.array("I", ids).tobytes())
        sizes[name] = dict(files=len(digests), tokens=len(ids), characters=sum(len(texts[d]) for d in digests))
    (out / "corpus.json").write_text(json.dumps(dict(packages=about, **sizes), indent=1) + "\n")
    print(sizes)


if __name__ == "__main__":
    main()
