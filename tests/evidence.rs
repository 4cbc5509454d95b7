//! What a chip computed, written down for others: `precast evidence` and `precast-aot compare-evidence`.

use std::sync::OnceLock;

use precast_fatbins::evidence::{Check, Evidence, KernelSummary, PRECISIONS, Results, Whole};

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

/// Results of kernels of a file that has all of them.
fn whole(evidence: &mut Evidence) -> &mut Whole {
    let Results::Whole(whole) = &mut evidence.results else { panic!("it is a summary") };
    whole
}

fn results(name: &str) -> Whole {
    whole(&mut read(name)).clone()
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

/// The same, with other results of kernels.
fn kernels(name: &'static str, change: impl FnOnce(&mut Whole)) -> &'static str {
    other(name, |evidence| change(whole(evidence)))
}

#[test]
fn evidence_of_the_simulated_gpu_says_what_it_is_not() {
    let (made, evidence) = (made(), read(WHOLE));
    let note = evidence.note.as_deref().unwrap();
    assert!(note.contains("compares references with themselves") && made.printed.contains(note), "{}", made.printed);
    assert_eq!((evidence.chip.name.as_str(), evidence.chip.arch.as_str()), ("simulated GPU", "sim"));
    let Whole { doctor, loads, checks, bench } = results(WHOLE);
    assert!(loads.len() > 20 && checks.len() > loads.len());
    for check in &checks {
        assert!(check.fault.is_none() && !check.outputs.is_empty(), "{check:?}");
    }
    let golden: Vec<&str> = evidence.golden.iter().map(|golden| golden.precision.as_str()).collect();
    assert_eq!(golden, PRECISIONS);
    for golden in &evidence.golden {
        assert!(golden.fault.is_none() && golden.losses.len() == 4, "{golden:?}");
    }
    assert!(doctor.iter().any(|finding| finding.what == "device" && finding.ok));
    // The time of a reference is no evidence.
    assert!(bench.is_empty());
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
        whole(evidence).loads.iter_mut().for_each(|load| load.microseconds = 0);
        whole(evidence).doctor.clear();
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
        evidence.program.sha256 = "1".repeat(64);
        evidence.program.bundle = "2".repeat(64);
    });
    let [own, other] = [WHOLE, later].map(|name| compare(WHOLE, name).with("--json").json());
    assert_eq!((&own["keys"], &own["other_sources"]), (&other["keys"], &json!([])));
    assert_eq!(own, other);
}

#[test]
fn chips_agree_by_bits_or_within_what_a_kernel_may_differ() {
    skip_if!(lacks_compiler());
    let same = compare(WHOLE, WHOLE).prints(["0 apart", "bits", "note: A: the simulated GPU"]);
    assert!(!same.contains("within"), "{same}");
    let json = compare(WHOLE, WHOLE).with("--json").json();
    assert_eq!(json["golden"].as_object().unwrap().len(), 2);

    let of = |whole: &Whole, op: &str| {
        whole.checks.iter().position(|check| check.kernel.starts_with(op)).unwrap_or_else(|| panic!("no {op}"))
    };
    // Rounding, as other hardware sums.
    let rounded = kernels("rounded", |whole| {
        let output = of(whole, "gemm.fwd");
        let output = &mut whole.checks[output].outputs[0];
        output.sha256 = "0".repeat(64);
        output.sketch.sums.iter_mut().for_each(|sum| *sum *= 1.0 + 1e-7);
    });
    let printed = compare(WHOLE, rounded).succeeds();
    assert!(printed.lines().any(|line| line.starts_with("within ") && line.contains("gemm.fwd")), "{printed}");

    type Change = fn(&mut Whole, usize);
    let changes: [(&str, Change, &str); 4] = [
        (
            "gemm.fwd",
            |e, at| e.checks[at].outputs[0].sketch.sums[0] += e.checks[at].outputs[0].sketch.norm,
            "differs by",
        ),
        ("embedding.fwd", |e, at| e.checks[at].outputs[0].sha256 = "0".repeat(64), "its kernel promises them"),
        ("rmsnorm.fwd", |e, at| e.checks[at].fault = Some("operand `y` differs".into()), "operand `y` differs"),
        ("swiglu.fwd", |e, at| drop(e.checks[at].outputs.pop()), "is not in both"),
    ];
    for (op, change, expected) in changes {
        let apart = kernels(op, |whole| {
            let at = of(whole, op);
            whole.checks[at].outputs.iter_mut().for_each(|output| output.sha256.replace_range(..1, "x"));
            change(whole, at);
        });
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
    // The divergence of distributions over one token is zero; the kernel's is a difference of larger numbers.
    let zero = |name: &'static str, by: f64| {
        kernels(name, |whole| {
            let first = |check: &&mut Check| check.kernel.starts_with("head.distill{") && check.sample == 0;
            let outputs = whole.checks.iter_mut().filter(first).flat_map(|check| &mut check.outputs);
            for output in outputs.filter(|output| output.operand == "kd") {
                assert_eq!(output.sketch.norm, 0.0);
                output.sha256 = format!("{by}");
                output.sketch.sums = vec![by; 32];
            }
        })
    };
    let nothing = zero("nothing", 0.0);
    let almost = zero("almost", 1e-9);
    let printed = compare(nothing, almost).prints(" 0 apart");
    assert!(!printed.contains("inf"), "{printed}");
    let far = zero("far", 1e3);
    compare(far, nothing).fails(1, "disagree on");
}

