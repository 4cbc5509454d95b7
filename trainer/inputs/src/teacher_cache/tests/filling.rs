//! Stopped fillings, and directories that are not filled.

use std::fs::OpenOptions;
use std::io::Seek;
use std::os::unix::fs::FileExt;

use proptest::prelude::*;

use precast_fatbins::Digest;

use super::Entry;
use super::*;
use crate::teacher_cache::filling::recover;

/// Damage to the files between two fillings. Places are fractions of the file.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Nothing,
    /// The end of the index, or of the rows, is missing.
    Truncated {
        rows: bool,
        at: f64,
    },
    /// A bit is another.
    Flipped {
        rows: bool,
        at: f64,
    },
    /// More bytes are there than were made durable.
    Longer {
        rows: bool,
        zeros: usize,
    },
}

fn losses() -> impl Strategy<Value = Loss> {
    prop_oneof![
        Just(Loss::Nothing),
        (any::<bool>(), 0.0..=1.0).prop_map(|(rows, at)| Loss::Truncated { rows, at }),
        (any::<bool>(), 0.0..=1.0).prop_map(|(rows, at)| Loss::Truncated { rows, at }),
        (any::<bool>(), 0.0..1.0).prop_map(|(rows, at)| Loss::Flipped { rows, at }),
        (any::<bool>(), 1..200_usize).prop_map(|(rows, zeros)| Loss::Longer { rows, zeros }),
    ]
}

fn lose(dir: &Path, loss: Loss) {
    let path = |rows| dir.join(if rows { "hidden.bin" } else { "index.bin" });
    let resize = |rows, size: &dyn Fn(u64) -> u64| {
        let file = OpenOptions::new().write(true).open(path(rows)).unwrap();
        file.set_len(size(file.metadata().unwrap().len())).unwrap();
    };
    match loss {
        Loss::Nothing => {}
        Loss::Truncated { rows, at } => resize(rows, &|bytes| (bytes as f64 * at) as u64),
        Loss::Longer { rows, zeros } => resize(rows, &|bytes| bytes + zeros as u64),
        Loss::Flipped { rows, at } => {
            let mut bytes = fs::read(path(rows)).unwrap();
            let at = (bytes.len() as f64 * at) as usize;
            bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1);
            fs::write(path(rows), bytes).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However often it is stopped, and whatever part of its files is lost then.
    #[test]
    fn a_filling_continues_to_the_same_bytes(
        sequences in prop::collection::vec((1..=SEQ_LEN, any::<bool>()), 1..12),
        stops in prop::collection::vec((0..12_usize, prop::collection::vec(losses(), 0..3)), 1..4),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let [whole, stopped] = ["whole", "stopped"].map(|name| dir.path().join(name));
        let counts: Vec<u32> = sequences.iter().map(|(count, _)| *count).collect();
        filled(&whole, &counts);
        for (after, losses) in stops {
            let mut filling = Filling::open(&stopped, &made()).unwrap();
            fill(&mut filling, &sequences[..after.min(sequences.len())]);
            // Rows that have no record yet, as after a kill.
            drop(filling);
            losses.into_iter().for_each(|loss| lose(&stopped, loss));
        }
        filled(&stopped, &counts);
        prop_assert_eq!(contents(&whole), contents(&stopped));
    }
}

#[test]
fn what_was_synced_is_there_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Filling::open(&dir.path().join("cache"), &made()).unwrap();
    let mut filling = open();
    fill(&mut filling, &[(1, false), (2, true), (3, false)]);
    assert!(filling.has(&key(2)) && filling.sequences() == 3);
    drop(filling);
    let filling = open();
    assert_eq!([0, 1, 2].map(|id| filling.has(&key(id))), [true, true, false]);
    assert_eq!(filling.sequences(), 2);
    assert_eq!(contents(&dir.path().join("cache"))["hidden.bin"], [rows(0, 1), rows(1, 2)].concat());
}

