//! Rows of a table in a Parquet file.
#![no_main]

use precast_fuzz::{data, fixtures};

precast_fuzz::target!(
    || {
        let folders = ["tests/fixtures/data", "tests/fixtures/masks"];
        folders.iter().flat_map(|folder| fixtures(folder, ".parquet")).collect()
    },
    |input: &[u8]| data::read("data.parquet", input)
);
