//! Runs of several ranks on simulated GPUs: the same bits on any number of them, started by whom they may, and one end
//! for all.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::support::prelude::*;
use crate::support::{as_rank, free_address, results};

/// A run of the golden case.
fn run(case: &Case, out: &str, arguments: &str) -> Command {
    case.distill(out, ["--batch-size 1 --seq-len 32 --lr 1e-2 --warmup 2 --checkpoint-every 2", arguments])
}

pub fn assert_same(found: &Path, expected: &Path, what: &str) {
    let (found, expected) = (results(found), results(expected));
    assert_eq!(found.1, expected.1, "{what}: other steps");
    assert!(found.0 == expected.0, "{what}: other weights");
}

#[test]
fn the_same_bits_on_one_two_and_four() {
    skip_if!(is_on_gpu());
    // Its head has rows that are no tokens.
    let case = Case::golden("made-granite");
    for precision in ["bf16", "fp32"] {
        for (replicas, counts) in [("4", &["2", "4"][..]), ("3", &["3"])] {
            let whole = format!("{precision}-{replicas}");
            let common = format!("--steps 4 --precision {precision} --replicas {replicas}");
            run(&case, &whole, &common).prints("step 4/4");
            for count in counts {
                let out = format!("{whole}-on-{count}");
                let printed = run(&case, &out, &format!("{common} --gpus {count}")).succeeds();
                assert_eq!(printed.matches("step 4/4").count(), 1, "the others are silent: {printed}");
                assert_same(&case.path(&out), &case.path(&whole), &out);
            }
        }
    }
    // Another order of the sum gives other bits: what is compared above can differ.
    run(&case, "one", "--steps 4 --precision fp32 --grad-accum 4").succeeds();
    assert!(case.weights("one") != case.weights("fp32-4"));
}

#[test]
fn a_run_of_four_goes_on_on_two_and_on_one() {
    skip_if!(is_on_gpu());
    let case = Case::golden("made-qwen2");
    let run = |out: &str, arguments: &str| run(&case, out, arguments);
    run("whole", "--steps 6 --replicas 4").succeeds();
    // The number of replicas is kept: nobody gives it again.
    run("out", "--steps 2 --gpus 4").succeeds();
    run("out", "--steps 4 --gpus 2 --resume").succeeds();
    run("out", "--steps 6 --gpus 1 --resume").succeeds();
    assert_same(&case.path("out"), &case.path("whole"), "four, two, one");
    run("back", "--steps 2 --replicas 4").succeeds();
    assert!(case.has("back/checkpoint-2/m.safetensors"));
    run("back", "--steps 4 --gpus 4 --resume").succeeds();
    assert!(case.has("back/checkpoint-4/m-00003-of-00004.safetensors"));
    run("back", "--steps 6 --gpus 2 --resume").succeeds();
    assert_same(&case.path("back"), &case.path("whole"), "one, four, two");
    let message = run("back", "--steps 8 --gpus 3 --resume").fails(2, "");
    assert_eq!(message.matches("1, 2 or 4 GPUs").count(), 1, "{message}");
}

#[test]
fn adapters_have_the_same_bits_on_two() {
    skip_if!(is_on_gpu());
    let case = Case::golden("made-qwen2");
    let adapter = |out: &str, more: &str| {
        run(&case, out, &format!("--steps 3 --replicas 2 --lora-rank 4 {more}")).succeeds();
        case.bits(out).1
    };
    assert!(adapter("one", "") == adapter("two", "--gpus 2"));
}

/// Two ranks as a launcher starts them.
pub struct Job {
    pub case: Case,
    address: String,
}

impl Job {
    pub fn new() -> Self {
        Self { case: Case::of_layers(1, 17 * 9), address: free_address() }
    }

    pub fn out(&self) -> PathBuf {
        self.case.path("out")
    }

    /// A rank, by torchrun's names.
    pub fn rank(&self, rank: u32, ranks: u32, arguments: &str) -> Command {
        as_rank(self.case.distill("out", ["--lr 1e-2", arguments]), [rank, ranks], &self.address)
    }

    fn start(&self, rank: u32, ranks: u32, arguments: &str) -> Child {
        start(&self.rank(rank, ranks, arguments))
    }
}

#[test]
fn every_launcher_starts_the_same_run() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    job.case.distill("reference", "--lr 1e-2 --steps 2 --replicas 2").succeeds();
    let slurm = ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"];
    let mpirun = ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"];
    for (name, names) in [("torchrun", None), ("srun", Some(slurm)), ("mpirun", Some(mpirun))] {
        let ranks = [0, 1].map(|rank: u32| {
            let mut command = job.rank(rank, 2, &format!("--steps 2 --overwrite --out {name}"));
            if let Some(names) = names {
                for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
                    command.env_remove(name);
                }
                let numbers = [rank, 2, rank].map(|number| number.to_string());
                command.args(["--rendezvous", &job.address]).envs(names.into_iter().zip(numbers));
            }
            command.spawn().unwrap()
        });
        for rank in ranks {
            assert_eq!(end(rank), (Some(0), String::new()), "{name}");
        }
        assert_same(&job.case.path(name), &job.case.path("reference"), name);
    }
}

