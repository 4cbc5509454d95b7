//! The commit that a release is of.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::run::output;

/// A commit, and what was changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its name, in hexadecimal; `-dirty` behind it where files differ from it.
    pub id: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// Files that differ, as git lists them: `?? new.rs`.
    pub changes: Vec<String>,
}

impl Commit {
    /// Asks git about a checkout.
    pub fn of(checkout: &Path) -> Result<Self> {
        let git = |arguments: &[&str]| output(Command::new("git").args(arguments).current_dir(checkout));
        let id = git(&["rev-parse", "HEAD"]).context("a release is of a commit, and git finds none")?;
        let changes = git(&["status", "--porcelain", "--untracked-files=all"])?;
        let changes: Vec<String> = changes.lines().map(str::to_owned).collect();
        let tags = git(&["tag", "--points-at", "HEAD"])?.lines().map(str::to_owned).collect();
        let id = if changes.is_empty() { id.trim().to_owned() } else { format!("{}-dirty", id.trim()) };
        Ok(Self { id, tags, changes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_that_differs_from_its_commit_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=b"]);
            git.args(["-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]);
            git.args(arguments).current_dir(dir.path());
            output(&mut git).unwrap()
        };
        assert!(Commit::of(dir.path()).is_err());
        git(&["init", "--quiet"]);
        std::fs::write(dir.path().join("a"), "a").unwrap();
        git(&["add", "a"]);
        git(&["commit", "--quiet", "--message", "a"]);
        git(&["tag", "v1.0.0"]);
        let clean = Commit::of(dir.path()).unwrap();
        assert_eq!(clean.id, git(&["rev-parse", "HEAD"]).trim());
        assert_eq!((clean.tags, clean.changes), (vec!["v1.0.0".to_owned()], Vec::new()));
        // Also where one's own git lists none, or folders alone.
        git(&["config", "status.showUntrackedFiles", "no"]);
        std::fs::create_dir(dir.path().join("new")).unwrap();
        std::fs::write(dir.path().join("new/b"), "b").unwrap();
        let changed = Commit::of(dir.path()).unwrap();
        assert_eq!((changed.id, changed.changes), (format!("{}-dirty", clean.id), vec!["?? new/b".to_owned()]));
    }
}
