//! Reports panics: as bugs of the program, with the facts to send, or, of a library that is known to panic on bad
//! input, as errors.

use std::any::Any;
use std::cell::Cell;
use std::io::{self, Write};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::tee;

thread_local! {
    /// True while a panic of this thread is expected and becomes an error.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Facts of a program for its bug reports.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program.
    pub name: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// Further lines of a report.
    pub facts: fn() -> String,
}

/// Runs a program's main function. A panic in any thread is reported as a bug, once, with the facts to send; the exit
/// code is then 1.
pub fn main(program: Program, run: impl FnOnce() -> ExitCode) -> ExitCode {
    static SAID: AtomicBool = AtomicBool::new(false);
    panic::set_hook(Box::new(move |panic| {
        // Other threads often panic as a consequence of the first panic.
        if !EXPECTED.get() && !SAID.swap(true, Ordering::SeqCst) {
            let report = report(program, panic);
            tee::line(&report);
            let _ = writeln!(io::stderr(), "{report}");
        }
    }));
    panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or(ExitCode::FAILURE)
}

fn report(Program { name, version, facts }: Program, panic: &PanicHookInfo<'_>) -> String {
    let at = panic.location().map_or("unknown".to_owned(), ToString::to_string);
    let command: Vec<String> =
        std::env::args_os().map(|argument| format!("{:?}", argument.to_string_lossy())).collect();
    format!(
        "error: this is a bug in {name}, whatever its input was. Please report these lines where you got it from:\n\
         \x20 {name} {version}, {} {}\n\
         \x20 panic: {}\n\
         \x20 at: {at}\n\
         \x20 command: {}\n\
         \x20 {}",
        std::env::consts::OS,
        std::env::consts::ARCH,
        message(panic.payload()),
        command.join(" "),
        facts().trim_end().replace('\n', "\n  "),
    )
}

/// Calls a library that panics on some input; turns its panic into an error and prints nothing.
///
/// # Errors
/// The panic's message.
pub fn guard<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    let before = EXPECTED.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(call));
    EXPECTED.set(before);
    result.map_err(|payload| message(&*payload))
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guarded_panic_is_an_error() {
        assert_eq!(guard(|| 1), Ok(1));
        let index = std::hint::black_box(3);
        assert_eq!(guard(|| [1, 2][index]).unwrap_err(), "index out of bounds: the len is 2 but the index is 3");
        assert_eq!(guard(|| guard(|| panic!("inner"))), Ok(Err::<(), _>("inner".to_owned())));
        assert!(!EXPECTED.get());
    }
}
