//! The wheel: programs, metadata and licenses in a zip archive, which pip puts in place. Its one program in Python is
//! `precast-log`.
//! Sources: the binary distribution format, core metadata 2.4 and PEP 770 (bills of materials), packaging.python.org.

use std::io::{Cursor, Write};

use anyhow::Result;
use ct_codecs::{Base64UrlSafeNoPadding, Encoder};
use precast_aot::toolchain::pins::NVRTC;
use precast_fatbins::Digest;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::build::Programs;
use super::files::Entry;
use super::names::wheel_name;
use super::package::About;

/// The program in Python, whose first line pip makes that of the environment's Python.
const LOG: &str = include_str!("../../../trainer/log/precast-log");

/// Packages of trackers, each an extra of its name, from the oldest version on that `cargo xtask peers trackers` has
/// passed.
const TRACKERS: [&str; 3] = ["wandb>=0.19.11", "mlflow>=2.22", "trackio>=0.43"];

/// Returns the name of a wheel and its bytes. `version` is that of wheels.
pub fn wheel(about: &About, version: &str, programs: &Programs, materials: &[u8]) -> Result<(String, Vec<u8>)> {
    let platform = programs.host.platform();
    let (data, info) = (format!("precast-{version}.data"), format!("precast-{version}.dist-info"));
    let mut entries: Vec<Entry> = Vec::new();
    for program in &programs.files {
        entries.push(Entry::program(format!("{data}/scripts/{}", program.name), program.bytes.clone()));
    }
    let log = LOG.replacen("#!/usr/bin/env python3", "#!python", 1);
    entries.push(Entry::program(format!("{data}/scripts/precast-log"), log));
    let texts = about.licenses.iter();
    entries.extend(texts.map(|(name, text)| Entry::text(format!("{info}/licenses/{name}"), text.clone())));
    entries.push(Entry::text(format!("{info}/sboms/precast.cdx.json"), materials));
    entries.push(Entry::text(format!("{info}/METADATA"), metadata(about, version)));
    entries.push(Entry::text(format!("{info}/WHEEL"), tags(&platform)));
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries.push(record(&entries, &format!("{info}/RECORD")));
    Ok((wheel_name(version, programs.host), zipped(&entries)?))
}

fn metadata(about: &About, version: &str) -> String {
    let mut text = format!("Metadata-Version: 2.4\nName: precast\nVersion: {version}\nSummary: {}\n", about.summary);
    text += &format!("Keywords: {}\n", about.keywords.join(","));
    text += "Classifier: Environment :: GPU :: NVIDIA CUDA\n";
    text += "Classifier: Operating System :: POSIX :: Linux\n";
    text += "License-Expression: MIT OR Apache-2.0\n";
    for (name, _) in &about.licenses {
        text += &format!("License-File: {name}\n");
    }
    // The compiler of `precast-aot build`: NVIDIA's own package, under NVIDIA's license.
    text += "Requires-Python: >=3.7\nProvides-Extra: compiler\n";
    text += &format!("Requires-Dist: {}=={}; extra == \"compiler\"\n", NVRTC.package, NVRTC.version);
    for package in TRACKERS {
        let name = package.split_once('>').map_or(package, |(name, _)| name);
        text += &format!("Provides-Extra: {name}\nRequires-Dist: {package}; extra == \"{name}\"\n");
    }
    text += "Description-Content-Type: text/markdown\n\n";
    text + &about.readme
}

fn tags(platform: &str) -> String {
    format!("Wheel-Version: 1.0\nGenerator: cargo xtask release\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n")
}

/// Lists digest and size of every file but itself.
fn record(entries: &[Entry], path: &str) -> Entry {
    let line = |entry: &Entry| format!("{},sha256={},{}\n", entry.path, digest(&entry.bytes), entry.bytes.len());
    Entry::text(path, entries.iter().map(line).collect::<String>() + path + ",,\n")
}

/// The digest as a record has it: in the base64 of file names, without padding.
fn digest(bytes: &[u8]) -> String {
    Base64UrlSafeNoPadding::encode_to_string(Digest::of(bytes).0).expect("a digest is short")
}

