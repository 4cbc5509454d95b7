//! The cause of an error that wraps others.

use std::error::Error;

/// Returns the text of the innermost error. Of a library that does not open, the outer ones say only that it does not.
pub fn cause(error: &dyn Error) -> String {
    error.source().map_or_else(|| error.to_string(), cause)
}

#[cfg(test)]
mod tests {
    use std::io::Error as Io;

    #[test]
    fn the_innermost_text_is_the_cause() {
        let inner = Io::other("libstdc++.so.6 is not there");
        assert_eq!(super::cause(&inner), "libstdc++.so.6 is not there");
        // An error of the library's kind: its own text says no more than that something failed.
        #[derive(Debug, thiserror::Error)]
        #[error("opening failed")]
        struct Outer(#[source] Io);
        assert_eq!(super::cause(&Outer(inner)), "libstdc++.so.6 is not there");
    }
}
