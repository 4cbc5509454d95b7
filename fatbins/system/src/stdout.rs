//! Standard output: lines for people and programs.
//!
//! A reader that has gone away (`| head`) is no error: work goes on without it. A device that is full is one, and the
//! program says so when its work is done: a run is worth more than the lines about it.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::OnceLock;

use crate::tee;
use crate::terminal::visible;

/// Why a line could not be written: the first reason.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on standard output; [`stdout::finish`](crate::stdout::finish) says whether all lines arrived.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => { $crate::stdout::line(format_args!($($argument)*)) };
}

/// What [`say!`] calls.
pub fn line(arguments: Arguments<'_>) {
    let text = arguments.to_string();
    let text = visible(&text);
    tee::line(&text);
    wrote(writeln!(io::stdout(), "{text}"));
}

/// Keeps what became of a write to standard output for [`finish`].
pub fn wrote(result: io::Result<()>) {
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = FAILED.set(error);
    }
}

/// Flushes standard output; for the end of a program.
///
/// # Errors
/// Why a line did not arrive, if that is not because its reader has gone away.
pub fn finish() -> Result<(), &'static io::Error> {
    wrote(io::stdout().flush());
    FAILED.get().map_or(Ok(()), Err)
}
