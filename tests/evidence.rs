//! What a chip computed, written down for others: `precast evidence` and `precast-aot compare-evidence`.

use std::sync::OnceLock;

use precast_fatbins::evidence::{Evidence, Kernel, Launch, PRECISIONS};

use crate::support::Texts;
use crate::support::prelude::*;

/// Evidence of the simulated GPU, made once, in a directory whose name would give its owner away.
struct Made {
    case: Case,
    printed: String,
}

const WHOLE: &str = "owner/a.evidence";

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let case = Case::empty();
        let printed = case.run(["evidence --device sim --out", WHOLE]).succeeds();
        Made { case, printed }
    })
}

fn read(name: &str) -> Evidence {
    Evidence::decode(&made().case.text(name)).unwrap()
}

/// A command line of `precast-aot` where evidence is.
fn aot(line: impl Texts) -> Command {
    let mut aot = precast_aot();
    aot.current_dir(made().case.dir.path()).with(line);
    aot
}

fn compare(a: &str, b: &str) -> Command {
    aot(["compare-evidence", a, b])
}

/// The same, changed, as another chip's.
fn other(name: &'static str, change: impl FnOnce(&mut Evidence)) -> &'static str {
    let mut evidence = read(WHOLE);
    change(&mut evidence);
    made().case.write(name, evidence.encode());
    name
}

/// The same, with another result of the first kernel of an operation.
fn kernel(name: &'static str, op: &str, change: impl FnOnce(&mut Kernel)) -> &'static str {
    other(name, |evidence| change(first(evidence, op)))
}

fn first<'e>(evidence: &'e mut Evidence, op: &str) -> &'e mut Kernel {
    evidence.kernels.iter_mut().find(|(name, _)| name.starts_with(op)).unwrap_or_else(|| panic!("no {op}")).1
}

#[test]
fn evidence_of_the_simulated_gpu_says_what_it_is_not() {
    let (made, evidence) = (made(), read(WHOLE));
    let note = evidence.note.as_deref().unwrap();
    assert!(note.contains("compares references with themselves") && made.printed.contains(note), "{}", made.printed);
    assert_eq!((evidence.chip.name.as_str(), evidence.chip.arch.as_str()), ("simulated GPU", "sim"));
    assert!(evidence.kernels.len() > 20);
    for (name, kernel) in &evidence.kernels {
        assert!(kernel.faults.is_empty() && !kernel.launches.is_empty(), "{name}: {kernel:?}");
        // The time of a reference is no evidence.
        assert_eq!(kernel.microseconds, None);
    }
    let golden: Vec<&str> = evidence.golden.iter().map(|golden| golden.precision.as_str()).collect();
    assert_eq!(golden, PRECISIONS);
    for golden in &evidence.golden {
        assert!(golden.fault.is_none() && golden.losses.len() == 4, "{golden:?}");
    }
}

#[test]
fn nothing_in_it_says_whose_it_is() {
    let text = made().case.text(WHOLE);
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
    let again = || made().case.run("evidence --device sim --out again");
    again().succeeds();
    let (mut one, mut other) = (read(WHOLE), read("again"));
    for evidence in [&mut one, &mut other] {
        // What is free of the host's memory changes.
        evidence.chip.memory_bytes = 0;
    }
    assert!(one == other);
    // Nothing that is there is replaced.
    again().fails(2, "is there already");
}

#[test]
fn a_signature_is_made_and_asked_for() {
    skip_if!(lacks_compiler());
    let case = &made().case;
    aot("sign --new-key --key owner.key").succeeds();
    case.run("evidence --device sim --out signed --key owner.key").succeeds();
    compare("signed", "signed").with("--trusted-key owner.key.pub").succeeds();
    compare("signed", WHOLE).with("--trusted-key owner.key.pub").fails(2, "not signed");
    case.run("evidence --device sim --out unsigned --key owner.key.pub").fails(2, "--key");
    // A key that lies where its signature would.
    fs::copy(case.path("owner.key"), case.path("third.minisig")).unwrap();
    case.run("evidence --device sim --out third --key third.minisig").fails(2, "third.minisig is there already");
}

