//! APR files of version 2: single-file models with Hugging Face's names, read as if they were Hugging Face directories.
//!
//! [`Apr`] reads the file's head; weights are read, and dequantised, one tensor at a time. A file is not trusted: whatever is
//! wrong with it is an [`AprError`], and nothing is allocated on the word of a length that the file's size does not bear
//! out. Its checksum is compared before the first weight is handed out.

mod config;
mod container;
mod dtype;
mod error;
mod tokenizer;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use precast_kernels::{Block, Dtype as Kind};
use precast_plan::{Family, Formats};
use rayon::prelude::*;
use tokenizers::Tokenizer;

use super::Scratch;
use super::file::{Access, Raw, WeightFile};
use super::heads::deinterleave;
use config::Metadata;
use container::{FOOTER_BYTES, HEADER_BYTES, Header, MAGIC, Tensor};
use dtype::Dtype;
pub use error::{AprError, Fault};

const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";

/// Bytes whose checksum one task computes.
const CHECKED_BYTES: u64 = 1 << 20;

/// An APR file of a model of a known family: head read, weights on disk.
pub struct Apr {
    path: PathBuf,
    file: WeightFile,
    metadata: Metadata,
    family: &'static Family,
    /// By name.
    tensors: BTreeMap<String, Tensor>,
    /// Whether the head is there with no elements: the embedding stands for it.
    empty_head: bool,
    /// Whether the rows of query and key heads have the halves of a head interleaved.
    interleaved: bool,
    /// The file's own checksum, and that of its bytes, once it is computed.
    checksums: OnceLock<(u32, u32)>,
}

impl Apr {
    /// Whether the file starts with the magic of APR files of version 2. False too for one that cannot be read.
    pub fn is_apr(path: &Path) -> bool {
        WeightFile::open(path).and_then(|file| file.head(4)).is_ok_and(|head| head == MAGIC)
    }

    /// Reads a file's head and finds every tensor's place. No weights are read. The file must not be written to for as long
    /// as the value lives.
    ///
    /// # Errors
    /// [`AprError`] for a file that cannot be read, is damaged, compressed or one of several, or of another family.
    pub fn open(path: &Path) -> Result<Self, AprError> {
        Self::read_head(path).map_err(|fault| AprError { path: path.to_owned(), fault })
    }

    fn read_head(path: &Path) -> Result<Self, Fault> {
        let file = WeightFile::open(path)?;
        let header = Header::read(&file.head(HEADER_BYTES)?, file.bytes())?;
        let head = file.head(header.head_bytes())?;
        let mut tensors: BTreeMap<String, Tensor> = header.index(&head, file.bytes())?.into_iter().collect();
        let metadata = Metadata::read(header.metadata(&head))?;
        let family = config::family(&metadata)?;
        let interleaved = config::interleaves_heads(&metadata, family)?;
        let empty_head = tensors.get(HEAD).is_some_and(|head| head.elements == 0);
        if empty_head {
            tensors.remove(HEAD);
        }
        let path = path.to_owned();
        Ok(Self { path, file, metadata, family, tensors, empty_head, interleaved, checksums: OnceLock::new() })
    }

    /// The model's shape as the value of a Hugging Face `config.json`.
    ///
    /// # Errors
    /// [`AprError`] for keys that are missing or of the wrong type, and for settings that would change the mathematics.
    pub fn config(&self) -> Result<serde_json::Value, AprError> {
        config::config(self).map_err(|fault| self.error(fault))
    }

    /// The tokenizer, from the file's own metadata.
    ///
    /// # Errors
    /// [`AprError`] for lists that do not go together.
    pub fn tokenizer(&self) -> Result<Tokenizer, AprError> {
        tokenizer::tokenizer(&self.metadata).map_err(|fault| self.error(fault))
    }

    /// Whether the file has a tokenizer that can be built: one of a family whose models all split text alike.
    pub(super) fn has_tokenizer(&self) -> bool {
        tokenizer::is_there(&self.metadata, self.family)
    }

