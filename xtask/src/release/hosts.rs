//! The machines that a release has programs for.

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name in file names and tags.
    pub machine: &'static str,
    /// Name of rustc's target.
    pub triple: &'static str,
}

pub const HOSTS: [Host; 2] = [
    Host { machine: "x86_64", triple: "x86_64-unknown-linux-gnu" },
    Host { machine: "aarch64", triple: "aarch64-unknown-linux-gnu" },
];

/// The newest C library that the programs may need: that of RHEL 8, Debian 10 and Ubuntu 20.04.
pub const GLIBC: [u32; 2] = [2, 28];

/// Programs of a release, and their packages.
pub const PROGRAMS: [(&str, &str); 2] = [("precast", "precast"), ("precast-aot", "precast-models")];

impl Host {
    /// The machine at hand, if there are programs for it.
    pub fn own() -> Option<Self> {
        HOSTS.into_iter().find(|host| host.machine == std::env::consts::ARCH)
    }

    /// Platform of its wheel: `manylinux_2_28_x86_64`.
    pub fn platform(self) -> String {
        let [major, minor] = GLIBC;
        format!("manylinux_{major}_{minor}_{}", self.machine)
    }

    /// Target as zig names it, with the C library: `x86_64-linux-gnu.2.28`.
    pub fn zig(self) -> String {
        let [major, minor] = GLIBC;
        format!("{}-linux-gnu.{major}.{minor}", self.machine)
    }

    /// Name of the target in cargo's variables.
    pub fn variable(self) -> String {
        self.triple.to_uppercase().replace('-', "_")
    }
}
