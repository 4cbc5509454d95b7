//! Loads the kernels of a bundle, and places the operands of their samples.

use precast_core::check::{Case, POISON};
use precast_core::{KeyVariant, Operand};
use precast_fatbins::{Bundle, BundleError};

use crate::driver::{Bound, BoundLaunch, BoundWork, Driver, GraphId};
use crate::loading::{LoadError, code_for};
use crate::loads::{Load, Loads};

/// Bytes before and after each operand that no kernel may touch.
pub(super) const GUARD: u64 = 256;

/// Largest copy, bytes.
pub(super) const STAGE_BYTES: u64 = 16 << 20;

/// Places guarded operands of a case one after the other.
pub(super) struct Layout {
    pub starts: Vec<u64>,
    pub bytes: u64,
}

impl Layout {
    fn new(operands: &[Operand]) -> Self {
        let mut next = 0;
        let starts = operands.iter().map(|operand| {
            let start = next + GUARD;
            next = (start + operand.bytes()).next_multiple_of(GUARD);
            start
        });
        let starts = starts.collect();
        Self { starts, bytes: next + GUARD }
    }

    /// Returns memory with poisoned guards and the case's operands.
    pub fn image(&self, case: &Case) -> Vec<u8> {
        let mut image = vec![POISON; self.bytes as usize];
        for (start, content) in self.starts.iter().zip(&case.before) {
            image[*start as usize..][..content.len()].copy_from_slice(content);
        }
        image
    }
}

/// A launch ready to run: operands guarded, code loaded.
pub(super) struct Ready {
    pub pair: KeyVariant,
    pub sample: usize,
    pub params: Vec<u8>,
    pub layout: Layout,
    pub graph: GraphId,
}

impl Ready {
    pub fn case(&self, seed: u64) -> Case {
        Case::new(&self.pair.key, &self.params, seed + self.sample as u64)
    }
}

/// Launches ready to run, all at one address, and the loads for them.
pub(super) struct Prepared {
    pub base: u64,
    pub ready: Vec<Ready>,
    pub loads: Vec<Load>,
}

/// Loads every kernel of a bundle that runs on the driver's device and whose key starts with `prefix`, and prepares the
/// admitted samples that `choose` takes, all at one address and each `repeats` times in a row. Every load precedes the
/// first launch.
pub(super) fn prepare(
    driver: &mut dyn Driver,
    bundle: &Bundle<'_>,
    prefix: &str,
    repeats: u32,
    choose: impl Fn(&KeyVariant, Vec<(usize, Vec<u8>)>) -> Vec<(usize, Vec<u8>)>,
) -> Result<Prepared, LoadError> {
    bundle.verify()?;
    let arch = code_for(driver.device(), bundle)?;
    let launched = driver.device().arch().unwrap_or(arch);
    let modules = bundle.modules(arch).map_err(BundleError::from)?;
    let (mut cases, mut loads) = (Vec::new(), Loads::default());
    // A stand-in checks the variants of the row that it stands for.
    let is_launched = |KeyVariant { key, variant }: &KeyVariant| {
        key.text().starts_with(prefix) && (launched == arch || key.kernel().variants(launched).contains(variant))
    };
    for module in modules.iter().filter(|module| is_launched(&module.pair)) {
        let kernel = loads.load(module, |permit| driver.load(module, permit))?;
        let KeyVariant { key, variant } = &module.pair;
        let admitted = |(_, params): &(usize, Vec<u8>)| key.kernel().admits(*variant, params);
        let samples = key.kernel().samples().into_iter().enumerate().filter(admitted).collect();
        for (sample, params) in choose(&module.pair, samples) {
            let layout = Layout::new(&key.kernel().operands(&params));
            cases.push((module.pair.clone(), kernel, sample, layout, params));
        }
    }
    let Some(largest) = cases.iter().map(|(_, _, _, layout, _)| layout.bytes).max() else {
        return Ok(Prepared { base: 0, ready: Vec::new(), loads: loads.0 });
    };
    let base = driver.allocate(largest)?;
    driver.stage(STAGE_BYTES)?;
    let mut ready = Vec::new();
    for (pair, kernel, sample, layout, params) in cases {
        let mut bound = params.clone();
        for (operand, start) in pair.key.kernel().operands(&params).iter().zip(&layout.starts) {
            bound[operand.offset..operand.offset + 8].copy_from_slice(&(base + start).to_ne_bytes());
        }
        let launch = |index: u32| Bound {
            label: pair.to_string(),
            work: BoundWork::Launch(BoundLaunch {
                kernel,
                key: pair.key.clone(),
                geometry: pair.key.kernel().geometry(pair.variant, &params),
                tensor_maps: pair.key.kernel().tensor_maps(pair.variant, &params),
                params: bound.clone(),
            }),
            dependencies: index.checked_sub(1).into_iter().collect(),
        };
        let graph = driver.prepare(&(0..repeats).map(launch).collect::<Vec<_>>())?;
        ready.push(Ready { pair, sample, params, layout, graph });
    }
    Ok(Prepared { base, ready, loads: loads.0 })
}

/// Uploads a launch's memory image.
pub(super) fn send(driver: &mut dyn Driver, base: u64, image: &[u8]) -> Result<(), LoadError> {
    for (index, part) in image.chunks(STAGE_BYTES as usize).enumerate() {
        driver.write(base + index as u64 * STAGE_BYTES, part)?;
    }
    Ok(())
}
