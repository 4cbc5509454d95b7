//! GPU architectures that a bundle can hold code for.

use std::fmt;
use std::str::FromStr;

/// An architecture row of a bundle.
///
/// [`Arch::Sim`] is the simulated GPU: it has keys and parameter sizes but no machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Ada: RTX 4090 class.
    Sm89,
    /// Hopper: H100, H200. The `a` suffix unlocks `wgmma` and `setmaxnreg` and pins the code to 9.0.
    Sm90a,
    /// The portable kernels, common to every architecture, built for Hopper (sm_90 without the suffix) to be measured
    /// on one. No trainer embeds it.
    Sm90Portable,
    /// GB10 / DGX Spark.
    Sm121,
    Sim,
}

impl Arch {
    /// Architectures a trainer is built for.
    pub const GPUS: [Arch; 3] = [Arch::Sm89, Arch::Sm90a, Arch::Sm121];

    const ALL: [Arch; 5] = [Arch::Sm89, Arch::Sm90a, Arch::Sm90Portable, Arch::Sm121, Arch::Sim];

    /// Returns the name in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Sm89 => "sm_89",
            Arch::Sm90a => "sm_90a",
            Arch::Sm90Portable => "sm_90_portable",
            Arch::Sm121 => "sm_121",
            Arch::Sim => "sim",
        }
    }

    /// Returns the compiler's name: differs only for portable kernels.
    pub fn target(self) -> &'static str {
        match self {
            Arch::Sm90Portable => "sm_90",
            arch => arch.name(),
        }
    }

    /// Returns the cargo feature that embeds this architecture in the trainer.
    pub fn feature(self) -> Option<&'static str> {
        match self {
            Arch::Sm89 => Some("sm_89"),
            Arch::Sm90a => Some("sm_90"),
            Arch::Sm121 => Some("sm_121"),
            Arch::Sm90Portable | Arch::Sim => None,
        }
    }

    /// Returns the value of `--arch`: the cargo feature, if there is one.
    pub fn argument(self) -> &'static str {
        self.feature().unwrap_or(self.name())
    }

    /// Finds the architecture with this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Finds the architecture whose code a device of this compute capability runs; `portable` skips those with a
    /// suffix.
    pub fn of_device(major: u32, minor: u32, portable: bool) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.runs_on(major, minor) && !(portable && arch.is_exact()))
    }

    /// Returns the compute capability as (major, minor).
    pub fn compute_capability(self) -> Option<(u32, u32)> {
        match self {
            Arch::Sm89 => Some((8, 9)),
            Arch::Sm90a | Arch::Sm90Portable => Some((9, 0)),
            Arch::Sm121 => Some((12, 1)),
            Arch::Sim => None,
        }
    }

    /// Returns the multiprocessors of the GPU that it is built for: an RTX 4090, an H100 or H200, a GB10. On a GPU with
    /// more or fewer, launches sized by it are correct but not as fast.
    pub(crate) fn multiprocessors(self) -> u32 {
        match self {
            Arch::Sm89 | Arch::Sim => 128,
            Arch::Sm90a | Arch::Sm90Portable => 132,
            Arch::Sm121 => 48,
        }
    }

    /// True if the code only runs on exactly this compute capability (the `a` suffix).
    pub fn is_exact(self) -> bool {
        self == Arch::Sm90a
    }

    /// True if code for this architecture runs on a device of this compute capability: same major and an equal or
    /// higher minor, or exactly equal for an `a` architecture (CUDA C++ Programming Guide, "Binary Compatibility").
    pub fn runs_on(self, major: u32, minor: u32) -> bool {
        match self.compute_capability() {
            None => false,
            Some(own) if self.is_exact() => own == (major, minor),
            Some((own_major, own_minor)) => own_major == major && own_minor <= minor,
        }
    }

    /// Returns the shared memory of a multiprocessor, bytes (the same table).
    pub(crate) fn shared_bytes(self) -> u32 {
        match self {
            Arch::Sm90a | Arch::Sm90Portable => 228 * 1024,
            Arch::Sm89 | Arch::Sm121 | Arch::Sim => 100 * 1024,
        }
    }

    /// Returns the shared memory that one CTA may use, bytes (CUDA C++ Programming Guide, "Technical Specifications per
    /// Compute Capability"). Portable kernels and the sim take the smallest.
    pub const fn shared_bytes_per_block(self) -> u32 {
        match self {
            Arch::Sm90a => 227 * 1024,
            Arch::Sm89 | Arch::Sm90Portable | Arch::Sm121 | Arch::Sim => 99 * 1024,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown architecture `{0}`: known are sm_89, sm_90 (= sm_90a), sm_90_portable, sm_121 and sim")]
pub struct UnknownArch(pub String);

impl FromStr for Arch {
    type Err = UnknownArch;

    /// Parses a value of `--arch`, or a name.
    fn from_str(text: &str) -> Result<Self, UnknownArch> {
        let argument = Self::ALL.into_iter().find(|arch| arch.argument() == text);
        argument.or_else(|| Self::of_name(text)).ok_or_else(|| UnknownArch(text.to_owned()))
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
        assert!("sm_75".parse::<Arch>().is_err());
    }

    #[test]
    fn binary_compatibility_follows_major_minor_and_suffix() {
        assert!(Arch::Sm89.runs_on(8, 9));
        assert!(!Arch::Sm89.runs_on(8, 6));
        assert!(!Arch::Sm89.runs_on(9, 0));
        assert!(Arch::Sm90a.runs_on(9, 0));
        assert!(Arch::Sm121.runs_on(12, 1));
        assert!(!Arch::Sm121.runs_on(12, 0));
        assert!(!Arch::Sim.runs_on(9, 0));
    }

    #[test]
    fn a_device_gets_its_own_kernels_or_the_portable_ones() {
        assert_eq!(Arch::of_device(9, 0, false), Some(Arch::Sm90a));
        assert_eq!(Arch::of_device(9, 0, true), Some(Arch::Sm90Portable));
        assert_eq!(Arch::of_device(8, 9, true), Some(Arch::Sm89));
        assert_eq!(Arch::of_device(7, 5, false), None);
    }
}
