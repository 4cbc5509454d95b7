//! What a chip computed, written down for others: `precast evidence` and `precast-aot compare-evidence`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use precast_fatbins::evidence::Evidence;

use crate::support::{fail, lacks_compiler, names_in, precast, precast_aot, root, skipped, succeed, texts};

/// Evidence of the simulated GPU, made once, in a directory whose name would give its owner away.
struct Made {
    dir: tempfile::TempDir,
    printed: String,
}

impl Made {
    fn path(&self) -> PathBuf {
        self.dir.path().join("owner/a.evidence")
    }

    fn read(&self) -> Evidence {
        Evidence::decode(&fs::read_to_string(self.path()).unwrap()).unwrap()
    }
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("owner/a.evidence");
        let printed = succeed(precast().args(["evidence", "--device", "sim", "--out"]).arg(out));
        Made { dir, printed }
    })
}

fn compare(a: &Path, b: &Path) -> Command {
    let mut command = precast_aot();
    command.arg("compare-evidence").arg(a).arg(b);
    command
}

/// The same, changed, as another chip's.
fn other(name: &str, change: impl FnOnce(&mut Evidence)) -> PathBuf {
    let mut evidence = made().read();
    change(&mut evidence);
    let path = made().dir.path().join(name);
    fs::write(&path, evidence.encode()).unwrap();
    path
}

#[test]
fn evidence_of_the_simulated_gpu_says_what_it_is_not() {
    let (made, evidence) = (made(), made().read());
    let note = evidence.note.as_deref().unwrap();
    assert!(note.contains("compares references with themselves") && made.printed.contains(note), "{}", made.printed);
    assert_eq!((evidence.chip.name.as_str(), evidence.chip.arch.as_str()), ("simulated GPU", "sim"));
    assert!(evidence.loads.len() > 20 && evidence.checks.len() > evidence.loads.len());
    for check in &evidence.checks {
        assert!(check.fault.is_none() && !check.outputs.is_empty(), "{check:?}");
    }
    let golden: Vec<&str> = evidence.golden.iter().map(|golden| golden.precision.as_str()).collect();
    assert_eq!(golden, ["fp32", "bf16"]);
    for golden in &evidence.golden {
        assert!(golden.fault.is_none() && golden.losses.len() == 4, "{golden:?}");
    }
    assert!(evidence.doctor.iter().any(|finding| finding.what == "device" && finding.ok));
    // The time of a reference is no evidence.
    assert!(evidence.bench.is_empty());
}

#[test]
fn nothing_in_it_says_whose_it_is() {
    let text = fs::read_to_string(made().path()).unwrap();
    let hostname = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let names =
        [hostname.trim().to_owned(), std::env::current_dir().unwrap().display().to_string(), "owner".to_owned()];
    let of_user = ["USER", "LOGNAME", "HOME"].iter().filter_map(|name| std::env::var(name).ok());
    for name in names.into_iter().chain(of_user).filter(|name| name.len() > 3) {
        assert!(!text.contains(&name), "{name}");
    }
    assert!(!text.contains("/home") && !text.contains("/tmp") && !text.contains("GPU-"));
}

#[test]
fn the_same_seed_gives_the_same_evidence() {
    let again = made().dir.path().join("again");
    succeed(precast().args(["evidence", "--device", "sim", "--out"]).arg(&again));
    let (mut one, mut other) = (made().read(), Evidence::decode(&fs::read_to_string(&again).unwrap()).unwrap());
    for evidence in [&mut one, &mut other] {
        evidence.loads.iter_mut().for_each(|load| load.microseconds = 0);
        evidence.doctor.clear();
        // What is free of the host's memory changes.
        evidence.chip.memory_bytes = 0;
    }
    assert!(one == other);
    // Nothing that is there is replaced.
    let message = fail(precast().args(["evidence", "--device", "sim", "--out"]).arg(&again), 2);
    assert!(message.contains("is there already"), "{message}");
}