/// A release brings a version, a file and a bundle of its own; a kernel of the same sources is the same kernel.
#[test]
fn evidence_is_compared_by_sources_and_not_by_versions() {
    skip_if!(lacks_compiler());
    let later = other("later", |evidence| {
        evidence.program.version = "9.9.9".into();
        evidence.program.bundle = "2".repeat(64);
    });
    let [own, other] = [WHOLE, later].map(|name| compare(WHOLE, name).with("--json").json());
    assert!(own.as_object().unwrap().values().all(|verdict| *verdict == json!({ "verdict": "bits" })), "{own}");
    assert_eq!(own, other);
}

#[test]
fn chips_agree_by_bits_or_within_what_a_kernel_may_differ() {
    skip_if!(lacks_compiler());
    let same = compare(WHOLE, WHOLE).prints(["0 apart", "bits", "note: A: the simulated GPU"]);
    assert!(!same.contains("within"), "{same}");

    // Rounding, as other hardware sums.
    let changed = |name, op, norm: f64| {
        kernel(name, op, |kernel| {
            let Launch(_, digest, own) = &mut kernel.launches[0];
            (*digest, *own) = ("0".repeat(16), *own * norm);
        })
    };
    let printed = compare(WHOLE, changed("rounded", "gemm.fwd", 1.0001)).succeeds();
    assert!(printed.lines().any(|line| line.starts_with("within ") && line.contains("gemm.fwd")), "{printed}");

    let faulty = |kernel: &mut Kernel| kernel.faults.push("operand `y` differs".into());
    for (op, apart, expected) in [
        ("gemm.fwd", changed("larger", "gemm.fwd", 1.1), "norms differ by"),
        ("embedding.fwd", changed("exact", "embedding.fwd", 1.0), "its kernel promises them"),
        ("rmsnorm.fwd", kernel("faulty", "rmsnorm.fwd", faulty), "operand `y` differs"),
    ] {
        let (code, printed, _) = compare(WHOLE, apart).ends();
        assert_eq!(code, Some(1), "{op}: {printed}");
        let line = printed.lines().find(|line| line.starts_with("APART  ")).expect(&printed);
        assert!(line.contains(op) && line.contains(expected), "{line}");
    }
    let losses = other("losses", |evidence| evidence.golden[0].losses[3] *= 1.001);
    compare(WHOLE, losses).fails(1, "disagree on 1 of what both computed");
}

#[test]
fn a_zero_of_one_chip_alone_is_judged_as_the_selftest_does() {
    skip_if!(lacks_compiler());
    let zero = |name: &'static str, by: f64| {
        kernel(name, "head.distill{", |kernel| kernel.launches[0] = Launch(0, format!("{by}"), by))
    };
    let nothing = zero("nothing", 0.0);
    compare(nothing, zero("almost", 1e-9)).prints(" 0 apart");
    compare(zero("far", 1e3), nothing).fails(1, "disagree on");
}

#[test]
fn kernels_of_other_sources_are_not_compared() {
    skip_if!(lacks_compiler());
    let change = |name| kernel(name, "gemm.fwd", |kernel| kernel.source = "0".repeat(16));
    let printed = compare(WHOLE, change("one-source")).prints(" 0 apart");
    let not_compared = |printed: &str| printed.lines().filter(|line| line.starts_with("not compared: other")).count();
    assert_eq!(not_compared(&printed), 1, "{printed}");
    // Of one architecture two files say it themselves, whatever this program is made from.
    let same = compare("one-source", change("same-source")).prints(" 0 apart");
    assert_eq!(not_compared(&same), 0, "{same}");
    let none = other("no-source", |evidence| evidence.kernels.values_mut().for_each(|kernel| kernel.source.clear()));
    compare(WHOLE, none).fails(5, "no kernel of both is of the same sources");
}

