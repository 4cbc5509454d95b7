//! Writes files and directories whole or not at all.

mod aside;
mod aside_file;
mod changes;
mod claim;
mod fault;
mod limit;
mod listing;
mod whole;

pub use aside::{Aside, Existing, Writer, asides, is_aside, remove_directory, sweep};
pub use aside_file::AsideFile;
pub use changes::{append, has_placed, remove_file, rename, sync, truncate};
pub use claim::{Claim, ClaimError};
pub use limit::{is_past_limit, outlive_limit};
pub use listing::{LISTING, Listing, ListingError, check_replaceable, digest, walk};
pub use whole::{free_bytes, write_directory, write_whole};
