use std::fmt::Display;

use precast_runtime::DriverError;
use serde::{Deserialize, Serialize};

use crate::base::io::IoError;
use crate::base::stop::Stopped;
use crate::options::Advised;

/// Ranks that do not come together, or do not stay so.
#[derive(Clone, Debug, thiserror::Error)]
#[error(transparent)]
pub enum RankError {
    /// A launcher's environment, options beside it, or those of two ranks that cannot be.
    #[error("{0}")]
    Usage(String),
    /// A rank has failed, this one or another.
    #[error("rank {} of {} failed: {}", .0.rank, .0.ranks, .0.reason)]
    Failed(RankFailure),
    /// Something is not the same everywhere.
    #[error("ranks are not alike:\n{}\nGive every rank the same program, options, data and models", .0.join("\n"))]
    Different(Vec<String>),
    /// The system refuses, or ranks do not come together.
    #[error("{0}")]
    Io(String),
    /// A signal came before all of them did.
    Stopped(#[from] Stopped),
    /// The GPUs of this host cannot be counted.
    #[error("{}", .0.advised())]
    Driver(#[from] DriverError),
}

/// A rank that has failed, as it is sent to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankFailure {
    pub rank: u32,
    pub ranks: u32,
    pub exit_code: u8,
    pub reason: String,
    /// The rank has reported it itself.
    pub by_itself: bool,
}

impl From<IoError> for RankError {
    fn from(error: IoError) -> Self {
        Self::Io(error.to_string())
    }
}

impl RankError {
    pub fn io<E: Display>(what: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::Io(format!("cannot {what}: {error}"))
    }

    /// True if a rank of `--gpus`, which have one terminal, leaves it to another to print this.
    pub fn is_printed_by_another(&self, own: u32) -> bool {
        match self {
            Self::Failed(RankFailure { by_itself: true, rank, .. }) => *rank != own,
            Self::Failed(RankFailure { rank, .. }) => own != if *rank == 0 { 1 } else { 0 },
            _ => false,
        }
    }
}

/// Ranks that a message lists.
const LISTED: usize = 8;

/// `rank 2`, `ranks 1 and 3`, `ranks 1, 2, 3, 4, 5, 6, 7, 8 and 91 more`.
pub(super) fn ranks_of(ranks: &[u32]) -> String {
    let mut texts: Vec<String> = ranks.iter().take(LISTED).map(ToString::to_string).collect();
    if ranks.len() > LISTED {
        texts.push(format!("{} more", ranks.len() - LISTED));
    }
    match texts.split_last() {
        Some((one, [])) => format!("rank {one}"),
        Some((last, first)) => format!("ranks {} and {last}", first.join(", ")),
        None => "no rank".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_lists_a_few_ranks_and_counts_the_rest() {
        let of = |count: u32| ranks_of(&(1..=count).collect::<Vec<_>>());
        assert_eq!([of(0), of(1), of(2)], ["no rank", "rank 1", "ranks 1 and 2"]);
        assert_eq!(of(8), "ranks 1, 2, 3, 4, 5, 6, 7 and 8");
        assert_eq!(of(65535), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 65527 more");
    }
}
