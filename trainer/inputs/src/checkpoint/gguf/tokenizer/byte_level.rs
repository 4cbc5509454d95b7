//! Byte-level BPE: bytes are written as printable characters, and merges are listed best first.

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer};

use super::super::metadata::{Metadata, required};
use super::json::{Bpe, Json};
use super::vocabulary::Vocabulary;
use crate::checkpoint::fault::Fault;

pub(super) const MERGES_KEY: &str = "tokenizer.ggml.merges";
pub(super) const PRE_KEY: &str = "tokenizer.ggml.pre";

/// How a family of models splits text into the words that are then merged within.
#[derive(Clone, Copy)]
struct Family {
    /// As the file names it.
    name: &'static str,
    /// True if text is first brought to Unicode's normal form C.
    composes: bool,
    /// True if digits are split one by one, before all else.
    splits_digits: bool,
    /// Expressions that split text, each within the pieces of the one before; GPT-2's, which the library has built in,
    /// if none.
    splits: &'static [&'static str],
    /// True if a word that is a token is taken whole, whatever the merges would make of it.
    ignores_merges: bool,
    /// True if texts begin with a token unless the file says otherwise.
    begins: bool,
}

const PLAIN: Family =
    Family { name: "gpt-2", composes: false, splits_digits: false, splits: &[], ignores_merges: false, begins: false };

const QWEN2: Family = Family {
    name: "qwen2",
    composes: true,
    splits: &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    ..PLAIN
};

/// Words may have marks, which combine with the letter before.
const QWEN35: Family = Family {
    name: "qwen35",
    splits: &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    ..QWEN2
};

/// Of OLMo 2, too.
const DBRX: Family = Family {
    name: "dbrx",
    splits: &[
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ],
    ..PLAIN
};

const FAMILIES: [Family; 8] = [
    PLAIN,
    Family { name: "smollm", splits_digits: true, ..PLAIN },
    QWEN2,
    QWEN35,
    Family { name: "llama-bpe", ignores_merges: true, begins: true, ..DBRX },
    DBRX,
    // Of Mistral's models since Nemo.
    Family {
        name: "tekken",
        splits: &[
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        ],
        ignores_merges: true,
        begins: true,
        ..PLAIN
    },
    // What llama.cpp does for a model that it has no family for.
    Family {
        name: "default",
        splits: &[
            r"[\p{P}$+<=>^~|]+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+",
            r"[0-9][0-9][0-9]",
        ],
        ..PLAIN
    },
];

/// Other names of families in llama.cpp's `llama-vocab.cpp`.
const ALIASES: [(&str, &str); 2] = [("llama3", "llama-bpe"), ("llama-v3", "llama-bpe")];

/// True if texts begin with a token where the file does not say.
pub(super) fn begins(metadata: &Metadata) -> Result<bool, Fault> {
    Ok(Family::of(metadata)?.begins)
}

impl Family {
    fn of(metadata: &Metadata) -> Result<Self, Fault> {
        let name = required(PRE_KEY, metadata.string(PRE_KEY)?)?;
        let known = || format!("known are {}", FAMILIES.map(|family| family.name).join(", "));
        let family_name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(&name[..], |(_, family)| family);
        let family = FAMILIES.into_iter().find(|family| family.name == family_name);
        family.ok_or_else(|| metadata.refuse(PRE_KEY, name, known()))
    }

    fn assemble(self, vocab: Vocab, merges: Merges) -> tokenizers::Result<Tokenizer> {
        let model = BPE::builder().vocab_and_merges(vocab, merges).ignore_merges(self.ignores_merges).build()?;
        let mut tokenizer = Tokenizer::new(model);
        tokenizer.with_normalizer(self.composes.then_some(NFC))?;
        tokenizer.with_pre_tokenizer(Some(self.pre_tokenizer()?));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        Ok(tokenizer)
    }

    fn pre_tokenizer(self) -> tokenizers::Result<PreTokenizerWrapper> {
        let mut steps = Vec::new();
        if self.splits_digits {
            steps.push(PreTokenizerWrapper::Digits(Digits::new(true)));
        }
        for split in self.splits {
            let pattern = SplitPattern::Regex((*split).to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?;
            steps.push(split.into());
        }
        steps.push(ByteLevel::new(false, true, self.splits.is_empty()).into());
        Ok(Sequence::new(steps).into())
    }
}

/// The name of the family that splits text as a `tokenizer.json` says, or what it splits text by.
pub(super) fn name_of(json: &Json, bpe: &Bpe) -> Result<&'static str, String> {
    let (normalizers, steps) = (steps(&json.normalizer), steps(&json.pre_tokenizer));
    let is_it = |family: &&Family| {
        let written = family.pre_tokenizer().ok().and_then(|own| serde_json::to_value(own).ok());
        written.is_some_and(|own| self::steps(&own) == steps)
            && normalizers.iter().map(kind_of).eq(family.composes.then_some("NFC"))
            && bpe.ignore_merges == family.ignores_merges
    };
    if let Some(family) = FAMILIES.iter().find(is_it) {
        return Ok(family.name);
    }
    let by = normalizers.iter().chain(&steps).map(kind_of).collect::<Vec<_>>().join(", ");
    let known = FAMILIES.map(|family| family.name).join(", ");
    Err(format!("it splits text by {by}, in a way that is none of llama.cpp's {known}"))
}

fn kind_of(step: &Value) -> &str {
    step.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// What a normalizer or a pre-tokenizer does in turn, without what has no part in ids.
fn steps(value: &Value) -> Vec<Value> {
    if value.is_null() {
        return Vec::new();
    }
    let within = ["normalizers", "pretokenizers"].into_iter().find_map(|list| value.get(list)?.as_array());
    if let Some(within) = within {
        return within.iter().flat_map(steps).collect();
    }
    let mut step = value.clone();
    if let Value::Object(fields) = &mut step {
        fields.remove("trim_offsets");
    }
    vec![step]
}

/// The tokenizer, without its added tokens.
pub(super) fn tokenizer(metadata: &Metadata, file: &[u8], vocabulary: &Vocabulary<'_>) -> Result<Tokenizer, Fault> {
    let family = Family::of(metadata)?;
    family.assemble(vocabulary.bpe(), merges(metadata, file, vocabulary)?).map_err(Fault::tokenizer)
}

/// The tokenizer of all Qwen models since Qwen2, without its added tokens.
pub(in crate::checkpoint) fn splits_as_qwen2(vocab: Vocab, merges: Merges) -> tokenizers::Result<Tokenizer> {
    QWEN2.assemble(vocab, merges)
}

/// Pairs of tokens that merge, best first. Both and what they merge into are in the vocabulary, as the library
/// takes for granted.
fn merges(metadata: &Metadata, file: &[u8], vocabulary: &Vocabulary<'_>) -> Result<Merges, Fault> {
    let merges = required(MERGES_KEY, metadata.strings(file, MERGES_KEY)?)?;
    let merges = merges.into_iter().enumerate().map(|(index, merge)| {
        let known = |(left, right): &(&str, &str)| {
            [left, right, &[*left, right].concat()[..]].into_iter().all(|text| vocabulary.id(text).is_some())
        };
        let Some((left, right)) = merge.split_once(' ').filter(known) else {
            let reason = format!("is {merge:?}, expected two tokens that make a third, with a space between");
            return Err(metadata.refuse_item(MERGES_KEY, index, reason));
        };
        Ok((left.to_owned(), right.to_owned()))
    });
    merges.collect()
}
