//! Checks every kernel of a bundle against its host reference on the device: fresh random inputs, ragged sizes,
//! poisoned outputs, guarded operands.

mod check;

pub use check::{SelftestError, SelftestSum, check, measure};

use precast_core::check::{Case, Distance, Mismatch, POISON};
use precast_core::{Batch, Format, KeyVariant, Operand};
use precast_fatbins::{Bundle, BundleError};

use crate::driver::{Bound, BoundLaunch, BoundWork, Driver, GraphId};
use crate::loading::{LoadError, code_for};
use crate::loads::{Load, Loads};

/// Bytes before and after each operand that no kernel may touch.
const GUARD: u64 = 256;

/// Largest copy, bytes.
const STAGE_BYTES: u64 = 16 << 20;

/// Timings of a launch, and launches per timing.
const TIMINGS: u32 = 5;
const REPEATS: u32 = 20;

/// Result of one checked launch.
#[derive(Debug)]
pub struct SelftestOutcome {
    /// Kernel that was launched.
    pub pair: KeyVariant,
    /// Index of its sample.
    pub sample: usize,
    /// Largest distance over its outputs, or the fault.
    pub result: Result<Distance, SelftestFault>,
    /// Contents of every output operand.
    pub outputs: Vec<Output>,
}

/// Contents of an operand after a launch.
#[derive(Debug)]
pub struct Output {
    /// Name of the operand.
    pub operand: &'static str,
    /// Format of its values.
    pub format: Format,
    /// Its bytes after the launch.
    pub bytes: Vec<u8>,
}

/// A fault of a checked launch.
#[derive(Debug, thiserror::Error)]
pub enum SelftestFault {
    /// An output differs from the reference.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A byte outside the operands changed.
    #[error("{pair}: wrote {} bytes {} operand `{operand}`", offset.unsigned_abs(), if *offset < 0 { "before" } else { "past the end of" })]
    Guard {
        /// Kernel that was launched.
        pair: String,
        /// The operand nearest to the byte.
        operand: &'static str,
        /// Distance from it, bytes.
        offset: i64,
    },
}

/// Places guarded operands of a case one after the other.
struct Layout {
    starts: Vec<u64>,
    bytes: u64,
}

impl Layout {
    fn new(operands: &[Operand]) -> Self {
        let mut next = 0;
        let starts = operands.iter().map(|operand| {
            let start = next + GUARD;
            next = (start + operand.bytes()).next_multiple_of(GUARD);
            start
        });
        let starts = starts.collect();
        Self { starts, bytes: next + GUARD }
    }

    /// Returns memory with poisoned guards and the case's operands.
    fn image(&self, case: &Case) -> Vec<u8> {
        let mut image = vec![POISON; self.bytes as usize];
        for (start, content) in self.starts.iter().zip(&case.before) {
            image[*start as usize..][..content.len()].copy_from_slice(content);
        }
        image
    }
}

/// A launch ready to run: operands guarded, code loaded.
struct Ready {
    pair: KeyVariant,
    sample: usize,
    params: Vec<u8>,
    layout: Layout,
    graph: GraphId,
}

impl Ready {
    fn case(&self, seed: u64) -> Case {
        Case::new(&self.pair.key, &self.params, seed + self.sample as u64)
    }
}

/// Launches ready to run, all at one address, and the loads for them.
struct Prepared {
    base: u64,
    ready: Vec<Ready>,
    loads: Vec<Load>,
}

