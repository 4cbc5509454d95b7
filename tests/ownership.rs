//! `--out` belongs to one run: what is not of that run is neither replaced nor deleted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{Case, distill, fail, names_in, precast, run_record, succeed};

impl Case {
    fn owned_run(&self, out: &Path, arguments: &[&str]) -> Command {
        self.distill(out, &[&["--precision", "fp32"], arguments].concat())
    }

    fn init_run(&self, out: &Path, arguments: &[&str]) -> Command {
        let mut command = precast();
        command.arg("init").arg("--config").arg(self.path("student.json")).arg("--out").arg(out).args(arguments);
        command
    }
}

/// Waits until `run.json` in the directory belongs to a run of `steps` steps. There is briefly none while one run replaces another.
fn wait_for_run(out: &Path, steps: u64) {
    let steps_of = |text: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&text).ok()?["config"]["steps"].as_u64();
    while fs::read(out.join("run.json")).ok().and_then(steps_of) != Some(steps) {
        std::thread::yield_now();
    }
}

/// Every file below a directory with its bytes.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => all.extend(contents(&entry.path())),
            kind if kind.is_symlink() => {
                all.push((entry.path(), fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()));
            }
            _ => all.push((entry.path(), fs::read(entry.path()).unwrap())),
        }
    }
    all.sort();
    all
}

#[test]
fn a_directory_with_files_needs_resume_or_overwrite() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    fs::create_dir(&out).unwrap();
    // An empty one is fine.
    succeed(&mut case.owned_run(&out, &["--steps", "1"]));
    let before = contents(&out);
    let message = fail(&mut case.owned_run(&out, &["--steps", "1"]), 2);
    assert!(
        message.contains("is not empty") && message.contains("--resume") && message.contains("--overwrite"),
        "{message}"
    );
    fail(&mut case.owned_run(&out, &["--steps", "1", "--resume", "--overwrite"]), 2);
    let project = case.path("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("main.rs"), "fn main() {}").unwrap();
    for arguments in [&[][..], &["--overwrite"]] {
        let message = fail(&mut case.owned_run(&project, &[&["--steps", "1"], arguments].concat()), 2);
        let said = "project is not empty (it holds main.rs) and is not a run's directory, which has run.json: choose another --out";
        assert!(message.contains(said) && !message.contains("--overwrite replaces"), "{message}");
    }
    fail(&mut case.owned_run(&project, &["--steps", "1", "--resume"]), 2);
    assert_eq!(names_in(&project), ["main.rs"]);
    assert_eq!(contents(&out), before);
}

#[test]
fn a_second_process_is_refused_and_names_the_first() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    let mut first = case.owned_run(&out, &["--steps", "1000000"]).stdout(Stdio::null()).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        std::thread::yield_now();
    }
    for arguments in [&[][..], &["--overwrite"], &["--resume"]] {
        let message = fail(&mut case.owned_run(&out, &[&["--steps", "1"], arguments].concat()), 2);
        assert!(message.contains(&format!("in use by another run, process {}", first.id())), "{message}");
    }
    // A report of a run under way is written, and breaks nothing.
    succeed(precast().arg("report").arg(&out));
    first.kill().unwrap();
    first.wait().unwrap();
    // The lock died with its process. The run does not list the report, which is recognized unless somebody changed it.
    let report = fs::read(out.join("report.html")).unwrap();
    fs::write(out.join("report.html"), [&report[..], b"mine"].concat()).unwrap();
    let message = fail(&mut case.owned_run(&out, &["--steps", "1", "--overwrite"]), 2);
    assert!(message.contains("report.html is not listed"), "{message}");
    fs::write(out.join("report.html"), &report).unwrap();
    succeed(&mut case.owned_run(&out, &["--steps", "1", "--overwrite"]));
    assert_eq!(names_in(case.dir.path()).iter().filter(|name| name.contains("replaced")).count(), 0);
}

