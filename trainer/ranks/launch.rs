//! `--gpus`: starts a process for each GPU of this host, and ends when they have.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal as Number, kill_process};

use super::error::{RankError, ranks_of};
use super::launcher::{Place, RANK, RANKS, RENDEZVOUS, TOKEN};
use super::token::random;
use crate::base::io::IoError;
use crate::base::signal::Signal;
use crate::base::stop::Stop;
use crate::options::DeviceChoice;

/// Number of GPUs of this host to train on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    All,
    Count(u32),
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(Self::All),
            (_, Ok(count @ 1..=MOST)) => Ok(Self::Count(count)),
            _ => Err(format!("expected a number from 1 to {MOST}, or all")),
        }
    }
}

/// No host has more.
const MOST: u32 = 1024;
/// Time that the others may take to end by themselves once rank 0 has ended.
const AFTER_FIRST: Duration = Duration::from_secs(10);
/// Time that all may take to end by themselves once one has failed: they hear of it, or find out.
const AFTER_FAILURE: Duration = Duration::from_secs(90);
/// Time that one may take to end once it has been killed.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// Between two looks at what has ended.
const LOOK: Duration = Duration::from_millis(20);

/// This process as a rank: one that a launcher started, or the only one. Where `--gpus` asks for several, they are
/// started, waited for, and this process ends as they have.
///
/// # Errors
/// [`RankError::Usage`] for what does not go together.
pub fn start(gpus: Option<Gpus>, rendezvous: Option<&str>, device: DeviceChoice) -> Result<Place, RankError> {
    let visible = || precast_runtime::cuda::count().unwrap_or(0);
    let found = Place::find(|name| std::env::var(name).ok(), rendezvous, visible)?;
    let place = match (found, gpus) {
        (Some(place), Some(_)) if place.launcher != super::Launcher::Precast => {
            let launcher = place.launcher.name();
            return Err(RankError::Usage(format!(
                "--gpus starts ranks, and {launcher} has started this one: give only one of them"
            )));
        }
        (Some(place), _) => place,
        (None, Some(gpus)) => {
            let count = match gpus {
                Gpus::Count(count) => count,
                Gpus::All => all(device)?,
            };
            if count > 1 {
                check_device(device)?;
                std::process::exit(run(count)?);
            }
            Place::default()
        }
        (None, None) if rendezvous.is_some() => {
            return Err(RankError::Usage(
                "--rendezvous is where ranks meet, and no launcher has started any: give --gpus N on one host".into(),
            ));
        }
        (None, None) => Place::default(),
    };
    if place.ranks > 1 {
        check_device(device)?;
    }
    Ok(place)
}

/// Returns this process's place, as [`start`] does. A dry run starts nobody, and is rank 0 of as many as it is asked
/// for.
///
/// # Errors
/// As [`start`].
pub fn place(
    is_dry: bool,
    gpus: Option<Gpus>,
    rendezvous: Option<&str>,
    device: DeviceChoice,
) -> Result<Place, RankError> {
    match (is_dry, gpus) {
        (true, Some(Gpus::Count(ranks))) => Ok(Place { ranks, ..Place::default() }),
        (true, _) => Ok(Place::default()),
        (false, gpus) => start(gpus, rendezvous, device),
    }
}

/// Refuses to be one of several ranks, each of which would do all of the work of a command that runs on one GPU.
///
/// # Errors
/// [`RankError::Usage`].
pub fn check_alone(command: &str) -> Result<(), RankError> {
    // A rank that meets no other needs no address, and takes whichever GPU it is given.
    let found = Place::find(|name| std::env::var(name).ok(), Some("nowhere:0"), || 1);
    match found.ok().flatten().filter(|place| place.ranks > 1) {
        Some(Place { launcher, ranks, .. }) => Err(RankError::Usage(format!(
            "{} has started {ranks} ranks, and {command} is one process on one GPU: start it without, or once for \
            each GPU \
             (--device cuda:N) with a part of the data",
            launcher.name()
        ))),
        None => Ok(()),
    }
}

fn check_device(device: DeviceChoice) -> Result<(), RankError> {
    match device {
        DeviceChoice::Auto | DeviceChoice::Sim => Ok(()),
        DeviceChoice::Cuda(_) | DeviceChoice::Portable(_) | DeviceChoice::As(..) => Err(RankError::Usage(format!(
            "--device {device} is one GPU, and each rank takes its own: leave --device out, or set CUDA_VISIBLE_DEVICES"
        ))),
    }
}

fn all(device: DeviceChoice) -> Result<u32, RankError> {
    if device == DeviceChoice::Sim {
        return Err(RankError::Usage(
            "--gpus all counts GPUs, and there is any number of simulated ones: give --gpus N".into(),
        ));
    }
    Ok(precast_runtime::cuda::count()?)
}

/// Runs this command as so many ranks; returns the exit code.
fn run(count: u32) -> Result<i32, RankError> {
    let stop = Stop::install()?;
    let listener = TcpListener::bind("127.0.0.1:0").map_err(RankError::io("listen for ranks"))?;
    let address = listener.local_addr().map_err(RankError::io("listen for ranks"))?.to_string();
    let token: [u8; 32] = random().map_err(RankError::io("make a token"))?;
    let token: String = token.iter().map(|byte| format!("{byte:02x}")).collect();
    let program = std::env::current_exe().map_err(RankError::io("find this program"))?;
    let mut listener = Some(listener);
    let mut ranks = Vec::new();
    for rank in 0..count {
        let mut command = Command::new(&program);
        command.args(std::env::args_os().skip(1));
        command.env(RANK, rank.to_string()).env(RANKS, count.to_string());
        command.env(RENDEZVOUS, &address).env(TOKEN, &token);
        // Ctrl-C comes to this process, which passes it on once.
        command.process_group(0);
        // Rank 0's is the port; the others' closes when this process ends, however it does.
        match listener.take() {
            Some(listener) => command.stdin(Stdio::from(OwnedFd::from(listener))),
            None => command.stdin(Stdio::piped()),
        };
        match command.spawn() {
            Ok(child) => ranks.push(Rank { child, ended: None, killed: false }),
            Err(error) => {
                ranks.iter_mut().for_each(Rank::kill);
                return Err(IoError::of("start", program)(error).into());
            }
        }
    }
    wait(&mut ranks, &stop)
}

