//! A key, built as a variant for an architecture, against its host reference, on every sample that the variant admits.

use std::collections::BTreeSet;

use precast_core::check::{self, Case, Distance, Mismatch};
use precast_core::{Arch, Dtype, Format, Geometry, Key, KeyVariant, Operand, Source, TensorMap, Tolerance, Variant};

use crate::compile::Simt;
use crate::cost::Traffic;
use crate::error::CompileError;
use crate::execute::execute;
use crate::program::Program;
use crate::report::Report;

/// Fault of a kernel.
#[derive(Debug, thiserror::Error)]
pub enum CheckFault {
    /// It cannot be prepared.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An output is not what the reference says.
    #[error("{arch}, variant {variant}, sample {sample}, seed {seed}: {mismatch}{stores}")]
    Mismatch {
        /// Architecture that it is executed for.
        arch: Arch,
        /// Its build.
        variant: Box<Variant>,
        /// Index among the key's samples.
        sample: usize,
        /// Seed of the scheduler and of the random inputs.
        seed: u64,
        /// Their difference.
        mismatch: Mismatch,
        /// Lines that store, of a launch that left an element unwritten.
        stores: String,
    },
    /// The launch breaks a rule of the machine.
    #[error("{pair} on {arch}, sample {sample}, seed {seed}: {report}")]
    Broken {
        /// Its kernel and build.
        pair: Box<KeyVariant>,
        /// Architecture that it is executed for.
        arch: Arch,
        /// Index among the key's samples.
        sample: usize,
        /// Seed of the scheduler and of the random inputs.
        seed: u64,
        /// Rule, place and accesses.
        report: Box<Report>,
    },
    /// A launch asks for more than a CTA may have.
    #[error("{pair} on {arch}: {bytes} bytes of shared memory or {threads} threads are more than a block may have")]
    Limit {
        /// Its kernel and build.
        pair: Box<KeyVariant>,
        /// Architecture that it is executed for.
        arch: Arch,
        /// Shared memory, static and dynamic.
        bytes: u64,
        /// Threads of a CTA.
        threads: u32,
    },
}

/// Counts of a check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckOutcome {
    /// Launches that ran.
    pub launches: usize,
    /// The largest distance of an output from the reference.
    pub worst: f64,
}

/// Runs every sample of a source's build once for each seed, which also decides the random inputs. Architectures whose
/// code is one program share its launches; what a CTA may have is asked for each.
///
/// # Errors
/// The first [`CheckFault`].
pub fn check_all(
    simt: &Simt,
    source: &Source,
    pair: &KeyVariant,
    archs: &[Arch],
    seeds: &[u64],
) -> Result<CheckOutcome, CheckFault> {
    // It has no other way to know.
    let one_program = !source.mentions("__CUDA_ARCH__");
    let mut total = CheckOutcome { launches: 0, worst: 0.0 };
    let mut shared_bytes = None;
    for &arch in archs {
        match shared_bytes.filter(|_| one_program) {
            Some(bytes) => each_launch(pair, |_, _, geometry| fits(pair, arch, bytes, geometry))?,
            None => {
                let (outcome, bytes) = check_program(simt, source, pair, arch, seeds)?;
                total.launches += outcome.launches;
                total.worst = total.worst.max(outcome.worst);
                shared_bytes = Some(bytes);
            }
        }
    }
    Ok(total)
}

/// Runs the same launches of a source in place of the key's own, for one architecture.
///
/// # Errors
/// The first [`CheckFault`].
pub fn check_source(
    simt: &Simt,
    source: &Source,
    pair: &KeyVariant,
    arch: Arch,
    seeds: &[u64],
) -> Result<CheckOutcome, CheckFault> {
    check_program(simt, source, pair, arch, seeds).map(|(outcome, _)| outcome)
}

/// Returns the outcome, and the bytes of static shared memory of the program.
fn check_program(
    simt: &Simt,
    source: &Source,
    pair: &KeyVariant,
    arch: Arch,
    seeds: &[u64],
) -> Result<(CheckOutcome, u64), CheckFault> {
    let program = simt.compile_pair(source, pair, arch)?;
    let mut outcome = CheckOutcome { launches: 0, worst: 0.0 };
    each_launch(pair, |sample, params, geometry| {
        for &seed in seeds {
            let case = Case::new(&pair.key, params, seed + sample as u64);
            let distance = run(&program, &case, geometry, pair, arch, sample, seed)?;
            outcome.launches += 1;
            outcome.worst = outcome.worst.max(distance.norm);
        }
        Ok(())
    })?;
    if let Some(branches) = &simt.branches {
        branches.add(source, program.executed()?);
    }
    Ok((outcome, program.static_shared_bytes()))
}

