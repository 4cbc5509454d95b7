//! The teachers of a run: models, caches of them, or the student itself.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use itertools::Itertools;
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::usage::UsageError;
use crate::inputs::data::{DataSource, is_name};
use crate::inputs::hub;

/// Name of the student as its own teacher.
pub const SELF: &str = "self";
/// Name of an adapter's base as its teacher.
pub const BASE: &str = "base";

/// A path, and the name of the teacher that is there: `PATH`, or `NAME=PATH` where that is no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeacherSource {
    pub name: Option<String>,
    pub path: PathBuf,
}

impl TeacherSource {
    /// Reads a directory.
    pub fn of(given: PathBuf) -> Self {
        let named = given.to_str().filter(|_| !given.exists()).and_then(|text| text.split_once('='));
        match named.filter(|(name, path)| is_name(name) && !path.is_empty()) {
            Some((name, path)) => Self { name: Some(name.to_owned()), path: path.into() },
            None => Self { name: None, path: given },
        }
    }

    /// Reads a model, as [`hub::model`] does.
    ///
    /// # Errors
    /// Those of [`hub::model`].
    pub fn model(given: PathBuf) -> Result<Self, String> {
        let Self { name, path } = Self::of(given);
        Ok(Self { name, path: hub::model(path)? })
    }
}

impl<P: Into<PathBuf>> From<P> for TeacherSource {
    fn from(path: P) -> Self {
        Self { name: None, path: path.into() }
    }
}

/// A teacher of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeacherChoice {
    /// None of a run with one teacher, unless it has a name.
    pub name: Option<String>,
    /// The model: of a cache, what that holds of it.
    pub path: PathBuf,
    pub by: TaughtBy,
}

/// Source of a teacher's predictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaughtBy {
    /// Weights of its own.
    Weights,
    /// The weights that the student has in each step, with its adapter.
    Student,
    /// Those of its adapter's base.
    Base,
    /// A cache, which may have to be of a model.
    Cache { directory: PathBuf, of: Option<PathBuf> },
}

impl TeacherChoice {
    /// Returns the cache that it is read from.
    pub fn cache(&self) -> Option<&Path> {
        if let TaughtBy::Cache { directory, .. } = &self.by { Some(directory) } else { None }
    }

    /// Returns the files and directories that are read of it.
    pub fn inputs(&self) -> Vec<&Path> {
        let of_cache = match &self.by {
            TaughtBy::Cache { directory, of } => Some((directory, of)),
            _ => None,
        };
        let others = of_cache.into_iter().flat_map(|(directory, of)| [directory].into_iter().chain(of));
        [&self.path].into_iter().chain(others).map(PathBuf::as_path).collect()
    }

    /// Names it among those of a run: `teacher`, or `teacher math`.
    pub fn role(&self) -> String {
        self.name.as_ref().map_or_else(|| "teacher".to_owned(), |name| format!("teacher {name}"))
    }

    /// Names a value of it in records: `teacher config`, or `teacher math: config`.
    pub fn record_name(&self, what: &str) -> String {
        let divider = if self.name.is_some() { ": " } else { " " };
        format!("{}{divider}{what}", self.role())
    }

    /// Returns what an option gives of it.
    fn given(&self, path: &Path) -> String {
        let path = path.to_string_lossy();
        self.name.as_ref().map_or_else(|| path.clone().into_owned(), |name| format!("{name}={path}"))
    }
}

/// The teachers of a run by their numbers; none where nobody teaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Teachers(pub Vec<TeacherChoice>);

