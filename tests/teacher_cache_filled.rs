//! `precast cache`: the same bytes however it is filled, and nothing that is not its own changes.

use precast_system::files::Claim;

use crate::support::prelude::*;
use crate::teacher_cache::{contents_of, fill};

/// Puts a teacher of three layers of a golden case's family in its place.
fn three_layers(case: &mut Case) {
    let mut config = case.json("golden/teacher/config.json");
    config["num_hidden_layers"] = 3.into();
    let config_fields = config.as_object_mut().unwrap();
    if config_fields.get("layer_types").and_then(Value::as_array).is_some_and(|layers| layers.len() != 3) {
        config_fields.remove("layer_types");
    }
    if config_fields["model_type"] == "qwen3_5_text" {
        // Of both kinds, and more of them than a sweep has places for.
        config_fields.insert("full_attention_interval".to_owned(), 2.into());
        config_fields["num_hidden_layers"] = 7.into();
    }
    // Shorter than sequences.
    config_fields.get_mut("sliding_window").into_iter().for_each(|window| *window = 9.into());
    case.data = token_file(case.dir.path(), "data.bin", 17 * 8, 96);
    case.teacher = random_model(case.dir.path(), "three", 5, &config);
}

/// Returns the memory that a sweep takes with a batch at a time, as its refusal of less says.
pub fn least_memory(case: &Case, words: &str) -> u64 {
    let said =
        fill(case, "none", [words, "--memory 1"]).fails(4, "two of its layers with a batch of sequences do not either");
    assert!(!case.has("none"), "{said}");
    // --memory leaves out what a GPU's kernels take.
    let (needs, _) = said.split_once(" of device memory").expect("what the teacher needs");
    let bytes = needs.trim_end_matches(" bytes").rsplit([' ', '(']).next();
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn a_sweep_gives_the_bytes_of_a_resident_teacher() {
    skip_if!(lacks_kernels());
    for (name, precision) in [
        ("made-qwen2", "fp32"),
        ("made-llama3", "bf16"),
        ("made-qwen3", "bf16"),
        ("made-smollm3", "bf16"),
        ("made-granite", "fp32"),
        ("made-gemma3", "bf16"),
        ("made-qwen35", "bf16"),
        ("made-moe", "bf16"),
    ] {
        let mut case = Case::golden(name);
        three_layers(&mut case);
        let words = &format!("--precision {precision}");
        let least = least_memory(&case, words);
        fill(&case, "whole", words).succeeds();
        // One batch at a time, and several.
        for memory in [least, least + least / 4] {
            let swept = format!("swept-{memory}");
            let [_, said] = fill(&case, &swept, format!("{words} --memory {memory}")).says();
            let sizes = said.lines().find(|line| line.contains("it is swept through")).expect("a note");
            assert_eq!(sizes.contains(" 48 tokens at a time, all on the device"), memory == least, "{sizes}");
            assert!(said.contains("GB/s, and computes in "), "{said}");
            assert!(contents_of(&case, "whole") == contents_of(&case, &swept), "{name} {memory}");
        }
    }
}

/// Two blocks are on the device, of one batch each or of several, and passes are of several lengths.
#[test]
fn streams_that_are_spilled_to_the_host_give_the_same_bytes() {
    for (name, precision) in [("made-qwen2", "bf16"), ("made-qwen3", "fp32")] {
        let mut case = Case::golden(name);
        three_layers(&mut case);
        case.data = token_file(case.dir.path(), "data.bin", 17 * 22, 96);
        let words = &format!("--precision {precision} --batch-size 2");
        let least = least_memory(&case, words);
        fill(&case, "whole", words).succeeds();
        let bytes = if precision == "fp32" { 4 } else { 2 };
        let stream = 2 * 16 * bytes * case.json("three/config.json")["hidden_size"].as_u64().unwrap();
        // Besides the streams of a second place, its sequences.
        let two = least + stream + 512;
        for (memory, spill, takes) in [
            (two, 1 << 30, " 352 tokens at a time, 64 of them on the device and all in "),
            (two, 6 * stream, " 192 tokens at a time, 64 of them on the device and all in "),
            (least + 8 * stream, 1 << 30, " 384 tokens at a time, 256 of them on the device and all in "),
        ] {
            let out = format!("spilled-{memory}-{spill}");
            let [_, said] = fill(&case, &out, format!("{words} --memory {memory} --spill {spill}")).says();
            let sizes = said.lines().find(|line| line.contains("it is swept through")).expect("a note");
            assert!(sizes.contains(takes) && sizes.ends_with(" of host memory"), "{sizes}");
            assert!(said.contains("GB/s, and computes in "), "{said}");
            assert!(contents_of(&case, "whole") == contents_of(&case, &out), "{name} {sizes}");
        }
        // Where the device has room for all, or the host for no more than it, nothing is.
        for (memory, spill) in [("1GiB", "1GiB"), (&*least.to_string(), "1KiB")] {
            let [_, said] = fill(&case, "none", format!("{words} --dry-run --memory {memory} --spill {spill}")).says();
            assert!(!said.contains("host memory"), "{said}");
        }
    }
}

#[test]
fn other_batches_and_a_row_twice_give_the_same_bytes() {
    let case = Case::of_layers(1, 17 * 5);
    let filled = fill(&case, "whole", "--json").json();
    assert_eq!([&filled["sequences"], &filled["rows"]], [5, 80]);
    for batch in ["1", "5", "8"] {
        fill(&case, batch, ["--batch-size", batch]).succeeds();
        assert!(contents_of(&case, batch) == contents_of(&case, "whole"), "{batch}");
    }
    // The same rows again, in the training data and held out.
    let twice = fill(&case, "twice", "--data data.bin --data data.bin --eval-data data.bin --json").json();
    assert_eq!([&twice["sequences"], &twice["rows"]], [5, 80]);
    for name in ["hidden.bin", "index.bin", "teacher/model.safetensors"] {
        assert!(case.read(format!("twice/{name}")) == case.read(format!("whole/{name}")), "{name}");
    }
}

/// Continues a filling in batches of another size, or by a sweep.
#[test]
fn a_filling_killed_at_any_change_to_the_disk_continues() {
    let case = Case::of_layers(1, 17 * 5);
    fill(&case, "whole", "").succeeds();
    let whole = contents_of(&case, "whole");
    for at in 1.. {
        let _ = fs::remove_dir_all(case.path("cache"));
        if !is_killed_at(at, &mut fill(&case, "cache", "")) {
            return assert!(at > 15, "{at}");
        }
        let before = contents_of(&case, "");
        let (_, _, message) = fill(&case, "cache", "--batch-size 2 --dry-run").ends();
        assert!(contents_of(&case, "") == before, "change {at}: {message}");
        let (code, _, message) = fill(&case, "cache", "--batch-size 2").ends();
        // Unless nothing was left to do.
        let is_done = message.contains("is a complete teacher cache") && before == contents_of(&case, "");
        assert!(code == Some(0) || is_done, "change {at}: {message}");
        assert!(contents_of(&case, "cache") == whole, "change {at}: {:?}", case.names("cache"));
        let around = case.names("");
        assert!(!around.iter().any(|name| name.starts_with('.')), "change {at}: {around:?}");
    }
}

/// Makes a complete cache one whose filling was killed before its manifest.
pub fn unfinish(case: &Case, cache: &str) {
    let manifest = case.text(format!("{cache}/cache.json"));
    let (made, _) = manifest.split_once(",\n  \"head_sha256\"").unwrap();
    case.write(&format!("{cache}/filling.json"), format!("{made}\n}}\n"));
    fs::remove_file(case.path(format!("{cache}/cache.json"))).unwrap();
}

#[test]
fn a_head_that_a_stopped_filling_left_is_written_anew() {
    let case = Case::of_layers(1, 17 * 2);
    fill(&case, "cache", "").succeeds();
    let whole = contents_of(&case, "cache");
    let head = case.read("cache/teacher/model.safetensors");
    for damage in ["flipped", "missing"] {
        unfinish(&case, "cache");
        match damage {
            "missing" => fs::remove_file(case.path("cache/teacher/model.safetensors")).unwrap(),
            _ => drop(case.write(
                "cache/teacher/model.safetensors",
                [&head[..head.len() - 1], &[head[head.len() - 1] ^ 1]].concat(),
            )),
        }
        fill(&case, "cache", "").succeeds();
        assert!(contents_of(&case, "cache") == whole, "{damage}");
    }
    unfinish(&case, "cache");
    case.write("cache/teacher/notes", "precious");
    fill(&case, "cache", "").fails(2, "cache/teacher is not empty and no teacher cache: nothing was changed");
    assert_eq!(case.read("cache/teacher/notes"), b"precious");
}

#[test]
fn a_stopped_filling_goes_on_with_its_own_data_alone() {
    let case = Case::of_layers(1, 17 * 3);
    token_file(case.dir.path(), "other.bin", 17 * 2, 90);
    fill(&case, "cache", "--eval-data other.bin").succeeds();
    let whole = contents_of(&case, "cache");
    unfinish(&case, "cache");
    let different = "cache is being filled from something else:";
    fill(&case, "cache", "--data other.bin --eval-data other.bin").fails(2, [different, "  the training data was "]);
    for [words, is] in [["", "none"], ["--eval-data data.bin", ""]] {
        let said = fill(&case, "cache", words).fails(2, [different, "  the held-out data was "]);
        assert!(said.contains(&format!(", is {is}")) && !said.contains("training data"), "{said}");
    }
    fill(&case, "cache", "--eval-data other.bin").succeeds();
    assert!(contents_of(&case, "cache") == whole);
}

/// A file that may not grow further stands for a disk that has become full: a part of the rows is written.
#[test]
fn a_filling_that_finds_no_more_room_continues() {
    let (case, words) = (Case::of_layers(1, 17 * 24), "--precision fp32");
    fill(&case, "whole", words).succeeds();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 40; exec \"$0\" \"$@\""]);
    let said = ["cannot write cache/hidden.bin", "bytes at most (`ulimit -f`): raise that limit"];
    under(limited, &fill(&case, "cache", words)).fails(5, said);
    fill(&case, "cache", words).succeeds();
    assert!(contents_of(&case, "cache") == contents_of(&case, "whole"));
}

