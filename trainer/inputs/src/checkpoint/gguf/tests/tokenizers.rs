//! Tokenizers that GGUF files hold give the ids that the library they come from gives.

use std::path::Path;

use precast_kernels::Dtype;
use precast_plan::Parameters;
use precast_system::files::Existing;
use serde_json::{Value, json};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer};

use super::super::tokenizer::pieces;
use super::open;
use super::samples::{
    ByteLevelVocabulary, byte_level_vocabulary, shape, shape_of, with_byte_level, with_layer, with_sentencepiece,
};
use super::writer::Writer;
use crate::chat::ChatSource;
use crate::checkpoint::kind::Kind::F32;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::{Checkpoint, ModelSource, Scratch, Weights, stored, write_model};

const TEXTS: [&str; 8] = [
    "hello hello world",
    "  two  spaces\n\n\nlines\t",
    "<|im_start|>hello<tool call>12345<|im_end|>",
    "<s>hello</s> hello",
    "fn main() { let x = 0x1F; }",
    "中文 and 😀 and é",
    "",
    " ",
];

fn build(writer: Writer) -> Tokenizer {
    open(&writer.bytes()).unwrap().tokenizer().unwrap()
}

fn refused(writer: Writer, wanted: &str) {
    let error = open(&writer.bytes()).unwrap().tokenizer().unwrap_err().to_string();
    assert!(error.contains(wanted), "{error}");
}

fn byte_level(family: &str) -> Tokenizer {
    build(with_byte_level(shape("qwen2"), family))
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode(text, true).unwrap().get_ids().to_vec()
}

fn tokens(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    tokenizer.encode(text, true).unwrap().get_tokens().to_vec()
}

/// The tokenizer after a way through `tokenizer.json`, which must not change it.
fn saved(tokenizer: &Tokenizer) -> Value {
    let json = tokenizer.to_string(true).unwrap();
    let loaded = Tokenizer::from_bytes(&json).unwrap();
    for text in TEXTS {
        let found = ids(tokenizer, text);
        assert_eq!(found, ids(&loaded, text));
        assert_eq!(tokenizer.decode(&found, false).unwrap(), loaded.decode(&found, false).unwrap());
    }
    serde_json::from_str(&json).unwrap()
}

#[test]
fn text_survives_every_byte_level_tokenizer() {
    for family in ["qwen2", "qwen35", "smollm", "llama-bpe", "dbrx", "tekken", "gpt-2", "default"] {
        let tokenizer = byte_level(family);
        saved(&tokenizer);
        for text in TEXTS {
            assert_eq!(tokenizer.decode(&ids(&tokenizer, text), false).unwrap(), text, "{family}");
        }
    }
}

#[test]
fn merges_and_added_tokens_are_those_of_the_file() {
    let tokenizer = byte_level("qwen2");
    let found = tokens(&tokenizer, "hello w12<|im_start|><tool call>é");
    assert_eq!(found, ["hello", "Ġw", "1", "2", "<|im_start|>", "<tool call>", "Ã", "©"]);
    // Composed first.
    assert_eq!(ids(&tokenizer, "e\u{301}"), ids(&tokenizer, "é"));
    assert_ne!(ids(&byte_level("gpt-2"), "e\u{301}"), ids(&byte_level("gpt-2"), "é"));
    // Special tokens are left out of a decoded text, user-defined ones are not, padding has no text.
    assert_eq!(tokenizer.decode(&ids(&tokenizer, "a<|im_end|><tool call>"), true).unwrap(), "a<tool call>");
    let ByteLevelVocabulary { tokens, .. } = byte_level_vocabulary();
    assert_eq!(tokenizer.get_vocab_size(true), tokens.len() - 2);
    assert_eq!(tokenizer.id_to_token(tokens.len() as u32 - 1), None);
    for (id, text) in tokens.iter().enumerate().take(tokens.len() - 2) {
        assert_eq!(tokenizer.token_to_id(text), Some(id as u32));
    }
}

#[test]
fn words_that_are_tokens_need_no_merges() {
    let writer = |family| with_byte_level(shape("llama"), family).strings("tokenizer.ggml.merges", &["l l"]);
    assert_eq!(tokens(&build(writer("llama-bpe")), "hello"), ["hello"]);
    for family in ["gpt-2", "dbrx"] {
        assert_eq!(tokens(&build(writer(family)), "hello"), ["h", "e", "ll", "o"]);
    }
}

