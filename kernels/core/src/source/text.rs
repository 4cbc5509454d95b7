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

    /// Finds the headers a source includes, directly or through others, in name order; or the name of one that it does
    /// not have. What it brings itself comes first.
    fn find(&self, source: &Source) -> Result<Vec<Header>, &'static str> {
        if self.whole {
            return Ok(source.headers.to_vec());
        }
        let mut found: Vec<Header> = Vec::new();
        let mut texts = vec![source.text];
        while let Some(text) = texts.pop() {
            let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            for name in names {
                if found.iter().any(|header| header.0 == name) {
                    continue;
                }
                let own = source.headers.iter().find(|header| header.0 == name).map(|header| header.1);
                match own.or_else(|| self.parsed().get(name).map(Parsed::text)) {
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

    fn headers(&self, source: &Source) -> Vec<Header> {
        let missing = |name| panic!("{} includes {name}, which is not among its headers", source.path);
        self.find(source).unwrap_or_else(missing)
    }

    /// Pairs each of them with what a compiler gets of it: of a common one what the source uses, whoever brings its
    /// text.
    fn includes(&self, source: &Source) -> Vec<(&'static str, String)> {
        let (common, own): (Vec<Header>, Vec<Header>) =
            self.headers(source).into_iter().partition(|(name, _)| self.parsed().contains_key(name));
        let own_texts: Vec<&str> = own.iter().map(|(_, text)| *text).chain([source.text]).collect();
        let brought =
            common.iter().map(|(name, text)| (*text != self.parsed()[name].text()).then(|| Parsed::new(text)));
        let brought: Vec<Option<Parsed>> = brought.collect();
        let parsed = common.iter().zip(&brought).map(|((name, _), own)| own.as_ref().unwrap_or(&self.parsed()[name]));
        let parsed: Vec<&Parsed> = parsed.collect();
        let used = common.iter().map(|(name, _)| *name).zip(reach::used(&parsed, &own_texts));
        let mut all: Vec<(&str, String)> = own.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        all.extend(used);
        all.sort_unstable();
        all
    }

    /// Digests a source's path, and the code of the source and its includes; every byte of what is taken as it is.
    pub fn digest(&self, source: &Source) -> Digest {
        if self.whole {
            let headers = source.headers.iter().flat_map(|(name, text)| [*name, *text]);
            let texts = [source.path, source.text].into_iter().chain(headers);
            return Digest::of_parts("precast.plain", texts.map(str::as_bytes));
        }
        // Neither line numbers nor comments count.
        let code = |text: &str| -> String {
            let code = words::code(text);
            code.lines().map(str::trim).filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect()
        };
        let includes: Vec<(&str, String)> =
            self.includes(source).iter().map(|(name, text)| (*name, code(text))).collect();
        let own = code(source.text);
        let headers = includes.iter().flat_map(|(name, text)| [*name, text.as_str()]);
        let texts = [source.path, own.as_str()].into_iter().chain(headers);
        Digest::of_parts("precast.text", texts.map(str::as_bytes))
    }
}

impl Source {
    /// Returns the headers that this source includes, also transitively, in name order.
    ///
    /// # Panics
    /// If an included header is missing.
    pub fn headers(&self) -> Vec<Header> {
        self.common.headers(self)
    }

    /// Returns the path of the file in its package, for messages.
    pub fn file(&self) -> String {
        Path::new(self.common.root).join(self.path).display().to_string()
    }

    /// The name of a header that this source includes and does not have.
    pub fn missing(&self) -> Option<&'static str> {
        self.common.find(self).err()
    }

    /// Pairs each of them with what a compiler gets of it: of the common ones what this source uses.
    pub fn includes(&self) -> Vec<(&'static str, String)> {
        self.common.includes(self)
    }

    /// True if the text, or the part of a header that it uses, contains this word.
    pub fn mentions(&self, word: &str) -> bool {
        self.text.contains(word) || self.includes().iter().any(|(_, text)| text.contains(word))
    }

    /// Digests everything of a source that a cubin depends on: its path, and the code of the text and of its includes'
    /// used parts. Each source is digested once per process: start-up needs every module's.
    pub fn digest(&self) -> Digest {
        static DIGESTS: LazyLock<RwLock<HashMap<[usize; 7], Digest>>> = LazyLock::new(RwLock::default);
        // Static text never changes, so its address identifies it, at no cost.
        let place = |text: &'static str| [text.as_ptr().addr(), text.len()];
        let [[path, path_bytes], [text, text_bytes]] = [self.path, self.text].map(place);
        let place = [
            path,
            path_bytes,
            text,
            text_bytes,
            self.headers.as_ptr().addr(),
            self.headers.len(),
            ptr::from_ref(self.common).addr(),
        ];
        if let Some(digest) = DIGESTS.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return *digest;
        }
        let digest = self.common.digest(self);
        DIGESTS.write().unwrap_or_else(PoisonError::into_inner).insert(place, digest);
        digest
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
