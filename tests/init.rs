//! `precast init`: what it does not use it does not take.

use crate::support::{Case, fail, precast, root};

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
