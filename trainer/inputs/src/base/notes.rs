//! Notes to people, which one rank of a run writes.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use precast_system::terminal::message;
pub use precast_system::terminal::tell;
use precast_system::{progress, say, tee};

static SILENT: AtomicBool = AtomicBool::new(false);
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Most notes that [`notes`] keeps.
const MOST_NOTES: usize = 256;

/// Says no more notes in this process, and shows no progress: another one does the same.
pub fn silence() {
    progress::silence();
    SILENT.store(true, Ordering::Relaxed);
}

pub fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Prints a line of results, unless another process prints the same.
pub fn print(line: impl Display) {
    if !is_silent() {
        say!("{line}");
    }
}

/// Tells people something that they need not act on. A silent process leaves it to its log.
pub fn note(text: impl Display) {
    say(format!("note: {text}"), &text.to_string());
}

/// Tells people something that they ought to act on. A silent process leaves it to its log.
pub fn warn(text: impl Display) {
    let line = format!("warning: {text}");
    say(line.clone(), &line);
}

/// Says a line, and keeps a text of it.
fn say(line: String, text: &str) {
    let text = message(text);
    let mut notes = NOTES.lock().unwrap_or_else(PoisonError::into_inner);
    if notes.len() < MOST_NOTES && !notes.contains(&text) {
        notes.push(text);
    }
    drop(notes);
    if is_silent() { tee::line(&message(&line)) } else { tell(line) }
}

/// The notes of this process so far.
pub fn notes() -> Vec<String> {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
