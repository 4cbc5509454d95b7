//! APR files, written by a program that knows the format's page and nothing of this one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use precast::inputs::checkpoint::{Access, Checkpoint, CheckpointError, Scratch, Weights};
use precast::inputs::tokenizer::SpecialTokens;
use precast_kernels::{Block, Dtype, Format};
use precast_plan::{Parameter, Parameters};

use crate::support::{distill, fail, precast, random_model, root, succeed, tiny_config, token_file};

/// A model in a scratch directory: `model.apr`, and `expected`, which is what it says.
struct Written {
    dir: tempfile::TempDir,
}

fn write(arguments: &[&str]) -> Written {
    let dir = tempfile::tempdir().unwrap();
    succeed(Command::new("python3").arg(root().join("tests/apr/write.py")).arg(dir.path()).args(arguments));
    Written { dir }
}

impl Written {
    fn apr(&self) -> PathBuf {
        self.dir.path().join("model.apr")
    }

    fn expected(&self) -> PathBuf {
        self.dir.path().join("expected")
    }
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
    let each = ["F32", "F16", "BF16", "Q4_K", "Q6_K", "AprQ4", "AprQ8"].map(|dtype| vec!["--only", dtype]);
    let mixed = [
        vec![],
        vec!["--tied"],
        vec!["--older"],
        vec!["--family", "llama"],
        vec!["--family", "llama", "--rope", "0"],
        vec!["--family", "llama", "--rope", "0", "--only", "Q4_K", "--tied"],
        vec!["--rope", "0"],
        vec!["--small"],
    ];
    for arguments in each.into_iter().chain(mixed) {
        let written = write(&arguments);
        let expected = bits(&written.expected(), Access::Read);
        for access in [Access::Read, Access::Map, Access::Direct] {
            assert!(bits(&written.apr(), access) == expected, "{arguments:?} {access:?}");
        }
        let [apr, expected] = [written.apr(), written.expected()].map(|path| Checkpoint::open(&path).unwrap());
        assert_eq!(apr.config(), expected.config(), "{arguments:?}");
        assert_eq!(apr.eos_token(), Some(2));
    }
}

#[test]
fn blocks_that_ggml_has_too_stay_as_they_are_stored() {
    for (arguments, block) in
        [(&["--only", "Q4_K"][..], Block::Q4_K), (&["--only", "Q6_K", "--family", "llama", "--rope", "0"], Block::Q6_K)]
    {
        let written = write(arguments);
        let [apr, expected] = [written.apr(), written.expected()].map(|path| Checkpoint::open(&path).unwrap());
        let formats = apr.formats();
        assert_eq!(formats.dequantized(), None);
        let kept: Vec<Parameter> =
            parameters(&apr).into_iter().filter(|parameter| formats.of(&parameter.name) == Some(block)).collect();
        assert_eq!(kept.len(), 7, "{arguments:?}");
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
    let scaling = r#"{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 64}"#;
    for key in ["rope_scaling", "rope_parameters"] {
        let written = write(&["--family", "llama", "--set", &format!("{key}={scaling}")]);
        let path = written.expected().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let plain = Checkpoint::open(&written.expected()).unwrap().config().clone();
        config["rope_scaling"] = serde_json::from_str(scaling).unwrap();
        fs::write(&path, config.to_string()).unwrap();
        let [apr, expected] = [written.apr(), written.expected()].map(|path| Checkpoint::open(&path).unwrap());
        assert_eq!(apr.config(), expected.config(), "{key}");
        assert_ne!(apr.config().rope_frequencies(), plain.rope_frequencies(), "{key}");
    }
}

/// What programs make of it is what they make of the directory that says the same.
#[test]
fn a_model_scores_and_teaches_as_its_directory_does() {
    let dir = tempfile::tempdir().unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 40);
    let student = random_model(dir.path(), "student", 2, &tiny_config(&[("vocab_size", 40.into())]));
    let written = write(&["--tied"]);
    let eval = |model: &Path, arguments: &[&str]| {
        let mut command = precast();
        command.args(["eval", "--json", "--untrained", "--device", "sim", "--seq-len", "16", "--model"]).arg(model);
        let mut score: serde_json::Value =
            serde_json::from_str(&succeed(command.arg("--data").arg(&data).args(arguments))).unwrap();
        score["nll"].take()
    };
    assert_eq!(eval(&written.apr(), &[]), eval(&written.expected(), &[]));
    let losses = |teacher: &Path, out: &str, arguments: &[&str]| {
        let out = dir.path().join(out);
        let mut command = distill(teacher, &student, &data, &out);
        command
            .args(["--steps", "2", "--batch-size", "2", "--seq-len", "16", "--checkpoint-every", "0"])
            .args(arguments);
        succeed(&mut command);
        fs::read(out.join("student/model.safetensors")).unwrap()
    };
    assert!(losses(&written.apr(), "apr", &[]) == losses(&written.expected(), "directory", &[]));
    let kept = write(&["--only", "Q4_K"]);
    let [stored, wide] = ["stored", "bf16"].map(|form| losses(&kept.apr(), form, &["--teacher-format", form]));
    assert!(stored == wide);
    // A student comes in this way too.
    let out = dir.path().join("trained");
    let mut train = crate::support::train(&written.apr(), &data, &out);
    succeed(train.args(["--steps", "1", "--batch-size", "1", "--seq-len", "16", "--checkpoint-every", "0"]));
    assert!(Checkpoint::open(&out.join("student")).is_ok());
    let mut plan = precast();
    plan.args(["plan", "--arch", "sm_89", "--seq-len", "16", "--model"]).arg(written.apr());
    assert!(succeed(&mut plan).starts_with("takes "));
}