#[test]
fn a_record_with_another_bit_and_all_behind_it_go() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(&dir.path().join("cache"), &[1, 3, 2]));
    let written = contents(&dir.path().join("cache"));
    let [mut index, mut hidden] = [0; 2].map(|_| tempfile::tempfile().unwrap());
    for at in 0..3 * 64 {
        let mut bytes = written["index.bin"].clone();
        bytes[at] ^= 1 << (at % 8);
        index.write_all_at(&bytes, 0).unwrap();
        hidden.write_all_at(&written["hidden.bin"], 0).unwrap();
        index.rewind().unwrap();
        let (keys, _) = recover(&mut index, &mut hidden, &made(), 1000).unwrap();
        assert_eq!(keys, (0..at as u32 / 64).map(key).collect(), "{at}");
    }
}

/// Every pair of lengths that a kill can leave.
#[test]
fn a_truncated_filling_keeps_what_is_whole_in_both_files() {
    let dir = tempfile::tempdir().unwrap();
    let counts = [1, 3, 2];
    drop(filled(&dir.path().join("cache"), &counts));
    let written = contents(&dir.path().join("cache"));
    let [mut index, mut hidden] = [0; 2].map(|_| tempfile::tempfile().unwrap());
    for index_bytes in 0..=3 * 64 {
        for hidden_bytes in 0..=6 * 4 {
            for (file, name, bytes) in [(&index, "index.bin", index_bytes), (&hidden, "hidden.bin", hidden_bytes)] {
                file.write_all_at(&written[name], 0).unwrap();
                file.set_len(bytes as u64).unwrap();
            }
            index.rewind().unwrap();
            let (keys, end) = recover(&mut index, &mut hidden, &made(), 1000).unwrap();
            let ends = [0, 4, 16, 24];
            let whole = (0..=3).rfind(|count| count * 64 <= index_bytes && ends[*count] <= hidden_bytes).unwrap();
            assert_eq!((keys.len(), end), (whole, ends[whole] as u64), "{index_bytes} {hidden_bytes}");
            assert!((0..3).all(|id| keys.contains(&key(id)) == ((id as usize) < whole)));
            let sizes = [&index, &hidden].map(|file| file.metadata().unwrap().len());
            assert_eq!(sizes, [whole as u64 * 64, end]);
        }
    }
}

#[test]
fn rows_before_the_last_are_not_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("cache");
    drop(filled(&dir, &[2, 2, 2]));
    let mut bytes = fs::read(dir.join("hidden.bin")).unwrap();
    bytes[0] ^= 1;
    fs::write(dir.join("hidden.bin"), bytes).unwrap();
    let open = |name: &str| OpenOptions::new().read(true).write(true).open(dir.join(name)).unwrap();
    let kept = |verified| recover(&mut open("index.bin"), &mut open("hidden.bin"), &made(), verified).unwrap();
    assert_eq!(kept(16).1, 24);
    assert_eq!(kept(17).1, 0);
}

#[test]
#[should_panic(expected = "is there")]
fn a_sequence_is_pushed_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut filling = Filling::open(&dir.path().join("cache"), &made()).unwrap();
    for _ in 0..2 {
        filling.push(Entry::new(key(0), rows(0, 1))).unwrap();
    }
}

#[test]
#[should_panic(expected = "the cache is opened again")]
fn nothing_is_written_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let mut filling = Filling::open(dir.path(), &made()).unwrap();
    fill(&mut filling, &[(1, false)]);
    fs::remove_file(dir.path().join("hidden.bin")).unwrap();
    assert!(matches!(filling.sync(), Err(CacheError::Io(_))));
    let _ = filling.finish(Digest::of(b"head"));
}