struct Rank {
    child: Child,
    /// Its exit code, or none of a signal's, once it has ended.
    ended: Option<Option<i32>>,
    /// By the launcher, since it did not end.
    killed: bool,
}

impl Rank {
    fn look(&mut self) {
        if self.ended.is_none() {
            // One that is not there has ended, nobody knows how.
            self.ended = self.child.try_wait().map_or(Some(None), |status| status.map(|status| status.code()));
        }
    }

    fn signal(&self, signal: Signal) {
        let (pid, number) = (Pid::from_raw(self.child.id() as i32), Number::from_named_raw(signal.number()));
        if let (None, Some(pid), Some(number)) = (self.ended, pid, number) {
            let _ = kill_process(pid, number);
        }
    }

    fn kill(&mut self) {
        if self.ended.is_none() {
            let _ = self.child.kill();
            // One that waits inside the GPU's driver ends when that lets it go, or never.
            let until = Instant::now() + AFTER_KILL;
            while self.ended.is_none() && Instant::now() < until {
                self.look();
                thread::sleep(LOOK);
            }
            self.killed = true;
        }
    }
}

/// Waits until all have ended. Those that do not, after one has failed, are ended.
fn wait(ranks: &mut [Rank], stop: &Stop) -> Result<i32, RankError> {
    let mut passed_on = false;
    let mut until: Option<Instant> = None;
    loop {
        ranks.iter_mut().for_each(Rank::look);
        if let (Some(signal), false) = (stop.requested(), passed_on) {
            passed_on = true;
            ranks.iter().for_each(|rank| rank.signal(signal));
        }
        if ranks.iter().all(|rank| rank.ended.is_some()) {
            break;
        }
        let has_failed = |rank: &Rank| rank.ended.is_some_and(|code| code != Some(0));
        let failed = ranks.iter().any(has_failed).then_some(AFTER_FAILURE);
        let patience = ranks[0].ended.map_or(failed, |_| Some(AFTER_FIRST));
        if let Some(patience) = patience {
            let until = until.get_or_insert(Instant::now() + patience);
            *until = (*until).min(Instant::now() + patience);
            if Instant::now() > *until {
                ranks.iter_mut().for_each(Rank::kill);
                break;
            }
        }
        thread::sleep(LOOK);
    }
    exit_code(ranks.iter().map(|rank| (rank.ended.flatten(), rank.killed)))
}

/// Rank 0's, or that of the first that failed by itself; 1 where a signal has ended one. Of each rank its exit code,
/// none where a signal has ended it, and whether the signal was this launcher's.
///
/// # Errors
/// [`RankError`] where those that would report it to the user were killed.
fn exit_code(ended: impl Iterator<Item = (Option<i32>, bool)>) -> Result<i32, RankError> {
    let ended: Vec<(Option<i32>, bool)> = ended.collect();
    if ended.iter().all(|(code, _)| *code == Some(0)) {
        return Ok(0);
    }
    // Rank 0 reports for all, and rank 1 where rank 0 has failed.
    let by_others = |(code, by_launcher): &(Option<i32>, bool)| code.is_none() && !by_launcher;
    if ended.iter().take(2).all(by_others) {
        let killed: Vec<u32> = (0..).zip(&ended).filter(|(_, ended)| by_others(ended)).map(|(rank, _)| rank).collect();
        let (killed, ranks) = (ranks_of(&killed), ended.len());
        return Err(RankError::Io(format!("{killed} of {ranks} were killed before any rank reported a failure")));
    }
    Ok(ended.into_iter().filter_map(|(code, _)| code).find(|code| *code != 0).unwrap_or(1))
}

/// True if another rank of `--gpus` prints why this one has failed.
pub fn is_printed_by_another(error: &RankError) -> bool {
    let own = std::env::var(RANK).ok().and_then(|rank| rank.parse().ok());
    own.is_some_and(|own| error.is_printed_by_another(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_or_a_number() {
        assert_eq!("all".parse(), Ok(Gpus::All));
        assert_eq!("4".parse(), Ok(Gpus::Count(4)));
        assert!(["0", "-1", "x", "2000"].iter().all(|text| text.parse::<Gpus>().is_err()));
    }

    #[test]
    fn ranks_end_as_the_first_that_says_why() {
        let ended = |codes: &[Option<i32>], by_launcher| {
            exit_code(codes.iter().map(|code| (*code, by_launcher && code.is_none())))
                .map_err(|error| error.to_string())
        };
        let code = |codes: &[Option<i32>]| ended(codes, false);
        assert_eq!(code(&[Some(0), Some(0)]), Ok(0));
        assert_eq!(code(&[Some(5), Some(5)]), Ok(5));
        assert_eq!(code(&[None, Some(3)]), Ok(3));
        assert_eq!(code(&[Some(0), None]), Ok(1));
        let nobody = "ranks 0 and 1 of 3 were killed before any rank reported a failure";
        assert_eq!(code(&[None, None, Some(1)]), Err(nobody.to_owned()));
        // Those that the launcher had to end are not why.
        assert_eq!(ended(&[None, None, Some(5)], true), Ok(5));
    }
}
