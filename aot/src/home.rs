//! Directories of rebuildable files.

use std::path::{Path, PathBuf};

/// Directory of toolchain, caches and default outputs: `$PRECAST_HOME`, else `precast` in the target folder
/// (`$CARGO_TARGET_DIR`, `target`) of the checkout around the current directory, else `precast` in the user's cache
/// directory.
pub fn directory() -> PathBuf {
    if let Some(home) = std::env::var_os("PRECAST_HOME") {
        return home.into();
    }
    if let Some(root) = checkout() {
        let target = std::env::var_os("CARGO_TARGET_DIR").filter(|target| !target.is_empty());
        return target.map_or_else(|| root.join("target"), PathBuf::from).join("precast");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("precast")
}

/// Like [`directory`], for a build script: it derives the target folder from its own `OUT_DIR` there, whatever named
/// the folder: `TARGET_DIR/[triple/]profile/build/package-hash/out`.
pub fn of_build(out: &Path, triple: &str) -> PathBuf {
    let build = out.ancestors().find(|directory| directory.ends_with("build"));
    let profiles = build.and_then(|build| build.parent()?.parent()).unwrap_or(out);
    let target = if profiles.ends_with(triple) { profiles.parent().unwrap_or(profiles) } else { profiles };
    target.join("precast")
}

/// Finds the checkout around the current directory.
fn checkout() -> Option<PathBuf> {
    let current = std::env::current_dir().ok()?;
    current.ancestors().find(|dir| dir.join("fatbins/Cargo.toml").is_file()).map(PathBuf::from)
}

/// Names a directory of the checkout around the current directory; outside of any, the current directory.
pub fn of_checkout(directory: &str) -> PathBuf {
    checkout().map_or_else(PathBuf::new, |root| root.join(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_keeps_its_compiler_in_its_own_target_folder() {
        for (out, expected) in [
            ("/c/target/release/build/precast-1f/out", "/c/target/precast"),
            ("/c/target/debug/build/precast-1f/out", "/c/target/precast"),
            ("/elsewhere/build/bench/build/precast-1f/out", "/elsewhere/build/precast"),
            ("/c/target/x86_64-unknown-linux-gnu/release/build/precast-1f/out", "/c/target/precast"),
            // Cargo's newer layout has one more folder.
            ("/c/target/debug/build/precast/1f/out", "/c/target/precast"),
        ] {
            assert_eq!(of_build(Path::new(out), "x86_64-unknown-linux-gnu"), Path::new(expected), "{out}");
        }
    }
}
