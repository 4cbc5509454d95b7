//! Commands that messages name, executed as they stand.

use precast_fatbins::Manifest;
use precast_kernels::{Arch, Block, KERNELS, KeyVariant};
use precast_plan::Formats;

use crate::gguf;
use crate::support::prelude::*;

/// Runs a line of a message in a directory.
fn execute(line: &str, case: &Case) {
    shell(line, case.dir.path()).env("PRECAST_HOME", root().join("target/precast")).succeeds();
}

/// The line that follows some text in a message.
fn line_after<'a>(text: &str, message: &'a str) -> &'a str {
    let (_, rest) = message.split_once(text).unwrap_or_else(|| panic!("no `{text}` in {message}"));
    rest.lines().next().unwrap().trim()
}

#[test]
fn kernels_of_single_files_are_built_by_the_command_named() {
    skip_if!(lacks_compiler());
    let case = Case::empty();
    let config = shape(&tiny_config(&[("intermediate_size", 64.into())]));
    let formats = Formats::uniform(&config, Block::Q8_0);
    // A shell splits one path and ends a string in the other; what has no extension is a GGUF file by its first bytes.
    let [teacher, student] = [("the teacher", "model.gguf", 1), ("student's", "model", 2)].map(|(dir, file, seed)| {
        fs::create_dir(case.path(dir)).unwrap();
        gguf::write(&case.path(dir), file, &config, &formats, seed)
    });
    token_file(case.dir.path(), "data.bin", 17 * 4, 96);
    let distill = |bundle: &str| {
        let shape = "--data data.bin --out out --device sim --steps 1 --batch-size 2 --seq-len 16 --bundle";
        let mut distill = case.run(["distill", shape, bundle]);
        distill.arg("--teacher").arg(&teacher).arg("--student").arg(&student);
        distill
    };
    // A bundle without a kernel for this device, and one that lacks some.
    let one: Vec<KeyVariant> = KERNELS.parse("cast{from=f32,to=bf16}").unwrap().built(Arch::Sim).collect();
    case.write("empty.bundle", simulated(&[]));
    case.write("lacking.bundle", precast_fatbins::encode(&Manifest::simulated(&KERNELS, &one), |_| &[]));
    let messages = ["empty.bundle", "lacking.bundle"].map(|bundle| distill(bundle).fails(3, ""));
    assert!(messages[0].contains("it holds nothing") && messages[1].contains(" are not in the bundle for sim:"));
    let [build, same] = messages.each_ref().map(|message| line_after("Build them with: ", message));
    assert_eq!(build, same);
    execute(build, &case);
    distill("run.bundle").succeeds();

    // And `precast-aot` says it where it is given such a file.
    fs::remove_file(case.path("model.config.json")).unwrap();
    let keys = |model: &Path| {
        let mut keys = case.aot("keys --arch sm_121 --model");
        keys.arg(model);
        keys
    };
    let message = keys(&teacher).fails(5, "model.gguf is a GGUF file");
    execute(line_after("write it by\n", &message), &case);
    let listed = keys(line_after("and give --model ", &message).as_ref()).succeeds();
    assert!(listed.lines().count() > 20, "{listed}");
}
