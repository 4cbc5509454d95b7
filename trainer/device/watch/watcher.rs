//! Watches a device from a thread of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use precast_runtime::{Activity, Device, Doing};
use signal_hook::low_level;

use super::Hang;
use super::still::{SLICE, Still};
use super::traced::is_traced;
use crate::base::io::IoError;
use crate::base::notes::{note, tell};
use crate::options::{Patience, patience};

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
