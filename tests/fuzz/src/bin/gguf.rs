//! A GGUF file: its tensors, its configuration, its tokenizer and its chat template.
#![no_main]

use precast_fuzz::{Folder, model};

precast_fuzz::target!(model::gguf_seeds, |input: &[u8]| {
    thread_local!(static FOLDER: Folder = Folder::new());
    FOLDER.with(|folder| model::read(&folder.put("model.gguf", input)));
});
