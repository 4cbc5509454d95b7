//! Search for the node that hangs: the process becomes a new one, whose context the hanging one does not touch, and
//! that one runs the step again, on random tokens, a node at a time.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use precast_plan::decoding::{BUCKETS, PREFILL, decode_phase};
use precast_plan::{Decoding, Share};
use precast_runtime::Placement;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::io::{FdFlags, fcntl_setfd};
use signal_hook::low_level;

use crate::base::notes;
use crate::base::startup_times::Startup;
use crate::base::stop::tell_at_terminal;
use crate::device;
use crate::device::decoding::DecodingDevice;
use crate::device::decoding::schedule::Sequence;
use crate::device::run_models::RunModels;
use crate::device::session::Session;
use crate::device::watch::{Hang, LAST_WORDS, Node, end_within};
use crate::options::{Before, Options, Patience, Purpose, UsageError};
use crate::programs::failure::Failure;
use crate::programs::random_steps::{RANDOM_SEEDS, Steps};
use crate::programs::rank_end;
use crate::ranks::Ranks;
use crate::run::log;
use crate::run::metrics::{METRICS, Metrics};
use crate::run::out::{Out, Start};
use crate::run::outcome::{Outcome, Status};
use crate::run::record::{self, OUTCOME, RECORD, RunRecord};

/// Environment variable that tells a process what to replay, as JSON: [`Hang`].
const REQUEST: &str = "PRECAST_REPLAY";
/// A node takes a small part of a phase, for which the run's patience is meant.
const NODES_OF_PATIENCE: u64 = 10;
const NODE_S: std::ops::RangeInclusive<u64> = 2..=30;
/// The whole replay, by the run's patience.
const REPLAY_S: std::ops::RangeInclusive<u64> = 60..=600;

/// Ends the process of a run that hangs: alone it becomes one that replays, and among ranks all of them end.
pub fn hangs(ranks: &Ranks, hang: Hang) {
    if ranks.count() > 1 {
        let hang = Hang { node: Node::OfRanks, ..hang };
        let failure = rank_end::ended::<()>(ranks, Err(Box::new(hang).into())).expect_err("it has failed");
        if !matches!(failure, Failure::Hung(_)) {
            // Another rank has failed first: this one's waits end, and it says so itself.
            thread::sleep(LAST_WORDS / 2);
        }
        failure.tell();
        if let Failure::Hung(hang) = &failure {
            let _ = record(hang);
        }
        low_level::exit(failure.exit_code().into());
    }
    // Whatever ends the replay, this much is known.
    let recorded = record(&hang).ok().flatten();
    let hang = Hang { recorded, ..hang };
    tell_at_terminal(&format!(
        "note: {} has not ended for {} s: the run ends. The step is replayed, a node at a time, for at most {} s",
        hang.what(),
        hang.waited_s,
        replay_s(&hang)
    ));
    let why = become_replay(&hang);
    end(Hang { node: Node::Unknown(format!("the replay did not start: {why}")), ..hang });
}

fn replay_s(hang: &Hang) -> u64 {
    hang.patience_s.clamp(*REPLAY_S.start(), *REPLAY_S.end())
}

/// Becomes the process that replays. Returns why it does not.
fn become_replay(hang: &Hang) -> std::io::Error {
    // A file of the device that is still open would keep its context, and the memory that the other one needs.
    for entry in std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten() {
        if let Some(file @ 3..) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) {
            // SAFETY: setting the flag fails if the file has been closed meanwhile, and is harmless if its number is now another file's.
            let _ = fcntl_setfd(unsafe { std::os::fd::BorrowedFd::borrow_raw(file) }, FdFlags::CLOEXEC);
        }
    }
    let mut arguments = std::env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default()).args(arguments);
    command.env(REQUEST, serde_json::to_string(hang).expect("plain data serializes")).exec()
}

/// Returns the hang that this process is to replay; none of one that is to run.
pub fn requested() -> Option<Hang> {
    serde_json::from_str(&std::env::var(REQUEST).ok()?).ok()
}

/// Replays a run's step, and says which of its nodes hangs. A configuration that is no longer there hides the node, not the hang.
pub fn replay(asked: Result<Options, UsageError>, hang: Hang) -> Failure {
    let within = replay_s(&hang);
    let late = Node::Unknown(format!("the replay has not come to it within {within} s"));
    let late = Hang { node: late, ..hang.clone() };
    end_within(Duration::from_secs(within), move || {
        end_within(LAST_WORDS, || {});
        end(late);
    });
    log::hold();
    notes::silence();
    let node = match asked.map_err(Failure::from).and_then(|asked| run(asked, &hang)) {
        Ok(()) => Node::AllEnd,
        Err(failure) => Node::Unknown(format!("the replay has failed: {failure}")),
    };
    let hang = Hang { node, ..hang };
    end_within(LAST_WORDS, || {});
    let _ = record_again(&hang);
    Box::new(hang).into()
}

