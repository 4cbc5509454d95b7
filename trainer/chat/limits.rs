//! Limits of templates, which strangers write: how long one is, and how long a row takes it.

use minijinja::{Environment, Error, ErrorKind};

/// Bytes of a template: those of models have at most a half, and the parser takes time by the square.
const MOST_BYTES: usize = 128 << 10;
/// Holds the parser of a template of [`MOST_BYTES`] that is nothing but operators, or `elif`.
const STACK_BYTES: usize = 512 << 20;
/// Instructions that a row takes at most: a message takes some hundreds.
const INSTRUCTIONS: u64 = if cfg!(test) { 1_000_000 } else { 20_000_000 };
/// Macros and loops within each other: the stack of a thread that reads data holds as many.
const MOST_CALLS: usize = 100;

/// Adds a template to an environment, and limits both.
///
/// # Errors
/// Why it is not taken: its length, what the engine says as `what` words it, or that there is no thread to parse it.
pub(super) fn add(
    environment: &mut Environment<'static>,
    name: &'static str,
    text: String,
    what: fn(&Error) -> String,
) -> Result<(), String> {
    if text.len() > MOST_BYTES {
        return Err(format!("it has {} bytes, and at most {MOST_BYTES} are read", text.len()));
    }
    environment.set_recursion_limit(MOST_CALLS);
    environment.set_fuel(Some(INSTRUCTIONS));
    std::thread::scope(|scope| {
        let parse = || environment.add_template_owned(name, text).map_err(|error| what(&error));
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, parse);
        let parsed = thread.map_err(|error| format!("no thread parses it: {error}"))?.join();
        parsed.unwrap_or_else(|_| Err("the template engine panics".to_owned()))
    })
}

/// Why a row's text is not made, where a limit is the reason.
pub(super) fn reason(error: &Error) -> Option<String> {
    (error.kind() == ErrorKind::OutOfFuel).then(|| format!("it takes more than {INSTRUCTIONS} instructions"))
}
