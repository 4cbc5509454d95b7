//! `precast export`: what it writes reads back as the model that it was made of.

use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast::inputs::tokenizer::SpecialTokens;
use precast_kernels::Dtype;
use precast_plan::{ModelConfig, Parameter, Parameters};

use crate::support::prelude::*;

/// A byte-level `tokenizer.json` of 256 bytes, a few merges and two special tokens, which splits text as Qwen2 does.
fn tokenizer() -> Value {
    let bytes = (0..=255u32).map(|byte| match byte {
        33..=126 | 161..=172 | 174..=255 => byte,
        0..=32 => 256 + byte,
        127..=160 => 256 + 33 + byte - 127,
        _ => 256 + 33 + 34,
    });
    let mut tokens: Vec<String> = bytes.map(|code| char::from_u32(code).unwrap().to_string()).collect();
    let merges = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["i", "n"]];
    tokens.extend(merges.iter().map(|merge| merge.concat()));
    let added: Vec<Value> = ["<|end|>", "<tool>"]
        .iter()
        .zip(tokens.len()..)
        .map(|(text, id)| {
            json!({"id": id, "content": text, "special": *text == "<|end|>", "normalized": false, "single_word": false,
                   "lstrip": false, "rstrip": false})
        })
        .collect();
    let vocab: serde_json::Map<String, Value> =
        tokens.into_iter().zip(0..).map(|(text, id): (String, u32)| (text, id.into())).collect();
    let pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added, "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}, byte_level]},
        "post_processor": byte_level, "decoder": byte_level,
        "model": {"type": "BPE", "vocab": vocab, "merges": merges, "ignore_merges": false},
    })
}

