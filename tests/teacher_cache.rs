//! `precast cache` and `distill --teacher-cache`: the bits of a teacher that is computed in the run, and refusals of other caches.

use crate::support::Texts;
use crate::support::prelude::*;

/// `precast cache` of the case's teacher on its data, unless the words name others.
fn fill(case: &Case, out: &str, words: impl Texts) -> Command {
    let (teacher, data) = (case.teacher.display().to_string(), case.data.display().to_string());
    let mut line = vec!["cache", "--batch-size", "3", "--out", out];
    let words = words.words();
    for (flag, value) in [("--teacher", &*teacher), ("--data", &data), ("--seq-len", "16")] {
        if !words.contains(&flag) {
            line.extend([flag, value]);
        }
    }
    line.extend(words);
    case.run(line)
}

/// Runs a distillation online and from a cache, and compares their bits.
fn same_bits(case: &Case, cache: &str, words: &str) {
    let [online, cached] = ["online", "cached"].map(|of| format!("{of}{}", words.replace([' ', '/'], "")));
    case.distill(&online, words).succeeds();
    case.distill(&cached, ["--teacher-cache", cache, words]).succeeds();
    assert!(case.bits(&online) == case.bits(&cached), "{words}");
    let steps = case.metrics(&cached).len();
    assert!(steps > 1 && case.results(&online) == case.results(&cached), "{words}");
}

#[test]
fn a_cached_teacher_gives_the_bits_of_an_online_one() {
    for name in ["made-qwen2", "made-llama3", "made-qwen3"] {
        let case = Case::golden(name);
        for (precision, own) in [("fp32", "fp32"), ("bf16", "bf16"), ("int8", "bf16")] {
            if !case.has(own) {
                fill(&case, own, format!("--precision {own} --seq-len 64")).succeeds();
            }
            let size = format!("--seq-len 64 --steps 3 --checkpoint-every 0 --precision {precision}");
            same_bits(&case, own, &size);
        }
    }
}

/// Puts a teacher of six layers of a golden case's family in its place.
fn six_layers(case: &mut Case) {
    let mut config: Value = serde_json::from_slice(&fs::read(case.teacher.join("config.json")).unwrap()).unwrap();
    config["num_hidden_layers"] = 6.into();
    config.as_object_mut().unwrap().remove("layer_types");
    case.teacher = random_model(case.dir.path(), "six", 5, &config);
}

/// Returns the memory that a sweep takes with a batch at a time, as its refusal of less says.
fn least_memory(case: &Case, words: &str) -> u64 {
    let said =
        fill(case, "none", [words, "--memory 1"]).fails(4, "two of its layers with a batch of sequences do not either");
    assert!(!case.has("none"), "{said}");
    let (_, takes) = said.split_once("the plan takes ").unwrap();
    takes.split_once(' ').unwrap().0.parse().unwrap()
}

#[test]
fn a_sweep_gives_the_bytes_of_a_resident_teacher() {
    for name in ["made-qwen2", "made-llama3", "made-qwen3"] {
        let mut case = Case::golden(name);
        six_layers(&mut case);
        for precision in ["fp32", "bf16"] {
            let words = &format!("--precision {precision} --seq-len 64");
            let (whole, least) = (format!("whole-{precision}"), least_memory(&case, words));
            fill(&case, &whole, words).succeeds();
            // One batch at a time, and several.
            for memory in [least, least + least / 2] {
                let swept = format!("swept-{precision}-{memory}");
                let [_, said] = fill(&case, &swept, format!("{words} --memory {memory}")).says();
                let sizes = said.lines().find(|line| line.contains("it is swept through")).expect("a note");
                assert_eq!(sizes.ends_with(" 3 sequences at a time"), memory == least, "{sizes}");
                assert!(said.contains("GB/s, and computes in "), "{said}");
                assert!(contents_of(&case, &whole) == contents_of(&case, &swept), "{name} {words} {memory}");
            }
        }
    }
}

/// The files of a cache, by name.
fn contents_of(case: &Case, cache: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = case.path(cache);
    contents(&dir).into_iter().map(|(path, bytes)| (path.strip_prefix(&dir).unwrap().to_owned(), bytes)).collect()
}

/// A dry run says what is taken of disk and device, and writes nothing.
#[test]
fn a_dry_run_says_what_a_cache_takes_and_writes_nothing() {
    let case = Case::new(17 * 4);
    let forecast = fill(&case, "cache", "--dry-run --json").json();
    assert!(!case.has("cache"));
    let filled = fill(&case, "cache", "--json").json();
    for name in ["sequences", "rows"] {
        assert!(forecast[name] == filled[name] && forecast[name].as_u64() > Some(0), "{forecast} {filled}");
    }
    let files = ["hidden.bin", "index.bin"].map(|name| case.read(format!("cache/{name}")).len() as u64);
    // The head has the teacher's tied embedding, of 96 tokens and 32 columns.
    assert_eq!(forecast["disk_bytes"], files.iter().sum::<u64>() + 2 * 96 * 32);
    assert!(forecast["memory"].is_object(), "{forecast}");
}
