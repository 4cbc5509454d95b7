//! A GPU that hangs, under a stand-in for `libcuda` whose kernels never end: the run ends by itself, and says what hangs.

use std::fs;
use std::io::{Write, pipe};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::copies::host;
use crate::driver::{Machine, machine, sm_121};
use crate::ranks::{end, signal, wait_for_steps};
use crate::support::{has_driver, metrics_of, names_in, precast, random_model, run_record, tiny_config, token_file};

/// A machine, and what a run on it takes.
struct Gpu {
    machine: Machine,
    model: PathBuf,
    data: PathBuf,
    kernels: PathBuf,
}

/// Kernels that do nothing, and hang where a test says so.
fn gpu() -> Gpu {
    let machine = machine(&[("PRECAST_FAKE_INTEGRATED", "0")]);
    let dir = machine.path();
    let model = random_model(dir, "model", 1, &tiny_config(&[]));
    Gpu { model, data: token_file(dir, "data.bin", 17 * 4, 96), kernels: sm_121(dir), machine }
}

impl Gpu {
    fn out(&self) -> PathBuf {
        self.machine.path().join("out")
    }

    /// A run of so many steps in which the optimizer hangs.
    fn train(&self, steps: &str, arguments: &[&str]) -> Command {
        let mut train = precast();
        train.arg("train").arg("--model").arg(&self.model).arg("--bundle").arg(&self.kernels).arg("--data");
        train.arg(&self.data).arg("--out").arg(self.out()).args(["--device", "cuda:0", "--steps", steps]);
        train.args(["--batch-size", "2", "--seq-len", "16"]).args(arguments).env("PRECAST_FAKE_HANGS", "adamw");
        let mut train = self.machine.run(&mut train);
        train.stdout(Stdio::piped()).stderr(Stdio::piped());
        train
    }

    /// The file while which it does.
    fn file(&self) -> PathBuf {
        self.machine.path().join("hang")
    }

    /// A run that hangs in some step once this returns, and until the file goes.
    fn hung(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Child {
        let mut train = self.train("1000000", arguments);
        let mut child =
            train.env("PRECAST_FAKE_HANGS_WHILE", self.file()).envs(variables.iter().copied()).spawn().unwrap();
        wait_for_steps(&self.out(), 2, &mut child);
        fs::write(self.file(), "").unwrap();
        child
    }

    /// The same, which goes on once the file is gone.
    fn goes_on(&self, mut child: Child) {
        let steps = metrics_of(&self.out()).len();
        fs::remove_file(self.file()).unwrap();
        wait_for_steps(&self.out(), steps + 2, &mut child);
        signal(&child, "TERM");
        let (code, message) = end(child);
        assert_eq!(code, Some(143), "{message}");
    }
}

#[test]
fn a_first_step_that_hangs_ends_the_run_with_the_nodes_name() {
    if has_driver() {
        return;
    }
    let gpu = gpu();
    let (code, message) = end(gpu.train("3", &["--patience", "2"]).spawn().unwrap());
    assert_eq!(code, Some(4), "{message}");
    let lines: Vec<&str> = message.lines().collect();
    assert!(
        lines[0].starts_with("error: cuda:0 (NVIDIA GB10 (stand-in)) hangs: phase `update` of step 1 has not"),
        "{message}"
    );
    assert!(lines[1].starts_with("It is node 3 of 3, `adamw`, adamw.update{"), "{message}");
    assert!(message.ends_with("There is no checkpoint yet: start again with --overwrite"), "{message}");
    let outcome = &run_record(&gpu.out())["outcome"];
    assert_eq!(outcome["status"], "failed", "{outcome}");
    assert!(format!("error: {}", outcome["reason"].as_str().unwrap()) == message, "{outcome}");
}

#[test]
fn a_later_step_that_hangs_names_the_checkpoint_from_which_the_run_continues() {
    if has_driver() {
        return;
    }
    let gpu = gpu();
    let (code, message) = end(gpu.hung(&["--patience", "2", "--checkpoint-every", "1"], &[]));
    assert_eq!(code, Some(4), "{message}");
    let done = metrics_of(&gpu.out()).len();
    let step = format!("hangs: phase `update` of step {} has not ended for 2 s, and may take 2", done + 1);
    assert!(message.contains(&step) && message.contains(", `adamw`, adamw.update{"), "{message}");
    assert!(message.contains(&format!("The last checkpoint is checkpoint-{done}. Continue with:")), "{message}");
    assert!(names_in(&gpu.out()).contains(&format!("checkpoint-{done}")));
    let outcome = run_record(&gpu.out())["outcome"].clone();
    assert_eq!(outcome["status"], "failed");
    let log = fs::read_to_string(gpu.out().join("run.log")).unwrap();
    for said in [outcome["reason"].as_str().unwrap(), &log] {
        assert!(said.contains(", `adamw`, adamw.update{"), "{said}");
    }
    fs::remove_file(gpu.file()).unwrap();
    // Without its kernels' work the run trains nothing; it goes on.
    let steps = (done + 1).to_string();
    let again =
        gpu.train(&steps, &["--resume", "--patience", "none"]).env_remove("PRECAST_FAKE_HANGS").output().unwrap();
    assert!(matches!(again.status.code(), Some(0 | 1)), "{again:?}");
    assert_eq!(metrics_of(&gpu.out()).len(), done + 1);
}

/// Schedulers end what takes long, and files move: neither loses what is known.
#[test]
fn a_replay_that_is_ended_or_has_lost_its_files_leaves_the_hang_in_the_record() {
    if has_driver() {
        return;
    }
    for ended in [true, false] {
        let gpu = gpu();
        let mut child = gpu.hung(&["--patience", "2", "--checkpoint-every", "1"], &[]);
        replays(&mut child);
        if ended {
            child.kill().unwrap();
            child.wait().unwrap();
        } else {
            fs::rename(&gpu.model, gpu.model.with_extension("moved")).unwrap();
            let (code, message) = end(child);
            assert_eq!(code, Some(4), "{message}");
            assert!(message.contains("hangs: phase `update` of step"), "{message}");
        }
        let outcome = run_record(&gpu.out())["outcome"].clone();
        assert_eq!(outcome["status"], "failed");
        assert!(outcome["reason"].as_str().unwrap().contains("hangs: phase `update` of step"), "{outcome}");
    }
}

/// Reads what a run says until it replays.
fn replays(child: &mut Child) {
    let mut said = Vec::new();
    let stderr = child.stderr.as_mut().unwrap();
    while !said.ends_with(b"replayed") {
        let mut byte = [0];
        std::io::Read::read_exact(stderr, &mut byte).unwrap();
        said.push(byte[0]);
    }
}

/// One that hangs by chance: no replay shows it.
#[test]
fn a_hang_that_does_not_come_again_is_named_as_far_as_it_is_known() {
    if has_driver() {
        return;
    }
    let gpu = gpu();
    let mut child = gpu.hung(&["--patience", "2"], &[]);
    // It needs a while to come to the same kernel.
    replays(&mut child);
    fs::remove_file(gpu.file()).unwrap();
    let (code, message) = end(child);
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("Which node it is depends on the weights, the data or the moment"), "{message}");
}

