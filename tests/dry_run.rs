//! `distill --dry-run`: every check of a run that needs no device, and the plan; nothing is written.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{device, distill, fail, random_model, succeed, tiny_config, token_file};

struct Case {
    dir: tempfile::TempDir,
    teacher: PathBuf,
    student: PathBuf,
    data: PathBuf,
}

fn case() -> Case {
    let dir = tempfile::tempdir().unwrap();
    let [teacher, student] =
        [("teacher", 1), ("student", 2)].map(|(name, seed)| random_model(dir.path(), name, seed, &tiny_config(&[])));
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    Case { dir, teacher, student, data }
}

impl Case {
    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn run(&self, student: &Path, data: &Path, arguments: &[&str]) -> Command {
        let mut command = distill(&self.teacher, student, data, &self.out());
        command.args(["--batch-size", "2", "--seq-len", "16", "--precision", "fp32"]).args(arguments);
        command
    }

    /// A file that replaces one of the student's, in a copy.
    fn student_with(&self, file: &str, bytes: &[u8]) -> PathBuf {
        let model = self.dir.path().join(format!("with-{file}"));
        fs::create_dir(&model).unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::copy(self.student.join(name), model.join(name)).unwrap();
        }
        fs::write(model.join(file), bytes).unwrap();
        model
    }
}

#[test]
fn a_dry_run_plans_and_writes_nothing() {
    let case = case();
    let printed = succeed(&mut case.run(&case.student, &case.data, &["--dry-run"]));
    assert!(printed.contains("activations") && printed.contains("phase micro"), "{printed}");
    assert!(!case.out().exists());
}

#[test]
fn a_dry_run_fails_where_the_run_would() {
    let case = case();
    let garbage = case.student_with("model.safetensors", b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF");
    let tokenizer = case.student_with("tokenizer.json", b"{");
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
        let [dry, real] = [&["--dry-run"][..], &[]].map(|arguments| fail(&mut case.run(student, data, arguments), 5));
        assert_eq!(dry, real, "{what}");
    }
    let mut without_data = crate::support::precast();
    without_data.args(["distill", "--dry-run", "--device", &device(), "--out"]).arg(case.out());
    without_data.arg("--teacher").arg(&case.teacher).arg("--student").arg(&case.student);
    assert!(fail(&mut without_data, 2).contains("--data is missing"));
    assert!(!case.out().join("run.json").exists());
}

#[test]
fn a_dry_run_says_whether_a_run_can_be_resumed() {
    let case = case();
    let run = |arguments: &[&str]| case.run(&case.student, &case.data, arguments);
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
