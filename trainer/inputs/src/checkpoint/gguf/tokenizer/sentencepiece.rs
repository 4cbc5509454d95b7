//! SentencePiece BPE: spaces are written `▁`, merges follow from scores, and bytes stand in for what is unknown.

use std::cmp::Reverse;

use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, Merges};
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::{DecoderWrapper, NormalizerWrapper, Tokenizer};

use super::super::metadata::{Metadata, required};
use super::vocabulary::{Kind, TOKENS_KEY, Vocabulary, check_len};
use crate::base::protobuf::{Field, Message, fields};
use crate::checkpoint::fault::Fault;

pub(super) const SCORES_KEY: &str = "tokenizer.ggml.scores";
pub(super) const PREFIX_KEY: &str = "tokenizer.ggml.add_space_prefix";
/// `TrainerSpec.ModelType` of byte-pair encoding.
const BPE: u64 = 2;
const SPACE: &str = "▁";
/// Longer than any piece of a real vocabulary: SentencePiece makes them of 16 characters at most by default. Bounds
/// the merges, of which there may be one a character.
const LONGEST_PIECE_BYTES: usize = 128;

/// A score a token.
fn scores(metadata: &Metadata, file: &[u8], vocabulary: &Vocabulary<'_>) -> Result<Vec<f32>, Fault> {
    let scores = required(SCORES_KEY, metadata.floats(file, SCORES_KEY)?)?;
    check_len(metadata, SCORES_KEY, scores.len(), vocabulary.all().len())?;
    Ok(scores)
}

/// The tokenizer, without its added tokens.
pub(super) fn tokenizer(metadata: &Metadata, file: &[u8], vocabulary: &Vocabulary<'_>) -> Result<Tokenizer, Fault> {
    let scores = scores(metadata, file, vocabulary)?;
    let mut model = BPE::builder()
        .vocab_and_merges(vocabulary.bpe(), merges(metadata, vocabulary, &scores)?)
        .fuse_unk(true)
        .byte_fallback(true);
    if let Some(unknown) = vocabulary.unknown() {
        model = model.unk_token(unknown.to_owned());
    }
    let mut tokenizer = Tokenizer::new(model.build().map_err(Fault::tokenizer)?);

    let mut normalizers: Vec<NormalizerWrapper> = vec![Replace::new(" ", SPACE).map_err(Fault::tokenizer)?.into()];
    let mut decoders: Vec<DecoderWrapper> = vec![
        Replace::new(SPACE, " ").map_err(Fault::tokenizer)?.into(),
        ByteFallback::new().into(),
        Fuse::new().into(),
    ];
    if metadata.flag(PREFIX_KEY)?.unwrap_or(true) {
        normalizers.insert(0, Prepend::new(SPACE.to_owned()).into());
        decoders.push(Strip::new(' ', 1, 0).into());
    }
    tokenizer.with_normalizer(Some(Normalizers::new(normalizers))).map_err(Fault::tokenizer)?;
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    Ok(tokenizer)
}

/// The `ModelProto` of `sentencepiece_model.proto`, as SentencePiece's own library reads it; none where that has no
/// place for the vocabulary: it wants one token for what is unknown, and all bytes or none.
pub(super) fn model(metadata: &Metadata, file: &[u8], vocabulary: &Vocabulary<'_>) -> Result<Option<Vec<u8>>, Fault> {
    let count = |wanted| vocabulary.all().filter(|(_, kind)| *kind == wanted).count();
    let (unknown, bytes) = (count(Kind::Unknown), count(Kind::Byte));
    if unknown != 1 || ![0, 256].contains(&bytes) {
        return Ok(None);
    }
    let scores = scores(metadata, file, vocabulary)?;
    let mut model = Message::default();
    for (id, ((text, kind), score)) in vocabulary.all().zip(scores).enumerate() {
        // Texts of padding may be empty, or there twice.
        let padding = format!("[PAD{id}]");
        let text = if kind == Kind::Unused { &padding } else { text };
        let piece = Message::default().bytes(1, text.as_bytes()).float(2, score).integer(3, kind as u64);
        model = model.bytes(1, &piece.done());
    }
    let byte_fallback = u64::from(bytes > 0);
    let trainer =
        Message::default().integer(3, BPE).integer(4, vocabulary.all().len() as u64).integer(35, byte_fallback);
    let prefix = u64::from(metadata.flag(PREFIX_KEY)?.unwrap_or(true));
    // Texts are taken as they are: `remove_extra_whitespaces` is false.
    let normalizer = Message::default().bytes(1, b"identity").integer(3, prefix).integer(4, 0);
    Ok(Some(model.bytes(2, &trainer.done()).bytes(3, &normalizer.done()).done()))
}

