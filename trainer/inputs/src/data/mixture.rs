//! Data of several sources, each with a share of the tokens.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{ffi::OsStr, fmt};

use super::Summary;

/// A file or directory of data, its share of the tokens beside that of others, and the name of its teacher.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSource {
    pub path: PathBuf,
    pub share: Option<f64>,
    pub teacher: Option<String>,
}

impl DataSource {
    /// Reads `PATH`, with `=SHARE`, `@NAME` of a teacher or both behind it: a file of that very name is a path.
    pub fn of(named: &Path) -> Self {
        let (named, teacher) = without_teacher(named);
        let (path, share) = without_share(named);
        Self { path: path.to_owned(), share, teacher: teacher.map(ToOwned::to_owned) }
    }

    /// Reads `PATH` or `PATH@NAME` of data that are held out, which have no shares.
    pub fn held_out(named: &Path) -> Self {
        let (path, teacher) = without_teacher(named);
        Self { teacher: teacher.map(ToOwned::to_owned), ..Self::whole(path) }
    }

    /// The path of `PATH` or `PATH@NAME`.
    pub fn held_out_path(named: &Path) -> &Path {
        without_teacher(named).0
    }

    /// Reads all of a path, by the only teacher.
    pub fn whole(path: &Path) -> Self {
        Self { path: path.to_owned(), share: None, teacher: None }
    }
}

/// The path of `PATH`, with `=SHARE`, `@NAME` or both behind it.
pub fn path_of(named: &Path) -> &Path {
    without_share(without_teacher(named).0).0
}

/// True if a teacher may have this name.
pub fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || "._-".contains(one))
}

/// Divides a path that does not exist at its last such byte.
fn divided(named: &Path, at: u8) -> Option<(&Path, &str)> {
    let bytes = named.as_os_str().as_bytes();
    let place = bytes.iter().rposition(|byte| *byte == at).filter(|place| *place > 0 && !named.exists())?;
    Some((Path::new(OsStr::from_bytes(&bytes[..place])), std::str::from_utf8(&bytes[place + 1..]).ok()?))
}

fn without_teacher(named: &Path) -> (&Path, Option<&str>) {
    let found = divided(named, b'@').filter(|(_, name)| is_name(name));
    found.map_or((named, None), |(path, name)| (path, Some(name)))
}

fn without_share(named: &Path) -> (&Path, Option<f64>) {
    let found = divided(named, b'=').and_then(|(path, share)| Some((path, share.parse().ok()?)));
    found.map_or((named, None), |(path, share)| (path, Some(share)))
}

/// Sources that are read one after the other, or one that has a share of the tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Portion {
    /// Name of the source; none of data without shares, which are one portion.
    pub name: Option<PathBuf>,
    /// Share of the tokens; those of all portions add up to 1.
    pub share: f64,
    /// The first of its files, and the one behind its last.
    pub files: (usize, usize),
}

impl fmt::Display for Portion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{}", name.display()),
            None => f.write_str("the data"),
        }
    }
}

/// Summaries of a pass over each portion of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct Summaries(pub Vec<(Portion, Summary)>);

impl Summaries {
    /// Counts of a pass over everything.
    pub fn total(&self) -> Summary {
        self.0.iter().fold(Summary::default(), |total, (_, summary)| total.with(*summary))
    }

    /// Returns the passes over each portion that so many places of micro-batches take: a portion's share is of tokens,
    /// and its rows fill places of their own.
    pub fn passes(&self, places: f64) -> impl Iterator<Item = (&Portion, f64)> {
        let all: f64 = self.0.iter().map(|one| Self::weight(one) * one.1.places as f64).sum();
        self.0.iter().map(move |one| (&one.0, places * Self::weight(one) / all))
    }

    /// Returns the share of the places of a run that hold a token which predicts.
    pub fn fill(&self) -> f64 {
        let sum = |of: fn(&Summary) -> f64| self.0.iter().map(|one| Self::weight(one) * of(&one.1)).sum::<f64>();
        sum(Summary::predicting) / sum(|summary| summary.places as f64)
    }

    /// Passes over a portion for each token of the run.
    fn weight((portion, summary): &(Portion, Summary)) -> f64 {
        portion.share / summary.tokens as f64
    }
}

/// The portion that comes next, of portions of which so many tokens have been drawn: that which is furthest behind its
/// share, and of several the first.
pub(super) fn next(drawn: &[u64], portions: &[Portion]) -> usize {
    let progress = |portion: usize| drawn[portion] as f64 / portions[portion].share;
    (1..portions.len()).fold(0, |least, portion| if progress(portion) < progress(least) { portion } else { least })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_may_have_a_share_and_a_file_of_that_name_wins() {
        let source = |named: &str| {
            let DataSource { path, share, .. } = DataSource::of(Path::new(named));
            (path.display().to_string(), share)
        };
        assert_eq!(source("a.txt"), ("a.txt".to_owned(), None));
        assert_eq!(source("a=b/c.txt=0.7"), ("a=b/c.txt".to_owned(), Some(0.7)));
        assert_eq!(source("a=b"), ("a=b".to_owned(), None));
        assert_eq!(source("=0.7"), ("=0.7".to_owned(), None));
        assert_eq!(source("a=-1"), ("a".to_owned(), Some(-1.0)));
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("a=0.7");
        std::fs::write(&there, "").unwrap();
        assert_eq!(DataSource::of(&there), DataSource::whole(&there));
        assert_eq!(path_of(&there.with_file_name("b=1")), there.with_file_name("b"));
    }

    #[test]
    fn a_source_may_name_its_teacher_behind_its_share() {
        let of = |named: &str| DataSource::of(Path::new(named));
        let source = |path: &str, share, teacher: Option<&str>| DataSource {
            path: path.into(),
            share,
            teacher: teacher.map(ToOwned::to_owned),
        };
        assert_eq!(of("a.jsonl=0.7@math"), source("a.jsonl", Some(0.7), Some("math")));
        assert_eq!(of("a.jsonl@math"), source("a.jsonl", None, Some("math")));
        assert_eq!(of("me@home/a.jsonl"), source("me@home/a.jsonl", None, None));
        assert_eq!(of("a.jsonl@"), source("a.jsonl@", None, None));
        assert_eq!(of("@math"), source("@math", None, None));
        assert_eq!(path_of(Path::new("a.jsonl=0.7@math")), Path::new("a.jsonl"));
        assert_eq!(DataSource::held_out(Path::new("a=0.7@b")), source("a=0.7", None, Some("b")));
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("a@b");
        std::fs::write(&there, "").unwrap();
        assert_eq!(DataSource::of(&there), DataSource::whole(&there));
    }

    #[test]
    fn the_part_that_is_furthest_behind_its_share_comes_next() {
        let portion = |share| Portion { name: None, share, files: (0, 0) };
        let portions = [portion(0.5), portion(0.25), portion(0.25)];
        let mut drawn = [0; 3];
        let order = std::iter::repeat_with(|| {
            let next = next(&drawn, &portions);
            drawn[next] += 10;
            next
        });
        assert_eq!(order.take(8).collect::<Vec<_>>(), [0, 1, 2, 0, 0, 1, 2, 0]);
    }
}
