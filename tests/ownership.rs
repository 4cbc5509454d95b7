//! `--out` belongs to one run: what is not of that run is neither replaced nor deleted.

use std::os::unix::fs::symlink;

use crate::support::prelude::*;

/// A run in `out`.
fn run(case: &Case, arguments: &str) -> Command {
    case.distill("out", ["--precision fp32", arguments])
}

/// A run that goes on until it is killed.
fn endless(case: &Case, arguments: &str) -> Child {
    run(case, arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

fn replaced(case: &Case) -> usize {
    names_in(case.dir.path()).iter().filter(|name| name.contains("replaced")).count()
}

/// Waits until `run.json` in the directory belongs to a run of `steps` steps. There is briefly none while one run
/// replaces another.
fn wait_for_run(out: &Path, steps: u64) {
    let steps_of = |text: Vec<u8>| serde_json::from_slice::<Value>(&text).ok()?["config"]["steps"].as_u64();
    while fs::read(out.join("run.json")).ok().and_then(steps_of) != Some(steps) {
        std::thread::yield_now();
    }
}

#[test]
fn a_second_process_is_refused_and_names_the_first() {
    let case = Case::new(17 * 4);
    let first = endless(&case, "--steps 1000000");
    while !case.has("out/metrics.jsonl") {
        std::thread::yield_now();
    }
    for how in ["", "--overwrite", "--resume"] {
        let said = format!("in use by another run, process {}", first.id());
        run(&case, &format!("--steps 1 {how}")).fails(2, said);
    }
    // A report of a run under way is written, and breaks nothing.
    case.run("report out").succeeds();
    kill(first);
    // The lock died with its process. The run does not list the report, which is recognized unless somebody changed it.
    let report = case.read("out/report.html");
    case.write("out/report.html", [&report[..], b"mine"].concat());
    run(&case, "--steps 1 --overwrite").fails(2, "report.html is not listed");
    case.write("out/report.html", &report);
    run(&case, "--steps 1 --overwrite").succeeds();
    assert_eq!(replaced(&case), 0);
}

#[test]
fn the_old_run_stays_until_the_new_one_has_a_checkpoint() {
    let case = Case::new(17 * 4);
    run(&case, "--steps 2").succeeds();
    let weights = case.weights("out");
    // Killed before its first checkpoint, twice: both runs so far are still there, and go with the first checkpoint.
    for steps in [1_000_000, 1_000_001] {
        let new = endless(&case, &format!("--overwrite --checkpoint-every 1000000 --steps {steps}"));
        wait_for_run(&case.path("out"), steps);
        kill(new);
    }
    assert_eq!(case.weights("out.replaced-1"), weights);
    assert!(case.has("out.replaced-2"));
    // What somebody puts there meanwhile stays.
    case.write("out.replaced-1/notes.txt", "mine");
    case.write("out.replaced-1/report.html", "mine, too");
    run(&case, "--steps 2 --checkpoint-every 1 --overwrite").succeeds();
    assert_eq!(case.names("out.replaced-1"), ["notes.txt", "report.html"]);
    assert_eq!(case.text("out.replaced-1/report.html"), "mine, too");
    assert!(!case.has("out.replaced-2") && !case.has("out.replaced-3"));
}

#[test]
fn init_fills_the_empty_directory_that_a_link_names() {
    let case = Case::new(0);
    case.run("init --config student.json --seed 3 --out new").succeeds();
    fs::create_dir(case.path("empty")).unwrap();
    symlink(case.path("empty"), case.path("link")).unwrap();
    case.run("init --config student.json --seed 3 --out link").succeeds();
    assert!(case.path("link").is_symlink());
    let bytes = |name: &str| contents(&case.path(name)).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert_eq!(bytes("empty"), bytes("new"));
}

#[test]
fn a_benchmark_replaces_a_benchmark() {
    let case = Case::new(0);
    for _ in 0..2 {
        let models = "--teacher student.json --student student.json --batch-size 1 --seq-len 16 --steps 1";
        case.run(["bench step --device sim --out figures", models]).succeeds();
    }
}

#[test]
fn a_record_that_lists_files_outside_deletes_nothing_there() {
    let case = Case::new(17 * 4);
    run(&case, "--steps 1").succeeds();
    fs::create_dir(case.path("beside")).unwrap();
    let absolute = case.write("absolute", "mine");
    case.write("beside/file", "mine");
    let mut record = case.record("out");
    for name in ["../beside/file", absolute.to_str().unwrap()] {
        record["files"][name] = "0".repeat(64).into();
    }
    case.write("out/run.json", record.to_string());
    run(&case, "--steps 2 --overwrite").succeeds();
    assert!(case.has("beside/file") && absolute.exists() && !case.has("out.replaced-1"));
}

#[test]
fn a_run_that_was_replaced_is_no_input_of_one_that_deletes_it() {
    let case = Case::new(17 * 4);
    run(&case, "--steps 1").succeeds();
    let new = endless(&case, "--overwrite --checkpoint-every 1000000 --steps 1000000");
    wait_for_run(&case.path("out"), 1_000_000);
    kill(new);
    let before = contents(&case.path("out.replaced-1/student"));
    run(&case, "--student out.replaced-1/student --steps 1 --overwrite").fails(2, "deletes at its first checkpoint");
    assert_eq!(contents(&case.path("out.replaced-1/student")), before);
}

#[test]
fn a_directory_moved_away_takes_its_run_and_no_other() {
    let case = Case::new(17 * 4);
    let first = endless(&case, "--steps 1000000 --checkpoint-every 1000");
    while !case.has("out/metrics.jsonl") {
        std::thread::yield_now();
    }
    fs::rename(case.path("out"), case.path("moved")).unwrap();
    // Another run takes the name: it has it to itself.
    run(&case, "--steps 2").succeeds();
    let second = contents(&case.path("out"));
    let first = first.wait_with_output().unwrap();
    let (_, message) = texts(&first);
    assert_eq!(first.status.code(), Some(1), "{message}");
    assert!(message.contains("was moved or removed while this run was in it"), "{message}");
    assert_eq!(contents(&case.path("out")), second);
    assert!(case.has("moved/run.json"));
}
