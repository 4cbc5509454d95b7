//! Tells files that hold a whole model apart by their first bytes.

/// Bytes that tell.
pub const START_BYTES: usize = 4;

/// Returns the kind of a file that holds a whole model, with its article, from its first bytes; none for other files.
pub fn single_file(start: &[u8]) -> Option<&'static str> {
    match start.get(..START_BYTES) {
        Some(b"GGUF") => Some("a GGUF"),
        Some(b"APR\0") => Some("an APR"),
        _ => None,
    }
}
