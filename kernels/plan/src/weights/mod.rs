//! Weights as values: their tensor, format and role in training.

mod adapters;
mod int8;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use precast_kernels::{Dtype, Format, Out};

use crate::category;
use crate::config::ModelConfig;
use crate::formats::Formats;
use crate::parameters::{ALIGN, Parameter, Parameters, QK_NORMS, Stack, stacks};
use crate::recipe::Precision;
use crate::share::{Shards, Share};
use precast_core::plan::{Builder, Category, Tensor};

pub use adapters::{AdapterWeights, LinearAdapter};
use int8::Int8Matrices;
pub use int8::{Int8Matrix, Int8Rows};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// Tensor that launches read.
    pub tensor: Tensor,
    pub role: Role,
}

/// Role of a weight in training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Frozen,
    /// The optimizer updates it.
    Trained(Trained),
}

/// Optimizer state of a trained weight, each f32 and of as many elements.
///
/// With several ranks, a rank keeps `m` and `v`, and `master` unless launches read it, only for its own pieces
/// ([`crate::Shards::own`]), one after the other; `grad` is complete.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Master weights, which launches read in fp32.
    pub master: Tensor,
    pub grad: Tensor,
    /// AdamW's first moments, fp32.
    pub m: Tensor,
    /// AdamW's second moments, fp32.
    pub v: Tensor,
}

impl Role {
    fn trained(self) -> Option<Trained> {
        match self {
            Role::Frozen => None,
            Role::Trained(trained) => Some(trained),
        }
    }

    /// Returns the role of a range of elements.
    fn slice(self, start: u64, elems: u64) -> Self {
        match self {
            Role::Frozen => Role::Frozen,
            Role::Trained(trained) => Role::Trained(trained.slice(start, elems)),
        }
    }
}

impl Trained {
    /// Returns the state of a range of elements.
    fn slice(self, start: u64, elems: u64) -> Self {
        let Self { master, grad, m, v } = self;
        let [master, grad, m, v] = [master, grad, m, v].map(|of| of.slice(start, elems));
        Self { master, grad, m, v }
    }
}

/// Elements that a rank keeps of a trained range.
#[derive(Clone, Copy)]
struct Kept {
    /// Elements of the copy that launches read.
    weights: u64,
    masters: u64,
    moments: u64,
}

impl Weight {
    /// Declares a trained buffer and its optimizer state. In fp32 launches read the master weights.
    fn declare_trained(
        b: &mut Builder,
        (name, category): (&str, Category),
        elems: u64,
        dtype: Dtype,
        Kept { weights, masters, moments }: Kept,
    ) -> Self {
        // A rank may keep nothing, but buffers cannot be empty.
        let mut flat = |part: &str, category, dtype: Dtype, kept: u64| {
            let buffer = b.persistent(format!("{name}.{part}"), category, dtype, kept.max(1));
            Tensor { elems, ..buffer }
        };
        let (master, tensor) = if dtype == Dtype::F32 {
            let master = flat("master", category, Dtype::F32, elems);
            (master, master)
        } else {
            let master = flat("master", category::MASTER_WEIGHTS, Dtype::F32, masters);
            (master, Tensor { elems: weights, ..flat("weights", category, dtype, weights) })
        };
        let grad = flat("grad", category::GRADIENTS, Dtype::F32, elems);
        let (m, v) =
            (flat("m", category::MOMENTS, Dtype::F32, moments), flat("v", category::MOMENTS, Dtype::F32, moments));
        Self { tensor, role: Role::Trained(Trained { master, grad, m, v }) }
    }

    /// Returns its optimizer state, if it trains.
    pub fn trained(self) -> Option<Trained> {
        self.role.trained()
    }

    /// Returns a range of its elements.
    fn slice(self, start: u64, elems: u64) -> Self {
        Self { tensor: self.tensor.slice(start, elems), role: self.role.slice(start, elems) }
    }

    /// Joins this weight and the next if they are adjacent and agree in format and role: one GEMM computes both.
    pub fn join(self, next: Self) -> Option<Self> {
        let role = match (self.role, next.role) {
            (Role::Frozen, Role::Frozen) => Role::Frozen,
            (Role::Trained(a), Role::Trained(b)) => Role::Trained(Trained {
                master: a.master.join(b.master)?,
                grad: a.grad.join(b.grad)?,
                m: a.m.join(b.m)?,
                v: a.v.join(b.v)?,
            }),
            _ => return None,
        };
        Some(Self { tensor: self.tensor.join(next.tensor)?, role })
    }
}

