//! Lock files: the expected digest of each kernel of some models or of a program.
//!
//! Text, one line per module in sorted order, committed as `<name>.lock`:
//!
//! ```text
//! # precast lock 1, written by `precast-aot lock`
//! sm_121 saxpy{x=f32}[threads=256,width=4] <cubin SHA-256> <source digest> <compiler>; <options>
//! ```
//!
//! The source digest covers sources, headers, options, macros and architecture. Together with compiler and options it
//! tells which of the three moved when a cubin did.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::Digest;
use crate::manifest::{Manifest, ModuleEntry};

/// First line of a lock file: format and version.
const HEADER: &str = "# precast lock 1, written by `precast-aot lock`";

/// Expected digests and build of one module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    /// SHA-256 of the cubin.
    pub cubin: Digest,
    /// Digest of sources, headers, options, macros and architecture.
    pub source: Digest,
    /// The compiler's name, version and release.
    pub compiler: String,
    /// Options, besides architecture and macros.
    pub options: String,
}

/// Modules by (architecture, `key[variant]`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lock(BTreeMap<(String, String), Locked>);

/// A text that is no lock file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The format or version is unknown.
    #[error("line 1 is `{found}`, expected `{HEADER}`")]
    Header {
        /// First line of the file.
        found: String,
    },
    /// A line is not architecture, key, two digests, compiler and options.
    #[error("line {line} is not `arch key[variant] cubin source compiler; options`: `{text}`")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// Lines are out of order or repeated.
    #[error("line {line} is not after the one before it: lock files are sorted and name a module once")]
    Order {
        /// Counted from 1.
        line: usize,
    },
}

/// Difference of a module from its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Locked, but not built.
    Missing(String),
    /// Built, but not locked.
    Added(String),
    /// Built differently than locked.
    Changed {
        /// Architecture, key and variant of the module.
        module: String,
        /// Those of source, options and compiler that moved; none if only the bytes did. The source is not listed if
        /// the options moved, because its digest covers them.
        moved: Vec<&'static str>,
        /// True if the machine code is equal.
        same_code: bool,
    },
}

impl Lock {
    /// Locks a bundle's modules with machine code.
    pub fn of(manifest: &Manifest) -> Self {
        Self(manifest.modules.iter().filter_map(|module| locked(manifest, module)).collect())
    }