impl Deref for Teachers {
    type Target = [TeacherChoice];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Teachers {
    /// Returns their names; none where the only one has none.
    pub fn names(&self) -> Vec<String> {
        self.iter().filter_map(|teacher| teacher.name.clone()).collect()
    }

    /// True if the weights of any are the student's own in each step.
    pub fn has_student(&self) -> bool {
        self.iter().any(|teacher| teacher.by == TaughtBy::Student)
    }

    /// Returns the numbers of those that are read from caches.
    pub fn cached(&self) -> Vec<u32> {
        (0..).zip(self.iter()).filter(|(_, teacher)| teacher.cache().is_some()).map(|(number, _)| number).collect()
    }

    /// Returns the paths of those among sources that a teacher may teach, by its number.
    pub fn sources_of(&self, number: u32, named: &[PathBuf]) -> Vec<PathBuf> {
        let name = self.get(number as usize).and_then(|teacher| teacher.name.as_ref());
        let may_be = |source: &DataSource| source.teacher.as_ref().is_none_or(|of| Some(of) == name);
        let own = named.iter().filter(|named| may_be(&DataSource::of(named)));
        match name {
            Some(_) => own.map(|named| DataSource::of(named).path).collect(),
            None => named.to_vec(),
        }
    }

    /// Returns values of `--teacher` that give them: a cache's model where it is asked for.
    pub fn models(&self) -> Vec<String> {
        let given = |teacher: &TeacherChoice| match &teacher.by {
            TaughtBy::Student => Some(teacher.given(Path::new(SELF))),
            TaughtBy::Cache { of, .. } => of.as_ref().map(|of| teacher.given(of)),
            TaughtBy::Weights | TaughtBy::Base => Some(teacher.given(&teacher.path)),
        };
        self.iter().filter_map(given).collect()
    }

    /// Returns values of `--teacher-cache` that give them.
    pub fn caches(&self) -> Vec<String> {
        self.iter().filter_map(|teacher| Some(teacher.given(teacher.cache()?))).collect()
    }

    /// Refuses names that are not all different, and several teachers of which one has none.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_names(&self) -> Result<(), UsageError> {
        if let Some(unnamed) = self.iter().find(|teacher| teacher.name.is_none()).filter(|_| self.len() > 1) {
            let path = unnamed.path.display();
            return Err(UsageError(format!(
                "--teacher {path} is one of several and has no name: give each one, as --teacher math={path}, and \
                each source of data its teacher's, as --data PATH@math"
            )));
        }
        match self.names().iter().duplicates().next() {
            None => Ok(()),
            Some(name) => Err(UsageError(format!("two teachers are called {name}: give each a name of its own"))),
        }
    }

    /// Refuses sources of data whose teachers there are not, and teachers that no source can have.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_sources(&self, trained: &[DataSource], held_out: &[DataSource]) -> Result<(), UsageError> {
        let names = self.names();
        for (flag, source) in
            trained.iter().map(|one| ("--data", one)).chain(held_out.iter().map(|one| ("--eval-data", one)))
        {
            let path = source.path.display();
            match source.teacher.as_ref().filter(|name| !names.contains(name)) {
                None => {}
                Some(name) if names.is_empty() => {
                    return Err(UsageError(format!(
                        "{flag} {path}@{name}: there is no such file, and as {path} of a teacher {name} it requires \
                        --teacher {name}=PATH"
                    )));
                }
                Some(name) => {
                    let all = names.join(", ");
                    return Err(UsageError(format!("{flag} {path}@{name}: no --teacher is called {name}: {all}")));
                }
            }
        }
        let is_used = |name: &&String| trained.iter().any(|one| one.teacher.as_ref().is_none_or(|of| of == *name));
        match names.iter().find(|name| !is_used(name)).filter(|_| !trained.is_empty()) {
            None => Ok(()),
            Some(name) => Err(UsageError(format!(
                "--teacher {name}=...: no --data is taught by {name}: give it some, as --data PATH@{name}, or leave \
                the teacher out"
            ))),
        }
    }
}

impl Serialize for Teachers {
    /// Writes them as options have them: a text of a teacher without a name, else a list of texts.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let of_model = |teacher: &TeacherChoice| match teacher.by {
            TaughtBy::Student => teacher.given(Path::new(SELF)),
            _ => teacher.given(&teacher.path),
        };
        match &self[..] {
            [] => {}
            [only] if only.name.is_none() => {
                map.serialize_entry("teacher", &of_model(only))?;
                only.cache().map_or(Ok(()), |cache| map.serialize_entry("teacher_cache", &only.given(cache)))?;
            }
            several => {
                map.serialize_entry("teacher", &several.iter().map(of_model).collect::<Vec<_>>())?;
                let caches = self.caches();
                if !caches.is_empty() {
                    map.serialize_entry("teacher_cache", &caches)?;
                }
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_before_a_path_that_is_not_there() {
        let of = |given: &str| TeacherSource::of(given.into());
        let named =
            |name: Option<&str>, path: &str| TeacherSource { name: name.map(ToOwned::to_owned), path: path.into() };
        assert_eq!(of("math=models/big"), named(Some("math"), "models/big"));
        assert_eq!(of("models/a=b"), named(None, "models/a=b"));
        assert_eq!(of("math="), named(None, "math="));
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join("a=b");
        std::fs::write(&there, "").unwrap();
        assert_eq!(TeacherSource::of(there.clone()).path, there);
    }
}
