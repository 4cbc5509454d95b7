//! CUDA sources: their text, and the headers they include.

/// A CUDA source and the headers of its family. The common headers are always there.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Path below `kernels/src`.
    pub path: &'static str,
    /// The text.
    pub text: &'static str,
    /// Headers of the family, as (include name, text).
    pub headers: &'static [Header],
}

/// A header as (include name, text).
pub type Header = (&'static str, &'static str);

/// Headers any CUDA source may include.
static COMMON_HEADERS: &[Header] = &[
    ("device.cuh", include_str!("../cuda/device.cuh")),
    ("hopper.cuh", include_str!("../cuda/hopper.cuh")),
    ("mma.cuh", include_str!("../cuda/mma.cuh")),
    ("shared.cuh", include_str!("../cuda/shared.cuh")),
    ("step.h", include_str!("../abi/step.h")),
    ("types.h", include_str!("../abi/types.h")),
    ("vector.cuh", include_str!("../cuda/vector.cuh")),
];

impl Source {
    /// The headers this source includes, directly or through others, in name order: what a compiler needs
    /// and what a cubin depends on.
    ///
    /// # Panics
    /// If a header that is included is not there.
    pub fn includes(&self) -> Vec<Header> {
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
