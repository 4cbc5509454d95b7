//! `report.html`: one file, no network, with the curves of a run and what it was.

mod bars;
mod chart;
mod guard;
mod page;
mod samples;
mod summary;
pub(crate) mod svg;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use bars::{Bar, bars};
pub(crate) use chart::{Axis, Chart, Series};
pub(crate) use page::{flatten, page, table};
pub use write::{of_run, write};
