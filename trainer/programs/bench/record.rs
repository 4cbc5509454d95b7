//! `bench.json`: what was measured, and on what.

use std::fmt;
use std::path::Path;

use precast_plan::chips::Peak;
use precast_plan::{MemoryTable, Plan};
use precast_system::files::{Aside, Existing};
use serde::Serialize;

use super::kernel_record::{KernelRecord, PARTS, kernels_text};
use crate::base::startup_times::{Startup, StartupRecord};
use crate::device::seal::SealedDevice;
use crate::run::failure::Failure;
use crate::run::out::check_directory;
use crate::run::record::{DeviceRecord, MemoryRecord};
use crate::run::report::{Bar, bars, flatten, page, table};

/// Results of a kind of benchmark, with what was asked for.
pub(crate) trait Measured: Serialize {
    /// Lists the few numbers that people look for first, under the device's name.
    fn summary(&self, limit: Option<Peak>) -> Vec<(&'static str, String)>;

    /// Writes what stands before the kernels.
    fn before(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Writes what stands behind the kernels.
    fn behind(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }

    /// Returns the last bar of the picture of kernels.
    fn last_bar(&self) -> Option<Bar> {
        None
    }

    /// Draws other results.
    fn svg(&self) -> String {
        String::new()
    }
}

/// `bench.json`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record<M> {
    /// Version of this program.
    version: &'static str,
    #[serde(flatten)]
    pub measured: M,
    device: DeviceRecord,
    /// Digest of the bundle whose kernels ran.
    bundle: String,
    /// Modules loaded of it.
    pub modules_loaded: u64,
    /// The highest rates of the device; none for the simulated GPU.
    limit: Option<Peak>,
    /// Kernels of a step, those that take longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelRecord>,
    /// Memory by category, planned and taken.
    memory: MemoryRecord,
    /// Process start to the end of the first step, by phase.
    startup: StartupRecord,
}

impl<M: Measured> Record<M> {
    /// From what was measured of a plan on a device, and of its kernels.
    pub(super) fn new(
        measured: M,
        (plan, sealed): (&Plan, &SealedDevice),
        kernels: Vec<KernelRecord>,
        startup: &Startup,
    ) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            measured,
            device: DeviceRecord::of(sealed.device()),
            bundle: sealed.bundle.to_string(),
            modules_loaded: sealed.loads(),
            limit: sealed.device().peak(),
            kernels,
            memory: MemoryRecord { planned: MemoryTable::of(plan), taken_bytes: sealed.taken_bytes },
            startup: startup.record(),
        }
    }

    fn summary(&self) -> Vec<(String, String)> {
        let device = ("device", self.device.name.clone());
        let rows = [device].into_iter().chain(self.measured.summary(self.limit));
        rows.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Writes `bench.json` and `report.html`, in place of those of an earlier benchmark.
    ///
    /// # Errors
    /// [`Failure::Run`] where something else is there, [`Failure::Io`].
    pub fn write(&self, out: &Path) -> Result<(), Failure> {
        let out = check_directory(out, Existing::Replace, &[])?;
        let json = serde_json::to_string_pretty(self).expect("plain data serializes") + "\n";
        let html = self.html();
        let write = || {
            let mut aside = Aside::new(&out)?;
            aside.write("bench.json", json.as_bytes())?;
            aside.write("report.html", html.as_bytes())?;
            aside.list()?;
            aside.publish(Existing::Replace)
        };
        write().map_err(Failure::io("write", &out))
    }

    fn html(&self) -> String {
        let rows: Vec<Bar> = self.kernels.iter().map(KernelRecord::bar).chain(self.measured.last_bar()).collect();
        let kernels = if rows.is_empty() { String::new() } else { bars("Kernels of a step, ms", PARTS, &rows) };
        // A result that is in the pictures is not repeated.
        let is_drawn = |(name, _): &(String, String)| {
            ["kernels.", "beside_bundle.products.", "sweep.points."].iter().any(|drawn| name.starts_with(drawn))
        };
        let mut rest = flatten("", &serde_json::to_value(self).expect("plain data serializes"));
        rest.retain(|row| !is_drawn(row));
        let (summary, rest) = (table(&self.summary()), table(&rest));
        page("precast bench", &format!("{summary}{kernels}{}<h2>Run</h2>{rest}", self.measured.svg()))
    }
}

impl<M: Measured> fmt::Display for Record<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in self.summary() {
            writeln!(f, "{name:<17} {value}")?;
        }
        self.measured.before(f)?;
        if !self.kernels.is_empty() {
            kernels_text(&self.kernels, f)?;
        }
        self.measured.behind(f)?;
        writeln!(f, "\nmemory\n{}", self.memory.planned)?;
        let StartupRecord { total_s, phases, .. } = &self.startup;
        write!(f, "\nstart-up {total_s:.3} s")?;
        phases.iter().try_for_each(|phase| write!(f, "\n  {:<18} {:>8.3}", phase.name, phase.seconds))
    }
}