#[test]
fn each_family_splits_words_as_its_own_pattern_does() {
    let text = "I'M we're 12345 (x+=1)\n\n  y ";
    let splits = ["gpt-2", "smollm", "qwen2", "llama3", "llama-bpe", "dbrx", "tekken", "default"].map(|family| {
        let mut words = PreTokenizedString::from(text);
        byte_level(family).get_pre_tokenizer().unwrap().pre_tokenize(&mut words).unwrap();
        let splits = words.get_splits(OffsetReferential::Original, OffsetType::Byte);
        let found: Vec<&str> = splits.iter().map(|(_, (start, end), _)| &text[*start..*end]).collect();
        format!("{family}: {found:?}")
    });
    insta::assert_snapshot!(splits.join("\n"));
}

/// Vowel signs of Devanagari are marks, and have no composed form.
#[test]
fn words_of_qwen35_have_their_marks() {
    let words = |family: &str| {
        let mut words = PreTokenizedString::from("हिन्दी x");
        byte_level(family).get_pre_tokenizer().unwrap().pre_tokenize(&mut words).unwrap();
        words.get_splits(OffsetReferential::Original, OffsetType::Byte).len()
    };
    assert_eq!((words("qwen35"), words("qwen2")), (2, 5));
}

#[test]
fn sentencepiece_merges_pieces_and_falls_back_to_bytes() {
    let tokenizer = build(with_sentencepiece(shape("llama")).flag("tokenizer.ggml.add_bos_token", false));
    assert_eq!(tokens(&tokenizer, "hello"), ["▁hello"]);
    assert_eq!(tokens(&tokenizer, " hello"), ["▁", "▁hello"]);
    assert_eq!(tokens(&tokenizer, "hello    o"), ["▁hello", "▁▁▁", "▁", "o"]);
    // A fragment between special tokens has its own prefix; bytes stand in for what no piece is.
    assert_eq!(tokens(&tokenizer, "<s>hello</s>é"), ["<s>", "▁hello", "</s>", "▁", "<0xC3>", "<0xA9>"]);
    for text in ["hello", " hello", "hello    o\n中😀"] {
        assert_eq!(tokenizer.decode(&ids(&tokenizer, text), true).unwrap(), text);
    }
    let json = saved(&tokenizer);
    let merges =
        "l l|h e|he ll|hell o|▁ hello|▁▁ ▁|▁ ▁▁|▁ ▁".split('|').map(|merge| merge.split(' ').collect::<Vec<_>>());
    let merges = json!(merges.collect::<Vec<_>>());
    assert_eq!(json["model"]["merges"], merges);
    assert_eq!((&json["model"]["unk_token"], &json["post_processor"]), (&json!("<unk>"), &Value::Null));
}

#[test]
fn sentencepiece_adds_no_space_in_front_where_the_file_says_so() {
    let writer = with_sentencepiece(shape("llama")).flag("tokenizer.ggml.add_space_prefix", false);
    let tokenizer = build(writer.flag("tokenizer.ggml.add_bos_token", false));
    assert_eq!(tokens(&tokenizer, "hello hello"), ["hello", "▁hello"]);
    assert_eq!(tokenizer.decode(&ids(&tokenizer, " hello"), true).unwrap(), " hello");
    saved(&tokenizer);
}

/// What converters read: no `tokenizer.json` has scores.
#[test]
fn a_sentencepiece_model_has_pieces_scores_and_kinds() {
    let of = |writer: Writer| open(&writer.bytes()).unwrap().sentencepiece().unwrap();
    let llama = || with_sentencepiece(shape("llama"));
    let model = of(llama()).unwrap();
    let read = pieces(&model).unwrap();
    assert!(read.list.len() == 271 && read.prefixes);
    let of_pieces = [0, 2, 3, 263, 270].map(|id: usize| (read.list[id].0, read.list[id].1, read.list[id].2 as i32));
    let expected = [("<unk>", 0.0, 2), ("</s>", 0.0, 3), ("<0x00>", 0.0, 6), ("▁hello", -5.0, 1), ("o", -14.0, 1)];
    assert_eq!(of_pieces, expected);
    // Byte by byte: the first piece, what it was trained as, and how texts are normalized.
    assert!(model.starts_with(b"\x0a\x0e\x0a\x05<unk>\x15\0\0\0\0\x18\x02"), "{:?}", &model[..20]);
    let rest = b"\x12\x08\x18\x02\x20\x8f\x02\x98\x02\x01\x1a\x0e\x0a\x08identity\x18\x01\x20\0";
    assert!(model.ends_with(rest), "{:?}", &model[model.len() - 30..]);
    assert!(pieces(&model[..model.len() - 1]).is_err() && pieces(b"").is_err());
    let bare = of(llama().flag("tokenizer.ggml.add_space_prefix", false)).unwrap();
    assert!(bare.ends_with(b"\x0a\x08identity\x18\0\x20\0") && !pieces(&bare).unwrap().prefixes);
    // Its library wants one token for what is unknown; a byte-level vocabulary has no scores.
    let kinds = [vec![3; 3], vec![6; 256], vec![1; 12]].concat();
    assert_eq!(of(llama().integers("tokenizer.ggml.token_type", &kinds)), None);
    assert_eq!(of(with_byte_level(shape("qwen2"), "qwen2")), None);
    // Padding may be there twice, and pieces may not.
    let unused = [vec![2, 3, 3], vec![6; 256], vec![1; 10], vec![5; 2]].concat();
    let padded = of(llama().integers("tokenizer.ggml.token_type", &unused)).unwrap();
    assert_eq!(pieces(&padded).unwrap().list[270].0, "[PAD270]");
}

