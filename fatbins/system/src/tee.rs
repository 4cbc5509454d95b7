//! Where the lines of a program go besides a terminal: its log.

use std::sync::OnceLock;

static LOG: OnceLock<fn(&str)> = OnceLock::new();

/// Gives each line that is printed from now on to a function, too. The first one stays.
pub fn to(log: fn(&str)) {
    let _ = LOG.set(log);
}

/// A line that is printed, or that a terminal has no room for.
pub fn line(text: &str) {
    if let Some(log) = LOG.get() {
        log(text);
    }
}
