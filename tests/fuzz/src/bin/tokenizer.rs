//! The tokenizer of a directory: `tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json` and
//! `added_tokens.json`. What it is used for follows.
#![no_main]

use precast_fuzz::{Folder, fixture, joined, model, parts};
use precast_inputs::checkpoint::Checkpoint;
use precast_inputs::tokenizer::SpecialTokens;

const TEXT: &str = "Naïve 🙂, and  <|im_start|>user\n1234 x² don't\u{fdd0}\t";

precast_fuzz::target!(seeds, |input: &[u8]| {
    thread_local!(static MODEL: (Folder, Checkpoint) = model::opened());
    MODEL.with(|(folder, _)| {
        let names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"];
        for (name, part) in names.into_iter().zip(parts::<4>(input)) {
            // A file of nothing is as one that is not there.
            folder.put(name, if part.is_empty() { b"{}" } else { part });
        }
        let checkpoint = Checkpoint::open(&folder.path("")).expect("its weights are right");
        let Ok(Some(tokenizer)) = checkpoint.tokenizer() else { return };
        let _ = (tokenizer.text(), tokenizer.kind());
        for special in [SpecialTokens::Add, SpecialTokens::Omit] {
            if let Ok((ids, places)) = tokenizer.encode_placed(TEXT, special) {
                assert_eq!(ids.len(), places.len());
                let _ = (tokenizer.decode(&ids), tokenizer.spelled(&ids));
            }
            let _ = tokenizer.encode(TEXT, special);
        }
    });
});

fn seeds() -> Vec<Vec<u8>> {
    let one = |folder: &str| {
        let [tokenizer, config] = ["tokenizer.json", "tokenizer_config.json"]
            .map(|name| fixture(&format!("tests/fixtures/masks/{folder}/{name}")));
        joined(&[&tokenizer, &config])
    };
    let added: serde_json::Value =
        serde_json::from_slice(&fixture("tests/fixtures/tokenizers/added.json")).expect("JSON");
    let mut seeds = vec![fixture("tests/fixtures/chat/tokenizer.json")];
    seeds.extend(["chatml", "zephyr", "qwen3_training"].map(one));
    seeds.push(added.to_string().into_bytes());
    seeds
}
