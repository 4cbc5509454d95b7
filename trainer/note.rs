//! Notes to people, which one rank of a run writes.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use precast_fatbins::terminal::message;

static SILENT: AtomicBool = AtomicBool::new(false);

/// Says no more notes in this process: another one says the same.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// What a person should know and need not act on.
pub fn note(text: impl Display) {
    if !is_silent() {
        tell(format_args!("note: {text}"));
    }
}

/// Writes a line to standard error, as terminals may have it. Nobody may be left to read it, as after SIGHUP: that ends nothing.
pub fn tell(line: impl Display) {
    let _ = writeln!(io::stderr(), "{}", message(&line.to_string()));
}
