//! Machines on which host and device have one memory, under a stand-in for `libcuda` that answers as a GB10 does: what a run
//! takes of both is known before anything is uploaded, and no weights come from a mapped file.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::checkpoint::{Access, Checkpoint, PART_ELEMENTS, Scratch, Weights};
use precast_kernels::{Block, Dtype, Format};
use precast_plan::memory::human_bytes;
use precast_plan::{Formats, ModelConfig, Parameters, Precision};
use precast_runtime::STAGE_BYTES;
use precast_runtime::cuda::STAGE_SLOTS;
use precast_system::files::Existing;

use crate::driver::{Machine, machine, sm_121};
use crate::gguf;
use crate::support::{
    fail, has_driver, model_config, precast, precast_aot, random_model, root, skipped, succeed, texts, tiny_config,
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
    let kernels = sm_121(dir);
    Gb10 { model, kernels, data, machine }
}

impl Gb10 {
    /// A run on the machine while so much of its memory is available; what the driver is asked goes to `log`.
    fn train(&self, available_mib: u64, out: &str) -> Command {
        let mut train = precast();
        train.arg("train").arg("--model").arg(&self.model).arg("--bundle").arg(&self.kernels);
        self.run(1024 * available_mib, &mut train, out)
    }

    /// A command that trains, in the same way.
    fn run(&self, available_kib: u64, command: &mut Command, out: &str) -> Command {
        let proc = self.machine.path().join("proc");
        fs::create_dir_all(&proc).unwrap();
        let meminfo = format!("MemTotal: 8388608 kB\nMemFree: 65536 kB\nMemAvailable: {available_kib} kB\n");
        fs::write(proc.join("meminfo"), meminfo).unwrap();
        fs::write(proc.join("buddyinfo"), "Node 0, zone   Normal   9000 10 0 0 0 0 0 0 0 1 0\n").unwrap();
        let _ = fs::remove_file(self.log());
        command.args(["--device", "cuda:0", "--steps", "2", "--batch-size", "2", "--seq-len", "16", "--data"]);
        command.arg(&self.data).arg("--out").arg(self.machine.path().join(out));
        command.env("PRECAST_PROC", proc).env("PRECAST_LIBCUDA_LOG", self.log()).env("PRECAST_FAKE_LOG_MEMORY", "1");
        self.machine.run(command)
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
    let (needed, free) = (number("this run needs ", &message), number("shares with the host, and ", &message));
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

/// The number that follows some text in a message.
fn number(after: &str, message: &str) -> u64 {
    let (_, rest) = message.split_once(after).unwrap_or_else(|| panic!("no {after} in {message}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Arena and pinned memory are taken of one memory, which ends at each byte that could end the taking of one of them.
#[test]
fn memory_that_ends_all_the_same_ends_the_start() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    let with_limit =
        |bytes: u64| gb10.train(6000, "out").env("PRECAST_FAKE_ALLOC_BYTES", bytes.to_string()).output().unwrap();
    assert!(matches!(with_limit(1 << 40).status.code(), Some(0 | 1)));
    let arena = gb10.calls().iter().find_map(|call| call.strip_prefix("alloc ")?.parse::<u64>().ok()).unwrap();
    fs::remove_dir_all(gb10.machine.path().join("out")).unwrap();
    let on_device =
        [0, arena - 1].map(|bytes| (bytes, format!("error: out of device memory: {arena} bytes requested, ")));
    let on_host = (0..STAGE_SLOTS as u64).map(|slot| {
        let said = format!(
            "error: out of host memory: {STAGE_BYTES} bytes of pinned memory requested beside {} that",
            slot * STAGE_BYTES
        );
        (arena + (slot + 1) * STAGE_BYTES - 1, said)
    });
    for (bytes, said) in on_device.into_iter().chain(on_host) {
        let output = with_limit(bytes);
        let (_, message) = texts(&output);
        assert_eq!(output.status.code(), Some(4), "{bytes}: {message}");
        let remedied =
            !said.contains("host") || message.contains(" available. End other programs, or raise the memory limit");
        assert!(message.contains(&said) && remedied, "{bytes}: {message}");
        assert!(!gb10.calls().iter().any(|call| call == "write"), "{bytes}");
        assert!(!gb10.machine.path().join("out/run.json").exists(), "{bytes}");
    }
    assert!(matches!(with_limit(arena + STAGE_SLOTS as u64 * STAGE_BYTES).status.code(), Some(0 | 1)));
}

/// What the driver keeps itself, code and graphs, comes of the same memory.
#[test]
fn a_driver_without_memory_for_its_own_ends_the_start_with_a_remedy() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "4000")]);
    for (call, what, remedy) in [
        ("cuLibraryLoadData", " bytes of code, and 4194304000 bytes are free", "End other programs on this GPU"),
        ("cuGraphInstantiate", " launches, and 41", "a smaller --batch-size or --seq-len, or --recompute blocks"),
        ("cuGraphUpload", " launches, and 41", "a smaller --batch-size or --seq-len, or --recompute blocks"),
    ] {
        let message = fail(gb10.train(6000, "out").env("PRECAST_FAKE_FULL", call), 4);
        assert!(message.contains("out of device memory: the driver cannot "), "{call}: {message}");
        assert!(message.contains(what) && message.contains(remedy), "{call}: {message}");
        assert!(!gb10.machine.path().join("out/run.json").exists(), "{call}");
    }
}

