//! Damaged and made-up files are refused, and bring no panic.

use proptest::prelude::*;

use super::*;
use crate::teacher_cache::CacheManifest;
use crate::teacher_cache::index::{Span, encode};
use crate::teacher_cache::manifest::text;

/// Opens a cache of three sequences and reads all of it, or returns the first error.
fn exercise(dir: &Path) -> Result<Vec<Vec<u8>>, CacheError> {
    let cache = TeacherCache::open(dir)?;
    (0..3).map(|id| cache.read(&key(id))).collect()
}

#[test]
fn a_flipped_bit_of_any_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    let digest = filled(&dir, &[1, 2, 3]).sha256();
    for (name, whole) in contents(&dir) {
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(dir.join(&name), bytes).unwrap();
            match &*name {
                "index.bin" => assert!(is_damaged(TeacherCache::open(&dir), &name), "{at}"),
                "hidden.bin" => {
                    assert!(TeacherCache::open(&dir).is_ok());
                    assert!(is_damaged(exercise(&dir), &name), "{at}");
                }
                // What a run compares with its own.
                _ => assert!(TeacherCache::open(&dir).map_or(true, |cache| cache.sha256() != digest), "{at}"),
            }
        }
        fs::write(dir.join(&name), whole).unwrap();
    }
    assert!(exercise(&dir).is_ok());
}

#[test]
fn a_truncated_or_missing_file_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    let cache = filled(&dir, &[1, 2, 3]);
    for (name, whole) in contents(&dir) {
        for bytes in 0..whole.len() {
            fs::write(dir.join(&name), &whole[..bytes]).unwrap();
            assert!(is_damaged(TeacherCache::open(&dir), &name), "{name} {bytes}");
        }
        fs::write(dir.join(&name), &whole[..whole.len() / 2]).unwrap();
        // Also after it was opened.
        assert_eq!(is_damaged(cache.read(&key(2)), &name), name == "hidden.bin");
        fs::remove_file(dir.join(&name)).unwrap();
        let missing = TeacherCache::open(&dir).map(drop);
        match &*name {
            "cache.json" => assert!(matches!(missing, Err(CacheError::Missing(_)))),
            _ => assert!(is_damaged(missing, &name)),
        }
        fs::write(dir.join(&name), whole).unwrap();
    }
    assert!(exercise(&dir).is_ok());
}

#[test]
fn a_cache_of_no_sequence_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    Filling::open(&dir, &made()).unwrap().finish(Digest::of(b"head")).unwrap();
    assert!(is_damaged(TeacherCache::open(&dir), "cache.json"));
}

#[test]
fn a_manifest_has_one_text() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    drop(filled(&dir, &[1]));
    let text = fs::read_to_string(dir.join("cache.json")).unwrap();
    for (from, to) in [("  \"rows\"", " \"rows\""), ("\"rows\"", "\"more\": 1,\n  \"rows\""), ("\"bf16\"", "\"bf8\"")] {
        let other = text.replace(from, to);
        assert_ne!(other, text);
        fs::write(dir.join("cache.json"), other).unwrap();
        assert!(is_damaged(TeacherCache::open(&dir), "cache.json"), "{to}");
    }
}

/// An index with right checks that is not the manifest's, and rows that no record names.
#[test]
fn files_that_do_not_go_together_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    let manifest = filled(&dir, &[1, 2]).manifest().clone();
    let mut written = contents(&dir);
    let span = Span { offset: 4, rows: 2, checksum: index::checksum(&rows(1, 2)) };
    fs::write(dir.join("index.bin"), [&written["index.bin"][..64], &encode(&key(1), &span)].concat()).unwrap();
    assert!(exercise(&dir).is_err_and(|error| matches!(error, CacheError::NoSequence { .. })));
    fs::write(dir.join("index.bin"), [&written["index.bin"][..64], &encode(&key(2), &span)].concat()).unwrap();
    assert!(is_damaged(TeacherCache::open(&dir), "index.bin"));
    fs::write(dir.join("index.bin"), &written["index.bin"]).unwrap();
    let longer = CacheManifest { rows: 4, hidden_bytes: 16, ..manifest };
    fs::write(dir.join("cache.json"), text(&longer)).unwrap();
    let hidden = written.get_mut("hidden.bin").unwrap();
    hidden.extend([0; 4]);
    fs::write(dir.join("hidden.bin"), hidden).unwrap();
    assert!(is_damaged(TeacherCache::open(&dir), "index.bin"));
}

