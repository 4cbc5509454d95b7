//! A table of times selects kernels' variants, and changes nothing else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{Case, fail, precast, run_record, succeed};

impl Case {
    /// A run of two steps in bf16, by a table of times.
    fn tuned(&self, out: &str, table: &Path) -> Command {
        let mut command = self.distill(&self.path(out), &["--precision", "bf16", "--steps", "2"]);
        command.args(["--checkpoint-every", "1", "--tuned"]).arg(table);
        command
    }

    /// Writes a table of times.
    fn times(&self, text: &str) -> PathBuf {
        let table = self.path("written.txt");
        fs::write(&table, text).unwrap();
        table
    }

    /// Measures the variants of this case's launches.
    fn table(&self) -> PathBuf {
        let table = self.path("times.txt");
        let mut bench = precast();
        bench.args(["bench", "--device", "sim", "--batch-size", "2", "--seq-len", "16", "--tune"]).arg(&table);
        bench.arg("--teacher").arg(self.path("teacher")).arg("--student").arg(self.path("student"));
        succeed(&mut bench);
        table
    }
}

#[test]
fn a_table_changes_variants_and_no_bits() {
    let case = Case::new(17 * 9);
    let table = case.table();
    let measured = fs::read_to_string(&table).unwrap();
    assert!(measured.starts_with("simulated_GPU sim gemm."), "{measured}");
    // The other variant of each launch is now the fastest.
    let last: Vec<&str> = measured.lines().filter(|line| line.contains("stages=4")).collect();
    let slower = |line: &&str| format!("{} 0.01\n", line.rsplit_once(' ').unwrap().0);
    fs::write(&table, measured.clone() + &last.iter().map(slower).collect::<String>()).unwrap();
    succeed(&mut case.tuned("tuned", &table));
    succeed(&mut case.distill(&case.path("plain"), &["--precision", "bf16", "--steps", "2"]));
    let weights = |out: &str| fs::read(case.path(out).join("student/model.safetensors")).unwrap();
    assert_eq!(weights("tuned"), weights("plain"));
    let loads = |out: &str| {
        let record = run_record(&case.path(out));
        let loads = record["loads"].as_array().unwrap().iter();
        loads.map(|load| format!("{} {}", load["key"], load["variant"])).collect::<Vec<String>>()
    };
    assert_ne!(loads("tuned"), loads("plain"));
    assert_eq!(run_record(&case.path("tuned"))["tuned"].as_str().unwrap().len(), 64);
    assert!(run_record(&case.path("plain"))["tuned"].is_null());
}

#[test]
fn a_run_continues_with_its_table() {
    let case = Case::new(17 * 9);
    let table = case.table();
    succeed(&mut case.tuned("out", &table));
    let resume = |table: &Path| {
        let mut command = case.tuned("out", table);
        command.args(["--resume", "--steps", "3"]);
        command
    };
    let other = case.times(&(fs::read_to_string(&table).unwrap() + "# another\n"));
    let message = fail(&mut resume(&other), 2);
    assert!(message.contains("tuned was ") && message.contains(", is "), "{message}");
    let mut without = case.distill(&case.path("out"), &["--precision", "bf16", "--resume", "--steps", "3"]);
    let message = fail(without.args(["--checkpoint-every", "1"]), 2);
    assert!(message.contains(", is none"), "{message}");
    // It may be somewhere else.
    fs::rename(&table, case.path("moved.txt")).unwrap();
    succeed(&mut resume(&case.path("moved.txt")));
}

#[test]
fn a_table_that_cannot_select_is_refused() {
    let case = Case::new(17 * 9);
    let row = "simulated_GPU sim gemm.wgrad{x=bf16} 8x8x8 threads=256,tile=64 1.50\n";
    let cases = [
        ("another chip", row.replace("simulated_GPU", "NVIDIA_L4")),
        ("another architecture", row.replace("sim ", "sm_89 ")),
        ("nothing", "# nothing\n".to_owned()),
        ("no variant", row.replace("tile=64", "tile=65")),
        ("no kernel", format!("# said\n{row}{}", row.replace("wgrad", "agrad"))),
        ("no time", row.replace("1.50", "soon")),
    ];
    let said = cases.map(|(what, text)| {
        let table = case.times(&text);
        let message = fail(&mut case.tuned("out", &table), 2);
        let error = message.lines().find(|line| line.contains("written.txt")).expect("names the file");
        format!("{what}: {}", error.replace(&table.display().to_string(), "times.txt"))
    });
    insta::assert_snapshot!(said.join("\n"));
    assert!(!case.path("out").exists());
}
