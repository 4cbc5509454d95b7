//! Ranks on two hosts, ranks that Open MPI starts, ranks that start at other times, and ranks of other programs.

use std::fmt::Write;

use crate::ranks::{Job, assert_same};
use crate::support::prelude::*;

/// Makes two hosts of this one: namespaces of a network of their own, joined by a cable. The second is the process
/// `$host`.
const HOSTS: &str = "set -e
ip link set lo up
unshare -n sleep 600 & host=$!
trap 'kill $host' EXIT
until nsenter -t $host -n ip link set lo up && [ \"$(readlink /proc/$host/ns/net)\" != \"$(readlink /proc/$$/ns/net)\" ]
do sleep 0.05; done
ip link add name one type veth peer name two netns $host
ip addr add 10.70.0.1/24 dev one && ip link set one up
nsenter -t $host -n ip addr add 10.70.0.2/24 dev two && nsenter -t $host -n ip link set two up
";

/// Runs a script as the root of a namespace of networks.
fn as_root(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["-Urn", "sh", "-c", script]);
    command
}

/// Spells a command for a shell.
fn spelled(command: &Command) -> String {
    let mut text = "env".to_owned();
    let variables = command.get_envs().filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)));
    variables.for_each(|(name, value)| write!(text, " '{name}={value}'").unwrap());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.for_each(|word| write!(text, " '{}'", word.to_str().unwrap()).unwrap());
    text
}

#[test]
fn ranks_of_two_hosts_have_the_same_bits() {
    skip_if!(is_on_gpu());
    let hosts = as_root(HOSTS).output();
    skip_if!(skipped(!hosts.is_ok_and(|made| made.status.success()), "this kernel makes no network for a user"));
    let job = Job::new();
    job.case.distill("whole", "--lr 1e-2 --steps 4 --replicas 2").succeeds();
    // At port 7070 of the first: nothing else is on its network.
    let rank = |rank: u32| {
        let mut command = job.rank(rank, 2, "--steps 4");
        command.env("MASTER_ADDR", "10.70.0.1").env("MASTER_PORT", "7070").env("LOCAL_RANK", "0");
        spelled(&command)
    };
    let [first, second] = [0, 1].map(rank);
    as_root(&format!("{HOSTS}nsenter -t $host -n {second} & other=$!\n{first}\nwait $other")).prints("step 4/4");
    assert_same(&job.out(), &job.case.path("whole"), "two hosts");
    // Without the cable they do not meet.
    let cut = format!("{HOSTS}ip link set one down\nexport PRECAST_RENDEZVOUS_S=2\nnsenter -t $host -n {second}");
    let cut = cut.replace("'PRECAST_RENDEZVOUS_S=60'", "");
    as_root(&cut).fails(1, "rank 1: rank 0 did not answer at 10.70.0.1:7070 within 2 s");
}

#[test]
fn open_mpi_starts_ranks() {
    skip_if!(is_on_gpu());
    let is_there = Command::new("mpirun").arg("--version").output().is_ok();
    skip_if!(skipped(!is_there, "mpirun is not installed: apt-get install openmpi-bin"));
    let job = Job::new();
    job.case.distill("whole", "--lr 1e-2 --steps 4 --replicas 2").succeeds();
    let run = |address: &str| {
        let run = job.case.distill("out", ["--lr 1e-2 --steps 4 --rendezvous", address]);
        let mut command = Command::new("mpirun");
        command
            .args(["--allow-run-as-root", "--oversubscribe", "-np", "2"])
            .arg(run.get_program())
            .args(run.get_args());
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(run.get_current_dir().unwrap_or(&root()));
        command
    };
    run(&crate::support::free_address()).prints("step 4/4");
    assert_same(&job.out(), &job.case.path("whole"), "mpirun");
}

#[test]
fn ranks_wait_for_one_that_starts_late() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    job.case.distill("whole", "--lr 1e-2 --steps 1 --replicas 2").succeeds();
    for late in [0, 1] {
        let rank = |rank: u32| job.rank(rank, 2, "--steps 1 --overwrite").spawn().unwrap();
        let early = rank(1 - late);
        std::thread::sleep(std::time::Duration::from_secs(2));
        for child in [rank(late), early] {
            assert_eq!(end(child).0, Some(0));
        }
        assert_same(&job.out(), &job.case.path("whole"), "late");
    }
}

#[test]
fn a_rank_of_another_program_or_of_other_data_is_refused() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    // What is behind a program's last section changes nothing but its digest.
    let run = job.rank(1, 2, "--steps 1");
    let mut program = fs::read(run.get_program()).unwrap();
    program.push(0);
    let other = job.case.write("other-precast", &program);
    fs::set_permissions(&other, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut of_another = Command::new(&other);
    of_another.args(run.get_args()).envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
    of_another.stdout(Stdio::piped()).stderr(Stdio::piped());
    let data = job.case.write("other.bin", [1u8, 0, 0, 0].repeat(17 * 9));
    let other_data = job.rank(1, 2, &format!("--steps 1 --data {}", data.display()));
    for (mut second, said) in [(of_another, "program is "), (other_data, "data is ")] {
        let first = job.rank(0, 2, "--steps 1").spawn().unwrap();
        for child in [first, second.spawn().unwrap()] {
            ends(child, 2, ["ranks are not alike", said]);
        }
    }
    assert!(!job.out().exists(), "none of them has written anything");
}
