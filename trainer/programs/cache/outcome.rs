//! What a filling takes, and its result.

use std::fmt;

use precast_fatbins::Digest;
use precast_plan::{MemoryTable, human_bytes};
use precast_system::count;
use serde::Serialize;

use crate::inputs::teacher_cache::CacheManifest;

/// Result of a command.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum CacheOutcome {
    /// Returned by a dry run.
    Forecast(Box<Forecast>),
    Filled(Box<Filled>),
}

/// Disk and device memory that a filling takes.
#[derive(Clone, Debug, Serialize)]
pub struct Forecast {
    /// Sequences, each once.
    pub sequences: u64,
    /// Tokens of them that count.
    pub rows: u64,
    /// Bytes of the cache on disk.
    pub disk_bytes: u64,
    /// None where nothing is computed.
    #[serde(flatten)]
    pub device: Option<DeviceForecast>,
}

/// Devices that a filling takes.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceForecast {
    /// GPUs that divide the sequences.
    pub gpus: u32,
    /// Device memory of each.
    pub memory: MemoryTable,
}

/// Result of a filling.
#[derive(Clone, Debug, Serialize)]
pub struct Filled {
    #[serde(flatten)]
    pub manifest: CacheManifest,
    /// Digest of the cache.
    pub sha256: Digest,
    /// Sequences that were there before.
    pub continued: u64,
    /// Tokens that all GPUs have computed a second, those that do not count too; none where nothing was left.
    pub tokens_per_s: Option<f64>,
}

impl Filled {
    /// Bytes on disk of a token that counts.
    fn bytes_a_token(&self) -> f64 {
        self.manifest.hidden_bytes as f64 / self.manifest.rows as f64
    }
}

impl fmt::Display for CacheOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forecast(forecast) => forecast.fmt(f),
            Self::Filled(filled) => filled.fmt(f),
        }
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, rows, disk_bytes, device } = self;
        let (sequences, tokens) = (count(*sequences as usize, "sequence"), count(*rows as usize, "token"));
        write!(f, "{sequences}, {tokens} that count, {} ({disk_bytes} bytes) on disk", human_bytes(*disk_bytes))?;
        match device {
            None => Ok(()),
            Some(DeviceForecast { gpus: gpus @ 2.., memory }) => write!(f, "\neach of {gpus} GPUs:\n{memory}"),
            Some(DeviceForecast { memory, .. }) => write!(f, "\n{memory}"),
        }
    }
}

impl fmt::Display for Filled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheManifest { sequences, rows, hidden_bytes, .. } = &self.manifest;
        let (sequences, tokens) = (count(*sequences as usize, "sequence"), count(*rows as usize, "token"));
        write!(f, "{sequences}, {tokens} that count, {} ({hidden_bytes} bytes", human_bytes(*hidden_bytes))?;
        write!(f, ", {:.0} a token), digest {}", self.bytes_a_token(), self.sha256)?;
        match self.tokens_per_s {
            Some(rate) => write!(f, "; {rate:.0} tokens/s"),
            None => Ok(()),
        }
    }
}
