//! Checks each launch against its host reference.

use precast_core::check::{Case, Distance, Mismatch, POISON};
use precast_core::{Format, KeyVariant, Operand};
use precast_fatbins::Bundle;

use super::prepare::{GUARD, Layout, Prepared, STAGE_BYTES, prepare, send};
use crate::driver::Driver;
use crate::loading::LoadError;
use crate::loads::Load;

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
    #[error("{pair}: wrote {} bytes {} operand \
        `{operand}`", offset.unsigned_abs(), if *offset < 0 { "before" } else { "past the end of" })]
    Guard {
        /// Kernel that was launched.
        pair: String,
        /// The operand nearest to the byte.
        operand: &'static str,
        /// Distance from it, bytes.
        offset: i64,
    },
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