/// A model of a shape that kernels take.
fn heads_of_16() -> Writer {
    let writer = shape_of("llama", 2, [256, 16, 16]).tensor("token_embd.weight", &[256, 271], F32).tensor(
        "output_norm.weight",
        &[256],
        F32,
    );
    (0..2).fold(writer, |writer, layer| with_layer(writer, layer, [256, 16, 16], |_| F32))
}

/// Writes a model again, as a Hugging Face directory.
fn copy(from: &Path, to: &Path) {
    let (from, mut scratch) = (Checkpoint::open(from).unwrap(), Scratch::default());
    let parameters = Parameters::new(from.config()).list;
    let dtype = Dtype::F32;
    let model =
        ModelSource { config: &from.json, parameters: &parameters, dtype: stored(dtype), tokenizer_from: &[&from] };
    write_model(to, Existing::Keep, &model, |parameter, write| {
        write(from.read(parameter, dtype.into(), &mut scratch)?)
    })
    .unwrap();
}

/// Whatever reads it, from whatever it was made.
#[test]
fn a_model_that_is_written_has_its_tokenizer_in_both_forms() {
    let dir = tempfile::tempdir().unwrap();
    let [gguf, first, second] = ["tokens.gguf", "first", "second"].map(|name| dir.path().join(name));
    std::fs::write(&gguf, with_sentencepiece(heads_of_16()).bytes()).unwrap();
    copy(&gguf, &first);
    copy(&first, &second);
    for name in ["tokenizer.json", "tokenizer.model"] {
        let [first, second] = [&first, &second].map(|model| std::fs::read(model.join(name)).unwrap());
        assert!(first == second && first.len() > 1000, "{name}");
    }
}

#[test]
fn a_text_begins_with_a_token_where_the_file_says_so() {
    // A file that says nothing means it.
    assert_eq!(tokens(&build(with_sentencepiece(shape("llama"))), "hello"), ["<s>", "▁hello"]);
    let writer = || with_sentencepiece(shape("llama")).flag("tokenizer.ggml.add_bos_token", true);
    let tokenizer = build(writer());
    assert_eq!(tokens(&tokenizer, "hello"), ["<s>", "▁hello"]);
    assert_eq!(tokenizer.encode("hello", false).unwrap().get_tokens(), ["▁hello"]);
    let pair = tokenizer.encode(("hello", "o"), true).unwrap();
    assert_eq!(pair.get_tokens(), ["<s>", "▁hello", "<s>", "▁", "o"]);
    assert_eq!(pair.get_type_ids(), [0, 0, 1, 1, 1]);
    saved(&tokenizer);
    refused(writer().integer("tokenizer.ggml.bos_token_id", 271), "has no such token in use");
    refused(writer().without("tokenizer.ggml.bos_token_id"), "no metadata key tokenizer.ggml.bos_token_id");
}

/// As llama.cpp has it: Llama 3's texts begin with a token unless the file says otherwise, Qwen's do not.
#[test]
fn byte_level_texts_begin_with_a_token_in_llama_3_and_tekken_alone() {
    let begins = |family: &str| {
        let writer = with_byte_level(shape("llama"), family).integer("tokenizer.ggml.bos_token_id", 3);
        let first = tokens(&build(writer), "hello");
        let told = |flag| {
            let writer = with_byte_level(shape("llama"), family).integer("tokenizer.ggml.bos_token_id", 3);
            tokens(&build(writer.flag("tokenizer.ggml.add_bos_token", flag)), "hello").len() == 2
        };
        assert!(told(true) && !told(false), "{family}");
        first.len() == 2
    };
    assert!(["llama-bpe", "llama3", "llama-v3", "tekken"].into_iter().all(begins));
    assert!(!["qwen2", "smollm", "gpt-2", "dbrx", "default"].into_iter().any(begins));
}