/// Every sample that a variant admits, and its launch. Small launches give a persistent CTA one tile at most: a second
/// launch has as few of them as can be.
fn each_launch(
    pair: &KeyVariant,
    mut launch: impl FnMut(usize, &[u8], &Geometry) -> Result<(), CheckFault>,
) -> Result<(), CheckFault> {
    let (kernel, variant) = (pair.key.kernel(), pair.variant);
    let samples = kernel.samples();
    for (sample, params) in samples.iter().enumerate().filter(|(_, params)| kernel.admits(variant, params)) {
        let geometry = kernel.geometry(variant, params);
        launch(sample, params, &geometry)?;
        if let Some(smallest) = kernel.smallest_grid(variant).filter(|smallest| *smallest < geometry.grid[0]) {
            launch(sample, params, &Geometry { grid: [smallest, 1, 1], ..geometry })?;
        }
    }
    Ok(())
}

/// Refuses a launch that asks for more shared memory or threads than a CTA may have.
fn fits(pair: &KeyVariant, arch: Arch, static_bytes: u64, geometry: &Geometry) -> Result<(), CheckFault> {
    let bytes = static_bytes + u64::from(geometry.shared_bytes);
    let threads = geometry.block.iter().product();
    if bytes > arch.shared_bytes_per_block().into() || threads > 1024 {
        return Err(CheckFault::Limit { pair: Box::new(pair.clone()), arch, bytes, threads });
    }
    Ok(())
}

/// Returns the tolerance of a kernel here, where approximate instructions are exact. In bf16 kernels that add in the
/// reference's order are at 4e-8 and attention, whose softmax goes tile by tile, at 1.1e-3; one that rounds once too
/// often is at 3.4e-3.
fn limit(key: &Key, operand: &Operand) -> Tolerance {
    let tolerance = key.kernel().tolerance(operand);
    match operand.format {
        Format::Dense(Dtype::Bf16) if tolerance == Tolerance::of(operand.format) => {
            Tolerance { norm: 2e-3, ..tolerance }
        }
        _ => tolerance,
    }
}

/// The lines at which a launch stores to its operands.
fn stores(program: &Program, case: &Case, geometry: &Geometry, maps: &[TensorMap], seed: u64) -> String {
    program.counts();
    let mut memory = case.before.clone();
    let executed = execute(program, geometry, &case.params, &case.operands, maps, &mut memory, seed);
    let counts = program.counts();
    let stores = counts.iter().filter(|count| executed.is_ok() && count.traffic == Traffic::Store);
    let lines: BTreeSet<String> = stores.map(|count| program.line(count)).collect();
    lines.into_iter().map(|line| format!("\n  it stores at {line}")).collect()
}

pub(crate) fn run(
    program: &Program,
    case: &Case,
    geometry: &Geometry,
    pair: &KeyVariant,
    arch: Arch,
    sample: usize,
    seed: u64,
) -> Result<Distance, CheckFault> {
    fits(pair, arch, program.static_shared_bytes(), geometry)?;
    let mut memory = case.before.clone();
    let maps = pair.key.kernel().tensor_maps(pair.variant, &case.params);
    execute(program, geometry, &case.params, &case.operands, &maps, &mut memory, seed)
        .map_err(|report| CheckFault::Broken { pair: Box::new(pair.clone()), arch, sample, seed, report })?;
    let mut worst = Distance::NONE;
    for ((operand, after), reference) in case.operands.iter().zip(&memory).zip(&case.reference()) {
        let distance = case.compare_within(limit(&pair.key, operand), operand, after, reference);
        let distance = distance.map_err(|mismatch| {
            let unwritten = matches!(mismatch.fault, check::OutputFault::Unwritten { .. });
            let stores = if unwritten { stores(program, case, geometry, &maps, seed) } else { String::new() };
            CheckFault::Mismatch { arch, variant: Box::new(pair.variant), sample, seed, mismatch, stores }
        })?;
        if distance.norm > worst.norm {
            worst = distance;
        }
    }
    Ok(worst)
}