#[test]
fn memory_is_taken_as_it_is_asked_for_and_said() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    for (kind, call, taken) in [("managed", "cuMemAllocManaged", "managed "), ("device", "cuMemAlloc", "alloc ")] {
        let (ran, said) = gb10.runs(gb10.train(6000, kind).env("PRECAST_MEMORY", kind));
        let note = format!("note: PRECAST_MEMORY={kind}: device memory is taken by {call}\n");
        assert!(ran && said.contains(&note), "{said}");
        assert!(gb10.calls().iter().any(|call| call.starts_with(taken)));
    }
}

/// What the host takes is not there for weights, which `auto` and `doctor` know as the run does.
#[test]
fn auto_keeps_weights_as_stored_where_the_host_leaves_no_room_for_others() {
    if has_driver() {
        return;
    }
    let gb10 = gb10(&[]);
    let dir = gb10.machine.path();
    let config = tiny_config(&[("intermediate_size", 64.into()), ("num_hidden_layers", 24.into())]);
    let config = ModelConfig::from_json(&config.to_string()).unwrap();
    let teacher = gguf::write(dir, "teacher.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
    let distill = |available_kib: u64, format: &str, out: &str| {
        let mut distill = precast();
        distill
            .args(["distill", "--teacher-format", format, "--teacher"])
            .arg(&teacher)
            .arg("--student")
            .arg(&gb10.model);
        gb10.run(available_kib, distill.arg("--bundle").arg(&gb10.kernels), out)
    };
    let needed = |format| {
        let (_, message) = texts(&distill(600 << 10, format, "none").output().unwrap());
        number("this run needs ", &message)
    };
    let (bf16, stored) = (needed("bf16"), needed("stored"));
    let available_kib = (512 << 10) + stored.div_ceil(1024);
    assert!(bf16.div_ceil(1024) > available_kib - (512 << 10), "{bf16} {stored}");
    assert_eq!(distill(available_kib, "bf16", "none").output().unwrap().status.code(), Some(4));
    let (ran, said) = gb10.runs(&mut distill(available_kib, "auto", "out"));
    assert!(
        ran && said.contains("note: --teacher-format auto is stored: ") && said.contains("more on the host"),
        "{said}"
    );
    // Where neither fits, both are said, and what the host takes.
    let output = distill(available_kib - 1024, "auto", "none").output().unwrap();
    let (_, message) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("in neither form") && message.contains(" for the host, which shares it"), "{message}");
    let of_host = number("for kernels and ", &message);
    // As `doctor` has it, of a machine with room.
    drop(gb10.train(6000, "unused"));
    let mut doctor = precast();
    doctor
        .args(["doctor", "--batch-size", "2", "--seq-len", "16", "--model"])
        .arg(&gb10.model)
        .arg("--data")
        .arg(&gb10.data);
    doctor.arg("--bundle").arg(&gb10.kernels).env("PRECAST_PROC", dir.join("proc"));
    let found = succeed(&mut gb10.machine.run(&mut doctor));
    assert!(found.contains(&format!("{} of it on the host", human_bytes(of_host))), "{found}");
}

/// A base that stays as it is may do so in the blocks of its file.
#[test]
fn a_run_of_an_adapter_that_does_not_fit_hears_of_stored_weights() {
    if has_driver() {
        return;
    }
    for card in [&[][..], &[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "0")]] {
        let gb10 = gb10(card);
        let config = tiny_config(&[("intermediate_size", 64.into())]);
        let config = ModelConfig::from_json(&config.to_string()).unwrap();
        let base = gguf::write(gb10.machine.path(), "base.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
        let message = |format: &[&str]| {
            let mut train = precast();
            train
                .args(["train", "--lora-rank", "4", "--model"])
                .arg(&base)
                .args(format)
                .arg("--bundle")
                .arg(&gb10.kernels);
            fail(&mut gb10.run(600 << 10, &mut train, "out"), 4)
        };
        assert!(message(&[]).contains("se --student-format stored, --recompute blocks"), "{}", message(&[]));
        assert!(!message(&["--student-format", "stored"]).contains("se --student-format"));
        // Of what trains, nothing is stored in blocks.
        let output = gb10.train(600, "out").output().unwrap();
        assert!(!texts(&output).1.contains("--student-format"));
    }
}

