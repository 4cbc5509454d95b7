//! `config.json`: a shape, the tensors and the tables that follow from it.
#![no_main]

use precast_fuzz::fixtures;
use precast_plan::{ModelConfig, Parameters, rewritten, unread_fields};
use serde_json::Value;

precast_fuzz::target!(
    || {
        let golden =
            ["qwen2", "qwen3", "qwen35", "qwen35-moe", "llama3", "mistral", "smollm3", "gemma3", "granite", "olmo2"];
        let golden =
            golden.iter().flat_map(|name| fixtures(&format!("tests/fixtures/golden/made-{name}/student"), ".json"));
        fixtures("aot/models", ".json").into_iter().chain(golden).collect()
    },
    |input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let text = text.trim_start_matches('\u{feff}');
        if let Ok(json) = serde_json::from_str::<Value>(text) {
            let _ = rewritten(&json);
        }
        let Ok(config) = ModelConfig::from_json(text) else { return };
        let json = serde_json::from_str(text).expect("it has been read");
        let _ = (unread_fields(&json, config.family), config.depth(), config.representative());
        // A layer takes a few names: what lists them takes as much as there are.
        if config.depth() <= 256 {
            let parameters = Parameters::new(&config);
            let _ = parameters.list.iter().map(|one| one.elems()).fold(0, u64::wrapping_add);
        }
        let _ = config.rope_frequencies();
    }
);