/// The weights of an RMSNorm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Scale, one element per column.
    pub gamma: Weight,
    /// Added to the mean square.
    pub eps: f32,
}

/// The matrix of a linear layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Matrix {
    /// Dense, as GEMMs read it.
    Dense(Weight),
    /// In blocks, and frozen.
    Blocks(Blocks),
    /// In int8, rotated.
    Int8(Int8Matrix),
}

/// A matrix in blocks, dequantized just before a GEMM reads it.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocks {
    /// Its rows in consecutive parts, in formats that may differ.
    pub parts: Vec<Tensor>,
    /// Scratch for its dense elements, shared with other matrices.
    pub scratch: Tensor,
}

impl Matrix {
    /// Returns its optimizer state, if it trains.
    pub(crate) fn trained(&self) -> Option<Trained> {
        match self {
            Matrix::Dense(Weight { role, .. }) | Matrix::Int8(Int8Matrix { role, .. }) => role.trained(),
            Matrix::Blocks(_) => None,
        }
    }

    /// Returns the tensor of a dense matrix.
    ///
    /// # Panics
    /// If it is in blocks or in int8.
    pub(crate) fn dense(&self) -> Tensor {
        match self {
            Matrix::Dense(weight) => weight.tensor,
            Matrix::Blocks(_) | Matrix::Int8(_) => panic!("a GEMM of dense matrices reads dense weights"),
        }
    }

    /// Returns an int8 matrix.
    ///
    /// # Panics
    /// If it is in another format.
    pub(crate) fn int8(&self) -> Int8Matrix {
        match self {
            Matrix::Int8(int8) => *int8,
            Matrix::Dense(_) | Matrix::Blocks(_) => panic!("a GEMM in int8 reads weights in int8"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// `[n, k]`, row-major
    pub weight: Matrix,
    /// `[n]`, or none.
    pub bias: Option<Weight>,
    /// Output features.
    pub n: u32,
    /// Input features.
    pub k: u32,
    /// Adapters whose results are added to its output.
    pub adapter: Option<LinearAdapter>,
}

impl Linear {
    /// True if its matrix or its adapters train.
    pub(crate) fn trains(&self) -> bool {
        self.weight.trained().is_some() || self.adapter.is_some()
    }
}

/// The weights of a transformer block.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Norm before attention.
    pub input_norm: Norm,
    /// Queries, keys and values.
    pub qkv: Linear,
    /// Norms of each query head and each key head, if the family has them: both scales in one, [2, head_dim].
    pub qk_norm: Option<Norm>,
    pub o: Linear,
    /// Norm before the MLP.
    pub post_norm: Norm,
    /// Gate and up projection.
    pub gate_up: Linear,
    pub down: Linear,
}

impl Layer {
    /// True if any of its GEMMs trains.
    pub(crate) fn trains(&self) -> bool {
        self.linears().into_iter().any(Linear::trains)
    }

    /// Returns the formats that its GEMMs read activations in; if gradients pass, the producers of gradients use
    /// them too.
    pub(crate) fn out(&self) -> Out {
        match self.qkv.weight {
            Matrix::Dense(_) | Matrix::Blocks(_) => Out::Dense,
            Matrix::Int8(Int8Matrix { columns: Some(_), .. }) => Out::DenseAndInt8,
            Matrix::Int8(Int8Matrix { columns: None, .. }) => Out::Int8,
        }
    }

    /// Names of its GEMMs, in order of computation.
    pub(crate) const LINEARS: [&str; 4] = ["qkv", "o", "gate_up", "down"];

    /// Returns its GEMMs in that order.
    pub(crate) fn linears(&self) -> [&Linear; 4] {
        [&self.qkv, &self.o, &self.gate_up, &self.down]
    }
}

/// The weights of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// All of them, padding included; with blocks or int8, only the dense ones.
    pub all: Weight,
    /// Parameters that they are read from and written to.
    pub parameters: Parameters,
    /// Weight of each parameter; none for those only quantized on the device.
    each: Vec<Option<Weight>>,
    /// Embedding table, [vocab, hidden].
    pub embedding: Weight,
    pub layers: Vec<Layer>,
    /// Norm before the head.
    pub norm: Norm,
    /// Head; its weight is the embedding table itself when tied.
    pub head: Linear,
}

/// Passes that read frozen weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passes {
    Forward,
    /// The backward pass too, which reads int8 matrices by columns.
    Both,
}

