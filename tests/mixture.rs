//! `--data A=0.7 --data B=0.3`: sources with shares of the tokens.

use std::fs;
use std::process::Command;

use crate::support::{Case, fail, metrics_of, run_record, succeed, token_file};

/// A case with two sources, the second with rows of two tokens.
struct Mixed {
    case: Case,
    named: [String; 2],
}

impl Mixed {
    fn new() -> Self {
        let case = Case::new(17 * 9);
        let rows = case.path("b.jsonl");
        fs::write(&rows, (0..40).map(|id| format!("{{\"input_ids\": [{id}, {}]}}\n", id + 1)).collect::<String>())
            .unwrap();
        let named = [case.data.display().to_string(), rows.display().to_string()];
        Self { case, named }
    }

    /// A run of four sequences a step on these sources.
    fn run(&self, out: &str, data: [&str; 2], arguments: &[&str]) -> Command {
        let mut command = crate::support::precast();
        command.args(["train", "--precision", "fp32", "--batch-size", "2", "--grad-accum", "2", "--seq-len", "16"]);
        command.args(["--checkpoint-every", "1", "--device", &crate::support::device(), "--model"]);
        command.arg(&self.case.student).arg("--out").arg(self.case.path(out));
        for (path, share) in self.named.iter().zip(data) {
            command.arg("--data").arg(format!("{path}{share}"));
        }
        command.args(arguments);
        command
    }

    fn weights(&self, out: &str) -> Vec<u8> {
        fs::read(self.case.path(out).join("student/model.safetensors")).unwrap()
    }
}

#[test]
fn a_mixture_is_the_same_over_resumes_and_another_one_is_another_run() {
    let mixed = Mixed::new();
    let said = succeed(&mut mixed.run("whole", ["=0.7", "=0.3"], &["--steps", "6"]));
    let passes = said.lines().find(|line| line.starts_with("steps ")).unwrap();
    // 24 sequences: 0.7 / 17 and 0.3 / 2 of tokens a sequence, of 9 and 40.
    let [data, rows] = &mixed.named;
    let drawn = [0.7 / 17.0, 0.3 / 2.0].map(|weight| 24.0 * weight / (0.7 / 17.0 + 0.3 / 2.0));
    let [a, b] = [drawn[0] / 9.0, drawn[1] / 40.0];
    assert_eq!(passes, format!("steps    6 x 64 tokens = {a:.2} passes over {data}, {b:.2} passes over {rows}"));
    // Tokens that count: 16 of a sequence of the first source, 1 of the second.
    let counted: u64 = metrics_of(&mixed.case.path("whole")).iter().map(|step| step.tokens).sum();
    let of_first = (counted - 24) / 15;
    assert_eq!((of_first, 24 - of_first), (5, 19), "{counted}");

    succeed(&mut mixed.run("out", ["=0.7", "=0.3"], &["--steps", "2"]));
    let message = fail(&mut mixed.run("out", ["=0.6", "=0.4"], &["--steps", "6", "--resume"]), 2);
    assert!(message.contains("packing was rows 1, stream 1, 0.7 of 1 file, 0.3 of 1 file, is "), "{message}");
    fail(&mut mixed.run("out", ["", ""], &["--steps", "6", "--resume"]), 2);
    // Shares beside each other are what counts.
    succeed(&mut mixed.run("out", ["=7", "=3"], &["--steps", "6", "--resume"]));
    assert!(mixed.weights("out") == mixed.weights("whole"));
    succeed(&mut mixed.run("ranks", ["=0.7", "=0.3"], &["--steps", "6", "--replicas", "2", "--gpus", "2"]));
    succeed(&mut mixed.run("replicas", ["=0.7", "=0.3"], &["--steps", "6", "--replicas", "2"]));
    assert!(mixed.weights("ranks") == mixed.weights("replicas"));
    assert_eq!(run_record(&mixed.case.path("out"))["config"]["data"][1], format!("{rows}=3"));
}

#[test]
fn shares_that_mix_nothing_are_refused_before_anything_is_written() {
    let mixed = Mixed::new();
    let refused = |data: [&str; 2], arguments: &[&str]| {
        let message = fail(&mut mixed.run("out", data, &[&["--steps", "1"], arguments].concat()), 2);
        message.replace(&mixed.case.dir.path().display().to_string(), "DIR")
    };
    assert!(refused(["=0", "=1"], &[]).contains("--data DIR/data.bin=0: a share is a number above 0"));
    assert!(refused(["=1", "=-0.5"], &["--dry-run"]).contains("--data DIR/b.jsonl=-0.5: a share is a number above 0"));
    assert!(refused(["=nan", "=1"], &[]).contains("a share is a number above 0"));
    let message = refused(["=1", ""], &[]);
    assert!(message.contains("DIR/data.bin=1 has a share of the tokens and --data DIR/b.jsonl has none"), "{message}");
    let mut epochs = mixed.run("out", ["=1", "=1"], &["--epochs", "1"]);
    assert!(fail(&mut epochs, 2).contains("give --steps in place of --epochs"));
    assert!(!mixed.case.path("out").exists());
    fs::write(&mixed.named[1], "").unwrap();
    let message = fail(&mut mixed.run("out", ["=1", "=1"], &["--steps", "1"]), 5);
    assert!(message.contains("b.jsonl: no rows in it"), "{message}");
}

#[test]
fn a_file_whose_name_has_a_share_is_a_file() {
    let mixed = Mixed::new();
    let (dir, student) = (mixed.case.dir.path(), &mixed.case.student);
    token_file(dir, "data.bin=0.5.bin", 17 * 4, 96);
    fs::rename(dir.join("data.bin=0.5.bin"), dir.join("x=0.5")).unwrap();
    let run = |named: &str| {
        let mut command = crate::support::train(student, &dir.join(named), &mixed.case.path("out"));
        command.args(["--seq-len", "16", "--steps", "1"]);
        fail(&mut command, 5)
    };
    // Neither name says what a file holds, and each is the one that was looked at.
    assert!(run("x=0.5").contains("x=0.5: unknown kind of data"));
    assert!(run("y.bin=0.5").contains("y.bin: "));
}
