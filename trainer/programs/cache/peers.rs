//! Ranks that fill one cache: each computes its share of the sequences, and rank 0 writes them all.

use std::net::{Shutdown, TcpStream};

use crate::ranks::{RankError, Ranks};

/// The connections of a rank: those of rank 0 to all others, by rank, and those of the others to rank 0.
pub struct Peers {
    rank: u64,
    ranks: u64,
    pub streams: Vec<TcpStream>,
}

impl Peers {
    /// Connects the ranks. A rank that is alone has no peers.
    ///
    /// # Errors
    /// [`RankError`] where they do not come together.
    pub fn connect(ranks: &Ranks) -> Result<Self, RankError> {
        let all = ranks.connect()?;
        let streams = all.into_iter().flatten().take(if ranks.is_first() { usize::MAX } else { 1 }).collect();
        Ok(Self { rank: ranks.place.rank.into(), ranks: ranks.count().into(), streams })
    }

    /// True if this rank computes the batch of such a number: they are dealt in turn.
    pub fn is_own(&self, batch: u64) -> bool {
        batch % self.ranks == self.rank
    }

    /// Ends what waits for a peer.
    pub fn shut_down(&self) {
        self.streams.iter().for_each(|stream| _ = stream.shutdown(Shutdown::Both));
    }
}
