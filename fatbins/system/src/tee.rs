//! Copies a program's lines to its log.

use std::sync::OnceLock;

static LOG: OnceLock<fn(&str)> = OnceLock::new();

/// Sets the log of all lines printed from now on. Later calls have no effect.
pub fn to(log: fn(&str)) {
    let _ = LOG.set(log);
}

/// Logs a line that is printed, or that the terminal could not take.
pub fn line(text: &str) {
    if let Some(log) = LOG.get() {
        log(text);
    }
}
