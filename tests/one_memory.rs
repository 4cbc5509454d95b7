//! Machines on which host and device have one memory, under a stand-in for `libcuda` that answers as a GB10 does: what
//! a run takes of both is known before anything is uploaded, and no weights come from a mapped file.

use std::ops::ControlFlow;

use precast::inputs::checkpoint::{Access, Checkpoint, PART_ELEMENTS, Scratch, Weights};
use precast_kernels::{Block, Dtype, Format};
use precast_plan::{Formats, Parameters, Precision, human_bytes};
use precast_runtime::STAGE_BYTES;
use precast_runtime::cuda::STAGE_SLOTS;
use precast_system::files::Existing;

use crate::driver::{Machine, machine};
use crate::gguf;
use crate::support::prelude::*;

const MIB: u64 = 1 << 20;

/// A GB10 of 8 GiB whose driver counts all but 64 MiB as used, for the page cache holds it.
struct Gb10(Machine);

fn gb10(variables: &[(&'static str, &'static str)]) -> Gb10 {
    Gb10(machine(&[&[("PRECAST_FAKE_FREE_MIB", "64")], variables].concat()).equipped())
}

const MODEL: &str = "train --model model";

impl Gb10 {
    /// A run on the machine while so much of its memory is available; what the driver is asked goes to `log`.
    fn train(&self, available_mib: u64, out: &str) -> Command {
        self.run(1024 * available_mib, &format!("{MODEL} --out {out}"))
    }

    /// A command line that trains, in the same way.
    fn run(&self, available_kib: u64, line: &str) -> Command {
        let meminfo = format!("MemTotal: 8388608 kB\nMemFree: 65536 kB\nMemAvailable: {available_kib} kB\n");
        fs::write(self.0.path().join("proc/meminfo"), meminfo).unwrap();
        let buddies = "Node 0, zone   Normal   9000 10 0 0 0 0 0 0 0 1 0\n";
        fs::write(self.0.path().join("proc/buddyinfo"), buddies).unwrap();
        let log = self.0.path().join("log");
        let _ = fs::remove_file(&log);
        let files = "--bundle sm_121.bundle --data data.bin --device cuda:0 --steps 2 --batch-size 2 --seq-len 16";
        let mut run = self.0.line([line, files]);
        run.env("PRECAST_LIBCUDA_LOG", log).env("PRECAST_FAKE_LOG_MEMORY", "1");
        run
    }

    /// The calls that take or write device memory.
    fn calls(&self) -> Vec<String> {
        let log = fs::read_to_string(self.0.path().join("log")).unwrap_or_default();
        log.lines().filter(|line| !["load", "launch"].contains(line)).map(str::to_owned).collect()
    }
}

/// A run that comes to its end. Kernels of the stand-in do nothing, so its losses are 0: that is no training, and said.
fn runs(command: &mut Command) -> String {
    let (code, _, stderr) = command.ends();
    assert!(matches!(code, Some(0 | 1)), "{stderr}");
    stderr
}

#[test]
fn a_run_fits_though_the_driver_counts_the_page_cache_as_used() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    runs(&mut gb10.train(6000, "out"));
    assert!(gb10.0.has("out/metrics.jsonl"));
    let calls = gb10.calls();
    // One arena, by cuMemAlloc.
    assert_eq!(calls.iter().filter(|call| call.starts_with("alloc ")).count(), 1, "{calls:?}");
    assert!(calls.iter().any(|call| call == "write") && !calls.iter().any(|call| call.starts_with("managed")));
}

#[test]
fn a_run_that_does_not_fit_beside_the_host_is_refused_in_bytes() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    // 512 MiB stay with the system.
    let said = ["pinned slots for copies", "parts of a model's file", "parts of a checkpoint", "536870912 bytes stay"];
    let message = gb10.train(700, "out").fails(4, said);
    let (needed, free) = (number_after("it needs ", &message), number_after("(stand-in) has ", &message));
    assert_eq!(free, 188 * MIB, "{message}");
    assert!(needed > free && needed < 400 * MIB, "{message}");
    assert_eq!(gb10.calls(), [""; 0]);
    // What was needed is enough.
    runs(&mut gb10.train(512 + needed.div_ceil(MIB), "enough"));
    assert!(gb10.0.has("enough/metrics.jsonl"));
    gb10.train(512 + needed / MIB, "short").fails(4, "");
}

