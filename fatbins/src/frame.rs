//! A bundle in a zstd frame, as a program with the kernels of all architectures embeds one of each.

use precast_core::Arch;

use crate::Digest;

/// Most bytes that a frame may give.
pub const MOST_BYTES: u64 = 128 << 20;
/// Slow to compress and as fast to decompress as any other.
const LEVEL: i32 = 19;

/// A frame, and what the build script found of it.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Architecture of the bundle.
    pub arch: Arch,
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

/// Compresses a bundle file. Returns the frame, a function of the file alone.
///
/// # Panics
/// If zstd fails, which it does for lack of memory.
pub fn compress(bundle: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bundle, LEVEL).expect("zstd compresses")
}

impl Frame {
    /// Decompresses the bundle file.
    ///
    /// # Errors
    /// [`FrameError`] before anything is allocated if the frame is not the one that was built, or says another size; or
    /// if it gives another.
    pub fn decompress(&self) -> Result<Vec<u8>, FrameError> {
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
        let bundle = zstd::bulk::decompress(self.bytes, self.bundle_bytes as usize);
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
        let bytes: &'static [u8] = compress(bundle).leak();
        let (sha256, bundle_bytes) = (Digest::of(bytes), bundle.len() as u64);
        Frame { arch: Arch::Sm120, bytes, sha256, bundle_bytes, bundle: Digest::of(b"") }
    }

    /// Makes the digest that of other bytes: the check behind it is met.
    fn with_bytes(frame: Frame, bytes: Vec<u8>) -> Frame {
        Frame { sha256: Digest::of(&bytes), bytes: bytes.leak(), ..frame }
    }

    proptest! {
        #[test]
        fn frames_give_the_bundle_back(bundle: Vec<u8>) {
            prop_assert_eq!(frame(&bundle).decompress().unwrap(), bundle);
        }
    }

    #[test]
    fn a_frame_that_is_not_the_one_built_is_refused() {
        let built = frame(&[7; 5000]);
        for bit in 0..8 * built.bytes.len() {
            let mut bytes = built.bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let flipped = Frame { bytes: bytes.clone().leak(), ..built };
            assert!(flipped.decompress().unwrap_err().to_string().contains("SHA-256"), "bit {bit}");
            // Also where its digest is the right one, what it gives is another bundle or an error, and no longer.
            if let Ok(other) = with_bytes(built, bytes).decompress() {
                assert_eq!(other.len(), 5000, "bit {bit}");
            }
        }
        let cut = with_bytes(built, built.bytes[..built.bytes.len() - 1].to_vec());
        assert!(cut.decompress().unwrap_err().to_string().contains("cannot be decompressed"));
        assert!(with_bytes(built, Vec::new()).decompress().is_err());
    }

    #[test]
    fn a_frame_gives_no_more_than_its_static_says() {
        let large = frame(&[7; 5000]);
        let error = Frame { bundle_bytes: 4999, ..large }.decompress().unwrap_err().to_string();
        assert!(error.starts_with("the frame of sm_120 says 5000 bytes of its size, expected 4999 bytes: "), "{error}");
        let endless = Frame { bundle_bytes: MOST_BYTES + 1, ..frame(&[0; 64]) };
        assert!(endless.decompress().is_err());
    }
}
