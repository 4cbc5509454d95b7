//! A model's weights.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use precast_core::plan::{Builder, Category, Tensor};
use precast_kernels::{Dtype, Format, Gamma};

use super::int8::{Int8Matrices, Passes};
use super::layer::{DeltaRuleWeights, ExpertWeights, Layer, Linear, Matrix, Norm};
use super::rounded::Rounded;
use super::scratch::{Scratch, expert_group};
use super::weight::{Kept, Role, Trained, Weight};
use crate::category;
use crate::config::{LayerKind, ModelConfig};
use crate::family::{DeltaRuleModules, Module, QkNorm};
use crate::formats::Formats;
use crate::parameters::{ALIGN, DECAYS, Parameter, Parameters, QK_NORMS, Stack, router, stacks};
use crate::recipe::{Precision, Recipe};
use crate::share::{Shards, Share};

/// The weights of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// All of them, padding included; with blocks or int8, only the dense ones.
    pub all: Weight,
    /// Parameters that they are read from and written to.
    pub parameters: Parameters,
    /// Weight of each parameter; none for those only quantized on the device.
    pub(super) each: Vec<Option<Weight>>,
    /// Embedding table, [vocab, hidden].
    pub embedding: Weight,
    pub layers: Vec<Layer>,
    /// Norm before the head.
    pub norm: Norm,
    /// Head; its weight is the embedding table itself when tied.
    pub head: Linear,
    /// Matrices that launches read as the values that blocks of the master weights have.
    pub(crate) rounded: Vec<Rounded>,
}

/// Alignment of tensors in blocks: 16 bytes in any format.
const ALIGN_BLOCKS: u64 = 8;

/// Returns neighboring weights as one.
fn joined(weights: &mut dyn Iterator<Item = Weight>) -> Weight {
    weights.map(Some).reduce(|a, b| a?.join(b?)).flatten().expect("they lie next to each other")
}

impl Weights {
    /// True if launches read master weights, so that each rank has all: decays of the gated delta rule are read in f32.
    pub fn reads_masters(&self) -> bool {
        self.layers.iter().any(|layer| layer.delta_rule.is_some())
    }

