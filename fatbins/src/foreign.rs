//! Tells bundles of other programs, cores and formats apart.

use std::collections::BTreeSet;

use precast_core::{Arch, Kernels};

use crate::manifest::{Manifest, Origin};

/// A bundle that is not for this program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}\nBuild it again with: {remedy}")]
pub struct Foreign {
    /// Format, program or core that is another.
    pub reason: String,
    /// Architectures of the bundle, sorted.
    pub archs: Vec<Arch>,
    /// Command that builds one for this program.
    pub remedy: String,
}

impl Foreign {
    /// Compares the origin that a manifest names with the program that reads it.
    ///
    /// # Errors
    /// [`Foreign`] if the format, the program or the core is another.
    pub(crate) fn check(manifest: &Manifest, kernels: &Kernels) -> Result<(), Self> {
        let own = Origin::of(kernels);
        let reason = match &manifest.origin {
            None => "the bundle has format 1, which names no program: this one takes format 2".to_owned(),
            Some(origin) if origin.program != own.program => {
                format!("the bundle belongs to the program `{}`, and this is `{}`", origin.program, own.program)
            }
            Some(origin) if origin.core != own.core => {
                format!("the bundle requires precast-core {}, and this program has {}", origin.core, own.core)
            }
            Some(_) => return Ok(()),
        };
        // What another program was built for says nothing here.
        let is_own = manifest.origin.as_ref().is_none_or(|origin| origin.program == own.program);
        let built_for = if is_own { &*manifest.built_for } else { &[] };
        let archs = gpus(manifest);
        Err(Self { reason, remedy: (kernels.rebuild)(built_for, &archs), archs })
    }
}

/// Returns the architectures of a manifest that have machine code, sorted.
pub(crate) fn gpus(manifest: &Manifest) -> Vec<Arch> {
    let archs = manifest.modules.iter().filter_map(|module| Arch::of_name(&module.arch));
    archs.filter(|arch| *arch != Arch::Sim).collect::<BTreeSet<_>>().into_iter().collect()
}