/// Nothing ends a run that was stopped for longer than its patience, that has no bound, or that a profiler holds.
#[test]
fn time_in_which_a_run_was_stopped_does_not_count_and_neither_does_that_of_profilers() {
    if has_driver() {
        return;
    }
    let tool = [("CUDA_INJECTION64_PATH", "/opt/tool.so"), ("PRECAST_ALLOW_INJECTION", "1")];
    let gpus = [gpu(), gpu(), gpu()];
    let stopped = gpus[0].hung(&["--patience", "4"], &[]);
    // Until it is seen to hang.
    thread::sleep(Duration::from_secs(1));
    signal(&stopped, "STOP");
    let none = gpus[1].hung(&["--patience", "none"], &[]);
    let mut profiled = gpus[2].hung(&["--patience", "1"], &tool);
    thread::sleep(Duration::from_secs(5));
    signal(&stopped, "CONT");
    thread::sleep(Duration::from_secs(1));
    let mut said = String::new();
    let mut stderr = profiled.stderr.take().unwrap();
    let reads = thread::spawn(move || std::io::Read::read_to_string(&mut stderr, &mut said).map(|_| said));
    for (gpu, child) in gpus.iter().zip([stopped, none, profiled]) {
        gpu.goes_on(child);
    }
    let said = reads.join().unwrap().unwrap();
    assert!(said.contains("note: CUDA_INJECTION64_PATH is set, by a debugger or a profiler"), "{said}");
}

#[test]
fn a_run_that_hangs_ends_though_nobody_reads_what_it_says() {
    if has_driver() {
        return;
    }
    let gpu = gpu();
    let (reader, mut writer) = pipe().unwrap();
    let mut train = gpu.train("1000000", &["--patience", "1"]);
    train.stdout(Stdio::null()).stderr(writer.try_clone().unwrap()).env("PRECAST_FAKE_HANGS_WHILE", gpu.file());
    let mut child = train.spawn().unwrap();
    wait_for_steps(&gpu.out(), 2, &mut child);
    // More than a pipe holds, from a thread that waits for somebody to read it.
    thread::spawn(move || writer.write_all(&[b' '; 1 << 20]));
    thread::sleep(Duration::from_millis(200));
    fs::write(gpu.file(), "").unwrap();
    assert_eq!(end(child).0, Some(4));
    drop(reader);
}

/// A device that does not write what it has done.
#[test]
fn phases_that_may_hang_are_all_named() {
    if has_driver() {
        return;
    }
    let gpu = gpu();
    let mut train = gpu.train("3", &["--patience", "2"]);
    let (code, message) = end(train.env("PRECAST_FAKE_REFUSES", "cuStreamWriteValue32").spawn().unwrap());
    assert_eq!(code, Some(4), "{message}");
    assert!(message.contains("one of the phases ") && message.contains("`micro`, `update`"), "{message}");
    assert!(message.contains(", `adamw`, adamw.update{"), "{message}");
}

#[test]
fn a_rank_whose_gpu_hangs_ends_all_of_them_with_the_phase() {
    if has_driver() {
        return;
    }
    let host = host();
    let start = |rank: u32| {
        let mut command = host.rank("out", rank, 2, &["--steps", "3", "--patience", "3"]);
        if rank == 1 {
            command.env("PRECAST_FAKE_HANGS", "adamw");
        }
        command.spawn().unwrap()
    };
    let ended = [0, 1].map(start).map(end);
    for (code, message) in &ended {
        assert_eq!(*code, Some(4), "{ended:?}");
        assert!(
            message.contains(" hangs: ") && message.contains(" of step ") && message.contains("another rank"),
            "{message}"
        );
    }
    assert_eq!(run_record(&host.out("out"))["outcome"]["status"], "failed");
}
