#!/usr/bin/env python3
"""Writes tests/fixtures/data: rows as pyarrow and datasets write them. pip install datasets==5.2.0; python tests/data/make.py

Each table is there as .jsonl too, so that the two can be compared.
"""
import json, os, pathlib

os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
import datasets
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).parent.parent / "fixtures/data"
TURNS = [
    [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": "sat on the mat"}],
    [{"role": "user", "content": "and"}, {"role": "assistant", "content": "the cat"}, {"role": "user", "content": "again"},
     {"role": "assistant", "content": "sat"}],
]
TABLES = {
    "text": ([{"text": "the cat sat on the mat and"}, {"text": "the mat again"}] * 5, "snappy", {}),
    "ids": ([{"input_ids": [5, 9, 2, 11], "labels": [-100, -100, 2, 11]}, {"input_ids": [3, 4], "labels": [3, 4]}] * 5, "zstd", {}),
    "plain": ([{"input_ids": [5, 9, 2, 11], "other": 1.5}, {"input_ids": [3, 4], "other": 2.5}] * 5, "none",
              {"use_dictionary": False, "data_page_version": "2.0"}),
    "messages": ([{"messages": turns, "source": "a"} for turns in TURNS] * 5, "gzip", {"row_group_size": 3}),
    "completion": ([{"prompt": "the cat ", "completion": "sat on"}, {"prompt": "and ", "completion": "the mat"}] * 5, "snappy", {}),
    # Padded before and behind, as datasets writes what a tokenizer has padded.
    "masked": ([{"input_ids": [0, 0, 5, 9, 2, 11], "attention_mask": [0, 0, 1, 1, 1, 1], "labels": [-100, -100, -100, 9, 2, 11]},
                {"input_ids": [3, 4, 7, 0, 0], "attention_mask": [1, 1, 1, 0, 0], "labels": [3, 4, 7, 0, 0]}] * 5, "snappy", {}),
    "words": ([{"words": "the cat", "number": 1}], "snappy", {}),
}


# Rows whose tools and calls have other fields each.
SHAPES = [
    {"messages": [{"role": "user", "content": "the"}, {"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "sit", "arguments": arguments}}]}],
     "tools": [{"type": "function", "function": {"name": "sit", "parameters": {"properties": properties}}}]}
    for arguments, properties in [({"on": "mat"}, {"on": {"type": "string", "default": None}}), ({"a": 1.0, "b": [{"c": True}]}, {"a": {"type": "number"}})]]


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, (rows, compression, options) in TABLES.items():
        table = pa.Table.from_pylist(rows)
        if name == "plain":
            table = table.set_column(0, "input_ids", table["input_ids"].cast(pa.list_(pa.int32())))
        if name == "masked":
            table = table.set_column(1, "attention_mask", table["attention_mask"].cast(pa.list_(pa.int8())))
        pq.write_table(table, OUT / f"{name}.parquet", compression=compression, **options)
        (OUT / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = OUT / "json.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in SHAPES))
    datasets.load_dataset("json", data_files=str(lines), split="train").to_parquet(OUT / "json.parquet")
    datasets.Dataset.from_list(SHAPES).to_parquet(OUT / "shapes.parquet")
    nulls = pa.table({"text": pa.array(["the cat", None, "the mat"])})
    pq.write_table(nulls, OUT / "null.parquet")
    pq.write_table(nulls, OUT / "brotli.parquet", compression="brotli")


main()
