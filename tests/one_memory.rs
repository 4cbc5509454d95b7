//! Machines on which host and device have one memory, under a stand-in for `libcuda` that answers as a GB10 does: what a run
//! takes of both is known before anything is uploaded, and no weights come from a mapped file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::Failure;
use precast::checkpoint::{Access, Checkpoint, PART_ELEMENTS, Scratch, Weights};
use precast_kernels::{Block, Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameters};

use crate::driver::{Machine, machine};
use crate::gguf;
use crate::support::{
    has_driver, model_config, names_in, precast, precast_aot, random_model, skipped, succeed, texts, tiny_config,
    token_file,
};

const MIB: u64 = 1 << 20;

/// A GB10 of 8 GiB whose driver counts all but 64 MiB as used, for the page cache holds it, and what a run needs of it.
struct Gb10 {
    machine: Machine,
    model: PathBuf,
    kernels: PathBuf,
    data: PathBuf,
}

fn gb10(variables: &[(&'static str, &'static str)]) -> Gb10 {
    let variables = [&[("PRECAST_FAKE_FREE_MIB", "64")], variables].concat();
    let machine = machine(&variables);
    let dir = machine.path();
    let model = random_model(dir, "model", 1, &tiny_config(&[]));
    let data = token_file(dir, "data.bin", 17 * 4, 96);
    let kernels = dir.join("sm_121.bundle");
    succeed(precast_aot().args(["build", "--arch", "sm_121", "--model"]).arg(&model).arg("--out").arg(&kernels));
    Gb10 { model, kernels, data, machine }
}

impl Gb10 {
    /// A run on the machine while so much of its memory is available; what the driver is asked goes to `log`.
    fn train(&self, available_mib: u64, out: &str) -> Command {
        let proc = self.machine.path().join("proc");
        fs::create_dir_all(&proc).unwrap();
        let kib = |mib: u64| mib * 1024;
        let meminfo =
            format!("MemTotal: {} kB\nMemFree: 65536 kB\nMemAvailable: {} kB\n", kib(8192), kib(available_mib));
        fs::write(proc.join("meminfo"), meminfo).unwrap();
        fs::write(proc.join("buddyinfo"), "Node 0, zone   Normal   9000 10 0 0 0 0 0 0 0 1 0\n").unwrap();
        let _ = fs::remove_file(self.log());
        let mut run = precast();
        run.args(["train", "--device", "cuda:0", "--steps", "2", "--batch-size", "2", "--seq-len", "16", "--model"]);
        run.arg(&self.model).arg("--data").arg(&self.data).arg("--bundle").arg(&self.kernels);
        run.arg("--out").arg(self.machine.path().join(out));
        run.env("PRECAST_PROC", proc).env("PRECAST_LIBCUDA_LOG", self.log()).env("PRECAST_FAKE_LOG_MEMORY", "1");
        self.machine.run(&mut run)
    }

    fn log(&self) -> PathBuf {
        self.machine.path().join("log")
    }

    /// The calls that take or write device memory.
    fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        log.lines().filter(|line| !["load", "launch"].contains(line)).map(str::to_owned).collect()
    }

    /// Whether a run comes to its end. Kernels of the stand-in do nothing, so its losses are 0: that is no training, and said.
    fn runs(&self, command: &mut Command) -> (bool, String) {
        let output = command.output().unwrap();
        let (_, stderr) = texts(&output);
        (output.status.success() || output.status.code() == Some(1), stderr)
    }
}

#[test]
fn a_run_that_fits_runs_though_the_driver_counts_the_page_cache_as_used() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    let (ran, said) = gb10.runs(&mut gb10.train(6000, "out"));
    assert!(ran && gb10.machine.path().join("out/metrics.jsonl").exists(), "{said}");
    let calls = gb10.calls();
    // One arena, by cuMemAlloc.
    assert_eq!(calls.iter().filter(|call| call.starts_with("alloc ")).count(), 1, "{calls:?}");
    assert!(calls.iter().any(|call| call == "write") && !calls.iter().any(|call| call.starts_with("managed")));
}

