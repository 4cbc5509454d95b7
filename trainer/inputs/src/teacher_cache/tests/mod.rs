//! Caches in temporary directories, of a teacher whose rows have four bytes.

mod filling;
mod hostile;
mod reading;
mod wire;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use precast_fatbins::Digest;
use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::Precision;
use precast_system::files::Claim;

use super::filling::unsigned;
use super::layout::LOCK;
use super::{CacheError, Compact, Entry, FORMAT, FilledBy, Filling, Key, Made, TeacherCache, index};

const SEQ_LEN: u32 = 8;

const COMPACT: Compact = Compact { keep_logits: 2, temperature: 1.5, student_vocab: 12 };

fn made() -> Made {
    Made {
        format: FORMAT,
        teacher_sha256: Digest::of(b"teacher"),
        teacher_config_sha256: Digest::of(b"config"),
        teacher_stored: "BF16, 12 tensors".to_owned(),
        precision: Precision::Bf16,
        hidden: 2,
        vocab: 16,
        compact: None,
        seq_len: SEQ_LEN,
        filled_by: Some(FilledBy { kernels_sha256: Digest::of(b"kernels"), arch: "sim".to_owned() }),
        data_sha256: Digest::of(b"data"),
        held_out_sha256: None,
    }
}

fn key(id: u32) -> Key {
    Key::of(&[id, id + 1], &[id + 1, MASKED_TOKEN])
}

/// Rows of sequence `id`, told from all others' by their bytes.
fn rows(id: u32, rows: u32) -> Vec<u8> {
    (0..rows * 4).map(|at| (id * 37 + at * 5 + 1) as u8).collect()
}

/// Fills what is missing of sequences with so many rows each, and syncs behind those that are marked.
fn fill(filling: &mut Filling, sequences: &[(u32, bool)]) {
    for (id, (count, synced)) in (0..).zip(sequences) {
        if !filling.has(&key(id)) {
            filling.push(Entry::new(key(id), rows(id, *count))).unwrap();
        }
        if *synced {
            filling.sync().unwrap();
        }
    }
}

/// A complete cache of sequences with so many rows each.
fn filled(dir: &Path, counts: &[u32]) -> TeacherCache {
    let mut filling = Filling::open(dir, &made()).unwrap();
    fill(&mut filling, &counts.iter().map(|count| (*count, false)).collect::<Vec<_>>());
    let manifest = filling.finish(Digest::of(b"head")).unwrap();
    let cache = TeacherCache::open(dir).unwrap();
    assert_eq!(*cache.manifest(), manifest);
    cache
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn is_damaged<T>(result: Result<T, CacheError>, file: &str) -> bool {
    matches!(result.map(drop), Err(CacheError::Damaged { path, .. }) if path.ends_with(file))
}

/// Computed with Python's hashlib, struct and zlib from the page.
#[test]
fn bytes_are_those_of_the_page() {
    const KEY: &str = "a04b414d53607ecec3e94d7512d35519dcc40e9d5e87a863b762302e5c250a4d";
    const REST: &str = "00000000000000000200000086eb40bd8a851ff82ee7048ad09ec3847f1ddf44";
    let key = Key::of(&[1, 2, 3], &[2, 3, MASKED_TOKEN]);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    let mut filling = Filling::open(&dir, &made()).unwrap();
    let rows: Vec<u8> = (0..8).collect();
    filling.push(Entry::new(key, &rows)).unwrap();
    let manifest = filling.finish(Digest::of(b"head")).unwrap();
    let written = contents(&dir);
    let hex: String = written["index.bin"].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, [KEY, REST].concat());
    assert_eq!(written["hidden.bin"], rows);
    assert_eq!(manifest.index_sha256, Digest::of(&written["index.bin"]));
    assert_eq!((manifest.sequences, manifest.rows, manifest.hidden_bytes), (1, 2, 8));
    assert_eq!(TeacherCache::open(&dir).unwrap().sha256(), Digest::of(&written["cache.json"]));
    assert_eq!(written.keys().collect::<Vec<_>>(), ["cache.json", "hidden.bin", "index.bin"]);
}

#[test]
fn ids_and_targets_decide_the_key() {
    let keys = [([1, 2], [2, 3]), ([1, 2], [2, MASKED_TOKEN]), ([1, 3], [2, 3]), ([2, 1], [2, 3]), ([2, 3], [1, 2])];
    let keys = keys.map(|(ids, targets)| Key::of(&ids, &targets));
    assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), keys.len());
}

#[test]
fn parts_of_compact_rows_lie_side_by_side() {
    let made = Made { compact: Some(COMPACT), ..made() };
    assert_eq!((made.parts(), made.row_bytes()), (vec![8, 12], 20));
    let (ids, log_probs): (Vec<u8>, Vec<u8>) = ((0..16).collect(), (100..124).collect());
    let rows = made.side_by_side(&[ids.clone(), log_probs.clone()]);
    assert_eq!(rows, [&ids[..8], &log_probs[..12], &ids[8..], &log_probs[12..]].concat());
}

#[test]
fn every_difference_of_what_it_is_made_from_is_named() {
    let was = made();
    let is = Made {
        format: 2,
        teacher_sha256: Digest::of(b"another"),
        teacher_config_sha256: Digest::of(b"another"),
        teacher_stored: "Q4_K, 12 tensors".to_owned(),
        precision: Precision::Fp32,
        hidden: 3,
        vocab: 17,
        compact: Some(COMPACT),
        seq_len: 9,
        filled_by: Some(FilledBy { kernels_sha256: Digest::of(b"others"), arch: "sm_90a".to_owned() }),
        data_sha256: Digest::of(b"others"),
        held_out_sha256: Some(Digest::of(b"held-out")),
    };
    let names: Vec<String> = is.differences(&was).into_iter().map(|difference| difference.name).collect();
    assert_eq!(names.len(), 13, "{names:?}");
    let texts = Made { hidden: 3, ..made() }.differences(&was);
    assert_eq!(texts.iter().map(ToString::to_string).collect::<Vec<_>>(), ["the teacher's hidden size was 2, is 3"]);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    drop(Filling::open(&dir, &was).unwrap());
    let before = contents(&dir);
    let Err(error) = Filling::open(&dir, &Made { format: FORMAT, ..is }) else { panic!("it continues") };
    let said = error.to_string();
    assert_eq!(said.lines().filter(|line| line.starts_with("  ")).count(), 12, "{said}");
    assert_eq!(contents(&dir), before);
}
