use std::io::ErrorKind;

use super::*;
use crate::teacher_cache::wire::{receive_entries, send_entries};

#[test]
fn sequences_arrive_as_they_were_sent_and_nothing_else_does() {
    let made = Made { hidden: 1, seq_len: 2, ..made() };
    let row = made.row_bytes() as usize;
    let entry = |id: u32, rows: usize| Entry::new(Key::of(&[id, 0], &[0, 0]), vec![id as u8; rows * row]);
    let mut sent = Vec::new();
    for batch in [&[entry(1, 2), entry(2, 1)][..], &[]] {
        send_entries(&mut sent, batch).unwrap();
    }
    let mut from = &sent[..];
    let received = receive_entries(&mut from, &made).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut filling = Filling::open(&dir.path().join("cache"), &made).unwrap();
    received.into_iter().for_each(|entry| filling.push(entry).unwrap());
    filling.finish(Digest::of(b"head")).unwrap();
    let cache = TeacherCache::open(&dir.path().join("cache")).unwrap();
    for (id, rows) in [(1, 2), (2, 1)] {
        assert_eq!(cache.read(&Key::of(&[id, 0], &[0, 0])).unwrap(), vec![id as u8; rows * row]);
    }
    assert!(receive_entries(&mut from, &made).unwrap().is_empty() && from.is_empty());
    assert_eq!(receive_entries(&mut &sent[..sent.len() - 5], &made).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    // More than any sequence has, a part of a row, and none.
    for bytes in [3 * row as u64, row as u64 + 1, 0, u64::MAX] {
        let mut wrong = sent.clone();
        wrong[4 + 48..4 + 56].copy_from_slice(&bytes.to_le_bytes());
        assert_eq!(
            receive_entries(&mut &wrong[..], &made).err().map(|error| error.kind()),
            Some(ErrorKind::InvalidData)
        );
    }
}