/// Alignment of tensors in blocks: 16 bytes in any format.
const ALIGN_BLOCKS: u64 = 8;
/// Alignment of the head's parts, rows.
const ALIGN_ROWS: u64 = 64;

impl Weights {
    /// Returns the ranges of the matrices of neighboring layers in int8; none for no layers.
    pub(crate) fn int8_layers(&self, layers: Range<usize>) -> Vec<Tensor> {
        let layers = &self.layers[layers];
        let (Some(first), Some(last)) = (layers.first(), layers.last()) else { return Vec::new() };
        first.qkv.weight.int8().through(last.down.weight.int8())
    }

    /// Declares frozen weights: matrices in the formats given, all else of a dtype.
    pub(crate) fn frozen(
        b: &mut Builder,
        name: &str,
        category: Category,
        config: &ModelConfig,
        (formats, dtype): (&Formats, Dtype),
        passes: Passes,
    ) -> Self {
        let parameters = Parameters::new(config);
        let formats = formats.of_linears(config);
        let mut ends: BTreeMap<Format, u64> = BTreeMap::new();
        let mut places = Vec::new();
        let int8 = formats.is_int8().then(|| Int8Matrices::new(b, (name, category), config, passes));
        for (parameter, flat) in parameters.list.iter().zip(&parameters.starts) {
            if int8.as_ref().is_some_and(|int8| int8.has(&parameter.name)) {
                places.push(None);
                continue;
            }
            let format = formats.of(&parameter.name).map_or(Format::Dense(dtype), Format::Block);
            let align = match format {
                Format::Block(block) => ALIGN_BLOCKS * block.elems(),
                // Only parts of a stack may start elsewhere, adjacent to the previous part.
                Format::Dense(_) if flat.is_multiple_of(ALIGN) => ALIGN,
                Format::Dense(_) => 1,
            };
            let end = ends.entry(format).or_default();
            let start = end.next_multiple_of(align);
            *end = start + parameter.elems();
            places.push(Some((format, start, parameter.elems())));
        }
        let mut buffers = HashMap::new();
        for (format, end) in ends {
            let (name, elems) = match format {
                Format::Dense(_) => (format!("{name}.weights"), end.next_multiple_of(ALIGN)),
                Format::Block(block) => (format!("{name}.weights.{block}"), end),
            };
            let tensor = b.persistent(name, category, format, elems);
            buffers.insert(format, Weight { tensor, role: Role::Frozen });
        }
        let weight = |(format, start, elems)| buffers[&format].slice(start, elems);
        let each = places.into_iter().map(|place| place.map(weight)).collect();
        let all = buffers[&Format::Dense(dtype)];
        let of_scratch = match category {
            category::TEACHER_WEIGHTS => category::TEACHER_SCRATCH,
            _ => category::STUDENT_SCRATCH,
        };
        let scratch = Scratch::new(b, (name, of_scratch), config, &formats, dtype);
        Self::new(config, parameters, (all, each), (scratch, int8))
    }

    /// Declares weights that train. In fp32 launches read the master weights; in int8 matrices of layers are quantized.
    pub(crate) fn trained(
        b: &mut Builder,
        name: &str,
        config: &ModelConfig,
        precision: Precision,
        share: Share,
    ) -> Self {
        let parameters = Parameters::new(config);
        let own = Shards::new(share, &parameters.sections()).own_elems();
        let (dtype, category) = (precision.dtype(), category::STUDENT_WEIGHTS);
        let int8 = (precision == Precision::Int8).then(|| Int8Matrices::new(b, (name, category), config, Passes::Both));
        // Quantized weights have no other form, unless ranks exchange them: then rounded to bf16.
        let left_out = if int8.is_some() && share.ranks == 1 { parameters.matrices() } else { 0..0 };
        let left_out_elems = left_out.end - left_out.start;
        let kept = Kept { weights: parameters.elems - left_out_elems, masters: own, moments: own };
        let all = Weight::declare_trained(b, (name, category), parameters.elems, dtype, kept);
        let weight = |(parameter, start): (&Parameter, &u64)| {
            let place = if *start < left_out.end { *start } else { start - left_out_elems };
            (!left_out.contains(start)).then(|| Weight {
                tensor: all.tensor.slice(place, parameter.elems()),
                role: all.role.slice(*start, parameter.elems()),
            })
        };
        let each = parameters.list.iter().zip(&parameters.starts).map(weight).collect();
        Self::new(config, parameters, (all, each), (None, int8))
    }

