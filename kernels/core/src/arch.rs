//! GPU architectures that a bundle can hold code for: one row each.

use std::fmt;
use std::str::FromStr;

/// An architecture row of a bundle.
///
/// [`Arch::Sim`] is the simulated GPU: it has keys and parameter sizes but no machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Ampere: A100, A30.
    Sm80,
    /// Ampere: RTX 3090, A6000, A10, A40.
    Sm86,
    /// Ada: RTX 4090, L4, L40S.
    Sm89,
    /// Hopper: H100, H200, GH200. The `a` suffix unlocks `wgmma` and `setmaxnreg` and pins the code to 9.0.
    Sm90a,
    /// The portable kernels of all other rows, built for Hopper (sm_90 without the suffix) to be measured on one. No
    /// program embeds it.
    Sm90Portable,
    /// Blackwell: B200, B300. Portable kernels, by `mma.sync`.
    Sm100,
    /// Blackwell: RTX 5090, RTX PRO 6000.
    Sm120,
    /// GB10 / DGX Spark.
    Sm121,
    /// The simulated GPU: host references, no machine code.
    Sim,
}

/// Limits of a multiprocessor. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Shared memory that one CTA may use, bytes.
    pub shared_bytes_per_block: u32,
    /// Shared memory, bytes.
    pub shared_bytes: u32,
    /// Most threads resident at once.
    pub threads: u32,
    /// Most CTAs resident at once.
    pub blocks: u32,
}

/// Names and figures of an architecture.
struct Row {
    name: &'static str,
    /// Compute capability as (major, minor).
    capability: Option<(u32, u32)>,
    /// Cargo feature that embeds it in a program.
    feature: Option<&'static str>,
    /// Multiprocessors of the GPU that launches are sized for.
    multiprocessors: u32,
    multiprocessor: Multiprocessor,
}

/// Compute capabilities of Tegra chips: Orin, and Thor under both of its names. NVIDIA promises no binary compatibility
/// between desktop and Tegra code.
pub const TEGRA: [(u32, u32); 3] = [(8, 7), (10, 1), (11, 0)];

impl Arch {
    /// Architectures that programs are built for.
    pub const GPUS: [Arch; 7] =
        [Arch::Sm80, Arch::Sm86, Arch::Sm89, Arch::Sm90a, Arch::Sm100, Arch::Sm120, Arch::Sm121];

    pub(crate) const ALL: [Arch; 9] = [
        Arch::Sm80,
        Arch::Sm86,
        Arch::Sm89,
        Arch::Sm90a,
        Arch::Sm90Portable,
        Arch::Sm100,
        Arch::Sm120,
        Arch::Sm121,
        Arch::Sim,
    ];

    const fn row(self) -> Row {
        // Shared memory a CTA and a multiprocessor, KiB; threads and CTAs a multiprocessor.
        let (name, capability, feature, multiprocessors, limits) = match self {
            Arch::Sm80 => ("sm_80", Some((8, 0)), Some("sm_80"), 108, (163, 164, 2048, 32)),
            Arch::Sm86 => ("sm_86", Some((8, 6)), Some("sm_86"), 82, (99, 100, 1536, 16)),
            Arch::Sm89 => ("sm_89", Some((8, 9)), Some("sm_89"), 128, (99, 100, 1536, 24)),
            Arch::Sm90a => ("sm_90a", Some((9, 0)), Some("sm_90"), 132, (227, 228, 2048, 32)),
            Arch::Sm90Portable => ("sm_90_portable", Some((9, 0)), None, 132, (227, 228, 2048, 32)),
            Arch::Sm100 => ("sm_100", Some((10, 0)), Some("sm_100"), 148, (227, 228, 2048, 32)),
            Arch::Sm120 => ("sm_120", Some((12, 0)), Some("sm_120"), 170, (99, 100, 1536, 24)),
            Arch::Sm121 => ("sm_121", Some((12, 1)), Some("sm_121"), 48, (99, 100, 1536, 24)),
            Arch::Sim => ("sim", None, None, 128, (99, 100, 1536, 24)),
        };
        let (per_block, shared, threads, blocks) = limits;
        let multiprocessor =
            Multiprocessor { shared_bytes_per_block: per_block * 1024, shared_bytes: shared * 1024, threads, blocks };
        Row { name, capability, feature, multiprocessors, multiprocessor }
    }

