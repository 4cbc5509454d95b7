//! Kernels inside a program: what its build script embeds.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use precast_core::{Arch, Kernels};

use crate::bundle::{Bundle, BundleError};
use crate::frame::{Frame, FrameError};

/// Kernels inside a program, of which a build has one kind: a constant, made by [`embedded!`](crate::embedded!).
#[derive(Clone, Copy, Debug)]
pub enum Embedded {
    /// A program built for no kernels.
    Nothing,
    /// The two sections of a bundle, and its manifest's digest.
    Sections {
        /// Content of `.precast`.
        manifest: &'static [u8],
        /// Content of `.nv_fatbin`.
        fatbin: &'static [u8],
        /// Digest of the manifest as the build script found it, in hexadecimal.
        digest: &'static str,
    },
    /// A bundle of each architecture, in a frame.
    Frames(&'static [Frame]),
}

/// An embedded bundle that must not be used.
#[derive(thiserror::Error)]
pub enum EmbeddedError {
    /// The program was built without kernels.
    #[error("this program has no kernels: precast_aot::embed(..).emit() in its build script embeds them")]
    Nothing,
    /// A frame is damaged.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The bundle is not canonical, or not the one that was built.
    #[error("the embedded bundle must not be used: {0}")]
    Bundle(#[from] BundleError),
}

precast_core::debug_is_display!(EmbeddedError);

/// Includes what `precast_aot::embed(..).emit()` wrote for the package: an [`Embedded`].
#[macro_export]
macro_rules! embedded {
    () => {{
        // The file names this package, which the program may know by another name.
        #[allow(unused_imports)]
        use $crate as precast_fatbins;
        include!(concat!(env!("OUT_DIR"), "/precast.rs"))
    }};
}

impl Embedded {
    /// Reads the bundle of a program with these kernels; none if nothing is embedded. In a program with frames that of
    /// `arch`, else the first.
    ///
    /// # Errors
    /// [`EmbeddedError`] if it is not the one that the program was built with.
    pub fn open<K: AsRef<Kernels>>(
        self,
        arch: Option<Arch>,
        kernels: &'static K,
    ) -> Result<Option<Bundle<'static, K>>, EmbeddedError> {
        match self {
            Self::Nothing => Ok(None),
            Self::Sections { manifest, fatbin, digest } => {
                with_digest(Bundle::from_parts(manifest, fatbin, kernels)?, digest).map(Some)
            }
            Self::Frames(frames) => {
                let named = frames.iter().find(|frame| Some(frame.arch) == arch);
                named.or(frames.first()).map(|frame| unpacked(frame, frames, kernels)).transpose()
            }
        }
    }

    /// Reads the bundle of a program with these kernels, in a program with frames the first.
    ///
    /// # Errors
    /// [`EmbeddedError`] if there is none, or not the one that the program was built with.
    pub fn bundle<K: AsRef<Kernels>>(self, kernels: &'static K) -> Result<Bundle<'static, K>, EmbeddedError> {
        self.open(None, kernels)?.ok_or(EmbeddedError::Nothing)
    }

    /// Returns the architectures of frames; none where one bundle is embedded for all.
    pub fn framed(self) -> Vec<Arch> {
        match self {
            Self::Frames(frames) => frames.iter().map(|frame| frame.arch).collect(),
            Self::Nothing | Self::Sections { .. } => Vec::new(),
        }
    }

    /// Names the digests of the embedded manifests.
    pub fn digests(self) -> String {
        match self {
            Self::Nothing => "none embedded".to_owned(),
            Self::Sections { digest, .. } => digest.to_owned(),
            Self::Frames(frames) => {
                let each = frames.iter().map(|frame| format!("{} {}", frame.arch, frame.bundle));
                each.collect::<Vec<_>>().join(", ")
            }
        }
    }
}

/// Decompresses one of these frames, once a process.
fn unpacked<K: AsRef<Kernels>>(
    frame: &Frame,
    frames: &[Frame],
    kernels: &'static K,
) -> Result<Bundle<'static, K>, EmbeddedError> {
    static FILES: Mutex<BTreeMap<Arch, &'static [u8]>> = Mutex::new(BTreeMap::new());
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = match files.get(&frame.arch) {
        Some(file) => file,
        // A program has a frame an architecture, and reads it while it lives.
        None => *files.entry(frame.arch).or_insert(frame.decompress(frames)?.leak()),
    };
    with_digest(Bundle::read(file, kernels)?, &frame.bundle.to_string())
}

fn with_digest<K>(bundle: Bundle<'static, K>, digest: &str) -> Result<Bundle<'static, K>, EmbeddedError> {
    if bundle.digest().to_string() == digest {
        return Ok(bundle);
    }
    let (module, expected, found) = ("manifest".to_owned(), digest.to_owned(), bundle.digest().to_string());
    Err(BundleError::Claim { module, what: "digest", expected, found }.into())
}

#[cfg(test)]
mod tests {
    use precast_kernels::KERNELS;

    use super::*;
    use crate::{Digest, Manifest, compress, encode};

    fn frame(arch: Arch) -> Frame {
        let manifest = Manifest::simulated(&KERNELS, []);
        let file = encode(&manifest, |_| &[]);
        let (bytes, bundle_bytes): (&[u8], _) = (compress(&file, &[]).leak(), file.len() as u64);
        Frame { arch, base: None, bytes, sha256: Digest::of(bytes), bundle_bytes, bundle: manifest.digest() }
    }

    #[test]
    fn a_frame_gives_its_bundle_once_it_is_the_one_that_was_built() {
        let whole = frame(Arch::Sm80);
        for _ in 0..2 {
            assert_eq!(unpacked(&whole, &[], &KERNELS).unwrap().digest(), whole.bundle);
        }
        let message = |frame: Frame| unpacked(&frame, &[], &KERNELS).unwrap_err().to_string();
        let mut bytes = whole.bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        let flipped = message(Frame { bytes: bytes.leak(), ..frame(Arch::Sm86) });
        assert!(flipped.starts_with("the frame of sm_86 has SHA-256"), "{flipped}");
        let other = message(Frame { bundle: Digest::of(b"another"), ..frame(Arch::Sm89) });
        assert!(other.contains("manifest") && other.contains("digest"), "{other}");
        let text: &[u8] = b"no bundle";
        let bytes: &[u8] = compress(text, &[]).leak();
        let (sha256, bundle_bytes) = (Digest::of(bytes), text.len() as u64);
        let no_bundle = message(Frame { bytes, sha256, bundle_bytes, ..frame(Arch::Sm120) });
        assert!(no_bundle.contains("the embedded bundle must not be used"), "{no_bundle}");
    }

    #[test]
    fn a_frame_is_decompressed_after_its_base() {
        let base = frame(Arch::Sm121);
        let file = base.decompress(&[]).unwrap();
        let bytes: &[u8] = compress(&file, &file).leak();
        let alike = Frame { base: Some(Arch::Sm121), bytes, sha256: Digest::of(bytes), ..frame(Arch::Sm100) };
        assert!(4 * bytes.len() < base.bytes.len(), "{} bytes of {}", bytes.len(), base.bytes.len());
        assert!(alike.decompress(&[base, alike]).unwrap() == file);
        let missing = alike.decompress(&[]).unwrap_err().to_string();
        assert!(missing.contains("cannot be decompressed"), "{missing}");
    }
}