#[test]
fn overwriting_replaces_a_run_and_nothing_else() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "2"]));
    let old = contents(&out);
    // A start-up that fails leaves the old run where it is.
    let empty = case.path("empty.bin");
    fs::write(&empty, b"").unwrap();
    let mut failing = case.owned_run(&out, &["--steps", "1", "--overwrite"]);
    failing.arg("--data").arg(&empty);
    fail(&mut failing, 5);
    let mut failing = case.owned_run(&out, &["--steps", "1", "--overwrite"]);
    fail(failing.arg("--bundle").arg(&case.data), 3);
    assert_eq!(contents(&out), old);
    // So do files of somebody else, and changed ones: each is named.
    type Make = fn(&Path);
    let foreign: [(&str, Make); 5] = [
        ("notes.txt", |path| fs::write(path, "mine").unwrap()),
        ("student/notes.txt", |path| fs::write(path, "mine").unwrap()),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("link", |path| symlink("/", path).unwrap()),
        ("checkpoint-2/extra", |path| fs::write(path, "mine").unwrap()),
    ];
    for (name, make) in foreign {
        make(&out.join(name));
        let message = fail(&mut case.owned_run(&out, &["--steps", "1", "--overwrite"]), 2);
        assert!(message.contains(&format!("out/{name} is not listed")), "{message}");
        let _ = fs::remove_file(out.join(name)).or_else(|_| fs::remove_dir(out.join(name)));
        assert_eq!(contents(&out), old);
    }
    for name in ["student/config.json", "metrics.jsonl", "run.log", "checkpoint-2/master.safetensors", "report.html"] {
        let whole = fs::read(out.join(name)).unwrap();
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        fs::write(out.join(name), changed).unwrap();
        let message = fail(&mut case.owned_run(&out, &["--steps", "1", "--overwrite"]), 2);
        assert!(message.contains(&format!("out/{name} was changed since it was written")), "{message}");
        fs::write(out.join(name), whole).unwrap();
    }
    assert_eq!(names_in(case.dir.path()).iter().filter(|name| name.contains("replaced")).count(), 0);
    // Without a checkpoint the old run goes at the end.
    succeed(&mut case.owned_run(&out, &["--steps", "1", "--overwrite", "--checkpoint-every", "0"]));
    assert_eq!(names_in(&out), ["metrics.jsonl", "report.html", "run.json", "run.log", "student"]);
    assert_eq!(names_in(case.dir.path()).iter().filter(|name| name.contains("replaced")).count(), 0);
}

#[test]
fn the_old_run_stays_until_the_new_one_has_a_checkpoint() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "2"]));
    let weights = fs::read(out.join("student/model.safetensors")).unwrap();
    // Killed before its first checkpoint, twice: both runs so far are still there, and go with the first checkpoint.
    for steps in [1_000_000, 1_000_001] {
        let count = steps.to_string();
        let start = ["--overwrite", "--checkpoint-every", "1000000", "--steps", &count];
        let mut new = case.owned_run(&out, &start).stdout(Stdio::null()).spawn().unwrap();
        wait_for_run(&out, steps);
        new.kill().unwrap();
        new.wait().unwrap();
    }
    let kept = case.path("out.replaced-1");
    assert_eq!(fs::read(kept.join("student/model.safetensors")).unwrap(), weights);
    assert!(case.path("out.replaced-2").exists());
    // What somebody puts there meanwhile stays.
    fs::write(kept.join("notes.txt"), "mine").unwrap();
    fs::write(kept.join("report.html"), "mine, too").unwrap();
    succeed(&mut case.owned_run(&out, &["--steps", "2", "--checkpoint-every", "1", "--overwrite"]));
    assert_eq!(names_in(&kept), ["notes.txt", "report.html"]);
    assert_eq!(fs::read_to_string(kept.join("report.html")).unwrap(), "mine, too");
    assert!(!case.path("out.replaced-2").exists() && !case.path("out.replaced-3").exists());
}

