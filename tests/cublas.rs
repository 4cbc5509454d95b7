//! GEMMs by cuBLASLt: over stand-ins for it and for the driver, and on a GPU with the real ones.
//!
//! The stand-in computes GEMMs on the host, by the page of cublasLt.h; kernels of the bundle do nothing there.

use std::collections::BTreeSet;

use precast::inputs::data::MicroBatch;
use precast::options::DeviceChoice;
use precast_kernels::{Addend, KERNELS, abi::micro_scalars, check::Case};
use precast_plan::Gemm;
use precast_runtime::Launches;
use precast_runtime::cublas::Cublas;
use precast_runtime::cuda::Cuda;
use precast_runtime::sim::{Faults, Sim};
use precast_runtime::{Bound, BoundExchange, BoundGemm, BoundWork, Driver, Launcher, Memory, Placement};

use crate::driver::{Machine, machine};
use crate::support::prelude::*;
use crate::support::{self, Texts, build_cublas, build_nccl, build_shim};

/// A GB10 with cuBLASLt, and what a run takes.
fn machine_with_cublas(variables: &[(&'static str, &'static str)]) -> Machine {
    let machine = machine(variables).equipped();
    build_cublas(machine.path());
    machine
}

/// Two steps of two micro-batches.
fn distill(machine: &Machine, arguments: impl Texts) -> Command {
    let files = "distill --teacher model --student model --data data.bin --bundle sm_121.bundle --allow-identical";
    let shape = "--steps 2 --batch-size 2 --seq-len 16 --grad-accum 2 --precision bf16 --lr 1e-9 --out out";
    let mut command = machine.line([files, shape, "--device cuda:0"]);
    command.with(arguments);
    command
}

/// Runs the command over its result under a shim, which writes the driver's calls to `log`.
fn watched(machine: &Machine, gemm: &str) -> Command {
    let mut command = distill(machine, ["--overwrite --gemm", gemm]);
    command.env("LD_PRELOAD", build_shim(machine.path())).env("PRECAST_SHIM_LOG", machine.path().join("log"));
    command
}

/// Lines of a log before and after the first launch of a graph, each by its first word.
fn calls(machine: &Machine) -> [Vec<String>; 2] {
    let lines: Vec<String> = machine.text("log").lines().map(str::to_owned).collect();
    let first = lines.iter().position(|line| line == "launch").expect("graphs are launched");
    [lines[..first].to_vec(), lines[first..].to_vec()]
}

fn count(lines: &[String], what: &str) -> usize {
    lines.iter().filter(|line| *line == what).count()
}

fn loads(record: &Value) -> BTreeSet<String> {
    let [keys, variants] = ["key", "variant"].map(|field| each::<String>(&record["loads"], field));
    keys.iter().zip(variants).map(|(key, variant)| format!("{key}[{variant}]")).collect()
}

#[test]
fn a_run_needs_no_kernels_of_gemms_that_cublas_computes() {
    skip_if!(has_driver());
    let gb10 = machine_with_cublas(&[]);
    let run = |gemm: &str| {
        let printed = watched(&gb10, gemm).succeeds();
        let seen = calls(&gb10);
        fs::remove_file(gb10.path().join("log")).unwrap();
        (printed, run_record(&gb10.path().join("out")), seen)
    };
    let (_, by_bundle, [before, after]) = run("bundle");
    assert_eq!(count(&before, "load"), loads(&by_bundle).len());
    assert_eq!([count(&after, "load"), count(&after, "function"), count(&before, "kernel")], [0; 3]);
    assert_eq!(by_bundle["cublas"], Value::Null);

    let (printed, by_cublas, [before, after]) = run("cublas");
    // Those of GEMMs drop out, and no other.
    let gemms = |pair: &&String| pair.starts_with("gemm.");
    let replaced: BTreeSet<String> = loads(&by_bundle).iter().filter(gemms).cloned().collect();
    let rest: BTreeSet<String> = loads(&by_bundle).difference(&replaced).cloned().collect();
    assert_eq!(loads(&by_cublas), rest);
    assert!(replaced.len() >= 4, "{replaced:?}");
    // Seen from outside: more loads than the program's own, all before its first launch.
    let of_library = count(&before, "load") - rest.len();
    assert!(of_library > 4, "{of_library} loads of cuBLASLt");
    assert!(count(&before, "kernel") > 4, "each GEMM is run once before the seal");
    assert_eq!([count(&after, "load"), count(&after, "function"), count(&after, "poison")], [0; 3]);
    assert_eq!(count(&after, "kernel"), 0);
    assert!(printed.contains("GEMMs    cuBLASLt 13.0.2"), "{printed}");
    assert_eq!(by_cublas["cublas"]["version"], "13.0.2");
    assert_eq!(by_cublas["config"]["gemm"], "cublas");

    // And so does `plan`, where there is no library.
    let plan = "plan --json --arch sm_121 --batch-size 2 --seq-len 16 --gemm cublas --teacher model --student model";
    let plan = precast().with(plan).current_dir(gb10.path()).json();
    let listed: Vec<String> = list(&plan["cublas"]["in_place_of"]);
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), replaced);
}

