//! Checks what modules need of a multiprocessor against its limits.

use precast_core::Kernels;
use precast_fatbins::ModuleEntry;

/// 32-bit registers of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
const REGISTERS: u32 = 65_536;
/// Warps are allocated registers in units of this many.
const REGISTER_UNIT: u32 = 256;
/// Shared memory of each CTA that the system reserves.
const SHARED_RESERVED_BYTES: u32 = 1024;
const WARP: u32 = 32;
/// Begins the entry of a source.
const ENTRY: &str = "KERNEL(";

/// Resources that a CTA of a module needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Threads of the largest CTA.
    pub threads: u32,
    /// Threads of the largest CTA that a sample launches.
    pub launched: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory plus the largest dynamic request, bytes.
    pub shared_bytes: u32,
    /// Stack frame per thread, bytes: spills live there.
    pub stack_bytes: u32,
    /// Theoretical occupancy: resident threads as a share of the multiprocessor's, 0 to 1.
    pub occupancy: f64,
}

impl Usage {
    /// Returns the needs of a module of these kernels, from its cubin and its launches; none without machine code.
    pub fn of(module: &ModuleEntry, kernels: &Kernels) -> Option<Self> {
        let code = module.code.as_ref()?;
        let (pair, arch) = module.typed(kernels).ok()?;
        let kernel = pair.key.kernel();
        let samples = kernel.samples();
        let admitted = || samples.iter().filter(|params| kernel.admits(pair.variant, params));
        let launches = || admitted().map(|params| kernel.geometry(pair.variant, params));
        let shared_bytes = code.static_shared_bytes + launches().map(|launch| launch.shared_bytes).max().unwrap_or(0);
        let limits = arch.multiprocessor();
        let warps = code.max_threads.div_ceil(WARP);
        let by_registers = REGISTERS / (warps * (code.registers * WARP).next_multiple_of(REGISTER_UNIT)).max(1);
        let by_shared = limits.shared_bytes / (shared_bytes + SHARED_RESERVED_BYTES);
        let by_threads = limits.threads / (warps * WARP).max(1);
        let blocks = by_registers.min(by_shared).min(by_threads).min(limits.blocks);
        Some(Self {
            threads: code.max_threads,
            launched: launches().map(|launch| launch.block.iter().product()).max().unwrap_or(0),
            registers: code.registers,
            shared_bytes,
            stack_bytes: code.stack_bytes,
            occupancy: f64::from(blocks * warps * WARP) / f64::from(limits.threads),
        })
    }
}

/// Every kernel that is over budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} kernels are over budget:\n  {}", .0.len(), .0.join("\n  "))]
pub struct OverBudget(pub Vec<String>);

/// Checks the budget of every module.
///
/// # Errors
/// [`OverBudget`] with every module that exceeds its budget.
pub fn check_all(modules: &[ModuleEntry], kernels: &Kernels) -> Result<(), OverBudget> {
    let over: Vec<String> = modules.iter().filter_map(|module| check(module, kernels).err()).collect();
    if over.is_empty() { Ok(()) } else { Err(OverBudget(over)) }
}

/// Checks that a module has no stack frame and that at least one CTA fits a multiprocessor, within the shared memory
/// that a CTA may have.
///
/// # Errors
/// The module's name and the limit that it exceeds.
fn check(module: &ModuleEntry, kernels: &Kernels) -> Result<(), String> {
    let Some(usage) = Usage::of(module, kernels) else { return Ok(()) };
    let arch = module.arch().map_err(|error| format!("{module}: {error}"))?;
    let Usage { threads, launched, registers, shared_bytes: shared, stack_bytes: stack, occupancy } = usage;
    let most = arch.shared_bytes_per_block();
    let fault = if stack > 0 {
        format!("stack frame of {stack} bytes")
    } else if shared > most {
        format!("{shared} bytes of shared memory, a block may have {most}")
    } else if launched > threads {
        format!("a block of {launched} threads, its machine code takes at most {threads}")
    } else if occupancy == 0.0 {
        format!("{registers} registers x {threads} threads do not fit a multiprocessor")
    } else {
        return Ok(());
    };
    Err(format!("{module}: {fault}{}", place(module, kernels)))
}

/// Names the file and the line of a module's entry.
fn place(module: &ModuleEntry, kernels: &Kernels) -> String {
    let Ok((pair, _)) = module.typed(kernels) else { return String::new() };
    let source = pair.source();
    let begins = |line: &str| match pair.key.plain() {
        Some(plain) => line.split_once(plain.base()).is_some_and(|(_, rest)| rest.trim_start().starts_with('(')),
        None => line.starts_with(ENTRY),
    };
    let line = source.text.lines().position(begins).map_or(1, |index| index + 1);
    format!(" ({}:{line})", source.file())
}

#[cfg(test)]
mod tests {
    use precast_fatbins::{Code, Digest};
    use precast_kernels::KERNELS;

    use super::*;

    fn module(arch: &str, registers: u32, static_shared_bytes: u32, stack_bytes: u32) -> ModuleEntry {
        let code = Code {
            entry: String::new(),
            digest: Digest::of(b""),
            bytes: 0,
            registers,
            static_shared_bytes,
            stack_bytes,
            max_threads: 256,
        };
        let (key, variant) = ("cast{from=f32,to=bf16}".to_owned(), "threads=256".to_owned());
        ModuleEntry { key, variant, arch: arch.to_owned(), params_bytes: 24, source: Digest::of(b""), code: Some(code) }
    }

    #[test]
    fn occupancy_follows_the_scarcest_resource() {
        let occupancy =
            |arch, registers, shared| Usage::of(&module(arch, registers, shared, 0), &KERNELS).unwrap().occupancy;
        assert_eq!(occupancy("sm_89", 32, 0), 1.0);
        // 256 threads of 128 registers: two CTAs fill the register file.
        assert_eq!(occupancy("sm_89", 128, 0), 512.0 / 1536.0);
        assert_eq!(occupancy("sm_90a", 128, 0), 512.0 / 2048.0);
        // Shared memory holds one CTA.
        assert_eq!(occupancy("sm_121", 32, 60 * 1024), 256.0 / 1536.0);
        assert_eq!(occupancy("sm_121", 32, 100 * 1024), 0.0);
    }

    #[test]
    fn all_that_are_over_budget_are_named() {
        let within = module("sm_121", 255, 99 * 1024, 0);
        assert_eq!(check_all(std::slice::from_ref(&within), &KERNELS), Ok(()));
        let over = [module("sm_121", 64, 0, 16), module("sm_89", 64, 99 * 1024 + 16, 0), module("sm_90a", 300, 0, 0)];
        let [spills, shared, registers] = over;
        let mut launched = module("sm_90a", 64, 0, 0);
        launched.code.as_mut().unwrap().max_threads = 128;
        insta::assert_snapshot!(check_all(&[spills, within, shared, registers, launched], &KERNELS).unwrap_err());
    }
}