#[test]
fn an_input_is_never_written_over() {
    let case = Case::new(17 * 4);
    let models = contents(&case.student);
    let below = case.path("s/student");
    fs::create_dir(case.path("s")).unwrap();
    for entry in fs::read_dir(&case.student).unwrap().map(Result::unwrap) {
        fs::create_dir_all(&below).unwrap();
        fs::copy(entry.path(), below.join(entry.file_name())).unwrap();
    }
    symlink(case.path("s"), case.path("link")).unwrap();
    let refused = |student: &Path, data: &Path, out: &Path, more: &[&str]| {
        for start in [&[][..], &["--overwrite"], &["--resume"]] {
            let mut command = distill(&case.path("teacher"), student, data, out);
            command.args(["--steps", "1", "--batch-size", "2", "--seq-len", "16"]).args(start).args(more);
            let message = fail(&mut command, 2);
            assert!(message.contains("an input is never overwritten"), "{message}");
        }
    };
    refused(&below, &case.data, &case.path("s"), &[]);
    refused(&below, &case.data, &case.path("link"), &[]);
    refused(&case.student, &case.data, &case.student, &[]);
    refused(&case.student, &case.data, case.dir.path(), &[]);
    let toml = case.path("s/run.toml");
    fs::write(&toml, "lr = 1e-3\n").unwrap();
    refused(&case.student, &case.data, &case.path("s"), &["--config", toml.to_str().unwrap()]);
    // A student that the last run wrote is an input, too.
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "1"]));
    refused(&out.join("student"), &case.data, &out, &[]);
    for (from, out) in [(&case.student, &case.student), (&below, &case.path("link"))] {
        for more in [&[][..], &["--overwrite"]] {
            let mut init = precast();
            init.arg("init").arg("--from").arg(from).args(["--layers", "0", "--out"]).arg(out);
            assert!(fail(init.args(more), 2).contains("an input is never overwritten"));
        }
    }
    assert_eq!(contents(&case.student), models);
}

#[test]
fn init_replaces_only_a_model_that_precast_wrote() {
    let case = Case::new(17 * 4);
    let project = case.path("project");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("main.rs"), "fn main() {}").unwrap();
    symlink(&project, case.path("link")).unwrap();
    for out in [&project, &case.path("link"), &project.join("main.rs")] {
        for arguments in [&[][..], &["--overwrite"]] {
            fail(&mut case.init_run(out, arguments), 2);
        }
    }
    assert_eq!(names_in(&project), ["main.rs"]);
    let out = case.path("new");
    succeed(&mut case.init_run(&out, &[]));
    let message = fail(&mut case.init_run(&out, &[]), 2);
    assert!(message.contains("--overwrite replaces what Precast wrote"), "{message}");
    succeed(&mut case.init_run(&out, &["--overwrite", "--seed", "3"]));
    let written = contents(&out);
    fs::write(out.join("notes.txt"), "mine").unwrap();
    assert!(fail(&mut case.init_run(&out, &["--overwrite"]), 2).contains("new/notes.txt is not listed"));
    fs::remove_file(out.join("notes.txt")).unwrap();
    fs::write(out.join("config.json"), "{}").unwrap();
    assert!(
        fail(&mut case.init_run(&out, &["--overwrite"]), 2)
            .contains("new/config.json was changed since it was written")
    );
    // Where it is a link to an empty directory, that one is filled.
    let empty = case.path("empty");
    fs::create_dir(&empty).unwrap();
    symlink(&empty, case.path("to-empty")).unwrap();
    succeed(&mut case.init_run(&case.path("to-empty"), &["--seed", "3"]));
    assert!(case.path("to-empty").is_symlink());
    let bytes = |files: Vec<(PathBuf, Vec<u8>)>| files.into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
    assert_eq!(bytes(contents(&empty)), bytes(written));
}