/// Loads every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`, and prepares the
/// admitted samples that `choose` takes, all at one address and each `repeats` times in a row. Every load precedes the
/// first launch.
fn prepare(
    driver: &mut dyn Driver,
    bundle: &Bundle<'_>,
    prefix: &str,
    repeats: u32,
    choose: impl Fn(&KeyVariant, Vec<(usize, Vec<u8>)>) -> Vec<(usize, Vec<u8>)>,
) -> Result<Prepared, LoadError> {
    bundle.verify()?;
    let arch = code_for(driver.device(), bundle)?;
    let launched = driver.device().arch().unwrap_or(arch);
    let modules = bundle.modules(arch).map_err(BundleError::from)?;
    let (mut cases, mut loads) = (Vec::new(), Loads::default());
    // A stand-in checks the variants of the row that it stands for.
    let is_launched = |KeyVariant { key, variant }: &KeyVariant| {
        key.text().starts_with(prefix) && (launched == arch || key.kernel().variants(launched).contains(variant))
    };
    for module in modules.iter().filter(|module| is_launched(&module.pair)) {
        let kernel = loads.load(module, |permit| driver.load(module, permit))?;
        let KeyVariant { key, variant } = &module.pair;
        let admitted = |(_, params): &(usize, Vec<u8>)| key.kernel().admits(*variant, params);
        let samples = key.kernel().samples().into_iter().enumerate().filter(admitted).collect();
        for (sample, params) in choose(&module.pair, samples) {
            let layout = Layout::new(&key.kernel().operands(&params));
            cases.push((module.pair.clone(), kernel, sample, layout, params));
        }
    }
    let Some(largest) = cases.iter().map(|(_, _, _, layout, _)| layout.bytes).max() else {
        return Ok(Prepared { base: 0, ready: Vec::new(), loads: loads.0 });
    };
    let base = driver.allocate(largest)?;
    driver.stage(STAGE_BYTES)?;
    let mut ready = Vec::new();
    for (pair, kernel, sample, layout, params) in cases {
        let mut bound = params.clone();
        for (operand, start) in pair.key.kernel().operands(&params).iter().zip(&layout.starts) {
            bound[operand.offset..operand.offset + 8].copy_from_slice(&(base + start).to_ne_bytes());
        }
        let launch = |index: u32| Bound {
            label: pair.to_string(),
            work: BoundWork::Launch(BoundLaunch {
                kernel,
                key: pair.key.clone(),
                geometry: pair.key.kernel().geometry(pair.variant, &params),
                tensor_maps: pair.key.kernel().tensor_maps(pair.variant, &params),
                params: bound.clone(),
            }),
            dependencies: index.checked_sub(1).into_iter().collect(),
        };
        let graph = driver.prepare(&(0..repeats).map(launch).collect::<Vec<_>>())?;
        ready.push(Ready { pair, sample, params, layout, graph });
    }
    Ok(Prepared { base, ready, loads: loads.0 })
}

/// Uploads a launch's memory image.
fn send(driver: &mut dyn Driver, base: u64, image: &[u8]) -> Result<(), LoadError> {
    for (index, part) in image.chunks(STAGE_BYTES as usize).enumerate() {
        driver.write(base + index as u64 * STAGE_BYTES, part)?;
    }
    Ok(())
}

/// Checks every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`; `report`
/// receives each launch. Returns the loads, in order.
///
/// # Errors
/// [`LoadError`] if the checks cannot be made, for example without code for the device; faults of kernels go to
/// `report`.
pub fn selftest(
    mut driver: Box<dyn Driver>,
    bundle: &Bundle<'_>,
    prefix: &str,
    seed: u64,
    mut report: impl FnMut(SelftestOutcome),
) -> Result<Vec<Load>, LoadError> {
    let Prepared { base, ready, loads } = prepare(&mut *driver, bundle, prefix, 1, |_, samples| samples)?;
    for launch in ready {
        let (case, layout) = (launch.case(seed), &launch.layout);
        send(&mut *driver, base, &layout.image(&case))?;
        driver.run(launch.graph)?;
        let mut after = Vec::with_capacity(layout.bytes as usize);
        while (after.len() as u64) < layout.bytes {
            let done = after.len() as u64;
            let ticket = driver.read(base + done, (layout.bytes - done).min(STAGE_BYTES))?;
            after.extend(driver.wait(ticket)?.bytes);
        }
        let result = examine(&launch.pair, &case, layout, &after);
        let outputs = outputs(&case, layout, &after);
        report(SelftestOutcome { pair: launch.pair, sample: launch.sample, result, outputs });
    }
    Ok(loads)
}

