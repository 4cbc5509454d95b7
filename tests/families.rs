//! One model in two spellings of its configuration. What families compute is compared with PyTorch's in `golden_steps`.

use crate::golden::Golden;
use crate::support::prelude::*;

/// A copy of a model with its config.json changed.
fn respelled(model: &Path, dir: &Path, change: impl FnOnce(&mut Value)) -> PathBuf {
    let copy = dir.join("respelled");
    fs::create_dir(&copy).unwrap();
    fs::copy(model.join("model.safetensors"), copy.join("model.safetensors")).unwrap();
    let mut config: Value = serde_json::from_slice(&fs::read(model.join("config.json")).unwrap()).unwrap();
    change(&mut config);
    fs::write(copy.join("config.json"), config.to_string()).unwrap();
    copy
}

/// Newer files have `rope_parameters`, older ones `rope_theta` and `rope_scaling`.
#[test]
fn both_spellings_of_scaled_rotary_give_the_same_bits() {
    let golden = Golden::of("made-llama3");
    let (ids, dir, newer) = (golden.ids(), tempfile::tempdir().unwrap(), &golden.case.student);
    let older = respelled(newer, dir.path(), |config| {
        let mut scaling = config["rope_parameters"].take();
        config.as_object_mut().unwrap().remove("rope_parameters");
        config["rope_theta"] = scaling.as_object_mut().unwrap().remove("rope_theta").unwrap();
        config["rope_scaling"] = scaling;
    });
    let expected = logits(newer, &ids);
    assert_eq!(logits(&older, &ids), expected);
    // Without its scaling it is another model.
    let other = tempfile::tempdir().unwrap();
    let unscaled = respelled(&older, other.path(), |config| config["rope_scaling"] = Value::Null);
    assert!(distance(&logits(&unscaled, &ids), &expected) > 1e-3);
}

#[test]
fn fields_that_no_class_has_are_noted() {
    let case = Case::new(17 * 4);
    case.change("student/config.json", |config| (config["sink_tokens"], config["use_cache"]) = (4.into(), true.into()));
    let [_, stderr] = case.run("eval --untrained --batch-size 2 --seq-len 16 --model student --data data.bin").says();
    let said = "student/config.json: not read, and in transformers no fields of LlamaForCausalLM: sink_tokens\n";
    assert!(stderr.contains(said), "{stderr}");
}
