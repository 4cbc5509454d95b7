//! A teacher cache: a frozen teacher's last hidden states of sequences, or its most likely tokens, computed once and
//! read by runs in its place.
//!
//! `docs/reference/teacher-cache.md` specifies its files.

mod ahead;
mod cache;
mod compact;
mod error;
mod filling;
mod found;
mod index;
mod key;
mod layout;
mod manifest;
mod refusal;
mod rows;
#[cfg(test)]
mod tests;
mod wire;

pub use ahead::MOST_BYTES;
pub use cache::TeacherCache;
pub use compact::Compact;
pub use error::CacheError;
pub use filling::{Entry, Filling};
pub use index::RECORD_BYTES;
pub use key::Key;
pub use layout::{FORMAT, head, model, stored_bytes};
pub use manifest::{CacheManifest, CacheRecord, FilledBy, Made};
pub use wire::{receive_entries, send_entries};
