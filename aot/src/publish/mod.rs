//! Publishes a bundle as an OCI image layout with locks, bill of materials, provenance and signatures; writing needs no
//! network, and everything is checked in full before it is installed.
//!
//! The layout holds one artifact manifest whose layers are the files, each named by its title, and, if signed, a second
//! manifest that refers to the first and carries the signature over its bytes: trust in the key covers every file.
//! `fatbins/README.md` lists media types and annotations.

mod archive;
mod content;
pub mod documents;
mod error;
mod fetch;
mod layout;
mod names;
mod provenance;
mod sbom;
mod write;

pub use error::{LayoutError, PublishError};
pub use fetch::{Fetched, check_replaceable, fetch};
pub use layout::Layout;
pub use names::{media, title};
pub use write::{Signer, publish};
