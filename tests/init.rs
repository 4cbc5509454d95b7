//! `precast init`: what it does not use it does not take, and it says what it has made.

use std::fs;

use crate::support::{Case, fail, precast, root, texts, tokenizer};

#[test]
fn options_of_random_weights_and_of_layers_are_not_mixed() {
    let case = Case::new(17 * 4);
    let (config, student) = (root().join("tests/models/tiny.json"), case.student.display().to_string());
    let layers: &[&str] = &["--from", &student, "--layers", "0"];
    let random: &[&str] = &["--config", config.to_str().unwrap()];
    let mixed: [(&[&str], &[&str]); 5] = [
        (layers, &["--format", "Q4_K_M"]),
        (layers, &["--seed", "5"]),
        (layers, &["--tokenizer", &student]),
        (random, &["--layers", "0"]),
        (&layers[..2], &[]),
    ];
    for (source, option) in mixed {
        let out = case.path("made");
        let message = fail(precast().arg("init").args(source).args(option).arg("--out").arg(&out), 2);
        let named = option.first().unwrap_or(&"--layers");
        assert!(message.contains(named), "{source:?} {option:?}: {message}");
        assert!(!out.exists(), "{source:?} {option:?}");
    }
}

#[test]
fn init_says_what_it_has_made() {
    let case = Case::new(17 * 4);
    let config = root().join("tests/models/tiny.json").display().to_string();
    let teacher = case.teacher.display().to_string();
    let made = |name: &str, arguments: &[&str]| {
        let (mut command, out) = (precast(), case.path(name));
        let output = command.arg("init").args(arguments).arg("--out").arg(&out).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (path, said) = texts(&output);
        assert!(path.trim_end().starts_with(&out.display().to_string()) && path.lines().count() == 1, "{path}");
        said.trim_end().to_owned()
    };
    let whole = made("random", &["--config", &config]);
    assert!(whole.ends_with(" parameters, 2 layers, no tokenizer"), "{whole}");
    fs::write(case.teacher.join("tokenizer.json"), tokenizer("the cat").to_string()).unwrap();
    let copied = made("copied", &["--config", &config, "--tokenizer", &teacher]);
    assert_eq!(copied, whole.replace("no tokenizer", &format!("the tokenizer of {teacher}")));
    let layer = made("layer", &["--from", &teacher, "--layers", "1"]);
    assert!(layer.ends_with(&format!(" parameters, 1 layer, the tokenizer of {teacher}")), "{layer}");
    let parameters = |said: &str| said.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(parameters(&layer) < parameters(&whole), "{layer}, {whole}");
}
