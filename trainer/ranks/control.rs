//! Connections on which ranks tell that they live, agree, and fail. Rank 0 has one to each other rank: what it hears first of is
//! what ended a run, on all of them.

use std::collections::VecDeque;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::RankError;
use super::frame::{self, Kind};
use crate::error::Failure;

/// How long nothing may be heard of a rank, seconds, if the environment does not say it.
const PATIENCE_S: u64 = 30;
/// How often a rank tells that it lives, in that time.
const ALIVE: u32 = 6;
/// How long a rank whose peer has failed may take to end by itself.
const GRACE: Duration = Duration::from_secs(20);
/// How long a rank waits for its last words to arrive.
const LINGER: Duration = Duration::from_secs(3);

type Abort = Box<dyn Fn() + Send + Sync>;

pub struct Control {
    rank: u32,
    ranks: u32,
    peers: Vec<Peer>,
    heard: Mutex<Heard>,
    changed: Condvar,
    aborts: Mutex<Vec<Abort>>,
    /// This rank has nothing more to say or to hear.
    over: Arc<AtomicBool>,
}

struct Peer {
    rank: u32,
    stream: TcpStream,
    /// Frames are written whole.
    writing: Mutex<()>,
}

/// What has been heard of the peers.
struct Heard {
    failed: Option<RankError>,
    /// What each said to agree on and nobody has taken yet, in the order of the peers.
    said: Vec<VecDeque<Vec<u8>>>,
    /// Whose connection has been read to its end.
    ended: Vec<bool>,
}

