//! Rendezvous of ranks: rank 0 listens, the others connect, and each end proves that it knows the token of the job.
//! Whoever does not is a stranger, and is disconnected.
//!
//! ```text
//! client:  magic, rank, ranks, nonce
//! server:  magic, nonce, proof of both nonces
//! client:  proof of its greeting and the server's nonce
//! server:  0, or 1 and why not
//! ```

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::control::{bound, seconds};
use super::error::{RankError, ranks_of};
use super::launcher::Place;
use super::token::{Token, random};
use crate::base::stop::Stop;

const MAGIC: [u8; 8] = *b"PRECAST2";
/// Time that ranks wait for each other to start, seconds, if the environment does not say it.
const WAIT_S: u64 = 120;
/// Time that the other end may take to prove itself.
const PROOF: Duration = Duration::from_secs(5);
/// Time that one attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts, and two looks at a signal.
const PAUSE: Duration = Duration::from_millis(20);
/// The longest reason not to let a rank in, bytes.
const MOST_REASON: usize = 4096;

fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Why a handshake fails.
enum HandshakeError {
    /// The connection was not made, or broke.
    Lost(String),
    /// The other end does not know the token, or is no rank at all.
    Stranger(String),
    /// It is one, and cannot take part.
    Refused(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Lost(error.to_string())
    }
}

/// The client's half of a handshake.
fn greet(mut stream: TcpStream, place: &Place) -> Result<TcpStream, HandshakeError> {
    let Place { rank, ranks, token, .. } = place;
    bound(&stream, Some(PROOF))?;
    let nonce: [u8; 32] = random()?;
    let greeting = [&MAGIC[..], &rank.to_le_bytes(), &ranks.to_le_bytes(), &nonce].concat();
    stream.write_all(&greeting)?;
    if take::<8>(&mut stream)? != MAGIC {
        return Err(HandshakeError::Stranger("something else than a rank listens there".to_owned()));
    }
    let theirs: [u8; 32] = take(&mut stream)?;
    if !token.proves(&take(&mut stream)?, &[b"server", &nonce, &theirs]) {
        return Err(HandshakeError::Stranger("who listens there does not know the token of this job".to_owned()));
    }
    stream.write_all(&token.proof(&[b"client", &greeting, &theirs]))?;
    if take::<1>(&mut stream)? == [0] {
        bound(&stream, None)?;
        return Ok(stream);
    }
    let mut why = Vec::new();
    let _ = stream.take(MOST_REASON as u64).read_to_end(&mut why);
    Err(HandshakeError::Refused(String::from_utf8_lossy(&why).into_owned()))
}

/// The server's half of a handshake. Returns the rank that has connected.
fn admit(mut stream: TcpStream, token: &Token, ranks: u32) -> Result<(u32, TcpStream), HandshakeError> {
    bound(&stream, Some(PROOF))?;
    let greeting: [u8; 48] = take(&mut stream)?;
    if greeting[..8] != MAGIC {
        return Err(HandshakeError::Stranger("no rank".to_owned()));
    }
    let word = |at: usize| u32::from_le_bytes([greeting[at], greeting[at + 1], greeting[at + 2], greeting[at + 3]]);
    let nonce: [u8; 32] = random()?;
    stream.write_all(&[&MAGIC[..], &nonce, &token.proof(&[b"server", &greeting[16..], &nonce])].concat())?;
    if !token.proves(&take(&mut stream)?, &[b"client", &greeting, &nonce]) {
        return Err(HandshakeError::Stranger("it does not know the token of this job".to_owned()));
    }
    let (rank, theirs) = (word(8), word(12));
    if theirs == ranks && rank < ranks {
        return Ok((rank, stream));
    }
    let why = match theirs == ranks {
        true => format!("there is no rank {rank} of {ranks}"),
        false => format!("rank {rank} was started as one of {theirs} ranks, and rank 0 as one of {ranks}"),
    };
    refuse(&mut stream, &why);
    Err(HandshakeError::Refused(why))
}

fn refuse(stream: &mut TcpStream, why: &str) {
    let _ = stream.write_all(&[&[1], why.as_bytes()].concat());
}

/// Connections to all other ranks, of rank 0; to rank 0, of all others.
pub fn rendezvous(place: &Place, stop: &Stop) -> Result<Vec<(u32, TcpStream)>, RankError> {
    let wait = seconds("PRECAST_RENDEZVOUS_S", WAIT_S)?;
    if place.rank > 0 {
        return Ok(vec![(0, join(place, wait, stop)?)]);
    }
    let (listener, address) = listen(place)?;
    receive(&listener, &address, place, wait, stop)
}