/// Arena and pinned memory are taken of one memory, which ends at each byte that could end the taking of one of them.
#[test]
fn memory_that_ends_all_the_same_ends_the_start() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    let with_limit = |bytes: u64| {
        let mut train = gb10.train(6000, "out");
        train.env("PRECAST_FAKE_ALLOC_BYTES", bytes.to_string());
        train
    };
    runs(&mut with_limit(1 << 40));
    let arena = gb10.calls().iter().find_map(|call| call.strip_prefix("alloc ")?.parse::<u64>().ok()).unwrap();
    fs::remove_dir_all(gb10.0.path().join("out")).unwrap();
    let on_device =
        [0, arena - 1].map(|bytes| (bytes, format!("error: out of device memory: {arena} bytes requested, ")));
    let on_host = (0..STAGE_SLOTS as u64).map(|slot| {
        let pinned = format!("{STAGE_BYTES} bytes of pinned memory requested beside {} that", slot * STAGE_BYTES);
        (arena + (slot + 1) * STAGE_BYTES - 1, format!("error: out of host memory: {pinned}"))
    });
    for (bytes, said) in on_device.into_iter().chain(on_host) {
        let message = with_limit(bytes).fails(4, &said);
        let remedy = " available. End other programs, or raise the memory limit";
        assert!(!said.contains("host") || message.contains(remedy), "{bytes}: {message}");
        assert!(!gb10.calls().iter().any(|call| call == "write"), "{bytes}");
        assert!(!gb10.0.has("out/run.json"), "{bytes}");
    }
    runs(&mut with_limit(arena + STAGE_SLOTS as u64 * STAGE_BYTES));
}

/// What the driver keeps itself, code and graphs, comes of the same memory.
#[test]
fn a_driver_without_memory_ends_the_start_with_a_remedy() {
    skip_if!(has_driver());
    let gb10 = gb10(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "4000")]);
    for (call, what, remedy) in [
        ("cuLibraryLoadData", " bytes of code, and 4194304000 bytes are free", "End other programs on this GPU"),
        ("cuGraphInstantiate", " launches, and 41", "a smaller --batch-size or --seq-len, or --recompute blocks"),
        ("cuGraphUpload", " launches, and 41", "a smaller --batch-size or --seq-len, or --recompute blocks"),
    ] {
        let said = ["out of device memory: the driver cannot ", what, remedy];
        gb10.train(6000, "out").env("PRECAST_FAKE_FULL", call).fails(4, said);
        assert!(!gb10.0.has("out/run.json"), "{call}");
    }
}

#[test]
fn memory_is_taken_as_it_is_asked_for_and_said() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    for (kind, call, taken) in [("managed", "cuMemAllocManaged", "managed "), ("device", "cuMemAlloc", "alloc ")] {
        let said = runs(gb10.train(6000, kind).env("PRECAST_MEMORY", kind));
        let note = format!("note: PRECAST_MEMORY={kind}: device memory is taken by {call}\n");
        assert!(said.contains(&note), "{said}");
        assert!(gb10.calls().iter().any(|call| call.starts_with(taken)));
    }
}

/// What the host takes is not there for weights, which `auto` and `doctor` know as the run does.
#[test]
fn auto_keeps_weights_as_stored_where_the_host_leaves_no_room() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    let config = shape(&tiny_config(&[("intermediate_size", 64.into()), ("num_hidden_layers", 24.into())]));
    gguf::write(gb10.0.path(), "teacher.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
    let distill = |available_kib: u64, format: &str, out: &str| {
        let models = "distill --teacher teacher.gguf --student model --teacher-format";
        gb10.run(available_kib, &format!("{models} {format} --out {out}"))
    };
    let needed = |format| number_after("it needs ", &distill(600 << 10, format, "none").fails(4, ""));
    let (bf16, stored) = (needed("bf16"), needed("stored"));
    let available_kib = (512 << 10) + stored.div_ceil(1024);
    assert!(bf16.div_ceil(1024) > available_kib - (512 << 10), "{bf16} {stored}");
    distill(available_kib, "bf16", "none").fails(4, "");
    let said = runs(&mut distill(available_kib, "auto", "out"));
    assert!(said.contains("note: --teacher-format auto is stored: ") && said.contains("for the host"), "{said}");
    // Where neither fits, both are said, and what the host takes.
    let message = distill(available_kib - 1024, "auto", "none")
        .fails(4, ["With bf16 it takes", " for the host, which shares it"]);
    let of_host = number_after("for kernels and ", &message);
    // As `doctor` has it, of a machine with room.
    drop(gb10.train(6000, "unused"));
    let doctor = "doctor --batch-size 2 --seq-len 16 --model model --data data.bin --bundle sm_121.bundle";
    gb10.0.line(doctor).prints(format!("{} of it on the host", human_bytes(of_host)));
}

/// A base that stays as it is may do so in the blocks of its file.
#[test]
fn an_adapter_that_does_not_fit_hears_of_stored_weights() {
    skip_if!(has_driver());
    for card in [&[][..], &[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "0")]] {
        let gb10 = gb10(card);
        let config = shape(&tiny_config(&[("intermediate_size", 64.into())]));
        gguf::write(gb10.0.path(), "base.gguf", &config, &Formats::uniform(&config, Block::Q8_0), 3);
        let base = "train --lora-rank 4 --model base.gguf --out out";
        gb10.run(600 << 10, base).fails(4, "se --student-format stored, --recompute blocks");
        let message = gb10.run(600 << 10, &format!("{base} --student-format stored")).fails(4, "");
        assert!(!message.contains("se --student-format"), "{message}");
        // Of what trains, nothing is stored in blocks.
        let (_, _, message) = gb10.train(600, "out").ends();
        assert!(!message.contains("--student-format"), "{message}");
    }
}

