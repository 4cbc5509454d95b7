//! The program under test, the compiler that it takes, and a model for both.

use std::path::PathBuf;
use std::process::Command;

use precast_aot::{Nvrtc, home, toolchain};
use precast_models::Model;

pub fn nvrtc() -> Nvrtc {
    toolchain::nvrtc(None, &home::directory()).unwrap_or_else(|error| panic!("{error}"))
}

/// The `config.json` of a tiny model.
pub fn tiny_json() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/models/tiny.json")
}

pub fn tiny_model() -> Model {
    Model::find(tiny_json().to_str().unwrap()).unwrap()
}

/// A command line of `precast-aot`, to which paths may be added.
pub fn aot(line: &str) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_precast-aot"));
    program.args(line.split(' '));
    program
}

/// Runs it. Returns exit code, standard output and standard error.
pub fn ends(program: &mut Command) -> (Option<i32>, String, String) {
    let output = program.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}