/// The step of the last checkpoint of a run; 0 without one.
pub fn last_checkpoint(out: &Path) -> u64 {
    names_in(out).iter().filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok()).max().unwrap_or(0)
}

#[test]
fn a_signal_to_any_rank_stops_all_after_the_same_step() {
    skip_if!(is_on_gpu());
    for (stopped, name, code) in [(0, "HUP", 129), (1, "QUIT", 131)] {
        let job = Job::new();
        let mut ranks = [0, 1].map(|rank| job.start(rank, 2, "--steps 1000000"));
        wait_for_steps(&job.out(), 2, &mut ranks[0]);
        signal(&ranks[stopped], name);
        let ended = ranks.map(end);
        assert_eq!(ended.each_ref().map(|(code, _)| *code), [Some(code); 2], "{ended:?}");
        let stopped_by = format!("stopped by SIG{name} after step ");
        assert!(ended[0].1.starts_with(&stopped_by) && ended[1].1.is_empty(), "{ended:?}");
        let step: u64 = ended[0].1.split(' ').nth(5).unwrap().parse().unwrap();
        assert!(job.case.has(&format!("out/checkpoint-{step}")));
        let more = format!("--lr 1e-2 --steps {}", step + 1);
        job.case.distill("out", [&more, "--resume"]).succeeds();
        job.case.distill("whole", [&more, "--replicas 2"]).succeeds();
        assert_same(&job.out(), &job.case.path("whole"), "stopped and continued");
    }
}

/// Of the ranks of `--gpus`, rank 0 or 1 reports a failure: where both are killed, the process that started them does.
#[test]
fn ranks_that_are_killed_together_do_not_end_in_silence() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    let mut command = job.case.distill("out", "--steps 1000000 --gpus 2");
    let mut parent = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_steps(&job.out(), 1, &mut parent);
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).unwrap();
    // None of them sees the other's end.
    for name in ["STOP", "KILL"] {
        Command::new("kill").with(["-s", name, &children]).succeeds();
    }
    let said = "error: ranks 0 and 1 of 2 were killed before any rank reported a failure";
    assert_eq!(ends(parent, 1, ""), said);
}

/// A run on the simulated GPU, whose ranks send bytes to each other themselves.
#[test]
fn a_rank_that_is_stopped_is_not_waited_for_forever() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    let mut ranks =
        [0, 1].map(|rank| job.rank(rank, 2, "--steps 1000000").env("PRECAST_RANK_PATIENCE_S", "3").spawn().unwrap());
    wait_for_steps(&job.out(), 1, &mut ranks[0]);
    signal(&ranks[1], "STOP");
    let [first, second] = ranks;
    ends(first, 1, "rank 1 of 2 failed: nothing has been heard of it for 3 s");
    kill(second);
}

#[test]
fn ranks_that_do_not_come_together_say_who_and_where() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    // One is missing.
    let missing = |rank| job.rank(rank, 3, "--steps 1").env("PRECAST_RENDEZVOUS_S", "2").spawn().unwrap();
    let (first, second) = (missing(0), missing(1));
    ends(first, 1, format!("rank 2 of 3 did not come to {}", job.address));
    ends(second, 1, "");
    // Nobody listens.
    ends(missing(2), 1, format!("rank 2: rank 0 did not answer at {} within 2 s", job.address));
    // They count differently, hold out other data, or are started with other options.
    for id in [1u8, 2] {
        job.case.write(&format!("held-out-{id}.bin"), [id, 0, 0, 0].repeat(40));
    }
    for (ranks, [one, other], said) in [
        (3, ["", ""], "rank 1 was started as one of 3 ranks, and rank 0 as one of 2"),
        (2, ["--eval-data held-out-1.bin", "--eval-data held-out-2.bin"], "held-out data is "),
        (2, ["", "--clip 3"], "clip is 1 on rank 0 and 3 on rank 1"),
    ] {
        let start = |rank, ranks, more: &str| job.start(rank, ranks, &format!("--steps 1 {more}"));
        for child in [start(0, 2, one), start(1, ranks, other)] {
            ends(child, 2, said);
        }
    }
    // The port is taken.
    let taken = TcpListener::bind(&job.address).unwrap();
    ends(job.start(0, 2, "--steps 1"), 1, format!("rank 0 cannot listen at {}", job.address));
    drop(taken);
    assert!(!job.out().exists(), "none of them has written anything");
}

#[test]
fn a_stranger_at_the_port_changes_nothing() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    let first = job.start(0, 2, "--steps 1");
    let mut stranger = loop {
        if let Ok(stream) = TcpStream::connect(&job.address) {
            break stream;
        }
    };
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n and some more, so that it is as long as what a rank says").unwrap();
    let other = job.rank(1, 2, "--steps 1").env("PRECAST_TOKEN", "x").env("PRECAST_RENDEZVOUS_S", "2").spawn();
    ends(other.unwrap(), 1, "does not know the token of this job");
    let second = job.start(1, 2, "--steps 1");
    assert_eq!((end(first).0, end(second).0), (Some(0), Some(0)));
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(!answer.windows(5).any(|window| window == b"error"));
}
