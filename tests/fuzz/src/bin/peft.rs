//! An adapter in PEFT's files, `adapter_config.json` and `adapter_model.safetensors`, for a model that is right.
#![no_main]

use std::path::Path;

use precast_fuzz::{Folder, joined, model, parts};
use precast_inputs::adapter::{Adapter, Lora, fill_adapter};
use precast_inputs::checkpoint::{Checkpoint, CheckpointError, Scratch};
use precast_system::files::{Aside, Existing};

/// Names of the files.
const FILES: [&str; 2] = ["adapter_config.json", "adapter_model.safetensors"];

precast_fuzz::target!(seeds, |input: &[u8]| {
    thread_local!(static MODEL: (Folder, Checkpoint) = model::opened());
    MODEL.with(|(folder, model)| {
        for (name, part) in FILES.into_iter().zip(parts::<2>(input)) {
            folder.put(&format!("adapter/{name}"), part);
        }
        let path = folder.path("adapter");
        let Ok(adapter) = Adapter::open(&path, (model.path(), model.config())) else { return };
        let mut scratch = Scratch::default();
        for (adapted, factor) in adapter.layout.tensors() {
            adapter.read(adapted, factor, &mut scratch).expect("it has been read");
        }
        assert!(adapter.largest_update(&path).is_ok_and(|largest| largest == 0.0));
        let _ = (adapter.notes(), adapter.adds_nothing(), adapter.to_string());
    });
});

/// Returns what this program writes of some adapters, and configurations as PEFT writes them.
fn seeds() -> Vec<Vec<u8>> {
    let (folder, model) = model::opened();
    let of = |rank: u32, targets: &str, rslora: bool| {
        let targets = targets.split(',').map(|target| target.parse().expect("a target")).collect();
        let lora = Lora { rank, alpha: 8.0, targets, rslora };
        let adapter = Adapter::new(model.config(), &lora, 1).expect("the model has such layers");
        let (target, mut scratch) = (folder.path("written"), Scratch::default());
        let mut aside = Aside::new(&target).expect("a directory aside");
        let base = (Path::new("base"), model.config());
        fill_adapter(&mut aside, &adapter.layout, base, |adapted, factor, write| {
            write(adapter.read(adapted, factor, &mut scratch)?)
        })
        .unwrap_or_else(|error: CheckpointError| panic!("{error}"));
        aside.publish(Existing::Replace).expect("it is put in place");
        FILES.map(|name| folder.read(&format!("written/{name}")))
    };
    let written = [of(2, "q_proj", false), of(4, "q_proj,v_proj", true), of(1, "all", false)];
    let config = br#"{"peft_type": "LORA", "r": 2, "lora_alpha": 16, "target_modules": ".*\\.(q|v)_proj",
        "exclude_modules": ["o_proj"], "layers_to_transform": [0], "layers_pattern": "layers",
        "rank_pattern": {"v_proj": 4}, "alpha_pattern": {"^model.*q_proj": 2.0}, "lora_dropout": 0.1,
        "use_rslora": true, "bias": "none"}"#;
    let [_, tensors] = &written[0];
    let patterns = joined(&[config, tensors]);
    written.iter().map(|[config, tensors]| joined(&[config, tensors])).chain([patterns]).collect()
}
