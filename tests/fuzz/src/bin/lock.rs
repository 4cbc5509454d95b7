//! A lock file: what is read is written again.
#![no_main]

use precast_fatbins::Lock;
use precast_fuzz::fixture;

precast_fuzz::target!(
    || {
        let whole = String::from_utf8(fixture("aot/models/locks/built-in.lock")).expect("text");
        let lines: Vec<String> = whole.lines().map(|line| format!("{line}\n")).collect();
        [1, 12].map(|count| lines[..count.min(lines.len())].concat().into_bytes()).into()
    },
    |input: &[u8]| {
        if let Ok(lock) = String::from_utf8_lossy(input).parse::<Lock>() {
            assert_eq!(lock.to_string().parse().as_ref(), Ok(&lock));
            assert!(lock.compare(&lock.clone().merged(lock.clone())).is_empty());
        }
    }
);
