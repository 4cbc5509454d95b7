//! Runs of several ranks whose GPUs copy from each other's memory, or whose NCCL moves bytes, under stand-ins for both:
//! streams are threads, memory is shared between processes, and kernels are their host references, so that every byte
//! of a run on CUDA's own path counts.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Child;

use crate::driver::{Machine, machine, sm_121};
use crate::ranks::{assert_same, last_checkpoint};
use crate::support::prelude::*;
use crate::support::{as_rank, build_nccl, free_address};

/// A host with GPUs of its own, and what a run takes.
pub struct Host {
    pub machine: Machine,
    pub case: Case,
    pub bundle: PathBuf,
    /// Where ranks meet that a launcher starts.
    address: String,
}

/// As many GPUs as a test may want. What a stream is asked for begins a little later, by chance, so that ranks and
/// streams come into many orders.
const LATE: [(&str, &str); 3] =
    [("PRECAST_FAKE_GPUS", "4"), ("PRECAST_FAKE_INTEGRATED", "0"), ("PRECAST_FAKE_DELAY_US", "300")];

pub fn host() -> Host {
    Host::new(&LATE)
}

/// One whose GPUs have NVLink: ranks quantize a student's layers for each other.
fn nvlinked() -> Host {
    let mut host = Host::new(&[&LATE[..], &[("PRECAST_FAKE_CAPABILITY", "10.0")]].concat());
    host.bundle = host.machine.path().join("sm_100.bundle");
    // Of the kernels those of its runs alone: compiling all takes longer than the runs.
    let keys: BTreeSet<String> = ["1", "2", "4"].into_iter().flat_map(|gpus| int8_keys(&host, gpus)).collect();
    let keys = keys.iter().flat_map(|key| ["--key", key]);
    // `plan` describes rank 0, which updates nothing of so small a model.
    let mut build = precast_aot();
    build.args(["build", "--arch", "sm_100", "--key", "adamw.update"]).args(keys).arg("--out").arg(&host.bundle);
    build.succeeds();
    host
}

/// Keys that a run of int8 launches on so many GPUs with NVLink.
fn int8_keys(host: &Host, gpus: &str) -> Vec<String> {
    let mut plan = precast();
    plan.current_dir(host.case.dir.path())
        .with(["plan --json --arch sm_100 --teacher teacher --student student", STEPS]);
    let keys: Vec<String> = each(&plan.with(["--precision int8 --replicas 4 --gpus", gpus]).json()["kernels"], "key");
    assert!(keys.len() > 30, "{keys:?}");
    keys
}

const STEPS: &str = "--batch-size 1 --seq-len 16 --lr 1e-2 --warmup 2";

impl Host {
    /// One that the environment changes so.
    pub fn new(variables: &[(&'static str, &'static str)]) -> Self {
        let machine = machine(variables);
        build_nccl(machine.path());
        Self { case: Case::new(17 * 9), bundle: sm_121(machine.path()), machine, address: free_address() }
    }

    /// `precast distill` to a directory of this name.
    pub fn distill(&self, out: &str, arguments: &str) -> Command {
        let mut command = precast();
        command.current_dir(self.case.dir.path());
        command.with(["distill --teacher teacher --student student --data data.bin --out", out, STEPS, arguments]);
        self.machine.computes(&mut command, &self.bundle)
    }

    pub fn out(&self, name: &str) -> PathBuf {
        self.case.path(name)
    }

    /// A rank of several, as torchrun starts it.
    pub fn rank(&self, out: &str, rank: u32, ranks: u32, arguments: &str) -> Command {
        as_rank(self.distill(out, arguments), [rank, ranks], &self.address)
    }

    /// Ranks that go on until somebody ends them, two steps later.
    fn start(&self, out: &str, ranks: u32, variables: &[(&str, &str)]) -> Vec<Child> {
        let endless = "--steps 1000000 --checkpoint-every 1";
        let start = |rank| self.rank(out, rank, ranks, endless).envs(variables.iter().copied()).spawn().unwrap();
        let mut ranks: Vec<Child> = (0..ranks).map(start).collect();
        wait_for_steps(&self.out(out), 2, &mut ranks[0]);
        ranks
    }
}

/// The files that ranks of these processes may have left.
fn left_by(processes: &[u32]) -> Vec<String> {
    let of_one = |name: &String| processes.iter().any(|process| name.starts_with(&format!("precast-{process}-")));
    names_in(Path::new("/dev/shm")).into_iter().filter(of_one).collect()
}

/// What a run that failed says of itself: its outcome in `run.json`.
fn reason(out: &Path) -> String {
    let outcome = &run_record(out)["outcome"];
    assert_eq!(outcome["status"], "failed", "{outcome}");
    outcome["reason"].as_str().unwrap().to_owned()
}

const BY: [(&str, &str); 2] =
    [("copies", "by copy engines"), ("nccl", "by NCCL 2.28.3, since rank 0: PRECAST_EXCHANGE is nccl")];

