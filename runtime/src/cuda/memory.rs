//! Allocates device memory and reports the free amount.

use std::ffi::OsString;
use std::fmt::Display;

use cudarc::driver::sys;

use super::call::{check, check_with};
use crate::driver::{DriverError, MoreMemory};
use crate::host;

/// Chooses the kind of device memory.
const VARIABLE: &str = "PRECAST_MEMORY";

/// A kind of device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// `cuMemAlloc`: device memory, also on machines with one memory, where it is faster than managed memory.
    Device,
    /// `cuMemAllocManaged`: pages that migrate on access.
    Managed,
}

impl Kind {
    /// Returns the kind that the environment requests, if any.
    ///
    /// # Errors
    /// [`DriverError::Environment`] if the value is unknown.
    pub fn asked(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, DriverError> {
        let Some(value) = variable(VARIABLE).filter(|value| !value.is_empty()) else { return Ok(None) };
        match value.to_str() {
            Some("device") => Ok(Some(Self::Device)),
            Some("managed") => Ok(Some(Self::Managed)),
            _ => Err(DriverError::Environment {
                name: VARIABLE,
                value: value.to_string_lossy().into_owned(),
                effect: "there is no such kind of device memory",
                remedy: "set it to device or managed, or unset it".to_owned(),
            }),
        }
    }

    /// Allocates memory; returns the driver's result and the address.
    pub fn allocate(self, bytes: u64) -> (sys::CUresult, sys::CUdeviceptr) {
        let mut address = 0;
        // SAFETY: each writes one address.
        let result = unsafe {
            match self {
                Self::Device => sys::cuMemAlloc_v2(&mut address, bytes as usize),
                Self::Managed => {
                    let attach = sys::CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as u32;
                    sys::cuMemAllocManaged(&mut address, bytes as usize, attach)
                }
            }
        };
        (result, address)
    }

    /// Describes the kind in a run's output.
    pub fn note(self) -> String {
        let (name, call) = match self {
            Self::Device => ("device", "cuMemAlloc"),
            Self::Managed => ("managed", "cuMemAllocManaged"),
        };
        format!("{VARIABLE}={name}: device memory is taken by {call}")
    }
}

/// Returns free and total memory of the current device, bytes. The driver counts the page cache as used: with one
/// memory for host and device, the host's figure is taken instead.
///
/// # Errors
/// [`DriverError`] of the driver.
pub(super) fn free_and_total(integrated: bool) -> Result<(u64, u64), DriverError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: writes two integers.
    check("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) })?;
    let (free, total) = (free as u64, total as u64);
    match host::memory().filter(|_| integrated) {
        Some(host) => Ok((host::takeable_bytes(total, host.available), total)),
        None => Ok((free, total)),
    }
}

/// Checks a call for which the driver allocates memory of its own, to do `what`.
pub(super) fn check_memory(
    call: &'static str,
    result: sys::CUresult,
    what: &dyn Display,
    remedy: MoreMemory,
) -> Result<(), DriverError> {
    if result != sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        return check_with(call, result, || format!(": cannot {what}"));
    }
    let (free, _) = free_and_total(false)?;
    Err(DriverError::OutOfDriverMemory { what: what.to_string(), free, remedy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_as_the_environment_asks() {
        let asked = |value: &'static str| Kind::asked(|_| Some(value.into()));
        assert_eq!(Kind::asked(|_| None), Ok(None));
        assert_eq!(asked(""), Ok(None));
        assert_eq!(asked("device"), Ok(Some(Kind::Device)));
        assert_eq!(asked("managed"), Ok(Some(Kind::Managed)));
        let message = asked("unified").unwrap_err().to_string();
        assert!(
            message.contains("PRECAST_MEMORY=unified is set") && message.contains("device or managed"),
            "{message}"
        );
    }
}
