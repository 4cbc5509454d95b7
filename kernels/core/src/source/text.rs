//! CUDA sources: their text, the headers that they include, and the digest of both.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};
use std::{fmt, ptr};

use super::reach::{self, Parsed};
use super::words;
use crate::digest::Digest;

/// Options common to all kernels, besides architecture and macros.
pub const OPTIONS: &[&str] = &["--std=c++17"];

/// A CUDA source and the headers that it may include.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Path below the root of `common`; in digests.
    pub path: &'static str,
    /// Text of the source, without its headers.
    pub text: &'static str,
    /// Headers of the family, as (include name, text).
    pub headers: &'static [Header],
    /// Headers that any source of the program may include.
    pub common: &'static Common,
}

/// A header as (include name, text).
pub type Header = (&'static str, &'static str);

/// Headers of this package: types, vectors, tensor-core tiles, copies and barriers.
pub const HEADERS: &[Header] = &[
    ("device.cuh", include_str!("../../cuda/device.cuh")),
    ("early.cuh", include_str!("../../cuda/early.cuh")),
    ("hopper.cuh", include_str!("../../cuda/hopper.cuh")),
    ("mma.cuh", include_str!("../../cuda/mma.cuh")),
    ("mma_s8.cuh", include_str!("../../cuda/mma_s8.cuh")),
    ("shared.cuh", include_str!("../../cuda/shared.cuh")),
    ("types.h", include_str!("../../cuda/types.h")),
    ("vector.cuh", include_str!("../../cuda/vector.cuh")),
    ("wgmma.cuh", include_str!("../../cuda/wgmma.cuh")),
    ("wgmma_s8.cuh", include_str!("../../cuda/wgmma_s8.cuh")),
];

/// The headers of a program that adds none to [`HEADERS`].
pub static COMMON: Common = Common::new(&[]);

/// No headers at all: what a file that is taken as it is includes, it brings, and the compiler gets the whole of it.
pub static AS_IT_IS: Common = Common::new(&[]).in_folder("").whole();

/// Headers that any CUDA source of a program may include: [`HEADERS`] and its own, parsed to select the parts that a
/// source uses.
pub struct Common {
    own: &'static [Header],
    /// Folder of the sources in their package, for messages.
    root: &'static str,
    /// True if sources get what they bring, and nothing else.
    whole: bool,
    parsed: OnceLock<BTreeMap<&'static str, Parsed>>,
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.own.iter().map(|(name, _)| name)).finish()
    }
}

impl Common {
    /// Adds a program's own headers, as (include name, text). Its sources are in `src`.
    pub const fn new(own: &'static [Header]) -> Self {
        Self { own, root: "src", whole: false, parsed: OnceLock::new() }
    }

    /// Says that the program's sources are in another folder than `src`. Messages name it; keys and digests do not.
    pub const fn in_folder(mut self, root: &'static str) -> Self {
        self.root = root;
        self
    }

    const fn whole(mut self) -> Self {
        self.whole = true;
        self
    }

    /// Returns the folder of the program's sources, in its package.
    pub fn root(&self) -> &'static str {
        self.root
    }

    /// Returns all of them.
    pub fn all(&self) -> impl Iterator<Item = &'static Header> {
        let headers = if self.whole { &[] } else { HEADERS };
        headers.iter().chain(self.own)
    }

    fn parsed(&self) -> &BTreeMap<&'static str, Parsed> {
        self.parsed.get_or_init(|| self.all().map(|(name, text)| (*name, Parsed::new(text))).collect())
    }
}