/// What a command takes of the host's memory at most, bytes.
fn peak_bytes(command: &Command, report: &Path) -> u64 {
    const MEASURE: &str = "import resource, subprocess, sys\n\
                           code = subprocess.call(sys.argv[2:])\n\
                           open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))\n\
                           sys.exit(code)";
    let mut measured = Command::new("python3");
    measured.args(["-c", MEASURE]).arg(report).arg(command.get_program()).args(command.get_args());
    measured.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = measured.output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{:?}", texts(&output));
    fs::read_to_string(report).unwrap().parse::<u64>().unwrap() * 1024
}

/// Upload, checkpoint, resume and result of a model that is larger than what the host may take, 302 MB in bf16, 272 of them in one
/// tensor: on a device whose memory is none of the host's, so that the host's part is seen alone. `PRECAST_TEST_MODEL_LAYERS=58`
/// makes it one of 2 GB, with 12 GB of checkpoints. Its kernels are those that the tests' trainer embeds, and compiled.
#[test]
fn the_host_takes_no_more_than_300_mb_however_large_a_model_is() {
    const MOST_BYTES: u64 = 300_000_000;
    if has_driver() {
        return;
    }
    let machine = machine(&[("PRECAST_FAKE_FORGETS", "1"), ("PRECAST_FAKE_TOTAL_GIB", "64")]);
    let dir = machine.path();
    let mut config: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(root().join("aot/models/qwen2.5-0.5b.json")).unwrap()).unwrap();
    let layers = std::env::var("PRECAST_TEST_MODEL_LAYERS").map_or(1, |layers| layers.parse::<u32>().unwrap());
    config["num_hidden_layers"] = layers.into();
    let (json, model, kernels) = (dir.join("config.json"), dir.join("model"), dir.join("sm_121.bundle"));
    fs::write(&json, config.to_string()).unwrap();
    precast::programs::init::random(&json, None, 1, Precision::Bf16, &model, Existing::Keep).unwrap();
    let model_bytes = fs::metadata(model.join("model.safetensors")).unwrap().len();
    assert!(model_bytes > MOST_BYTES, "{model_bytes}");
    succeed(precast_aot().args(["build", "--arch", "sm_121", "--model"]).arg(&json).arg("--out").arg(&kernels));
    let data = token_file(dir, "data.bin", 17 * 4, 96);
    fs::write(dir.join("proc/meminfo"), "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n").unwrap();
    for (steps, resume) in [("1", None), ("2", Some("--resume"))] {
        let mut train = precast();
        train.args(["train", "--device", "cuda:0", "--batch-size", "1", "--seq-len", "16", "--checkpoint-every", "1"]);
        train.args(["--keep", "1", "--steps", steps, "--model"]).arg(&model).arg("--data").arg(&data);
        train.arg("--bundle").arg(&kernels).arg("--out").arg(dir.join("out")).args(resume);
        let bytes = peak_bytes(&machine.run(&mut train), &dir.join("peak"));
        println!("{steps}: {bytes} bytes beside a model of {model_bytes}");
        assert!(bytes < MOST_BYTES, "{bytes}");
        assert!(
            dir.join("out/student/model.safetensors").exists() && dir.join(format!("out/checkpoint-{steps}")).exists()
        );
    }
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
            let stored = model.formats().of(&parameter.name).map(Format::Block);
            for format in [Some(Format::Dense(Dtype::Bf16)), stored].into_iter().flatten() {
                let whole = Weights::read(&model, &parameter, format, &mut Scratch::default()).unwrap().to_vec();
                let (mut parts, mut count) = (Vec::new(), 0);
                let mut take = |part: &[u8]| {
                    assert!(part.len() as u64 <= format.bytes(PART_ELEMENTS));
                    parts.extend_from_slice(part);
                    count += 1;
                    ControlFlow::Continue(())
                };
                model.read_parts(&parameter, format, &mut Scratch::of(Access::Direct), &mut take).unwrap();
                assert!(parts == whole, "{} {format}", parameter.name);
                most = most.max(count);
            }
        }
        assert!(most > 1, "no tensor is larger than a part");
    }
}