/// A failure on its way.
#[derive(Serialize, Deserialize)]
struct Told {
    rank: u32,
    exit_code: u8,
    what: String,
    /// By the rank itself.
    told: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Seconds by the environment, for tests and for networks that are slow.
pub fn seconds(name: &str, default: u64) -> Duration {
    let given = std::env::var(name).ok().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
    Duration::from_secs(given.unwrap_or(default))
}

impl Control {
    /// Begins to listen to the peers: rank 0's are all others, theirs is rank 0.
    pub fn start(rank: u32, ranks: u32, peers: Vec<(u32, TcpStream)>) -> Result<Arc<Self>, RankError> {
        let patience = seconds("PRECAST_RANK_PATIENCE_S", PATIENCE_S);
        let refused = || RankError::io("talk to other ranks");
        for (_, stream) in &peers {
            stream.set_nodelay(true).map_err(refused())?;
            stream.set_read_timeout(Some(patience)).map_err(refused())?;
            stream.set_write_timeout(Some(patience)).map_err(refused())?;
        }
        let count = peers.len();
        let peers = peers.into_iter().map(|(rank, stream)| Peer { rank, stream, writing: Mutex::new(()) }).collect();
        let heard = Heard { failed: None, said: vec![VecDeque::new(); count], ended: vec![false; count] };
        let (heard, changed, aborts) = (Mutex::new(heard), Condvar::new(), Mutex::new(Vec::new()));
        let control = Arc::new(Self { rank, ranks, peers, heard, changed, aborts, over: Arc::default() });
        for index in 0..count {
            let control = Arc::clone(&control);
            spawn(move || control.listen(index, patience))?;
        }
        let alive = Arc::clone(&control);
        spawn(move || {
            while !alive.over.load(Ordering::Acquire) {
                alive.peers.iter().for_each(|peer| _ = peer.write(Kind::Alive, &[]));
                thread::sleep(patience / ALIVE);
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
        loop {
            match frame::read(&mut &*stream) {
                Ok((Kind::Alive, _)) => {}
                Ok((Kind::Agree, bytes)) => {
                    locked(&self.heard).said[index].push_back(bytes);
                    self.changed.notify_all();
                }
                Ok((Kind::Leave, _)) => break,
                Ok((Kind::Failed, bytes)) => {
                    let told: Told = serde_json::from_slice(&bytes).unwrap_or_else(|error| Told {
                        rank: *rank,
                        exit_code: 1,
                        what: format!("it said why in a way that does not read: {error}"),
                        told: false,
                    });
                    self.failed(told);
                    break;
                }
                Err(error) => {
                    use std::io::ErrorKind::{TimedOut, WouldBlock};
                    let what = match error.kind() {
                        TimedOut | WouldBlock => {
                            format!(
                                "nothing has been heard of it for {} s: it is stopped, or the link is lost",
                                patience.as_secs()
                            )
                        }
                        _ => "its connection is closed: it was killed, or its host is gone".to_owned(),
                    };
                    self.failed(Told { rank: *rank, exit_code: 1, what, told: false });
                    break;
                }
            }
        }
        locked(&self.heard).ended[index] = true;
        self.changed.notify_all();
    }

    /// A rank has failed: the first one that does is why all end.
    fn failed(&self, told: Told) {
        let error = {
            let mut heard = locked(&self.heard);
            if self.over.load(Ordering::Acquire) || heard.failed.is_some() {
                return;
            }
            let Told { rank, exit_code, what, told } = &told;
            let (ranks, what) = (self.ranks, what.clone());
            let error = RankError::Failed { rank: *rank, ranks, exit_code: *exit_code, what, told: *told };
            heard.failed = Some(error.clone());
            error
        };
        self.changed.notify_all();
        self.tell(&told);
        self.abort();
        // Whatever this rank waits for, it does not wait longer than that.
        let (exit_code, over) = (error.exit_code().into(), Arc::clone(&self.over));
        let _ = spawn(move || {
            thread::sleep(GRACE);
            if !over.load(Ordering::Acquire) {
                eprintln!("error: {error}");
                std::process::exit(exit_code);
            }
        });
    }

    fn tell(&self, told: &Told) {
        let bytes = serde_json::to_vec(told).expect("text serialises");
        for peer in self.peers.iter().filter(|peer| peer.rank != told.rank) {
            let _ = peer.write(Kind::Failed, &bytes);
        }
    }

    fn abort(&self) {
        locked(&self.aborts).iter().for_each(|abort| abort());
    }

    /// Calls it when a rank fails, at once where one has failed; perhaps more than once.
    pub fn on_failure(&self, abort: Abort) {
        // Whoever fails between the two calls it as well: better twice than never.
        locked(&self.aborts).push(abort);
        if locked(&self.heard).failed.is_some() {
            self.abort();
        }
    }

    /// What every rank says.
    pub fn all(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RankError> {
        if self.rank == 0 {
            let mut said = vec![Vec::new(); self.ranks as usize];
            said[0] = own.to_vec();
            for (index, peer) in self.peers.iter().enumerate() {
                said[peer.rank as usize] = self.take(index)?;
            }
            let joined = frame::join(&said);
            for peer in &self.peers {
                // What is wrong with it is heard of from its connection.
                let _ = peer.write(Kind::Agree, &joined);
            }
            return Ok(said);
        }
        let _ = self.peers[0].write(Kind::Agree, own);
        let unreadable = || RankError::Io { what: "hear what other ranks say", reason: "it does not read".to_owned() };
        frame::split(&self.take(0)?).filter(|said| said.len() == self.ranks as usize).ok_or_else(unreadable)
    }

    /// Waits for what a peer says.
    fn take(&self, index: usize) -> Result<Vec<u8>, RankError> {
        let mut heard = locked(&self.heard);
        loop {
            if let Some(failed) = &heard.failed {
                return Err(failed.clone());
            }
            if let Some(said) = heard.said[index].pop_front() {
                return Ok(said);
            }
            if heard.ended[index] {
                let rank = self.peers[index].rank;
                let what = "it has ended before the others".to_owned();
                return Err(RankError::Failed { rank, ranks: self.ranks, exit_code: 1, what, told: false });
            }
            heard = self.changed.wait(heard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Who failed first, if that is known or gets known so soon.
    pub fn verdict(&self, patience: Duration) -> Option<RankError> {
        let until = Instant::now() + patience;
        let mut heard = locked(&self.heard);
        while heard.failed.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            heard = self.changed.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        heard.failed.clone()
    }

    /// Tells the others that this rank has failed, and by what.
    pub fn fail(&self, failure: &Failure) {
        self.over.store(true, Ordering::Release);
        self.tell(&Told { rank: self.rank, exit_code: failure.exit_code(), what: failure.to_string(), told: true });
        self.part();
    }

    /// This rank has failed in what nobody waits for.
    pub fn fail_by(&self, what: &str) {
        self.failed(Told { rank: self.rank, exit_code: 1, what: what.to_owned(), told: false });
    }

    /// Tells the others that this rank has done its work.
    pub fn leave(&self) {
        self.over.store(true, Ordering::Release);
        self.peers.iter().for_each(|peer| _ = peer.write(Kind::Leave, &[]));
        self.part();
    }

    /// Waits until what was said last has arrived.
    fn part(&self) {
        self.peers.iter().for_each(|peer| _ = peer.stream.shutdown(Shutdown::Write));
        let until = Instant::now() + LINGER;
        let mut heard = locked(&self.heard);
        while !heard.ended.iter().all(|ended| *ended) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            heard = self.changed.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Peer {
    fn write(&self, kind: Kind, bytes: &[u8]) -> std::io::Result<()> {
        let _whole = locked(&self.writing);
        frame::write(&mut &self.stream, kind, bytes)
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), RankError> {
    thread::Builder::new().spawn(work).map(|_| ()).map_err(RankError::io("start a thread"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

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
    fn everybody_hears_what_everybody_says_in_order() {
        let ranks = three();
        thread::scope(|scope| {
            for control in &ranks {
                scope.spawn(|| {
                    for round in 0..3 {
                        let said = control.all(&[control.rank as u8, round]).unwrap();
                        assert_eq!(said, [[0, round], [1, round], [2, round]]);
                    }
                    control.leave();
                });
            }
        });
        assert!(ranks.iter().all(|control| control.verdict(Duration::ZERO).is_none()));
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
                    let error = control.all(&[]).unwrap_err();
                    assert_eq!(error.to_string(), "rank 2 of 3 failed: no data");
                    assert_eq!(error.exit_code(), 2);
                });
            }
            ranks[2].fail(&Failure::Usage("no data".to_owned()));
        });
        assert_eq!(*locked(&aborted), 2);
        // Else they would end this process.
        ranks.iter().for_each(|control| control.leave());
    }

    #[test]
    fn what_is_to_be_called_on_a_failure_is_known_before_anybody_is_asked() {
        let [control, ..] = three();
        let called = Arc::new(AtomicBool::new(false));
        thread::scope(|scope| {
            // Who fails now is heard of next.
            let mut heard = locked(&control.heard);
            let abort = Arc::clone(&called);
            scope.spawn(|| control.on_failure(Box::new(move || abort.store(true, Ordering::SeqCst))));
            let until = Instant::now() + Duration::from_secs(20);
            while locked(&control.aborts).is_empty() {
                assert!(Instant::now() < until, "a failure at this time would not call it");
                thread::yield_now();
            }
            assert!(!called.load(Ordering::SeqCst));
            let what = "no data".to_owned();
            heard.failed = Some(RankError::Failed { rank: 2, ranks: 3, exit_code: 2, what, told: true });
        });
        assert!(called.load(Ordering::SeqCst));
        control.leave();
    }
}