/// Time of a launch, independent of any plan.
#[derive(Debug)]
pub struct Timed {
    /// Kernel that was launched.
    pub pair: KeyVariant,
    /// Bytes that it must move.
    pub bytes: u64,
    /// Floating-point operations, if they bound its time.
    pub flops: u64,
    /// Fastest of several consecutive launches.
    pub seconds: f64,
}

/// Times every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`, at its launch
/// typical of a batch; without one, or if a variant does not admit it, at the largest admitted sample.
///
/// # Errors
/// [`LoadError`] if the bundle has no code for the device, or a launch fails.
pub fn time(
    mut driver: Box<dyn Driver>,
    bundle: &Bundle<'_>,
    prefix: &str,
    batch: Option<Batch>,
    seed: u64,
    mut report: impl FnMut(Timed),
) -> Result<(), LoadError> {
    let one = |KeyVariant { key, variant }: &KeyVariant, samples: Vec<(usize, Vec<u8>)>| {
        let typical = batch.map(|batch| (0, key.kernel().typical(batch)));
        let typical = typical.filter(|(_, params)| key.kernel().admits(*variant, params));
        let largest = || samples.into_iter().max_by_key(|(_, params)| key.kernel().bytes(params));
        typical.or_else(largest).into_iter().collect()
    };
    let Prepared { base, ready, .. } = prepare(&mut *driver, bundle, prefix, REPEATS, one)?;
    for launch in ready {
        send(&mut *driver, base, &launch.layout.image(&launch.case(seed)))?;
        let mut seconds = f64::INFINITY;
        for _ in 0..TIMINGS {
            seconds = seconds.min(driver.time(launch.graph, 1)? / f64::from(REPEATS));
        }
        let kernel = launch.pair.key.kernel();
        let (bytes, flops) = (kernel.bytes(&launch.params), kernel.flops(&launch.params));
        report(Timed { pair: launch.pair, bytes, flops, seconds });
    }
    Ok(())
}

/// Returns the contents of output operands.
fn outputs(case: &Case, layout: &Layout, after: &[u8]) -> Vec<Output> {
    let operands = case.operands.iter().zip(&layout.starts).filter(|(operand, _)| operand.access.is_output());
    let output = |(operand, start): (&Operand, &u64)| Output {
        operand: operand.name,
        format: operand.format,
        bytes: after[*start as usize..][..operand.bytes() as usize].to_vec(),
    };
    operands.map(output).collect()
}

/// Compares every operand with the reference, and every guard with the poison.
fn examine(pair: &KeyVariant, case: &Case, layout: &Layout, after: &[u8]) -> Result<Distance, SelftestFault> {
    let mut worst = Distance::NONE;
    let mut guard_from = 0;
    let reference = case.reference();
    for ((operand, start), reference) in case.operands.iter().zip(&layout.starts).zip(&reference) {
        let (start, end) = (*start as usize, (*start + operand.bytes()) as usize);
        let clean = |guard: &[u8]| guard.iter().position(|byte| *byte != POISON);
        let guard = |offset| SelftestFault::Guard { pair: pair.to_string(), operand: operand.name, offset };
        if let Some(index) = clean(&after[guard_from..start]) {
            return Err(guard((guard_from + index) as i64 - start as i64));
        }
        if let Some(index) = clean(&after[end..end + GUARD as usize]) {
            return Err(guard(index as i64 + 1));
        }
        guard_from = end;
        let distance = case.compare(operand, &after[start..end], reference)?;
        if distance.norm > worst.norm {
            worst = distance;
        }
    }
    Ok(worst)
}
