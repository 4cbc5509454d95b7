//! A GGUF file as it is written: version 3, little-endian.

use std::io;

use precast_kernels::{Dtype, Format};
use precast_plan::{Formats, ModelConfig, Parameter, Parameters};

use super::key_values::{KeyValues, string};
use super::shape::Said;
use super::{names, shape, types};
use crate::checkpoint::fault::Fault;
use crate::checkpoint::kind::Kind;

/// The file of a model of random weights.
pub const FILE: &str = "model.gguf";
/// What tensors start on a multiple of: what GGUF takes for granted where a file does not say.
const ALIGNMENT_BYTES: u64 = 32;
/// `LLAMA_FTYPE_MOSTLY_Q4_K_M` of llama.h.
const MOSTLY_Q4_K_M: u32 = 15;

/// A tensor as the file has it.
pub struct Tensor {
    /// As GGUF names it.
    pub name: String,
    /// Its values are a parameter's, or these.
    pub values: Values,
    pub(in crate::checkpoint) kind: Kind,
}

/// Values of a tensor to write.
pub enum Values {
    Of(Parameter),
    /// A vector in f32.
    Given(Vec<f32>),
}

impl Tensor {
    /// Rows first, and no dimension of 1 between: a convolution's kernel is a matrix in files.
    fn dimensions(&self) -> Vec<u64> {
        match &self.values {
            Values::Of(Parameter { shape, .. }) => match shape[..] {
                [rows, 1, columns] => vec![rows, columns],
                _ => shape.clone(),
            },
            Values::Given(values) => vec![values.len() as u64],
        }
    }

    pub(in crate::checkpoint) fn elements(&self) -> u64 {
        self.dimensions().iter().product()
    }

    pub fn bytes(&self) -> u64 {
        self.kind.bytes(self.elements()).expect("a parameter's bytes have 64 bits")
    }

    /// Its bytes up to where the next one starts.
    pub fn padded(&self) -> u64 {
        self.bytes().next_multiple_of(ALIGNMENT_BYTES)
    }

    /// As a reader of the parameter is asked for it.
    pub fn format(&self) -> Format {
        if let Kind::Block(block) = self.kind { Format::Block(block) } else { Format::Dense(Dtype::F32) }
    }
}

/// A model's parameters, each in the kind of storage that `kind` gives it.
///
/// # Errors
/// [`Fault`] where one has no name in GGUF files.
pub(in crate::checkpoint) fn tensors(
    config: &ModelConfig,
    kind: impl Fn(&Parameter) -> Kind,
) -> Result<Vec<Tensor>, Fault> {
    let family = config.family;
    let parameters = Parameters::new(config).list.into_iter();
    let tensors = parameters.map(|parameter| {
        let name = names::ggml(family, &parameter.name).ok_or_else(|| {
            let (gguf, tensor) = (family.gguf, &parameter.name);
            Fault::Wrong(format!("GGUF files of architecture {gguf} have no tensor for {tensor}"))
        })?;
        Ok(Tensor { name, kind: kind(&parameter), values: Values::Of(parameter) })
    });
    tensors.collect()
}

/// Everything before the first tensor's values of a model of random weights in formats.
pub(in crate::checkpoint) fn random_header(
    config: &ModelConfig,
    said: &Said,
    formats: &Formats,
) -> Result<(Vec<u8>, Vec<Tensor>), Fault> {
    let kind = |parameter: &Parameter| formats.of(&parameter.name).map_or(Kind::F32, Kind::Block);
    let tensors = tensors(config, kind)?;
    let mut keys = KeyValues::default();
    keys.string("general.architecture", config.family.gguf);
    keys.string("general.name", "random weights");
    shape::write(&mut keys, config, said, MOSTLY_Q4_K_M)?;
    Ok((header(&keys, &tensors), tensors))
}

/// Everything before the first tensor's values.
pub(in crate::checkpoint) fn header(keys: &KeyValues, tensors: &[Tensor]) -> Vec<u8> {
    let counts = [tensors.len() as u64, keys.count].map(u64::to_le_bytes).concat();
    let mut header = [b"GGUF", &3_u32.to_le_bytes()[..], &counts, &keys.bytes].concat();
    let mut start = 0;
    for tensor in tensors {
        let dimensions = tensor.dimensions();
        header.extend(string(&tensor.name));
        header.extend((dimensions.len() as u32).to_le_bytes());
        // Columns first.
        header.extend(dimensions.iter().rev().flat_map(|dimension| dimension.to_le_bytes()));
        header.extend(types::code(tensor.kind).to_le_bytes());
        header.extend(u64::to_le_bytes(start));
        start += tensor.padded();
    }
    header.resize(header.len().next_multiple_of(ALIGNMENT_BYTES as usize), 0);
    header
}

/// Takes a part of a tensor's bytes.
type Take<'t, F> = dyn FnMut(&[u8]) -> Result<(), F> + 't;

/// Writes a file. `read` gives the bytes of a tensor, in parts.
///
/// # Errors
/// Of `read`, and of the file as `failed` names it.
pub(in crate::checkpoint) fn write<E: From<F>, F>(
    file: &mut impl io::Write,
    (header, tensors): (&[u8], &[Tensor]),
    failed: impl Fn(io::Error) -> F,
    mut read: impl FnMut(&Tensor, &mut Take<'_, F>) -> Result<(), E>,
) -> Result<(), E> {
    file.write_all(header).map_err(&failed)?;
    for tensor in tensors {
        let mut done = 0;
        read(tensor, &mut |part| {
            done += part.len() as u64;
            file.write_all(part).map_err(&failed)
        })?;
        assert_eq!(done, tensor.bytes(), "bytes of {}", tensor.name);
        file.write_all(&vec![0; (tensor.padded() - done) as usize]).map_err(&failed)?;
    }
    Ok(())
}
