//! APR files, written by a program that knows the format's page and nothing of this one.

use precast::inputs::checkpoint::{Access, Checkpoint, CheckpointError, Scratch, Weights};
use precast::inputs::tokenizer::SpecialTokens;
use precast_kernels::{Block, Dtype, Format};
use precast_plan::{Parameter, Parameters};

use crate::support::Texts;
use crate::support::prelude::*;

/// A model in a scratch directory: `model.apr`, and `expected`, which is what it says.
fn write(arguments: impl Texts) -> Case {
    write_with(arguments, &[])
}

/// The same, with keys of metadata set.
fn write_with(arguments: impl Texts, set: &[&str]) -> Case {
    let case = Case::empty();
    let mut python = Command::new("python3");
    python.arg(root().join("tests/apr/write.py")).arg(case.dir.path()).with(arguments);
    python.args(set.iter().flat_map(|key| ["--set", key])).succeeds();
    case
}

const BOTH: [&str; 2] = ["model.apr", "expected"];

fn open(case: &Case, name: &str) -> Checkpoint {
    Checkpoint::open(&case.path(name)).unwrap()
}

fn parameters(checkpoint: &Checkpoint) -> Vec<Parameter> {
    Parameters::new(checkpoint.config()).list
}

/// The bits of every parameter, read in one way.
fn bits(path: &Path, access: Access) -> Vec<(String, Vec<u8>)> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut scratch = Scratch::of(access);
    let read = parameters(&checkpoint).into_iter().map(|parameter| {
        let bytes = checkpoint.read(&parameter, Dtype::F32.into(), &mut scratch).unwrap().to_vec();
        (parameter.name, bytes)
    });
    read.collect()
}

#[test]
fn tensors_of_every_type_are_those_of_the_page_bit_for_bit() {
    let each = ["F32", "F16", "BF16", "Q4_K", "Q6_K", "AprQ4", "AprQ8"].map(|dtype| format!("--only {dtype}"));
    let llama = ["", "--rope 0", "--rope 0 --only Q4_K --tied"].map(|more| format!("--family llama {more}"));
    let mixed = ["", "--tied", "--older", "--rope 0", "--small"].map(str::to_owned);
    for arguments in each.into_iter().chain(llama).chain(mixed) {
        let case = write(&arguments);
        let expected = bits(&case.path("expected"), Access::Read);
        for access in [Access::Read, Access::Map, Access::Direct] {
            assert!(bits(&case.path("model.apr"), access) == expected, "{arguments} {access:?}");
        }
        let [apr, expected] = BOTH.map(|name| open(&case, name));
        assert_eq!(apr.config(), expected.config(), "{arguments}");
        assert_eq!(apr.eos_token().unwrap(), Some(2));
    }
}

#[test]
fn blocks_that_ggml_has_too_stay_as_they_are_stored() {
    for (arguments, block) in [("--only Q4_K", Block::Q4_K), ("--only Q6_K --family llama --rope 0", Block::Q6_K)] {
        let case = write(arguments);
        let [apr, expected] = BOTH.map(|name| open(&case, name));
        let formats = apr.formats();
        assert_eq!(formats.dequantized(), None);
        let mut kept = parameters(&apr);
        kept.retain(|parameter| formats.of(&parameter.name) == Some(block));
        assert_eq!(kept.len(), 7, "{arguments}");
        for parameter in kept {
            let (mut blocks, mut dense) = (Scratch::default(), Scratch::default());
            let blocks = Weights::read(&apr, &parameter, Format::Block(block), &mut blocks).unwrap();
            let mut values = vec![0.0; parameter.elems() as usize];
            precast_kernels::dequant::dequantize(block, blocks, &mut values);
            let dense = expected.read(&parameter, Dtype::F32.into(), &mut dense).unwrap();
            assert!(bytemuck::cast_slice::<f32, u8>(&values) == dense, "{}", parameter.name);
        }
    }
}

