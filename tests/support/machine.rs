//! Runs on machines whose driver is a stand-in, in the machine's own directory.

use std::process::Command;

use super::{Process, Texts, precast, random_model, tiny_config, token_file};
use crate::driver::{Machine, sm_121};

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

    pub fn has(&self, name: &str) -> bool {
        self.path().join(name).exists()
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("a file")
    }
}
