//! `distill --dry-run`: every check of a run that needs no device, and the plan; nothing is written.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::{Case, device, distill, fail, precast, succeed, token_file};

impl Case {
    fn checked_run(&self, student: &Path, data: &Path, arguments: &[&str]) -> Command {
        let mut command = distill(&self.teacher, student, data, &self.out());
        command.args(["--batch-size", "2", "--seq-len", "16", "--precision", "fp32"]).args(arguments);
        command
    }
}

#[test]
fn a_dry_run_plans_and_writes_nothing() {
    let case = Case::new(17 * 4);
    let printed = succeed(&mut case.checked_run(&case.student, &case.data, &["--dry-run"]));
    assert!(printed.contains("activations") && !printed.contains("phase micro"), "{printed}");
    let listed = succeed(&mut case.checked_run(&case.student, &case.data, &["--dry-run", "--verbose"]));
    assert!(listed.contains("phase micro") && listed.contains("kernels:"), "{listed}");
    assert!(!case.out().exists());
}

/// The simulated GPU executes references: no bundle lacks them.
#[test]
fn a_plan_for_the_simulated_gpu_lacks_no_kernels() {
    let case = Case::new(17 * 4);
    let mut command = precast();
    command.args(["plan", "--arch", "sim", "--precision", "fp32", "--batch-size", "2", "--seq-len", "16", "--teacher"]);
    let printed =
        succeed(command.arg(&case.teacher).arg("--student").arg(&case.student).args(["--verbose", "--check"]));
    assert!(printed.contains(" x reference") && !printed.contains("not in the bundle"), "{printed}");
}

#[test]
fn a_dry_run_fails_where_the_run_would() {
    let case = Case::new(17 * 4);
    let garbage = case.student_with("with-model.safetensors", "model.safetensors", b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
    let tokenizer = case.student_with("with-tokenizer.json", "tokenizer.json", b"{");
    let text = case.dir.path().join("text.txt");
    fs::write(&text, "Some text.").unwrap();
    let beyond = token_file(case.dir.path(), "beyond.bin", 17 * 4, 1000);
    let none = case.dir.path().join("none.bin");
    for (what, student, data) in [
        ("weights", &garbage, &case.data),
        ("tokenizer", &tokenizer, &text),
        ("no tokenizer", &case.student, &text),
        ("token ids", &case.student, &beyond),
        ("no data", &case.student, &none),
    ] {
        let [dry, real] =
            [&["--dry-run"][..], &[]].map(|arguments| fail(&mut case.checked_run(student, data, arguments), 5));
        assert_eq!(dry, real, "{what}");
    }
    let mut without_data = precast();
    without_data.args(["distill", "--dry-run", "--device", &device(), "--out"]).arg(case.out());
    without_data.arg("--teacher").arg(&case.teacher).arg("--student").arg(&case.student);
    assert!(fail(&mut without_data, 2).contains("--data is missing"));
    assert!(!case.out().join("run.json").exists());
}

#[test]
fn a_dry_run_says_whether_a_run_can_be_resumed() {
    let case = Case::new(17 * 4);
    let run = |arguments: &[&str]| case.checked_run(&case.student, &case.data, arguments);
    fail(&mut run(&["--steps", "4", "--resume", "--dry-run"]), 2);
    succeed(&mut run(&["--steps", "2", "--checkpoint-every", "1"]));
    let before = fs::read(case.out().join("run.json")).unwrap();
    succeed(&mut run(&["--steps", "4", "--resume", "--dry-run"]));
    let message = fail(&mut run(&["--steps", "2", "--resume", "--dry-run"]), 2);
    assert!(message.contains("--steps"), "{message}");
    let message = fail(&mut run(&["--steps", "4", "--resume", "--dry-run", "--seed", "5"]), 2);
    assert!(message.contains("seed"), "{message}");
    assert_eq!(fs::read(case.out().join("run.json")).unwrap(), before);
}

/// It opens nothing: neither models nor data are there, and no such device.
#[test]
fn a_printed_configuration_is_that_of_the_command_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.toml");
    let print = |arguments: &[&str]| {
        let mut command = precast();
        command.args(["distill", "--print-config", "--config"]).arg(&file).args(arguments);
        command
    };
    fs::write(&file, "teacher = 'T'\nstudent = 'S'\ndata = 'D'\nlr = 1e-3\nbatch-size = 3\ndevice = 'cuda:7'\n")
        .unwrap();
    let text = succeed(&mut print(&["--out", "nowhere", "--lr", "2e-3"]));
    let has = |line: &str| text.lines().any(|one| one == line);
    for line in ["teacher = \"T\"", "lr = 0.002", "batch_size = 3", "out = \"nowhere\"", "keep = 1"] {
        assert!(has(line), "{line}\n{text}");
    }
    fs::write(&file, &text).unwrap();
    // What nobody asked for stands in nobody's way.
    for gpus in ["1", "2"] {
        assert_eq!(succeed(&mut print(&["--gpus", gpus])), text);
    }
    let divided = succeed(&mut print(&["--gpus", "2", "--replicas", "4", "--grad-accum", "4"]));
    assert!(divided.contains("\nreplicas = 4\n") && divided.contains("\ngrad_accum = 4\n"), "{divided}");
    let message = fail(&mut print(&["--gpus", "all"]), 2);
    assert!(message.contains("--print-config counts no GPUs: give --gpus their number"), "{message}");
    for other in ["--resume", "--dry-run"] {
        assert!(fail(&mut print(&[other]), 2).contains(other), "{other}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}