    /// True if they train as other values than their working copy has, so that masters are sent and written.
    pub fn is_rounded(&self) -> bool {
        !self.rounded.is_empty()
    }

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
        for ((parameter, flat), extent) in parameters.list.iter().zip(&parameters.starts).zip(&parameters.extents) {
            if int8.as_ref().is_some_and(|int8| int8.has(&parameter.name)) {
                places.push(None);
                continue;
            }
            let format = formats.of(&parameter.name).map_or(Format::Dense(parameter.dtype(dtype)), Format::Block);
            let align = match format {
                Format::Block(block) => ALIGN_BLOCKS * block.elems(),
                // Only parts of a stack may start elsewhere, adjacent to the previous part.
                Format::Dense(_) if flat.is_multiple_of(ALIGN) => ALIGN,
                Format::Dense(_) => 1,
            };
            let end = ends.entry(format).or_default();
            let start = end.next_multiple_of(align);
            // Blocks lie as in their file: dequantization makes the rows that it lacks.
            let elems = if format.dtype().is_some() { *extent } else { parameter.elems() };
            *end = start + elems;
            places.push(Some((format, start, elems)));
        }
        let mut buffers = HashMap::new();
        for (format, end) in ends {
            let (name, elems) = match format {
                Format::Dense(own) if own != dtype => (format!("{name}.weights.{own}"), end.next_multiple_of(ALIGN)),
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
        let group = config.experts.map_or(0, |experts| expert_group(config, experts, &formats));
        Self::new(config, parameters, (all, each), (scratch, int8, group))
    }

    /// Declares weights that train. In fp32 launches read the master weights; in int8 matrices of layers are quantized.
    /// Those with a block format train as the values that its blocks have.
    pub(crate) fn trained(
        b: &mut Builder,
        name: &str,
        config: &ModelConfig,
        (formats, recipe): (&Formats, &Recipe),
        share: Share,
    ) -> Self {
        let parameters = Parameters::new(config);
        let rounded = Rounded::of(&parameters, formats);
        let own = Shards::new(share, &parameters.sections()).own_elems();
        let (precision, category) = (recipe.precision, category::STUDENT_WEIGHTS);
        let dtype = precision.dtype();
        let int8 = (precision == Precision::Int8).then(|| Int8Matrices::new(b, (name, category), config, Passes::Both));
        // Quantized weights have no other form, unless ranks exchange them: then rounded to bf16.
        let left_out = if int8.is_some() && share.ranks == 1 { parameters.matrices() } else { 0..0 };
        let left_out_elems = left_out.end - left_out.start;
        let masters = if config.has_delta_rule() { parameters.elems } else { own };
        let has_copy = dtype != Dtype::F32 || !rounded.is_empty();
        let weights = has_copy.then_some(parameters.elems - left_out_elems);
        let kept = Kept { weights, masters, moments: (own, recipe.moments.dtype()) };
        let all = Weight::declare_trained(b, (name, category), parameters.elems, dtype, kept);
        let weight = |(extent, start): (&u64, &u64)| {
            let place = if *start < left_out.end { *start } else { start - left_out_elems };
            (!left_out.contains(start))
                .then(|| Weight { tensor: all.tensor.slice(place, *extent), role: all.role.slice(*start, *extent) })
        };
        let each = parameters.extents.iter().zip(&parameters.starts).map(weight).collect();
        Self { rounded, ..Self::new(config, parameters, (all, each), (None, int8, 0)) }
    }

    fn new(
        config: &ModelConfig,
        parameters: Parameters,
        (all, each): (Weight, Vec<Option<Weight>>),
        (scratch, int8, group): (Option<Scratch>, Option<Int8Matrices>, u32),
    ) -> Self {
        let modules = config.family.modules;
        let named = parameters.list.iter().zip(&each);
        let named: HashMap<&str, Weight> = named.filter_map(|(one, weight)| Some((&*one.name, (*weight)?))).collect();
        let weight = |name: String| named[name.as_str()];
        let norm = |name| Norm { gamma: weight(name), gamma_form: config.family.gamma, eps: config.rms_norm_eps };
        let linear = |layer, (index, stack): (usize, &Stack)| {
            let first = parameters.first_matrices[layer as usize][index];
            let matrices = || each[first..first + stack.parts.len()].iter().map(|weight| weight.expect("a matrix"));
            let bias = || stack.parts.iter().map(|part| weight(part.parameter(layer, "bias")));
            let n = stack.parts.iter().map(|part| part.rows).sum();
            let in_blocks = || matrices().all(|weight| weight.tensor.format.dtype().is_none());
            let weight = match (&int8, &scratch) {
                (Some(int8), _) => {
                    let Range { start, end } = parameters.layers[layer as usize][index].clone();
                    Matrix::Int8(int8.stack(layer, index, all.role.slice(start, end - start)))
                }
                (None, Some(scratch)) if in_blocks() => scratch.stack(index, matrices(), (n, stack.columns)),
                _ => Matrix::Dense(joined(&mut matrices())),
            };
            Linear { weight, bias: stack.bias.then(|| joined(&mut bias())), n, k: stack.columns, adapter: None }
        };
        let qk_norm = |layer| {
            let [q, k] = QK_NORMS.map(|norm| weight(norm(modules).layer_parameter(layer, "weight")));
            let gamma = q.join(k).expect("they lie next to each other");
            Norm { gamma, gamma_form: config.family.gamma, eps: config.rms_norm_eps }
        };
        let delta_rule = |layer, d: &DeltaRuleModules| {
            let [a_log, dt_bias] = DECAYS.map(|part| weight(d.decay.layer_parameter(layer, part)));
            let norm = norm(d.norm.layer_parameter(layer, "weight"));
            DeltaRuleWeights {
                conv: weight(d.conv.layer_parameter(layer, "weight")),
                decay: a_log.join(dt_bias).expect("they lie next to each other"),
                norm: Norm { gamma_form: Gamma::Weight, ..norm },
            }
        };
        let experts = |layer| {
            let of = config.experts?;
            let mut parts = router(config, of).map(|part| weight(part.parameter(layer, "weight")));
            let (weight, n, k) = (Matrix::Dense(joined(&mut parts)), of.columns(), config.hidden);
            Some(ExpertWeights { router: Linear { weight, bias: None, n, k, adapter: None }, config: of, group })
        };
        let layers = (0..).zip(&config.layers).map(|(layer, of_layer)| {
            let stacks = stacks(config, of_layer.kind);
            let attends = of_layer.kind == LayerKind::Attention;
            let mut linears = stacks.iter().enumerate().map(|stack| linear(layer, stack));
            let norm_of = |module: &Option<Module>| Some(norm(module.as_ref()?.layer_parameter(layer, "weight")));
            let mut next = || linears.next().expect("four GEMMs");
            Layer {
                input_norm: norm_of(&modules.input_norm),
                qkv: next(),
                delta_rule: (!attends).then(|| delta_rule(layer, &modules.delta_rule)),
                qk_norm: (attends && config.family.qk_norm != QkNorm::None).then(|| qk_norm(layer)),
                o: next(),
                o_norm: norm_of(&modules.o_norm),
                post_norm: norm_of(&modules.post_norm),
                experts: experts(layer),
                gate_up: next(),
                down: next(),
                down_norm: norm_of(&modules.down_norm),
            }
        });
        let layers = layers.collect();
        let embedding = weight(modules.embedding.parameter("weight"));
        let head = weight(Parameter::head(config).name);
        let head = match &scratch {
            Some(scratch) if head.tensor.format.dtype().is_none() => scratch.head(head, config),
            _ => Matrix::Dense(head),
        };
        let head = Linear { weight: head, bias: None, n: config.logit_columns(), k: config.hidden, adapter: None };
        let norm = norm(modules.norm.parameter("weight"));
        Self { all, embedding, layers, norm, head, parameters, each, rounded: Vec::new() }
    }

    /// Returns every parameter of weights that train, with its first element in flat buffers and its optimizer state.
    pub fn states(&self) -> impl Iterator<Item = (&Parameter, u64, Trained)> {
        let places = self.parameters.list.iter().zip(&self.parameters.starts);
        places.filter_map(|(one, start)| Some((one, *start, self.all.trained()?.slice(*start, one.elems()))))
    }

    /// Returns every parameter that lies on the device as sent, with its weight: behind a parameter that is shorter its
    /// tensor is zero.
    pub fn list(&self) -> impl Iterator<Item = (&Parameter, Weight)> {
        self.parameters.list.iter().zip(&self.each).filter_map(|(parameter, weight)| Some((parameter, (*weight)?)))
    }

    /// Returns the weight of a parameter; none if it is not on the device.
    pub fn of(&self, parameter: &Parameter) -> Option<Weight> {
        self.list().find(|(one, _)| *one == parameter).map(|(_, weight)| weight)
    }
}
