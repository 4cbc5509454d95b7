//! Replicas and micro-batches of a step, as they follow from the number of ranks and from what is given.

use precast_plan::Share;

use super::asked::{Options, Source};
use super::{RunConfig, UsageError};

/// Whether the numbers are given. What is not follows from the number of ranks, or from the run that continues.
#[derive(Clone, Copy, Debug, Default)]
pub struct GivenShare {
    replicas: bool,
    grad_accum: bool,
}

impl GivenShare {
    pub fn of(options: &Options) -> Self {
        let is_given = |name: &str| matches!(options.given.get(name), Some(Source::Flag | Source::File));
        Self { replicas: is_given("replicas"), grad_accum: is_given("grad_accum") }
    }
}

impl RunConfig {
    /// Takes the share of each step that a rank has: `of` names it, and of how many. `before` are the replicas of the run that
    /// continues.
    ///
    /// # Errors
    /// [`UsageError`] for numbers that do not go together, with those that do.
    pub fn take_share(&mut self, of: Share, given: GivenShare, before: Option<u32>) -> Result<(), UsageError> {
        let settings = &mut self.settings;
        if !given.replicas {
            settings.replicas = before.unwrap_or(of.ranks);
        }
        if !given.grad_accum {
            settings.grad_accum = settings.grad_accum.max(settings.replicas);
        }
        let (accum, replicas) = (settings.grad_accum, settings.replicas);
        self.share = Share { replicas, ..of };
        self.share.check().map_err(|error| UsageError(error.to_string()))?;
        if !accum.is_multiple_of(replicas) {
            let below = accum / replicas * replicas;
            let valid: Vec<String> = [below, below + replicas]
                .into_iter()
                .filter(|accum| *accum > 0)
                .map(|accum| accum.to_string())
                .collect();
            return Err(UsageError(format!(
                "--grad-accum {accum} counts the micro-batches of a step over all GPUs, and each of {replicas} replicas takes as many: \
                 use --grad-accum {}, or another --replicas",
                valid.join(" or ")
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(arguments: &[(&str, u32)], before: Option<u32>) -> Result<(u32, Share), String> {
        let mut options = Options { model: Some("m".into()), ..Options::default() };
        for (name, value) in arguments {
            options.given.insert((*name).to_owned(), Source::Flag);
            match *name {
                "replicas" => options.settings.replicas = *value,
                _ => options.settings.grad_accum = *value,
            }
        }
        let given = GivenShare::of(&options);
        let mut config = options.complete(false).map_err(|error| error.to_string())?;
        config.take_share(Share::ALONE, given, before).map_err(|error| error.to_string())?;
        Ok((config.settings.grad_accum, config.share))
    }

    #[test]
    fn numbers_follow_from_each_other() {
        let share = |replicas| Share { replicas, ..Share::ALONE };
        assert_eq!(shared(&[], None), Ok((1, Share::ALONE)));
        assert_eq!(shared(&[("grad_accum", 6)], None), Ok((6, Share::ALONE)));
        assert_eq!(shared(&[("replicas", 4)], None), Ok((4, share(4))));
        assert_eq!(shared(&[], Some(4)), Ok((4, share(4))));
        assert_eq!(shared(&[("replicas", 2), ("grad_accum", 6)], None), Ok((6, share(2))));
        let message = shared(&[("replicas", 4), ("grad_accum", 6)], None).unwrap_err();
        assert!(message.contains("use --grad-accum 4 or 8,"), "{message}");
    }
}
