//! Prints lines for people and programs on standard output.
//!
//! A closed pipe (`| head`) is no error: work goes on without it. A full device is one, which the program reports when
//! its work is done: a run is worth more than its output.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use crate::tee;
use crate::terminal::visible;

/// The first error of a write.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on standard output; [`stdout::finish`](crate::stdout::finish) reports lost lines.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::stdout::line(format_args!($($argument)*)) };
}

/// Implements [`say!`].
pub fn line(arguments: Arguments<'_>) {
    let text = arguments.to_string();
    let text = visible(&text);
    tee::line(&text);
    wrote(writeln!(io::stdout(), "{text}"));
}

/// Records the result of a write to standard output for [`finish`].
pub fn wrote(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(error);
    }
}

/// Flushes standard output, at the end of a program.
///
/// # Errors
/// The first failed write, unless its reader has gone away.
pub fn finish() -> Result<(), &'static io::Error> {
    wrote(io::stdout().flush());
    FAILED.get().map_or(Ok(()), Err)
}