#[test]
fn a_signature_is_made_and_asked_for() {
    if lacks_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (key, out) = (dir.path().join("owner.key"), dir.path().join("signed"));
    succeed(precast_aot().args(["sign", "--new-key", "--key"]).arg(&key));
    let public = dir.path().join("owner.key.pub");
    succeed(precast().args(["evidence", "--device", "sim", "--out"]).arg(&out).arg("--key").arg(&key));
    let with_key = |a: &Path, b: &Path| {
        let mut command = compare(a, b);
        command.arg("--trusted-key").arg(&public);
        command
    };
    succeed(&mut with_key(&out, &out));
    let message = fail(&mut with_key(&out, &made().path()), 2);
    assert!(message.contains("not signed"), "{message}");
    let message = fail(precast().args(["evidence", "--device", "sim", "--out", "none", "--key"]).arg(&public), 2);
    assert!(message.contains("--key"), "{message}");
}

#[test]
fn chips_agree_by_bits_or_within_what_a_kernel_may_differ() {
    if lacks_compiler() {
        return;
    }
    let same = succeed(&mut compare(&made().path(), &made().path()));
    assert!(same.contains("0 apart") && same.contains("bits") && !same.contains("within"), "{same}");
    assert!(same.contains("note: A: the simulated GPU"), "{same}");
    let json: serde_json::Value =
        serde_json::from_str(&succeed(compare(&made().path(), &made().path()).arg("--json"))).unwrap();
    assert_eq!(json["golden"].as_object().unwrap().len(), 2);

    let of = |evidence: &Evidence, op: &str| {
        evidence.checks.iter().position(|check| check.kernel.starts_with(op)).unwrap_or_else(|| panic!("no {op}"))
    };
    // Rounding, as other hardware sums.
    let rounded = other("rounded", |evidence| {
        let output = of(evidence, "gemm.fwd");
        let output = &mut evidence.checks[output].outputs[0];
        output.sha256 = "0".repeat(64);
        output.sketch.sums.iter_mut().for_each(|sum| *sum *= 1.0 + 1e-7);
    });
    let printed = succeed(&mut compare(&made().path(), &rounded));
    assert!(printed.lines().any(|line| line.starts_with("within ") && line.contains("gemm.fwd")), "{printed}");

    type Change = fn(&mut Evidence, usize);
    let kernels: [(&str, Change, &str); 4] = [
        (
            "gemm.fwd",
            |e, at| e.checks[at].outputs[0].sketch.sums[0] += e.checks[at].outputs[0].sketch.norm,
            "differs by",
        ),
        ("embedding.fwd", |e, at| e.checks[at].outputs[0].sha256 = "0".repeat(64), "its kernel promises them"),
        ("rmsnorm.fwd", |e, at| e.checks[at].fault = Some("operand `y` differs".into()), "operand `y` differs"),
        ("swiglu.fwd", |e, at| drop(e.checks[at].outputs.pop()), "is not in both"),
    ];
    for (op, change, expected) in kernels {
        let apart = other(op, |evidence| {
            let at = of(evidence, op);
            evidence.checks[at].outputs.iter_mut().for_each(|output| output.sha256.replace_range(..1, "x"));
            change(evidence, at);
        });
        let mut command = compare(&made().path(), &apart);
        let output = command.output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(1), "{op}: {printed}");
        let line =
            printed.lines().find(|line| line.starts_with("APART  ")).unwrap_or_else(|| panic!("{op}: {printed}"));
        assert!(line.contains(op) && line.contains(expected), "{line}");
    }
    let losses = other("losses", |evidence| evidence.golden[0].losses[3] *= 1.001);
    let message = fail(&mut compare(&made().path(), &losses), 1);
    assert!(message.contains("disagree on 1 of what both computed"), "{message}");
}

#[test]
fn what_is_no_evidence_is_refused() {
    if lacks_compiler() {
        return;
    }
    let refused = |path: &Path| fail(&mut compare(&made().path(), path), 5);
    let mut damaged = fs::read(made().path()).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let path = made().dir.path().join("damaged");
    fs::write(&path, damaged).unwrap();
    assert!(refused(&path).contains("it was altered or cut short"));
    fs::write(&path, "{}").unwrap();
    assert!(refused(&path).contains("it is not evidence"));
    assert!(refused(&other("later", |evidence| evidence.version = 2)).contains("it has version 2"));
    assert!(refused(&other("seed", |evidence| evidence.seed = 1)).contains("seeds 0 and 1"));
    assert!(refused(&other("none", |evidence| evidence.checks.clear())).contains("no kernel was checked on both"));
}

