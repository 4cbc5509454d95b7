//! Limits of templates, which strangers write: how long one is, how long a row takes it, and how much memory.

use minijinja::{Environment, Error, ErrorKind};

use crate::base::bounded::{self, Bounds, Exceeded};

/// Bytes of a template: those of models have at most a half, and the parser takes time by the square.
const MOST_BYTES: usize = 128 << 10;
/// Instructions that a row takes at most: a message takes some hundreds.
const INSTRUCTIONS: u64 = if cfg!(test) { 1_000_000 } else { 20_000_000 };
/// What a template is parsed with, and a row rendered: instructions that double a text are as short as others.
const BOUNDS: Bounds = Bounds { bytes: if cfg!(test) { 32 << 20 } else { 256 << 20 }, seconds: 60 };
/// Macros and loops within each other.
const MOST_CALLS: usize = 100;

/// An environment with a template in it, both limited.
///
/// # Errors
/// Why it is not taken: its length, what the engine says as `what` words it, or which of [`BOUNDS`] it exceeds.
pub(super) fn add(
    mut environment: Environment<'static>,
    name: &'static str,
    text: String,
    what: fn(&Error) -> String,
) -> Result<Environment<'static>, String> {
    if text.len() > MOST_BYTES {
        return Err(format!("it has {} bytes, and at most {MOST_BYTES} are read", text.len()));
    }
    environment.set_recursion_limit(MOST_CALLS);
    environment.set_fuel(Some(INSTRUCTIONS));
    let parse = move || environment.add_template_owned(name, text).map(|()| environment).map_err(|error| what(&error));
    within(parse).unwrap_or_else(|exceeded| Err(exceeded.to_string()))
}

/// Does what a template asks for.
///
/// # Errors
/// [`Exceeded`].
pub(super) fn within<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Exceeded> {
    bounded::run(BOUNDS, work)
}

/// Why a row's text is not made, where a limit is the reason.
pub(super) fn reason(error: &Error) -> Option<String> {
    (error.kind() == ErrorKind::OutOfFuel).then(|| format!("it takes more than {INSTRUCTIONS} instructions"))
}
