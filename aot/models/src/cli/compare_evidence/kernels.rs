//! Kernels of a file of evidence beside those of this program.

use precast_fatbins::evidence::{Evidence, Kernel, short};
use precast_kernels::{Arch, KERNELS, KeyVariant};

/// A kernel of a file.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    /// Key and variant.
    pub name: &'a str,
    pub kernel: &'a Kernel,
    /// Architecture and digest; none for this program's sources, as which those of every architecture count.
    pub source: Option<(&'a str, &'a str)>,
}

/// Names the operation of a kernel and what is baked in.
pub(super) fn key(kernel: &str) -> &str {
    kernel.rsplit_once('[').map_or(kernel, |(key, _)| key)
}

/// Finds a kernel that this program builds for a chip.
fn known(file: &Evidence, kernel: &str) -> Option<(KeyVariant, Arch)> {
    let arch: Arch = file.chip.arch.parse().ok()?;
    let key = KERNELS.parse(key(kernel)).ok()?;
    Some((key.built(arch).find(|pair| pair.to_string() == kernel)?, arch))
}

/// Returns the kernels of a key.
pub(super) fn of_key<'a>(file: &'a Evidence, key: &str) -> Vec<Named<'a>> {
    let all = file.kernels.range(key.to_owned()..).take_while(|(name, _)| name.starts_with(key));
    let all = all.map(|(name, kernel)| {
        let own = known(file, name).map(|(pair, arch)| pair.source_digest(arch).to_string());
        let is_own = own.is_some_and(|own| kernel.source == short(&own));
        Named { name, kernel, source: (!is_own).then_some((&file.chip.arch, &kernel.source)) }
    });
    all.collect()
}

/// Counts the samples of a kernel that a file lacks and its chip also runs.
pub(super) fn missing(file: &Evidence, name: &str) -> usize {
    let Some((KeyVariant { key, variant }, _)) = known(file, name) else { return 0 };
    let launches = file.kernels.get(name).map_or(&[][..], |kernel| &kernel.launches);
    let samples = key.kernel().samples().into_iter().enumerate();
    let admitted = samples.filter(|(_, params)| key.kernel().admits(variant, params));
    admitted.filter(|(sample, _)| !launches.iter().any(|launch| launch.0 == *sample)).count()
}
