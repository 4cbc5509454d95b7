//! Runs of several ranks on simulated GPUs: the same bits on any number of them, started by whom they may, and one end for all.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use precast::run::gpu::GpuRecord;
use precast::run::step::StepRecord;

use crate::golden;
use crate::support::{
    Case, distill, fail, heeding, is_note, is_sim, lacks_compiler, metrics_of, names_in, skipped, succeed, texts,
    tiny_config, token_file,
};

/// What has not happened after that never does.
const FOREVER: Duration = Duration::from_secs(240);

/// Ranks exchange over TCP where devices are simulated.
#[track_caller]
fn has_gpus() -> bool {
    skipped(!is_sim(), "it is of simulated GPUs")
}

/// `precast distill` of the golden case.
fn run(out: &Path, arguments: &[&str]) -> Command {
    let mut command = distill(&golden::case("teacher"), &golden::case("student"), &golden::case("tokens.bin"), out);
    command.args(["--batch-size", "1", "--seq-len", "32", "--lr", "1e-2", "--warmup", "2"]);
    command.args(["--checkpoint-every", "2"]).args(arguments);
    command
}

/// What does not depend on the clock: weights, and the steps' losses, norms and tokens.
fn results(out: &Path) -> (Vec<u8>, Vec<StepRecord>) {
    let timeless = |record: StepRecord| {
        let gpu = GpuRecord::default();
        StepRecord { step_ms: 0.0, tokens_per_s: 0.0, memory_bytes: 0, gpu, ..record }
    };
    let records = metrics_of(out).into_iter().map(timeless).collect();
    (fs::read(out.join("student/model.safetensors")).unwrap(), records)
}

pub fn assert_same(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (results(found), results(expected));
    assert_eq!(found.1, expected.1, "{what}: other steps");
    assert!(found.0 == expected.0, "{what}: other weights");
}

#[test]
fn the_same_bits_on_one_two_and_four() {
    if has_gpus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for precision in ["bf16", "fp32"] {
        for (replicas, counts) in [("4", &["2", "4"][..]), ("3", &["3"])] {
            let whole = dir.path().join(format!("{precision}-{replicas}"));
            let common = ["--steps", "4", "--precision", precision, "--replicas", replicas];
            let printed = succeed(&mut run(&whole, &common));
            assert!(printed.contains("step 4/4"), "{printed}");
            for count in counts {
                let out = dir.path().join(format!("{precision}-{replicas}-on-{count}"));
                let printed = succeed(run(&out, &common).args(["--gpus", count]));
                assert_eq!(printed.matches("step 4/4").count(), 1, "the others are silent: {printed}");
                assert_same(&out, &whole, &format!("{precision}, {replicas} replicas on {count}"));
            }
        }
    }
    // Another order of the sum gives other bits: what is compared above can differ.
    let one = dir.path().join("one");
    succeed(&mut run(&one, &["--steps", "4", "--precision", "fp32", "--grad-accum", "4"]));
    assert!(results(&one).0 != results(&dir.path().join("fp32-4")).0);
}

#[test]
fn a_run_of_four_goes_on_on_two_and_on_one() {
    if has_gpus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    succeed(&mut run(&whole, &["--steps", "6", "--replicas", "4"]));
    let out = dir.path().join("out");
    // The number of replicas is kept: nobody gives it again.
    for (count, steps) in [("4", "2"), ("2", "4"), ("1", "6")] {
        let mut part = run(&out, &["--steps", steps, "--gpus", count]);
        succeed(if steps == "2" { &mut part } else { part.arg("--resume") });
    }
    assert_same(&out, &whole, "four, two, one");
    let back = dir.path().join("back");
    succeed(&mut run(&back, &["--steps", "2", "--replicas", "4"]));
    let files = names_in(&back.join("checkpoint-2"));
    assert!(files.contains(&"m.safetensors".to_owned()), "{files:?}");
    succeed(&mut run(&back, &["--steps", "4", "--gpus", "4", "--resume"]));
    let files = names_in(&back.join("checkpoint-4"));
    assert!(files.contains(&"m-00003-of-00004.safetensors".to_owned()), "{files:?}");
    succeed(&mut run(&back, &["--steps", "6", "--gpus", "2", "--resume"]));
    assert_same(&back, &whole, "one, four, two");
    let message = fail(&mut run(&back, &["--steps", "8", "--gpus", "3", "--resume"]), 2);
    assert_eq!(message.matches("1, 2 or 4 GPUs").count(), 1, "{message}");
}