#[test]
fn a_run_that_does_not_fit_beside_the_host_is_refused_in_bytes_before_anything_is_taken() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    // 512 MiB stay with the system.
    let output = gb10.train(700, "out").output().unwrap();
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    let number = |after: &str| -> u64 {
        let (_, rest) = message.split_once(after).unwrap_or_else(|| panic!("no {after} in {message}"));
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    let (needed, free) = (number("this run needs "), number("shares with the host, and "));
    assert_eq!(free, 188 * MIB, "{message}");
    assert!(needed > free && needed < 400 * MIB, "{message}");
    for part in ["pinned slots for copies", "parts of a model's file", "parts of a checkpoint", "536870912 bytes stay"]
    {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(gb10.calls(), [""; 0]);
    // What was needed is enough.
    let (ran, said) = gb10.runs(&mut gb10.train(512 + needed.div_ceil(MIB), "enough"));
    assert!(ran && gb10.machine.path().join("enough/metrics.jsonl").exists(), "{said}");
    let output = gb10.train(512 + needed / MIB, "short").output().unwrap();
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_driver_that_runs_out_of_memory_all_the_same_ends_the_start() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[("PRECAST_FAKE_ALLOC_BYTES", "4096")]);
    let output = gb10.train(6000, "out").output().unwrap();
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("out of device memory"), "{message}");
    assert!(!gb10.calls().iter().any(|call| call == "write"));
    assert!(
        names_in(gb10.machine.path()).iter().all(|name| name != "out")
            || !gb10.machine.path().join("out/run.json").exists()
    );
}

#[test]
fn managed_memory_is_taken_where_it_is_asked_for_and_said() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[("PRECAST_MEMORY", "managed")]);
    let (ran, said) = gb10.runs(&mut gb10.train(6000, "out"));
    assert!(
        ran && said.contains("note: PRECAST_MEMORY=managed: device memory is taken by cuMemAllocManaged"),
        "{said}"
    );
    assert!(gb10.calls().iter().any(|call| call.starts_with("managed ")));
}

#[test]
fn doctor_says_how_the_one_memory_is_cut_up() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    let doctor = |gb10: &Gb10| {
        // Writes what /proc says.
        drop(gb10.train(6000, "unused"));
        let mut doctor = precast();
        doctor.args(["doctor", "--bundle"]).arg(&gb10.kernels);
        doctor.env("PRECAST_PROC", gb10.machine.path().join("proc"));
        succeed(&mut gb10.machine.run(&mut doctor))
    };
    let printed = doctor(&gb10);
    assert!(printed.contains("5.36 GiB of 8.00 GiB free"), "{printed}");
    assert!(printed.contains("fragments  5 % of the free memory") && printed.contains("compact_memory"), "{printed}");
}

/// Lines of `mmap` that name a file of the model.
fn mapped(command: &Command, model: &Path, trace: &Path) -> usize {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-qq", "-e", "trace=mmap", "-o"]).arg(trace).arg(command.get_program());
    strace.args(command.get_args());
    strace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = strace.output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", texts(&output));
    let text = fs::read_to_string(trace).unwrap();
    assert!(text.lines().count() > 10, "{text}");
    let weights = model.join("model.safetensors").display().to_string();
    text.lines().filter(|line| line.contains(&weights)).count()
}

#[test]
fn weights_are_mapped_on_a_card_of_its_own_memory_and_nowhere_else() {
    let strace = Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success());
    if has_driver() || skipped(!strace, "there is no strace") {
        return;
    }
    let one = gb10(&[]);
    let trace = one.machine.path().join("trace");
    assert_eq!(mapped(&one.train(6000, "out"), &one.model, &trace), 0);
    let card = gb10(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "8000")]);
    assert!(mapped(&card.train(6000, "out"), &card.model, &trace) > 0);
}

/// Rows that a part ends within, heads whose rows have to be put in order, blocks.
#[test]
fn parts_of_a_tensor_are_the_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = model_config("blocks");
    config["vocab_size"] = 17000.into();
    let config = ModelConfig::from_json(&config.to_string()).unwrap();
    for formats in [Formats::dense(), Formats::uniform(&config, Block::Q4_K)] {
        let path = gguf::write(dir.path(), "model.gguf", &config, &formats, 3);
        let model = Checkpoint::open(&path).unwrap();
        let mut most = 0;
        for parameter in Parameters::new(&config).list {
            let stored = Weights::formats(&model).of(&parameter.name).map(Format::Block);
            for format in [Some(Format::Dense(Dtype::Bf16)), stored].into_iter().flatten() {
                let whole = Weights::read(&model, &parameter, format, &mut Scratch::new()).unwrap().to_vec();
                let (mut parts, mut count) = (Vec::new(), 0);
                let mut take = |part: &[u8]| {
                    assert!(part.len() as u64 <= format.bytes(PART_ELEMENTS));
                    parts.extend_from_slice(part);
                    count += 1;
                    Ok::<_, Failure>(())
                };
                model.read_parts(&parameter, format, &mut Scratch::of(Access::Direct), &mut take).unwrap();
                assert!(parts == whole, "{} {format}", parameter.name);
                most = most.max(count);
            }
        }
        assert!(most > 1, "no tensor is larger than a part");
    }
}
