//! A rank that is killed or stopped at any moment ends all others, and the run goes on to the bits of one that nothing
//! disturbed.

use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::kill::kills;
use crate::ranks::{Job, assert_same};
use crate::support::prelude::*;

/// Runs in which each rank is killed, and as many in which it is stopped, unless `PRECAST_TEST_KILLS` says how many.
const EACH: u32 = 20;

/// Starts two ranks that find out within seconds that the other one is gone: a GPU's take longer to begin.
fn begin(job: &Job) -> [Child; 2] {
    let arguments = format!("--steps 8 --checkpoint-every 1 {}", continuation(&job.out()));
    let [together_s, patience_s] = if is_sim() { ["2", "1"] } else { ["30", "5"] };
    [0, 1].map(|rank| {
        let mut command = job.rank(rank, 2, &arguments);
        command.env("PRECAST_RENDEZVOUS_S", together_s).env("PRECAST_RANK_PATIENCE_S", patience_s).spawn().unwrap()
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

/// Disturbs a rank at moments of a run, and resumes each time.
fn disturb_at_random(rank: usize, how: &str) {
    let job = Job::new();
    let whole = job.case.path("whole");
    job.case.distill("whole", "--lr 1e-2 --steps 8 --replicas 2").succeeds();
    // The time that a run takes here says where the moments lie.
    let begun = Instant::now();
    begin(&job).into_iter().for_each(|rank| assert_eq!(end(rank), (Some(0), String::new())));
    let run_us = begun.elapsed().as_micros() as u64;
    let mut rng = Pcg64Mcg::seed_from_u64(70 + rank as u64);
    let (each, mut disturbed) = (kills(EACH), 0);
    for number in 0..each {
        let _ = fs::remove_dir_all(job.out());
        let after = Duration::from_micros(rng.random_range(0..run_us));
        disturbed += u32::from(disturb(begin(&job), rank, how, after));
        for rank in begin(&job) {
            let (code, said) = end(rank);
            assert!(code == Some(0) || said.contains("steps are done"), "{said}");
        }
        assert_same(&job.out(), &whole, &format!("{how} {rank}, number {number}"));
    }
    eprintln!("{how} of rank {rank}: {disturbed} of {each} runs ended by it, and all had the same weights");
    assert!(disturbed > 0, "{how} {rank}: every run was over");
}

#[test]
#[ignore = "takes minutes: cargo xtask ci runs it"]
fn the_first_rank_is_killed_at_any_moment_and_nothing_is_lost() {
    disturb_at_random(0, "KILL");
}

#[test]
#[ignore = "takes minutes: cargo xtask ci runs it"]
fn the_second_rank_is_killed_at_any_moment_and_nothing_is_lost() {
    disturb_at_random(1, "KILL");
}

#[test]
#[ignore = "takes minutes: cargo xtask ci runs it"]
fn the_first_rank_is_stopped_at_any_moment_and_nothing_is_lost() {
    disturb_at_random(0, "STOP");
}

#[test]
#[ignore = "takes minutes: cargo xtask ci runs it"]
fn the_second_rank_is_stopped_at_any_moment_and_nothing_is_lost() {
    disturb_at_random(1, "STOP");
}
