//! Runs on machines whose driver is a stand-in, in the machine's own directory.

use std::path::Path;
use std::process::Command;

use super::{Process, Texts, precast, random_model, tiny_config, token_file};
use crate::driver::{Machine, sm_121};

/// Counts the launches that a log of driver calls has; nothing is loaded, allocated or pinned behind the first of them.
pub fn launches(log: &Path) -> usize {
    let text = std::fs::read_to_string(log).expect("a log of driver calls");
    let calls: Vec<&str> = text.lines().collect();
    let (before, behind) = calls.split_at(calls.iter().position(|call| *call == "launch").expect("a launch"));
    let takes = |call: &&&str| ["load", "alloc", "pin"].iter().any(|of| call.starts_with(of));
    let taken = [before, behind].map(|calls| calls.iter().filter(takes).count());
    assert!(taken[0] > 10 && taken[1] == 0, "{calls:?}");
    behind.iter().filter(|call| **call == "launch").count()
}

impl Machine {
    /// The machine with what a run takes: `model`, of random weights, `data.bin`, and `sm_121.bundle`.
    pub fn equipped(self) -> Self {
        random_model(self.path(), "model", 1, &tiny_config(&[]));
        token_file(self.path(), "data.bin", 17 * 8, 96);
        sm_121(self.path());
        self
    }

    /// A command line of `precast` on it.
    pub fn line(&self, line: impl Texts) -> Command {
        self.run(precast().with(line).current_dir(self.path()))
    }

    /// A command on it whose kernels, those of a bundle, are their host references.
    pub fn computes(&self, command: &mut Command, bundle: &Path) -> Command {
        let kernels = std::env::current_exe().unwrap().with_file_name("libprecast_libcuda_kernels.so");
        assert!(kernels.exists(), "{}: cargo builds it with the tests", kernels.display());
        command.arg("--bundle").arg(bundle);
        self.run(command.env("PRECAST_FAKE_KERNELS", kernels).env("PRECAST_FAKE_BUNDLE", bundle))
    }

    pub fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }
}