#[test]
fn adapters_have_the_same_bits_on_two() {
    if has_gpus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let adapter = |out: &str, more: &[&str]| {
        let out = dir.path().join(out);
        succeed(run(&out, &["--steps", "3", "--replicas", "2", "--lora-rank", "4"]).args(more));
        fs::read(out.join("adapter/adapter_model.safetensors")).unwrap()
    };
    assert!(adapter("one", &[]) == adapter("two", &["--gpus", "2"]));
}

/// The losses of data that nobody trains on are those of one, and scoring changes no bit of the steps after it.
#[test]
fn held_out_losses_have_the_same_bits_on_one_two_and_four() {
    if has_gpus() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Seven chunks of 32: no rank has as many as another, and on four one has a single one.
    let held_out = token_file(dir.path(), "held-out.bin", 33 * 7, 96);
    let scored = |name: &str, arguments: &[&str]| {
        let out = dir.path().join(name);
        let mut command = run(&out, &["--steps", "4", "--replicas", "4", "--eval-every", "1"]);
        succeed(command.arg("--eval-data").arg(&held_out).args(arguments));
        out
    };
    let whole = scored("one", &[]);
    let losses: Vec<_> = metrics_of(&whole).into_iter().filter_map(|record| record.held_out?.eval_loss).collect();
    assert!(losses.len() == 4 && losses.windows(2).all(|pair| pair[0] != pair[1]), "{losses:?}");
    for count in ["2", "4"] {
        assert_same(&scored(count, &["--gpus", count]), &whole, &format!("held out on {count}"));
    }
    let plain = dir.path().join("plain");
    succeed(&mut run(&plain, &["--steps", "4", "--replicas", "4"]));
    assert!(results(&plain).0 == results(&whole).0, "scoring changes what is trained");
}

/// Two ranks as a launcher starts them.
struct Job {
    case: Case,
    address: String,
}

impl Job {
    fn new() -> Self {
        let config = tiny_config(&[("num_hidden_layers", 1.into())]);
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        Self { case: Case::of([&config, &config], 17 * 9), address }
    }

    fn out(&self) -> PathBuf {
        self.case.out()
    }

