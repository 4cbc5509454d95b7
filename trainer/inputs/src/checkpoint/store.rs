//! Tensors in files of weights: where each lies, how it is stored, and its values.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use precast_kernels::{Dtype, Format};
use precast_plan::Formats;

use super::checksum::Checksum;
use super::file::{Access, Raw, WeightFile};
use super::form::{Form, Order};
use super::kind::Kind;
use super::{CheckpointError, PART_ELEMENTS, Read, Scratch, finite};

pub(super) const EMBEDDING: &str = "model.embed_tokens.weight";
pub(super) const LM_HEAD: &str = "lm_head.weight";

/// A tensor in a file.
pub(super) struct Tensor {
    /// The place of the file among those of the model.
    pub file: usize,
    /// Offset of its first byte in the file.
    pub start: u64,
    /// Rows first.
    pub shape: Vec<u64>,
    /// Its format, as files name it.
    pub format: String,
    /// Its format, or why that is not read.
    pub kind: Result<Kind, String>,
}

impl Tensor {
    /// Product of the shape.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The tensors of a model or an adapter, by their Hugging Face names.
#[derive(Default)]
pub(crate) struct Tensors {
    pub(super) files: Vec<(PathBuf, WeightFile)>,
    pub(super) list: BTreeMap<String, Tensor>,
    /// Changes that files make to parameters.
    pub(super) form: Form,
    /// They are loaded as f32, whatever the file holds.
    pub(super) wide: bool,
    /// That of the file itself, compared before the first weight is handed out.
    pub(super) checksum: Option<Checksum>,
}

impl Tensors {
    /// Shape of a tensor, rows first; none if there is no such tensor.
    pub fn shape(&self, name: &str) -> Option<&[u64]> {
        self.list.get(name).map(|tensor| &tensor.shape[..])
    }

    /// Takes the head of a tied model for its embedding, where files have the head alone.
    pub(super) fn tie(&mut self) {
        if !self.list.contains_key(EMBEDDING)
            && let Some(head) = self.list.remove(LM_HEAD)
        {
            self.list.insert(EMBEDDING.to_owned(), head);
        }
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.keys().map(String::as_str)
    }

    /// The format of each tensor.
    pub fn formats(&self) -> impl Iterator<Item = &str> {
        self.list.values().map(|tensor| &*tensor.format)
    }

    /// The dtype in which a tensor is in its file as a run computes in it.
    pub fn stored(&self, name: &str) -> Option<Dtype> {
        let tensor = self.list.get(name)?;
        let is_in_order = self.form.order(name, &tensor.shape).is_ok_and(|order| order.is_same());
        match tensor.kind {
            _ if !is_in_order || self.form.has_other_values(name) => None,
            Ok(Kind::F32) => Some(Dtype::F32),
            Ok(Kind::Bf16) => Some(Dtype::Bf16),
            _ => None,
        }
    }

    /// The dtype of every tensor, where all have the same and a run can compute in it.
    pub fn dtype(&self) -> Option<Dtype> {
        let all = |kind| !self.wide && self.list.values().all(|tensor| tensor.kind == Ok(kind));
        let dtypes = [(Kind::F32, Dtype::F32), (Kind::Bf16, Dtype::Bf16)];
        dtypes.into_iter().find(|(kind, _)| all(*kind)).map(|(_, dtype)| dtype)
    }

    /// The format of each tensor that is in blocks which kernels read. AprQ4 and AprQ8 are dequantized while they are
    /// loaded, and named; so are blocks whose parts move, or whose values are others in a model.
    pub fn blocks(&self) -> Formats {
        let in_blocks = self.list.iter().filter_map(|(name, tensor)| match tensor.kind {
            Ok(kind @ Kind::Block(block)) if !self.form.has_other_values(name) => {
                let order = self.form.order(name, &tensor.shape).unwrap_or(Order::Same);
                order.moves_whole(kind).then(|| (name.clone(), block))
            }
            _ => None,
        });
        let of_apr = [(Kind::AprQ4, "AprQ4"), (Kind::AprQ8, "AprQ8")].into_iter();
        let mut of_apr = of_apr.filter(|(kind, _)| self.list.values().any(|tensor| tensor.kind == Ok(*kind)));
        in_blocks.collect::<Formats>().with_dequantized(of_apr.next().map(|(_, name)| name))
    }

    /// Divides a tensor into parts of about [`PART_ELEMENTS`]: whole units of elements that have to be read together,
    /// those that are to be put in order, or of a block.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parts(&self, name: &str, access: Access) -> Result<impl Iterator<Item = Range<u64>>, CheckpointError> {
        let place = self.find(name, access)?;
        let elements = place.tensor.elements();
        let unit = place.order.unit(elements, place.kind);
        let part = (PART_ELEMENTS / unit).max(1) * unit;
        Ok((0..elements).step_by(part as usize).map(move |start| start..(start + part).min(elements)))
    }

