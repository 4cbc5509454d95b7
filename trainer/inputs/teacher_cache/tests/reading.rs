//! What is read is what was pushed.

use std::sync::Arc;

use proptest::prelude::*;

use precast_fatbins::Digest;

use super::*;
use crate::inputs::teacher_cache::ahead::Ahead;
use crate::inputs::teacher_cache::rows::Hidden;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_come_back_as_they_were_pushed(
        counts in prop::collection::vec(1..=SEQ_LEN, 1..20),
        order in prop::collection::vec(0..24_u32, 1..40),
        ahead in prop::collection::vec(0..24_u32, 0..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let cache = filled(&dir.path().join("cache"), &counts);
        cache.read_ahead(&ahead.into_iter().map(key).collect::<Vec<_>>());
        for id in order {
            let pushed = counts.get(id as usize).map(|count| rows(id, *count));
            prop_assert_eq!(cache.has(&key(id)), pushed.is_some());
            match (cache.read(&key(id)), pushed) {
                (Ok(read), Some(pushed)) => prop_assert_eq!(read, pushed),
                (Err(CacheError::NoSequence { path, key: missing }), None) => {
                    prop_assert_eq!((path.as_path(), missing), (cache.path(), key(id)));
                }
                (read, pushed) => prop_assert!(false, "{:?} {:?}", read, pushed),
            }
        }
    }
}

#[test]
fn no_more_is_read_ahead_than_there_is_room_for() {
    let dir = tempfile::tempdir().unwrap();
    let (counts, most_bytes) = ([3; 50], 3 * 12 + 11);
    let cache = filled(&dir.path().join("cache"), &counts);
    let hidden = Arc::new(Hidden::open(cache.path(), cache.manifest()).unwrap());
    let ahead = Ahead::bounded(Arc::clone(&hidden), most_bytes);
    let keys: Vec<Key> = (0..50).map(key).collect();
    ahead.want(&keys);
    while ahead.bytes() < 36 {
        std::thread::yield_now();
    }
    for id in 0..50 {
        assert!(ahead.bytes() <= 36);
        let read = ahead.take(&key(id)).unwrap_or_else(|| hidden.read(&key(id))).unwrap();
        assert_eq!(read, rows(id, 3));
    }
    assert_eq!(ahead.bytes(), 0);
    // One that has no room alone is left to who needs it.
    let ahead = Ahead::bounded(hidden, 11);
    ahead.want(&keys);
    assert!(ahead.take(&key(0)).is_none());
}

#[test]
fn what_fails_ahead_fails_when_it_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let cache = filled(&dir.path().join("cache"), &[2, 3]);
    let path = cache.path().join("hidden.bin");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] ^= 1;
    fs::write(&path, bytes).unwrap();
    let hidden = Arc::new(Hidden::open(cache.path(), cache.manifest()).unwrap());
    let ahead = Ahead::bounded(hidden, 1000);
    ahead.want(&[key(0), key(1), key(2)]);
    while ahead.bytes() < 20 {
        std::thread::yield_now();
    }
    assert_eq!(ahead.take(&key(0)).unwrap().unwrap(), rows(0, 2));
    let failed = ahead.take(&key(1)).unwrap().unwrap_err();
    assert!(failed.to_string().contains("hidden.bin: the 12 bytes at 8 do not have their checksum"), "{failed}");
    assert!(ahead.take(&key(1)).is_none() && ahead.take(&key(2)).is_none());
}

#[test]
fn a_cache_that_is_not_complete_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    let error = || TeacherCache::open(&dir).map(drop).unwrap_err();
    assert!(matches!(error(), CacheError::Missing(_)));
    let mut filling = Filling::open(&dir, &made()).unwrap();
    fill(&mut filling, &[(1, false), (2, true), (3, false)]);
    assert!(matches!(error(), CacheError::Incomplete { sequences: 2, .. }));
    assert_eq!(filling.teacher(), dir.join("teacher"));
    filling.finish(Digest::of(b"data")).unwrap();
    let cache = TeacherCache::open(&dir).unwrap();
    assert_eq!((cache.manifest().rows, cache.teacher()), (6, dir.join("teacher")));
    let text = fs::read_to_string(dir.join("cache.json")).unwrap();
    fs::write(dir.join("cache.json"), text.replace("\"format\": 1", "\"format\": 2, \"new\": true")).unwrap();
    assert!(matches!(error(), CacheError::Format { format: 2, .. }));
}
