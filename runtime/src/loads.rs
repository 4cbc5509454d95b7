//! Records loaded modules, in order, with the time of each load.

use std::time::Instant;

use precast_core::KeyVariant;
use precast_fatbins::{Digest, Module};

use crate::driver::DriverError;
use crate::permit::Permit;

/// A loaded module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// Key and variant of its kernel.
    pub pair: KeyVariant,
    /// Digest of its cubin; none for the simulated GPU.
    pub digest: Option<Digest>,
    /// Size of its cubin.
    pub bytes: u64,
    /// Duration of the load, by the host's clock.
    pub microseconds: u64,
}

/// Loaded modules, in order.
#[derive(Default)]
pub(crate) struct Loads(pub Vec<Load>);

impl Loads {
    /// Loads a module by `load`, records it and emits one `tracing` event.
    pub fn load<T>(
        &mut self,
        module: &Module<'_>,
        load: impl FnOnce(&Permit) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        let started = Instant::now();
        let loaded = load(&Permit::new())?;
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
            "load {}", self.0.len() + 1
        );
        self.0.push(load);
        Ok(loaded)
    }
}