    /// What belongs beside the tokenizer, as the value of a `tokenizer_config.json`.
    ///
    /// # Errors
    /// [`AprError`] as [`Apr::tokenizer`].
    pub fn tokenizer_config(&self) -> Result<serde_json::Value, AprError> {
        tokenizer::config(&self.metadata).map_err(|fault| self.error(fault))
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> Vec<String> {
        self.tensors.keys().cloned().collect()
    }

    /// The type of each tensor.
    pub(super) fn formats(&self) -> impl Iterator<Item = String> {
        self.tensors.values().map(|tensor| dtype::dtype_name(tensor.code))
    }

    /// The block format of each tensor that is in blocks which kernels read; AprQ4 and AprQ8 are dequantised while they are
    /// loaded, and named.
    pub fn blocks(&self) -> Formats {
        let in_blocks = self.tensors.iter().filter_map(|(name, tensor)| match tensor.dtype {
            Some(Dtype::Block(block)) => Some((name.clone(), block)),
            _ => None,
        });
        let of_apr = [(Dtype::AprQ4, "AprQ4"), (Dtype::AprQ8, "AprQ8")].into_iter();
        let mut of_apr = of_apr.filter(|(dtype, _)| self.tensors.values().any(|tensor| tensor.dtype == Some(*dtype)));
        in_blocks.collect::<Formats>().with_dequantised(of_apr.next().map(|(_, name)| name))
    }

    /// Shape of a tensor, rows first; `None` if there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        self.tensors.get(name).map(|tensor| tensor.shape.clone())
    }

    /// The dtype in which a tensor is in the file as a run computes in it.
    pub(super) fn stored(&self, name: &str) -> Option<Kind> {
        let tensor = self.tensors.get(name).filter(|_| self.head_rows(name).is_none())?;
        match tensor.dtype {
            Some(Dtype::F32) => Some(Kind::F32),
            Some(Dtype::Bf16) => Some(Kind::Bf16),
            _ => None,
        }
    }

    /// The dtype of every tensor, where all have the same and a run can compute in it.
    pub(super) fn dtype(&self) -> Option<Kind> {
        let all = |dtype| self.tensors.values().all(|tensor| tensor.dtype == Some(dtype));
        let kinds = [(Dtype::F32, Kind::F32), (Dtype::Bf16, Kind::Bf16)];
        kinds.into_iter().find(|(dtype, _)| all(*dtype)).map(|(_, kind)| kind)
    }

    /// How many elements of a tensor have to be read together: those of a head whose rows are to be put in order, or of a
    /// block.
    pub(super) fn unit(&self, name: &str, access: Access) -> Result<u64, AprError> {
        let unit = || -> Result<u64, Fault> {
            let (tensor, dtype) = self.find(name, access)?;
            Ok(self.heads(name, tensor)?.map_or(dtype.len(), |heads| (tensor.elements / heads) as u64))
        };
        unit().map_err(|fault| self.error(fault))
    }