/// A zip archive of entries in this order, all of the earliest time that one can say.
fn zipped(entries: &[Entry]) -> Result<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .compression_level(Some(9))
        .last_modified_time(zip::DateTime::default());
    for entry in entries {
        zip.start_file(entry.path.as_str(), options.unix_permissions(entry.mode()))?;
        zip.write_all(&entry.bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::build::Program;
    use super::super::hosts::{HOSTS, Host};
    use super::*;

    fn about() -> About {
        let licenses = vec![("LICENSE-MIT".to_owned(), b"MIT".to_vec())];
        let [summary, readme] = ["A tool", "# A tool\n"].map(str::to_owned);
        About { summary, keywords: vec!["a".to_owned(), "b".to_owned()], readme, licenses }
    }

    fn programs() -> Programs {
        let program =
            |name: &'static str| Program { name, bytes: b"#!/bin/sh\necho 42\n".to_vec(), symbols: Vec::new() };
        Programs { host: HOSTS[0], files: vec![program("precast"), program("precast-aot")] }
    }

    #[test]
    fn pip_installs_the_programs_of_a_wheel() {
        let dir = tempfile::tempdir().unwrap();
        // For the machine at hand, whichever that is.
        let host = Host::own().unwrap();
        let programs = Programs { host, ..programs() };
        let (name, bytes) = wheel(&about(), "1.2.3+unsigned", &programs, b"{}").unwrap();
        assert_eq!(name, format!("precast-1.2.3+unsigned-py3-none-manylinux_2_28_{}.whl", host.machine));
        assert_eq!(bytes, wheel(&about(), "1.2.3+unsigned", &programs, b"{}").unwrap().1);
        std::fs::write(dir.path().join(&name), &bytes).unwrap();
        let target = dir.path().join("installed");
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "--isolated", "--disable-pip-version-check", "--quiet", "install", "--no-index"]);
        pip.arg("--target").arg(&target).arg(dir.path().join(&name));
        crate::run::output(&mut pip).unwrap();
        let installed = target.join("bin/precast");
        assert_eq!(crate::run::output(&mut Command::new(installed)).unwrap(), "42\n");
        let mut log = Command::new(target.join("bin/precast-log"));
        assert!(crate::run::output(log.arg("--help")).unwrap().contains("usage: precast log"));
        let info = target.join("precast-1.2.3+unsigned.dist-info");
        let read = |name: &str| std::fs::read_to_string(info.join(name)).unwrap();
        assert_eq!((read("licenses/LICENSE-MIT"), read("sboms/precast.cdx.json")), ("MIT".into(), "{}".into()));
        let expected = "\
Metadata-Version: 2.4
Name: precast
Version: 1.2.3+unsigned
Summary: A tool
Keywords: a,b
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Operating System :: POSIX :: Linux
License-Expression: MIT OR Apache-2.0
License-File: LICENSE-MIT
Requires-Python: >=3.7
Provides-Extra: compiler
Requires-Dist: nvidia-cuda-nvrtc==13.0.88; extra == \"compiler\"
Provides-Extra: wandb
Requires-Dist: wandb>=0.19.11; extra == \"wandb\"
Provides-Extra: mlflow
Requires-Dist: mlflow>=2.22; extra == \"mlflow\"
Provides-Extra: trackio
Requires-Dist: trackio>=0.43; extra == \"trackio\"
Description-Content-Type: text/markdown

# A tool
";
        assert_eq!(read("METADATA"), expected);
    }

    #[test]
    fn a_record_lists_every_file_of_a_wheel_and_no_other() {
        let (_, bytes) = wheel(&about(), "1.2.3", &programs(), b"{}").unwrap();
        let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
        let mut held: Vec<(String, String)> = Vec::new();
        for index in 0..zip.len() {
            let mut file = zip.by_index(index).unwrap();
            let (name, mut bytes) = (file.name().unwrap().into_owned(), Vec::new());
            let mode = if name.contains("/scripts/") { 0o100_755 } else { 0o100_644 };
            assert_eq!(file.unix_mode(), Some(mode), "{name}");
            std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
            let digest = format!("sha256={},{}", digest(&bytes), bytes.len());
            held.push((name.clone(), if name.ends_with("/RECORD") { ",".to_owned() } else { digest }));
        }
        let mut record = String::new();
        let mut file = zip.by_name("precast-1.2.3.dist-info/RECORD").unwrap();
        std::io::Read::read_to_string(&mut file, &mut record).unwrap();
        let listed = record.lines().filter_map(|line| line.split_once(','));
        assert_eq!(listed.map(|(name, rest)| (name.to_owned(), rest.to_owned())).collect::<Vec<_>>(), held);
        assert!(held.is_sorted_by(|a, b| a.0 < b.0 || b.0.ends_with("/RECORD")), "{held:?}");
    }
}
