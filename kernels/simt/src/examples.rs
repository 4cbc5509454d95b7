//! Every example of a program's kernels: what a test of the program checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Mutex, PoisonError};

use precast_core::check::{Case, floats};
use precast_core::{Arch, Dtype, Format, Key, KeyVariant, Operand, ReferenceError, Registry, Tolerance};

use crate::branches::Branches;
use crate::compile::Simt;
use crate::error::CompileError;
use crate::suite::{ARCHS, Check, SEEDS, check_each};

/// Kernels that were checked, a line each, and the sum of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Key, variant, architectures, launches, distance from the host reference.
    pub kernels: Vec<String>,
    /// Counts of kernels and launches.
    pub sum: String,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kernels.iter().try_for_each(|kernel| writeln!(f, "{kernel}"))?;
        write!(f, "{}", self.sum)
    }
}

/// Kernels that are not what they have to be, or that cannot be checked.
#[derive(thiserror::Error)]
pub enum CheckError {
    /// There is no compiler for the host, or no place for what it writes.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A header does not declare a plain kernel as its file does.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A check of nothing would find nothing.
    #[error("nothing is checked: {0}")]
    Nothing(String),
    /// Keys of a dtype that no example has: nobody compares them with anything.
    #[error("{}: add one to `examples`, or give such keys no variants", .0.join("\n"))]
    LeftOut(Vec<String>),
    /// Tolerances within which outputs without meaning are: zeros are at a distance of 1.
    #[error("{}\nZeros are within it: `tolerance` is what rounding explains", .0.join("\n"))]
    Loose(Vec<String>),
    /// Lines of the sources that no launch reaches.
    #[error("no sample executes\n  {}\nAdd one to `samples` that does, or remove the lines", .0.join("\n  "))]
    Unexecuted(Vec<String>),
    /// Some kernels have a fault: the first of each, with the lines of the accesses.
    #[error("{}\n{said}", .faults.join("\n"))]
    Faults {
        /// Rule, place and lines, of each.
        faults: Vec<String>,
        /// Counts of faulty and of checked kernels, in words.
        said: String,
    },
}

precast_core::debug_is_display!(CheckError);

/// Executes every example of a program's kernels on the host under the checker: each variant of these architectures,
/// each sample that it admits, with three seeds. Outputs are compared with the host reference; races, accesses out of
/// bounds, divergent barriers and the other faults of the README are named with the lines of the CUDA source that the
/// program was built with.
///
/// Objects are kept in cargo's `target/tmp`: what has not changed is not compiled again.
///
/// ```ignore
/// #[test]
/// fn kernels_compute_their_references() -> Result<(), precast_simt::CheckError> {
///     println!("{}", precast_simt::check(&KERNELS, [Arch::Sm89, Arch::Sm90a])?);
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`CheckError`]: every fault, or nothing to check for an architecture or a key, or no g++; before that a header that
/// is not of its plain file, a dtype that no example has, and a tolerance of 1 or more; where nothing else is wrong,
/// lines that no sample executes, except those that trap.
pub fn check(kernels: &Registry, archs: impl IntoIterator<Item = Arch>) -> Result<Checked, CheckError> {
    kernels.are_as_their_files()?;
    let (examples, archs) = (kernels.examples(), archs.into_iter().collect());
    let checks = Check::of(builds(&examples, &archs)?);
    let left_out = left_out(kernels, &examples, &archs);
    if !left_out.is_empty() {
        return Err(CheckError::LeftOut(left_out));
    }
    let loose = loose(&examples);
    if !loose.is_empty() {
        return Err(CheckError::Loose(loose));
    }
    let (passed, faults) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let done = |_: &Check, said: Result<&str, &str>| {
        let (list, said) = said.map_or_else(|fault| (&faults, fault), |said| (&passed, said));
        list.lock().unwrap_or_else(PoisonError::into_inner).push(said.to_owned());
        Ok(())
    };
    let mut simt = Simt::of_this_program()?;
    simt.branches = Some(Branches::default());
    let sum = check_each(&simt, &checks, &SEEDS, &Ok, &done);
    let unexecuted = simt.branches.as_ref().map_or(Vec::new(), Branches::unexecuted);
    let [kernels, faults] = [passed, faults].map(|list| {
        let mut list = list.into_inner().unwrap_or_else(PoisonError::into_inner);
        list.sort_unstable();
        list
    });
    match sum {
        Ok(_) if !unexecuted.is_empty() => Err(CheckError::Unexecuted(unexecuted)),
        Ok(sum) => Ok(Checked { kernels, sum }),
        Err(error) => Err(CheckError::Faults { faults, said: error.to_string() }),
    }
}

