//! An APR file whose checksums are right.
#![no_main]

use std::process::Command;

use precast_fuzz::{Folder, checkout, model};

/// The header's size and the place of its checksum, bytes.
const HEADER: usize = 64;
const CHECKSUM: std::ops::Range<usize> = 40..44;

precast_fuzz::target!(seeds, |input: &[u8]| {
    thread_local!(static FOLDER: Folder = Folder::new());
    FOLDER.with(|folder| model::read(&folder.put("model.apr", &summed(input.to_vec()))));
});

/// Returns files of both families, as a program writes them that knows nothing of this one.
fn seeds() -> Vec<Vec<u8>> {
    let folder = Folder::new();
    let write = |arguments: &[&str]| {
        let mut python = Command::new("python3");
        python.arg(checkout("tests/apr/write.py")).arg(folder.path("apr")).args(arguments);
        assert!(python.status().expect("python3 starts").success(), "tests/apr/write.py");
        folder.read("apr/model.apr")
    };
    let kinds =
        ["F32", "F16", "BF16", "Q4_K", "Q6_K", "AprQ4", "AprQ8"].map(|kind| write(&["--small", "--only", kind]));
    let others = [&["--small"][..], &["--small", "--family", "llama"], &["--small", "--tied", "--older"]].map(write);
    kinds.into_iter().chain(others).collect()
}

/// Writes the checksums of the header and of all into their places.
fn summed(mut file: Vec<u8>) -> Vec<u8> {
    if file.len() >= HEADER + CHECKSUM.len() {
        let end = file.len() - CHECKSUM.len();
        let header = [&file[..CHECKSUM.start], &file[CHECKSUM.end..HEADER]].concat();
        file[CHECKSUM].copy_from_slice(&crc32fast::hash(&header).to_le_bytes());
        let all = crc32fast::hash(&file[..end]).to_le_bytes();
        file[end..].copy_from_slice(&all);
    }
    file
}
