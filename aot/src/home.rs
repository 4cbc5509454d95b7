//! Where things that can be made again are kept.

use std::path::PathBuf;

/// Where toolchain, caches and default outputs go: `$PRECAST_HOME`, else `target/precast` of the checkout
/// around the current directory, else `precast` in the user's cache directory.
pub fn directory() -> PathBuf {
    if let Some(home) = std::env::var_os("PRECAST_HOME") {
        return home.into();
    }
    if let Some(root) = checkout() {
        return root.join("target/precast");
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.unwrap_or_else(std::env::temp_dir).join("precast")
}

/// The checkout around the current directory.
fn checkout() -> Option<PathBuf> {
    let current = std::env::current_dir().ok()?;
    current.ancestors().find(|dir| dir.join("fatbins/Cargo.toml").is_file()).map(PathBuf::from)
}

/// Where lock files lie: `fatbins/` of the checkout around the current directory, else here.
pub fn locks() -> PathBuf {
    checkout().map_or_else(PathBuf::new, |root| root.join("fatbins"))
}
