//! Bytes from rank to rank: what exchanges of a plan move on the simulated GPU, over TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Moves bytes between the ranks of a run.
pub trait Communicator: Send {
    /// How many they are.
    fn ranks(&self) -> usize;

    /// Sends all of `sends` and fills all of `receives`, each with the rank at the other end, which is another one. What goes from
    /// one rank to another arrives in the order in which it is listed.
    ///
    /// # Errors
    /// What went wrong, for people.
    fn exchange(&mut self, sends: &[(u32, &[u8])], receives: &mut [(u32, &mut [u8])]) -> Result<(), String>;
}

/// A connection to each other rank.
pub struct Mesh {
    /// By rank; none for this one.
    peers: Vec<Option<TcpStream>>,
}

impl Mesh {
    /// `peers` are connections by rank, none for this one.
    pub fn new(peers: Vec<Option<TcpStream>>) -> Self {
        Self { peers }
    }
}

impl Communicator for Mesh {
    fn ranks(&self) -> usize {
        self.peers.len()
    }

    fn exchange(&mut self, sends: &[(u32, &[u8])], receives: &mut [(u32, &mut [u8])]) -> Result<(), String> {
        let failed = |what: &str, rank: usize, error: std::io::Error| format!("cannot {what} rank {rank}: {error}");
        let peers = &self.peers;
        std::thread::scope(|scope| {
            // Whoever only sends waits for whoever only sends: each peer gets a thread of its own to send.
            let senders: Vec<_> = (0..peers.len())
                .filter(|rank| sends.iter().any(|(to, _)| *to as usize == *rank))
                .map(|rank| {
                    scope.spawn(move || {
                        let mut stream = peers[rank].as_ref().ok_or_else(|| format!("no connection to rank {rank}"))?;
                        for (_, bytes) in sends.iter().filter(|(to, _)| *to as usize == rank) {
                            stream.write_all(bytes).map_err(|error| failed("send to", rank, error))?;
                        }
                        Ok::<(), String>(())
                    })
                })
                .collect();
            let received = receives.iter_mut().try_for_each(|(from, bytes)| {
                let rank = *from as usize;
                let mut stream = peers[rank].as_ref().ok_or_else(|| format!("no connection to rank {rank}"))?;
                stream.read_exact(bytes).map_err(|error| failed("receive from", rank, error))
            });
            if received.is_err() {
                // Nobody waits for a sender whose receiver is gone.
                peers.iter().flatten().for_each(|stream| _ = stream.shutdown(Shutdown::Both));
            }
            let sent = senders.into_iter().try_for_each(|sender| sender.join().expect("sending does not panic"));
            received.and(sent)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// More than sockets hold, both ways at once.
    #[test]
    fn both_ends_send_more_than_a_socket_holds() {
        let (a, b) = pair();
        let mut ends = [Mesh::new(vec![None, Some(a)]), Mesh::new(vec![Some(b), None])];
        let big = 8 << 20;
        std::thread::scope(|scope| {
            for (rank, mesh) in ends.iter_mut().enumerate() {
                scope.spawn(move || {
                    let other = 1 - rank as u32;
                    let (first, second) = (vec![rank as u8; big], [rank as u8 + 10; 3]);
                    let (mut one, mut two) = (vec![0; big], [0; 3]);
                    mesh.exchange(&[(other, &first), (other, &second)], &mut [(other, &mut one), (other, &mut two)])
                        .unwrap();
                    assert!(one.iter().all(|byte| u32::from(*byte) == other) && two == [other as u8 + 10; 3]);
                });
            }
        });
    }

    #[test]
    fn a_peer_that_is_gone_ends_the_exchange_by_its_rank() {
        let (a, b) = pair();
        drop(b);
        let message = Mesh::new(vec![None, Some(a)]).exchange(&[], &mut [(1, &mut [0])]).unwrap_err();
        assert!(message.starts_with("cannot receive from rank 1"), "{message}");
    }
}
