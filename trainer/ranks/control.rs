//! Connections for heartbeats, collectives on the host, and reports of failures. Rank 0 has one to each other rank: the
//! failure that reaches it first is the one that all ranks report.

use std::collections::VecDeque;
use std::io::{BufReader, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::low_level;

use super::error::{RankError, RankFailure};
use super::frame::{self, Kind};
use crate::base::notes::tell;

/// Time that a rank may be silent, seconds, if the environment does not say it.
const PATIENCE_S: u64 = 30;
/// Heartbeats in that time.
const HEARTBEATS: u32 = 6;
/// Time that a rank whose peer has failed may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);
/// Time that a rank that ends waits for its peers to read its last frame.
const LINGER: Duration = Duration::from_secs(3);

type Abort = Box<dyn Fn() + Send + Sync>;

pub struct Control {
    rank: u32,
    ranks: u32,
    peers: Vec<Peer>,
    inbox: Mutex<Inbox>,
    changed: Condvar,
    aborts: Mutex<Vec<Abort>>,
    /// This rank neither sends nor expects anything more.
    over: Arc<AtomicBool>,
}

struct Peer {
    rank: u32,
    stream: TcpStream,
    /// Frames are written whole.
    writing: Mutex<()>,
}

/// Frames that have arrived from the peers.
struct Inbox {
    failure: Option<RankFailure>,
    /// Parts of collectives that are not consumed yet, by peer.
    messages: Vec<VecDeque<Vec<u8>>>,
    /// Whose connection has been read to its end.
    closed: Vec<bool>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets how long the other end may take to read or write: any time if that says none.
pub fn bound(stream: &TcpStream, patience: Option<Duration>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)
}

/// The longest that ranks wait for each other, seconds: a week.
const MOST_SECONDS: u64 = 604_800;

/// Seconds by the environment, for tests and for networks that are slow.
///
/// # Errors
/// [`RankError::Usage`] for what is no number of them.
pub fn seconds(name: &str, default: u64) -> Result<Duration, RankError> {
    let given = std::env::var(name).ok().filter(|text| !text.is_empty());
    seconds_of(name, given.as_deref(), default)
}

fn seconds_of(name: &str, given: Option<&str>, default: u64) -> Result<Duration, RankError> {
    let Some(text) = given else { return Ok(Duration::from_secs(default)) };
    let seconds = text.trim().parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    let wrong = || RankError::Usage(format!("{name}={text}: expected seconds from 1 to {MOST_SECONDS}"));
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

impl Control {
    /// Starts to read from the peers: rank 0's are all others, theirs is rank 0.
    pub fn start(rank: u32, ranks: u32, peers: Vec<(u32, TcpStream)>) -> Result<Arc<Self>, RankError> {
        let patience = seconds("PRECAST_RANK_PATIENCE_S", PATIENCE_S)?;
        for (_, stream) in &peers {
            bound(stream, Some(patience)).map_err(RankError::io("set up the connection to another rank"))?;
        }
        let count = peers.len();
        let peers = peers.into_iter().map(|(rank, stream)| Peer { rank, stream, writing: Mutex::new(()) }).collect();
        let inbox = Inbox { failure: None, messages: vec![VecDeque::new(); count], closed: vec![false; count] };
        let (inbox, changed, aborts) = (Mutex::new(inbox), Condvar::new(), Mutex::new(Vec::new()));
        let control = Arc::new(Self { rank, ranks, peers, inbox, changed, aborts, over: Arc::default() });
        for index in 0..count {
            let control = Arc::clone(&control);
            spawn(move || control.listen(index, patience))?;
        }
        let beating = Arc::clone(&control);
        spawn(move || {
            while !beating.over.load(Ordering::Acquire) {
                beating.peers.iter().for_each(|peer| _ = peer.write(Kind::Heartbeat, &[]));
                thread::sleep(patience / HEARTBEATS);
            }
        })?;
        Ok(control)
    }

    /// The address by which this rank is connected.
    pub fn local_address(&self) -> Result<IpAddr, RankError> {
        let address = self.peers[0].stream.local_addr().map_err(RankError::io("find this rank's address"))?;
        Ok(address.ip())
    }

    fn listen(&self, index: usize, patience: Duration) {
        let Peer { rank, stream, .. } = &self.peers[index];
        let mut stream = BufReader::new(stream);
        loop {
            match frame::read(&mut stream) {
                Ok((Kind::Heartbeat, _)) => {}
                Ok((Kind::Gather, bytes)) => {
                    locked(&self.inbox).messages[index].push_back(bytes);
                    self.changed.notify_all();
                }
                Ok((Kind::Leave, _)) => break,
                Ok((Kind::Failed, bytes)) => {
                    let report = serde_json::from_slice(&bytes);
                    let unread = |error| self.found(*rank, format!("its report cannot be read: {error}"));
                    self.failed(report.unwrap_or_else(unread));
                    break;
                }
                Err(error) => {
                    use std::io::ErrorKind::{TimedOut, WouldBlock};
                    let reason = match error.kind() {
                        TimedOut | WouldBlock => {
                            format!(
                                "nothing has been heard of it for {} s: it is stopped, or the link is lost",
                                patience.as_secs()
                            )
                        }
                        _ => "its connection is closed: it was killed, or its host is gone".to_owned(),
                    };
                    self.failed(self.found(*rank, reason));
                    break;
                }
            }
        }
        locked(&self.inbox).closed[index] = true;
        self.changed.notify_all();
    }

    /// A failure that a rank has not reported itself.
    fn found(&self, rank: u32, reason: String) -> RankFailure {
        RankFailure { rank, ranks: self.ranks, exit_code: 1, reason, by_itself: false }
    }

    /// A rank has failed: the first one that does is why all end.
    fn failed(&self, report: RankFailure) {
        {
            let mut inbox = locked(&self.inbox);
            if self.over.load(Ordering::Acquire) || inbox.failure.is_some() {
                return;
            }
            inbox.failure = Some(report.clone());
        }
        self.changed.notify_all();
        // Whatever this rank waits for, it does not wait longer than that: the report and the library's abort may
        // block, too.
        let (exit_code, over) = (report.exit_code.into(), Arc::clone(&self.over));
        let error = RankError::Failed(report.clone());
        let _ = spawn(move || {
            thread::sleep(GRACE);
            if !over.load(Ordering::Acquire) {
                tell(format_args!("error: {error}. This rank did not end by itself within {} s", GRACE.as_secs()));
                // Nothing is torn down: the device may hang, and its library would wait for it.
                low_level::exit(exit_code);
            }
        });
        self.send_report(&report);
        self.abort();
    }

    fn send_report(&self, report: &RankFailure) {
        let bytes = serde_json::to_vec(report).expect("text serializes");
        // To the rank that failed as well: one that was stopped reads it when it continues.
        for peer in &self.peers {
            let _ = peer.write(Kind::Failed, &bytes);
        }
    }

    fn abort(&self) {
        locked(&self.aborts).iter().for_each(|abort| abort());
    }

    /// Calls `abort` when a rank fails, at once where one has failed; perhaps more than once.
    pub fn on_failure(&self, abort: Abort) {
        // Whoever fails between the two calls it as well: better twice than never.
        locked(&self.aborts).push(abort);
        if locked(&self.inbox).failure.is_some() {
            self.abort();
        }
    }

    /// The bytes of every rank, by rank.
    pub fn all_gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        if self.rank == 0 {
            let mut gathered = vec![Vec::new(); self.ranks as usize];
            gathered[0] = own.to_vec();
            for (index, peer) in self.peers.iter().enumerate() {
                gathered[peer.rank as usize] = self.receive(index)?;
            }
            let frames = gathered.iter().map(|part| frame::of(Kind::Gather, part));
            let frames =
                frames.collect::<Result<Vec<_>, _>>().map_err(RankError::io("gather from all ranks"))?.concat();
            // Whoever reads from a connection that broke reports it.
            self.peers.iter().for_each(|peer| _ = peer.send(&frames));
            return Ok(gathered);
        }
        let _ = self.peers[0].write(Kind::Gather, own);
        (0..self.ranks).map(|_| self.receive(0)).collect()
    }

    /// Waits for a peer's part of a collective.
    fn receive(&self, index: usize) -> Result<Vec<u8>, RankError> {
        let nothing =
            |inbox: &mut Inbox| inbox.failure.is_none() && inbox.messages[index].is_empty() && !inbox.closed[index];
        let inbox = self.changed.wait_while(locked(&self.inbox), nothing);
        let mut inbox = inbox.unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = &inbox.failure {
            return Err(RankError::Failed(failure.clone()));
        }
        let ended = || self.found(self.peers[index].rank, "it has ended before the others".to_owned());
        inbox.messages[index].pop_front().ok_or_else(|| RankError::Failed(ended()))
    }

    /// The failure that ends the run, if it is known or becomes known within that time.
    pub fn first_failure(&self, patience: Duration) -> Option<RankError> {
        let inbox = self.changed.wait_timeout_while(locked(&self.inbox), patience, |inbox| inbox.failure.is_none());
        inbox.unwrap_or_else(PoisonError::into_inner).0.failure.clone().map(RankError::Failed)
    }

    /// Reports to the others that this rank has failed.
    pub fn fail(&self, exit_code: u8, reason: String) {
        self.over.store(true, Ordering::Release);
        let (rank, ranks) = (self.rank, self.ranks);
        self.send_report(&RankFailure { rank, ranks, exit_code, reason, by_itself: true });
        self.close();
    }

    /// Ends the run for a reason that no call on this rank returns.
    pub fn fail_by(&self, reason: &str) {
        self.failed(self.found(self.rank, reason.to_owned()));
    }

    /// Tells the others that this rank has done its work.
    pub fn leave(&self) {
        self.over.store(true, Ordering::Release);
        self.peers.iter().for_each(|peer| _ = peer.write(Kind::Leave, &[]));
        self.close();
    }

    /// Waits until the peers have read the last frame.
    fn close(&self) {
        self.peers.iter().for_each(|peer| _ = peer.stream.shutdown(Shutdown::Write));
        let is_open = |inbox: &mut Inbox| inbox.closed.contains(&false);
        let _ = self.changed.wait_timeout_while(locked(&self.inbox), LINGER, is_open);
    }
}

impl Peer {
    fn write(&self, kind: Kind, bytes: &[u8]) -> std::io::Result<()> {
        self.send(&frame::of(kind, bytes)?)
    }

    fn send(&self, frames: &[u8]) -> std::io::Result<()> {
        let _whole = locked(&self.writing);
        (&self.stream).write_all(frames)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), RankError> {
    thread::Builder::new().spawn(work).map(|_| ()).map_err(RankError::io("start a thread"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// Three ranks in one process.
    fn three() -> [Arc<Control>; 3] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (one, listener.accept().unwrap().0)
        };
        let ((one, of_one), (two, of_two)) = (connect(), connect());
        [(0, vec![(1, of_one), (2, of_two)]), (1, vec![(0, one)]), (2, vec![(0, two)])]
            .map(|(rank, peers)| Control::start(rank, 3, peers).unwrap())
    }

    #[test]
    fn what_ends_one_ends_all_by_its_name() {
        let ranks = three();
        let aborted = Arc::new(Mutex::new(0));
        for control in &ranks {
            let aborted = Arc::clone(&aborted);
            control.on_failure(Box::new(move || *locked(&aborted) += 1));
        }
        thread::scope(|scope| {
            for control in &ranks[..2] {
                scope.spawn(|| {
                    let error = control.all_gather(&[]).unwrap_err();
                    assert_eq!(error.to_string(), "rank 2 of 3 failed: no data");
                    assert!(matches!(error, RankError::Failed(RankFailure { exit_code: 2, .. })));
                });
            }
            ranks[2].fail(2, "no data".to_owned());
        });
        // Whoever waits is woken before the aborts are called.
        let until = Instant::now() + Duration::from_secs(20);
        while *locked(&aborted) < 2 {
            assert!(Instant::now() < until, "the failure aborts on one rank alone");
            thread::yield_now();
        }
        // Else they would end this process.
        ranks.iter().for_each(|control| control.leave());
    }

    #[test]
    fn seconds_of_the_environment_are_bounded() {
        let of = |given| seconds_of("NAME", given, 30).map_err(|error| error.to_string());
        assert_eq!((of(None), of(Some(" 5"))), (Ok(Duration::from_secs(30)), Ok(Duration::from_secs(5))));
        // As a duration it would be beyond what a clock can hold.
        for wrong in ["0", "604801", "18446744073709551615", "30s"] {
            assert_eq!(of(Some(wrong)), Err(format!("NAME={wrong}: expected seconds from 1 to 604800")));
        }
    }

    #[test]
    fn an_abort_is_registered_before_failures_are_looked_for() {
        let [control, ..] = three();
        let called = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            // A failure that arrives now is read next.
            let mut inbox = locked(&control.inbox);
            let abort = Arc::clone(&called);
            scope.spawn(|| control.on_failure(Box::new(move || abort.store(true, Ordering::SeqCst))));
            let until = Instant::now() + Duration::from_secs(20);
            while locked(&control.aborts).is_empty() {
                assert!(Instant::now() < until, "a failure at this time would not call it");
                thread::yield_now();
            }
            assert!(!called.load(Ordering::SeqCst));
            let reason = "no data".to_owned();
            inbox.failure = Some(RankFailure { rank: 2, ranks: 3, exit_code: 2, reason, by_itself: true });
        });
        assert!(called.load(Ordering::SeqCst));
        control.leave();
    }
}
