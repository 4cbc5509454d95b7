//! Records a device's queued and finished work for a thread that must not ask the device: a call to the driver of a
//! hung device may never return.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most phases remembered for a device that does not report progress.
const MOST_PHASES: usize = 64;

/// Shared by the threads that call the driver and those that watch it.
#[derive(Clone, Default)]
pub struct Activity(Arc<Mutex<ActivityState>>);

#[derive(Default)]
struct ActivityState {
    /// Calls begun, and calls that have not returned, which may be nested.
    calls: u64,
    open: u32,
    /// Number of the phase launched last.
    launched: u32,
    /// Phases not known to be finished.
    phases: VecDeque<Launched>,
    done: Option<Word>,
    step: Option<u64>,
}

struct Launched {
    number: u32,
    phase: String,
    /// Step of the run.
    step: Option<u64>,
    /// True if the device writes the phase's number after it.
    marked: bool,
}

/// A word of pinned memory into which the device writes the number of the last finished phase.
struct Word(NonNull<u32>);

// SAFETY: `Activity::set_word` is given a word that lives until it is taken back, and it is read under the lock alone.
unsafe impl Send for Word {}

impl Word {
    fn read(&self) -> u32 {
        // SAFETY: the word lives, is aligned, and the device writes it whole.
        unsafe { self.0.as_ptr().read_volatile() }
    }
}

/// A device's current work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doing {
    /// Changes whenever a driver call begins or a phase ends.
    pub progress: (u64, u32),
    /// Candidates for the running phase, in order: exactly one if the device reports progress.
    pub phases: Vec<String>,
    /// Step of the run, counted from 1; none outside of steps.
    pub step: Option<u64>,
}

/// A driver call that has not returned.
pub struct Call(Activity);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.state().open -= 1;
    }
}

impl Activity {
    fn state(&self) -> MutexGuard<'_, ActivityState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a driver call.
    #[must_use]
    pub(crate) fn call(&self) -> Call {
        let mut state = self.state();
        (state.calls, state.open) = (state.calls + 1, state.open + 1);
        Call(self.clone())
    }

    /// Assigns the following launches to a step of the run, counted from 1.
    pub fn at_step(&self, step: u64) {
        self.state().step = Some(step);
    }

    /// Records that a phase is about to be launched; returns the number that the device writes after it.
    pub(crate) fn launch(&self, phase: &str) -> u32 {
        self.add(phase, true)
    }

    /// Records that a phase is about to be launched, after which the device writes nothing.
    pub(crate) fn launch_unmarked(&self, phase: &str) {
        self.add(phase, false);
    }

    fn add(&self, phase: &str, marked: bool) -> u32 {
        let mut state = self.state();
        state.forget_done();
        state.launched = state.launched.wrapping_add(1);
        let (number, step) = (state.launched, state.step);
        state.phases.push_back(Launched { number, phase: phase.to_owned(), step, marked });
        if state.phases.len() > MOST_PHASES {
            state.phases.pop_front();
        }
        number
    }

    /// Reads the device's progress from a word from now on.
    ///
    /// # Safety
    /// The word lives until this is called with none.
    pub(crate) unsafe fn set_word(&self, word: Option<NonNull<u32>>) {
        self.state().done = word.map(Word);
    }

    /// Returns the device's work while a driver call has not returned; else none. Does not call the driver.
    pub fn doing(&self) -> Option<Doing> {
        let mut state = self.state();
        (state.open > 0).then(|| state.unfinished())
    }

    /// Returns the work that is not known to be finished: where a call has failed, what it failed in. Does not call the
    /// driver.
    pub fn unfinished(&self) -> Doing {
        self.state().unfinished()
    }
}

impl ActivityState {
    fn unfinished(&mut self) -> Doing {
        self.forget_done();
        let done = self.done.as_ref().map(Word::read);
        let first_marked = self.phases.iter().position(|launched| launched.marked && done.is_some());
        let running = self.phases.iter().take(first_marked.map_or(MOST_PHASES, |index| index + 1));
        Doing {
            progress: (self.calls, done.unwrap_or(0)),
            phases: running.map(|launched| launched.phase.clone()).collect(),
            step: self.phases.front().map_or(self.step, |first| first.step),
        }
    }

    /// Numbers wrap around: a finished number is less than half the range behind.
    fn forget_done(&mut self) {
        let Some(done) = self.done.as_ref().map(Word::read) else { return };
        while self.phases.front().is_some_and(|first| done.wrapping_sub(first.number) as i32 >= 0) {
            self.phases.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_in_the_first_phase_behind_what_it_wrote() {
        let mut word = Box::new(0u32);
        let activity = Activity::default();
        // SAFETY: the word lives until the end of this test, where it is taken back.
        unsafe { activity.set_word(Some(NonNull::from(&mut *word))) };
        let write = |number| {
            let state = activity.state();
            // SAFETY: the word lives, and the lock keeps others from reading it.
            unsafe { state.done.as_ref().unwrap().0.as_ptr().write_volatile(number) };
        };
        assert_eq!(activity.doing(), None);
        let call = activity.call();
        activity.at_step(7);
        let numbers = ["micro", "update"].map(|phase| activity.launch(phase));
        activity.at_step(8);
        let phases = || activity.doing().unwrap().phases;
        assert_eq!((numbers, phases()), ([1, 2], vec!["micro".to_owned()]));
        let before = activity.doing().unwrap().progress;
        write(1);
        assert_eq!((phases(), activity.doing().unwrap().step), (vec!["update".to_owned()], Some(7)));
        assert_ne!(activity.doing().unwrap().progress, before);
        write(2);
        assert_eq!((phases(), activity.doing().unwrap().step), (vec![], Some(8)));
        // A phase on the side stream is finished when the phase after it is.
        activity.launch_unmarked("gather");
        activity.launch("micro");
        activity.launch("update");
        assert_eq!(phases(), ["gather", "micro"]);
        write(4);
        assert_eq!(phases(), ["update"]);
        drop(call);
        assert_eq!(activity.doing(), None);
        // SAFETY: nothing reads it any more.
        unsafe { activity.set_word(None) };
    }

    #[test]
    fn numbers_wrap_around() {
        let mut word = Box::new(u32::MAX - 1);
        let activity = Activity::default();
        activity.state().launched = u32::MAX - 1;
        // SAFETY: as above.
        unsafe { activity.set_word(Some(NonNull::from(&mut *word))) };
        let _call = activity.call();
        assert_eq!(["a", "b"].map(|phase| activity.add(phase, false)), [u32::MAX, 0]);
        assert_eq!(activity.doing().unwrap().phases, ["a", "b"]);
        // SAFETY: as above.
        unsafe { activity.set_word(None) };
    }

    #[test]
    fn a_call_inside_of_another_is_none_of_its_own_end() {
        let activity = Activity::default();
        let outer = activity.call();
        drop(activity.call());
        assert!(activity.doing().is_some());
        drop(outer);
        assert!(activity.doing().is_none());
    }
}