#[test]
fn nothing_of_others_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (others, file) = (dir.path().join("others"), dir.path().join("file"));
    fs::create_dir(&others).unwrap();
    for path in [&others.join("notes"), &file] {
        fs::write(path, "precious").unwrap();
    }
    for path in [&others, &file] {
        assert!(matches!(Filling::open(path, &made()), Err(CacheError::NotACache(named)) if named == *path));
    }
    assert_eq!(contents(&others).keys().collect::<Vec<_>>(), ["notes"]);
    // Nor is a file of a cache's name that is no cache's.
    for name in ["cache.json", "filling.json"] {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        for text in ["{\"format\": 1}\n", "{\"format\": 3}\n", "notes"] {
            fs::write(path.join(name), text).unwrap();
            let refused = [Filling::check(&path, &made()).map(drop), Filling::open(&path, &made()).map(drop)];
            assert!(
                refused.iter().all(|refused| matches!(refused, Err(CacheError::NotACache(named)) if *named == path)),
                "{refused:?}"
            );
            assert_eq!(contents(&path).keys().collect::<Vec<_>>(), [name]);
        }
    }
    // What a kill leaves before anything is written is nobody's.
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for name in [LOCK, ".precast-aside-filling.json-abc123"] {
        fs::write(empty.join(name), "").unwrap();
    }
    drop(filled(&empty, &[1]));
    assert_eq!(contents(&empty).keys().collect::<Vec<_>>(), ["cache.json", "hidden.bin", "index.bin"]);
}

#[test]
fn a_link_in_a_filling_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, precious) = (dir.path().join("cache"), dir.path().join("precious"));
    fs::write(&precious, "precious").unwrap();
    for name in ["hidden.bin", "index.bin", "teacher"] {
        drop(Filling::open(&path, &made()).unwrap());
        let there = path.join(name);
        let _ = fs::remove_file(&there);
        std::os::unix::fs::symlink(&precious, &there).unwrap();
        let refused = [Filling::check(&path, &made()).map(drop), Filling::open(&path, &made()).map(drop)];
        assert!(
            refused.iter().all(|refused| matches!(refused, Err(CacheError::NotACache(named)) if *named == there)),
            "{refused:?}"
        );
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        fs::remove_file(&there).unwrap();
    }
}

#[test]
fn one_process_fills_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = Filling::open(dir.path(), &made()).unwrap();
    let own = std::process::id();
    let again = Filling::open(dir.path(), &made());
    assert!(matches!(again, Err(CacheError::Busy { pid: Some(pid), .. }) if pid == own));
    drop(first);
    assert!(Claim::take(&dir.path().join(LOCK)).is_ok());
    let (moved, there) = (dir.path().join("moved"), dir.path().join("there"));
    let mut filling = Filling::open(&there, &made()).unwrap();
    fill(&mut filling, &[(1, false)]);
    fs::rename(&there, moved).unwrap();
    assert!(matches!(filling.finish(Digest::of(b"head")), Err(CacheError::Gone(path)) if path == there));
    assert!(!there.exists());
}

#[test]
fn a_complete_cache_is_not_filled() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path(), &[1]));
    let complete = contents(dir.path());
    let (dir, made) = (dir.path(), made());
    let tried = [
        Filling::open(dir, &made).map(drop),
        Filling::check(dir, &made).map(drop),
        Filling::settle(dir, &made, unsigned).map(drop),
    ];
    assert!(tried.iter().all(|tried| matches!(tried, Err(CacheError::Complete(_)))), "{tried:?}");
    assert_eq!(contents(dir), complete);
}

/// Its filling was killed behind its manifest.
#[test]
fn what_is_left_in_a_complete_cache_is_removed_by_its_own_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    drop(filled(dir, &[1, 2]));
    let complete = contents(dir);
    let filling = super::super::manifest::text(&made());
    for left in [&["filling.json", LOCK][..], &[LOCK]] {
        left.iter().for_each(|name| fs::write(dir.join(name), &filling).unwrap());
        let before = contents(dir);
        assert!(TeacherCache::open(dir).is_ok());
        let other = Made { teacher_stored: "Q4_K, 12 tensors".to_owned(), ..made() };
        for refused in [Filling::check(dir, &other).map(drop), Filling::settle(dir, &other, unsigned).map(drop)] {
            assert!(matches!(refused, Err(CacheError::Complete(_))));
        }
        assert_eq!(Filling::check(dir, &made()).unwrap(), 2);
        assert_eq!(contents(dir), before);
        assert_eq!(Filling::settle(dir, &made(), unsigned).unwrap().unwrap().sequences, 2);
        assert_eq!(contents(dir), complete);
    }
}
