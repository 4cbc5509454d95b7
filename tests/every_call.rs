//! Each call of the driver and its libraries fails once, in a run that trains, writes checkpoints and continues: the
//! run ends by a typed error that names the call, and goes on to the bits of a run that nothing disturbed. What a run
//! takes from the driver it gives back.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use crate::copies::Host;
use crate::support::prelude::*;
use crate::support::{build_cublas, build_nvml};

/// Calls that take something, and those that give it back.
const PAIRS: [(&[&str], &[&str]); 10] = [
    (&["cuDevicePrimaryCtxRetain"], &["cuDevicePrimaryCtxRelease_v2"]),
    (&["cuStreamCreate", "cuStreamCreateWithPriority"], &["cuStreamDestroy_v2"]),
    (&["cuEventCreate"], &["cuEventDestroy_v2"]),
    (&["cuGraphCreate", "cuStreamEndCapture"], &["cuGraphDestroy"]),
    (&["cuGraphInstantiateWithFlags"], &["cuGraphExecDestroy"]),
    (&["cuLibraryLoadData"], &["cuLibraryUnload"]),
    (&["cuMemAlloc_v2", "cuMemAllocAsync", "cuMemAllocManaged"], &["cuMemFree_v2"]),
    (&["cuMemHostAlloc"], &["cuMemFreeHost"]),
    (&["cublasLtCreate"], &["cublasLtDestroy"]),
    (&["nvmlInit_v2"], &["nvmlShutdown"]),
];

/// How often a function was called: by all processes of a run, by the busiest of them, and how often it failed.
#[derive(Default)]
pub struct Count {
    pub calls: u32,
    most: u32,
    faults: u32,
}

pub type Calls = BTreeMap<String, Count>;

/// Reads what a run called, and how often.
pub fn calls(path: &Path) -> Calls {
    let mut calls = Calls::new();
    for line in fs::read_to_string(path).unwrap_or_default().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [own, faults] = [words[1], words[2]].map(|word| word.parse::<u32>().unwrap());
        let count = calls.entry(words[0].to_owned()).or_default();
        (count.calls, count.most, count.faults) = (count.calls + own, count.most.max(own), count.faults + faults);
    }
    calls
}

/// Names what a run took more often than it tried to give it back.
fn kept(calls: &Calls) -> Vec<String> {
    let each = |names: &[&str]| names.iter().filter_map(|name| calls.get(*name)).collect::<Vec<_>>();
    let balance = |(taking, giving): &(&[&str], &[&str])| {
        let taken: u32 = each(taking).iter().map(|count| count.calls - count.faults).sum();
        let given: u32 = each(giving).iter().map(|count| count.calls).sum();
        (taken != given).then(|| format!("{taking:?} {taken}, {giving:?} {given}"))
    };
    PAIRS.iter().filter_map(balance).collect()
}

/// A run of two steps with a checkpoint behind each, and what it called.
struct Run<'a> {
    host: &'a Host,
    more: &'a str,
    /// `PRECAST_EXCHANGE`.
    exchange: &'a str,
}

impl Run<'_> {
    fn command(&self, out: &str, more: &str) -> Command {
        let shape = "--steps 2 --checkpoint-every 1 --grad-accum 2 --precision bf16";
        let mut command = self.host.distill(out, &format!("{shape} {} {more}", self.more));
        let calls = self.host.out(&format!("{out}.calls"));
        command.env("PRECAST_FAKE_CALLS", &calls).env("PRECAST_EXCHANGE", self.exchange);
        command
    }

    fn calls(&self, out: &str) -> Calls {
        calls(&self.host.out(&format!("{out}.calls")))
    }

    /// Lists what a run did not give back. A rank keeps what others may have open until its process ends, and a library
    /// what it loads and takes itself, even if it then refuses to start.
    fn kept(&self, calls: &Calls) -> Vec<String> {
        let left = ["cuDevicePrimaryCtxRetain", "cuMemAlloc_v2", "cuLibraryLoadData", "cublasLtCreate"];
        let is_left = |pair: &String| !self.more.is_empty() && left.iter().any(|call| pair.contains(call));
        let mut kept = kept(calls);
        kept.retain(|pair| !is_left(pair));
        kept
    }

    /// Says what is wrong with how a run ends whose call fails at one of its times.
    fn faults(&self, call: &str, at: u32, begun: Option<&str>) -> (String, Option<String>) {
        let out = format!("{call}-{at}-{}", begun.unwrap_or("new"));
        if let Some(begun) = begun {
            copy(&self.host.out(begun), &self.host.out(&out));
        }
        let start = begun.map_or("", |_| "--resume");
        let mut faulty = self.command(&out, start);
        let (code, _, said) = faulty.env("PRECAST_FAKE_FAULT", format!("{call}:{at}")).ends();
        let outcome = code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        let kept = self.kept(&self.calls(&out));
        let wrong = |what: &str| Some(format!("{call}, call {at}, {start}: {what}\n{said}"));
        let finished = code == Some(0);
        // With ranks and libraries the first to speak may be another, about what it was asked for.
        let name = if self.more.is_empty() { named(call) } else { "" };
        let mut lines = said.lines();
        let is_typed = finished || lines.any(|line| line.starts_with("error: ") && line.contains(name));
        if !is_typed || said.contains("panicked") || code.is_none() || code == Some(101) {
            return (outcome, wrong("no typed error of its name"));
        }
        if !kept.is_empty() {
            return (outcome, wrong(&format!("kept {kept:?}")));
        }
        if !finished {
            let directory = self.host.out(&out);
            let (code, _, more) = self.command(&out, continuation(&directory)).ends();
            if code != Some(0) {
                return (outcome, wrong(&format!("does not go on: {more}")));
            }
        }
        let same = self.host.case.results(&out) == self.host.case.results("whole");
        (outcome, if same { None } else { wrong("other results") })
    }
}