#[test]
fn a_scaled_rotary_embedding_is_read_as_that_of_a_directory() {
    let scaling = json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 64});
    for key in ["rope_scaling", "rope_parameters"] {
        let case = write(format!("--family llama --set {key}={scaling}"));
        let plain = open(&case, "expected").config().clone();
        case.change("expected/config.json", |config| config["rope_scaling"] = scaling.clone());
        let [apr, expected] = BOTH.map(|name| open(&case, name));
        assert_eq!(apr.config(), expected.config(), "{key}");
        assert_ne!(apr.config().rope_frequencies(), plain.rope_frequencies(), "{key}");
    }
}

/// Factors that were left out would be silently 1.
#[test]
fn factors_of_values_are_read_as_those_of_a_directory() {
    let scales = [("attention_multiplier", 0.05), ("embedding_multiplier", 6.0), ("residual_multiplier", 0.4)];
    let scales = scales.into_iter().chain([("logits_scaling", 3.0)]);
    let set: String = scales.clone().map(|(field, scale)| format!(" --set {field}={scale}")).collect();
    let case = write(format!("--family llama --set architecture=\"granite\" --set model_type=\"granite\"{set}"));
    case.change("expected/config.json", |config| {
        (config["architectures"], config["model_type"]) = (json!(["GraniteForCausalLM"]), "granite".into());
        scales.for_each(|(field, scale)| config[field] = scale.into());
    });
    let [apr, expected] = BOTH.map(|name| open(&case, name));
    assert_eq!(apr.config(), expected.config());
}

/// Nor would it be said which layers see a window.
#[test]
fn families_with_windows_are_not_read() {
    for (name, class) in [("mistral", "MistralForCausalLM"), ("gemma3_text", "Gemma3ForCausalLM")] {
        let case = write(format!("--family llama --set architecture=\"{name}\" --set model_type=\"{name}\""));
        let refused = Checkpoint::open(&case.path("model.apr")).err().unwrap().to_string();
        assert!(refused.contains(&format!("files of {class} do not say which layers see a window")), "{refused}");
    }
}

/// Nor would it be said how experts are stored.
#[test]
fn families_with_experts_are_not_read() {
    for (name, class) in [("qwen3_moe", "Qwen3MoeForCausalLM"), ("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM")] {
        let case = write(format!("--set architecture=\"{name}\" --set model_type=\"{name}\""));
        let refused = Checkpoint::open(&case.path("model.apr")).err().unwrap().to_string();
        assert!(refused.contains(&format!("experts of {class} are not read")), "{refused}");
    }
}

/// What programs make of it is what they make of the directory that says the same.
#[test]
fn a_model_scores_and_teaches_as_its_directory_does() {
    let case = write("--tied");
    token_file(case.dir.path(), "data.bin", 17 * 4, 40);
    case.model("student", 2, &[("vocab_size", 40.into())]);
    let [file, directory] = BOTH.map(|model| {
        let score = "eval --json --untrained --device sim --seq-len 16 --data data.bin --model";
        case.run([score, model]).json()["nll"].take()
    });
    assert_eq!(file, directory);
    let [file, directory] = BOTH.map(|teacher| {
        case.distill("out", ["--overwrite --steps 2 --checkpoint-every 0 --teacher", teacher]).succeeds();
        case.weights("out")
    });
    assert!(file == directory);
    // A student comes in this way too.
    case.train("trained", "--model model.apr --steps 1 --batch-size 1 --checkpoint-every 0").succeeds();
    open(&case, "trained/student");
    assert!(case.run("plan --arch sm_89 --seq-len 16 --model model.apr").succeeds().starts_with("takes "));
}

#[test]
fn what_no_kernel_reads_is_not_kept_as_stored() {
    for dtype in ["AprQ4", "AprQ8"] {
        let case = write(["--only", dtype]);
        token_file(case.dir.path(), "data.bin", 17 * 4, 40);
        for (command, flag) in [
            ("eval --device sim --data data.bin --model model.apr", "--format"),
            ("plan --arch sm_89 --student expected --teacher model.apr", "--teacher-format"),
            ("plan --arch sm_89 --lora-rank 4 --model model.apr", "--student-format"),
        ] {
            let said = format!("{flag} stored: the model holds matrices in {dtype}");
            case.run([command, "--seq-len 16", flag, "stored"]).fails(2, said);
        }
    }
}

