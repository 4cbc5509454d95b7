//! The linker and C compiler of releases: zig, of PyPI, pinned by digest.
//!
//! One file has all that a program for either machine is linked with besides Rust's own libraries: LLD, clang, and the
//! C library's headers, start files and symbols of every version, so no root of an old distribution is needed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use precast_aot::toolchain::pins::{Pin, Wheel};
use precast_core::shell::quoted;

use super::hosts::{HOSTS, Host};

/// The version whose `zig cc` was found to link all that is needed, by LLD.
pub const ZIG: Pin = Pin {
    package: "ziglang",
    version: "0.15.2",
    wheels: &[
        Wheel {
            machine: "x86_64",
            sha256: "806316453d1ede7174ed3fefb8e5348154629089c3bb5fe812dfd0e172fac130",
            bytes: 93_508_126,
        },
        Wheel {
            machine: "aarch64",
            sha256: "edc0aa60ec964a4cf462d40f68d7de242ddf37fd9a80f2afaee6397059463230",
            bytes: 90_542_084,
        },
    ],
    files: &["ziglang/"],
    purpose: "links releases",
};

/// Machines with SHA-256 of the program in that machine's wheel, and of its folder `lib` as releases digest folders.
pub const FILES: [(&str, [&str; 2]); 2] = [
    ("x86_64", ["2858dc89dbbfdd08cceda1b841e7fd0a793a1a67b49f150bc3d0d1de44ed7f51", LIB]),
    ("aarch64", ["931b8e9a9327dac87bc439067f07604219510fa541133ff6e542c6243968cc86", LIB]),
];

const LIB: &str = "923f1132808d0a35b0300ce089249ddbfdc3cead6e9e01918ea372bd0c97e7e6";

/// Programs named like a C compiler and an archiver, which call zig.
pub struct Zig {
    tools: PathBuf,
    cache: PathBuf,
}

impl Zig {
    /// Writes the programs into a directory.
    pub fn new(zig: &Path, directory: &Path) -> Result<Self> {
        let tools = directory.join("tools");
        fs::create_dir_all(&tools)?;
        for host in HOSTS {
            put(&tools.join(name(host)), &compiler(zig, host))?;
        }
        let archiver = format!("#!/bin/sh\nexec {} ar \"$@\"\n", quoted(&zig.to_string_lossy()));
        put(&tools.join("ar"), &archiver)?;
        Ok(Self { tools, cache: directory.join("zig") })
    }

    /// Makes them linker, C compiler and archiver of a cargo command, for both machines: build scripts and procedural
    /// macros are linked for the one at hand.
    pub fn set(&self, cargo: &mut Command) {
        for host in HOSTS {
            let (cc, target) = (self.tools.join(name(host)), host.triple.replace('-', "_"));
            cargo.env(format!("CARGO_TARGET_{}_LINKER", host.variable()), &cc);
            cargo.env(format!("CC_{target}"), &cc).env(format!("AR_{target}"), self.tools.join("ar"));
            // Debug information would name directories.
            cargo.env(format!("CFLAGS_{target}"), "-g0");
        }
        cargo.env("ZIG_GLOBAL_CACHE_DIR", &self.cache).env("ZIG_LOCAL_CACHE_DIR", &self.cache);
    }
}

fn name(host: Host) -> String {
    format!("{}-cc", host.machine)
}

/// A shell script that drops what rustc and the crate `cc` say and zig does not know: another target's name, which is
/// fixed here; the choice of LLD, which it is; and the remedy for an erratum of Cortex-A53, which is older than every
/// host of a GPU here.
fn compiler(zig: &Path, host: Host) -> String {
    let (zig, target) = (quoted(&zig.to_string_lossy()), host.zig());
    format!(
        r#"#!/bin/sh
for argument do
    shift
    case $argument in
    --target=* | -fuse-ld=* | -B*/gcc-ld | -Wl,--fix-cortex-a53-843419) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec {zig} cc -target {target} "$@"
"#
    )
}

fn put(path: &Path, script: &str) -> Result<()> {
    // As it is, it is not written again while a linker may run it.
    if fs::read_to_string(path).is_ok_and(|there| there == script) {
        return Ok(());
    }
    precast_system::files::write_whole(path, script.as_bytes()).with_context(|| path.display().to_string())?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zig_is_told_the_c_library_and_nothing_that_it_does_not_know() {
        let dir = tempfile::tempdir().unwrap();
        let zig = dir.path().join("it's zig");
        put(&zig, "#!/bin/sh\nprintf '<%s>' \"$@\"\n").unwrap();
        Zig::new(&zig, dir.path()).unwrap();
        let told = |name: &str, arguments: &[&str]| {
            let mut program = Command::new(dir.path().join("tools").join(name));
            crate::run::output(program.args(arguments)).unwrap()
        };
        let rustc = ["-fuse-ld=lld", "-B/a b/gcc-ld", "-Wl,--fix-cortex-a53-843419", "--target=x", "-o", "a b", "-lc"];
        assert_eq!(told("x86_64-cc", &rustc), "<cc><-target><x86_64-linux-gnu.2.28><-o><a b><-lc>");
        assert_eq!(told("aarch64-cc", &["-c"]), "<cc><-target><aarch64-linux-gnu.2.28><-c>");
        assert_eq!(told("ar", &["s", "b c"]), "<ar><s><b c>");
    }
}
