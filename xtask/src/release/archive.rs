//! Archives as `tar.xz`: entries sorted, without times, owners and hosts.

use std::io::Write;

use anyhow::Result;
use lzma_rust2::{XzOptions, XzWriter};

use super::files::Entry;

/// Seconds since 1970 at which every entry was changed: 1980 began, as early as a zip archive can say.
const CHANGED: u64 = 315_532_800;

/// Packs files below a folder of the archive's name, by xz at its usual level, 6.
pub fn tar_xz(folder: &str, entries: &[Entry]) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut tar = tar::Builder::new(XzWriter::new(Vec::new(), XzOptions::default())?);
    for entry in sorted {
        let mut header = tar::Header::new_ustar();
        header.set_size(entry.bytes.len() as u64);
        header.set_mode(entry.mode());
        header.set_mtime(CHANGED);
        tar.append_data(&mut header, format!("{folder}/{}", entry.path), &entry.bytes[..])?;
    }
    let mut xz = tar.into_inner()?;
    xz.flush()?;
    Ok(xz.finish()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::run::output;

    #[test]
    fn an_archive_has_no_trace_of_who_made_it_and_stock_tar_reads_it() {
        let entries = [Entry::text("share/readme", "text"), Entry::program("bin/tool", "#!/bin/sh\necho 42\n")];
        let archive = tar_xz("tool-1.0", &entries).unwrap();
        let turned = [entries[1].clone(), entries[0].clone()];
        assert_eq!(archive, tar_xz("tool-1.0", &turned).unwrap(), "in any order");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool.tar.xz");
        std::fs::write(&file, archive).unwrap();
        let tar = |arguments: &[&str]| {
            let mut tar = Command::new("tar");
            output(tar.env("TZ", "UTC").args(arguments).arg("--file").arg(&file).current_dir(dir.path())).unwrap()
        };
        assert_eq!(
            tar(&["--list", "--verbose", "--numeric-owner", "--full-time"]),
            "-rwxr-xr-x 0/0              18 1980-01-01 00:00:00 tool-1.0/bin/tool\n\
             -rw-r--r-- 0/0               4 1980-01-01 00:00:00 tool-1.0/share/readme\n"
        );
        tar(&["--extract"]);
        assert_eq!(output(&mut Command::new(dir.path().join("tool-1.0/bin/tool"))).unwrap(), "42\n");
    }
}
