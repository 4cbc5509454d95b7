//! A key, built as a variant for an architecture, against its host reference, on every sample that the variant admits.

use precast_kernels::check::{Case, Distance, Mismatch};
use precast_kernels::{Arch, Key, KeyVariant, Source, Variant};

use crate::compile::{CompileError, Program, Simt};
use crate::execute::execute;
use crate::report::Report;

/// What is wrong with a kernel.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It cannot be prepared.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// An output is not what the reference says.
    #[error("{arch}, variant {variant}, sample {sample}, seed {seed}: {mismatch}")]
    Mismatch {
        /// Architecture.
        arch: Arch,
        /// How it was built.
        variant: Box<Variant>,
        /// Which of the key's samples.
        sample: usize,
        /// The scheduler's.
        seed: u64,
        /// How far it is from it.
        mismatch: Mismatch,
    },
    /// The launch breaks a rule of the machine.
    #[error("{key}[{variant}] on {arch}, sample {sample}, seed {seed}: {report}")]
    Broken {
        /// The kernel.
        key: Key,
        /// How it was built.
        variant: Box<Variant>,
        /// Architecture.
        arch: Arch,
        /// Which of the key's samples.
        sample: usize,
        /// The scheduler's.
        seed: u64,
        /// Which rule, where and by whom.
        report: Box<Report>,
    },
    /// A launch asks for more than a block may have.
    #[error(
        "{key}[{variant}] on {arch}: {bytes} bytes of shared memory or {threads} threads are more than a block may have"
    )]
    Limit {
        /// The kernel.
        key: Key,
        /// How it was built.
        variant: Box<Variant>,
        /// Architecture.
        arch: Arch,
        /// Shared memory, static and dynamic.
        bytes: u64,
        /// Threads of a block.
        threads: u32,
    },
}

/// What a check has done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Launches that ran.
    pub launches: usize,
    /// The largest distance of an output from the reference.
    pub worst: f64,
}

/// Runs every sample once for each seed, which also decides the random inputs.
///
/// # Errors
/// The first [`Fault`].
pub fn check(simt: &Simt, key: &Key, variant: Variant, arch: Arch, seeds: &[u64]) -> Result<Outcome, Fault> {
    check_source(simt, &key.kernel().source(variant), key, variant, arch, seeds)
}

/// The same, of a source in place of the key's own.
///
/// # Errors
/// The first [`Fault`].
pub fn check_source(
    simt: &Simt,
    source: &Source,
    key: &Key,
    variant: Variant,
    arch: Arch,
    seeds: &[u64],
) -> Result<Outcome, Fault> {
    let kernel = key.kernel();
    let defines = KeyVariant { key: key.clone(), variant }.defines(arch);
    let program = simt.compile(source, &defines, arch)?;
    let mut outcome = Outcome { launches: 0, worst: 0.0 };
    let admitted = |params: &[u8]| kernel.admits(variant, params);
    for (sample, params) in kernel.samples().iter().enumerate().filter(|(_, params)| admitted(params)) {
        for &seed in seeds {
            let case = Case::new(key, params, seed + sample as u64);
            let distance = run(&program, &case, variant, arch, sample, seed)?;
            outcome.launches += 1;
            outcome.worst = outcome.worst.max(distance.norm);
        }
    }
    Ok(outcome)
}

pub(crate) fn run(
    program: &Program,
    case: &Case,
    variant: Variant,
    arch: Arch,
    sample: usize,
    seed: u64,
) -> Result<Distance, Fault> {
    let key = &case.key;
    let geometry = key.kernel().geometry(variant, &case.params);
    let bytes = program.static_shared_bytes() + u64::from(geometry.shared_bytes);
    let threads = geometry.block.iter().product();
    if bytes > arch.shared_bytes_per_block().into() || threads > 1024 {
        return Err(Fault::Limit { key: key.clone(), variant: Box::new(variant), arch, bytes, threads });
    }
    let mut memory = case.before.clone();
    let maps = key.kernel().tensor_maps(variant, &case.params);
    execute(program, &geometry, &case.params, &case.operands, &maps, &mut memory, seed)
        .map_err(|report| Fault::Broken { key: key.clone(), variant: Box::new(variant), arch, sample, seed, report })?;
    let mut worst = Distance::NONE;
    for ((operand, after), reference) in case.operands.iter().zip(&memory).zip(&case.reference()) {
        let distance = case.compare(operand, after, reference);
        let distance = distance.map_err(|mismatch| Fault::Mismatch {
            arch,
            variant: Box::new(variant),
            sample,
            seed,
            mismatch,
        })?;
        if distance.norm > worst.norm {
            worst = distance;
        }
    }
    Ok(worst)
}