#[test]
fn a_summary_is_what_is_compared() {
    skip_if!(lacks_compiler());
    let timed = kernel("timed", "gemm.fwd", |kernel| kernel.microseconds = Some(1.0));
    let summarize = || aot(["summarize-evidence", timed, "--out", "summary"]);
    summarize().succeeds();
    assert_eq!(read("summary"), read(WHOLE));
    summarize().fails(2, "is there already");
}

/// On either side or on both.
#[test]
fn what_was_cut_away_is_counted_and_is_no_agreement() {
    skip_if!(lacks_compiler());
    let whole = read(WHOLE);
    let (name, results) = whole.kernels.first_key_value().unwrap();
    let (loaded, of_first) = (whole.kernels.len(), results.launches.len());
    assert!(of_first > 1);
    let no_runs = other("no-runs.cut", |evidence| evidence.golden.clear());
    let one_run = other("one-run.cut", |evidence| evidence.golden.truncate(1));
    let not_run = other("not-run.cut", |evidence| evidence.golden[1].losses.clear());
    let fewer = kernel("fewer.cut", name, |kernel| drop(kernel.launches.remove(0)));
    let one = other("one.cut", |evidence| {
        evidence.kernels.values_mut().skip(1).for_each(|kernel| kernel.launches.clear());
        first(evidence, name).launches.truncate(1);
    });
    let unloaded = other("unloaded.cut", |evidence| drop(evidence.kernels.remove(name)));
    let samples = |cut: usize| format!("{cut} sample{} of {name}", if cut == 1 { "" } else { "s" });
    for (cut, missing, expected) in [
        (no_runs, 2, "the training run in fp32".to_owned()),
        (one_run, 1, "the training run in bf16".to_owned()),
        (not_run, 1, "the training run in bf16".to_owned()),
        (fewer, 1, samples(1)),
        (one, loaded, samples(of_first - 1)),
        (unloaded, 1, samples(of_first)),
    ] {
        for (a, b, sides) in [(cut, WHOLE, "A"), (WHOLE, cut, "B"), (cut, cut, "AB")] {
            // A kernel that neither has loaded cannot be missed.
            if sides == "AB" && expected == samples(of_first) {
                continue;
            }
            let (code, stdout, stderr) = compare(a, b).ends();
            assert_eq!(code, Some(5), "{sides} {expected}: {stdout} {stderr}");
            for side in sides.chars() {
                let line = format!("{side}: {expected}");
                let is_it = |one: &str| one.starts_with("not compared: missing ") && one.ends_with(&line);
                assert!(stdout.lines().any(is_it), "{sides} {expected}: {stdout}");
            }
            let missing = missing * sides.len();
            assert!(stdout.contains(" 0 apart, ") && stdout.contains(&format!(" {missing} missing")), "{stdout}");
            assert!(stderr.contains(&format!("and {missing} of what a chip computes")), "{stderr}");
        }
    }
    compare(WHOLE, WHOLE).prints(" 0 apart, 0 missing");
    let (_, json, _) = compare(WHOLE, one_run).with("--json").ends();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["B: the training run in bf16"], json!({ "verdict": "missing" }));
}

#[test]
fn what_is_no_evidence_is_refused() {
    skip_if!(lacks_compiler());
    let refused = |name: &str, said: &str| compare(WHOLE, name).fails(5, said);
    refused(other("earlier", |evidence| evidence.version = 1), "it has version 1");
    refused(other("seed", |evidence| evidence.seed = 1), "seeds 0 and 1");
    refused(other("none", |evidence| evidence.kernels.clear()), "no kernel of both is of the same sources");
}

/// Most bytes of a file that is committed.
const MOST_BYTES: usize = 200_000;