#[test]
fn kernels_of_other_sources_are_counted_and_not_compared() {
    skip_if!(lacks_compiler());
    let key = results(WHOLE).checks[0].kernel.clone();
    let one = kernels("one-source", |whole| whole.loads[0].source = "0".repeat(64));
    let all = results(WHOLE).loads.len();
    let note = format!("note: B: {} of {all} kernels are of this program's sources", all - 1);
    let printed = compare(WHOLE, one).prints(["not compared: 1 of other sources", &note]);
    let key = key.split('[').next().unwrap();
    assert!(printed.lines().any(|line| line.starts_with("not compared: other sources") && line.contains(key)));
    // Of one architecture two files say it themselves, whatever this program is made from.
    let same = kernels("same-source", |whole| whole.loads[0].source = "0".repeat(64));
    compare(one, same).prints("not compared: 0 of other sources");
    let none = kernels("no-source", |whole| whole.loads.iter_mut().for_each(|load| load.source.clear()));
    compare(WHOLE, none).fails(5, "no kernel of both is of the same sources");
}

#[test]
fn a_summary_tells_the_same_bits_from_others() {
    skip_if!(lacks_compiler());
    let summarize = |file: &str, out: &str| aot(["summarize-evidence", file, "--out", out]);
    summarize(WHOLE, "summary").succeeds();
    let bytes = |name: &str| made().case.read(name).len();
    assert!(bytes("summary") < bytes(WHOLE) / 10);
    summarize(WHOLE, "summary").fails(2, "is there already");
    for (a, b) in [(WHOLE, "summary"), ("summary", WHOLE), ("summary", "summary")] {
        let printed = compare(a, b).prints(" 0 apart, 0 by their norms alone");
        assert!(!printed.contains("within"), "{printed}");
    }
    let changed = |name: &'static str, op: &str, norm: f64| {
        kernels(name, |whole| {
            let check = whole.checks.iter_mut().find(|check| check.kernel.starts_with(op)).unwrap();
            check.outputs[0].sha256 = "0".repeat(64);
            check.outputs[0].sketch.norm *= norm;
        })
    };
    compare(changed("norm", "gemm.fwd", 1.0001), "summary").prints(" 0 apart, 1 by their norms alone");
    for (name, op, norm, expected) in
        [("larger", "gemm.fwd", 1.1, "norms differ by"), ("exact", "embedding.fwd", 1.0, "its kernel promises them")]
    {
        let (code, printed, _) = compare(changed(name, op, norm), "summary").ends();
        assert!(code == Some(1) && printed.contains(expected), "{name}: {printed}");
    }
    let faulty = kernels("faulty", |whole| whole.checks[0].fault = Some("operand `y` differs".into()));
    summarize(faulty, "no").fails(5, "it holds a fault, which a summary cannot show: operand `y` differs");
}

