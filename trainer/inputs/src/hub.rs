//! Models by their name at Hugging Face: snapshots in the cache that `hf download` and transformers fill.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// A snapshot's repository and commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// `organization/name`.
    pub repository: String,
    pub revision: String,
}

impl Snapshot {
    /// Reads them of a path into a snapshot; none of any other path.
    pub fn of(path: &Path) -> Option<Self> {
        let mut above = path.ancestors().filter_map(|part| part.file_name()?.to_str());
        let mut revision = above.next()?;
        let mut parent = above.next()?;
        while parent != "snapshots" {
            (revision, parent) = (parent, above.next()?);
        }
        let repository = above.next()?.strip_prefix("models--")?.replacen("--", "/", 1);
        Some(Self { repository, revision: revision.to_owned() })
    }
}

/// Returns the path of the model that an option names: a path that exists, or `organization/name` or
/// `organization/name@revision` of a snapshot in the cache. A name that the cache has not is returned as it is.
///
/// # Errors
/// The reason for which a repository of that name in the cache has no such snapshot, or not all of it.
pub fn model(path: PathBuf) -> Result<PathBuf, String> {
    match (cache(), path.to_str()) {
        (Some(cache), Some(text)) if !path.exists() => Ok(in_cache(&cache, text)?.unwrap_or(path)),
        _ => Ok(path),
    }
}

/// Returns the directory of the cache, by the variables of huggingface_hub.
fn cache() -> Option<PathBuf> {
    let of = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || {
        of("HF_HOME").or_else(|| Some(of("XDG_CACHE_HOME").or(Some(of("HOME")?.join(".cache")))?.join("huggingface")))
    };
    of("HF_HUB_CACHE").or_else(|| Some(home()?.join("hub")))
}

/// Returns the snapshot that a name means; none if it is no name, or of a repository that is not there.
fn in_cache(cache: &Path, text: &str) -> Result<Option<PathBuf>, String> {
    let (name, asked) = text.split_once('@').map_or((text, None), |(name, revision)| (name, Some(revision)));
    let Some((organization, repository)) = name.split_once('/').filter(|(_, rest)| !rest.contains('/')) else {
        return Ok(None);
    };
    let directory = cache.join(format!("models--{organization}--{repository}"));
    if !directory.is_dir() {
        return Ok(None);
    }
    let again = match asked {
        Some(revision) => format!("hf download {name} --revision {revision}"),
        None => format!("hf download {name}"),
    };
    let snapshots = directory.join("snapshots");
    let is_snapshot = |name: &str| is_name(name) && snapshots.join(name).is_dir();
    let reference = |name: &str| {
        let text = name.split('/').all(is_name).then(|| fs::read_to_string(directory.join("refs").join(name)));
        Some(text?.ok()?.trim().to_owned()).filter(|commit| is_snapshot(commit))
    };
    let none = || format!("{} has no such snapshot: {again}", directory.display());
    let found = match asked {
        Some(revision) if is_snapshot(revision) => revision.to_owned(),
        Some(revision) => reference(revision).ok_or_else(none)?,
        None => match (reference("main"), &names(&snapshots)[..]) {
            (Some(commit), _) => commit,
            (None, [only]) if is_snapshot(only) => only.clone(),
            (None, [_, _, ..]) if !directory.join("refs/main").exists() => {
                let all: Vec<String> = names(&snapshots).iter().map(|commit| format!("{name}@{commit}")).collect();
                return Err(format!("{} has no refs/main: give {}", directory.display(), all.join(" or ")));
            }
            _ => return Err(none()),
        },
    };
    let snapshot = snapshots.join(&found);
    // The files are links to the cache's blobs.
    match names(&snapshot).into_iter().map(|file| snapshot.join(file)).find(|file| !file.exists()) {
        Some(file) => Err(format!("{} is a link to nothing: {again}", file.display())),
        None => Ok(Some(snapshot)),
    }
}

/// Returns true for a name of one directory that stays in the one above it.
fn is_name(part: &str) -> bool {
    part.starts_with(|first: char| first.is_ascii_alphanumeric())
        && part.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char))
}

/// Returns the names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = all.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with a repository of two snapshots, as huggingface_hub lays it out.
    fn made() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let repository = dir.path().join("models--org--tiny");
        for (revision, name) in [("aaaa1111", "main"), ("bbbb2222", "pr/1")] {
            let snapshot = repository.join("snapshots").join(revision);
            fs::create_dir_all(&snapshot).unwrap();
            fs::create_dir_all(repository.join("blobs")).unwrap();
            fs::write(repository.join("blobs").join(revision), "{}").unwrap();
            std::os::unix::fs::symlink(format!("../../blobs/{revision}"), snapshot.join("config.json")).unwrap();
            let reference = repository.join("refs").join(name);
            fs::create_dir_all(reference.parent().unwrap()).unwrap();
            fs::write(reference, revision).unwrap();
        }
        dir
    }

    #[test]
    fn a_name_is_its_snapshot_by_branch_or_commit() {
        let cache = made();
        let found = |text: &str| in_cache(cache.path(), text).unwrap().map(|path| Snapshot::of(&path).unwrap());
        let snapshot =
            |revision: &str| Some(Snapshot { repository: "org/tiny".to_owned(), revision: revision.to_owned() });
        assert_eq!(found("org/tiny"), snapshot("aaaa1111"));
        assert_eq!(found("org/tiny@pr/1"), snapshot("bbbb2222"));
        assert_eq!(found("org/tiny@bbbb2222"), snapshot("bbbb2222"));
        for other in ["tiny", "org/other", "org/tiny/below", "./org/tiny"] {
            assert_eq!(found(other), None, "{other}");
        }
        assert_eq!(Snapshot::of(Path::new("models/org/tiny")), None);
    }

    #[test]
    fn a_snapshot_that_is_not_whole_is_refused_with_the_command_that_fetches_it() {
        let cache = made();
        let repository = cache.path().join("models--org--tiny");
        let refused = |text: &str| in_cache(cache.path(), text).unwrap_err();
        assert!(refused("org/tiny@cccc").ends_with("has no such snapshot: hf download org/tiny --revision cccc"));
        for revision in ["", ".", "..", "/etc", "../../..", "pr/../../blobs/aaaa1111", "../snapshots/aaaa1111"] {
            assert!(refused(&format!("org/tiny@{revision}")).contains("has no such snapshot"), "{revision}");
        }
        for broken in ["", "/etc", "..", "cccc"] {
            fs::write(repository.join("refs/main"), broken).unwrap();
            assert!(refused("org/tiny").ends_with("has no such snapshot: hf download org/tiny"), "{broken}");
        }
        fs::remove_file(repository.join("refs/main")).unwrap();
        assert!(refused("org/tiny").ends_with("has no refs/main: give org/tiny@aaaa1111 or org/tiny@bbbb2222"));
        fs::remove_dir_all(repository.join("snapshots/bbbb2222")).unwrap();
        assert!(in_cache(cache.path(), "org/tiny").unwrap().is_some_and(|path| path.ends_with("aaaa1111")));
        fs::remove_file(repository.join("blobs/aaaa1111")).unwrap();
        assert!(refused("org/tiny").ends_with("config.json is a link to nothing: hf download org/tiny"));
        fs::remove_dir_all(repository.join("snapshots")).unwrap();
        assert!(refused("org/tiny").ends_with("has no such snapshot: hf download org/tiny"));
    }
}