/// Returns the name that messages have for a function: without its version.
fn named(call: &str) -> &str {
    call.trim_end_matches("_v2").trim_end_matches("WithFlags")
}

/// Times at which a call fails: the first and the last, or each.
fn times(count: u32, more: &str) -> BTreeSet<u32> {
    if is_thorough() && more.is_empty() { (1..=count).collect() } else { [1, count].into() }
}

/// Checks each call of a run, and of its second half. Returns the exit codes, a call a line.
fn table(run: &Run<'_>) -> String {
    run.command("whole", "").succeeds();
    run.command("begun", "--steps 1").succeeds();
    copy(&run.host.out("begun"), &run.host.out("continued"));
    let whole = run.calls("whole");
    run.command("continued", "--resume").succeeds();
    let kept = run.kept(&whole);
    assert!(kept.is_empty(), "{kept:?}");
    let of = |out: &str, begun| {
        let calls = run.calls(out);
        let each = calls
            .into_iter()
            .flat_map(|(call, count)| times(count.most, run.more).into_iter().map(move |at| (call.clone(), at)));
        each.map(move |(call, at)| (call, at, begun)).collect::<Vec<_>>()
    };
    // Whoever continues calls what whoever begins does: once is enough.
    let mut all = of("whole", None);
    all.extend(of("continued", Some("begun")).into_iter().filter(|(_, at, _)| *at == 1));
    let found: Vec<_> = all.par_iter().map(|(call, at, begun)| (call, begun, run.faults(call, *at, *begun))).collect();
    let wrong: Vec<&str> = found.iter().filter_map(|(_, _, (_, wrong))| wrong.as_deref()).collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), found.len(), wrong.join("\n"));
    let mut codes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (call, _, (code, _)) in &found {
        // How often a GPU is read depends on the time that a run takes.
        if call.starts_with("nvml") {
            assert_eq!(code, "0", "{call}");
        } else {
            codes.entry(call.as_str()).or_default().insert(code.as_str());
        }
    }
    codes
        .into_iter()
        .map(|(call, codes)| format!("{call} {}\n", codes.into_iter().collect::<Vec<_>>().join(", ")))
        .collect()
}

#[test]
fn a_call_that_fails_once_ends_a_run_by_its_name_and_loses_nothing() {
    skip_if!(has_driver() || lacks_compiler());
    let host = Host::new(&[("PRECAST_FAKE_GPUS", "1"), ("PRECAST_FAKE_INTEGRATED", "0")]);
    build_nvml(host.machine.path());
    let table = table(&Run { host: &host, more: "", exchange: "copies" });
    // At each of its times a call may end a run otherwise than at the first and the last.
    if is_thorough() { println!("{table}") } else { insta::assert_snapshot!(table) }
}

/// With ranks, whose GPUs copy from each other or exchange by NCCL, and with cuBLASLt. Each rank has the fault.
#[test]
#[ignore = "takes minutes: cargo xtask ci"]
fn a_call_that_fails_once_in_each_rank_or_library_loses_nothing() {
    skip_if!(has_driver() || lacks_compiler());
    let ranks = "--gpus 2 --replicas 2";
    for (more, exchange) in [(ranks, "copies"), (ranks, "nccl"), ("--gemm cublas", "copies")] {
        let host = Host::new(&[("PRECAST_FAKE_GPUS", "2"), ("PRECAST_FAKE_INTEGRATED", "0")]);
        build_cublas(host.machine.path());
        println!("{more}, {exchange}\n{}", table(&Run { host: &host, more, exchange }));
    }
}
