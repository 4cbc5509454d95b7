//! A bundle in a zstd frame, as a program with the kernels of all architectures embeds one of each. Bundles of one
//! generation are much alike: one of them is the dictionary of the others.

use precast_core::Arch;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::CParameter;

use crate::Digest;

/// Most bytes that a frame may give.
pub const MOST_BYTES: u64 = 128 << 20;
/// Slow to compress and as fast to decompress as any other.
const LEVEL: i32 = 19;
/// Matches reach back 64 MiB: through a bundle and its base.
const WINDOW_LOG: u32 = 26;

/// A frame, and what the build script found of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Architecture of the bundle.
    pub arch: Arch,
    /// Architecture of the bundle that is its dictionary, if it has one.
    pub base: Option<Arch>,
    /// Compressed bundle.
    pub bytes: &'static [u8],
    /// SHA-256 of `bytes`.
    pub sha256: Digest,
    /// Size of the bundle, bytes.
    pub bundle_bytes: u64,
    /// Digest of the bundle's manifest.
    pub bundle: Digest,
}

/// A frame that must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the frame of {arch} {reason}: the program's file is damaged; install it again")]
pub struct FrameError {
    /// Architecture of the bundle.
    pub arch: Arch,
    reason: String,
}

/// Compresses a bundle file with its base as the dictionary, which is empty if it has none. Returns the frame, a
/// function of the two files alone.
///
/// # Panics
/// If zstd fails, which it does for lack of memory.
pub fn compress(bundle: &[u8], base: &[u8]) -> Vec<u8> {
    let mut compressor = Compressor::with_dictionary(LEVEL, base).expect("zstd takes a dictionary");
    compressor.set_parameter(CParameter::WindowLog(WINDOW_LOG)).expect("zstd has this window");
    compressor.compress(bundle).expect("zstd compresses")
}

impl Frame {
    /// Decompresses the bundle file, after that of its base among these frames, which has none itself.
    ///
    /// # Errors
    /// [`FrameError`] before anything is allocated if the frame is not the one that was built, or says another size; or
    /// if it gives another.
    pub fn decompress(&self, frames: &[Frame]) -> Result<Vec<u8>, FrameError> {
        let base = frames.iter().find(|other| Some(other.arch) == self.base);
        self.after(&base.map(|base| base.after(&[])).transpose()?.unwrap_or_default())
    }

    /// Decompresses the bundle file with this dictionary.
    fn after(&self, base: &[u8]) -> Result<Vec<u8>, FrameError> {
        let error = |reason: String| FrameError { arch: self.arch, reason };
        let found = Digest::of(self.bytes);
        if found != self.sha256 {
            return Err(error(format!("has SHA-256 {found}, and was built with {}", self.sha256)));
        }
        let says = zstd::zstd_safe::get_frame_content_size(self.bytes).ok().flatten();
        if says != Some(self.bundle_bytes) || self.bundle_bytes > MOST_BYTES {
            let says = says.map_or("nothing".to_owned(), |bytes| format!("{bytes} bytes"));
            return Err(error(format!("says {says} of its size, expected {} bytes", self.bundle_bytes)));
        }
        // It writes no more than the capacity.
        let bundle = Decompressor::with_dictionary(base)
            .and_then(|mut zstd| zstd.decompress(self.bytes, self.bundle_bytes as usize));
        let bundle = bundle.map_err(|failure| error(format!("cannot be decompressed ({failure})")))?;
        match bundle.len() as u64 == self.bundle_bytes {
            true => Ok(bundle),
            false => Err(error(format!("gives {} bytes, expected {}", bundle.len(), self.bundle_bytes))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(bundle: &[u8]) -> Frame {
        framed(bundle, &[])
    }

    fn framed(bundle: &[u8], base: &[u8]) -> Frame {
        let bytes: &'static [u8] = compress(bundle, base).leak();
        let (sha256, bundle_bytes) = (Digest::of(bytes), bundle.len() as u64);
        Frame { arch: Arch::Sm120, base: None, bytes, sha256, bundle_bytes, bundle: Digest::of(b"") }
    }

    /// Makes the digest that of other bytes: the check behind it is met.
    fn with_bytes(frame: Frame, bytes: Vec<u8>) -> Frame {
        Frame { sha256: Digest::of(&bytes), bytes: bytes.leak(), ..frame }
    }

    proptest! {
        #[test]
        fn frames_give_the_bundle_back(bundle: Vec<u8>, base: Vec<u8>) {
            prop_assert_eq!(framed(&bundle, &base).after(&base).unwrap(), bundle);
        }
    }

    #[test]
    fn a_frame_that_is_not_the_one_built_is_refused() {
        let built = frame(&[7; 5000]);
        for bit in 0..8 * built.bytes.len() {
            let mut bytes = built.bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = Frame { bytes: bytes.clone().leak(), ..built };
            assert!(flipped.after(&[]).unwrap_err().to_string().contains("SHA-256"), "bit {bit}");
            // Also where its digest is the right one, what it gives is another bundle or an error, and no longer.
            if let Ok(other) = with_bytes(built, bytes).after(&[]) {
                assert_eq!(other.len(), 5000, "bit {bit}");
            }
        }
        let cut = with_bytes(built, built.bytes[..built.bytes.len() - 1].to_vec());
        assert!(cut.after(&[]).unwrap_err().to_string().contains("cannot be decompressed"));
        assert!(with_bytes(built, Vec::new()).after(&[]).is_err());
    }

    #[test]
    fn a_frame_needs_its_base() {
        let base: Vec<u8> = (0..9000_u32).flat_map(|at| Digest::of(&at.to_le_bytes()).0).collect();
        let bundle = [&base[32..], b"and more"].concat();
        let alike = framed(&bundle, &base);
        assert!(alike.bytes.len() < 100, "{} bytes", alike.bytes.len());
        assert!(alike.after(&base).unwrap() == bundle);
        assert!(alike.after(&vec![0; base.len()]).is_ok_and(|other| other != bundle));
        let error = alike.after(&[]).unwrap_err().to_string();
        assert!(error.contains("cannot be decompressed"), "{error}");
    }

    #[test]
    fn a_frame_gives_no_more_than_its_static_says() {
        let large = frame(&[7; 5000]);
        let error = Frame { bundle_bytes: 4999, ..large }.after(&[]).unwrap_err().to_string();
        assert!(error.starts_with("the frame of sm_120 says 5000 bytes of its size, expected 4999 bytes: "), "{error}");
        let endless = Frame { bundle_bytes: MOST_BYTES + 1, ..frame(&[0; 64]) };
        assert!(endless.after(&[]).is_err());
    }
}
