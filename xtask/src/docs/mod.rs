//! `cargo xtask docs`: the pages as a site with a search, made by a pinned mdbook. Its chapters are those that
//! docs/README.md lists; the pages stay where they are in the tree, so their links lead to the same files.

mod contents;
mod links;
mod site;

pub use site::docs;