    /// A rank, by torchrun's names.
    fn rank(&self, rank: u32, ranks: u32, arguments: &[&str]) -> Command {
        let (host, port) = self.address.split_once(':').unwrap();
        let mut command = self.case.distill(&self.out(), &["--lr", "1e-2"]);
        command.args(arguments).env("RANK", rank.to_string()).env("WORLD_SIZE", ranks.to_string());
        command.env("LOCAL_RANK", rank.to_string()).env("MASTER_ADDR", host).env("MASTER_PORT", port);
        command.env("PRECAST_RENDEZVOUS_S", "60").env("PRECAST_RANK_PATIENCE_S", "60");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn start(&self, rank: u32, ranks: u32, arguments: &[&str]) -> Child {
        let mut command = heeding(&self.rank(rank, ranks, arguments));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// Exit code, and what was said of an error.
pub fn end(child: Child) -> (Option<i32>, String) {
    let ((ended, waits), process) = (mpsc::channel::<()>(), child.id());
    let watchdog = thread::spawn(move || {
        let is_late = waits.recv_timeout(FOREVER) == Err(RecvTimeoutError::Timeout);
        is_late && Command::new("kill").args(["-9", &process.to_string()]).status().is_ok()
    });
    let output = child.wait_with_output().unwrap();
    drop(ended);
    let (_, stderr) = texts(&output);
    assert!(!watchdog.join().unwrap(), "it did not end:\n{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    let said = stderr.lines().filter(|line| !is_note(line) && !line.starts_with("SIG"));
    let said = said.collect::<Vec<_>>().join("\n");
    (output.status.code(), said)
}

/// Waits until a run has written the line of a step.
pub fn wait_for_steps(out: &Path, steps: usize, child: &mut Child) {
    let lines = || fs::read_to_string(out.join("metrics.jsonl")).map_or(0, |text| text.lines().count());
    let begun = Instant::now();
    while lines() < steps {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        assert!(begun.elapsed() < FOREVER, "{} of {steps} lines", lines());
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn signal(child: &Child, name: &str) {
    succeed(Command::new("kill").args(["-s", name, &child.id().to_string()]));
}

#[test]
fn every_launcher_starts_the_same_run() {
    if has_gpus() {
        return;
    }
    let job = Job::new();
    let reference = job.case.path("reference");
    succeed(&mut job.case.distill(&reference, &["--lr", "1e-2", "--steps", "2", "--replicas", "2"]));
    let torchrun: [(&str, &str); 0] = [];
    let slurm = [("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"), ("SLURM_LOCALID", "")];
    let mpirun = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_RANK", "")];
    for (name, names) in [("torchrun", &torchrun[..]), ("srun", &slurm), ("mpirun", &mpirun)] {
        let out = job.case.path(name);
        let ranks: Vec<Child> = (0..2)
            .map(|rank| {
                let mut command = job.rank(rank, 2, &["--steps", "2", "--overwrite"]);
                command.arg("--out").arg(&out);
                if !names.is_empty() {
                    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
                        command.env_remove(name);
                    }
                    command.args(["--rendezvous", &job.address]);
                }
                for (of_rank, of_ranks) in names {
                    command.env(of_rank, rank.to_string());
                    if !of_ranks.is_empty() {
                        command.env(of_ranks, "2");
                    }
                }
                command.spawn().unwrap()
            })
            .collect();
        for rank in ranks {
            assert_eq!(end(rank), (Some(0), String::new()), "{name}");
        }
        assert_same(&out, &reference, name);
    }
}

#[test]
fn a_signal_to_any_rank_stops_all_after_the_same_step() {
    if has_gpus() {
        return;
    }
    for (stopped, name, code) in [(0, "HUP", 129), (1, "QUIT", 131)] {
        let job = Job::new();
        let mut ranks = [0, 1].map(|rank| job.start(rank, 2, &["--steps", "1000000"]));
        wait_for_steps(&job.out(), 2, &mut ranks[0]);
        signal(&ranks[stopped], name);
        let ended = ranks.map(end);
        assert_eq!(ended.each_ref().map(|(code, _)| *code), [Some(code); 2], "{ended:?}");
        let stopped_by = format!("stopped by SIG{name} after step ");
        assert!(ended[0].1.starts_with(&stopped_by) && ended[1].1.is_empty(), "{ended:?}");
        let step: u64 = ended[0].1.split(' ').nth(5).unwrap().parse().unwrap();
        let (out, more) = (job.out(), (step + 1).to_string());
        assert_eq!(names_in(&out).iter().filter(|name| **name == format!("checkpoint-{step}")).count(), 1);
        succeed(&mut job.case.distill(&out, &["--lr", "1e-2", "--steps", &more, "--resume"]));
        let whole = job.case.path("whole");
        succeed(&mut job.case.distill(&whole, &["--lr", "1e-2", "--steps", &more, "--replicas", "2"]));
        assert_same(&out, &whole, "stopped and continued");
    }
}

#[test]
fn a_rank_that_dies_ends_all_by_its_name() {
    if has_gpus() {
        return;
    }
    for killed in [0, 1, 2] {
        let job = Job::new();
        let mut ranks = [0, 1, 2].map(|rank| job.start(rank, 3, &["--steps", "1000000", "--checkpoint-every", "1"]));
        wait_for_steps(&job.out(), 2, &mut ranks[0]);
        signal(&ranks[killed], "KILL");
        for (rank, child) in ranks.into_iter().enumerate() {
            if rank == killed {
                assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(9));
                continue;
            }
            let (code, message) = end(child);
            assert_eq!(code, Some(1), "{message}");
            let expected = format!("error: rank {killed} of 3 failed: its connection is closed");
            assert!(message.starts_with(&expected), "rank {rank}: {message}");
        }
        // What was there goes on.
        let out = job.out();
        let last = names_in(&out).iter().filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok()).max();
        let more = (last.unwrap_or(0u64) + 1).to_string();
        succeed(&mut job.case.distill(&out, &["--lr", "1e-2", "--steps", &more, "--resume"]));
    }
}

/// Of the ranks of `--gpus`, rank 0 or 1 reports a failure: where both are killed, the process that started them does.
#[test]
fn ranks_that_are_killed_together_do_not_end_in_silence() {
    if has_gpus() {
        return;
    }
    let job = Job::new();
    let mut command = job.case.distill(&job.out(), &["--steps", "1000000", "--gpus", "2"]);
    let mut parent = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_steps(&job.out(), 1, &mut parent);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).unwrap();
    // None of them sees the other's end.
    for name in ["STOP", "KILL"] {
        succeed(Command::new("kill").args(["-s", name]).args(children.split_whitespace()));
    }
    let (code, message) = end(parent);
    assert_eq!(code, Some(1));
    assert_eq!(message, "error: ranks 0 and 1 of 2 were killed before any rank reported a failure");
}

#[test]
fn a_rank_that_is_stopped_is_not_waited_for_forever() {
    if has_gpus() {
        return;
    }
    let job = Job::new();
    let mut ranks = [0, 1]
        .map(|rank| job.rank(rank, 2, &["--steps", "1000000"]).env("PRECAST_RANK_PATIENCE_S", "3").spawn().unwrap());
    wait_for_steps(&job.out(), 1, &mut ranks[0]);
    signal(&ranks[1], "STOP");
    let [first, mut second] = ranks;
    let (code, message) = end(first);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("rank 1 of 2 failed: nothing has been heard of it for 3 s"), "{message}");
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn ranks_that_do_not_come_together_say_who_and_where() {
    if has_gpus() {
        return;
    }
    let job = Job::new();
    // One is missing.
    let missing = |rank| job.rank(rank, 3, &["--steps", "1"]).env("PRECAST_RENDEZVOUS_S", "2").spawn().unwrap();
    let (first, second) = (missing(0), missing(1));
    let (code, message) = end(first);
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains(&format!("rank 2 of 3 did not come to {}", job.address)), "{message}");
    assert!(end(second).0 == Some(1));
    // Nobody listens.
    let (code, message) = end(missing(2));
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("rank 2: rank 0 did not answer at {} within 2 s", job.address)), "{message}");
    // They count differently.
    let (first, second) = (job.start(0, 2, &["--steps", "1"]), job.start(1, 3, &["--steps", "1"]));
    for (code, message) in [end(first), end(second)] {
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("rank 1 was started as one of 3 ranks, and rank 0 as one of 2"), "{message}");
    }
    // They hold out other data.
    let [one, other] = [1u8, 2].map(|id| {
        let path = job.case.path(format!("held-out-{id}.bin"));
        fs::write(&path, [id, 0, 0, 0].repeat(40)).unwrap();
        path
    });
    let held_out = |rank, path: &Path| job.start(rank, 2, &["--steps", "1", "--eval-data", path.to_str().unwrap()]);
    let (first, second) = (held_out(0, &one), held_out(1, &other));
    for (code, message) in [end(first), end(second)] {
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("held-out data is "), "{message}");
    }
    // They are started with other options.
    let (first, second) = (job.start(0, 2, &["--steps", "1"]), job.start(1, 2, &["--steps", "1", "--clip", "3"]));
    for (code, message) in [end(first), end(second)] {
        assert_eq!(code, Some(2), "{message}");
        assert!(message.contains("clip is 1 on rank 0 and 3 on rank 1"), "{message}");
    }
    // The port is taken.
    let taken = TcpListener::bind(&job.address).unwrap();
    let (code, message) = end(job.start(0, 2, &["--steps", "1"]));
    assert_eq!(code, Some(1));
    assert!(message.contains(&format!("rank 0 cannot listen at {}", job.address)), "{message}");
    drop(taken);
    assert!(!job.out().exists(), "none of them has written anything");
}