/// A `tokenizer.model`.
pub(in crate::checkpoint::gguf) struct Pieces<'a> {
    /// Text, score and kind of each piece, by id.
    pub list: Vec<(&'a str, f32, Kind)>,
    /// A space is put before a text.
    pub prefixes: bool,
}

/// The inverse of [`model`].
///
/// # Errors
/// [`Fault`] for what is no `ModelProto`, and for a vocabulary that is not merged by scores.
pub(in crate::checkpoint::gguf) fn pieces(bytes: &[u8]) -> Result<Pieces<'_>, Fault> {
    let damaged = || Fault::damaged("tokenizer.model is no SentencePiece model");
    let (mut list, mut prefixes, mut algorithm) = (Vec::new(), true, 1);
    for (number, field) in fields(bytes).ok_or_else(damaged)? {
        let Field::Bytes(message) = field else { continue };
        if !(1..=3).contains(&number) {
            continue;
        }
        let (mut text, mut score, mut kind) = ("", 0.0, Kind::Normal as u64);
        for field in fields(message).ok_or_else(damaged)? {
            match (number, field) {
                (1, (1, Field::Bytes(bytes))) => text = std::str::from_utf8(bytes).map_err(|_| damaged())?,
                (1, (2, Field::Float(value))) => score = value,
                (1, (3, Field::Integer(value))) => kind = value,
                (2, (3, Field::Integer(value))) => algorithm = value,
                (3, (3, Field::Integer(value))) => prefixes = value != 0,
                _ => {}
            }
        }
        if number == 1 {
            list.push((text, score, Kind::of(kind as i32).ok_or_else(damaged)?));
        }
    }
    if algorithm != BPE {
        let what = "tokenizer.model is no BPE: llama.cpp merges pieces by their scores, and reads others of its own \
            families only";
        return Err(Fault::Wrong(what.to_owned()));
    }
    Ok(Pieces { list, prefixes })
}

/// Every way to make a token of two others, those of the best token first; among those of equal scores, as Hugging
/// Face's converter orders them: longest left part, longest right part, then by ids.
fn merges(metadata: &Metadata, vocabulary: &Vocabulary<'_>, scores: &[f32]) -> Result<Merges, Fault> {
    let mut merges = Vec::new();
    for (id, text) in vocabulary.in_use() {
        if text.len() > LONGEST_PIECE_BYTES {
            let reason = format!("is {} bytes, expected at most {LONGEST_PIECE_BYTES}", text.len());
            return Err(metadata.refuse_item(TOKENS_KEY, id as usize, reason));
        }
        let start = merges.len();
        for (at, _) in text.char_indices().skip(1) {
            let (left, right) = text.split_at(at);
            if let (Some(left_id), Some(right_id)) = (vocabulary.id(left), vocabulary.id(right)) {
                merges.push((id, (left_id, right_id), (left, right)));
            }
        }
        merges[start..].sort_by_key(|(_, ids, _)| *ids);
    }
    merges.sort_by(|(a, _, a_parts), (b, _, b_parts)| {
        let lens = |(left, right): &(&str, &str)| Reverse((left.chars().count(), right.chars().count()));
        let best_first = scores[*b as usize].total_cmp(&scores[*a as usize]);
        best_first.then_with(|| lens(a_parts).cmp(&lens(b_parts)))
    });
    Ok(merges.into_iter().map(|(_, _, (left, right))| (left.to_owned(), right.to_owned())).collect())
}
