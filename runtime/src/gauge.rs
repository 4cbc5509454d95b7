//! Samples a GPU's state on a thread of its own, for which no step and no exit waits: NVML may hang when a GPU does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two readings.
const EVERY: Duration = Duration::from_millis(250);
/// Time limit for the first reading.
const OPENS: Duration = Duration::from_secs(2);
/// Age from which a reading is out of date.
const STALE: Duration = Duration::from_secs(2);
/// Time limit for the thread to end.
const ENDS: Duration = Duration::from_millis(500);

/// A GPU whose state cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GaugeError {
    /// The library is missing or lacks a function.
    #[error("{0}")]
    Library(String),
    /// A call of NVML failed.
    #[error("{call} failed ({code})")]
    Call {
        /// Function that was called.
        call: &'static str,
        /// NVML's code of the error.
        code: u32,
    },
    /// NVML does not answer.
    #[error("NVML has not answered for {} s", OPENS.as_secs())]
    Silent,
}

/// A running mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    /// Starts from one value, or none.
    pub fn of(value: Option<f64>) -> Self {
        value.map_or_else(Self::default, |sum| Self { sum, count: 1 })
    }

    /// Adds the values of another mean.
    pub fn add(&mut self, other: Self) {
        self.sum += other.sum;
        self.count += other.count;
    }

    /// Returns the mean; none without values.
    pub fn value(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / f64::from(self.count))
    }
}

/// A GPU's state at a moment, or over several. Unknown values are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// Power, watts.
    pub power_w: Mean,
    /// Clock of the multiprocessors, MHz.
    pub sm_clock_mhz: Mean,
    /// Share of the time in which a kernel ran.
    pub busy_percent: Mean,
    /// Highest temperature.
    pub temperature_c: Option<u32>,
    /// Union of the throttle reasons seen, as bits of nvml.h's `nvmlClocksThrottleReason*`.
    pub throttle: Option<u64>,
}

impl Reading {
    /// Adds the values of a later reading.
    pub fn add(&mut self, other: &Self) {
        self.power_w.add(other.power_w);
        self.sm_clock_mhz.add(other.sm_clock_mhz);
        self.busy_percent.add(other.busy_percent);
        self.temperature_c = self.temperature_c.max(other.temperature_c);
        self.throttle = match (self.throttle, other.throttle) {
            (Some(seen), Some(new)) => Some(seen | new),
            (seen, new) => seen.or(new),
        };
    }
}

/// Samples until it is dropped.
pub struct Gauge(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<GaugeState>,
    changed: Condvar,
}

#[derive(Default)]
struct GaugeState {
    /// None until known.
    opened: Option<Result<(), GaugeError>>,
    /// Readings since the last [`Gauge::take`].
    since: Option<Reading>,
    latest: Option<(Instant, Reading)>,
    over: bool,
    ended: bool,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, GaugeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, and wakes its waiters.
    fn set(&self, change: impl FnOnce(&mut GaugeState)) {
        change(&mut self.locked());
        self.changed.notify_all();
    }