impl Source {
    /// Finds the headers that it includes, directly or through others, in name order; or the name of one that it does
    /// not have. What it brings itself comes first.
    fn find(&self) -> Result<Vec<Header>, &'static str> {
        if self.common.whole {
            return Ok(self.headers.to_vec());
        }
        let mut found: Vec<Header> = Vec::new();
        let mut texts = vec![self.text];
        while let Some(text) = texts.pop() {
            let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            for name in names {
                if found.iter().any(|header| header.0 == name) {
                    continue;
                }
                let own = self.headers.iter().find(|header| header.0 == name).map(|header| header.1);
                match own.or_else(|| self.common.parsed().get(name).map(Parsed::text)) {
                    Some(text) => {
                        found.push((name, text));
                        texts.push(text);
                    }
                    None => return Err(name),
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Returns the headers that this source includes, also transitively, in name order.
    ///
    /// # Panics
    /// If an included header is missing.
    pub fn headers(&self) -> Vec<Header> {
        let missing = |name| panic!("{} includes {name}, which is not among its headers", self.path);
        self.find().unwrap_or_else(missing)
    }

    /// Returns the path of the file in its package, for messages.
    pub fn file(&self) -> String {
        Path::new(self.common.root).join(self.path).display().to_string()
    }

    /// The name of a header that this source includes and does not have.
    pub fn missing(&self) -> Option<&'static str> {
        self.find().err()
    }

    /// Pairs each of them with what a compiler gets of it: of a common one what the source uses, whoever brings its
    /// text.
    pub fn includes(&self) -> Vec<(&'static str, String)> {
        let parsed = self.common.parsed();
        let (common, own): (Vec<Header>, Vec<Header>) =
            self.headers().into_iter().partition(|(name, _)| parsed.contains_key(name));
        let own_texts: Vec<&str> = own.iter().map(|(_, text)| *text).chain([self.text]).collect();
        let brought = common.iter().map(|(name, text)| (*text != parsed[name].text()).then(|| Parsed::new(text)));
        let brought: Vec<Option<Parsed>> = brought.collect();
        let of_common = common.iter().zip(&brought).map(|((name, _), own)| own.as_ref().unwrap_or(&parsed[name]));
        let of_common: Vec<&Parsed> = of_common.collect();
        let used = common.iter().map(|(name, _)| *name).zip(reach::used(&of_common, &own_texts));
        let mut all: Vec<(&str, String)> = own.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        all.extend(used);
        all.sort_unstable();
        all
    }

    /// True if the text, or the part of a header that it uses, contains this word.
    pub fn mentions(&self, word: &str) -> bool {
        self.text.contains(word) || self.includes().iter().any(|(_, text)| text.contains(word))
    }

    /// Digests everything of a source that a cubin depends on: its path, and the code of the text and of its includes'
    /// used parts; every byte of what is taken as it is. Each source is digested once per process: start-up needs every
    /// module's.
    pub fn digest(&self) -> Digest {
        type Place = ([[usize; 2]; 3], usize);
        static DIGESTS: LazyLock<RwLock<HashMap<Place, Digest>>> = LazyLock::new(RwLock::default);
        // Static text never changes, so its address identifies it, at no cost.
        let [path, text] = [self.path, self.text].map(|text| [text.as_ptr().addr(), text.len()]);
        let headers = [self.headers.as_ptr().addr(), self.headers.len()];
        let place: Place = ([path, text, headers], ptr::from_ref(self.common).addr());
        if let Some(digest) = DIGESTS.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return *digest;
        }
        let digest = self.digest_of_texts();
        DIGESTS.write().unwrap_or_else(PoisonError::into_inner).insert(place, digest);
        digest
    }

    fn digest_of_texts(&self) -> Digest {
        if self.common.whole {
            let headers = self.headers.iter().flat_map(|(name, text)| [*name, *text]);
            let texts = [self.path, self.text].into_iter().chain(headers);
            return Digest::of_parts("precast.plain", texts.map(str::as_bytes));
        }
        // Neither line numbers nor comments count.
        let code = |text: &str| -> String {
            let code = words::code(text);
            code.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
        };
        let includes: Vec<(&str, String)> = self.includes().iter().map(|(name, text)| (*name, code(text))).collect();
        let own = code(self.text);
        let headers = includes.iter().flat_map(|(name, text)| [*name, text.as_str()]);
        let texts = [self.path, own.as_str()].into_iter().chain(headers);
        Digest::of_parts("precast.text", texts.map(str::as_bytes))
    }
}

/// Declares a CUDA source in a family's folder, with the family's parameter blocks and further headers; `@ COMMON;`
/// names other common headers than those of this package.
#[macro_export]
macro_rules! source {
    (@ $common:expr; $family:literal, in $folder:literal, $file:literal $(, $header:literal)*) => {
        $crate::source::Source {
            path: concat!($family, "/", $folder, $file),
            text: include_str!(concat!($folder, $file)),
            headers: &[
                (concat!($family, ".h"), include_str!(concat!($family, ".h"))),
                $((concat!($family, "/", $header), include_str!($header)),)*
            ],
            common: $common,
        }
    };
    (@ $common:expr; $family:literal, $file:literal $(, $header:literal)*) => {
        $crate::source!(@ $common; $family, in "", $file $(, $header)*)
    };
    ($family:literal, $($rest:tt)*) => { $crate::source!(@ &$crate::source::COMMON; $family, $($rest)*) };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source = Source {
        path: "a/b.cu",
        text: "#include \"a/c.cuh\"\ncode",
        headers: &[("a/c.cuh", "more"), ("a/d.cuh", "")],
        common: &COMMON,
    };

    #[test]
    fn a_digest_is_of_path_code_and_what_is_included() {
        let digest = SOURCE.digest();
        assert_eq!(SOURCE.digest(), digest);
        let alike = [
            Source { headers: &[("a/c.cuh", "more"), ("a/d.cuh", "not included")], ..SOURCE },
            Source { headers: &[("a/c.cuh", "// said of it\n\nmore")], ..SOURCE },
            Source { text: "/* said\nof it */\n#include \"a/c.cuh\"\n\n  code // too", ..SOURCE },
        ];
        for same in alike {
            assert_eq!(same.digest(), digest, "{same:?}");
        }
        // Nor does the folder: it is for messages.
        static MOVED: Common = Common::new(&[]).in_folder("kernels/src");
        let moved = Source { common: &MOVED, ..SOURCE };
        assert_eq!((moved.digest(), moved.file()), (digest, String::from("kernels/src/a/b.cu")));
        assert_eq!(SOURCE.file(), "src/a/b.cu");
        let others = [
            Source { path: "a/e.cu", ..SOURCE },
            Source { text: "#include \"a/c.cuh\"\nco de", ..SOURCE },
            Source { headers: &[("a/c.cuh", "less")], ..SOURCE },
            Source { text: "#include \"device.cuh\"\ncode", ..SOURCE },
        ];
        for other in others {
            assert_ne!(other.digest(), digest, "{other:?}");
        }
    }

    #[test]
    fn of_a_common_header_that_a_source_brings_it_gets_what_it_uses() {
        const BROUGHT: &[Header] = &[(
            "device.cuh",
            "__device__ float used(float x) { return x; }\n__device__ float left(float x) { return x; }\n",
        )];
        let source = Source { text: "#include \"device.cuh\"\nused(1)", headers: BROUGHT, ..SOURCE };
        assert_eq!(source.includes(), [("device.cuh", "__device__ float used(float x) { return x; }\n\n".to_owned())]);
        assert_eq!(source.missing(), None);
        assert_eq!(Source { text: "#include \"b.cuh\"", ..SOURCE }.missing(), Some("b.cuh"));
    }
}
