//! A GPU that hangs, under a stand-in for `libcuda` whose kernels never end: the run ends by itself, and says what
//! hangs.

use std::io::{Write, pipe};
use std::thread;
use std::time::Duration;

use crate::copies::host;
use crate::driver::{Machine, machine};
use crate::support::prelude::*;

/// A machine whose kernels do nothing, and hang where a test says so.
struct Gpu(Machine);

fn gpu() -> Gpu {
    Gpu(machine(&[("PRECAST_FAKE_INTEGRATED", "0")]).equipped())
}

impl Gpu {
    fn out(&self) -> PathBuf {
        self.0.path().join("out")
    }

    /// A run of so many steps in which the optimizer hangs.
    fn train(&self, arguments: &str) -> Command {
        let files = "train --model model --bundle sm_121.bundle --data data.bin --out out --device cuda:0";
        let mut train = self.0.line([files, "--batch-size 2 --seq-len 16 --steps", arguments]);
        train.env("PRECAST_FAKE_HANGS", "adamw").stdout(Stdio::piped()).stderr(Stdio::piped());
        train
    }

    /// The file while which it does.
    fn file(&self) -> PathBuf {
        self.0.path().join("hang")
    }

    /// A run that hangs in some step once this returns, and until the file goes.
    fn hung(&self, arguments: &str, variables: &[(&str, &str)]) -> Child {
        let mut train = self.train(&format!("1000000 {arguments}"));
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
        ends(child, 143, "");
    }
}

#[test]
fn a_first_step_that_hangs_ends_the_run_with_the_phases_name() {
    skip_if!(has_driver());
    let gpu = gpu();
    let first = "error: cuda:0 (NVIDIA GB10 (stand-in)) hangs: phase `update` of step 1 has not";
    let message = ends(gpu.train("3 --patience 2").spawn().unwrap(), 4, first);
    assert!(message.starts_with(first), "{message}");
    assert!(message.ends_with("There is no checkpoint yet: start again with --overwrite"), "{message}");
    let outcome = &run_record(&gpu.out())["outcome"];
    assert_eq!(outcome["status"], "failed", "{outcome}");
    assert!(format!("error: {}", outcome["reason"].as_str().unwrap()) == message, "{outcome}");
}

#[test]
fn a_later_step_that_hangs_names_the_last_checkpoint() {
    skip_if!(has_driver());
    let gpu = gpu();
    let message = ends(gpu.hung("--patience 2 --checkpoint-every 1", &[]), 4, "");
    let done = metrics_of(&gpu.out()).len();
    let step = format!("hangs: phase `update` of step {} has not ended for 2 s, and may take 2", done + 1);
    assert!(message.contains(&step), "{message}");
    assert!(message.contains(&format!("The last checkpoint is checkpoint-{done}. Continue with:")), "{message}");
    assert!(names_in(&gpu.out()).contains(&format!("checkpoint-{done}")));
    let outcome = run_record(&gpu.out())["outcome"].clone();
    assert_eq!(outcome["status"], "failed");
    let log = fs::read_to_string(gpu.out().join("run.log")).unwrap();
    for said in [outcome["reason"].as_str().unwrap(), &log] {
        assert!(said.contains(&step), "{said}");
    }
    fs::remove_file(gpu.file()).unwrap();
    // Without its kernels' work the run trains nothing; it goes on.
    let mut again = gpu.train(&format!("{} --resume --patience none", done + 1));
    let (code, _, stderr) = again.env_remove("PRECAST_FAKE_HANGS").ends();
    assert!(matches!(code, Some(0 | 1)), "{stderr}");
    assert_eq!(metrics_of(&gpu.out()).len(), done + 1);
}

/// Nothing ends a run that was stopped for longer than its patience, that has no bound, or that a profiler holds.
#[test]
fn time_of_stopped_and_of_profiled_runs_does_not_count() {
    skip_if!(has_driver());
    let tool = [("CUDA_INJECTION64_PATH", "/opt/tool.so"), ("PRECAST_ALLOW_INJECTION", "1")];
    let gpus = [gpu(), gpu(), gpu()];
    let stopped = gpus[0].hung("--patience 4", &[]);
    // Until it is seen to hang.
    thread::sleep(Duration::from_secs(1));
    signal(&stopped, "STOP");
    let none = gpus[1].hung("--patience none", &[]);
    let mut profiled = gpus[2].hung("--patience 1", &tool);
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
    skip_if!(has_driver());
    let gpu = gpu();
    let (reader, mut writer) = pipe().unwrap();
    let mut train = gpu.train("1000000 --patience 1");
    train.stdout(Stdio::null()).stderr(writer.try_clone().unwrap()).env("PRECAST_FAKE_HANGS_WHILE", gpu.file());
    let mut child = train.spawn().unwrap();
    wait_for_steps(&gpu.out(), 2, &mut child);
    // More than a pipe holds, from a thread that waits for somebody to read it.
    thread::spawn(move || writer.write_all(&[b' '; 1 << 20]));
    thread::sleep(Duration::from_millis(200));
    fs::write(gpu.file(), "").unwrap();
    ends(child, 4, "");
    drop(reader);
}

/// A device that does not write what it has done.
#[test]
fn phases_that_may_hang_are_all_named() {
    skip_if!(has_driver());
    let gpu = gpu();
    let mut train = gpu.train("3 --patience 2");
    let said = ["one of the phases ", "`micro`, `update`"];
    ends(train.env("PRECAST_FAKE_REFUSES", "cuStreamWriteValue32").spawn().unwrap(), 4, said);
}

#[test]
fn a_rank_whose_gpu_hangs_ends_all_of_them_with_the_phase() {
    skip_if!(has_driver());
    let host = host();
    let start = |rank: u32| {
        let mut command = host.rank("out", rank, 2, "--steps 3 --patience 3");
        if rank == 1 {
            command.env("PRECAST_FAKE_HANGS", "adamw");
        }
        command.spawn().unwrap()
    };
    for rank in [0, 1].map(start) {
        ends(rank, 4, [" hangs: ", " of step ", "another rank"]);
    }
    assert_eq!(run_record(&host.out("out"))["outcome"]["status"], "failed");
}
