//! Reads what the checkout says of itself: `Cargo.toml`, README, licenses.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::files::read;
use super::readme;

/// Holds what a wheel says of the package.
pub struct About {
    pub summary: String,
    pub keywords: Vec<String>,
    pub readme: String,
    /// Texts below `licenses/`, by name.
    pub licenses: Vec<(String, Vec<u8>)>,
}

/// The workspace's manifest.
#[derive(Deserialize)]
struct Manifest {
    workspace: Workspace,
    package: Described,
}

#[derive(Deserialize)]
struct Workspace {
    package: Versioned,
}

#[derive(Deserialize)]
struct Versioned {
    version: String,
}

#[derive(Deserialize)]
struct Described {
    description: String,
    keywords: Vec<String>,
}

/// Holds what the manifest says of the trainer.
pub struct Package {
    pub version: String,
    summary: String,
    keywords: Vec<String>,
}

/// Reads the manifest.
pub fn package(checkout: &Path) -> Result<Package> {
    let text = String::from_utf8(read(checkout, "Cargo.toml")?)?;
    let Manifest { workspace, package } = toml::from_str(&text).context("Cargo.toml")?;
    let Described { description: summary, keywords } = package;
    Ok(Package { version: workspace.package.version, summary, keywords })
}

/// Reads texts for a wheel, which has the licenses of its crates, too, and the notices of what else it is linked of.
pub fn about(checkout: &Path, crates: String, notices: &[(String, Vec<u8>)]) -> Result<About> {
    let Package { summary, keywords, .. } = package(checkout)?;
    let mut licenses = vec![("LICENSES-OF-CRATES.txt".to_owned(), crates.into_bytes())];
    licenses.extend_from_slice(notices);
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        licenses.push((name.to_owned(), read(checkout, name)?));
    }
    licenses.sort();
    let readme = readme::alone(&String::from_utf8(read(checkout, "README.md")?)?);
    Ok(About { summary, keywords, readme, licenses })
}