#[test]
fn a_benchmark_replaces_only_a_benchmark() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "1"]));
    let before = contents(&out);
    let mut bench = precast();
    bench.args(["bench", "--device", "sim", "--batch-size", "1", "--seq-len", "16", "--steps", "1", "--teacher"]);
    bench.arg(case.path("student.json")).arg("--student").arg(case.path("student.json"));
    let mut bench = |out: &Path| {
        bench.arg("--out").arg(out);
        bench.output().unwrap().status.code()
    };
    assert_eq!(bench(&out), Some(2));
    assert_eq!(contents(&out), before);
    assert_eq!([bench(&case.path("figures")), bench(&case.path("figures"))], [Some(0); 2]);
}

#[test]
fn a_record_that_lists_files_outside_deletes_nothing_there() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "1"]));
    let (beside, absolute) = (case.path("beside/file"), case.path("absolute"));
    fs::create_dir(case.path("beside")).unwrap();
    for path in [&beside, &absolute] {
        fs::write(path, "mine").unwrap();
    }
    let mut record = run_record(&out);
    for name in ["../beside/file", absolute.to_str().unwrap()] {
        record["files"][name] = "0".repeat(64).into();
    }
    fs::write(out.join("run.json"), record.to_string()).unwrap();
    succeed(&mut case.owned_run(&out, &["--steps", "2", "--overwrite"]));
    assert!(beside.exists() && absolute.exists());
    assert!(!case.path("out.replaced-1").exists());
}

#[test]
fn a_lock_that_is_a_link_is_not_written_through() {
    let case = Case::new(17 * 4);
    let (out, mine) = (case.path("out"), case.path("mine"));
    fs::create_dir(&out).unwrap();
    fs::write(&mine, "precious").unwrap();
    symlink(&mine, out.join(".precast.lock")).unwrap();
    let message = fail(&mut case.owned_run(&out, &["--steps", "1"]), 1);
    assert!(message.contains("cannot lock"), "{message}");
    assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
    assert_eq!(names_in(&out), [".precast.lock"]);
}

#[test]
fn a_run_that_was_replaced_is_no_input_of_one_that_deletes_it() {
    let case = Case::new(17 * 4);
    let out = case.path("out");
    succeed(&mut case.owned_run(&out, &["--steps", "1"]));
    let start = ["--overwrite", "--checkpoint-every", "1000000", "--steps", "1000000"];
    let mut new = case.owned_run(&out, &start).stdout(Stdio::null()).spawn().unwrap();
    wait_for_run(&out, 1_000_000);
    new.kill().unwrap();
    new.wait().unwrap();
    let student = case.path("out.replaced-1/student");
    let before = contents(&student);
    let mut command = distill(&case.path("teacher"), &student, &case.data, &out);
    command.args(["--steps", "1", "--batch-size", "2", "--seq-len", "16", "--overwrite"]);
    let message = fail(&mut command, 2);
    assert!(message.contains("deletes at its first checkpoint"), "{message}");
    assert_eq!(contents(&student), before);
}

#[test]
fn a_directory_moved_away_takes_its_run_and_not_the_next_ones() {
    let case = Case::new(17 * 4);
    let (out, moved) = (case.path("out"), case.path("moved"));
    let start = ["--steps", "1000000", "--checkpoint-every", "1000"];
    let first = case.owned_run(&out, &start).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !out.join("metrics.jsonl").exists() {
        std::thread::yield_now();
    }
    fs::rename(&out, &moved).unwrap();
    // Another run takes the name: it has it to itself.
    succeed(&mut case.owned_run(&out, &["--steps", "2"]));
    let second = contents(&out);
    let first = first.wait_with_output().unwrap();
    let message = String::from_utf8(first.stderr).unwrap();
    assert_eq!(first.status.code(), Some(1), "{message}");
    assert!(message.contains("was moved or removed while this run was in it"), "{message}");
    assert_eq!(contents(&out), second);
    assert!(names_in(&moved).contains(&"run.json".to_owned()));
}
