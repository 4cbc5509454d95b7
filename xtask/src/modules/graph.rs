//! Reads the modules of a package, and the imports between those of one folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::imports::paths;

/// Path of a module from the root of its package; empty for `lib.rs` and `main.rs`.
pub type ModulePath = Vec<String>;

/// Arrows from each module of a folder to those that it uses.
pub type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Folders and files that do not ship, in any directory.
const NOT_SHIPPED: [&str; 4] = ["fixtures", "snapshots", "tests", "tests.rs"];

/// Sources below one root, without comments and tests.
pub struct Package {
    modules: BTreeMap<ModulePath, String>,
    /// Module that defines each macro: macros stand at the root of the crate.
    macros: BTreeMap<String, ModulePath>,
}

impl Package {
    /// Reads every source below a root.
    pub fn read(root: &Path) -> Result<Self> {
        let mut modules: BTreeMap<ModulePath, String> = BTreeMap::new();
        for path in sources(root)? {
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let inside = path.strip_prefix(root)?.with_extension("");
            let mut place: ModulePath = inside.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            if place.last().is_some_and(|name| name == "mod") || place == ["lib"] || place == ["main"] {
                place.pop();
            }
            modules.entry(place).or_default().push_str(&shipped(&text));
        }
        let macros = modules.iter().flat_map(|(place, code)| {
            let names = code.split("macro_rules! ").skip(1).filter_map(|rest| rest.split([' ', '{']).next());
            names.map(|name| (name.to_owned(), place.clone()))
        });
        Ok(Self { macros: macros.collect(), modules })
    }

    /// Returns every folder that holds modules, and the uses between these. An item defined in `mod.rs` belongs to the
    /// folder; one that it re-exports, to the module it comes from.
    pub fn folders(&self) -> BTreeMap<ModulePath, Arrows> {
        let mut folders: BTreeMap<ModulePath, Arrows> = BTreeMap::new();
        for place in self.modules.keys().filter(|place| !place.is_empty()) {
            for depth in 0..place.len() {
                folders.entry(place[..depth].to_vec()).or_default().entry(place[depth].clone()).or_default();
            }
        }
        for (place, code) in &self.modules {
            for path in paths(place, code) {
                let target = self.resolve(path);
                let common = place.iter().zip(&target).take_while(|(own, other)| own == other).count();
                // One of the two contains the other.
                if common == place.len() || common == target.len() {
                    continue;
                }
                let arrows = folders.entry(place[..common].to_vec()).or_default();
                arrows.entry(place[common].clone()).or_default().insert(target[common].clone());
            }
        }
        folders
    }

    /// Returns the module that defines a path's item, as far as exports by name tell.
    fn resolve(&self, path: Vec<String>) -> ModulePath {
        if let [name] = &path[..]
            && let Some(place) = self.macros.get(name)
        {
            return place.clone();
        }
        let depth = (0..=path.len()).rev().find(|depth| self.modules.contains_key(&path[..*depth])).unwrap_or(0);
        let place = &path[..depth];
        let Some(item) = path.get(depth) else { return path };
        match self.exported(place, item) {
            Some(mut from) => {
                from.push(item.clone());
                self.resolve(from)
            }
            None => place.to_vec(),
        }
    }

    /// Returns the child module from which a module exports an item.
    fn exported(&self, place: &[String], item: &str) -> Option<ModulePath> {
        let code = self.modules.get(place)?;
        let uses = code.split("pub use ").skip(1).chain(code.split("pub(crate) use ").skip(1));
        uses.filter_map(|rest| rest.split(';').next()).find_map(|statement| {
            let statement = statement.strip_prefix("self::").unwrap_or(statement);
            let (child, items) = statement.split_once("::")?;
            let mut from = place.to_vec();
            from.push(child.to_owned());
            let mut words = items.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            (self.modules.contains_key(&from) && words.any(|word| word == item)).then_some(from)
        })
    }
}

/// Returns every shipped Rust source below a directory, but for those of packages inside of it.
pub fn sources(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if NOT_SHIPPED.contains(&&*name) || path.join("Cargo.toml").exists() {
        } else if path.is_dir() {
            found.extend(sources(&path)?);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns a source's code before its tests, without comments. Tests may lie in a file of their own, included from
/// anywhere.
pub fn shipped(text: &str) -> String {
    let text = text.replace("\n#[cfg(test)]\nmod tests;", "");
    let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).map(|line| format!("{line}\n")).collect()
}

/// Returns sets of modules of one folder that use each other, directly or through others.
pub fn circles(arrows: &Arrows) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> = arrows.keys().map(|from| (from, reached(arrows, from))).collect();
    let circle = |from: &String| -> BTreeSet<String> {
        reach[from].iter().filter(|to| reach.get(to).is_some_and(|back| back.contains(from))).cloned().collect()
    };
    let circles: BTreeSet<BTreeSet<String>> = arrows.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    circles.into_iter().collect()
}

/// Returns every module that one uses, directly or through others.
fn reached(arrows: &Arrows, from: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut next: Vec<String> = vec![from.to_owned()];
    while let Some(module) = next.pop() {
        next.extend(arrows.get(&module).into_iter().flatten().filter(|used| found.insert((*used).clone())).cloned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, &str)]) -> BTreeMap<ModulePath, Arrows> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Package::read(dir.path()).unwrap().folders()
    }

    fn names(circles: Vec<BTreeSet<String>>) -> Vec<String> {
        circles.into_iter().map(|circle| circle.into_iter().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn one_import_that_is_turned_round_is_a_circle() {
        let down = [
            ("a/mod.rs", "mod x;"),
            ("a/x.rs", "use crate::b::B;"),
            ("b.rs", "pub struct B;"),
            ("c.rs", "use crate::a;"),
        ];
        let folders = package(&down);
        assert_eq!(names(circles(&folders[&ModulePath::new()])), [""; 0]);
        assert_eq!(folders[&ModulePath::new()]["a"], ["b".to_owned()].into());
        let round = package(&[&down[..], &[("b.rs", "use crate::c::C;")]].concat());
        assert_eq!(names(circles(&round[&ModulePath::new()])), ["a b c"]);
    }

    #[test]
    fn what_a_folder_exports_is_the_module_that_defines_it() {
        let files = [
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x;\nmod y;\npub use x::{X, Z};\npub struct Own;"),
            ("a/x.rs", "use super::y::Y;"),
            ("a/y.rs", "use super::{Own, X};\n// super::nothing::N\n#[cfg(test)]\nmod tests { use super::super::z; }"),
        ];
        let folders = package(&files);
        assert_eq!(names(circles(&folders[&vec!["a".to_owned()]])), ["x y"]);
        assert_eq!(folders[&ModulePath::new()]["a"], BTreeSet::new());
    }

    #[test]
    fn a_macro_belongs_to_the_module_that_defines_it() {
        let files = [
            ("key.rs", "use crate::fields::F;"),
            ("fields.rs", "macro_rules! key { () => {} }"),
            ("a.rs", "use crate::{key, z};"),
        ];
        let folders = package(&files);
        assert_eq!(folders[&ModulePath::new()]["a"], ["fields".to_owned()].into());
    }
}
