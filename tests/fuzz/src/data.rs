//! Rows of data, tokenized and cut as a run and an evaluation have them.

use std::sync::Arc;

use precast_inputs::chat::Chat;
use precast_inputs::checkpoint::Checkpoint;
use precast_inputs::data::{Chunking, Corpus, Dataset, Files, PromptRule, Reader};

use crate::{Folder, fixture, model};

thread_local!(static READER: (Folder, Reader) = reader());

fn reader() -> (Folder, Reader) {
    let (folder, _) = model::opened();
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        folder.put(name, &fixture(&format!("tests/fixtures/masks/chatml/{name}")));
    }
    let checkpoint = Checkpoint::open(&folder.path("")).expect("a model opens");
    let tokenizer = checkpoint.tokenizer().expect("it has a tokenizer").map(Arc::clone);
    (folder, Reader { tokenizer, chat: Chat::default(), eos: Some(2), vocab: 1024 })
}

/// Reads a file of data under a name, in each way that chunks are made. Conversations end where they need a template.
pub fn read(name: &str, rows: &[u8]) {
    READER.with(|(folder, reader)| {
        let path = [folder.put(name, rows)];
        let prompts = PromptRule { of_stream: Some(4), room: 16, completed: false };
        for chunking in [Chunking::Stream, Chunking::PerDocument, Chunking::Prompts(prompts)] {
            for field in [None, Some("words")] {
                let Ok(files) = Files::open(&path, field) else { continue };
                let Ok(corpus) = Corpus::new(files, 16, chunking, reader.clone()) else { continue };
                if let Ok(data) = Dataset::of(&corpus) {
                    assert!(data.chunks.iter().all(|chunk| chunk.counted() <= chunk.tokens()));
                }
            }
        }
    });
}