/// What a command takes of the host's memory at most, bytes.
fn peak_bytes(command: &Command, report: &Path) -> u64 {
    const MEASURE: &str = "import resource, subprocess, sys\n\
                           code = subprocess.call(sys.argv[2:])\n\
                           open(sys.argv[1], 'w').write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))\n\
                           sys.exit(code)";
    let mut measured = Command::new("python3");
    measured.args(["-c", MEASURE]).arg(report);
    runs(&mut under(measured, command));
    fs::read_to_string(report).unwrap().parse::<u64>().unwrap() * 1024
}

/// Upload, checkpoint, resume and result of a model that is larger than what the host may take, 309 MB in bf16, 302 of
/// them in one tensor: on a device whose memory is none of the host's, so that the host's part is seen alone.
/// `PRECAST_TEST_MODEL_LAYERS=240` makes it one of 2 GB, with 12 GB of checkpoints. Its kernels are those that the
/// tests' trainer embeds, and compiled.
#[test]
fn the_host_takes_no_more_than_300_mb_however_large_a_model_is() {
    const MOST_BYTES: u64 = 300_000_000;
    skip_if!(has_driver());
    let machine = machine(&[("PRECAST_FAKE_FORGETS", "1"), ("PRECAST_FAKE_TOTAL_GIB", "64")]);
    let dir = machine.path();
    let mut config: Value =
        serde_json::from_str(&fs::read_to_string(root().join("aot/models/smollm2-135m.json")).unwrap()).unwrap();
    let layers = std::env::var("PRECAST_TEST_MODEL_LAYERS").map_or(1, |layers| layers.parse::<u32>().unwrap());
    config["num_hidden_layers"] = layers.into();
    config["vocab_size"] = (1 << 18).into();
    let (json, model) = (dir.join("config.json"), dir.join("model"));
    fs::write(&json, config.to_string()).unwrap();
    precast::programs::init::random(&json, None, 1, Precision::Bf16, &model, Existing::Keep).unwrap();
    let model_bytes = fs::metadata(model.join("model.safetensors")).unwrap().len();
    assert!(model_bytes > MOST_BYTES, "{model_bytes}");
    precast_aot().with("build --arch sm_121 --model").arg(&json).arg("--out").arg(dir.join("sm_121.bundle")).succeeds();
    token_file(dir, "data.bin", 17 * 4, 96);
    fs::write(dir.join("proc/meminfo"), "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n").unwrap();
    let files = "--data data.bin --bundle sm_121.bundle --out out --device cuda:0 --batch-size 1 --seq-len 16";
    for (steps, more) in [("1", ""), ("2", "--resume")] {
        let train = machine.line([MODEL, files, "--checkpoint-every 1 --keep 1 --steps", steps, more]);
        let bytes = peak_bytes(&train, &dir.join("peak"));
        println!("{steps}: {bytes} bytes beside a model of {model_bytes}");
        assert!(bytes < MOST_BYTES, "{bytes}");
        assert!(machine.has("out/student/model.safetensors") && machine.has(&format!("out/checkpoint-{steps}")));
    }
}

#[test]
fn doctor_says_how_the_one_memory_is_cut_up() {
    skip_if!(has_driver());
    let gb10 = gb10(&[]);
    // Writes what /proc says.
    drop(gb10.train(6000, "unused"));
    let said = ["5.36 GiB of 8.00 GiB free", "fragments  5 % of the free memory", "compact_memory"];
    gb10.0.line("doctor --bundle sm_121.bundle").prints(said);
}

/// Lines of `mmap` that name a file of the model.
fn mapped(gb10: &Gb10) -> usize {
    let mut strace = Command::new("strace");
    strace.with("-f -y -qq -e trace=mmap -o trace");
    runs(&mut under(strace, &gb10.train(6000, "out")));
    let text = gb10.0.text("trace");
    assert!(text.lines().count() > 10, "{text}");
    text.lines().filter(|line| line.contains("/model/model.safetensors")).count()
}

#[test]
fn weights_are_mapped_on_a_card_of_its_own_memory_alone() {
    let strace = Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success());
    skip_if!(has_driver() || skipped(!strace, "there is no strace"));
    assert_eq!(mapped(&gb10(&[])), 0);
    assert!(mapped(&gb10(&[("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_FREE_MIB", "8000")])) > 0);
}

/// Rows that a part ends within, heads whose rows have to be put in order, blocks.
#[test]
fn parts_of_a_tensor_are_the_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = model_config("blocks");
    config["vocab_size"] = 17000.into();
    let config = shape(&config);
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