#[test]
fn a_tokenizer_that_contradicts_itself_is_refused_by_place() {
    let gpt2 = || with_byte_level(shape("qwen2"), "qwen2");
    let llama = || with_sentencepiece(shape("llama"));
    refused(shape("llama"), "no metadata key tokenizer.ggml.model");
    refused(gpt2().string("tokenizer.ggml.model", "t5"), "is t5: known are gpt2 and llama");
    refused(
        gpt2().string("tokenizer.ggml.pre", "x"),
        "is x: known are gpt-2, smollm, qwen2, qwen35, llama-bpe, dbrx, tekken, default",
    );
    refused(gpt2().without("tokenizer.ggml.pre"), "no metadata key tokenizer.ggml.pre");
    refused(gpt2().without("tokenizer.ggml.merges"), "no metadata key tokenizer.ggml.merges");
    refused(gpt2().integers("tokenizer.ggml.token_type", &[1]), "is 1 items long: tokenizer.ggml.tokens has ");
    refused(llama().floats("tokenizer.ggml.scores", &[0.0]), "is 1 items long");
    refused(llama().integers("tokenizer.ggml.scores", &[0]), "is an array of numbers, expected an array of 32-bit fl");

    let tokens = |tokens: &[&str], types: &[i32]| {
        let writer = gpt2().strings("tokenizer.ggml.tokens", tokens).integers("tokenizer.ggml.token_type", types);
        writer.strings("tokenizer.ggml.merges", &["a b"])
    };
    refused(tokens(&["a", "b", "a"], &[1, 1, 1]), ": item 2 is \"a\", as is item 0");
    refused(tokens(&["a", "b", ""], &[1, 1, 1]), ": item 2 is 0 bytes, expected 1 to 1024");
    refused(tokens(&["a", "b", &"c".repeat(1025)], &[1, 1, 1]), ": item 2 is 1025 bytes");
    refused(tokens(&["a", "b", "ab"], &[1, 1, 7]), ": item 2 is 7: types of tokens are 1 to 6");
    refused(tokens(&["a", "b", "c"], &[1, 1, 1]), ": item 0 is \"a b\", expected two tokens");
    refused(tokens(&["a", "b", "ab"], &[1, 1, 5]), ": item 0 is \"a b\", expected two tokens");
    // Together longer than any token, which the library does not look out for.
    refused(tokens(&["a", "b"], &[1, 1]), "metadata key tokenizer.ggml.merges at byte ");
    let long: Vec<String> = (0..270).map(|id| format!("x{id}")).chain(["y".repeat(129)]).collect();
    refused(llama().strings("tokenizer.ggml.tokens", &long), ": item 270 is 129 bytes, expected at most 128");
    build(tokens(&["a", "b", "ab"], &[1, 1, 1]));
}

#[test]
fn a_tokenizers_configuration_has_its_tokens_and_template() {
    let config = |writer: Writer| {
        let gguf = open(&writer.bytes()).unwrap();
        let tokenizer = gguf.tokenizer().unwrap();
        gguf.tokenizer_config(&|id| tokenizer.id_to_token(id)).unwrap()
    };
    let plain = config(with_byte_level(shape("qwen2"), "qwen2"));
    assert_eq!(plain, json!({"tokenizer_class": "PreTrainedTokenizerFast"}));
    let told = with_sentencepiece(shape("llama")).integer("tokenizer.ggml.eos_token_id", 2);
    let told = config(told.string("tokenizer.chat_template", "{{ messages }}"));
    assert_eq!((&told["bos_token"], &told["eos_token"]), (&json!("<s>"), &json!("</s>")));
    assert_eq!(told["chat_template"], "{{ messages }}");
    let writer = with_byte_level(shape("qwen2"), "qwen2").string("tokenizer.chat_template", "a");
    let several = config(writer.string("tokenizer.chat_template.tool_use", "b"));
    let source = ChatSource::of_config(&several).unwrap();
    assert_eq!((&*source.default, source.tool_use.as_deref()), ("a", Some("b")));
}
