//! Commands that messages name, executed as they stand.

use std::fs;
use std::path::Path;
use std::process::Command;

use precast_fatbins::Manifest;
use precast_kernels::{Arch, Block, Key, KeyVariant};
use precast_plan::{Formats, ModelConfig};

use crate::gguf;
use crate::support::{fail, lacks_compiler, precast, precast_aot, root, succeed, tiny_config, token_file};

/// Runs a line of a message in a directory, with the programs on the path.
fn execute(line: &str, dir: &Path) {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).current_dir(dir).env("PRECAST_HOME", root().join("target/precast"));
    let programs = Path::new(precast().get_program()).parent().unwrap().to_owned();
    succeed(shell.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap())));
}

/// The line that follows some text in a message.
fn line_after<'a>(text: &str, message: &'a str) -> &'a str {
    let (_, rest) = message.split_once(text).unwrap_or_else(|| panic!("no `{text}` in {message}"));
    rest.lines().next().unwrap().trim()
}

#[test]
fn kernels_that_models_in_single_files_lack_are_built_by_the_command_that_is_named() {
    if lacks_compiler() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let config = ModelConfig::from_json(&tiny_config(&[("intermediate_size", 64.into())]).to_string()).unwrap();
    let formats = Formats::uniform(&config, Block::Q8_0);
    // A shell splits one path and ends a string in the other; what has no extension is a GGUF file by its first bytes.
    let [teacher, student] =
        [("the teacher", "model.gguf", 1), ("student's", "model", 2)].map(|(dir_name, file, seed)| {
            fs::create_dir(dir.path().join(dir_name)).unwrap();
            gguf::write(&dir.path().join(dir_name), file, &config, &formats, seed)
        });
    let data = token_file(dir.path(), "data.bin", 17 * 4, 96);
    let empty = dir.path().join("empty.bundle");
    fs::write(&empty, precast_fatbins::encode(&Manifest::simulated([]), |_| &[])).unwrap();
    let distill = |bundle: &Path| {
        let mut distill = precast();
        distill.args(["distill", "--device", "sim", "--steps", "1", "--batch-size", "2", "--seq-len", "16"]);
        distill.arg("--teacher").arg(&teacher).arg("--student").arg(&student).arg("--data").arg(&data);
        distill.arg("--bundle").arg(bundle).arg("--out").arg(dir.path().join("out"));
        distill
    };
    // A bundle without a kernel for this device, and one that lacks some.
    let lacking = dir.path().join("lacking.bundle");
    let one: Vec<KeyVariant> = Key::parse("cast{from=f32,to=bf16}").unwrap().built(Arch::Sim).collect();
    fs::write(&lacking, precast_fatbins::encode(&Manifest::simulated(&one), |_| &[])).unwrap();
    let messages = [&empty, &lacking].map(|bundle| fail(&mut distill(bundle), 3));
    assert!(messages[0].contains("it holds nothing") && messages[1].contains(" are not in the bundle for sim:"));
    let [build, same] = messages.each_ref().map(|message| line_after("Build them with: ", message));
    assert_eq!(build, same);
    execute(build, dir.path());
    succeed(&mut distill(&dir.path().join("run.bundle")));

    // And `precast-aot` says it where it is given such a file.
    fs::remove_file(dir.path().join("model.config.json")).unwrap();
    let keys = |model: &Path| {
        let mut keys = precast_aot();
        keys.args(["keys", "--arch", "sm_121", "--model"]).arg(model).current_dir(dir.path());
        keys
    };
    let message = fail(&mut keys(&teacher), 5);
    assert!(message.contains("model.gguf is a GGUF file"), "{message}");
    execute(line_after("write it by\n", &message), dir.path());
    let listed = succeed(&mut keys(line_after("and give --model ", &message).as_ref()));
    assert!(listed.lines().count() > 20, "{listed}");
}
