//! Rows become the tokens and labels that transformers, TRL and datasets make of them: a few of those that `cargo xtask
//! peers masks` compares, for byte-level tokenizers with and without offsets of blanks, and one that falls back to
//! bytes.

use serde::Deserialize;

use crate::support::prelude::*;

#[derive(Deserialize)]
struct Expected {
    ids: Vec<i64>,
    /// A digit for each: 1 where it counts.
    counts: String,
}

#[test]
fn tokens_count_as_in_transformers_and_trl() {
    let rows =
        ["jsonl", "csv", "parquet"].map(|form| fixture("masks").join(format!("rows.{form}")).display().to_string());
    for model in ["chatml", "qwen3_training", "zephyr"] {
        let (case, files) = (Case::empty(), fixture("masks").join(model));
        let config = fs::read_to_string(files.join("config.json")).unwrap();
        random_model(case.dir.path(), "model", 1, &serde_json::from_str(&config).unwrap());
        copy(&files, &case.path("model"));
        let command = ["data --json --rows 99 --seq-len 4096 --model model", &rows.join(" ")];
        let printed = case.run(command).succeeds();
        let expected = case.text("model/expected.jsonl");
        assert_eq!(printed.lines().count(), expected.lines().count());
        for (found, line) in printed.lines().zip(expected.lines()) {
            let found: Value = serde_json::from_str(found).unwrap();
            let Expected { ids, counts } = serde_json::from_str(line).unwrap();
            let label = |(id, counts): (&i64, char)| if counts == '1' { *id } else { -100 };
            let labels: Vec<i64> = ids.iter().zip(counts.chars()).map(label).collect();
            assert_eq!((list(&found["input_ids"]), list(&found["labels"])), (ids, labels), "{model}: {found}");
        }
    }
}