/// A layer's weights are sent while the layer before computes on another stream, and so are streams copied to host
/// memory and back: whatever comes first, no byte is another.
#[test]
fn a_sweep_has_the_same_bytes_whichever_stream_is_late() {
    skip_if!(has_driver() || lacks_compiler());
    let host = host();
    let teacher = host.case.model("deep", 5, &[("num_hidden_layers", 12.into())]);
    token_file(host.case.dir.path(), "long.bin", 65 * 32, 96);
    let cache = |out: &str, more: &str| {
        let mut command = precast();
        command.current_dir(host.case.dir.path()).arg("cache").arg("--teacher").arg(&teacher);
        command.with(["--data long.bin --seq-len 64 --batch-size 4 --out", out, more]);
        command
    };
    let swept =
        |out: &str, memory: &str| host.machine.computes(&mut cache(out, &format!("--memory {memory}")), &host.bundle);
    let said = swept("none", "1").fails(4, "two of its layers with a batch of sequences do not either");
    let least = said.split_once(" bytes (").unwrap().1.split(' ').next().unwrap();
    // All batches at a time: their layers take longer than the copies of a layer.
    let memory = (least.parse::<u64>().unwrap() + (160 << 10)).to_string();
    cache("whole", "--device sim").succeeds();
    for index in 0..3 {
        let [_, said] = swept(&format!("swept-{index}"), &memory).says();
        assert!(said.contains("it is swept through") && said.contains(" 2048 tokens at a time"), "{said}");
        assert!(host.case.read(format!("swept-{index}/hidden.bin")) == host.case.read("whole/hidden.bin"));
    }
    // Two blocks of a batch each.
    let memory = (least.parse::<u64>().unwrap() + (40 << 10)).to_string();
    for index in 0..3 {
        let out = format!("spilled-{index}");
        let [_, said] =
            host.machine.computes(&mut cache(&out, &format!("--memory {memory} --spill 1MiB")), &host.bundle).says();
        assert!(said.contains(" of them on the device and all in "), "{said}");
        assert!(host.case.read(format!("{out}/hidden.bin")) == host.case.read("whole/hidden.bin"), "{index}");
    }
}

/// Each rank opens the GPU of its number, and exchanges nothing with the others' devices.
#[test]
fn gpus_that_divide_a_filling_give_the_bytes_of_one() {
    skip_if!(has_driver() || lacks_compiler());
    let host = host();
    let cache = |out: &str, more: &str| {
        let mut command = precast();
        command.current_dir(host.case.dir.path()).with(["cache --teacher teacher --data data.bin --out", out]);
        command.with(["--batch-size 1 --seq-len 16", more]);
        command
    };
    cache("whole", "--device sim").succeeds();
    for gpus in ["2", "3", "all"] {
        host.machine.computes(&mut cache(gpus, &format!("--gpus {gpus}")), &host.bundle).succeeds();
        assert!(host.case.read(format!("{gpus}/hidden.bin")) == host.case.read("whole/hidden.bin"), "{gpus}");
    }
}

#[test]
fn several_ranks_give_the_bits_of_one() {
    skip_if!(has_driver());
    let (host, nvlinked) = (host(), nvlinked());
    let cases = [
        (&host, "bf16", "4", &["2", "4"][..]),
        (&host, "fp32", "3", &["3"]),
        (&host, "int8", "2", &["2"]),
        // Of two layers, two of four ranks quantize none.
        (&nvlinked, "int8", "4", &["2", "4"]),
    ];
    for (host, precision, replicas, counts) in cases {
        let common = format!("--steps 4 --precision {precision} --replicas {replicas}");
        let one = format!("{precision}-one");
        host.distill(&one, &common).succeeds();
        for (count, (exchange, by)) in counts.iter().flat_map(|count| BY.map(|by| (count, by))) {
            let name = format!("{precision}-{count}-{exchange}");
            let mut command = host.distill(&name, &format!("{common} --gpus {count}"));
            command.env("PRECAST_EXCHANGE", exchange).prints(format!("{count}, {by}"));
            assert_same(&host.out(&name), &host.out(&one), &name);
            let record = run_record(&host.out(&name));
            assert_eq!(record["ranks"], format!("{count}, {by}"));
            assert!(record["waited_ms_a_step"].as_f64().unwrap() > 0.0);
        }
        // As the simulated GPU computes, which has no streams that could be waited for too early.
        let simulated = format!("{precision}-sim");
        host.case.distill(&simulated, [STEPS, &common]).succeeds();
        assert_same(&host.out(&simulated), &host.out(&one), "the simulated GPU");
    }
}

/// Whatever moves bytes is trusted: that they are compared is seen where one bit of each message is another.
#[test]
fn bytes_that_arrive_changed_give_other_weights() {
    skip_if!(has_driver());
    let host = host();
    for (out, flips) in [("sound", None), ("flipped", Some(("PRECAST_FAKE_NCCL_FLIPS", "1")))] {
        let mut command = host.distill(out, "--steps 2 --precision fp32 --gpus 2");
        command.env("PRECAST_EXCHANGE", "nccl").envs(flips).succeeds();
    }
    assert!(host.case.weights("sound") != host.case.weights("flipped"));
}