#[test]
fn a_load_after_the_seal_is_seen_whoever_loads() {
    skip_if!(has_driver());
    let late = machine_with_cublas(&[("PRECAST_FAKE_CUBLAS_LATE", "1")]);
    watched(&late, "cublas").fails(4, "(700)");
    let [before, after] = calls(&late);
    assert!(count(&before, "load") > 4 && count(&before, "poison") == 0);
    assert_eq!([count(&after, "load"), count(&after, "poison")], [1, 1]);
}

#[test]
fn a_library_that_cannot_be_used_ends_the_start_with_its_remedy() {
    skip_if!(has_driver());
    let without = machine(&[]).equipped();
    let by_cublas = |machine: &Machine, (name, value): (&str, &str)| {
        let mut command = distill(machine, "--gemm cublas");
        command.env(name, value);
        command
    };
    let none = ("PRECAST_NOTHING", "");
    let said = [
        "there is no libcublasLt.so.13",
        "on the library path: libcublasLt.so.13: cannot open shared object file",
        "/usr/local/cuda/lib64",
        "PRECAST_CUBLAS=DIR",
    ];
    by_cublas(&without, none).fails(3, said);
    let message = by_cublas(&without, ("PRECAST_CUBLAS", "/nowhere")).fails(3, "/nowhere/libcublasLt.so.13: not there");
    assert!(!message.contains("library path"), "{message}");
    fs::write(without.path().join("libcublasLt.so.12"), "").unwrap();
    by_cublas(&without, none).fails(3, "but libcublasLt.so.12, which is too old");
    let no_library = without.path().join("libcublasLt.so.13");
    fs::write(&no_library, "").unwrap();
    by_cublas(&without, ("PRECAST_CUBLAS", no_library.to_str().unwrap())).fails(3, "libcublasLt.so.13: file too short");

    let found = machine_with_cublas(&[]);
    for (number, said) in
        [("120901", "cuBLASLt 12.9.1, which is too old"), ("140000", "cuBLASLt 14.0.0, which is too new")]
    {
        by_cublas(&found, ("PRECAST_FAKE_CUBLAS", number)).fails(3, [said, "from 13.0 on and below 14"]);
    }
    by_cublas(&found, ("CUBLAS_EMULATE_SINGLE_PRECISION", "1")).fails(3, "CUBLAS_EMULATE_SINGLE_PRECISION=1 is set");
    for machine in [&without, &found] {
        assert!(!machine.has("out") || names_in(&machine.path().join("out")).is_empty());
    }

    // The simulated GPU executes references, and says so.
    for command in ["distill --allow-identical --data data.bin --out out", "plan", "bench step"] {
        let models = "--gemm cublas --device sim --teacher model --student model";
        let mut simulated = precast();
        simulated.with([command, models]).current_dir(found.path());
        simulated.fails(2, "the simulated GPU executes references, and no library");
    }
}

#[test]
fn doctor_says_which_cublas_a_run_would_use() {
    skip_if!(has_driver());
    let found = machine_with_cublas(&[]);
    let doctor = |version: &str| {
        let mut doctor = found.line("doctor --device cuda:0 --gemm cublas --bundle sm_121.bundle");
        doctor.env("PRECAST_FAKE_CUBLAS", version).ends()
    };
    let (code, printed, _) = doctor("130002");
    assert!(code == Some(0) && printed.contains("ok   GEMMs      cuBLASLt 13.0.2"), "{printed}");
    let (code, printed, _) = doctor("140000");
    assert!(code == Some(3) && printed.contains("BAD  GEMMs ") && printed.contains("too new"), "{printed}");
}

