//! What dependencies may be, as `deny.toml` says: by cargo-deny where it is installed. It takes ten minutes to compile, so
//! that elsewhere licences and sources are checked here. Advisories need a database that lies on GitHub: CI checks those.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spdx::{Expression, LicenseItem, ParseMode};

use crate::run::{cargo, output, step};

/// As cargo-deny names the fields.
struct Policy {
    licences: Vec<String>,
    registries: Vec<String>,
}

/// Checks every dependency of what runs on the supported platforms.
pub fn check() -> Result<()> {
    let installed = cargo(&["deny", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if installed.is_ok_and(|status| status.success()) {
        return step("dependencies", &mut cargo(&["deny", "check", "licenses", "bans", "sources"]));
    }
    println!("\n== dependencies: licences and sources; cargo-deny is not installed, and advisories are not checked");
    let policy = Policy::read("deny.toml".as_ref())?;
    let checked = policy.check(&metadata()?)?;
    println!("== {checked} packages are as deny.toml has it");
    Ok(())
}

/// The packages that the lock file names for Linux, of which no other is downloaded.
fn metadata() -> Result<Value> {
    let mut command: Command = cargo(&["metadata", "--locked", "--format-version", "1"]);
    for machine in ["x86_64", "aarch64"] {
        command.args(["--filter-platform", &format!("{machine}-unknown-linux-gnu")]);
    }
    Ok(serde_json::from_str(&output(&mut command)?)?)
}

impl Policy {
    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let table: toml::Table = text.parse().with_context(|| path.display().to_string())?;
        let list = |section: &str, field: &str| -> Result<Vec<String>> {
            let values = table.get(section).and_then(|section| section.get(field)).and_then(toml::Value::as_array);
            let values = values.with_context(|| format!("{} has no {section}.{field}", path.display()))?;
            Ok(values.iter().filter_map(|value| Some(value.as_str()?.to_owned())).collect())
        };
        Ok(Self { licences: list("licenses", "allow")?, registries: list("sources", "allow-registry")? })
    }

    /// How many packages were checked.
    fn check(&self, metadata: &Value) -> Result<usize> {
        let packages = metadata["packages"].as_array().context("cargo metadata lists packages")?;
        let foreign: Vec<&Value> = packages.iter().filter(|package| !package["source"].is_null()).collect();
        ensure!(!foreign.is_empty(), "cargo metadata lists no dependency");
        let faults: Vec<String> = foreign.iter().filter_map(|package| self.fault(package)).collect();
        ensure!(faults.is_empty(), "deny.toml does not allow\n{}", faults.join("\n"));
        Ok(foreign.len())
    }

    fn fault(&self, package: &Value) -> Option<String> {
        let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
        let source = package["source"].as_str()?;
        if !self.registries.iter().any(|url| source.strip_prefix("registry+") == Some(url)) {
            return Some(format!("{name}: it comes from {source}"));
        }
        let Some(licence) = package["license"].as_str() else { return Some(format!("{name}: it names no licence")) };
        let Ok(expression) = Expression::parse_mode(licence, ParseMode::LAX) else {
            return Some(format!("{name}: `{licence}` is no SPDX expression"));
        };
        let allowed = expression.evaluate(|required| match &required.license {
            LicenseItem::Spdx { id, .. } => {
                required.addition.is_none() && self.licences.iter().any(|one| one == id.name)
            }
            LicenseItem::Other { .. } => false,
        });
        (!allowed).then(|| format!("{name}: {licence}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    fn fault(licence: Value, source: &str) -> Option<String> {
        let policy = Policy::read("../deny.toml".as_ref()).unwrap();
        policy.fault(&json!({ "name": "one", "version": "1.0.0", "license": licence, "source": source }))
    }

    #[test]
    fn a_licence_must_be_allowed_or_have_an_alternative_that_is() {
        for good in ["MIT", "MIT/Apache-2.0", "LGPL-2.1-or-later OR MIT", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert_eq!(fault(good.into(), CRATES_IO), None);
        }
        for bad in ["GPL-3.0-only", "MIT AND AGPL-3.0-only", "Apache-2.0 WITH LLVM-exception"] {
            assert_eq!(fault(bad.into(), CRATES_IO), Some(format!("one 1.0.0: {bad}")));
        }
        assert_eq!(fault(Value::Null, CRATES_IO).unwrap(), "one 1.0.0: it names no licence");
        assert_eq!(fault("mine".into(), CRATES_IO).unwrap(), "one 1.0.0: `mine` is no SPDX expression");
    }

    #[test]
    fn a_package_must_come_from_crates_io() {
        let git = "git+https://example.com/one#0123";
        assert_eq!(fault("MIT".into(), git).unwrap(), format!("one 1.0.0: it comes from {git}"));
    }

    #[test]
    fn what_lists_no_dependency_was_not_checked() {
        let policy = Policy::read("../deny.toml".as_ref()).unwrap();
        assert!(policy.check(&json!({ "packages": [{ "name": "own", "source": null }] })).is_err());
    }
}