/// On either side or on both, in whole files and in summaries.
#[test]
fn what_was_cut_away_is_counted_and_is_no_agreement() {
    skip_if!(lacks_compiler());
    let summarized = |file: &str| {
        let out = format!("{file}.summary");
        aot(["summarize-evidence", file, "--out", &out]).succeeds();
        out
    };
    let whole_summary = summarized(other("whole.cut", |_| {}));
    let first = results(WHOLE).checks[0].clone();
    let loaded = results(WHOLE).loads.len();
    let of_first = results(WHOLE).checks.iter().filter(|check| check.kernel == first.kernel).count();
    assert!(of_first > 1);
    let no_runs = other("no-runs.cut", |evidence| evidence.golden.clear());
    let one_run = other("one-run.cut", |evidence| evidence.golden.truncate(1));
    let not_run = other("not-run.cut", |evidence| evidence.golden[1].losses.clear());
    let fewer = kernels("fewer.cut", |whole| drop(whole.checks.remove(0)));
    let one = kernels("one.cut", |whole| whole.checks.truncate(1));
    let unloaded = kernels("unloaded.cut", |whole| {
        whole.checks.retain(|check| check.kernel != first.kernel);
        whole.loads.retain(|load| load.kernel != first.kernel);
    });
    let samples = |cut: usize| format!("{cut} of {of_first} samples of {}", first.kernel);
    for (cut, missing, expected) in [
        (no_runs, 2, "the training run in fp32".to_owned()),
        (one_run, 1, "the training run in bf16".to_owned()),
        (not_run, 1, "the training run in bf16".to_owned()),
        (fewer, 1, samples(1)),
        (one, loaded, samples(of_first - 1)),
        (unloaded, 1, samples(of_first)),
    ] {
        for (whole, cut) in [(WHOLE, cut), (&whole_summary, &summarized(cut))] {
            for (a, b, sides) in [(cut, whole, "A"), (whole, cut, "B"), (cut, cut, "AB")] {
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
    }
    compare(WHOLE, WHOLE).prints([" and 2 training runs compared, 0 apart", " 0 missing"]);
    let (_, json, _) = compare(WHOLE, one_run).with("--json").ends();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["missing"], json!(["B: the training run in bf16"]));
}

#[test]
fn what_is_no_evidence_is_refused() {
    skip_if!(lacks_compiler());
    let refused = |name: &str, said: &str| compare(WHOLE, name).fails(5, said);
    refused(other("earlier", |evidence| evidence.version = 1), "it has version 1");
    refused(other("seed", |evidence| evidence.seed = 1), "seeds 0 and 1");
    refused(kernels("none", |whole| whole.checks.clear()), "no kernel was checked on both");
}

/// Most bytes of a file that is committed.
const MOST_BYTES: usize = 150_000;

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
        let read = read.and_then(|text| Evidence::decode(&text).map_err(|error| error.to_string()));
        let (summary, kernels) = match &read {
            Ok(summary @ Evidence { results: Results::Summary { kernels }, .. }) => (summary, kernels),
            Ok(_) => {
                wrong.push(format!("{} is a whole file: precast-aot summarize-evidence", row[0]));
                continue;
            }
            Err(error) => {
                wrong.push(format!("{}: {error}", row[0]));
                continue;
            }
        };
        if [&summary.chip.name[..], &summary.chip.arch] != row[1..] {
            wrong.push(format!("{} is of {} and {}", row[0], summary.chip.name, summary.chip.arch));
        }
        let untrue = summary.golden.iter().filter(|golden| golden.fault.is_some() || golden.losses.is_empty()).count();
        let launches: usize = kernels.values().map(|kernel| kernel.launches.len()).sum();
        if untrue > 0 || summary.golden.len() != 2 || launches < 100 || summary.note.is_some() {
            wrong.push(format!("{}: {untrue} runs untrue, {launches} launches", row[0]));
        }
        if summary.encode().len() > MOST_BYTES {
            wrong.push(format!("{} is larger than {MOST_BYTES} bytes", row[0]));
        }
        let ended = compare(directory.join(rows[0][0]).to_str().unwrap(), path.to_str().unwrap()).ends();
        if ended.0 != Some(0) {
            wrong.push(format!("{} and {}: {ended:?}", rows[0][0], row[0]));
        }
    }
    wrong
}

fn of_kernels(summary: &mut Evidence) -> impl Iterator<Item = &mut KernelSummary> {
    let Results::Summary { kernels } = &mut summary.results else { panic!("it is whole") };
    kernels.values_mut()
}

#[test]
fn evidence_that_is_committed_is_what_its_page_says() {
    skip_if!(lacks_compiler());
    // What the check itself sees.
    let case = Case::empty();
    let add = |name: &str, change: fn(&mut Evidence)| {
        let mut summary = read(WHOLE).summary().unwrap();
        (summary.note, summary.chip.name) = (None, "a chip".to_owned());
        change(&mut summary);
        case.write(name, summary.encode());
    };
    let page = |rows: &[&str]| {
        let rows: String = rows.iter().map(|name| format!("| `{name}` | a chip | `sim` |\n")).collect();
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
        (|summary| summary.golden[0].fault = Some("far".to_owned()), "1 runs untrue"),
        (|summary| of_kernels(summary).for_each(|kernel| kernel.launches.clear()), "0 launches"),
        (
            |summary| {
                let launch = &mut of_kernels(summary).next().unwrap().launches[0];
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
    case.write("two.evidence", read(WHOLE).encode());
    assert!(page(&both).concat().contains("two.evidence is a whole file"));
    case.write("two.evidence", "{}\n{}\n");
    assert!(page(&both).concat().contains("two.evidence: it is not evidence"));

    let committed = root().join("docs/evidence");
    assert_eq!(wrong(&committed), [""; 0]);
    let count = names_in(&committed).iter().filter(|name| name.ends_with(".evidence")).count();
    skipped(count == 0, "no chip's evidence is committed yet");
}