/// What is wrong with a directory of evidence: its page has a row for each file, of which the first is compared with all.
fn wrong(directory: &Path) -> Vec<String> {
    let page = fs::read_to_string(directory.join("README.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches(['|', ' ']).split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let mut files = names_in(directory);
    files.retain(|name| name.ends_with(".evidence"));
    let mut named: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    named.sort_unstable();
    let mut wrong = Vec::new();
    if named != files {
        wrong.push(format!("the page names {named:?}, and there are {files:?}"));
    }
    for row in &rows {
        let path = directory.join(row[0]);
        let read = fs::read_to_string(&path).map_err(|error| error.to_string());
        let evidence = match read.and_then(|text| Evidence::decode(&text).map_err(|error| error.to_string())) {
            Ok(evidence) => evidence,
            Err(error) => {
                wrong.push(format!("{}: {error}", row[0]));
                continue;
            }
        };
        if [&evidence.chip.name[..], &evidence.chip.arch] != row[1..] {
            wrong.push(format!("{} is of {} and {}", row[0], evidence.chip.name, evidence.chip.arch));
        }
        let faults = evidence.checks.iter().filter(|check| check.fault.is_some()).count();
        let untrue = evidence.golden.iter().filter(|golden| golden.fault.is_some() || golden.losses.is_empty()).count();
        if faults + untrue > 0 || evidence.golden.len() != 2 || evidence.checks.len() < 100 || evidence.note.is_some() {
            wrong.push(format!("{}: {faults} faults, {untrue} runs untrue, of {}", row[0], evidence.checks.len()));
        }
        if evidence.loads.is_empty() || evidence.doctor.is_empty() || evidence.bench.is_empty() {
            wrong.push(format!("{} lacks loads, what doctor found, or times", row[0]));
        }
        let output = compare(&directory.join(rows[0][0]), &path).output().unwrap();
        if !output.status.success() {
            wrong.push(format!("{} and {}: {:?}", rows[0][0], row[0], texts(&output)));
        }
    }
    wrong
}

#[test]
fn evidence_that_is_committed_is_what_its_page_says() {
    if lacks_compiler() {
        return;
    }
    // What the check itself sees.
    let dir = tempfile::tempdir().unwrap();
    let add = |name: &str, change: fn(&mut Evidence)| {
        let mut evidence = made().read();
        (evidence.note, evidence.chip.name) = (None, "a chip".to_owned());
        let time = precast_fatbins::evidence::Timing { kernel: String::new(), microseconds: 1.0, bytes: 1, flops: 1 };
        evidence.bench.push(time);
        change(&mut evidence);
        fs::write(dir.path().join(name), evidence.encode()).unwrap();
    };
    let page = |rows: &[&str]| {
        let rows: String = rows.iter().map(|name| format!("| `{name}` | a chip | `sim` |\n")).collect();
        fs::write(dir.path().join("README.md"), rows).unwrap();
        wrong(dir.path())
    };
    add("one.evidence", |_| {});
    add("two.evidence", |_| {});
    assert_eq!(page(&["one.evidence", "two.evidence"]), [""; 0]);
    assert!(page(&["one.evidence"])[0].contains("two.evidence"));
    type Change = (fn(&mut Evidence), &'static str);
    let changes: [Change; 4] = [
        (|evidence| evidence.chip.name = "another".to_owned(), "is of another"),
        (|evidence| evidence.golden[0].fault = Some("far".to_owned()), "1 runs untrue"),
        (|evidence| evidence.bench.clear(), "lacks loads"),
        (|evidence| drop(evidence.checks[0].outputs.pop()), "APART"),
    ];
    for (change, expected) in changes {
        add("two.evidence", change);
        assert!(page(&["one.evidence", "two.evidence"]).concat().contains(expected), "{expected}");
    }
    fs::write(dir.path().join("two.evidence"), "{}\n{}\n").unwrap();
    assert!(page(&["one.evidence", "two.evidence"]).concat().contains("two.evidence: it is not evidence"));

    let committed = root().join("docs/evidence");
    assert_eq!(wrong(&committed), [""; 0]);
    let count = names_in(&committed).iter().filter(|name| name.ends_with(".evidence")).count();
    skipped(count == 0, "no chip's evidence is committed yet");
}