    /// Elements of a tensor, whole units of them, in a dtype; rows of query and key heads are in Hugging Face's order.
    ///
    /// # Errors
    /// [`AprError`] if the file is damaged, there is no such tensor, it is of a type that is not read, or its rows do not
    /// divide into heads.
    pub(super) fn read<'a>(
        &'a self,
        name: &str,
        elements: Range<u64>,
        dtype: Kind,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], AprError> {
        let error = |fault| self.error(fault);
        let (tensor, stored) = self.find(name, scratch.raw.access()).map_err(error)?;
        let range = stored.range(tensor.values.start, &elements);
        if self.stored(name) == Some(dtype) {
            return self.file.part(range, &mut scratch.raw).map_err(|e| error(Fault::Io(e)));
        }
        let heads = self.heads(name, tensor).map_err(error)?;
        let scale = self.scale(tensor, stored).map_err(error)?;
        let bytes = self.file.part(range, &mut scratch.raw).map_err(|e| error(Fault::Io(e)))?;
        let count = (elements.end - elements.start) as usize;
        scratch.values.resize(count, 0.0);
        stored.dequantize(scale, bytes, &mut scratch.values);
        if let Some(heads) = heads {
            let head_len = tensor.elements / heads;
            deinterleave(&mut scratch.values, count / head_len, tensor.shape[0] as usize / heads);
        }
        Ok(scratch.encode(dtype))
    }

    /// The one scale of a tensor that has one, else 1.
    fn scale(&self, tensor: &Tensor, dtype: Dtype) -> Result<f32, Fault> {
        if dtype != Dtype::AprQ8 || tensor.elements == 0 {
            return Ok(1.0);
        }
        let start = tensor.values.start;
        let mut raw = Raw::new(Access::Read);
        let bytes = self.file.part(start..start + dtype::APR_Q8_SCALE_BYTES, &mut raw)?;
        Ok(f32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Blocks of a tensor as the file holds them, of whole units of elements; in `scratch` where rows have to be put in
    /// Hugging Face's order.
    ///
    /// # Errors
    /// [`AprError`] as [`Self::read`].
    ///
    /// # Panics
    /// If [`Apr::blocks`] says another format.
    pub(super) fn read_blocks<'a>(
        &'a self,
        name: &str,
        elements: Range<u64>,
        block: Block,
        scratch: &'a mut Scratch,
    ) -> Result<&'a [u8], AprError> {
        let error = |fault| self.error(fault);
        let (tensor, dtype) = self.find(name, scratch.raw.access()).map_err(error)?;
        assert_eq!(dtype, Dtype::Block(block), "the format of {name}");
        let heads = self.heads(name, tensor).map_err(error)?;
        let range = dtype.range(tensor.values.start, &elements);
        let bytes = self.file.part(range, &mut scratch.raw).map_err(|e| error(Fault::Io(e)))?;
        let Some(heads) = heads else { return Ok(bytes) };
        scratch.blocks.resize(bytes.len(), 0);
        scratch.blocks.copy_from_slice(bytes);
        let count = (elements.end - elements.start) as usize / (tensor.elements / heads);
        deinterleave(&mut scratch.blocks, count, tensor.shape[0] as usize / heads);
        Ok(&scratch.blocks)
    }

    /// A tensor of a type that is read, of a file that is whole.
    fn find(&self, name: &str, access: Access) -> Result<(&Tensor, Dtype), Fault> {
        self.check(access)?;
        let refuse = |reason: &str| Fault::Tensor {
            tensor: name.to_owned(),
            offset: 0,
            shape: Vec::new(),
            reason: reason.to_owned(),
        };
        let tensor = self.tensors.get(name).ok_or_else(|| refuse("the file has no such tensor"))?;
        let unread = || Fault::Dtype { tensor: name.to_owned(), offset: tensor.offset, code: tensor.code };
        Ok((tensor, tensor.dtype.ok_or_else(unread)?))
    }

    /// Verifies the checksum at the end of the file, which covers everything before it. The first call reads the file.
    fn check(&self, access: Access) -> Result<(), Fault> {
        let (said, found) = match self.checksums.get() {
            Some(checksums) => *checksums,
            None => {
                let checksums = self.read_checksums(access)?;
                *self.checksums.get_or_init(|| checksums)
            }
        };
        if said == found { Ok(()) } else { Err(Fault::Checksum { of: "the file", said, found }) }
    }

    fn read_checksums(&self, access: Access) -> Result<(u32, u32), Fault> {
        let end = self.file.bytes() - FOOTER_BYTES;
        let mut raw = Raw::new(access);
        let footer = self.file.part(end..self.file.bytes(), &mut raw)?;
        let said = u32::from_le_bytes(footer.try_into().expect("four bytes"));
        let parts: Vec<Range<u64>> =
            (0..end.div_ceil(CHECKED_BYTES)).map(|i| i * CHECKED_BYTES..((i + 1) * CHECKED_BYTES).min(end)).collect();
        let hashed: Vec<crc32fast::Hasher> = parts
            .into_par_iter()
            .map_init(
                || Raw::new(access),
                |raw, part| {
                    let mut hasher = crc32fast::Hasher::new();
                    hasher.update(self.file.part(part, raw)?);
                    Ok(hasher)
                },
            )
            .collect::<Result<_, std::io::Error>>()?;
        let mut all = crc32fast::Hasher::new();
        hashed.iter().for_each(|part| all.combine(part));
        Ok((said, all.finalize()))
    }

    /// Which heads the rows of a tensor are of, where the file has their halves interleaved: `true` of query heads.
    fn head_rows(&self, name: &str) -> Option<bool> {
        let (module, part) = name.rsplit_once('.').filter(|_| self.interleaved)?;
        let of = |projection: &str| module.ends_with(projection) && matches!(part, "weight" | "bias");
        let m = self.family.modules;
        if of(m.q.hugging_face) { Some(true) } else { of(m.k.hugging_face).then_some(false) }
    }

    /// How many heads the rows of a tensor are of, where the file has their halves interleaved.
    fn heads(&self, name: &str, tensor: &Tensor) -> Result<Option<usize>, Fault> {
        let Some(query) = self.head_rows(name) else { return Ok(None) };
        let (query_heads, key_heads) = config::head_counts(&self.metadata)?;
        let count = if query { query_heads } else { key_heads };
        let rows = tensor.shape.first().copied().unwrap_or(0);
        if rows > 0 && rows.is_multiple_of(count) && (rows / count).is_multiple_of(2) {
            return Ok(Some(count as usize));
        }
        let reason = format!("its {rows} rows are not those of {count} heads");
        let (tensor, offset, shape) = (name.to_owned(), tensor.offset, tensor.shape.clone());
        Err(Fault::Tensor { tensor, offset, shape, reason })
    }

    fn error(&self, fault: Fault) -> AprError {
        AprError { path: self.path.clone(), fault }
    }
}