    /// Keeps the modules that `keep` selects, by architecture and `key[variant]`.
    #[must_use]
    pub fn filtered(&self, keep: impl Fn(&str, &str) -> bool) -> Self {
        Self(self.0.iter().filter(|((arch, name), _)| keep(arch, name)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// Adds the modules of another lock.
    #[must_use]
    pub fn merged(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Returns the number of modules.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if it has no modules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns every difference of `found` from this lock, in order.
    pub fn compare(&self, found: &Self) -> Vec<Change> {
        let names: std::collections::BTreeSet<_> = self.0.keys().chain(found.0.keys()).collect();
        let change = |name: &(String, String)| {
            let module = format!("{} {}", name.0, name.1);
            match (self.0.get(name), found.0.get(name)) {
                (Some(_), None) => Some(Change::Missing(module)),
                (None, Some(_)) => Some(Change::Added(module)),
                (Some(locked), Some(found)) if locked != found => {
                    let parts = [
                        // The source digest covers the options: if they moved, it tells nothing more.
                        ("source", locked.source != found.source && locked.options == found.options),
                        ("options", locked.options != found.options),
                        ("compiler", locked.compiler != found.compiler),
                    ];
                    let moved = parts.into_iter().filter(|(_, moved)| *moved).map(|(part, _)| part).collect();
                    Some(Change::Changed { module, moved, same_code: locked.cubin == found.cubin })
                }
                _ => None,
            }
        };
        names.into_iter().filter_map(change).collect()
    }
}

/// Names a module within an architecture as `key[variant]`, in lock files and listings.
pub fn name(module: &ModuleEntry) -> String {
    format!("{}[{}]", module.key, module.variant)
}

fn locked(manifest: &Manifest, module: &ModuleEntry) -> Option<((String, String), Locked)> {
    let code = module.code.as_ref()?;
    let locked = Locked {
        cubin: code.digest,
        source: module.source,
        compiler: manifest.compiler.clone(),
        options: manifest.options.join(" "),
    };
    Some(((module.arch.clone(), name(module)), locked))
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        self.0.iter().try_for_each(|((arch, name), Locked { cubin, source, compiler, options })| {
            writeln!(f, "{arch} {name} {cubin} {source} {compiler}; {options}")
        })
    }
}

impl FromStr for Lock {
    type Err = LockError;

    fn from_str(text: &str) -> Result<Self, LockError> {
        // However many of them end a line: what is read is what is written.
        let mut lines = text.lines().map(|line| line.trim_end_matches('\r')).enumerate();
        let found = lines.next().map_or("", |(_, line)| line);
        if found != HEADER {
            return Err(LockError::Header { found: found.to_owned() });
        }
        let mut lock = BTreeMap::new();
        for (index, text) in lines {
            let line = index + 1;
            let (module, locked) = parse(text).ok_or_else(|| LockError::Line { line, text: text.to_owned() })?;
            if lock.last_key_value().is_some_and(|(last, _)| *last >= module) {
                return Err(LockError::Order { line });
            }
            lock.insert(module, locked);
        }
        Ok(Self(lock))
    }
}

fn parse(line: &str) -> Option<((String, String), Locked)> {
    let mut words = line.splitn(5, ' ');
    let (arch, name) = (words.next()?.to_owned(), words.next()?.to_owned());
    let (cubin, source) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (compiler, options) = words.next()?.split_once("; ")?;
    let locked = Locked { cubin, source, compiler: compiler.to_owned(), options: options.to_owned() };
    Some(((arch, name), locked))
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Missing(module) => write!(f, "MISSING {module}"),
            Change::Added(module) => write!(f, "ADDED   {module}"),
            Change::Changed { module, moved, same_code } => {
                let what = if moved.is_empty() { "the bytes alone".to_owned() } else { moved.join(", ") };
                let code = if *same_code { "; same machine code" } else { "" };
                write!(f, "CHANGED {module} ({what}{code})")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn locked(seed: u8) -> Locked {
        Locked {
            cubin: Digest([seed; 32]),
            source: Digest([seed ^ 1; 32]),
            compiler: "NVRTC 13.0 (V13.0.88)".to_owned(),
            options: "--std=c++17 -x".to_owned(),
        }
    }

    fn lock(modules: impl IntoIterator<Item = (String, Locked)>) -> Lock {
        Lock(modules.into_iter().map(|(name, locked)| (("sm_89".to_owned(), name), locked)).collect())
    }

    #[test]
    fn ends_of_lines_are_no_part_of_options() {
        let lock = lock([("a".to_owned(), locked(0))]);
        assert_eq!(lock.to_string().replace('\n', "\r\r\n").parse::<Lock>().unwrap(), lock);
    }

    proptest! {
        #[test]
        fn text_reads_back(names in proptest::collection::btree_map("[a-z]{1,6}\\{h=[0-9]{1,4}\\}", any::<u8>(),
            0..20)) {
            let lock = lock(names.into_iter().map(|(name, seed)| (name, locked(seed))));
            prop_assert_eq!(lock.to_string().parse::<Lock>().unwrap(), lock);
        }
    }

    #[test]
    fn a_comparison_says_what_moved() {
        let before = lock(["a", "b", "c", "d", "e"].map(|name| (name.to_owned(), locked(0))));
        let mut after = before.clone();
        let mut edit = |name: &str, edit: fn(&mut Locked)| {
            edit(after.0.get_mut(&("sm_89".to_owned(), name.to_owned())).unwrap());
        };
        edit("b", |locked| locked.cubin = Digest([9; 32]));
        edit("c", |locked| locked.source = Digest([9; 32]));
        edit("d", |locked| {
            locked.cubin = Digest([9; 32]);
            locked.options.push_str(" -y");
            locked.source = Digest([9; 32]);
            locked.compiler.push('!');
        });
        let name = |name: &str| ("sm_89".to_owned(), name.to_owned());
        let a = after.0.remove(&name("a")).unwrap();
        after.0.insert(name("f"), a);
        let report: Vec<String> = before.compare(&after).iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(report.join("\n"));
        assert!(before.compare(&before).is_empty());
    }

    #[test]
    fn what_is_no_lock_file_is_refused_with_its_line() {
        let read = |text: &str| text.parse::<Lock>().unwrap_err().to_string();
        let line = lock([("a".to_owned(), locked(0))]).to_string().lines().last().unwrap().to_owned();
        let errors = [
            read(""),
            read("# precast lock 2"),
            read(&format!("{HEADER}\nsm_89 a 00 11 NVRTC; x")),
            read(&format!("{HEADER}\n{line}\n{line}")),
        ];
        insta::assert_snapshot!(errors.join("\n"));
    }
}