#[test]
fn a_cache_that_another_process_fills_is_left_alone() {
    let case = Case::of_layers(1, 17 * 2);
    fs::create_dir(case.path("cache")).unwrap();
    let claim = Claim::take(&case.path("cache/.precast.lock")).unwrap();
    let before = contents_of(&case, "cache");
    let pid = std::process::id().to_string();
    let said = fill(&case, "cache", "").fails(2, ["cache is in use by another process, ", &pid]);
    assert!(!said.lines().any(is_heading), "before the teacher is sent: {said}");
    assert!(contents_of(&case, "cache") == before);
    drop(claim);
    fill(&case, "cache", "").succeeds();
}

/// The steps before it are as they would have been, and the run continues from a cache that is whole.
#[test]
fn a_flipped_byte_of_a_row_ends_the_step_that_reads_it() {
    let case = Case::of_layers(1, 17 * 8);
    fill(&case, "cache", "").succeeds();
    let run = |out: &str, more: &str| case.distill(out, ["--teacher-cache cache --checkpoint-every 1 --steps 4", more]);
    run("whole", "").succeeds();
    let rows = case.read("cache/hidden.bin");
    let mut flipped = rows.clone();
    // Of the fifth sequence, which the third step reads.
    let of_one = rows.len() / 8;
    flipped[4 * of_one + 77] ^= 4;
    case.write("cache/hidden.bin", flipped);
    let place = format!("hidden.bin: the {of_one} bytes at {} do not", 4 * of_one);
    run("out", "").fails(5, ["error: step 3: ", &place, "the file is damaged", "Continue with:"]);
    assert_eq!(case.metrics("out").len(), 2);
    case.write("cache/hidden.bin", rows);
    run("out", "--resume").succeeds();
    assert!(case.results("out") == case.results("whole"));
}

#[test]
fn a_manifest_of_another_vocabulary_is_refused() {
    let case = Case::of_layers(1, 17 * 2);
    fill(&case, "cache", "").succeeds();
    let text = case.text("cache/cache.json");
    case.write("cache/cache.json", text.replace("\"vocab\": 96", "\"vocab\": 97"));
    let said = ["cache.json: its sizes are not those of teacher/config.json", "the file is damaged"];
    case.distill("out", "--teacher-cache cache --steps 1").fails(5, said);
    assert!(!case.has("out/student"));
}

/// Each batch of a pass has launches of its own: beyond so many there are several passes, of about one length.
#[test]
fn a_sweep_of_very_many_batches_takes_several_passes() {
    let mut case = Case::new(17 * 1100);
    case.teacher = case.model("deep", 3, &[("num_hidden_layers", 300.into())]);
    let [_, said] = fill(&case, "cache", "--batch-size 1 --memory 4MiB --dry-run").says();
    assert!(said.contains(" 8800 tokens at a time"), "{said}");
}