    fn new(
        config: &ModelConfig,
        parameters: Parameters,
        (all, each): (Weight, Vec<Option<Weight>>),
        (scratch, int8): (Option<Scratch>, Option<Int8Matrices>),
    ) -> Self {
        let modules = config.family.modules;
        let named: HashMap<&str, Weight> = parameters
            .list
            .iter()
            .zip(&each)
            .filter_map(|(one, weight)| Some((one.name.as_str(), (*weight)?)))
            .collect();
        let weight = |name: String| named[name.as_str()];
        let norm = |name| Norm { gamma: weight(name), eps: config.rms_norm_eps };
        let linear = |layer, (index, stack): (usize, &Stack)| {
            let parts = |part| stack.parts.iter().map(move |one| weight(one.module.layer_parameter(layer, part)));
            let joined = |part| {
                let weights = parts(part).map(Some).reduce(|a, b| a?.join(b?)).flatten();
                weights.expect("they lie next to each other")
            };
            let n = stack.parts.iter().map(|part| part.rows).sum();
            let in_blocks = || parts("weight").all(|weight| weight.tensor.format.dtype().is_none());
            let weight = match (&int8, &scratch) {
                (Some(int8), _) => {
                    let Range { start, end } = parameters.layers[layer as usize][index].clone();
                    Matrix::Int8(int8.stack(layer, index, all.role.slice(start, end - start)))
                }
                (None, Some(scratch)) if in_blocks() => scratch.stack(index, parts("weight"), (n, stack.columns)),
                _ => Matrix::Dense(joined("weight")),
            };
            Linear { weight, bias: stack.bias.then(|| joined("bias")), n, k: stack.columns, adapter: None }
        };
        let qk_norm = |layer| {
            let [q, k] = QK_NORMS.map(|norm| weight(norm(modules).layer_parameter(layer, "weight")));
            Norm { gamma: q.join(k).expect("they lie next to each other"), eps: config.rms_norm_eps }
        };
        let layers = (0..config.layers).map(|layer| {
            let stacks = stacks(config);
            let mut linears = stacks.iter().enumerate().map(|stack| linear(layer, stack));
            let mut next = || linears.next().expect("four GEMMs");
            Layer {
                input_norm: norm(modules.input_norm.layer_parameter(layer, "weight")),
                qkv: next(),
                qk_norm: config.family.qk_norm.then(|| qk_norm(layer)),
                o: next(),
                post_norm: norm(modules.post_norm.layer_parameter(layer, "weight")),
                gate_up: next(),
                down: next(),
            }
        });
        let layers = layers.collect();
        let embedding = weight(modules.embedding.parameter("weight"));
        let head = weight(Parameter::head(config).name);
        let head = match &scratch {
            Some(scratch) if head.tensor.format.dtype().is_none() => scratch.head(head, config),
            _ => Matrix::Dense(head),
        };
        let head = Linear { weight: head, bias: None, n: config.vocab, k: config.hidden, adapter: None };
        let norm = norm(modules.norm.parameter("weight"));
        Self { all, embedding, layers, norm, head, parameters, each }
    }

    /// Returns every parameter of weights that train, with its first element in flat buffers and its optimizer state.
    pub fn states(&self) -> impl Iterator<Item = (&Parameter, u64, Trained)> {
        let places = self.parameters.list.iter().zip(&self.parameters.starts);
        places.filter_map(|(one, start)| Some((one, *start, self.all.trained()?.slice(*start, one.elems()))))
    }

    /// Returns every parameter that lies on the device as sent, with its weight.
    pub fn list(&self) -> impl Iterator<Item = (&Parameter, Weight)> {
        self.parameters.list.iter().zip(&self.each).filter_map(|(parameter, weight)| Some((parameter, (*weight)?)))
    }

    /// Returns the weight of a parameter; none if it is not on the device.
    pub fn of(&self, parameter: &Parameter) -> Option<Weight> {
        self.list().find(|(one, _)| *one == parameter).map(|(_, weight)| weight)
    }
}

/// Scratch for a model's dequantized matrices. It is not transient: shared memory would order launches that are
/// independent.
///
/// Consecutive GEMMs use two slots in rotation, so that a matrix is dequantized while the previous GEMM runs. The
/// head, which comes last, uses all of it: its part outside of both slots waits for nothing.
struct Scratch {
    all: Tensor,
    slots: [Tensor; 2],
}

