//! Reads an APR file, as a single-file model.

use std::path::Path;

use tokenizers::Tokenizer;

use super::container::{HEADER_BYTES, Header};
use super::metadata::Metadata;
use super::{Apr, config, tokenizer};
use crate::checkpoint::checksum::Checksum;
use crate::checkpoint::fault::Fault;
use crate::checkpoint::file::WeightFile;
use crate::checkpoint::form::Form;
use crate::checkpoint::heads::Interleaved;
use crate::checkpoint::single_file::SingleFile;
use crate::checkpoint::store::{LM_HEAD, Tensors};

impl Apr {
    /// Reads a file's head and finds every tensor's place. No weights are read. The file must not be written to for as
    /// long as the value lives.
    ///
    /// # Errors
    /// [`Fault`] for a file that cannot be read, is damaged, compressed or one of several, or of another family.
    pub(in crate::checkpoint) fn read(path: &Path) -> Result<Self, Fault> {
        let file = WeightFile::open(path)?;
        let header = Header::read(&file.head(HEADER_BYTES)?, file.bytes)?;
        let head = file.head(header.data_offset)?;
        let index = header.index(&head, file.bytes)?.into_iter();
        let metadata = Metadata::read(header.metadata(&head))?;
        let family = config::family(&metadata)?;
        let interleaved = config::interleaves_heads(&metadata, family)?;
        // Where they are not right, the configuration says so.
        let heads = config::head_counts(&metadata).ok().filter(|_| interleaved);
        let mut tensors = Tensors {
            files: vec![(path.to_owned(), file)],
            list: index.map(|named| (named.name, named.tensor)).collect(),
            form: Form {
                interleaved: heads.map(|(heads, kv_heads)| Interleaved { family, heads, kv_heads }),
                ..Form::default()
            },
            wide: false,
            checksum: Some(Checksum::default()),
        };
        let empty_head = tensors.list.get(LM_HEAD).is_some_and(|head| head.elements() == 0);
        if empty_head {
            tensors.list.remove(LM_HEAD);
        }
        Ok(Self { metadata, family, tensors, empty_head })
    }
}

impl SingleFile for Apr {
    fn tensors(&self) -> &Tensors {
        &self.tensors
    }

    fn tensors_mut(&mut self) -> &mut Tensors {
        &mut self.tensors
    }

    fn config(&self) -> Result<serde_json::Value, Fault> {
        config::config(self)
    }

    /// One of a family whose models all split text alike.
    fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata, self.family)
    }

    fn tokenizer(&self) -> Result<Tokenizer, Fault> {
        tokenizer::tokenizer(&self.metadata)
    }

    fn token_ids(&self) -> Result<[Option<u64>; 2], Fault> {
        let id = |keys: [&'static str; 2]| self.metadata.integer(&keys);
        Ok([id(["bos_token_id", "tokenizer.bos_token_id"])?, id(["eos_token_id", "tokenizer.eos_token_id"])?])
    }

    /// Without a tokenizer there is none to write beside.
    fn chat_template(&self) -> Result<Option<String>, Fault> {
        let template = self.has_tokenizer().then(|| self.metadata.string(&["chat_template"])).transpose()?;
        Ok(template.flatten().map(ToOwned::to_owned))
    }
}
