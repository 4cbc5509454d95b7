//! Records loaded modules, in order, with the time of each load.

use std::time::Instant;

use precast_core::KeyVariant;
use precast_fatbins::{Digest, Module};

use crate::driver::{Driver, DriverError, KernelId};

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    pub pair: KeyVariant,
    /// Digest of its cubin; none for the simulated GPU.
    pub digest: Option<Digest>,
    /// Size of its cubin.
    pub bytes: u64,
    /// Duration of the load, by the host's clock.
    pub microseconds: u64,
}

/// Loads a module and emits one `tracing` event.
pub(crate) fn load(driver: &mut dyn Driver, module: &Module<'_>) -> Result<(KernelId, Load), DriverError> {
    let started = Instant::now();
    let kernel = driver.load(module)?;
    let microseconds = started.elapsed().as_micros() as u64;
    let code = module.entry.code.as_ref();
    let load = Load {
        pair: module.pair.clone(),
        digest: code.map(|code| code.digest),
        bytes: code.map_or(0, |code| code.bytes),
        microseconds,
    };
    tracing::info!(
        kernel = %load.pair,
        sha256 = load.digest.map_or_else(|| "none".to_owned(), |digest| digest.to_string()),
        bytes = load.bytes,
        microseconds,
        "load {}", driver.loads()
    );
    Ok((kernel, load))
}