#[test]
fn a_run_does_not_continue_with_gemms_of_another_hand() {
    skip_if!(has_driver());
    let gb10 = machine_with_cublas(&[]);
    distill(&gb10, "--gemm cublas --checkpoint-every 1").succeeds();
    let resume = |gemm: &str, version: &str| {
        let mut command = distill(&gb10, ["--checkpoint-every 1 --resume --steps 3 --gemm", gemm]);
        command.env("PRECAST_FAKE_CUBLAS", version);
        command
    };
    resume("bundle", "130002").fails(2, ["gemm was cublas, is bundle", "cuBLASLt was 13.0.2, is none"]);
    resume("cublas", "130101").fails(2, "cuBLASLt was 13.0.2, is 13.1.1");
    resume("cublas", "130002").succeeds();
}

#[test]
fn a_step_whose_gemms_a_library_computes_is_the_same_step() {
    let case = support::Case::new(17);
    let results = Gemm::ALL.map(|gemm| {
        let config = config(&case.teacher, &case.student, |options| {
            options.arithmetic.gemm = gemm;
            options.target.device = DeviceChoice::Sim;
            options.target.kernels.bundle = None;
        });
        // Whoever is to compute them, the simulated GPU executes references. What the library reads besides it checks.
        let mut session = session_on(Box::new(Sim::new(Faults::default())), &config, Placement::Arena);
        let mut losses = Vec::new();
        for step in 0..2 {
            for micro in 0..2u32 {
                let rows = [[step as u32 + micro; 17], [5 + micro; 17]];
                let batch = MicroBatch::new(&[&rows[0], &rows[1]], 16);
                session.micro(&batch, 1.0 / 64.0, micro as usize).unwrap();
            }
            let ticket = session.update(step, 1e-3).unwrap();
            losses.push(session.metrics(ticket).unwrap().0.grad_norm.to_bits());
        }
        let [(.., masters), ..] = session.state();
        let weights: Vec<Vec<u8>> = masters.iter().map(|(_, piece)| session.read(*piece).unwrap()).collect();
        (losses, weights, session.plan.plan.cublas_gemms().count() > 0)
    });
    let [(losses, weights, _), (own_losses, own_weights, by_library)] = results;
    assert!(by_library && losses == own_losses && weights == own_weights);
}

#[test]
fn gemms_are_those_of_the_references() {
    if is_sim() {
        skip_if!(has_driver());
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.with("cublas::gemms_child --exact --ignored --nocapture");
        machine_with_cublas(&[]).run(&mut child).prints("GEMMs are those of the references");
    } else if !skipped(Cublas::open().is_err(), "this machine has no cuBLASLt") {
        check_gemms();
    }
}

#[test]
#[ignore = "the process with stand-ins: gemms_are_those_of_the_references starts it"]
fn gemms_child() {
    check_gemms();
    println!("GEMMs are those of the references");
}

/// NCCL connects when an exchange is prepared, beside GEMMs.
#[test]
fn what_the_library_takes_is_told_from_what_ranks_take() {
    skip_if!(has_driver());
    let card = machine_with_cublas(&[("PRECAST_FAKE_INTEGRATED", "0")]);
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.with("cublas::memory_child --exact --ignored --nocapture");
    child.env("PRECAST_NCCL", build_nccl(card.path())).env("PRECAST_EXCHANGE", "nccl");
    let printed = card.run(&mut child).succeeds();
    // One for itself and one for its first GEMM.
    assert!(printed.contains("taken by cuBLASLt: 2 MiB of 18"), "{printed}");
}

#[test]
#[ignore = "the process with stand-ins: what_the_library_takes_is_told_from_what_ranks_take starts it"]
fn memory_child() {
    const OPERAND_BYTES: u64 = 2 << 20;
    let mut driver = Cuda::open(0, Launches::Own, &[], &KERNELS).unwrap();
    driver.connect(0, 1, Box::new(|own| Ok(vec![own.to_vec()]))).unwrap();
    let (memory, free) = (driver.allocate(32 << 20).unwrap(), driver.free_bytes().unwrap());
    driver.set_cublas(Cublas::open().unwrap()).unwrap();
    driver.connect_ranks().unwrap();
    let key = KERNELS.examples().into_iter().find(|key| key.op() == "gemm.dgrad").unwrap();
    let mut params = key.kernel().samples().remove(0);
    let operands = key.kernel().operands(&params);
    for (index, operand) in (0..).zip(&operands) {
        assert!(operand.bytes() <= OPERAND_BYTES);
        let address: u64 = memory + index * OPERAND_BYTES;
        params[operand.offset..operand.offset + 8].copy_from_slice(&address.to_ne_bytes());
    }
    let workspace = (memory + (16 << 20), 16 << 20);
    let gemm = BoundWork::Gemm(BoundGemm { key, params, workspace, factors: None });
    let exchange = BoundWork::Exchange(BoundExchange { sends: Vec::new(), receives: Vec::new() });
    let bound = |(label, work): (&str, BoundWork)| Bound { label: label.to_owned(), work, dependencies: Vec::new() };
    driver.prepare(&[("gemm", gemm), ("exchange", exchange)].map(bound)).unwrap();
    let [by_cublas, by_all] =
        [driver.cublas().unwrap().taken_bytes, free - driver.free_bytes().unwrap()].map(|bytes| bytes >> 20);
    println!("taken by cuBLASLt: {by_cublas} MiB of {by_all}");
}

