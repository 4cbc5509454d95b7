//! `precast cache --gpus`: the bytes of one GPU on any number of them, and one end for all.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;

use crate::support::prelude::*;
use crate::support::{as_rank, free_address};
use crate::teacher_cache::{contents_of, fill};
use crate::teacher_cache_filled::{least_memory, unfinish};

#[test]
fn several_gpus_give_the_bytes_of_one() {
    skip_if!(is_on_gpu());
    let case = Case::of_layers(3, 17 * 14);
    token_file(case.dir.path(), "held-out.bin", 17 * 3, 90);
    // Rows that are there twice are computed once, and the last batch is not full.
    let words = "--data data.bin --data data.bin --eval-data held-out.bin";
    fill(&case, "whole", words).succeeds();
    let whole = contents_of(&case, "whole");
    for gpus in ["1", "2", "3"] {
        let filled = fill(&case, gpus, [words, "--json --gpus", gpus]).json();
        assert_eq!([&filled["sequences"], &filled["continued"]], [17, 0], "{filled}");
        assert!(contents_of(&case, gpus) == whole, "{gpus}");
    }
    // More than there are batches.
    fill(&case, "idle", [words, "--gpus 7"]).succeeds();
    assert!(contents_of(&case, "idle") == whole);
    // As a sweep, in which a pass of each takes some batches.
    let least = least_memory(&case, words);
    let memory = format!("--memory {}", least + least / 8);
    let [_, said] = fill(&case, "swept", [words, &memory, "--gpus 2"]).says();
    assert_eq!(said.matches("it is swept through").count(), 1, "{said}");
    assert!(contents_of(&case, "swept") == whole);
}

#[test]
fn a_stopped_filling_goes_on_on_another_number_of_gpus() {
    skip_if!(is_on_gpu());
    let case = Case::of_layers(1, 17 * 10);
    fill(&case, "whole", "").succeeds();
    let whole = contents_of(&case, "whole");
    for (at, gpus) in [(6, "1"), (12, "3"), (15, "2"), (17, "3")] {
        let _ = fs::remove_dir_all(case.path("cache"));
        let (code, _, said) = fill(&case, "cache", "--gpus 2").env("PRECAST_KILL_AT", at.to_string()).ends();
        assert!(code == Some(1) && said.contains("rank 0 of 2 failed: its connection is closed"), "{at}: {said}");
        fill(&case, "cache", ["--gpus", gpus]).succeeds();
        assert!(contents_of(&case, "cache") == whole, "{at}: {:?}", case.names("cache"));
    }
    // Behind a part of a batch.
    for (sequences, gpus) in [(4, "2"), (5, "3")] {
        unfinish(&case, "cache");
        File::options().write(true).open(case.path("cache/index.bin")).unwrap().set_len(sequences * 64).unwrap();
        let filled = fill(&case, "cache", ["--json --gpus", gpus]).json();
        assert_eq!(filled["continued"], sequences);
        assert!(contents_of(&case, "cache") == whole, "{sequences}");
    }
}

/// Ranks as a launcher starts them.
struct Job(Case, String);

impl Job {
    fn new(tokens: u32) -> Self {
        Self(Case::of_layers(1, tokens), free_address())
    }

    fn start(&self, rank: u32, words: &str) -> Child {
        start(&as_rank(fill(&self.0, "cache", ["--json", words]), [rank, 2], &self.1))
    }

    /// Starts both, and returns them once rows of the second have arrived.
    fn both(&self) -> [Child; 2] {
        let _ = fs::remove_dir_all(self.0.path("cache"));
        let mut ranks = [0, 1].map(|rank| self.start(rank, ""));
        let rows = self.0.path("cache/hidden.bin");
        wait_while(&mut ranks[0], || fs::metadata(&rows).map_or(0, |file| file.len()) < 8 * 16 * 64);
        ranks
    }
}

#[test]
fn a_rank_that_dies_ends_the_filling_by_its_name() {
    skip_if!(is_on_gpu());
    let job = Job::new(17 * 3000);
    fill(&job.0, "whole", "").succeeds();
    for killed in [0, 1] {
        let mut ranks = job.both();
        signal(&ranks[killed], "KILL");
        assert_eq!(ranks[killed].wait().unwrap().signal(), Some(9));
        let [first, second] = ranks;
        let left = if killed == 0 { second } else { first };
        let said = ends(left, 1, "");
        assert!(said.starts_with(&format!("error: rank {killed} of 2 failed: its connection is closed")), "{said}");
        fill(&job.0, "cache", "--gpus 3").succeeds();
        assert!(contents_of(&job.0, "cache") == contents_of(&job.0, "whole"), "{killed}");
    }
}

#[test]
fn a_signal_ends_the_filling_on_all_gpus() {
    skip_if!(is_on_gpu());
    let job = Job::new(17 * 10_000);
    for (asked, name, code) in [(0, "INT", 130), (1, "TERM", 143)] {
        let ranks = job.both();
        signal(&ranks[asked], name);
        let [first, second] = ranks.map(end);
        assert_eq!([first.0, second.0], [Some(code); 2], "{name}");
        // Who is asked says so itself.
        let (said, silent) = if asked == 0 { (second, first) } else { (first, second) };
        assert_eq!(said.1, format!("error: rank {asked} of 2 failed: stopped by SIG{name}"));
        assert_eq!(silent.1, "");
    }
    let Job(case, _) = job;
    fs::remove_dir_all(case.path("cache")).unwrap();
    let mut parent = start(&fill(&case, "cache", "--gpus 2"));
    wait_while(&mut parent, || !case.has("cache/hidden.bin"));
    signal(&parent, "INT");
    let output = parent.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(130) && said.matches("SIGINT").count() == 1, "{said}");
    assert!(!said.contains("error: "), "{said}");
}

#[test]
fn ranks_that_fill_from_something_else_are_refused() {
    skip_if!(is_on_gpu());
    let job = Job::new(17 * 3);
    token_file(job.0.dir.path(), "other.bin", 17 * 3, 90);
    let said = ["ranks are not alike:", "  the training data is ", "  batch-size is 3 on rank 0 and 2 on rank 1"];
    for rank in [job.start(0, ""), job.start(1, "--data other.bin --batch-size 2")] {
        ends(rank, 2, said);
    }
    assert!(!job.0.has("cache"));
}

#[test]
fn a_dry_run_says_what_each_of_several_gpus_takes() {
    let case = Case::of_layers(1, 17 * 8);
    let [said, _] = fill(&case, "cache", "--gpus 3 --dry-run").says();
    assert!(said.contains("\neach of 3 GPUs:\n"), "{said}");
    assert!(!case.has("cache"));
}