/// Opens the listener of rank 0, and returns it with its address.
fn listen(place: &Place) -> Result<(TcpListener, String), RankError> {
    if let Some(listener) = &place.listener {
        let address = listener.local_addr().map_err(RankError::io("take over the port"))?;
        let listener = listener.try_clone().map_err(RankError::io("listen for other ranks"))?;
        return Ok((listener, address.to_string()));
    }
    let mut reason = String::new();
    for address in &place.addresses {
        match TcpListener::bind(address) {
            Ok(listener) => return Ok((listener, address.clone())),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(RankError::Io(format!(
        "rank 0 cannot listen at {}: {reason}. Give another --rendezvous HOST:PORT, of a port that is free on the \
        host of rank 0",
        place.addresses.join(", ")
    )))
}

/// Waits for all ranks above one. Connections are answered each on a thread of its own: a stranger that says nothing
/// keeps nobody waiting.
fn receive(
    listener: &TcpListener,
    address: &str,
    place: &Place,
    wait: Duration,
    stop: &Stop,
) -> Result<Vec<(u32, TcpStream)>, RankError> {
    let ranks = place.ranks;
    listener.set_nonblocking(true).map_err(RankError::io("listen for other ranks"))?;
    let until = Instant::now() + wait;
    let (admitted, arrivals) = mpsc::channel();
    let (mut peers, mut strangers): (Vec<(u32, TcpStream)>, usize) = (Vec::new(), 0);
    let missing = |peers: &[(u32, TcpStream)]| -> Vec<u32> {
        (place.rank + 1..ranks).filter(|rank| peers.iter().all(|(known, _)| known != rank)).collect()
    };
    while !missing(&peers).is_empty() {
        stop.check()?;
        if Instant::now() > until {
            let (missing, seconds) = (ranks_of(&missing(&peers)), wait.as_secs());
            let strangers = match strangers {
                0 => String::new(),
                count => format!("; {count} that came did not know the token of this job"),
            };
            return Err(RankError::Io(format!(
                "{missing} of {ranks} did not come to {address} within {seconds} s{strangers}. Each rank takes the \
                same command, and \
                 its host must reach {address}"
            )));
        }
        if let Ok((stream, _)) = listener.accept() {
            let (admitted, token) = (admitted.clone(), place.token.clone());
            thread::spawn(move || {
                let _ = stream.set_nonblocking(false);
                let _ = admitted.send(admit(stream, &token, ranks));
            });
            continue;
        }
        match arrivals.recv_timeout(PAUSE) {
            Ok(Ok((rank, mut stream))) => {
                if !missing(&peers).contains(&rank) {
                    let why = format!("there is a rank {rank} already: two processes were started as the same one");
                    refuse(&mut stream, &why);
                    return Err(RankError::Usage(why));
                }
                let welcome = stream.write_all(&[0]).and_then(|()| bound(&stream, None));
                welcome.map_err(RankError::io("talk to other ranks"))?;
                peers.push((rank, stream));
            }
            Ok(Err(HandshakeError::Refused(why))) => return Err(RankError::Usage(why)),
            Ok(Err(HandshakeError::Lost(_) | HandshakeError::Stranger(_))) => strangers += 1,
            Err(_) => {}
        }
    }
    peers.sort_by_key(|(rank, _)| *rank);
    Ok(peers)
}

/// Connects to rank 0, which may listen at any of some addresses, and may not do so yet.
fn join(place: &Place, wait: Duration, stop: &Stop) -> Result<TcpStream, RankError> {
    let Place { rank, addresses, .. } = place;
    let until = Instant::now() + wait;
    let (mut lost, mut stranger) = ("it is not there".to_owned(), None);
    while Instant::now() < until {
        for address in addresses {
            stop.check()?;
            let stream = connect(address, ATTEMPT.min(wait)).map_err(HandshakeError::from);
            match stream.and_then(|stream| greet(stream, place)) {
                Ok(stream) => return Ok(stream),
                Err(HandshakeError::Refused(why)) => return Err(RankError::Usage(why)),
                Err(HandshakeError::Stranger(why)) => stranger = Some(why),
                Err(HandshakeError::Lost(why)) => lost = why,
            }
        }
        thread::sleep(PAUSE);
    }
    let (address, seconds) = (addresses.join(", "), wait.as_secs());
    // Who answered once and went away since was still the wrong one.
    let reason = stranger.unwrap_or(lost);
    Err(RankError::Io(format!("rank {rank}: rank 0 did not answer at {address} within {seconds} s: {reason}")))
}

fn connect(address: &str, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name of its host has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A connection from each rank to each: it connects to those below and listens for those above.
pub fn mesh(place: &Place, listener: &TcpListener, addresses: &[String]) -> Result<Vec<Option<TcpStream>>, RankError> {
    let wait = seconds("PRECAST_RENDEZVOUS_S", WAIT_S)?;
    let mut peers: Vec<Option<TcpStream>> = (0..place.ranks).map(|_| None).collect();
    let stop = Stop::default();
    for below in 0..place.rank {
        let to = Place { addresses: vec![addresses[below as usize].clone()], listener: None, ..place.clone() };
        peers[below as usize] = Some(join(&to, wait, &stop)?);
    }
    let own = listener.local_addr().map_or_else(|_| String::new(), |address: SocketAddr| address.to_string());
    for (rank, stream) in receive(listener, &own, place, wait, &stop)? {
        peers[rank as usize] = Some(stream);
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, address)
    }

    fn place(rank: u32, ranks: u32, address: &str, job: &str) -> Place {
        let token = Token::of(&[job.to_owned()]);
        Place { rank, ranks, addresses: vec![address.to_owned()], token, ..Place::default() }
    }

    /// Returns the result of rank 0 of so many, where the others are these, each with its number and a job, and the
    /// results of the others.
    fn met(ranks: u32, others: &[(u32, &str)]) -> (Result<usize, String>, Vec<Result<(), String>>) {
        let (listener, address) = listening();
        thread::scope(|scope| {
            let others: Vec<_> = others
                .iter()
                .map(|(rank, job)| {
                    let place = place(*rank, ranks, &address, job);
                    let join = move || join(&place, Duration::from_secs(2), &Stop::default());
                    scope.spawn(move || join().map(|_| ()).map_err(|error| error.to_string()))
                })
                .collect();
            let first = place(0, ranks, &address, "job");
            let own = receive(&listener, &address, &first, Duration::from_secs(2), &Stop::default());
            let own = own.map(|peers| peers.len()).map_err(|error| error.to_string());
            drop(listener);
            (own, others.into_iter().map(|other| other.join().unwrap()).collect())
        })
    }

    #[test]
    fn who_is_missing_is_named_and_strangers_are_counted() {
        let (own, others) = met(4, &[(2, "job"), (1, "another job")]);
        let message = own.unwrap_err();
        assert!(message.starts_with("ranks 1 and 3 of 4 did not come to 127.0.0.1:"), "{message}");
        assert!(message.contains("did not know the token"), "{message}");
        let stranger = others[1].as_ref().unwrap_err();
        assert!(stranger.starts_with("rank 1: rank 0 did not answer at 127.0.0.1:"), "{stranger}");
        assert!(stranger.contains("does not know the token"), "{stranger}");
    }

    #[test]
    fn a_stranger_that_goes_away_is_still_named() {
        let (listener, address) = listening();
        let answer = thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            admit(stream, &Token::of(&["another job".to_owned()]), 2).is_err()
        });
        let joined = join(&place(1, 2, &address, "job"), Duration::from_millis(500), &Stop::default());
        let message = joined.unwrap_err().to_string();
        assert!(answer.join().unwrap() && message.contains("does not know the token"), "{message}");
    }

    /// It says nothing, or something else, and goes on for as long as it likes.
    #[test]
    fn a_stranger_keeps_nobody_waiting() {
        let (listener, address) = listening();
        let _silent = TcpStream::connect(&address).unwrap();
        TcpStream::connect(&address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n and more than a rank says").unwrap();
        thread::scope(|scope| {
            let [first, second] = [0, 1].map(|rank| place(rank, 2, &address, "job"));
            let other = scope.spawn(move || join(&second, Duration::from_secs(60), &Stop::default()).map(|_| ()));
            let peers = receive(&listener, &address, &first, Duration::from_secs(60), &Stop::default()).unwrap();
            assert_eq!(peers.len(), 1);
            other.join().unwrap().unwrap();
        });
    }
}