/// A tokenizer whose end, 2, is one of those that no text has.
const TOKENIZER: [&str; 2] =
    [r#"tokenizer.vocabulary=["a", "b", "<|im_end|>", "Ġ", "ab", "c"]"#, r#"tokenizer.merges=["a b"]"#];

#[test]
fn a_tokenizer_of_a_family_that_splits_in_one_way_is_read() {
    let case = write_with("", &TOKENIZER);
    let apr = open(&case, "model.apr");
    let tokenizer = apr.tokenizer().unwrap().unwrap();
    assert_eq!(tokenizer.encode("ab<|im_end|>c a", SpecialTokens::Add).unwrap(), [4, 2, 5, 3, 0]);
    assert!(tokenizer.added().contains("<|im_end|>") && !tokenizer.added().contains("c"));
    assert!(apr.chat_template(Default::default()).unwrap().is_none());
    let chat = r#"chat_template="{{ messages[0].content }}<|im_end|>""#;
    let case = write_with("", &[TOKENIZER[0], TOKENIZER[1], chat]);
    let template = open(&case, "model.apr").chat_template(Default::default()).unwrap().expect("the file has one");
    let messages: minijinja::Value = serde_json::from_str(r#"[{"role": "user", "content": "ab"}]"#).unwrap();
    assert_eq!(template.prompt(&messages, None).unwrap(), "ab<|im_end|>");
    // Llama's models split text in several ways, and the file does not say which.
    assert!(open(&write_with("--family llama", &TOKENIZER), "model.apr").tokenizer().unwrap().is_none());
    for wrong in [
        r#"tokenizer.merges=["a c"]"#,
        r#"tokenizer.merges=[1]"#,
        r#"tokenizer.vocabulary=["a", "a"]"#,
        r#"tokenizer.vocabulary=[""]"#,
    ] {
        let case = write_with("", &[TOKENIZER[0], TOKENIZER[1], wrong]);
        let error = open(&case, "model.apr").tokenizer().err().unwrap().to_string();
        assert!(error.contains(wrong.split('=').next().unwrap()), "{error}");
    }
}

/// Each name of a model is that of its file or directory, which the export has too.
#[test]
fn a_file_and_its_directory_export_to_the_same_bytes() {
    let template = r#"chat_template="{{ messages }}""#;
    for (more, set) in [("--tied", None), ("--only BF16", None), ("--rope 0", Some(template))] {
        let case = write_with(more, &TOKENIZER.into_iter().chain(set).collect::<Vec<_>>());
        // Tokenizers of this kind of file are built, and `init` writes what is.
        case.run("init --layers 0 --precision fp32 --from model.apr --out directory/model").succeeds();
        for name in ["config.json", "model.safetensors"] {
            case.write(&format!("directory/model/{name}"), case.read(format!("expected/{name}")));
        }
        for format in ["f32", "bf16", "q8_0"] {
            let [of_file, of_directory] = ["model.apr", "directory/model"].map(|model| {
                case.run(["export --out exported.gguf --model", model, "--format", format]).succeeds();
                let bytes = case.read("exported.gguf");
                fs::remove_file(case.path("exported.gguf")).unwrap();
                bytes
            });
            assert!(of_file == of_directory, "{more} {format}");
        }
    }
    let llama = write_with("--family llama", &TOKENIZER);
    llama.run("export --model model.apr --out exported.gguf").fails(5, "it has no tokenizer");
}

/// An evaluation of a file ends with 5.
fn refused(case: &Case, model: &str, said: &str) {
    token_file(case.dir.path(), "data.bin", 17 * 4, 6);
    case.run(["eval --untrained --device sim --seq-len 16 --data data.bin --model", model]).fails(5, said);
}

#[test]
fn what_this_program_does_not_follow_is_refused_by_name() {
    let gpt2 = "metadata key architecture is \"gpt2\": supported are qwen2, qwen3, llama, smollm3, granite and olmo2";
    for (arguments, said) in [
        ("--flags 0x421", "flag LZ4 (0x1)"),
        ("--flags 0x422", "flag ZSTD (0x2)"),
        ("--flags 0x424", "flag ENCRYPTED (0x4)"),
        ("--flags 0x430", "flag SHARDED (0x10)"),
        ("--flags 0xC20", "flag COLUMN_MAJOR (0x800)"),
        ("--flags 0x20", "flag ROW_MAJOR (0x400) at byte 6: it is not set"),
        ("--flags 0x1420", "flag without a name (0x1000)"),
        ("--set hidden_size=null", "no metadata key hidden_size"),
        ("--set num_layers=\"two\"", "metadata key num_layers is \"two\""),
        ("--set num_heads=0", "metadata key num_heads is 0"),
        ("--set architecture=\"gpt2\"", gpt2),
        ("--set rope_type=1", "metadata key rope_type is 1"),
        ("--set rope_type=null --family llama", "no metadata key rope_type"),
        ("--set final_logit_softcapping=30", "final_logit_softcapping"),
        ("--set use_sliding_window=true", "use_sliding_window"),
        ("--set rope_scaling={\"rope_type\":\"yarn\",\"factor\":4}", "yarn"),
        ("--set vocab_size=41", "model.embed_tokens.weight"),
    ] {
        refused(&write(arguments), "model.apr", said);
    }
}

/// Reads all weights of a file.
fn read_all(path: &Path) -> Result<Checkpoint, CheckpointError> {
    let checkpoint = Checkpoint::open(path)?;
    let mut scratch = Scratch::default();
    for parameter in parameters(&checkpoint) {
        checkpoint.read(&parameter, Dtype::F32.into(), &mut scratch)?;
    }
    Ok(checkpoint)
}

/// Does all that can be done with a file.
fn exercise(path: &Path) -> Result<(), CheckpointError> {
    read_all(path)?.tokenizer().map(drop)
}

fn small() -> Case {
    write_with("--small", &[r#"tokenizer.vocabulary=["a", "b", "ab", "<|x|>"]"#, TOKENIZER[1]])
}

#[test]
fn every_flipped_byte_and_every_truncation_is_an_error() {
    let case = small();
    let path = case.path("model.apr");
    let whole = case.read("model.apr");
    exercise(&path).unwrap();
    let mut damaged = whole.clone();
    for at in (0..whole.len()).step_by(each_of(5)) {
        damaged[at] = !damaged[at];
        fs::write(&path, &damaged).unwrap();
        assert!(exercise(&path).is_err(), "byte {at}");
        damaged[at] = whole[at];
    }
    for length in (0..whole.len()).step_by(each_of(5)) {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(exercise(&path).is_err(), "{length} bytes");
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(exercise(&path).is_err(), "a byte too many");
    // As programs say it.
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    refused(&case, "model.apr", "the checksum of the file is");
}

/// With checksums that hold, nothing but the reader's own checks stands between a byte and what is made of it.
#[test]
fn no_byte_whose_checksums_hold_brings_a_panic() {
    let case = small();
    let path = case.path("model.apr");
    let whole = case.read("model.apr");
    let seal = |bytes: &mut [u8]| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[..40]);
        hasher.update(&bytes[44..64]);
        bytes[40..44].copy_from_slice(&hasher.finalize().to_le_bytes());
        let end = bytes.len() - 4;
        let footer = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&footer);
    };
    let mut sealed = whole.clone();
    seal(&mut sealed);
    assert!(sealed == whole);
    let data = u64::from_le_bytes(whole[32..40].try_into().unwrap()) as usize;
    for at in (0..whole.len()).step_by(each_of(5)) {
        for byte in [0xFF, whole[at] ^ 1] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            seal(&mut damaged);
            fs::write(&path, &damaged).unwrap();
            // Either is right: a byte of a weight damages nothing that can be told. What is before them says the rest,
            // too.
            let _ = if at < data { exercise(&path) } else { read_all(&path).map(drop) };
        }
    }
    // Numbers of the header that no file has.
    for (at, width) in [(8, 4), (12, 8), (20, 4), (24, 8), (32, 8)] {
        for value in [u64::MAX, 1 << 62, 1 << 31, 1 << 24] {
            let mut damaged = whole.clone();
            damaged[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            seal(&mut damaged);
            fs::write(&path, &damaged).unwrap();
            if damaged != whole {
                assert!(exercise(&path).is_err(), "{value:#x} at {at}");
            }
        }
    }
}