/// Every GEMM of the samples by cuBLASLt, prepared once and run as the first micro-batch of a step and as a later one.
fn check_gemms() {
    let mut driver = Cuda::open(0, Launches::Own, &[], &KERNELS).unwrap();
    driver.set_cublas(Cublas::open().unwrap()).unwrap();
    const OPERAND_BYTES: u64 = 2 << 20;
    const WORKSPACE_BYTES: u64 = 32 << 20;
    let memory = driver.allocate(8 * OPERAND_BYTES + WORKSPACE_BYTES).unwrap();
    driver.stage(OPERAND_BYTES).unwrap();
    let at = |index: usize| memory + index as u64 * OPERAND_BYTES;
    let (factors, workspace) = (at(7), (at(8), WORKSPACE_BYTES));
    let mut checked = BTreeSet::new();
    // All before the first is run: nothing is loaded after that.
    let mut prepared = Vec::new();
    for key in KERNELS.examples() {
        for (sample, params) in key.kernel().samples().into_iter().enumerate() {
            let Some(gemm) = key.kernel().blas_gemm(&params) else { continue };
            let case = Case::new(&key, &params, sample as u64);
            let mut params = params.clone();
            for (index, operand) in case.operands.iter().enumerate() {
                assert!(index < 7 && operand.bytes() <= OPERAND_BYTES);
                params[operand.offset..operand.offset + 8].copy_from_slice(&at(index).to_ne_bytes());
            }
            let factors = matches!(gemm.addend, Addend::Accumulated(_)).then_some(factors);
            let bound = BoundGemm { key: key.clone(), params, workspace, factors };
            let label = format!("{key} {sample}");
            let graph =
                driver.prepare(&[Bound { label, work: BoundWork::Gemm(bound), dependencies: Vec::new() }]).unwrap();
            prepared.push((key.clone(), sample, gemm, case, graph));
        }
    }
    for (key, sample, gemm, case, graph) in prepared {
        for accumulate in [0u32, 1] {
            let mut case = Case::new(&key, &case.params, sample as u64);
            for (operand, before) in case.operands.iter().zip(&mut case.before) {
                if operand.name == "micro" {
                    let micro = micro_scalars { loss_scale: 1.0, accumulate };
                    before.copy_from_slice(bytemuck::bytes_of(&micro));
                }
            }
            for (index, before) in case.before.iter().enumerate() {
                driver.write(at(index), before).unwrap();
            }
            driver.write(at(7), bytemuck::cast_slice(&[1.0f32, accumulate as f32])).unwrap();
            driver.run(graph).unwrap();
            let reference = case.reference();
            for (index, operand) in case.operands.iter().enumerate() {
                let scratch = ["workspace", "semaphores"].contains(&operand.name);
                if scratch || !operand.access.is_output() {
                    continue;
                }
                let ticket = driver.read(at(index), operand.bytes()).unwrap();
                let found = driver.wait(ticket).unwrap().bytes;
                let compared = case.compare(operand, &found, &reference[index]);
                compared.unwrap_or_else(|wrong| panic!("sample {sample}, accumulate {accumulate}: {wrong}"));
            }
            checked.insert((key.op(), accumulate, gemm.bias.is_some(), matches!(gemm.addend, Addend::Matrix(_))));
        }
    }
    let ops: BTreeSet<&str> = checked.iter().map(|(op, ..)| *op).collect();
    assert_eq!(ops.into_iter().collect::<Vec<_>>(), ["gemm.dgrad", "gemm.fwd", "gemm.wgrad"]);
    assert!(checked.contains(&("gemm.fwd", 0, true, true)) && checked.contains(&("gemm.wgrad", 1, false, false)));
}
