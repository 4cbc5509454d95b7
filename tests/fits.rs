//! A command seals exactly where its memory is enough, and a plan says so before it: by the byte, on a card's own
//! memory and on one that it shares with the host.

use precast::device::memory::KERNELS_BYTES;

use crate::driver::{Machine, machine};
use crate::support::prelude::*;

const MIB: u64 = 1 << 20;
/// Left to the system of a memory of 8 GiB that is shared.
const RESERVE_MIB: u64 = 512;

const SHAPE: &str = "--data data.bin --batch-size 2 --seq-len 16";
const DISTILL: &str = "--teacher model --student model --allow-identical";

/// A command line on a machine of which so many MiB can be taken, and whose kernels are their references.
fn with(machine: &Machine, is_shared: bool, mib: u64, line: &[&str]) -> Command {
    let mut command = precast();
    command.with(line.join(" ")).current_dir(machine.path());
    let mut command = machine.computes(&mut command, &machine.path().join("sm_121.bundle"));
    if is_shared {
        let available = 1024 * (mib + RESERVE_MIB);
        let meminfo = format!("MemTotal: 8388608 kB\nMemFree: 65536 kB\nMemAvailable: {available} kB\n");
        fs::write(machine.path().join("proc/meminfo"), meminfo).unwrap();
    } else {
        command.env("PRECAST_FAKE_FREE_MIB", mib.to_string());
    }
    command
}

/// Returns the bytes that a command needs, by its refusal where nothing is free.
fn needs(machine: &Machine, is_shared: bool, line: &[&str]) -> u64 {
    number_after("it needs ", &with(machine, is_shared, 0, line).fails(4, ""))
}

fn seals(machine: &Machine, is_shared: bool, mib: u64, line: &[&str]) -> bool {
    let (code, _, said) = with(machine, is_shared, mib, line).ends();
    assert!(matches!(code, Some(0 | 1 | 4)), "{line:?} with {mib} MiB: {said}");
    assert_eq!(code == Some(4), said.contains("it needs "), "{line:?} with {mib} MiB: {said}");
    code != Some(4)
}

fn compare(is_shared: bool, variables: &[(&'static str, &'static str)], lines: &[(Vec<&str>, Vec<&str>)]) {
    skip_if!(has_driver() || lacks_compiler());
    let machine = machine(variables).equipped();
    let prompts = (0..64).map(|index| format!("{{\"input_ids\": [{}, 2, 3]}}\n", index % 90)).collect::<String>();
    fs::write(machine.path().join("prompts.jsonl"), prompts).unwrap();
    for (run, plan) in lines {
        let run: Vec<&str> = run.iter().copied().chain(["--out out"]).collect();
        let least = needs(&machine, is_shared, &run).div_ceil(MIB);
        for mib in [least - 1, least] {
            assert_eq!(seals(&machine, is_shared, mib, &run), mib == least, "{run:?} with {mib} MiB");
            if !plan.is_empty() {
                let (code, said, _) = with(&machine, is_shared, mib, plan).ends();
                assert_eq!(code == Some(0), mib == least, "{plan:?} with {mib} MiB: {said}");
            }
            let out = machine.path().join("out");
            let _ = fs::remove_dir_all(&out).or_else(|_| fs::remove_file(&out));
        }
    }
}

fn of_training() -> Vec<(Vec<&'static str>, Vec<&'static str>)> {
    vec![
        (vec!["train --model model --steps 1", SHAPE], vec!["plan --model model", SHAPE]),
        (vec!["distill --steps 1", DISTILL, SHAPE], vec!["plan", DISTILL, SHAPE]),
    ]
}

fn of_generation() -> (Vec<&'static str>, Vec<&'static str>) {
    let slots = "--model model --slots 64 --seq-len 64 --precision bf16 --device cuda:0";
    // A slot is as long as the longest row takes.
    (vec!["generate --max-tokens 61 --data prompts.jsonl", slots], vec!["plan generate", slots])
}

#[test]
fn a_plan_fits_where_a_run_seals_on_a_memory_of_its_own() {
    let mut lines = of_training();
    lines.push((vec!["train --model model --steps 1 --gpus 2 --grad-accum 2", SHAPE], vec![]));
    lines.push(of_generation());
    compare(false, &[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_GPUS", "2")], &lines);
}

#[test]
fn a_plan_fits_where_a_run_seals_on_a_memory_that_the_host_shares() {
    compare(true, &[], &of_training());
}

#[test]
fn an_evaluation_and_a_cache_take_the_memory_that_there_is() {
    skip_if!(has_driver() || lacks_compiler());
    let machine = machine(&[("PRECAST_FAKE_INTEGRATED", "0")]).equipped();
    let eval = ["eval --model model --data data.bin --batch-size 2 --device cuda:0"];
    let least = needs(&machine, false, &eval).div_ceil(MIB);
    assert!(!seals(&machine, false, least - 1, &eval) && seals(&machine, false, least, &eval));
    // A teacher that does not fit is swept.
    let cache = ["cache --teacher model --out cache --dry-run", SHAPE];
    let (_, forecast, _) = with(&machine, false, 4000, &[&cache[..], &["--json"]].concat()).ends();
    let forecast: Value = serde_json::from_str(&forecast).unwrap();
    let bytes = forecast["memory"]["total_bytes"].as_u64().unwrap() + KERNELS_BYTES;
    for (mib, is_swept) in [(bytes.div_ceil(MIB) - 1, true), (bytes.div_ceil(MIB), false)] {
        let (_, _, said) = with(&machine, false, mib, &cache).ends();
        assert_eq!(said.contains("it is swept through") || said.contains("two of its layers"), is_swept, "{said}");
    }
}
