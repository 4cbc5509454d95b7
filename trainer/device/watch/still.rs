//! Time in which a device has done nothing that can be seen.

use std::time::Duration;

use precast_runtime::Doing;

/// Between two looks at the device.
pub(super) const SLICE: Duration = Duration::from_millis(250);

/// Tracks how long a device has done nothing that can be seen.
#[derive(Default)]
pub(super) struct Still {
    progress: Option<(u64, u32)>,
    waited: Duration,
}

impl Still {
    /// A look, so long after the one before. Of a time in which this process did not run, because it was stopped, two
    /// slices count.
    pub(super) fn look(&mut self, passed: Duration, doing: Option<&Doing>) -> Duration {
        let progress = doing.map(|doing| doing.progress);
        self.waited = match progress.is_some() && progress == self.progress {
            true => self.waited + passed.min(2 * SLICE),
            false => Duration::ZERO,
        };
        self.progress = progress;
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doing(calls: u64, done: u32) -> Doing {
        Doing { progress: (calls, done), phases: Vec::new(), step: None }
    }

    #[test]
    fn what_counts_is_time_in_one_call_without_a_phase_that_ends() {
        let mut still = Still::default();
        let mut look = |passed: u32, doing: Option<Doing>| still.look(passed * SLICE, doing.as_ref());
        assert_eq!(look(1, Some(doing(1, 0))), Duration::ZERO);
        assert_eq!([look(1, Some(doing(1, 0))), look(1, Some(doing(1, 0)))], [SLICE, 2 * SLICE]);
        assert_eq!(look(1, Some(doing(1, 1))), Duration::ZERO);
        assert_eq!(look(1, Some(doing(2, 1))), Duration::ZERO);
        assert_eq!(look(1, Some(doing(2, 1))), SLICE);
        assert_eq!(look(1, None), Duration::ZERO);
        assert_eq!(look(1, Some(doing(2, 1))), Duration::ZERO);
    }

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let mut still = Still::default();
        still.look(SLICE, Some(&doing(1, 0)));
        assert_eq!(still.look(1000 * SLICE, Some(&doing(1, 0))), 2 * SLICE);
    }
}
