//! Ends a process whose device hangs: no call to its driver may return then, so a thread watches that asks the device nothing.

mod hang;

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use precast_runtime::{Activity, Device, Doing};
use signal_hook::low_level;

use crate::base::io::IoError;
use crate::base::notes::{note, tell};
use crate::options::{Patience, patience};
pub use hang::Hang;
pub(crate) use hang::{continuation, what};

/// Between two looks at the device.
const SLICE: Duration = Duration::from_millis(250);
/// Time limit for the last words of a process: its output may be a pipe that nobody reads, its disk gone.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(10);
/// Libraries in the process, which may hold the device for as long as they like.
const INJECTIONS: [&str; 4] = [
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NV_NSIGHT_INJECTION_PORT_BASE",
    "CUDA_DEBUGGER_SOFTWARE_PREEMPTION",
];

type Act = Box<dyn FnOnce(Hang) + Send>;

/// Watches until it is dropped.
pub struct Watch(Arc<Shared>);

struct Shared {
    activity: Activity,
    device: String,
    asked: Option<Patience>,
    /// Duration of the longest step so far, milliseconds; before the first step its estimate.
    longest_ms: AtomicU64,
    /// The step of the last checkpoint; 0 before there is one.
    checkpoint: AtomicU64,
    over: AtomicBool,
    act: Mutex<Option<Act>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Watches a GPU; a simulated one does its work in the call that asks for it.
    ///
    /// # Errors
    /// [`IoError`] where the system gives no thread.
    pub fn start(device: &Device, activity: Activity, asked: Option<Patience>) -> Result<Self, IoError> {
        let shared = Arc::new(Shared {
            activity,
            device: format!("{} ({})", device.ordinal, device.name),
            asked,
            longest_ms: AtomicU64::new(0),
            checkpoint: AtomicU64::new(0),
            over: AtomicBool::new(false),
            act: Mutex::new(None),
        });
        let watch = Self(Arc::clone(&shared));
        if device.compute_capability.is_none() || asked == Some(Patience::None) {
            return Ok(watch);
        }
        if let Some(name) =
            INJECTIONS.into_iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        {
            note(format_args!(
                "{name} is set, by a debugger or a profiler: nothing ends this process where its GPU hangs"
            ));
            return Ok(watch);
        }
        thread::Builder::new().spawn(move || shared.watch()).map_err(IoError::of("start", "a thread"))?;
        Ok(watch)
    }

    /// Sets the act on a hang, in place of a message and the end of the process. An act that returns ends the process
    /// without a message.
    pub fn on_hang(&self, act: impl FnOnce(Hang) + Send + 'static) {
        *locked(&self.0.act) = Some(Box::new(act));
    }

    /// A step takes that long, or is expected to.
    pub fn step_takes(&self, seconds: f64) {
        self.0.longest_ms.fetch_max((1e3 * seconds) as u64, Ordering::Relaxed);
    }

    /// Returns the step that the run continues from, if it has a checkpoint.
    pub(crate) fn last_checkpoint(&self) -> Option<u64> {
        Some(self.0.checkpoint.load(Ordering::Relaxed)).filter(|step| *step > 0)
    }

    /// The run continues from here.
    pub fn checkpoint(&self, step: u64) {
        self.0.checkpoint.store(step, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

impl Shared {
    fn patience(&self) -> Duration {
        match self.asked {
            Some(Patience::Most(seconds)) => Duration::from_secs(seconds),
            _ => patience::default(Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))),
        }
    }

    fn watch(&self) {
        let (mut still, mut last) = (Still::default(), Instant::now());
        while !self.over.load(Ordering::Acquire) {
            thread::sleep(SLICE);
            let (now, doing) = (Instant::now(), self.activity.doing());
            let waited = still.look(now - last, doing.as_ref());
            last = now;
            let Some(doing) = doing.filter(|_| waited >= self.patience()) else { continue };
            // A debugger has stopped it, or may have.
            if is_traced() {
                still = Still::default();
                continue;
            }
            return self.end(doing, waited);
        }
    }

    fn end(&self, doing: Doing, waited: Duration) {
        // Without a thread this one goes on, and ends the process as it is done.
        let _ = thread::Builder::new().spawn(|| {
            thread::sleep(LAST_WORDS);
            low_level::exit(Hang::EXIT_CODE.into());
        });
        let checkpoint = Some(self.checkpoint.load(Ordering::Relaxed)).filter(|step| *step > 0);
        let patience_s = self.patience().as_secs();
        let hang = Hang::new(self.device.clone(), doing, (waited.as_secs(), patience_s), checkpoint);
        match locked(&self.act).take() {
            Some(act) => act(hang),
            None => tell(format_args!("error: {hang}")),
        }
        low_level::exit(Hang::EXIT_CODE.into());
    }
}

/// Tracks how long a device has done nothing that can be seen.
#[derive(Default)]
struct Still {
    progress: Option<(u64, u32)>,
    waited: Duration,
}

impl Still {
    /// A look, so long after the one before. Of a time in which this process did not run, because it was stopped, two slices count.
    fn look(&mut self, passed: Duration, doing: Option<&Doing>) -> Duration {
        let progress = doing.map(|doing| doing.progress);
        self.waited = match progress.is_some() && progress == self.progress {
            true => self.waited + passed.min(2 * SLICE),
            false => Duration::ZERO,
        };
        self.progress = progress;
        self.waited
    }
}

/// True if a debugger holds this process, by Linux's account of it.
fn is_traced() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    tracer(&status).is_some_and(|process| process != "0")
}

fn tracer(status: &str) -> Option<&str> {
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).map(str::trim)
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

    #[test]
    fn who_traces_is_read_from_the_account_of_the_process() {
        assert_eq!(tracer("Name:\tprecast\nTracerPid:\t12\nUid:\t0\n"), Some("12"));
        assert_eq!([tracer("TracerPid:\t0\n"), tracer("")], [Some("0"), None]);
        assert!(!is_traced());
    }
}
