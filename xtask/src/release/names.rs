//! Names of a release's files.

use std::collections::BTreeSet;

use super::hosts::{HOSTS, Host};

/// A version, and whether somebody answers for its files with a key: names say so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub version: String,
    pub is_signed: bool,
}

/// Ends the names of what nobody signed.
pub const UNSIGNED: &str = "-unsigned";

/// Name of a program of a machine, in all that a release says of it.
pub fn program_name(machine: &str, program: &str) -> String {
    format!("{program} for {machine}-linux")
}

/// Name of a machine's wheel of a version, which is [`Names::wheel_version`].
pub fn wheel_name(version: &str, host: Host) -> String {
    format!("precast-{version}-py3-none-{}.whl", host.platform())
}

impl Names {
    fn mark(&self) -> &'static str {
        if self.is_signed { "" } else { UNSIGNED }
    }

    /// Programs of a machine; the archive's folder, too.
    pub fn programs(&self, host: Host) -> String {
        format!("precast-{}-{}-linux{}", self.version, host.machine, self.mark())
    }

    /// Symbols of a machine's programs, for debuggers and profilers.
    pub fn symbols(&self, host: Host) -> String {
        format!("precast-{}-{}-linux-debug{}", self.version, host.machine, self.mark())
    }

    /// Version of the wheels: a local one, which PyPI does not accept, unless somebody signed.
    pub fn wheel_version(&self) -> String {
        if self.is_signed { self.version.clone() } else { format!("{}+unsigned", self.version) }
    }

    pub fn kernels(&self) -> String {
        format!("precast-kernels-{}{}.tar", self.version, self.mark())
    }

    pub fn materials(&self) -> String {
        format!("precast-{}.cdx.json", self.version)
    }

    pub fn provenance(&self) -> String {
        format!("precast-{}.provenance.json", self.version)
    }

    pub fn sums(&self) -> String {
        format!("SHA256SUMS{}", self.mark())
    }

    /// Lists every file but the sums and their signature.
    pub fn all(&self) -> BTreeSet<String> {
        let version = self.wheel_version();
        let of_hosts = HOSTS.into_iter().flat_map(|host| {
            let archives = [self.programs(host), self.symbols(host)].map(|folder| format!("{folder}.tar.xz"));
            archives.into_iter().chain([wheel_name(&version, host)])
        });
        of_hosts.chain([self.kernels(), self.materials(), self.provenance()]).collect()
    }

    /// Its tag, if it is a release that somebody signed.
    pub fn tag(&self) -> Option<String> {
        self.is_signed.then(|| format!("v{}", self.version))
    }
}
