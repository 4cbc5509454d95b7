//! The kernels of a program, as a value that it hands to compiler, runtime, self-test and checker.

use std::fmt;
use std::ops::Deref;
use std::sync::LazyLock;

use crate::arch::Arch;
use crate::erased::Registered;
use crate::key::Key;
use crate::plain::PlainKernel;
use crate::plain_reference::ReferenceError;
use crate::tuned::{self, Table, TableError};
use crate::variant::Variant;

/// A registered operation.
#[derive(Clone, Copy)]
pub struct Op {
    /// `family.operation`.
    pub name: &'static str,
    /// Parses the key's fields.
    parse: fn(&[(&str, &str)]) -> Option<Key>,
    /// See [`Reference::examples`](crate::Reference::examples).
    pub examples: fn() -> Vec<Key>,
}

impl Op {
    /// Returns the registry's row of a kernel.
    pub const fn of<K: Registered>() -> Self {
        Self {
            name: K::OP,
            parse: |pairs| K::from_pairs(pairs).map(Key::new),
            examples: || K::examples().into_iter().map(Key::new).collect(),
        }
    }
}

/// Returns the command that builds a bundle again, for what it was built for and these architectures.
pub type Rebuild = fn(built_for: &[String], archs: &[Arch]) -> String;

/// Every kernel of a program: parses key texts, lists kernels, selects variants. Some may be taken as they are: such a
/// list is compiled, verified and loaded like any.
pub struct Kernels {
    /// Name of the program: its bundles carry it.
    pub program: &'static str,
    /// Every operation, alphabetical.
    pub ops: &'static [Op],
    /// Kernels that are taken as they are. One that `ops` declares too is that operation.
    pub plain: &'static [&'static PlainKernel],
    tuned: LazyLock<Table>,
    /// Command in messages about bundles that cannot be used.
    pub rebuild: Rebuild,
}

/// Kernels of a program that all have a host reference: what a simulated GPU can compute, and a check can compare.
#[derive(Debug)]
pub struct Registry(Kernels);

impl Deref for Registry {
    type Target = Kernels;

    fn deref(&self) -> &Kernels {
        &self.0
    }
}

impl AsRef<Kernels> for Registry {
    fn as_ref(&self) -> &Kernels {
        self
    }
}

impl AsRef<Kernels> for Kernels {
    fn as_ref(&self) -> &Kernels {
        self
    }
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Registry of {} operations", self.ops.len() + self.plain.len())
    }
}

/// Says what a build script embeds.
fn by_cargo(_: &[String], archs: &[Arch]) -> String {
    let gpus = archs.iter().filter(|arch| **arch != Arch::Sim).map(|arch| arch.argument());
    let gpus = gpus.collect::<Vec<_>>().join(", ");
    let named = if gpus.is_empty() { gpus } else { format!(" for {gpus}, which build.rs names in .archs([..])") };
    format!("cargo build{named}; `examples` of a kernel returns the keys that are embedded")
}

impl Registry {
    /// Lists the operations of a program whose build script embeds their examples: no launch was measured.
    ///
    /// # Panics
    /// If two operations have one name; of a `static`, when it is compiled.
    pub const fn new(program: &'static str, ops: &'static [Op]) -> Self {
        Self::with(program, ops, Table::default, by_cargo)
    }

    /// Lists the operations of a program, with the launches that were measured ([`tuned`]) and the command that builds
    /// its bundles.
    ///
    /// # Panics
    /// Those of [`Self::new`].
    pub const fn with(program: &'static str, ops: &'static [Op], tuned: fn() -> Table, rebuild: Rebuild) -> Self {
        Self(Kernels::with(program, ops, &[], tuned, rebuild))
    }
}

