//! Moves bytes between ranks over TCP, for exchanges of a plan on the simulated GPU.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

/// Moves bytes between the ranks of a run.
pub trait Communicator: Send {
    /// Returns the number of ranks.
    fn ranks(&self) -> usize;

    /// Sends all of `sends` and fills all of `receives`, each paired with the peer's rank, never this rank's own.
    /// Messages between two ranks arrive in the order listed.
    ///
    /// # Errors
    /// A description of the failure.
    fn exchange(&mut self, sends: &[(u32, &[u8])], receives: &mut [(u32, &mut [u8])]) -> Result<(), String>;
}

/// Connections to all other ranks.
pub struct Mesh {
    /// By rank; none at this rank.
    peers: Vec<Option<TcpStream>>,
}

impl Mesh {
    /// Takes connections by rank, none at this rank.
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
            // A thread per peer sends: ranks that only send would deadlock.
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
                // Shutting down unblocks senders whose receiver is gone.
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

    /// Both directions exceed the sockets' buffers.
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