fn counts() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        1..8_u64,
        Just(u64::from(u32::MAX)),
        Just(u64::MAX / 4),
        Just(u64::MAX / 64 + 1),
        Just(u64::MAX)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Records with their checks and an index with its digest, whose offsets and counts are anything.
    #[test]
    fn hostile_files_are_refused(
        records in prop::collection::vec((0..3_u32, counts(), 0..4_u64, prop::bool::weighted(0.8)), 0..4),
        totals in (counts(), counts(), counts()),
        right in prop::array::uniform4(prop::bool::weighted(0.9)),
        sizes in prop_oneof![3 => Just((2, SEQ_LEN)), 1 => Just((u32::MAX, u32::MAX)), 1 => Just((0, SEQ_LEN))],
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut index, mut hidden, mut end) = (Vec::new(), Vec::new(), 0);
        for (id, offset, count, follows) in &records {
            let own = rows(*id, *count as u32);
            let span = Span {
                offset: if *follows { end } else { *offset },
                rows: if *follows { *count as u32 } else { *offset as u32 },
                checksum: index::checksum(&own),
            };
            index.extend(encode(&key(*id), &span));
            end += own.len() as u64;
            hidden.extend(own);
        }
        let (sequences, rows, bytes) = totals;
        let made = Made { hidden: sizes.0, seq_len: sizes.1, ..made() };
        let manifest = CacheManifest {
            head_sha256: Digest::of(b"head"),
            made: made.clone(),
            sequences: if right[0] { records.len() as u64 } else { sequences },
            rows: if right[1] { end / 4 } else { rows },
            hidden_bytes: if right[2] { end } else { bytes },
            index_sha256: Digest::of(&index),
        };
        hidden.truncate(if right[3] { hidden.len() } else { hidden.len() / 2 });
        for (name, content) in [("index.bin", &index), ("hidden.bin", &hidden), ("filling.json", &text(&made).into())] {
            fs::write(dir.path().join(name), content).unwrap();
        }
        // A filling keeps what is whole of it.
        if made.hidden > 0 {
            let kept = Filling::open(dir.path(), &made).unwrap().sequences();
            prop_assert!(kept <= records.len() as u64);
            for (name, content) in [("index.bin", &index), ("hidden.bin", &hidden)] {
                let kept = fs::read(dir.path().join(name)).unwrap();
                prop_assert!(content.starts_with(&kept));
                fs::write(dir.path().join(name), content).unwrap();
            }
        }
        fs::write(dir.path().join("cache.json"), text(&manifest)).unwrap();
        let ids: std::collections::HashSet<u32> = records.iter().map(|(id, ..)| *id).collect();
        let fit = manifest.rows.checked_mul(made.row_bytes()) == Some(manifest.hidden_bytes)
            && manifest.sequences == ids.len() as u64
            && hidden.len() as u64 == manifest.hidden_bytes;
        let is_right = sizes.0 == 2
            && !ids.is_empty()
            && fit
            && ids.len() == records.len()
            && records.iter().all(|(.., count, follows)| *count > 0 && *follows);
        match TeacherCache::open(dir.path()) {
            Err(CacheError::Damaged { .. }) => prop_assert!(!is_right),
            Err(error) => prop_assert!(false, "{}", error),
            Ok(cache) => {
                prop_assert!(is_right);
                for (id, _, count, _) in &records {
                    prop_assert_eq!(cache.read(&key(*id)).unwrap(), super::rows(*id, *count as u32));
                }
            }
        }
    }
}

#[test]
fn a_compact_form_that_cannot_be_is_damaged() {
    for (keep_logits, student_vocab) in [(0, 12), (12, 12), (1025, 5000)] {
        let compact = Compact { keep_logits, student_vocab, ..COMPACT };
        let made = Made { compact: Some(compact), ..made() };
        let dir = tempfile::tempdir().unwrap();
        let mut filling = Filling::open(dir.path(), &made).unwrap();
        filling.push(Entry::new(key(1), vec![0; made.row_bytes() as usize])).unwrap();
        filling.finish(Digest::of(b"head")).unwrap();
        assert!(is_damaged(TeacherCache::open(dir.path()), "cache.json"), "{compact}");
    }
}
