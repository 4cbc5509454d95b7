//! `--resume` continues the same run, from a checkpoint that is what was written, or says why not.

use precast_fatbins::Digest;

use crate::support::prelude::*;

/// A run of steps with a checkpoint after each, changed by later arguments.
fn run(case: &Case, arguments: &str) -> Command {
    case.distill("out", ["--precision fp32 --lr 1e-2 --checkpoint-every 1", arguments])
}

#[test]
fn what_may_change_is_said_and_kept_in_the_history() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    run(&case, "--steps 2").succeeds();
    let more = "--steps 3 --resume --recompute --checkpoint-every 2";
    run(&case, more).prints("changed: steps was 2, is 3");
    let record = run_record(&out);
    let parts = record["parts"].as_array().unwrap();
    let steps = |part: &Value| [part["started_step"].as_u64().unwrap(), part["ended_step"].as_u64().unwrap()];
    assert_eq!(parts.iter().map(steps).collect::<Vec<_>>(), [[0, 2], [2, 3]]);
    for part in parts {
        assert!(part["device"]["name"].is_string() && part["started_unix_s"].as_u64() > Some(1_700_000_000), "{part}");
        assert!([&part["binary"], &part["bundle"]].iter().all(|digest| digest.as_str().unwrap().len() == 64), "{part}");
    }
    assert_eq!(parts[0]["changed"], json!([]));
    let changed = ["checkpoint_every was 1, is 2", "recompute was \"none\", is \"norms\"", "steps was 2, is 3"];
    assert_eq!(parts[1]["changed"], json!(changed));
    // The number of steps is the run's where none is given.
    run(&case, "--resume").fails(2, "all 3 steps are done");
}

#[test]
fn one_flipped_bit_of_a_checkpoint_is_found() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    run(&case, "--steps 2 --keep 2").succeeds();
    let left = ["checkpoint-1", "checkpoint-2", "metrics.jsonl", "report.html", "run.json", "run.log", "student"];
    assert_eq!(names_in(&out), left);
    let checkpoint = out.join("checkpoint-2");
    let files = ["m.safetensors", "master.safetensors", "precast.sha256", "state.json", "v.safetensors"];
    assert_eq!(names_in(&checkpoint), files);
    for name in files {
        let path = checkpoint.join(name);
        let whole = fs::read(&path).unwrap();
        let last = 8 * whole.len() - 1;
        for bit in [0, 8 * 9 + 5, last / 3, last / 2, last] {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, bytes).unwrap();
            let said = ["checkpoint-2 is damaged", "continue from checkpoint-1"];
            run(&case, "--steps 3 --resume").fails(5, said);
        }
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        run(&case, "--steps 3 --resume").fails(5, "");
        fs::remove_file(&path).unwrap();
        run(&case, "--steps 3 --resume").fails(5, "");
        fs::write(&path, whole).unwrap();
    }
    fs::write(checkpoint.join("extra"), "").unwrap();
    run(&case, "--steps 3 --resume").fails(5, "checkpoint-2/extra is not listed");
    // What the message says: without the damaged one the run continues from the one before.
    fs::remove_dir_all(&checkpoint).unwrap();
    run(&case, "--steps 3 --resume").succeeds();
    assert_eq!(run_record(&out)["parts"][1]["started_step"], 1);
}

/// Lines that are missing or not in their order are of the page on runs.
#[test]
fn lines_of_metrics_keep_their_bytes() {
    let case = Case::new(17 * 9);
    let path = "out/metrics.jsonl";
    run(&case, "--steps 4 --checkpoint-every 3").succeeds();
    let whole = case.text(path);
    // Another digit of a loss.
    let digit = whole.find("\"loss\":").unwrap() + 10;
    let mut changed = whole.clone().into_bytes();
    changed[digit] = if changed[digit] == b'1' { b'2' } else { b'1' };
    case.write(path, changed);
    run(&case, "--steps 5 --resume").fails(5, "was changed after it was written");
    // As a kill in the middle of a line of the fifth step leaves it.
    case.write(path, format!("{whole}{}", &whole[..10]));
    run(&case, "--steps 5 --resume").succeeds();
    let resumed = case.text(path);
    assert!(resumed.starts_with(&whole) && resumed.lines().count() == 5, "{resumed}");
}