    /// Elements of a tensor, whole units of them, in a dtype, or in its blocks as the file holds them, in Hugging
    /// Face's order. From the file where it has just that, else in `scratch`.
    ///
    /// # Errors
    /// [`CheckpointError`] if a file cannot be read or is damaged, the tensor is of a kind that is not read, its
    /// rows do not divide into heads, or a decay is not below zero.
    ///
    /// # Panics
    /// If [`Self::blocks`] says another format of blocks.
    pub fn read<'a>(&'a self, name: &str, elements: Range<u64>, format: Format, scratch: &'a mut Scratch) -> Read<'a> {
        let place = self.find(name, scratch.raw.access)?;
        let dtype = match format {
            Format::Dense(dtype) => dtype,
            Format::Block(block) => {
                assert_eq!(place.kind, Kind::Block(block), "the format of {name}");
                let bytes = place.bytes(&elements, &mut scratch.raw)?;
                if place.order.is_same() {
                    return Ok(bytes);
                }
                scratch.blocks.clear();
                scratch.blocks.extend(bytes);
                place.put_in_order(&elements, &mut scratch.blocks);
                return Ok(&scratch.blocks);
            }
        };
        if self.stored(name) == Some(dtype) {
            return place.bytes(&elements, &mut scratch.raw);
        }
        let scale = place.scale()?;
        let bytes = place.bytes(&elements, &mut scratch.raw)?;
        scratch.values.resize((elements.end - elements.start) as usize, 0.0);
        place.kind.dequantize(scale, bytes, &mut scratch.values);
        place.put_in_order(&elements, &mut scratch.values);
        self.form.read_values(name, &mut scratch.values).map_err(|(index, value)| {
            let index = elements.start + index as u64;
            let reason = format_args!("is {value} at element {index}, and decays are -exp(A_log), below 0");
            CheckpointError::of(place.path, format_args!("tensor {name} {reason}: convert the model again"))
        })?;
        Ok(scratch.encode(dtype))
    }

    /// All elements of a tensor as f32, or why one of them is not finite.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_finite<'a>(&'a self, name: &str, scratch: &'a mut Scratch) -> Read<'a> {
        let (tensor, format) = (&self.list[name], Format::Dense(Dtype::F32));
        let bytes = self.read(name, 0..tensor.elements(), format, scratch)?;
        let path = &self.files[tensor.file].0;
        finite::check(name, bytes, format).map_err(|what| CheckpointError::NotFinite { path: path.clone(), what })?;
        Ok(bytes)
    }

    /// A tensor that is read, of a file that is whole.
    fn find(&self, name: &str, access: Access) -> Result<Place<'_>, CheckpointError> {
        let tensor = &self.list[name];
        let (path, file) = &self.files[tensor.file];
        if let Some(checksum) = &self.checksum {
            checksum.check(file, access).map_err(|fault| fault.at(path))?;
        }
        let unread = |reason: &String| CheckpointError::of(path, reason);
        let kind = *tensor.kind.as_ref().map_err(unread)?;
        let order = self.form.order(name, &tensor.shape).map_err(|reason| unread(&reason))?;
        Ok(Place { tensor, kind, order, path, file })
    }
}

/// A tensor, and all that reading it takes.
struct Place<'a> {
    tensor: &'a Tensor,
    kind: Kind,
    order: Order,
    path: &'a Path,
    file: &'a WeightFile,
}

impl<'a> Place<'a> {
    fn bytes(&self, elements: &Range<u64>, raw: &'a mut Raw) -> Read<'a> {
        let range = self.kind.range(self.tensor.start, elements);
        self.file.part(range, raw).map_err(CheckpointError::io("read", self.path))
    }

    /// The one scale of a tensor that has one, else 1.
    fn scale(&self) -> Result<f32, CheckpointError> {
        let Some(range) = self.kind.scale(self.tensor.start, self.tensor.elements()) else { return Ok(1.0) };
        let mut raw = Raw::new(Access::Read);
        let bytes = self.file.part(range, &mut raw).map_err(CheckpointError::io("read", self.path))?;
        Ok(f32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// Puts whole units, elements or blocks of them, into Hugging Face's order.
    fn put_in_order<T: Copy + Send + Sync>(&self, elements: &Range<u64>, out: &mut [T]) {
        self.order.read(out, elements.end - elements.start, self.tensor.elements());
    }
}
