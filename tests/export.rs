//! `precast export`: what it writes reads back as the model that it was made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::checkpoint::{Checkpoint, Scratch, Weights};
use precast::inputs::tokenizer::SpecialTokens;
use precast_kernels::Dtype;
use precast_plan::{Parameter, Parameters};
use serde_json::{Value, json};

use crate::support::{copy, fail, fixture, on_device, precast, random_model, succeed, tiny_config, token_file};

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
fn with_tokenizer(model: &Path) {
    fs::write(model.join("tokenizer.json"), tokenizer().to_string()).unwrap();
    let config =
        json!({"eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": "{{ messages[0]['content'] }}"});
    fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
}

/// A golden model with a tokenizer.
fn golden(dir: &Path, case: &str) -> PathBuf {
    let model = dir.join(case);
    copy(&fixture(&format!("golden/{case}/student")), &model);
    with_tokenizer(&model);
    model
}

fn export(model: &Path, out: &Path, arguments: &[&str]) -> Command {
    let mut command = precast();
    command.arg("export").arg("--model").arg(model).arg("--out").arg(out).args(arguments);
    command
}

fn values(model: &Checkpoint, parameter: &Parameter) -> Vec<f32> {
    let mut scratch = Scratch::default();
    bytemuck::pod_collect_to_vec(model.read(parameter, Dtype::F32.into(), &mut scratch).unwrap())
}

fn nll(model: &Path, data: &Path) -> f64 {
    let mut command = precast();
    command.args(["eval", "--json", "--untrained", "--precision", "fp32", "--batch-size", "2", "--seq-len", "16"]);
    let printed = succeed(command.arg("--model").arg(model).arg("--data").arg(data).args(on_device()));
    serde_json::from_str::<Value>(&printed).unwrap()["nll"].as_f64().unwrap()
}

#[test]
fn an_exported_model_is_its_source_in_each_family() {
    let dir = tempfile::tempdir().unwrap();
    for case in ["qwen2-tied", "qwen3-tied", "llama3-rope"] {
        let source = golden(dir.path(), case);
        let file = dir.path().join(format!("{case}.gguf"));
        succeed(&mut export(&source, &file, &["--format", "f32"]));
        let [source, file] = [&source, &file].map(|path| Checkpoint::open(path).unwrap());
        assert_eq!(file.config(), source.config(), "{case}");
        for parameter in Parameters::new(source.config()).list {
            assert!(values(&source, &parameter) == values(&file, &parameter), "{case} {}", parameter.name);
        }
        let text = "In the end <tool> they're 12345 e\u{301}, 中文<|end|>\n\n  the";
        let ids = |model: &Checkpoint| model.tokenizer().unwrap().unwrap().encode(text, SpecialTokens::Add).unwrap();
        assert_eq!(ids(&file), ids(&source), "{case}");
        assert!(file.chat_template(None).unwrap().is_some());
    }
}

#[test]
fn an_exported_model_scores_as_its_source_does() {
    let dir = tempfile::tempdir().unwrap();
    let config = tiny_config(&[("vocab_size", 270.into())]);
    let data = token_file(dir.path(), "data.bin", 17 * 4, 262);
    let wide = random_model(dir.path(), "wide", 3, &config);
    with_tokenizer(&wide);
    // Of values that are bf16 already.
    let narrow = dir.path().join("narrow");
    let from = ["init", "--layers", "0", "--precision", "bf16"];
    succeed(precast().args(from).arg("--from").arg(&wide).arg("--out").arg(&narrow));
    let exported = |model: &Path, format: &str| {
        let out = dir.path().join(format!("{}-{format}.gguf", model.file_name().unwrap().display()));
        succeed(&mut export(model, &out, &["--format", format]));
        nll(&out, &data)
    };
    let expected = nll(&wide, &data);
    assert_eq!(exported(&wide, "f32").to_bits(), expected.to_bits());
    let rough = exported(&wide, "q8_0");
    assert!(rough != expected && (rough - expected).abs() < 0.01 * expected, "{rough} {expected}");
    assert_eq!(exported(&narrow, "bf16").to_bits(), nll(&narrow, &data).to_bits());
}

/// And a file of a file is that file.
#[test]
fn an_adapter_is_exported_as_it_is_merged() {
    let dir = tempfile::tempdir().unwrap();
    let base = golden(dir.path(), "lora-qv");
    let adapter = fixture("golden/lora-qv/final-adapter");
    let path = |name: &str| dir.path().join(name);
    let merged = path("merged/lora-qv");
    fs::create_dir(path("merged")).unwrap();
    succeed(precast().arg("merge").arg("--model").arg(&base).arg("--adapter").arg(&adapter).arg("--out").arg(&merged));
    let with = ["--adapter", adapter.to_str().unwrap()];
    succeed(&mut export(&base, &path("direct.gguf"), &with));
    succeed(&mut export(&merged, &path("merged.gguf"), &[]));
    let read = |name: &str| fs::read(path(name)).unwrap();
    assert!(read("direct.gguf") == read("merged.gguf"));
    succeed(&mut export(&base, &path("base.gguf"), &[]));
    assert!(read("base.gguf") != read("merged.gguf"));
}

#[test]
fn nothing_is_replaced_and_no_tokenizer_is_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let model = golden(dir.path(), "qwen2-tied");
    let out = dir.path().join("model.gguf");
    fs::write(&out, "mine").unwrap();
    assert!(fail(&mut export(&model, &out, &[]), 2).contains("is there already"));
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    fs::remove_file(&out).unwrap();

    let refused = |change: &dyn Fn(&mut Value), reason: &str| {
        let mut json = tokenizer();
        change(&mut json);
        fs::write(model.join("tokenizer.json"), json.to_string()).unwrap();
        let said = fail(&mut export(&model, &out, &[]), 5);
        assert!(
            said.contains("qwen2-tied: its tokenizer cannot be written as GGUF") && said.contains(reason),
            "{said}"
        );
        assert!(!out.exists());
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
    refused(&more, "the embedding 512 rows");
    fs::remove_file(model.join("tokenizer.json")).unwrap();
    assert!(fail(&mut export(&model, &out, &[]), 5).contains("it has no tokenizer"));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["qwen2-tied"]);
}