/// Puts a tokenizer beside a model.
pub(crate) fn with_tokenizer(model: &Path) {
    fs::write(model.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let config =
        json!({"eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": "{{ messages[0]['content'] }}"});
    fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// A model of a golden case's shape with a tokenizer, whose tokens need more rows than the case's has.
fn golden(case: &Case, name: &str) {
    golden_but(case, name, &|_| {});
}

/// Makes a model as [`golden`] does, with a changed configuration.
fn golden_but(case: &Case, name: &str, change: &dyn Fn(&mut Value)) {
    let text = fs::read_to_string(fixture("golden").join(name).join("student/config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["vocab_size"] = 300.into();
    // What a GGUF file can say.
    match config["model_type"].as_str().unwrap() {
        "smollm3" => config["no_rope_layers"] = json!([1, 1, 1]),
        "mistral" => config["sliding_window"] = Value::Null,
        "olmo2" => (config["hidden_size"], config["tie_word_embeddings"]) = (256.into(), false.into()),
        "gemma3_text" => {
            config["rope_parameters"]["full_attention"] =
                json!({"rope_type": "linear", "factor": 8.0, "rope_theta": 1000.0});
        }
        _ => {}
    }
    change(&mut config);
    with_tokenizer(&random_model(case.dir.path(), name, 1, &config));
}

fn values(model: &Checkpoint, parameter: &Parameter) -> Vec<f32> {
    let mut scratch = Scratch::default();
    bytemuck::pod_collect_to_vec(model.read(parameter, Dtype::F32.into(), &mut scratch).unwrap())
}

#[test]
fn an_exported_model_is_its_source_in_each_family() {
    let case = Case::empty();
    let names =
        ["made-qwen2", "made-qwen3", "made-llama3", "made-granite", "made-smollm3", "made-mistral", "made-olmo2"];
    for name in names.into_iter().chain(["made-gemma3"]) {
        golden(&case, name);
        case.run(format!("export --model {name} --out {name}.gguf --format f32")).succeeds();
        let [source, file] = [name, &format!("{name}.gguf")].map(|model| Checkpoint::open(&case.path(model)).unwrap());
        // Files call a Mistral without a window a Llama.
        let family = file.config().family;
        assert!(family == source.config().family || name == "made-mistral" && family.model_type == "llama");
        assert_eq!(*file.config(), ModelConfig { family, ..source.config().clone() }, "{name}");
        for parameter in Parameters::new(source.config()).list {
            assert!(values(&source, &parameter) == values(&file, &parameter), "{name} {}", parameter.name);
        }
        let text = "In the end <tool> they're 12345 e\u{301}, 中文<|end|>\n\n  the";
        let ids = |model: &Checkpoint| model.tokenizer().unwrap().unwrap().encode(text, SpecialTokens::Add).unwrap();
        assert_eq!(ids(&file), ids(&source), "{name}");
        assert!(file.chat_template(Default::default()).unwrap().is_some());
    }
}

/// A model beside a tower of vision, whose tensors have the names that `name` gives them.
fn with_tower(case: &Case, text: &str, model: &str, name: impl Fn(&str) -> String) {
    copy(&case.path(text), &case.path(model));
    let bytes = case.read(format!("{text}/model.safetensors"));
    let whole = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let tower = "vision_tower.embeddings.weight".to_owned();
    let mut tensors: Vec<_> = whole.iter().map(|(of_text, tensor)| (name(of_text), tensor)).collect();
    tensors.push((tower, tensors[0].1.clone()));
    fs::write(case.path(model).join("model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    case.change(&format!("{model}/config.json"), |config| {
        let class = "Gemma3ForConditionalGeneration";
        *config = json!({"architectures": [class], "model_type": "gemma3", "vision_config": {}, "text_config": config});
    });
}

/// Files of transformers 4 and of 5 have its tensors under different names.
#[test]
fn of_a_model_that_sees_images_the_text_model_is_read_and_written() {
    let case = Case::empty();
    golden_but(&case, "made-gemma3", &|config| config["tie_word_embeddings"] = false.into());
    with_tower(&case, "made-gemma3", "older", |name| format!("language_model.{name}"));
    with_tower(&case, "made-gemma3", "newer", |name| name.replacen("model.", "model.language_model.", 1));
    let note = "images are left out: its text model is read, Gemma3ForCausalLM";
    let weights = |model: &str| case.read(format!("{model}/model.safetensors"));
    case.run("export --model made-gemma3 --out made-gemma3.gguf").succeeds();
    for model in ["older", "newer"] {
        let init = format!("init --from {model} --layers 0,1 --precision fp32 --out {model}-text");
        let [_, said] = case.run(init).says();
        assert_eq!(said.matches(note).count(), 1, "{said}");
        assert_eq!(weights(&format!("{model}-text")), weights("made-gemma3"), "{model}");
        let config = case.json(format!("{model}-text/config.json"));
        assert_eq!(config["architectures"], json!(["Gemma3ForCausalLM"]));
        case.run(format!("export --model {model} --out {model}.gguf")).succeeds();
        let [file, text] =
            [model, "made-gemma3"].map(|name| Checkpoint::open(&case.path(format!("{name}.gguf"))).unwrap());
        assert_eq!(file.config(), text.config());
    }
    case.change("older/config.json", |config| config["text_config"]["model_type"] = "gemma2".into());
    case.run("export --model older --out model.gguf").fails(5, "unsupported text_config.model_type = gemma2");
}

/// Granite 4.0 without Mamba and experts has Granite's layers, by other names.
#[test]
fn a_dense_granite_4_is_read_and_written_as_granite() {
    let case = Case::empty();
    golden(&case, "made-granite");
    copy(&case.path("made-granite"), &case.path("granite-4"));
    let bytes = case.read("made-granite/model.safetensors");
    let granite = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let (mut tensors, mut fused) = (Vec::new(), Vec::new());
    for (name, tensor) in granite.iter() {
        let renamed = name.replace(".mlp.down_proj", ".shared_mlp.output_linear");
        match name.strip_suffix(".mlp.gate_proj.weight") {
            Some(layer) => {
                let up = granite.tensor(&format!("{layer}.mlp.up_proj.weight")).unwrap();
                fused.push((layer, tensor.dtype(), [tensor.data(), up.data()].concat(), tensor.shape().to_vec()));
            }
            None if name.ends_with(".mlp.up_proj.weight") => {}
            None => tensors.push((renamed, tensor)),
        }
    }
    assert!(fused.len() > 1);
    for (layer, dtype, data, shape) in &fused {
        let view = safetensors::tensor::TensorView::new(*dtype, vec![2 * shape[0], shape[1]], data).unwrap();
        tensors.push((format!("{layer}.shared_mlp.input_linear.weight"), view));
    }
    fs::write(case.path("granite-4/model.safetensors"), safetensors::serialize(tensors, None).unwrap()).unwrap();
    case.change("granite-4/config.json", |config| {
        (config["architectures"], config["model_type"]) =
            (json!(["GraniteMoeHybridForCausalLM"]), "granitemoehybrid".into());
        config["shared_intermediate_size"] = config["intermediate_size"].take();
        (config["num_local_experts"], config["position_embedding_type"]) = (0.into(), "rope".into());
        config["layer_types"] = json!(vec!["attention"; fused.len()]);
    });
    let layers: Vec<String> = (0..fused.len()).map(|layer| layer.to_string()).collect();
    let init = format!("init --from granite-4 --layers {} --precision fp32 --out granite", layers.join(","));
    let [_, said] = case.run(init).says();
    assert!(said.contains("models and adapters of it are written, as GraniteForCausalLM"), "{said}");
    assert_eq!(case.read("granite/model.safetensors"), bytes);
    assert_eq!(case.json("granite/config.json")["architectures"], json!(["GraniteForCausalLM"]));
    for model in ["made-granite", "granite-4"] {
        case.run(format!("export --model {model} --out {model}.gguf")).succeeds();
    }
    let [dense, granite] =
        ["granite-4", "made-granite"].map(|name| Checkpoint::open(&case.path(format!("{name}.gguf"))).unwrap());
    assert_eq!(dense.config(), granite.config());
    case.change("granite-4/config.json", |config| config["layer_types"][1] = "mamba".into());
    case.run("export --model granite-4 --out model.gguf").fails(5, "unsupported layer_types[1] = mamba: Granite 4.0");
}

/// A reader of the file would compute another model.
#[test]
fn layers_that_gguf_cannot_say_are_not_exported() {
    let case = Case::empty();
    golden(&case, "made-smollm3");
    case.change("made-smollm3/config.json", |config| config["no_rope_layers"] = json!([1, 0, 1]));
    let said = case.run("export --model made-smollm3 --out model.gguf").fails(5, "layer 1 has no rotary embedding");
    assert!(said.contains("GGUF files of architecture smollm3 cannot say"), "{said}");
    assert!(!case.has("model.gguf"));
}

/// Nor a window in a file that is read as a Llama's, or another value than readers take for granted.
#[test]
fn values_that_gguf_cannot_say_are_not_exported() {
    let case = Case::empty();
    let refused = |model: &str, change: &dyn Fn(&mut Value), reason: &str| {
        golden_but(&case, model, change);
        let said = case.run(format!("export --model {model} --out model.gguf")).fails(5, reason);
        assert!(said.contains("which GGUF files of architecture "), "{said}");
        assert!(!case.has("model.gguf"));
        fs::remove_dir_all(case.path(model)).unwrap();
    };
    golden(&case, "made-olmo3");
    case.run("export --model made-olmo3 --out model.gguf")
        .fails(5, "Olmo3ForCausalLM cannot be written as a GGUF file");
    refused("made-mistral", &|config| config["sliding_window"] = 20.into(), "layer 0 sees a window of 20 keys");
    refused("made-olmo2", &|config| config["tie_word_embeddings"] = true.into(), "the head is the embedding");
    refused(
        "made-olmo2",
        &|config| config["hidden_size"] = 96.into(),
        "4 heads of 64 are not as wide as the model, 96",
    );
    let scalar = "scores are scaled otherwise than by query_pre_attn_scalar = 64";
    refused("made-gemma3", &|config| config["query_pre_attn_scalar"] = 65.into(), scalar);
    let scaled = json!({"rope_type": "linear", "factor": 2.0, "rope_theta": 100.0});
    let local = &|config: &mut Value| config["rope_parameters"]["sliding_attention"] = scaled.clone();
    refused("made-gemma3", local, "the rotary embedding of layers with a window is scaled");
    let early = &|config: &mut Value| config["layer_types"] = json!(["full_attention", "sliding_attention"]);
    refused("made-gemma3", early, "layer 1 sees a window of 24 keys");
}

/// And a file of a file is that file.
#[test]
fn an_adapter_is_exported_as_it_is_merged() {
    let case = Case::empty();
    golden(&case, "made-lora");
    let lora = Case::golden("made-lora");
    std::os::unix::fs::symlink(lora.path("golden/adapter"), case.path("adapter")).unwrap();
    fs::create_dir(case.path("merged")).unwrap();
    case.run("merge --model made-lora --adapter adapter --out merged/made-lora").succeeds();
    for (out, model) in
        [("base", "made-lora"), ("direct", "made-lora --adapter adapter"), ("merged", "merged/made-lora")]
    {
        case.run(format!("export --out {out}.gguf --model {model}")).succeeds();
    }
    assert!(case.read("direct.gguf") == case.read("merged.gguf"));
    assert!(case.read("base.gguf") != case.read("merged.gguf"));
}

#[test]
fn nothing_is_replaced_and_no_tokenizer_is_guessed() {
    let case = Case::empty();
    golden(&case, "made-qwen2");
    let export = || case.run("export --model made-qwen2 --out model.gguf");
    case.write("model.gguf", "mine");
    export().fails(2, "is there already");
    assert_eq!(case.text("model.gguf"), "mine");
    fs::remove_file(case.path("model.gguf")).unwrap();

    let refused = |change: &dyn Fn(&mut Value), reason: &str| {
        let mut json = tokenizer();
        change(&mut json);
        case.write("made-qwen2/tokenizer.json", json.to_string());
        export().fails(5, ["made-qwen2: its tokenizer cannot be written as GGUF", reason]);
        assert!(!case.has("model.gguf"));
    };
    refused(&|json| json["pre_tokenizer"] = json!({"type": "Whitespace"}), "splits text by NFC, Whitespace");
    refused(&|json| json["model"] = crate::support::tokenizer("a b")["model"].clone(), "it is WordLevel");
    refused(&|json| json["model"]["byte_fallback"] = true.into(), "put the model's tokenizer.model beside it");
    let more = |json: &mut Value| {
        let added = json["added_tokens"].as_array_mut().unwrap();
        let last = added[1].clone();
        added.extend((262..520).map(|id| {
            let mut token = last.clone();
            (token["id"], token["content"]) = (id.into(), format!("<{id}>").into());
            token
        }));
    };
    refused(&more, "the embedding 300 rows");
    fs::remove_file(case.path("made-qwen2/tokenizer.json")).unwrap();
    export().fails(5, "it has no tokenizer");
    assert_eq!(names_in(case.dir.path()), ["made-qwen2", "made-qwen2.json"]);
}