#[test]
fn what_no_kernel_reads_is_not_kept_as_stored() {
    let dir = tempfile::tempdir().unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 40);
    for dtype in ["AprQ4", "AprQ8"] {
        let written = write(&["--only", dtype]);
        let mut eval = precast();
        eval.args(["eval", "--format", "stored", "--device", "sim", "--seq-len", "16", "--data"])
            .arg(&data)
            .arg("--model")
            .arg(written.apr());
        let mut plan = precast();
        plan.args(["plan", "--arch", "sm_89", "--teacher-format", "stored", "--seq-len", "16", "--teacher"]);
        plan.arg(written.apr()).arg("--student").arg(written.expected());
        let mut train = precast();
        train.args(["plan", "--arch", "sm_89", "--lora-rank", "4", "--student-format", "stored", "--seq-len", "16"]);
        train.arg("--model").arg(written.apr());
        let commands = [(&mut eval, "--format"), (&mut plan, "--teacher-format"), (&mut train, "--student-format")];
        for (command, flag) in commands {
            let message = fail(command, 2);
            assert!(message.contains(&format!("{flag} stored: the model holds matrices in {dtype}")), "{message}");
        }
    }
}

#[test]
fn a_tokenizer_of_a_family_that_splits_in_one_way_is_read() {
    let vocabulary: Vec<String> = ["a", "b", "ab", "Ġ", "<|im_end|>", "c"].map(str::to_owned).to_vec();
    let vocabulary = format!("tokenizer.vocabulary={}", serde_json::to_string(&vocabulary).unwrap());
    let arguments = ["--set", &vocabulary, "--set", r#"tokenizer.merges=["a b"]"#];
    let written = write(&arguments);
    let apr = Checkpoint::open(&written.apr()).unwrap();
    let tokenizer = apr.tokenizer().unwrap().unwrap();
    assert_eq!(tokenizer.encode("ab<|im_end|>c a", SpecialTokens::Add).unwrap(), [2, 4, 5, 3, 0]);
    assert!(tokenizer.added().contains("<|im_end|>") && !tokenizer.added().contains("c"));
    assert!(apr.chat_template(None).unwrap().is_none());
    let chat = ["--set", r#"chat_template="{{ messages[0].content }}<|im_end|>""#];
    let chat = write(&[&arguments[..], &chat[..]].concat());
    let template = Checkpoint::open(&chat.apr()).unwrap().chat_template(None).unwrap().expect("the file has one");
    let messages: minijinja::Value = serde_json::from_str(r#"[{"role": "user", "content": "ab"}]"#).unwrap();
    assert_eq!(template.prompt(&messages, None).unwrap(), "ab<|im_end|>");
    // Llama's models split text in several ways, and the file does not say which.
    let llama = write(&[&["--family", "llama"], &arguments[..]].concat());
    assert!(Checkpoint::open(&llama.apr()).unwrap().tokenizer().unwrap().is_none());
    for (key, value) in [
        ("tokenizer.merges", r#"["a c"]"#),
        ("tokenizer.merges", r#"[1]"#),
        ("tokenizer.vocabulary", r#"["a", "a"]"#),
        ("tokenizer.vocabulary", r#"[""]"#),
    ] {
        let set = format!("{key}={value}");
        let written = write(&[&arguments[..], &["--set", &set]].concat());
        let error = Checkpoint::open(&written.apr()).unwrap().tokenizer().err().unwrap();
        assert!(error.to_string().contains(key), "{error}");
    }
}

/// Each name of a model is that of its file or directory, which the export has too.
#[test]
fn a_file_and_its_directory_export_to_the_same_bytes() {
    // The end token, 2, is one of those that no text has.
    let vocabulary = r#"tokenizer.vocabulary=["a", "b", "<|im_end|>", "Ġ", "ab", "c"]"#;
    let tokenizer = ["--set", vocabulary, "--set", r#"tokenizer.merges=["a b"]"#];
    for more in [&["--tied"][..], &["--only", "BF16"], &["--rope", "0", "--set", r#"chat_template="{{ messages }}""#]] {
        let written = write(&[&tokenizer[..], more].concat());
        let directory = written.dir.path().join("directory/model");
        // Tokenizers of this kind of file are built, and `init` writes what is.
        let mut init = precast();
        init.args(["init", "--layers", "0", "--precision", "fp32", "--from"]).arg(written.apr());
        succeed(init.arg("--out").arg(&directory));
        for name in ["config.json", "model.safetensors"] {
            fs::copy(written.expected().join(name), directory.join(name)).unwrap();
        }
        for format in ["f32", "bf16", "q8_0"] {
            let [of_file, of_directory] = [written.apr(), directory.clone()].map(|model| {
                let out = written.dir.path().join("exported.gguf");
                let mut export = precast();
                export.args(["export", "--format", format, "--model"]).arg(model).arg("--out").arg(&out);
                succeed(&mut export);
                let bytes = fs::read(&out).unwrap();
                fs::remove_file(out).unwrap();
                bytes
            });
            assert!(of_file == of_directory, "{more:?} {format}");
        }
    }
    let llama = write(&[&["--family", "llama"], &tokenizer[..]].concat());
    let mut export = precast();
    export.arg("export").arg("--model").arg(llama.apr()).arg("--out").arg(llama.dir.path().join("exported.gguf"));
    assert!(fail(&mut export, 5).contains("it has no tokenizer"));
}

/// The message of an evaluation, which ends with 5.
fn refused(path: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    let data = token_file(dir.path(), "data.bin", 17 * 4, 6);
    let mut eval = precast();
    eval.args(["eval", "--untrained", "--device", "sim", "--seq-len", "16", "--model"]).arg(path);
    fail(eval.arg("--data").arg(data), 5)
}

#[test]
fn what_this_program_does_not_follow_is_refused_by_name() {
    for (arguments, expected) in [
        (&["--flags", "0x421"][..], "flag LZ4 (0x1)"),
        (&["--flags", "0x422"], "flag ZSTD (0x2)"),
        (&["--flags", "0x424"], "flag ENCRYPTED (0x4)"),
        (&["--flags", "0x430"], "flag SHARDED (0x10)"),
        (&["--flags", "0xC20"], "flag COLUMN_MAJOR (0x800)"),
        (&["--flags", "0x20"], "flag ROW_MAJOR (0x400) at byte 6: it is not set"),
        (&["--flags", "0x1420"], "flag without a name (0x1000)"),
        (&["--set", "hidden_size=null"], "no metadata key hidden_size"),
        (&["--set", "num_layers=\"two\""], "metadata key num_layers is \"two\""),
        (&["--set", "num_heads=0"], "metadata key num_heads is 0"),
        (
            &["--set", "architecture=\"gpt2\""],
            "metadata key architecture is \"gpt2\": supported are qwen2, qwen3 and llama",
        ),
        (&["--set", "rope_type=1"], "metadata key rope_type is 1"),
        (&["--set", "rope_type=null", "--family", "llama"], "no metadata key rope_type"),
        (&["--set", "final_logit_softcapping=30"], "final_logit_softcapping"),
        (&["--set", "use_sliding_window=true"], "use_sliding_window"),
        (&["--set", "rope_scaling={\"rope_type\": \"yarn\", \"factor\": 4}"], "yarn"),
        (&["--set", "vocab_size=41"], "model.embed_tokens.weight"),
    ] {
        let message = refused(&write(arguments).apr());
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn one_file_of_a_directory_is_refused_in_its_own_words() {
    let written = write(&[]);
    let message = refused(&written.expected().join("model.safetensors"));
    assert!(message.contains("a .safetensors file holds weights and does not say of what model"), "{message}");
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

const SMALL: [&str; 5] =
    ["--small", "--set", r#"tokenizer.vocabulary=["a", "b", "ab", "<|x|>"]"#, "--set", r#"tokenizer.merges=["a b"]"#];

#[test]
fn every_flipped_byte_and_every_truncation_is_an_error() {
    let written = write(&SMALL);
    let path = written.apr();
    let whole = fs::read(&path).unwrap();
    exercise(&path).unwrap();
    let mut damaged = whole.clone();
    for at in 0..whole.len() {
        damaged[at] = !damaged[at];
        fs::write(&path, &damaged).unwrap();
        assert!(exercise(&path).is_err(), "byte {at}");
        damaged[at] = whole[at];
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(exercise(&path).is_err(), "{length} bytes");
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(exercise(&path).is_err(), "a byte too many");
    // As programs say it.
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    assert!(refused(&path).contains("the checksum of the file is"));
}

/// With checksums that hold, nothing but the reader's own checks stands between a byte and what is made of it.
#[test]
fn no_byte_whose_checksums_hold_brings_a_panic() {
    let written = write(&SMALL);
    let path = written.apr();
    let whole = fs::read(&path).unwrap();
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
    for at in 0..whole.len() {
        for byte in [0xFF, whole[at] ^ 1] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            seal(&mut damaged);
            fs::write(&path, &damaged).unwrap();
            // Either is right: a byte of a weight damages nothing that can be told. What is before them says the rest, too.
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