/// Lists the faults of a directory of evidence: its page has a row for each file, and the first of some models is
/// compared with all of these.
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
        let read = read.and_then(|text| Evidence::decode(&text).map_err(|error| error.to_string()));
        let summary = match &read {
            Ok(summary) if summary.clone().summary() == *summary => summary,
            Ok(_) => {
                wrong.push(format!("{} is a whole file: precast-aot summarize-evidence", row[0]));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{}: {error}", row[0]));
                continue;
            }
        };
        if [&summary.chip.name[..], &summary.chip.arch] != row[1..3] {
            wrong.push(format!("{} is of {} and {}", row[0], summary.chip.name, summary.chip.arch));
        }
        let untrue = summary.faults().len() + summary.golden.iter().filter(|run| run.losses.is_empty()).count();
        let launches: usize = summary.kernels.values().map(|kernel| kernel.launches.len()).sum();
        if untrue > 0 || summary.golden.len() != 2 || launches < 100 || summary.note.is_some() {
            wrong.push(format!("{}: {untrue} results untrue, {launches} launches", row[0]));
        }
        if summary.encode().len() > MOST_BYTES {
            wrong.push(format!("{} is larger than {MOST_BYTES} bytes", row[0]));
        }
        let first = rows.iter().find(|other| other[3] == row[3]).expect("at least its own")[0];
        let ended = compare(directory.join(first).to_str().unwrap(), path.to_str().unwrap()).ends();
        if ended.0 != Some(0) {
            wrong.push(format!("{first} and {}: {ended:?}", row[0]));
        }
    }
    wrong
}

#[test]
fn evidence_that_is_committed_is_what_its_page_says() {
    skip_if!(lacks_compiler());
    // What the check itself sees.
    let case = Case::empty();
    let add = |name: &str, change: fn(&mut Evidence)| {
        let mut summary = read(WHOLE);
        (summary.note, summary.chip.name) = (None, "a chip".to_owned());
        change(&mut summary);
        case.write(name, summary.encode());
    };
    let page = |rows: &[&str]| {
        let rows: String = rows.iter().map(|name| format!("| `{name}` | a chip | `sim` | all |\n")).collect();
        case.write("README.md", rows);
        wrong(case.dir.path())
    };
    add("one.evidence", |_| {});
    add("two.evidence", |_| {});
    let both = ["one.evidence", "two.evidence"];
    assert_eq!(page(&both), [""; 0]);
    assert!(page(&["one.evidence"])[0].contains("two.evidence"));
    type Change = (fn(&mut Evidence), &'static str);
    let changes: [Change; 5] = [
        (|summary| summary.chip.name = "another".to_owned(), "is of another"),
        (|summary| summary.golden[0].fault = Some("far".to_owned()), "1 results untrue"),
        (|summary| summary.kernels.values_mut().for_each(|kernel| kernel.launches.clear()), "0 launches"),
        (
            |summary| {
                let launch = &mut first(summary, "").launches[0];
                (launch.1, launch.2) = ("0".repeat(16), 2.0 * launch.2);
            },
            "APART",
        ),
        (|summary| summary.chip.host = "x".repeat(MOST_BYTES), "is larger than"),
    ];
    for (change, expected) in changes {
        add("two.evidence", change);
        assert!(page(&both).concat().contains(expected), "{expected}");
    }
    add("two.evidence", |summary| first(summary, "").microseconds = Some(1.0));
    assert!(page(&both).concat().contains("two.evidence is a whole file"));
    case.write("two.evidence", "{}\n");
    assert!(page(&both).concat().contains("two.evidence: it is not evidence"));

    let committed = root().join("docs/evidence");
    assert_eq!(wrong(&committed), [""; 0]);
    let count = names_in(&committed).iter().filter(|name| name.ends_with(".evidence")).count();
    skipped(count == 0, "no chip's evidence is committed yet");
}