impl Kernels {
    /// Lists the operations of a program, and kernels that it takes as they are: what a build script embeds. A plain
    /// kernel that has a reference stands in both lists.
    ///
    /// # Panics
    /// If two of one list have one name; of a `static`, when it is compiled.
    pub const fn new(program: &'static str, ops: &'static [Op], plain: &'static [&'static PlainKernel]) -> Self {
        Self::with(program, ops, plain, Table::default, by_cargo)
    }

    const fn with(
        program: &'static str,
        ops: &'static [Op],
        plain: &'static [&'static PlainKernel],
        tuned: fn() -> Table,
        rebuild: Rebuild,
    ) -> Self {
        each_once(ops, plain);
        Self { program, ops, plain, tuned: LazyLock::new(tuned), rebuild }
    }

    /// Returns the examples of every kernel, and those that are taken as they are.
    pub fn examples(&self) -> Vec<Key> {
        let plain = self.plain.iter().filter(|kernel| self.op(kernel.name).is_none());
        let plain = plain.map(|kernel| Key::of_plain(kernel));
        self.ops.iter().flat_map(|op| (op.examples)()).chain(plain).collect()
    }

    fn op(&self, name: &str) -> Option<&'static Op> {
        self.ops.iter().find(|op| op.name == name)
    }

    /// Returns the kernels that are taken as they are, those that an operation declares among them.
    pub fn plain_kernels(&self) -> Vec<&'static PlainKernel> {
        self.examples().iter().filter_map(Key::plain).collect()
    }

    /// Compares what headers say of plain kernels with the kernels' files.
    ///
    /// # Errors
    /// The first [`ReferenceError`].
    pub fn are_as_their_files(&self) -> Result<(), ReferenceError> {
        let examples = self.examples();
        examples.iter().try_for_each(Key::is_as_its_file)?;
        let is_same = |plain: &PlainKernel, other: &PlainKernel| plain.unit.source.path == other.unit.source.path;
        for plain in self.plain {
            let mut declared = examples.iter().filter(|key| key.op() == plain.name);
            if declared.any(|key| key.plain().is_none_or(|own| !is_same(plain, own))) {
                return Err(ReferenceError::Other { name: plain.name, file: plain.unit.source.path });
            }
        }
        Ok(())
    }

    /// Reads a table of measured launches whose every row names an architecture, a kernel and a variant of these.
    ///
    /// # Errors
    /// [`TableError`] with the line.
    pub fn table(&self, text: &str) -> Result<Table, TableError> {
        let table = text.parse()?;
        for (line, text) in tuned::rows(text) {
            let words: Vec<&str> = text.split(' ').collect();
            let unknown = |what, name: &str| TableError::Unknown { line, what, name: name.to_owned() };
            let arch = Arch::of_name(words[1]).ok_or_else(|| unknown("architecture", words[1]))?;
            let key = self.parse(words[2]).map_err(|_| unknown("kernel", words[2]))?;
            let variants = key.kernel().variants(arch);
            if variants.iter().all(|variant| variant.to_string() != words[4]) {
                return Err(unknown("variant", words[4]));
            }
        }
        Ok(table)
    }

    /// Returns the measured launches.
    pub fn tuned(&self) -> &Table {
        &self.tuned
    }

    /// Selects the variant for a launch: the one measured fastest on the architecture's chip, else by the family's
    /// rule.
    pub fn select(&self, key: &Key, params: &[u8], arch: Arch) -> Variant {
        tuned::select(&self.tuned, key, params, arch)
    }

    /// Parses a canonical text.
    ///
    /// # Errors
    /// [`KeyError`] if the operation is unknown or the text is not canonical.
    pub fn parse(&self, text: &str) -> Result<Key, KeyError> {
        let malformed = || KeyError::Malformed(text.to_owned());
        let (name, rest) = text.split_once('{').ok_or_else(malformed)?;
        let body = rest.strip_suffix('}').ok_or_else(malformed)?;
        let Some(op) = self.op(name) else {
            let unknown = || KeyError::UnknownOp { op: name.to_owned(), text: text.to_owned() };
            let plain = self.plain.iter().find(|plain| plain.name == name).ok_or_else(unknown)?;
            return if body.is_empty() { Ok(Key::of_plain(plain)) } else { Err(malformed()) };
        };
        let pairs: Vec<(&str, &str)> = match body {
            "" => Vec::new(),
            body => body.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>().ok_or_else(malformed)?,
        };
        let key = (op.parse)(&pairs).ok_or_else(malformed)?;
        if key.text() == text { Ok(key) } else { Err(malformed()) }
    }
}

/// Panics if two of one list have one name: a key would be parsed as the first one's.
const fn each_once(ops: &[Op], plain: &[&PlainKernel]) {
    let mut index = 0;
    while index < ops.len() + plain.len() {
        let mut before = if index < ops.len() { 0 } else { ops.len() };
        while before < index {
            let [name, other] = [name_of(ops, plain, index), name_of(ops, plain, before)];
            assert!(!same(name.as_bytes(), other.as_bytes()), "two operations have one name");
            before += 1;
        }
        index += 1;
    }
}

const fn name_of(ops: &[Op], plain: &[&PlainKernel], index: usize) -> &'static str {
    if index < ops.len() { ops[index].name } else { plain[index - ops.len()].name }
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// The text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No kernel family has this operation.
    #[error("unknown operation `{op}` in key `{text}`: this program and the bundle come from different versions")]
    UnknownOp {
        /// `family.operation` in the text.
        op: String,
        /// The text.
        text: String,
    },
    /// The text is not canonical.
    #[error("malformed key `{0}`: expected the canonical text `op{{field=value,...}}`")]
    Malformed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Op = Op { name: "softcap.fwd", parse: |_| None, examples: Vec::new };

    #[test]
    fn operations_differ_in_any_part_of_their_names() {
        static OPS: [Op; 3] = [Op { name: "softcap.fwd2", ..ONE }, ONE, Op { name: "softcap.fwd_b", ..ONE }];
        static KERNELS: Registry = Registry::new("softcap", &OPS);
        assert_eq!(KERNELS.ops.len(), 3);
    }

    #[test]
    #[should_panic(expected = "two operations have one name")]
    fn two_operations_of_one_name_are_refused() {
        Registry::new("softcap", &[Op { name: "softcap.bwd", ..ONE }, ONE, ONE]);
    }
}
