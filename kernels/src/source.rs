//! CUDA sources: their text, the headers they include, and the digest of both.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use crate::digest::Digest;
use crate::reach::{self, Parsed};

/// Options every kernel is compiled with, besides its architecture and macros.
pub const OPTIONS: &[&str] = &["--std=c++17"];

/// A CUDA source and the headers of its family. The common headers are always there.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Path below `kernels/src`.
    pub path: &'static str,
    pub text: &'static str,
    /// Headers of the family, as (include name, text).
    pub headers: &'static [Header],
}

/// A header as (include name, text).
pub type Header = (&'static str, &'static str);

/// Headers any CUDA source may include.
static COMMON_HEADERS: &[Header] = &[
    ("blocks.cuh", include_str!("../cuda/blocks.cuh")),
    ("device.cuh", include_str!("../cuda/device.cuh")),
    ("hopper.cuh", include_str!("../cuda/hopper.cuh")),
    ("mma.cuh", include_str!("../cuda/mma.cuh")),
    ("mma_s8.cuh", include_str!("../cuda/mma_s8.cuh")),
    ("quantize.cuh", include_str!("../cuda/quantize.cuh")),
    ("shared.cuh", include_str!("../cuda/shared.cuh")),
    ("step.h", include_str!("../abi/step.h")),
    ("types.h", include_str!("../abi/types.h")),
    ("vector.cuh", include_str!("../cuda/vector.cuh")),
    ("wgmma.cuh", include_str!("../cuda/wgmma.cuh")),
    ("wgmma_s8.cuh", include_str!("../cuda/wgmma_s8.cuh")),
];

/// The same, by name, read for what of them a source uses.
static PARSED_HEADERS: LazyLock<HashMap<&str, Parsed>> =
    LazyLock::new(|| COMMON_HEADERS.iter().map(|(name, text)| (*name, Parsed::new(text))).collect());

impl Source {
    /// The headers this source includes, directly or through others, in name order.
    ///
    /// # Panics
    /// If a header that is included is not there.
    pub fn headers(&self) -> Vec<Header> {
        let mut found: Vec<Header> = Vec::new();
        let mut texts = vec![self.text];
        while let Some(text) = texts.pop() {
            let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
            for name in names {
                if found.iter().any(|header| header.0 == name) {
                    continue;
                }
                match self.headers.iter().chain(COMMON_HEADERS).find(|header| header.0 == name) {
                    Some(header) => {
                        found.push(*header);
                        texts.push(header.1);
                    }
                    None => panic!("{} includes {name}, which is not among its headers", self.path),
                }
            }
        }
        found.sort_unstable();
        found
    }

    /// What a compiler gets of them, and what a cubin depends on: of the common ones what this source uses.
    pub fn includes(&self) -> Vec<(&'static str, String)> {
        let (common, own): (Vec<Header>, Vec<Header>) =
            self.headers().into_iter().partition(|(name, _)| PARSED_HEADERS.contains_key(name));
        let own_texts: Vec<&str> = own.iter().map(|(_, text)| *text).chain([self.text]).collect();
        let parsed: Vec<&Parsed> = common.iter().map(|(name, _)| &PARSED_HEADERS[name]).collect();
        let used = common.iter().map(|(name, _)| *name).zip(reach::used(&parsed, &own_texts));
        let mut all: Vec<(&str, String)> = own.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        all.extend(used);
        all.sort_unstable();
        all
    }

    /// Whether the text, or what it uses of a header, has this word.
    pub fn mentions(&self, word: &str) -> bool {
        self.text.contains(word) || self.includes().iter().any(|(_, text)| text.contains(word))
    }

    /// Digest of the path, the text and what it uses of the headers it includes. Each source is read once in a process: start-up asks
    /// for that of every module.
    pub(crate) fn digest(&self) -> Digest {
        static DIGESTS: LazyLock<RwLock<HashMap<[usize; 6], Digest>>> = LazyLock::new(RwLock::default);
        // What is static never changes, so where it lies says what it is, and costs nothing to compare.
        let place = |text: &'static str| [text.as_ptr().addr(), text.len()];
        let [[path, path_bytes], [text, text_bytes]] = [self.path, self.text].map(place);
        let place = [path, path_bytes, text, text_bytes, self.headers.as_ptr().addr(), self.headers.len()];
        if let Some(digest) = DIGESTS.read().unwrap_or_else(PoisonError::into_inner).get(&place) {
            return *digest;
        }
        let includes = self.includes();
        // Where a line stands is no part of what it says.
        let lines = |text: &str| text.lines().filter(|line| !line.is_empty()).flat_map(|line| [line, "\n"]).collect();
        let includes: Vec<(&str, String)> = includes.iter().map(|(name, text)| (*name, lines(text))).collect();
        let headers = includes.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        let digest =
            Digest::of_parts("precast.text", [self.path, self.text].map(str::as_bytes).into_iter().chain(headers));
        DIGESTS.write().unwrap_or_else(PoisonError::into_inner).insert(place, digest);
        digest
    }
}

/// A CUDA source of a family's folder, with the family's parameter blocks and any further headers beside it.
#[macro_export]
macro_rules! source {
    ($family:literal, $file:literal $(, $header:literal)*) => {
        $crate::source::Source {
            path: concat!($family, "/", $file),
            text: include_str!($file),
            headers: &[
                (concat!($family, ".h"), include_str!(concat!("../../abi/", $family, ".h"))),
                $((concat!($family, "/", $header), include_str!($header)),)*
            ],
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: Source =
        Source { path: "a/b.cu", text: "#include \"a/c.cuh\"\ncode", headers: &[("a/c.cuh", "more"), ("a/d.cuh", "")] };

    #[test]
    fn a_digest_is_of_path_text_and_what_is_included() {
        let digest = SOURCE.digest();
        assert_eq!(SOURCE.digest(), digest);
        let same = Source { headers: &[("a/c.cuh", "more"), ("a/d.cuh", "not included")], ..SOURCE };
        assert_eq!(same.digest(), digest);
        let others = [
            Source { path: "a/e.cu", ..SOURCE },
            Source { text: "#include \"a/c.cuh\"\ncode ", ..SOURCE },
            Source { headers: &[("a/c.cuh", "less")], ..SOURCE },
            Source { text: "#include \"device.cuh\"\ncode", ..SOURCE },
        ];
        for other in others {
            assert_ne!(other.digest(), digest, "{other:?}");
        }
    }
}
