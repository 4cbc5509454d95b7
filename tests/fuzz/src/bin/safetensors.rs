//! `model.safetensors` of a model with a configuration that is right.
#![no_main]

use precast_fuzz::{Folder, model};

precast_fuzz::target!(model::seeds, |input: &[u8]| {
    thread_local!(static FOLDER: Folder = model::folder());
    FOLDER.with(|folder| {
        folder.put("model.safetensors", input);
        model::read(&folder.path(""));
    });
});
