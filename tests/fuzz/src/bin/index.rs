//! `model.safetensors.index.json` beside two files with the tensors of a model.
#![no_main]

use precast_fuzz::{Folder, model};

precast_fuzz::target!(
    || {
        // Each file has all of them: right is what names one of the two.
        let seed = |files: usize| {
            let name = |index: usize| format!("model-{}.safetensors", index % files);
            let names = model::tensors().into_iter().enumerate().map(|(index, tensor)| (tensor, name(index).into()));
            let map: serde_json::Map<_, _> = names.collect();
            serde_json::json!({ "metadata": { "total_size": 1 }, "weight_map": map }).to_string().into_bytes()
        };
        [1, 2].map(seed).into()
    },
    |input: &[u8]| {
        thread_local!(static FOLDER: Folder = model::divided());
        FOLDER.with(|folder| {
            folder.put("model.safetensors.index.json", input);
            model::read(&folder.path(""));
        });
    }
);
