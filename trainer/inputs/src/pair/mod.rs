//! Whether a teacher can teach a student: the same tokens under the same ids, and other weights.

mod chat;
mod check;
mod identical;
mod reader;
mod tokenizers;

pub use check::{Pair, Tokenizers, check, check_tokenizer, check_written};
pub use identical::{identical, nothing_to_learn, same_path};
pub use reader::reader;