    /// Waits for a condition, for a limited time. Returns the state at the end.
    fn wait(&self, time: Duration, until: impl Fn(&GaugeState) -> bool) -> MutexGuard<'_, GaugeState> {
        let waited = self.changed.wait_timeout_while(self.locked(), time, |state| !until(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// The lock is released while the GPU is read.
    fn read<R: FnMut() -> Reading>(&self, open: impl FnOnce() -> Result<R, GaugeError>) {
        let mut read = match open() {
            Ok(read) => read,
            Err(error) => return self.set(|state| state.opened = Some(Err(error))),
        };
        loop {
            let reading = read();
            self.set(|state| {
                state.opened = Some(Ok(()));
                state.since.get_or_insert_default().add(&reading);
                state.latest = Some((Instant::now(), reading));
            });
            if self.wait(EVERY, |state| state.over).over {
                return;
            }
        }
    }
}

impl Gauge {
    /// Starts reading by the function that `open` returns. Does not wait.
    pub fn start<R: FnMut() -> Reading>(open: impl FnOnce() -> Result<R, GaugeError> + Send + 'static) -> Self {
        let shared = Arc::<Shared>::default();
        let own = Arc::clone(&shared);
        let work = move || {
            own.read(open);
            own.set(|state| state.ended = true);
        };
        if let Err(error) = thread::Builder::new().spawn(work) {
            shared.set(|state| {
                state.opened = Some(Err(GaugeError::Library(format!("the system gives no thread: {error}"))));
                state.ended = true;
            });
        }
        Self(shared)
    }

    /// Waits at most two seconds for the first reading.
    ///
    /// # Errors
    /// [`GaugeError`] if there is none.
    pub fn opened(&self) -> Result<Reading, GaugeError> {
        let state = self.0.wait(OPENS, |state| state.opened.is_some());
        state.opened.clone().unwrap_or(Err(GaugeError::Silent))?;
        Ok(state.latest.map_or_else(Reading::default, |(_, reading)| reading))
    }

    /// Returns the readings since the last call, or else the latest one; empty once that is out of date.
    pub fn take(&self) -> Reading {
        let mut state = self.0.locked();
        let latest = state.latest.filter(|(at, _)| at.elapsed() < STALE).map(|(_, reading)| reading);
        state.since.take().or(latest).unwrap_or_default()
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.0.set(|state| state.over = true);
        drop(self.0.wait(ENDS, |state| state.ended));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn watts(power_w: f64) -> Reading {
        Reading { power_w: Mean::of(Some(power_w)), ..Reading::default() }
    }

    #[test]
    fn readings_are_means_the_top_temperature_and_all_reasons() {
        let first = Reading { temperature_c: Some(40), throttle: Some(4), ..watts(100.0) };
        let mut all = first;
        all.add(&Reading { temperature_c: Some(38), throttle: Some(1), ..watts(300.0) });
        all.add(&Reading::default());
        assert_eq!((all.power_w.value(), all.temperature_c, all.throttle), (Some(200.0), Some(40), Some(5)));
        assert_eq!((all.sm_clock_mhz.value(), all.busy_percent.value()), (None, None));
    }

    #[test]
    fn what_was_read_is_taken_once_and_a_short_step_has_the_latest() {
        let (send, receive) = mpsc::channel();
        let gauge = Gauge::start(move || Ok(move || receive.recv().unwrap_or_default()));
        for power_w in [100.0, 300.0] {
            send.send(watts(power_w)).unwrap();
        }
        assert_eq!(gauge.opened(), Ok(watts(100.0)));
        // The third reading waits for a value not yet sent.
        drop(gauge.0.wait(Duration::from_secs(60), |state| state.latest.is_some_and(|(_, of)| of == watts(300.0))));
        assert_eq!([gauge.take(), gauge.take()].map(|reading| reading.power_w.value()), [Some(200.0), Some(300.0)]);
        gauge.0.locked().latest.as_mut().unwrap().0 -= STALE;
        assert_eq!(gauge.take(), Reading::default());
        drop(send);
    }

    /// Its sender is kept and never sends.
    #[test]
    fn a_reading_that_never_comes_is_not_waited_for() {
        let (_keep, never) = mpsc::channel::<Reading>();
        let begun = Instant::now();
        let gauge = Gauge::start(move || Ok(move || never.recv().unwrap_or_default()));
        assert_eq!((gauge.opened(), gauge.take()), (Err(GaugeError::Silent), Reading::default()));
        drop(gauge);
        assert!(begun.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_does_not_open_says_why() {
        let error = GaugeError::Call { call: "nvmlInit_v2", code: 9 };
        let own = error.clone();
        let gauge = Gauge::start(move || Err::<fn() -> Reading, _>(own));
        assert_eq!(gauge.opened(), Err(error));
    }
}