/// Returns the builds of examples for some architectures, of which each has one, and each example a sample.
fn builds(examples: &[Key], archs: &BTreeSet<Arch>) -> Result<Vec<(KeyVariant, Arch)>, CheckError> {
    let nothing = |why: String| Err(CheckError::Nothing(why));
    let mut builds = Vec::new();
    for &arch in archs {
        if !ARCHS.contains(&arch) {
            return nothing(format!("{arch} has no machine code"));
        }
        let before = builds.len();
        for key in examples {
            let (kernel, variants) = (key.kernel(), key.kernel().variants(arch));
            let samples = kernel.samples();
            let is_launched = |variant| samples.iter().any(|params| kernel.admits(variant, params));
            if let Some(variant) = variants.iter().find(|variant| !is_launched(**variant)) {
                return nothing(format!("{key}[{variant}] for {arch} admits no sample: add one to `samples`"));
            }
            let is_run = |params: &Vec<u8>| variants.iter().any(|variant| kernel.admits(*variant, params));
            if let Some(number) = samples.iter().position(|params| !is_run(params)).filter(|_| !variants.is_empty()) {
                return nothing(format!("no variant of {key} for {arch} admits sample {number}"));
            }
            builds.extend(key.built(arch).map(|pair| (pair, arch)));
        }
        if builds.len() == before {
            return nothing(format!("no example has a variant for {arch}"));
        }
    }
    if builds.is_empty() { nothing(String::from("no architecture is named")) } else { Ok(builds) }
}

/// The fields of a key, `name=value`.
fn fields(key: &Key) -> impl Iterator<Item = &str> {
    let body = key.text().split_once('{').map_or("", |(_, body)| body.trim_end_matches('}'));
    body.split(',').filter(|field| !field.is_empty())
}

/// Names dtypes that keys of an operation can have, with variants for one of these architectures, and no example has.
fn left_out(kernels: &Registry, examples: &[Key], archs: &BTreeSet<Arch>) -> Vec<String> {
    let shown: BTreeSet<(&str, &str)> =
        examples.iter().flat_map(|key| fields(key).map(move |field| (key.op(), field))).collect();
    let mut left_out = BTreeSet::new();
    for (key, field) in examples.iter().flat_map(|key| fields(key).map(move |field| (key, field))) {
        let other = match field.split_once('=') {
            Some((name, "bf16")) => format!("{name}=f32"),
            Some((name, "f32")) => format!("{name}=bf16"),
            _ => continue,
        };
        let changed = fields(key).map(|own| if own == field { &*other } else { own }).collect::<Vec<_>>();
        // Not every combination is a key of the operation.
        let text = format!("{}{{{}}}", key.op(), changed.join(","));
        let is_built = |key: Key| archs.iter().any(|arch| !key.kernel().variants(*arch).is_empty());
        if !shown.contains(&(key.op(), other.as_str())) && kernels.parse(&text).is_ok_and(is_built) {
            left_out.insert(format!("no example of `{}` has {other}", key.op()));
        }
    }
    left_out.into_iter().collect()
}

/// Names operands that may be as far from the reference as zeros are.
fn loose(examples: &[Key]) -> Vec<String> {
    let mut loose = BTreeSet::new();
    for key in examples {
        let operands =
            key.kernel().samples().iter().flat_map(|params| key.kernel().operands(params)).collect::<Vec<_>>();
        for operand in operands.iter().filter(|operand| operand.access.is_output()) {
            let Tolerance { norm, element, .. } = key.kernel().tolerance(operand);
            if !(norm < 1.0 && element < 1.0) {
                loose.insert(format!(
                    "{key}: the tolerance of `{}` is {norm} of the norm, {element} of an element",
                    operand.name
                ));
            }
        }
    }
    loose.extend(examples.iter().flat_map(takes_zeros));
    loose.into_iter().collect()
}

/// Names operands whose absolute tolerance is as large as every element of every sample's reference.
fn takes_zeros(key: &Key) -> Vec<String> {
    let kernel = key.kernel();
    let absolute = |operand: &Operand| Some(kernel.tolerance(operand).absolute).filter(|absolute| *absolute > 0.0);
    let is_asked = |operand: &Operand| operand.access.is_output() && absolute(operand).is_some();
    let mut within: BTreeMap<&str, bool> = BTreeMap::new();
    for params in kernel.samples().iter().filter(|params| kernel.operands(params).iter().any(is_asked)) {
        let case = Case::new(key, params, SEEDS[0]);
        for (operand, reference) in case.operands.iter().zip(case.reference()).filter(|(operand, _)| is_asked(operand))
        {
            let largest = largest(operand.format, &reference).filter(|largest| *largest > 0.0);
            if let (Some(largest), Some(absolute)) = (largest, absolute(operand)) {
                *within.entry(operand.name).or_insert(true) &= largest <= absolute;
            }
        }
    }
    let within = within.into_iter().filter(|(_, within)| *within);
    within.map(|(name, _)| format!("{key}: the tolerance of `{name}` is as large as its largest reference")).collect()
}

/// Returns the largest finite magnitude of floats; none of other formats.
fn largest(format: Format, bytes: &[u8]) -> Option<f64> {
    let is_float = matches!(format, Format::Dense(Dtype::F32 | Dtype::Bf16));
    let floats = if is_float { floats(format, bytes) } else { Vec::new() };
    floats.into_iter().map(f64::abs).filter(|float| float.is_finite()).reduce(f64::max)
}