fn run(mut asked: Options, hang: &Hang) -> Result<(), Failure> {
    let node_s = (hang.patience_s / NODES_OF_PATIENCE).clamp(*NODE_S.start(), *NODE_S.end());
    asked.output.patience = Some(Patience::Most(node_s));
    let before = hang.replicas.map(|replicas| Before { steps: asked.steps, replicas });
    let config = asked.resolve(Purpose::Run, Share::ALONE, before)?;
    let models = RunModels::open_or_random(&config, RANDOM_SEEDS)?;
    let mut driver = device::open_for(&config)?;
    driver.run_nodes_alone();
    let (mut session, ()) = Session::open(driver, &models, &config, Placement::Arena, &mut Startup::default(), |_| ())?;
    let of_run = hang.clone();
    session.watch.on_hang(move |found| end(Hang { node: found_in(&found, &of_run), ..of_run }));
    session.upload(&models, |_| Ok(()))?;
    let vocab = models.student().config().vocab;
    Steps::new(&mut session, &config, vocab).one(&mut session)?;
    // Some phases are of some steps alone.
    let has = |session: &Session, name: &str| session.plan.plan.phases.iter().any(|phase| phase.name == name);
    for phase in hang.phases.iter().filter(|phase| has(&session, phase)).cloned().collect::<Vec<_>>() {
        match session.plan.decoding.filter(|_| is_of_decoding(&phase)) {
            Some(decoding) => decode(&mut session, decoding, &phase, vocab)?,
            None => drop(session.time(&phase, 1)?),
        }
    }
    Ok(())
}

/// True of a phase whose rows are nothing but what is written for it.
fn is_of_decoding(phase: &str) -> bool {
    phase == PREFILL || BUCKETS.iter().any(|rows| decode_phase(*rows) == phase)
}

/// Decodes a token of random prompts, as many as the phase has rows.
fn decode(session: &mut Session, decoding: Decoding, phase: &str, vocab: u32) -> Result<(), Failure> {
    let rows = BUCKETS.into_iter().find(|rows| decode_phase(*rows) == phase).unwrap_or(decoding.slots.count);
    let prompt_tokens = decoding.slots.seq_len - 1;
    let mut rng = Pcg64Mcg::seed_from_u64(0);
    let sequences = (0..rows.min(decoding.slots.count)).map(|number| {
        let prompt = (0..prompt_tokens).map(|_| rng.random_range(0..vocab)).collect();
        Sequence { number: number.into(), prompt, most: decoding.slots.seq_len }
    });
    DecodingDevice::new(session, decoding, &[])?.complete(sequences, |_, _| Ok::<_, Failure>(()))
}

/// Returns the node of the run's hang that a hang of the replay tells; unknown where the replay hangs elsewhere.
fn found_in(found: &Hang, of_run: &Hang) -> Node {
    let is_of_run = of_run.phases.is_empty() || found.phases.iter().any(|phase| of_run.phases.contains(phase));
    match &found.node {
        Node::Unsought => Node::Unknown(format!("the replay hangs, too: {} does not end", found.what())),
        Node::Found(node, _) if !is_of_run => {
            Node::Unknown(format!("the replay hangs before it comes there, in {}: {node}", found.what()))
        }
        node => node.clone(),
    }
}

/// Ends this process with what is known of a hang.
fn end(hang: Hang) -> ! {
    let failure = Failure::from(Box::new(hang.clone()));
    failure.tell();
    let _ = record_again(&hang);
    low_level::exit(Hang::EXIT_CODE.into())
}

/// Writes into `run.json` why a run has ended, if it had begun, and returns what it wrote. The process that hangs has the directory.
fn record(hang: &Hang) -> Result<Option<String>, Failure> {
    let Some(out) = hang.out.as_deref().filter(|out| hang.step.is_some() && out.join(RECORD).exists()) else {
        return Ok(None);
    };
    let mut record = RunRecord(record::read(out)?);
    let records = Metrics::read(&out.join(METRICS))?.records;
    let reason = hang.to_string();
    let outcome = Outcome::new(Status::Failed, Some(reason.clone()), &records, Startup::default().elapsed_s());
    record.set(OUTCOME, Some(outcome));
    record.write(out)?;
    Ok(Some(reason))
}

/// Writes it again with what the replay has shown, and what this process has said into the run's log: unless another process has
/// taken the directory since.
fn record_again(hang: &Hang) -> Result<(), Failure> {
    let (Some(out), Some(recorded)) = (&hang.out, &hang.recorded) else { return Ok(()) };
    let claim = Out::claim(out, Start::Resume, &[])?;
    if record::read(out)?["outcome"]["reason"].as_str() == Some(recorded) {
        claim.open_log();
        record(hang)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use precast_runtime::Doing;

    use super::*;

    #[test]
    fn a_node_of_another_phase_is_not_said_to_be_the_one_that_hung() {
        let of = |phase: &str, node: Option<precast_runtime::NodeName>| {
            let doing = Doing { progress: (1, 1, 1), phases: vec![phase.to_owned()], step: Some(31), node };
            Hang::new("cuda:0".to_owned(), doing, (121, 120), None)
        };
        let node = || precast_runtime::NodeName { number: 1, of: 3, label: "clear".to_owned(), key: None };
        let update = of("update", None);
        assert!(matches!(found_in(&of("update", Some(node())), &update), Node::Found(..)));
        let Node::Unknown(why) = found_in(&of("clear", Some(node())), &update) else { panic!("it is known") };
        assert!(
            why.starts_with("the replay hangs before it comes there, in phase `clear` of step 31: node 1 of 3"),
            "{why}"
        );
        assert!(matches!(found_in(&of("clear", None), &update), Node::Unknown(_)));
    }
}
