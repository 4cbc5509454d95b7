//! `precast init`: what it does not use it does not take, and it says what it has made.

use crate::support::prelude::*;

#[test]
fn init_says_what_it_has_made() {
    let case = Case::new(17 * 4);
    let made = |name: &str, arguments: &str| {
        let [path, said] = case.run(["init --out", name, arguments]).says();
        assert!(path.trim_end().starts_with(name) && path.lines().count() == 1, "{path}");
        said.trim_end().to_owned()
    };
    let whole = made("random", "--config student.json");
    assert!(whole.ends_with(" parameters, 2 layers, no tokenizer"), "{whole}");
    case.write("teacher/tokenizer.json", tokenizer("the cat").to_string());
    let copied = made("copied", "--config student.json --tokenizer teacher");
    assert_eq!(copied, whole.replace("no tokenizer", "the tokenizer of teacher"));
    let layer = made("layer", "--from teacher --layers 1");
    assert!(layer.ends_with(" parameters, 1 layer, the tokenizer of teacher"), "{layer}");
    let parameters = |said: &str| said.split(' ').next().unwrap().parse::<u64>().unwrap();
    assert!(parameters(&layer) < parameters(&whole), "{layer}, {whole}");
}

/// Layers of a model that are not alike keep what they do.
#[test]
fn picked_layers_do_what_they_did() {
    let case = Case::golden("made-smollm3");
    case.run("init --from golden/teacher --layers 2,1 --out picked").succeeds();
    assert_eq!(case.json("picked/config.json")["no_rope_layers"], json!([1, 0]));
    let case = Case::golden("made-gemma3");
    case.run("init --from golden/teacher --layers 2,0 --out picked").succeeds();
    assert_eq!(case.json("picked/config.json")["layer_types"], json!(["full_attention", "sliding_attention"]));
}