/// A rank that fetches late gets what was sent, and not what its sender has there by then.
#[test]
fn what_is_sent_stays_until_the_slowest_rank_has_it() {
    skip_if!(has_driver());
    let host = host();
    let common = "--steps 3 --replicas 2 --grad-accum 4";
    host.distill("one", common).succeeds();
    for slow in [0, 1] {
        let name = format!("slow-{slow}");
        let start = |rank| {
            let mut command = host.rank(&name, rank, 2, common);
            if rank == slow {
                command.env("PRECAST_FAKE_COPY_US", "20000");
            }
            command.spawn().unwrap()
        };
        for child in [0, 1].map(start) {
            assert_eq!(end(child), (Some(0), String::new()));
        }
        assert_same(&host.out(&name), &host.out("one"), &name);
    }
}

#[test]
fn a_rank_that_is_killed_ends_the_others_by_its_name() {
    skip_if!(has_driver());
    let host = host();
    for (count, killed, exchange) in [(2, 0, "copies"), (2, 1, "nccl"), (3, 1, "copies")] {
        let name = format!("{killed}-of-{count}");
        let ranks = host.start(&name, count, &[("PRECAST_EXCHANGE", exchange)]);
        let processes: Vec<u32> = ranks.iter().map(Child::id).collect();
        signal(&ranks[killed], "KILL");
        let expected = format!("rank {killed} of {count} failed: its connection is closed");
        for (rank, child) in ranks.into_iter().enumerate() {
            if rank == killed {
                assert_eq!(child.wait_with_output().unwrap().status.signal(), Some(9));
                continue;
            }
            let message = ends(child, 1, "");
            // At once: nothing that its device waits for is left.
            let ended =
                message.starts_with(&format!("error: {expected}")) && !message.contains("did not end by itself");
            assert!(ended, "rank {rank}: {message}");
        }
        let out = host.out(&name);
        if killed != 0 {
            assert!(reason(&out).starts_with(&expected), "{}", reason(&out));
        }
        assert_eq!(left_by(&processes), [""; 0]);
        // What was there goes on, and comes where a run comes that nobody has killed.
        let (more, whole) = (last_checkpoint(&out) + 1, format!("{name}-whole"));
        host.distill(&name, &format!("--steps {more} --resume --gpus {count}")).succeeds();
        host.distill(&whole, &format!("--steps {more} --replicas {count}")).succeeds();
        assert_same(&out, &host.out(&whole), "killed and continued");
    }
}

#[test]
fn a_rank_that_is_stopped_is_not_waited_for_forever() {
    skip_if!(has_driver());
    let host = host();
    let mut ranks = host.start("out", 2, &[("PRECAST_RANK_PATIENCE_S", "3")]);
    let (stopped, first) = (ranks.remove(1), ranks.remove(0));
    signal(&stopped, "STOP");
    let expected = "rank 1 of 2 failed: nothing has been heard of it for 3 s";
    assert!(ends(first, 1, "").starts_with(&format!("error: {expected}")));
    assert!(reason(&host.out("out")).starts_with(expected));
    // It was the first that failed, and reads so when it continues.
    signal(&stopped, "CONT");
    assert!(ends(stopped, 1, "").starts_with(&format!("error: {expected}")));
}

#[test]
fn where_copies_cannot_be_the_reason_is_said_and_nccl_taken() {
    skip_if!(has_driver());
    let host = host();
    let distill = |out: &str, refused: &str| {
        let mut command = host.distill(out, "--steps 2 --gpus 2 --overwrite");
        command.env("PRECAST_FAKE_REFUSES", refused);
        command
    };
    for (refused, by) in [
        ("cuIpcGetMemHandle", "rank 0: cuIpcGetMemHandle failed"),
        ("cuIpcOpenMemHandle", "rank 0: cuIpcOpenMemHandle failed: CUDA_ERROR_NOT_SUPPORTED (801) on rank 1"),
        ("cuMemHostRegister", "rank 0: /dev/shm/precast-"),
    ] {
        distill("nccl", refused).prints(["2, by NCCL 2.28.3, since ", by]);
    }
    // There is no NCCL either.
    let none = |name: &str, value: &str| distill("none", "cuIpcGetMemHandle").env(name, value).fails(4, "rank 0: ");
    let said = none("PRECAST_NCCL", "libnccl-of-nobody.so.2");
    assert!(said.contains("Copy engines are not used because rank 0: cuIpcGetMemHandle failed"), "{said}");
    let said = none("PRECAST_EXCHANGE", "copies");
    assert!(said.contains("PRECAST_EXCHANGE=copies, but copies cannot be used: rank 0: "), "{said}");
}