#[test]
fn a_stranger_at_the_port_changes_nothing() {
    if has_gpus() {
        return;
    }
    let job = Job::new();
    let first = job.start(0, 2, &["--steps", "1"]);
    let mut stranger = loop {
        if let Ok(stream) = TcpStream::connect(&job.address) {
            break stream;
        }
    };
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n and some more, so that it is as long as what a rank says").unwrap();
    let other = job.rank(1, 2, &["--steps", "1"]).env("PRECAST_TOKEN", "x").env("PRECAST_RENDEZVOUS_S", "2").spawn();
    let (code, message) = end(other.unwrap());
    assert!(code == Some(1) && message.contains("does not know the token of this job"), "{message}");
    let second = job.start(1, 2, &["--steps", "1"]);
    assert_eq!((end(first).0, end(second).0), (Some(0), Some(0)));
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(!answer.windows(5).any(|window| window == b"error"));
}

#[test]
fn what_does_not_go_is_refused_before_anything_starts() {
    if has_gpus() || lacks_compiler() {
        return;
    }
    let case = Case::new(17 * 9);
    let message = |arguments: &[&str]| fail(&mut case.distill(&case.out(), arguments), 2);
    assert!(message(&["--gpus", "3", "--replicas", "4"]).contains("1, 2 or 4 GPUs"));
    assert!(message(&["--gpus", "2", "--device", "cuda:0"]).contains("--device cuda:0 is one GPU"));
    assert!(message(&["--gpus", "all"]).contains("--gpus N"));
    assert!(message(&["--replicas", "4", "--grad-accum", "6"]).contains("use --grad-accum 4 or 8,"));
    assert!(message(&["--rendezvous", "localhost:1"]).contains("no launcher has started any"));
    assert!(!case.out().exists());
    // An allocation of Slurm's is no step.
    let mut alone = case.distill(&case.out(), &["--steps", "1"]);
    succeed(alone.env("SLURM_NTASKS", "4").env("SLURM_PROCID", "0").env("SLURM_LOCALID", "0"));
}