impl Scratch {
    /// Declares scratch for the largest matrices in blocks; none without such matrices.
    fn new(
        b: &mut Builder,
        (name, category): (&str, Category),
        config: &ModelConfig,
        formats: &Formats,
        dtype: Dtype,
    ) -> Option<Self> {
        let mut slots = [0; 2];
        for (index, stack) in stacks(config).iter().enumerate() {
            let first = stack.parts[0].module;
            let stored = (0..config.layers).any(|layer| formats.of(&first.layer_parameter(layer, "weight")).is_some());
            if stored {
                slots[index % 2] = slots[index % 2].max(stack.elems().next_multiple_of(ALIGN));
            }
        }
        let head = Parameter::head(config);
        let of_head = formats.of(&head.name).map(|_| head.elems());
        let elems = of_head.unwrap_or(0).max(slots[0] + slots[1]);
        (elems > 0).then(|| {
            let all = b.persistent(format!("{name}.scratch"), category, dtype, elems);
            Self { all, slots: [all.slice(0, slots[0]), all.slice(slots[0], slots[1])] }
        })
    }

    /// Returns the matrix [n, k] of the GEMM with this index in a layer, joining adjacent parts of one format.
    fn stack(&self, index: usize, weights: impl Iterator<Item = Weight>, (n, k): (u32, u32)) -> Matrix {
        let mut parts: Vec<Tensor> = Vec::new();
        for Weight { tensor, .. } in weights {
            match parts.last().and_then(|last| last.join(tensor)) {
                Some(joined) => *parts.last_mut().expect("it has been joined") = joined,
                None => parts.push(tensor),
            }
        }
        let scratch = self.slots[index % 2].slice(0, u64::from(n) * u64::from(k));
        Matrix::Blocks(Blocks { parts, scratch })
    }

    /// Returns the head [vocab, hidden], in parts: in one slot, in the other, and in neither.
    fn head(&self, weight: Weight, config: &ModelConfig) -> Matrix {
        let (vocab, hidden) = (u64::from(config.vocab), u64::from(config.hidden));
        let [first, second] = self.slots.map(|slot| slot.elems);
        let one = first / hidden / ALIGN_ROWS * ALIGN_ROWS;
        let both = (first + second).div_ceil(hidden).next_multiple_of(ALIGN_ROWS);
        let ends = [one.min(vocab), both.min(vocab), vocab];
        let starts = [0, ends[0], ends[1]];
        let rows = starts.into_iter().zip(ends).filter(|(start, end)| start < end);
        let parts = rows.map(|(start, end)| weight.tensor.slice(start * hidden, (end - start) * hidden)).collect();
        Matrix::Blocks(Blocks { parts, scratch: self.all.slice(0, vocab * hidden) })
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::KERNELS;
    use precast_kernels::{Arch, Block};

    use super::*;

    fn frozen(b: &mut Builder, format: impl Into<Format>) -> Weight {
        Weight { tensor: b.persistent("weights", category::TEACHER_WEIGHTS, format, 1024), role: Role::Frozen }
    }

    #[test]
    fn weights_stack_where_format_and_role_agree() {
        let b = &mut Builder::new(&KERNELS, Arch::Sim);
        let whole = frozen(b, Dtype::Bf16);
        let [first, second, third] = [(0, 256), (256, 512), (768, 256)].map(|(start, elems)| whole.slice(start, elems));
        assert_eq!(first.join(second), Some(whole.slice(0, 768)));
        assert_eq!(first.join(third), None, "they are apart");
        let elsewhere = Tensor { offset: 512, ..frozen(b, Dtype::F32).tensor };
        assert_eq!(first.join(Weight { tensor: elsewhere, ..first }), None, "another format");
        let [master, grad, m, v] = [0; 4].map(|_| b.persistent("state", category::MOMENTS, Dtype::F32, 1024));
        let trained = Weight { role: Role::Trained(Trained { master, grad, m, v }), ..whole };
        assert_eq!(trained.slice(0, 256).join(trained.slice(256, 768)), Some(trained));
        assert_eq!(first.join(trained.slice(256, 512)), None, "another role");
    }

    #[test]
    fn a_weight_in_blocks_takes_what_its_format_says() {
        let b = &mut Builder::new(&KERNELS, Arch::Sim);
        let whole = frozen(b, Format::Block(Block::Q4_K));
        assert_eq!(whole.tensor.bytes(), 4 * 144);
        let rest = whole.slice(256, 768);
        assert_eq!((rest.tensor.offset, rest.tensor.bytes()), (144, 3 * 144));
        assert_eq!(whole.slice(0, 256).join(rest), Some(whole));
        b.phase("none");
        assert_eq!(std::mem::replace(b, Builder::new(&KERNELS, Arch::Sim)).finish().arena_bytes, 768);
    }
}
