//! Tokenizers, used for what they are: text to ids, the same each time.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use precast_system::bug;
use serde::Deserialize;
use tokenizers::{ModelWrapper, PostProcessorWrapper};

use crate::added_tokens::AddedTokens;
use crate::charsmap;

/// Most bytes of a `tokenizer.json`: the largest there are have 40 MB.
pub(crate) const MOST_BYTES: u64 = 512 << 20;

/// Token ids, and the bytes of the text that each stands for.
pub type Placed = (Vec<u32>, Vec<(usize, usize)>);

/// Adds or omits the tokens that a tokenizer puts before and after any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpecialTokens {
    Add,
    Omit,
}

/// A tokenizer that neither cuts nor pads nor draws lots. Its library panics on some files and texts: what its panic
/// says is then the error.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The post-processor of its file, if that leaves blanks out of the bytes that a token stands for.
    trims: Option<PostProcessorWrapper>,
    /// What it asks for that training text is not subjected to.
    pub notes: Vec<String>,
}

impl Tokenizer {
    /// The tokenizer as it is used, as text.
    ///
    /// # Errors
    /// Why it cannot be written.
    pub fn text(&self) -> Result<String, String> {
        let text = match &self.trims {
            None => self.inner.to_string(false),
            Some(own) => self.inner.clone().with_post_processor(Some(own.clone())).to_string(false),
        };
        text.map_err(|error| error.to_string())
    }

    /// Parses the bytes of a `tokenizer.json`, with what the files beside it add.
    ///
    /// # Errors
    /// Why they do not read.
    pub(crate) fn parse(path: &Path, bytes: &[u8], added: &AddedTokens) -> Result<Self, String> {
        charsmap::check(bytes)?;
        Self::new(path, || tokenizers::Tokenizer::from_bytes(bytes), added)
    }

    /// Of what the library makes of a file, with what the files beside it add.
    ///
    /// # Errors
    /// What the library says.
    pub fn new<E: ToString>(
        path: &Path,
        make: impl FnOnce() -> Result<tokenizers::Tokenizer, E>,
        added: &AddedTokens,
    ) -> Result<Self, String> {
        let made = bug::guard(|| {
            let mut inner = make().map_err(|error| error.to_string())?;
            let notes = settle(&mut inner)?.into_iter().map(ToOwned::to_owned);
            let notes = notes.chain(added.add_to(&mut inner)?);
            let notes = notes.map(|note| format!("{}: {note}", path.display())).collect();
            let own = inner.get_post_processor().cloned();
            inner.with_post_processor(own.clone().map(untrimmed));
            let trims = own.filter(|own| Some(own) != inner.get_post_processor());
            Ok(Self { inner, trims, notes })
        });
        made.map_err(panicked)?
    }

    /// Returns the ids of a text.
    ///
    /// # Errors
    /// What the library says.
    pub fn encode(&self, text: &str, special: SpecialTokens) -> Result<Vec<u32>, String> {
        let encoded = bug::guard(|| self.inner.encode_fast(text, special == SpecialTokens::Add)).map_err(panicked)?;
        encoded.map(|encoding| encoding.get_ids().to_vec()).map_err(|error| error.to_string())
    }

    /// Returns the ids of a text and the bytes of it that each stands for: none for those that [`SpecialTokens::Add`]
    /// adds.
    ///
    /// # Errors
    /// What the library says.
    pub fn encode_placed(&self, text: &str, special: SpecialTokens) -> Result<Placed, String> {
        let encoded = bug::guard(|| self.inner.encode(text, special == SpecialTokens::Add)).map_err(panicked)?;
        let encoding = encoded.map_err(|error| error.to_string())?;
        Ok((encoding.get_ids().to_vec(), encoding.get_offsets().to_vec()))
    }

    /// The text of ids, without special tokens.
    ///
    /// # Errors
    /// What the library says.
    pub fn decode(&self, ids: &[u32]) -> Result<String, String> {
        bug::guard(|| self.inner.decode(ids, true)).map_err(panicked)?.map_err(|error| error.to_string())
    }

    /// The id of a token.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The text of ids as people read it, the spaces of words and special tokens included.
    pub fn spelled(&self, ids: &[u32]) -> String {
        let names: String = ids.iter().filter_map(|id| self.token(*id)).collect();
        if names.contains('▁') {
            return names.replace('▁', " ");
        }
        let decoded = bug::guard(|| self.inner.decode(ids, false)).ok().and_then(Result::ok);
        decoded.filter(|text| !text.is_empty()).unwrap_or(names)
    }