#[test]
fn the_tokens_of_the_steps_so_far_are_proven() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    run(&case, "--steps 2").succeeds();
    let checkpoint = out.join("checkpoint-2");
    let state = fs::read_to_string(checkpoint.join("state.json")).unwrap();
    // Each step's tokens hashed with what came before: two rows of 17 ids a step, in order.
    let data = fs::read(&case.data).unwrap();
    let rows: Vec<&[u8]> = data.chunks(4 * 17).collect();
    let after = |before: Digest, rows: &[&[u8]]| {
        Digest::of_parts("precast.tokens", std::iter::once(&before.0[..]).chain(rows.iter().copied()))
    };
    let seen = after(after(Digest::of(b""), &rows[..2]), &rows[2..4]);
    assert_eq!(case.json(checkpoint.join("state.json"))["tokens_sha256"], seen.to_string());
    // As if an earlier version had shuffled another way.
    let other = state.replace(&seen.to_string(), &Digest::of(b"other").to_string());
    fs::write(checkpoint.join("state.json"), &other).unwrap();
    let listing = fs::read_to_string(checkpoint.join("precast.sha256")).unwrap();
    let [was, is] = [&state, &other].map(|text| Digest::of(text.as_bytes()).to_string());
    fs::write(checkpoint.join("precast.sha256"), listing.replace(&was, &is)).unwrap();
    run(&case, "--steps 3 --resume").fails(5, "the tokens of its 2 steps are not those");
}

#[test]
fn a_finished_run_without_its_student_exports_it() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    run(&case, "--steps 2").succeeds();
    let (whole, metrics) = (case.weights("out"), fs::read(out.join("metrics.jsonl")).unwrap());
    fs::remove_dir_all(out.join("student")).unwrap();
    run(&case, "--steps 2 --resume").succeeds();
    assert!(case.weights("out") == whole && fs::read(out.join("metrics.jsonl")).unwrap() == metrics);
    // The run was extended and then killed before its export: `student/` still holds the weights of the shorter run.
    let saved = case.path("saved");
    copy(&out.join("student"), &saved);
    let was = case.record("out");
    run(&case, "--steps 3 --resume").succeeds();
    let longer = case.weights("out");
    assert_ne!(longer, whole);
    fs::remove_dir_all(out.join("student")).unwrap();
    copy(&saved, &out.join("student"));
    case.change("out/run.json", |now| {
        now["student"] = was["student"].clone();
        let files = was["files"].as_object().unwrap().iter();
        files
            .filter(|(name, _)| name.starts_with("student/"))
            .for_each(|(name, digest)| now["files"][name] = digest.clone());
    });
    run(&case, "--steps 3 --resume").succeeds();
    assert!(case.weights("out") == longer);
    // A student that the run did not write is not replaced.
    fs::write(out.join("student/config.json"), "{}").unwrap();
    run(&case, "--steps 4 --resume").fails(2, "student/config.json was changed since it was written");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let case = Case::new(17 * 9);
    let out = case.path("out");
    run(&case, "--steps 2").succeeds();
    for name in ["metrics.jsonl", "checkpoint-2/precast.sha256", "checkpoint-2/state.json", "student/config.json"] {
        let whole = fs::read(out.join(name)).unwrap();
        fs::remove_file(out.join(name)).unwrap();
        case.fifo(out.join(name));
        for more in ["--resume", "--overwrite"] {
            let (code, _, message) = run(&case, &format!("--steps 4 {more}")).ends();
            assert!(code != Some(0) && message.contains(name), "{name} {more}: {message}");
        }
        fs::remove_file(out.join(name)).unwrap();
        fs::write(out.join(name), whole).unwrap();
    }
    run(&case, "--steps 4 --resume").succeeds();
}
