//! Phases of a run, and the answer of each to a signal.

use super::signal::Signal;

/// Facts about a run that answers name.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The last step.
    pub steps: u64,
    /// What messages call that which trains.
    pub result: &'static str,
    /// It writes checkpoints as it goes, or continues from one.
    pub has_checkpoints: bool,
}

/// A part of a run, by how a signal ends it.
#[derive(Clone, Copy, Debug, Default)]
pub enum Phase {
    /// Something before the first step.
    #[default]
    Start,
    /// This step, counted from 1.
    Step(u64, Promise),
    /// Agreeing with other ranks whether to stop after this step or one later.
    Agree(u64, Promise),
    /// The last step is done, its result is not.
    End(Promise),
}

impl Phase {
    /// Says to whoever has sent a signal how the run ends by it, true whatever comes next.
    pub fn answer(self, signal: Signal) -> String {
        let resume = |promise: Promise| if promise.has_checkpoints { "" } else { ", and the run cannot be resumed" };
        let what = match self {
            Phase::Start => "stopping before the first step: nothing is written; again to stop now".to_owned(),
            Phase::Step(step, promise) if step >= promise.steps => {
                format!(
                    "step {step} is the last: the run ends with its {0}; again to stop now without it",
                    promise.result
                )
            }
            Phase::Step(step, promise) => format!(
                "stopping after step {step}, with a checkpoint; again to stop now without one{}",
                resume(promise)
            ),
            Phase::Agree(step, promise) if step + 1 >= promise.steps => format!(
                "stopping after step {step}, with a checkpoint, or ending after step {} with its {}; again to stop \
                now without \
                 either{}",
                step + 1,
                promise.result,
                resume(promise)
            ),
            Phase::Agree(step, promise) => format!(
                "stopping after step {step} or {}, with a checkpoint; again to stop now without one{}",
                step + 1,
                resume(promise)
            ),
            Phase::End(promise) => {
                format!("all steps are done: the run ends with its {}; again to stop now without it", promise.result)
            }
        };
        format!("{}: {what}", signal.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_answered_by_what_comes_next() {
        let kept = Promise { steps: 1000, result: "student", has_checkpoints: true };
        let never = Promise { has_checkpoints: false, result: "adapter", ..kept };
        let phases = [
            Phase::Start,
            Phase::Step(31, kept),
            Phase::Step(31, never),
            Phase::Agree(31, kept),
            Phase::Agree(999, never),
            Phase::Step(1000, kept),
            Phase::End(never),
        ];
        let answers: Vec<String> = phases.iter().map(|phase| phase.answer(Signal::Interrupt)).collect();
        insta::assert_snapshot!(answers.join("\n").replace("; again", "\nagain"), @r"
        SIGINT: stopping before the first step: nothing is written
        again to stop now
        SIGINT: stopping after step 31, with a checkpoint
        again to stop now without one
        SIGINT: stopping after step 31, with a checkpoint
        again to stop now without one, and the run cannot be resumed
        SIGINT: stopping after step 31 or 32, with a checkpoint
        again to stop now without one
        SIGINT: stopping after step 999, with a checkpoint, or ending after step 1000 with its adapter
        again to stop now without either, and the run cannot be resumed
        SIGINT: step 1000 is the last: the run ends with its student
        again to stop now without it
        SIGINT: all steps are done: the run ends with its adapter
        again to stop now without it
        ");
    }
}
