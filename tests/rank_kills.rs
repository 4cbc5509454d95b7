//! A rank that is killed or stopped at any moment ends all others, and the run goes on to the bits of one that nothing
//! disturbed.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::ranks::{Job, assert_same};
use crate::support::prelude::*;

/// Runs in which a rank is killed, and as many in which it is stopped.
const EACH: u32 = 20;

/// Starts two ranks that find out within seconds that the other one is gone.
fn begin(job: &Job) -> [Child; 2] {
    let arguments = format!("--steps 8 --checkpoint-every 1 {}", continuation(&job.out()));
    [0, 1].map(|rank| {
        let mut command = job.rank(rank, 2, &arguments);
        command.env("PRECAST_RENDEZVOUS_S", "2").env("PRECAST_RANK_PATIENCE_S", "1").spawn().unwrap()
    })
}

/// Kills or stops a rank after a while. The others end by themselves; a rank that was stopped hears of it as soon as it
/// goes on.
fn disturb(ranks: [Child; 2], rank: usize, how: &str, after: Duration) -> bool {
    std::thread::sleep(after);
    signal(&ranks[rank], how);
    let mut ranks = ranks.map(Some);
    let (code, said) = end(ranks[1 - rank].take().unwrap());
    let disturbed = ranks[rank].take().unwrap();
    signal(&disturbed, "CONT");
    let own = end(disturbed).0;
    assert!(matches!(code, Some(0 | 1)) && matches!(own, None | Some(0 | 1)), "{how} {rank}: {code:?} {own:?}: {said}");
    // Before they have met, each waits for the other.
    let names_it = said.contains(&format!("rank {rank}")) || said.contains("of 2 did not come to");
    assert!(code == Some(0) || names_it, "{how} {rank}: {said}");
    code != Some(0)
}

#[test]
#[ignore = "takes minutes: cargo xtask ci runs it"]
fn a_rank_that_is_killed_or_stopped_at_any_moment_loses_nothing() {
    skip_if!(is_on_gpu());
    let job = Job::new();
    let whole = job.case.path("whole");
    job.case.distill("whole", "--lr 1e-2 --steps 8 --replicas 2").succeeds();
    // The time that a run takes here says where the moments lie.
    let begun = Instant::now();
    begin(&job).into_iter().for_each(|rank| assert_eq!(end(rank).0, Some(0)));
    let run_us = begun.elapsed().as_micros() as u64;
    let mut rng = Pcg64Mcg::seed_from_u64(70);
    for (rank, how) in [(0, "KILL"), (1, "KILL"), (0, "STOP"), (1, "STOP")] {
        let mut disturbed = 0;
        for number in 0..EACH {
            let _ = fs::remove_dir_all(job.out());
            let after = Duration::from_micros(rng.random_range(0..run_us));
            disturbed += u32::from(disturb(begin(&job), rank, how, after));
            for rank in begin(&job) {
                let (code, said) = end(rank);
                assert!(code == Some(0) || said.contains("steps are done"), "{said}");
            }
            assert_same(&job.out(), &whole, &format!("{how} {rank}, number {number}"));
        }
        eprintln!("{how} of rank {rank}: {disturbed} of {EACH} runs ended by it, and all had the same weights");
        assert!(disturbed > 0, "{how} {rank}: every run was over");
    }
}
