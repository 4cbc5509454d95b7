//! Content that is published with a bundle.

use precast_core::Arch;
use precast_fatbins::{Bundle, Change, Lock, ManifestError};

use super::error::PublishError;
use crate::compile::Task;

/// Returns the architectures of a bundle with machine code.
pub(super) fn gpus(bundle: &Bundle<'_>) -> Vec<Arch> {
    bundle.archs().into_iter().filter(|arch| *arch != Arch::Sim).collect()
}

/// Returns every compilation behind a bundle.
pub(super) fn tasks(bundle: &Bundle<'_>) -> Result<Vec<Task>, ManifestError> {
    let with_code = bundle.manifest().modules.iter().filter(|module| module.code.is_some());
    with_code.map(|module| module.typed(bundle.kernels()).map(|(pair, arch)| Task { pair, arch })).collect()
}

/// Checks that every lock line of the bundle's architectures matches the bundle.
pub(super) fn check_locks(bundle: &Bundle<'_>, locks: &[(String, Lock)]) -> Result<(), PublishError> {
    let (archs, held) = (gpus(bundle), Lock::of(bundle.manifest()));
    for (name, lock) in locks {
        let lock = lock.filtered(|arch, _| archs.iter().any(|held| held.name() == arch));
        // Kernels absent from this lock belong to other locks.
        let changes: Vec<String> = lock
            .compare(&held)
            .iter()
            .filter(|change| !matches!(change, Change::Added(_)))
            .map(ToString::to_string)
            .collect();
        if !changes.is_empty() {
            return Err(PublishError::Lock { lock: format!("{name}.lock"), changes: changes.join(", ") });
        }
    }
    Ok(())
}
