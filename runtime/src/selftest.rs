//! Every kernel of a bundle against its host reference, on the device: fresh random inputs, ragged sizes,
//! poisoned outputs, guarded operands.

use precast_fatbins::{Bundle, BundleError};
use precast_kernels::KeyVariant;
use precast_kernels::check::{Case, Distance, Mismatch, POISON};

use crate::driver::{Bound, Driver};
use crate::loading::{LoadError, code_for};
use crate::loads;

/// Bytes before and after each operand that no kernel may touch.
const GUARD: u64 = 256;

/// Bytes a copy moves at most.
const STAGE_BYTES: u64 = 16 << 20;

/// What became of one checked launch.
#[derive(Debug)]
pub struct Outcome {
    /// The kernel.
    pub pair: KeyVariant,
    /// Which of its samples.
    pub sample: usize,
    /// The largest distance over its outputs, or what is wrong.
    pub result: Result<Distance, Fault>,
}

/// What is wrong with a checked launch.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// An output is not what the reference says.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// A byte outside the operands changed.
    #[error("{pair}: wrote {} bytes {} operand `{operand}`", offset.unsigned_abs(), if *offset < 0 { "before" } else { "past the end of" })]
    Guard {
        /// The kernel.
        pair: String,
        /// Nearest operand.
        operand: &'static str,
        /// Distance from it.
        offset: i64,
    },
}

/// Operands of a case, guarded, one after the other.
struct Layout {
    starts: Vec<u64>,
    bytes: u64,
}

impl Layout {
    fn new(case: &Case) -> Self {
        let mut next = 0;
        let starts = case.operands.iter().map(|operand| {
            let start = next + GUARD;
            next = (start + operand.bytes()).next_multiple_of(GUARD);
            start
        });
        let starts = starts.collect();
        Self { starts, bytes: next + GUARD }
    }

    /// Guards poisoned, operands as the case has them.
    fn image(&self, case: &Case) -> Vec<u8> {
        let mut image = vec![POISON; self.bytes as usize];
        for (start, content) in self.starts.iter().zip(&case.before) {
            image[*start as usize..][..content.len()].copy_from_slice(content);
        }
        image
    }
}

/// Checks every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`; `report` hears of
/// each launch. Everything is loaded before the first launch.
///
/// # Errors
/// [`LoadError`] where the checks themselves cannot be made, for the bundle has no code for the device among them; what
/// they find goes to `report`.
pub fn selftest<D: Driver>(
    mut driver: D,
    bundle: &Bundle<'_>,
    prefix: &str,
    seed: u64,
    mut report: impl FnMut(Outcome),
) -> Result<(), LoadError> {
    bundle.verify()?;
    let arch = code_for(driver.device(), bundle)?;
    let modules = bundle.modules(arch).map_err(BundleError::from)?;
    let mut cases = Vec::new();
    for module in modules.iter().filter(|module| module.pair.key.to_string().starts_with(prefix)) {
        let (kernel, _) = loads::load(&mut driver, module)?;
        let launches = module.pair.key.kernel().samples();
        let admitted = |(_, params): &(usize, &Vec<u8>)| module.pair.key.kernel().admits(module.pair.variant, params);
        for (sample, params) in launches.iter().enumerate().filter(admitted) {
            let case = Case::new(&module.pair.key, params, seed + sample as u64);
            cases.push((module.pair.clone(), kernel, sample, Layout::new(&case), params.clone()));
        }
    }
    let Some(largest) = cases.iter().map(|(_, _, _, layout, _)| layout.bytes).max() else { return Ok(()) };
    let base = driver.allocate(largest)?;
    driver.stage(STAGE_BYTES)?;
    let mut graphs = Vec::new();
    for (pair, kernel, _, layout, params) in &cases {
        let mut bound = params.clone();
        for (operand, start) in pair.key.kernel().operands(params).iter().zip(&layout.starts) {
            bound[operand.offset..operand.offset + 8].copy_from_slice(&(base + start).to_ne_bytes());
        }
        graphs.push(driver.prepare(&[Bound {
            label: pair.to_string(),
            kernel: *kernel,
            key: pair.key.clone(),
            geometry: pair.key.kernel().geometry(pair.variant, params),
            tensor_maps: pair.key.kernel().tensor_maps(pair.variant, params),
            params: bound,
            dependencies: Vec::new(),
        }])?);
    }
    for ((pair, _, sample, layout, params), graph) in cases.into_iter().zip(graphs) {
        let case = Case::new(&pair.key, &params, seed + sample as u64);
        for (index, part) in layout.image(&case).chunks(STAGE_BYTES as usize).enumerate() {
            driver.write(base + index as u64 * STAGE_BYTES, part)?;
        }
        driver.run(graph)?;
        let mut after = Vec::with_capacity(layout.bytes as usize);
        while (after.len() as u64) < layout.bytes {
            let done = after.len() as u64;
            let ticket = driver.read(base + done, (layout.bytes - done).min(STAGE_BYTES))?;
            after.extend(driver.wait(ticket)?.bytes);
        }
        let result = examine(&pair, &case, &layout, &after);
        report(Outcome { pair, sample, result });
    }
    Ok(())
}

/// Compares every operand with the reference, and every guard with the poison.
fn examine(pair: &KeyVariant, case: &Case, layout: &Layout, after: &[u8]) -> Result<Distance, Fault> {
    let mut worst = Distance::NONE;
    let mut guard_from = 0;
    let reference = case.reference();
    for ((operand, start), reference) in case.operands.iter().zip(&layout.starts).zip(&reference) {
        let (start, end) = (*start as usize, (*start + operand.bytes()) as usize);
        let clean = |guard: &[u8]| guard.iter().position(|byte| *byte != POISON);
        let guard = |offset| Fault::Guard { pair: pair.to_string(), operand: operand.name, offset };
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
