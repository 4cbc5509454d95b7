//! Reads return the rows that were pushed.

use std::sync::Arc;

use proptest::prelude::*;

use precast_fatbins::Digest;

use super::*;
use crate::teacher_cache::ahead::Ahead;
use crate::teacher_cache::rows::Hidden;

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
        prop_assert_eq!(cache.keys(), (0..counts.len() as u32).map(key).collect::<Vec<_>>());
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
    let cache = filled(&dir.path().join("cache"), &[[3; 50].as_slice(), &[1]].concat());
    let hidden = Arc::new(Hidden::open(cache.path(), cache.manifest()).unwrap());
    let ahead = Ahead::bounded(Arc::clone(&hidden), 3 * 12 + 11);
    let keys: Vec<Key> = (0..51).map(key).collect();
    ahead.want(&keys);
    for id in 0..50 {
        assert_eq!(ahead.settled(), if id < 47 { 36 } else { (50 - id) * 12 + 4 });
        assert_eq!(ahead.take(&key(id as u32)).unwrap().unwrap(), rows(id as u32, 3));
    }
    assert!(ahead.take(&key(50)).is_some());
    assert_eq!(ahead.settled(), 0);
    // Those that have no room alone are left to who needs them, and hold nothing up.
    let ahead = Ahead::bounded(hidden, 11);
    ahead.want(&keys);
    assert_eq!(ahead.settled(), 4);
    assert!(ahead.take(&key(0)).is_none() && ahead.take(&key(50)).is_some());
}

#[test]
fn what_is_read_ahead_is_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let cache = filled(&dir.path().join("cache"), &[2, 3]);
    cache.read_ahead(&[key(1)]);
    assert_eq!(cache.ahead.get().unwrap().settled(), 12);
    fs::write(cache.path().join("hidden.bin"), [0; 20]).unwrap();
    assert_eq!(cache.read(&key(1)).unwrap(), rows(1, 3));
    for id in 0..2 {
        assert!(is_damaged(cache.read(&key(id)), "hidden.bin"));
    }
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
    assert_eq!(ahead.settled(), 20);
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
    assert_eq!(filling.new_teacher().unwrap(), dir.join("teacher"));
    filling.finish(Digest::of(b"head")).unwrap();
    let cache = TeacherCache::open(&dir).unwrap();
    assert_eq!((cache.manifest().rows, cache.teacher()), (6, dir.join("teacher")));
    let text = fs::read_to_string(dir.join("cache.json")).unwrap();
    fs::write(dir.join("cache.json"), text.replace("\"format\": 1", "\"format\": 2, \"new\": true")).unwrap();
    assert!(matches!(error(), CacheError::Format { format: 2, .. }));
}
