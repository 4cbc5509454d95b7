//! Each change that a run makes to its files fails once: the run ends by an error that says why, and continues to the
//! bits of one that nothing disturbed.

use std::collections::BTreeMap;

use crate::kill::{kept, lines, run, undisturbed};
use crate::support::prelude::*;

/// Has each change of a run of two steps fail, or each seventh, and continues the run. Returns how often it ended so.
fn fail_at_changes(case: &Case, prepare: impl Fn(&Path), start: &str) -> BTreeMap<i32, u32> {
    let (whole, out) = (undisturbed(case, 2, ""), case.out());
    let begin = || {
        let _ = fs::remove_dir_all(&out);
        prepare(&out);
        run(case, "out", 2, 1, start)
    };
    // As many as kill it.
    let (mut some, mut more) = (0, 256);
    while some + 1 < more {
        let at = (some + more) / 2;
        *if is_killed_at(at, &mut begin()) { &mut some } else { &mut more } = at;
    }
    assert!(more < 256, "the search has to begin further on");
    let mut ends = BTreeMap::new();
    for at in (1..=some).step_by(each_of(7)) {
        let (code, _, said) = begin().env("PRECAST_FAIL_AT", at.to_string()).ends();
        let (code, what) = (code.unwrap(), format!("change {at} of {some}: {said}"));
        let is_named = ["No space left on device", "Input/output error"].iter().any(|error| said.contains(error));
        assert!(!said.contains("panicked") && code == 1 && is_named, "{what}");
        let kept = kept(case);
        goes_on(&mut run(case, "out", 2, 1, continuation(&out)), &what);
        assert!(case.results("out") == whole, "{what}: other results");
        assert!(lines(case).starts_with(&kept), "{what}: kept lines changed");
        // A checkpoint that could not be removed stays in a run that is over.
        let left = |names: Vec<String>| names.iter().any(|name| name.starts_with(".precast-aside"));
        assert!(!left(case.names("")) && !left(case.names("out")), "{what}: left aside");
        *ends.entry(code).or_default() += 1;
    }
    eprintln!("{some} changes, exit codes: {ends:?}");
    ends
}

#[test]
fn a_run_whose_files_fail_ends_by_their_names_and_continues() {
    skip_if!(is_on_gpu());
    let ends = fail_at_changes(&crate::kill::case(), |_| {}, "");
    assert!(ends[&1] > 80 / each_of(7) as u32, "{ends:?}");
}

#[test]
fn a_resumed_run_whose_files_fail_ends_by_their_names_and_continues() {
    skip_if!(is_on_gpu());
    let case = crate::kill::case();
    run(&case, "first", 1, 1, "").succeeds();
    let ends = fail_at_changes(&case, |out| copy(&case.path("first"), out), "--resume");
    assert!(ends[&1] > 50 / each_of(7) as u32, "{ends:?}");
}