    /// Returns the name in files and messages.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the compiler's name: differs only for portable kernels.
    pub fn target(self) -> &'static str {
        match self {
            Arch::Sm90Portable => "sm_90",
            arch => arch.name(),
        }
    }

    /// Returns the cargo feature that embeds this architecture in a program.
    pub fn feature(self) -> Option<&'static str> {
        self.row().feature
    }

    /// Returns its name on command lines: the cargo feature, if there is one.
    pub fn argument(self) -> &'static str {
        self.feature().unwrap_or(self.name())
    }

    /// Finds the architecture with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Selects from these the architecture whose code a device of this compute capability runs: of those it takes, that
    /// with the highest minor.
    pub fn of_device(capability: (u32, u32), held: impl IntoIterator<Item = Self>) -> Option<Self> {
        let taken = held.into_iter().filter(|arch| arch.runs_on(capability));
        taken.max_by_key(|arch| (arch.compute_capability(), arch.is_exact()))
    }

    /// Returns the compute capability as (major, minor); none for the simulated GPU.
    pub fn compute_capability(self) -> Option<(u32, u32)> {
        self.row().capability
    }

    /// Returns the driver's name of the GPU that launches are sized for; none for the simulated GPU.
    pub fn chip(self) -> Option<&'static str> {
        Some(match self {
            Arch::Sm80 => "NVIDIA A100-SXM4-80GB",
            Arch::Sm86 => "NVIDIA GeForce RTX 3090",
            Arch::Sm89 => "NVIDIA GeForce RTX 4090",
            Arch::Sm90a | Arch::Sm90Portable => "NVIDIA H200",
            Arch::Sm100 => "NVIDIA B200",
            Arch::Sm120 => "NVIDIA GeForce RTX 5090",
            Arch::Sm121 => "NVIDIA GB10",
            Arch::Sim => return None,
        })
    }

    /// Returns the multiprocessors of the GPU that launches are sized for. On a GPU with more or fewer they are
    /// correct but not as fast.
    pub fn multiprocessors(self) -> u32 {
        self.row().multiprocessors
    }

    /// True if the code only runs on exactly this compute capability (the `a` suffix).
    pub fn is_exact(self) -> bool {
        self == Arch::Sm90a
    }

    /// True if code for this architecture runs on a device of this compute capability: same major and an equal or
    /// higher minor, or exactly equal for an `a` architecture (CUDA C++ Programming Guide, "Binary Compatibility"); on
    /// no Tegra chip.
    pub fn runs_on(self, capability: (u32, u32)) -> bool {
        match self.compute_capability() {
            None => false,
            Some(own) if self.is_exact() => own == capability,
            Some((major, minor)) => major == capability.0 && minor <= capability.1 && !TEGRA.contains(&capability),
        }
    }

    /// Returns the limits of a multiprocessor; the simulated GPU has those of sm_89.
    pub const fn multiprocessor(self) -> Multiprocessor {
        self.row().multiprocessor
    }

    /// Returns the shared memory that a CTA of its kernels may use, bytes: portable ones stay within the least that any
    /// architecture gives, so that they run on every device that takes their code.
    pub const fn shared_bytes_per_block(self) -> u32 {
        match self {
            Arch::Sm90a => self.multiprocessor().shared_bytes_per_block,
            _ => Arch::Sm89.multiprocessor().shared_bytes_per_block,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No architecture has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{name}`: known are {}", known())]
pub struct UnknownArch {
    /// Text that was given.
    pub name: String,
}

/// Lists the names on command lines.
fn known() -> String {
    Arch::ALL.map(Arch::argument).join(", ")
}

impl FromStr for Arch {
    type Err = UnknownArch;

    /// Parses a name, or one on command lines.
    fn from_str(text: &str) -> Result<Self, UnknownArch> {
        let argument = Self::ALL.into_iter().find(|arch| arch.argument() == text);
        argument.or_else(|| Self::of_name(text)).ok_or_else(|| UnknownArch { name: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for arch in Arch::ALL {
            assert_eq!(Arch::of_name(arch.name()), Some(arch));
            assert_eq!(arch.argument().parse(), Ok(arch));
        }
        assert_eq!("sm_90".parse(), Ok(Arch::Sm90a));
        assert_eq!("sm_90_portable".parse(), Ok(Arch::Sm90Portable));
        assert_eq!(Arch::Sm90Portable.target(), "sm_90");
        let known = "sm_80, sm_86, sm_89, sm_90, sm_90_portable, sm_100, sm_120, sm_121, sim";
        let unknown = "sm_75".parse::<Arch>().unwrap_err().to_string();
        assert_eq!(unknown, format!("unknown architecture `sm_75`: known are {known}"));
    }

    #[test]
    fn a_device_gets_the_row_with_the_highest_minor_that_it_takes() {
        let held = [&[Arch::Sm80][..], &[Arch::Sm89, Arch::Sm121], &Arch::GPUS];
        for (capability, rows) in [
            ((7, 5), [None; 3]),
            ((8, 0), [Some(Arch::Sm80), None, Some(Arch::Sm80)]),
            ((8, 6), [Some(Arch::Sm80), None, Some(Arch::Sm86)]),
            ((8, 7), [None; 3]),
            ((8, 9), [Some(Arch::Sm80), Some(Arch::Sm89), Some(Arch::Sm89)]),
            ((9, 0), [None, None, Some(Arch::Sm90a)]),
            ((10, 0), [None, None, Some(Arch::Sm100)]),
            ((10, 3), [None, None, Some(Arch::Sm100)]),
            ((11, 0), [None; 3]),
            ((12, 0), [None, None, Some(Arch::Sm120)]),
            ((12, 1), [None, Some(Arch::Sm121), Some(Arch::Sm121)]),
        ] {
            let taken = held.map(|held| Arch::of_device(capability, held.iter().copied()));
            assert_eq!(taken, rows, "{capability:?}");
        }
        assert_eq!(Arch::of_device((12, 1), [Arch::Sm120]), Some(Arch::Sm120));
        // Its own kernels before portable ones.
        assert_eq!(Arch::of_device((9, 0), [Arch::Sm90a, Arch::Sm90Portable]), Some(Arch::Sm90a));
        assert!(Arch::ALL.iter().all(|arch| !Arch::Sim.runs_on(arch.compute_capability().unwrap_or_default())));
    }
}
