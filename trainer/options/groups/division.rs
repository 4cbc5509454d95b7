//! Divides a step into replicas and micro-batches.

use clap::Args;
use precast_plan::Share;
use serde::{Serialize, Serializer};

use super::values::{MOST_MICRO_BATCHES, count};
use crate::options::{Advised, UsageError};

/// Division of a step, as far as options give it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Shape")]
pub struct DivisionOptions {
    /// Micro-batches in a step, over all GPUs [default: as many as --replicas]
    #[arg(long, value_name = "A", value_parser = count(MOST_MICRO_BATCHES))]
    pub grad_accum: Option<u32>,
    /// Parts of a step whose gradients are added by a tree. The same number gives the same weights, to the last bit, on
    /// one GPU or on several that take 1, 2, 4, ... parts each [default: GPUs at the first start]
    #[arg(long, value_name = "R", value_parser = count(MOST_MICRO_BATCHES))]
    pub replicas: Option<u32>,
}

/// Division of a step among micro-batches, replicas and ranks, and the rank of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Division {
    /// Micro-batches in a step, over all ranks.
    pub grad_accum: u32,
    /// A record holds the replicas alone, and a run of one is recorded as those before there were any.
    #[serde(rename = "replicas", serialize_with = "replicas", skip_serializing_if = "is_one")]
    pub share: Share,
}

fn replicas<S: Serializer>(share: &Share, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(share.replicas)
}

fn is_one(share: &Share) -> bool {
    share.replicas == 1
}

impl DivisionOptions {
    /// The division of a step for the rank that `of` names, where a run that continues had `before` replicas.
    ///
    /// # Errors
    /// [`UsageError`] for numbers that do not go together, with those that do.
    pub(crate) fn resolve(&self, of: Share, before: Option<u32>) -> Result<Division, UsageError> {
        let replicas = self.replicas.or(before).unwrap_or(of.ranks);
        let grad_accum = self.grad_accum.unwrap_or(replicas);
        let share = Share { replicas, ..of };
        share.check().map_err(|error| UsageError(error.advised()))?;
        if !grad_accum.is_multiple_of(replicas) {
            let below = grad_accum / replicas * replicas;
            let valid = [below, below + replicas].into_iter().filter(|accum| *accum > 0);
            return Err(UsageError(format!(
                "--grad-accum {grad_accum} counts the micro-batches of a step over all GPUs, and each of {replicas} \
                replicas takes as \
                 many: use --grad-accum {}, or another --replicas",
                valid.map(|accum| accum.to_string()).collect::<Vec<_>>().join(" or ")
            )));
        }
        Ok(Division { grad_accum, share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_each_other() {
        let divided = |grad_accum, replicas, before| {
            let division = DivisionOptions { grad_accum, replicas }.resolve(Share::ALONE, before);
            division
                .map(|Division { grad_accum, share }| (grad_accum, share.replicas))
                .map_err(|error| error.to_string())
        };
        assert_eq!(divided(None, None, None), Ok((1, 1)));
        assert_eq!(divided(Some(6), None, None), Ok((6, 1)));
        assert_eq!(divided(None, Some(4), None), Ok((4, 4)));
        assert_eq!(divided(None, None, Some(4)), Ok((4, 4)));
        assert_eq!(divided(Some(6), Some(2), None), Ok((6, 2)));
        let message = divided(Some(6), Some(4), None).unwrap_err();
        assert!(message.contains("use --grad-accum 4 or 8,"), "{message}");
    }
}