    /// The text of a token.
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Returns the name of its model's algorithm.
    pub fn kind(&self) -> &'static str {
        match self.inner.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "WordLevel",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }

    /// Ids by text, added tokens included.
    pub fn vocabulary(&self) -> HashMap<String, u32> {
        self.inner.get_vocab(true)
    }

    /// Texts of the tokens that are found before a text is split.
    pub fn added(&self) -> HashSet<String> {
        self.inner.get_added_tokens_decoder().into_values().map(|token| token.content).collect()
    }

    /// Pairs that merge, best first; none where it is no BPE.
    pub fn merges(&self) -> Option<Vec<(String, String)>> {
        let ModelWrapper::BPE(model) = self.inner.get_model() else { return None };
        #[derive(Deserialize)]
        struct Written {
            merges: Vec<(String, String)>,
        }
        // The library gives them in what it writes only.
        let written: Written = serde_json::from_str(&serde_json::to_string(model).ok()?).ok()?;
        Some(written.merges)
    }
}

fn panicked(message: String) -> String {
    format!("the tokenizers library panics: {message}")
}

/// A post-processor after which tokens stand for their blanks, too. Ids stay.
fn untrimmed(mut processor: PostProcessorWrapper) -> PostProcessorWrapper {
    match &mut processor {
        PostProcessorWrapper::ByteLevel(of) => of.trim_offsets = false,
        PostProcessorWrapper::Roberta(of) => of.trim_offsets = false,
        PostProcessorWrapper::Sequence(list) => {
            list.as_mut().iter_mut().for_each(|one| *one = untrimmed(one.clone()));
        }
        PostProcessorWrapper::Bert(_) | PostProcessorWrapper::Template(_) => {}
    }
    processor
}

/// Takes away what would cut, pad or vary texts, and says what that was.
fn settle(tokenizer: &mut tokenizers::Tokenizer) -> Result<Vec<&'static str>, String> {
    let mut notes = Vec::new();
    if tokenizer.get_truncation().is_some() {
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        notes.push("it truncates texts: they are used whole");
    }
    if tokenizer.get_padding().is_some() {
        tokenizer.with_padding(None);
        notes.push("it pads texts: nothing is added to them");
    }
    let model = match tokenizer.get_model() {
        ModelWrapper::BPE(model) if model.dropout.is_some_and(|share| share != 0.0) => {
            let mut model = model.clone();
            model.dropout = None;
            ModelWrapper::BPE(model)
        }
        ModelWrapper::Unigram(model) if model.alpha.is_some_and(|alpha| alpha != 0.0) => {
            let mut model = model.clone();
            (model.alpha, model.nbest_size) = (None, None);
            ModelWrapper::Unigram(model)
        }
        _ => return Ok(notes),
    };
    tokenizer.with_model(model);
    notes.push("it splits words at random (dropout): each is split in the one best way");
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn file(change: impl FnOnce(&mut Value)) -> Value {
        let mut value = json!({
            "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": [["a", "b"], ["ab", "ab"]],
            },
        });
        change(&mut value);
        value
    }

    fn read(value: &Value) -> Result<Tokenizer, String> {
        Tokenizer::parse(Path::new("tokenizer.json"), value.to_string().as_bytes(), &AddedTokens::default())
    }

    const TEXT: &str = "abab ab abab";

    #[test]
    fn texts_are_neither_cut_nor_padded_nor_split_at_random() {
        let plain = read(&file(|_| {})).unwrap();
        assert_eq!((plain.encode(TEXT, SpecialTokens::Add).unwrap(), plain.notes.len()), (vec![3, 2, 3], 0));
        let changed = read(&file(|value| {
            value["truncation"] =
                json!({"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0});
            value["padding"] = json!({
                "strategy": {"Fixed": 8}, "direction": "Right", "pad_to_multiple_of": null,
                "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
            });
            value["model"]["dropout"] = 0.9.into();
        }))
        .unwrap();
        assert_eq!(changed.notes.len(), 3);
        for _ in 0..20 {
            assert_eq!(changed.encode(TEXT, SpecialTokens::Add).unwrap(), [3, 2, 3]);
        }
    }

    #[test]
    fn a_tokenizer_that_makes_its_library_panic_is_an_error() {
        // The library makes room for the longest token and writes a longer merge there.
        let panics = file(|value| value["model"]["vocab"] = json!({"a": 0, "b": 1}));
        let error = read(&panics).err().unwrap();
        assert!(error.starts_with("the tokenizers library panics: "), "{error}");
    }

    #[test]
    fn a_tokenizer_says_its_kind_vocabulary_and_merges() {
        let tokenizer = read(&file(|_| {})).unwrap();
        assert_eq!((tokenizer.kind(), tokenizer.vocabulary()["abab"]), ("BPE", 3));
        let merges = [("a", "b"), ("ab", "ab")].map(|(left, right)| (left.to_owned(), right.to_owned()));
        assert_eq!(tokenizer.merges().unwrap(), merges);
    }
}
