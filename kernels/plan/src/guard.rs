//! Measures the distance of int8's gradients from bf16's on one micro-batch: a second forward and backward pass, in
//! bf16, one layer at a time. It writes nothing that training reads.

use std::ops::Range;

use precast_kernels::{Out, grad_distance};

use crate::block::{Below, Stream};
use crate::head::{self, Head, Outputs, Teaching};
use crate::model::Model;
use crate::objective::Objective;
use crate::ops::Ops;
use crate::recipe::Recompute;
use crate::weights::{DeltaRuleWeights, Layer, Linear, Matrix, Norm, Role, Trained, Weight};
use precast_core::plan::Tensor;

/// The comparing phase: runs right after the first micro-batch of a step, whose inputs and gradients it reads.
pub const GUARD: &str = "guard";

/// Alignment of a group's elements: 16 bytes of f32.
const ALIGN: u64 = 4;

/// Results of [`GUARD`].
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// Sums over groups of elements, f32.
    pub partials: Tensor,
    /// By layer and matrix: offset of its sums, and number of groups.
    layers: Vec<[(u64, u64); 4]>,
}

/// Sums over a layer's gradients: a by int8 GEMMs, b by bf16 ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub ab: f64,
    pub aa: f64,
    pub bb: f64,
}

impl Guard {
    /// Returns the sums of each layer, lowest first, from the partial sums read back.
    pub fn sums(&self, partials: &[f32]) -> Vec<Sums> {
        let of_matrix = |(start, groups): (u64, u64)| {
            let sums = &partials[start as usize..][..3 * groups as usize];
            let sum = |which: u64| {
                sums[(which * groups) as usize..][..groups as usize].iter().map(|one| f64::from(*one)).sum()
            };
            [sum(0), sum(1), sum(2)]
        };
        let of_layer = |matrices: &[(u64, u64); 4]| {
            let add = |all: Sums, [ab, aa, bb]: [f64; 3]| Sums { ab: all.ab + ab, aa: all.aa + aa, bb: all.bb + bb };
            matrices.map(of_matrix).into_iter().fold(Sums::default(), add)
        };
        self.layers.iter().map(of_layer).collect()
    }
}

/// Inputs of a guard.
pub(crate) struct Guarded<'a> {
    /// The student, under the guard's name.
    pub model: Model<'a>,
    /// All of its weights rounded to bf16, if they are on the device; else they are rounded from the master weights.
    pub copy: Option<Tensor>,
    pub objective: Objective,
    /// Predictions of the teacher.
    pub teacher: Option<Teaching<'a>>,
    pub ids: Tensor,
    /// The next token of each position, or `MASKED_TOKEN`.
    pub targets: Tensor,
}

impl Guarded<'_> {
    /// Lowers the phase after the teacher.
    pub fn lower(&self, ops: &mut Ops<'_>) -> Guard {
        let Self { model, .. } = self;
        let partials = Guard::declare(ops, self);
        let mut stream = Stream::from(model.embedding(ops, self.ids));
        let mut saved = Vec::new();
        for (index, (scope, block)) in model.blocks().enumerate() {
            ops.scope(scope);
            let dense = self.dense(ops, index, None);
            let (output, of_block) = block.with(&dense).forward_saving(ops, stream, Recompute::Blocks);
            saved.push(of_block);
            stream = output;
        }
        let normed = model.norm(ops, stream);
        let hidden = model.hidden(ops, normed);
        let weights = &model.resident.weights;
        let head = Linear {
            weight: Matrix::Dense(Weight { tensor: weights.head.weight.dense(), role: Role::Frozen }),
            ..weights.head.clone()
        };
        ops.scope(format!("{}.head", model.name));
        let last = Head { linear: &head, vocab: model.config.vocab, hidden };
        let dhidden = head::losses(ops, self.objective, last, self.teacher, (self.targets, Outputs::default()));
        ops.scope(model.name);
        let norm = frozen_norm(&weights.norm);
        let dhidden = ops.scaled("norm.dscaled", dhidden, model.config.multipliers.logits);
        let mut dstream = ops.norm_backward("norm", dhidden, (stream.x, normed.rstd), &norm, None, Out::Dense);
        for (index, ((scope, block), saved)) in model.blocks().zip(saved).enumerate().rev() {
            ops.scope(scope);
            let Range { start, end } = weights.parameters.layer(index);
            let grad = ops.statistics("grad", end - start);
            ops.clear("grad", grad);
            let dense = self.dense(ops, index, Some(grad));
            let below = (index > 0).then_some(Below::Block);
            let dinput = block.with(&dense).backward(ops, saved, dstream, below);
            let linears = block.weights.linears().into_iter().zip(dense.linears());
            for (at, (int8, bf16)) in linears.enumerate() {
                let [a, b] = [int8, bf16].map(|linear| linear.weight.trained().expect("it trains").grad);
                ops.grad_distance(Layer::LINEARS[at], a, b, partials.place(index, at));
            }
            dstream = dinput.unwrap_or(dstream);
        }
        partials
    }

    /// Returns a layer's weights in bf16. With `grad`, f32, it holds the gradients of its matrices, laid out as in flat
    /// buffers, and no others.
    fn dense(&self, ops: &mut Ops<'_>, index: usize, grad: Option<Tensor>) -> Layer {
        let weights = &self.model.resident.weights;
        let (layer, Range { start, end }) = (&weights.layers[index], weights.parameters.layer(index));
        let all = match self.copy {
            Some(copy) => copy.slice(start, end - start),
            None => {
                let master = weights.all.trained().expect("it trains").master.slice(start, end - start);
                let rounded = ops.elements("weights", end - start);
                ops.cast("weights", master, rounded);
                ops.round("weights", &weights.rounded, &(start..end), [master, rounded]);
                rounded
            }
        };
        let ranges = &weights.parameters.layers[index];
        let linear = |at: usize, linear: &Linear| {
            let range = &ranges[at];
            let (at, elems) = (range.start - start, range.end - range.start);
            let role = grad.map_or(Role::Frozen, |grad| {
                let grad = grad.slice(at, elems);
                // There is no optimizer.
                Role::Trained(Trained { master: grad, grad, m: grad, v: grad })
            });
            let weight = Matrix::Dense(Weight { tensor: all.slice(at, elems), role });
            Linear { weight, bias: linear.bias.map(frozen), ..linear.clone() }
        };
        Layer {
            delta_rule: layer.delta_rule.as_ref().map(frozen_delta_rule),
            input_norm: layer.input_norm.as_ref().map(frozen_norm),
            qkv: linear(0, &layer.qkv),
            qk_norm: layer.qk_norm.as_ref().map(frozen_norm),
            o: linear(1, &layer.o),
            o_norm: layer.o_norm.as_ref().map(frozen_norm),
            post_norm: layer.post_norm.as_ref().map(frozen_norm),
            experts: None,
            gate_up: linear(2, &layer.gate_up),
            down: linear(3, &layer.down),
            down_norm: layer.down_norm.as_ref().map(frozen_norm),
        }
    }
}

impl Guard {
    fn declare(ops: &mut Ops<'_>, guarded: &Guarded<'_>) -> Self {
        let mut elems = 0;
        let mut place = |range: &Range<u64>| {
            let (start, groups) = (elems, (range.end - range.start).div_ceil(grad_distance::GROUP.into()));
            elems = (start + 3 * groups).next_multiple_of(ALIGN);
            (start, groups)
        };
        let layers = guarded.model.resident.weights.parameters.layers.iter();
        let layers = layers.map(|layer| layer.each_ref().map(&mut place)).collect();
        ops.scope(guarded.model.name);
        let partials = ops.statistics("partials", elems);
        ops.read_back(partials);
        Self { partials, layers }
    }

    /// Returns the tensor of a matrix's sums: [3, groups].
    fn place(&self, layer: usize, linear: usize) -> Tensor {
        let (start, groups) = self.layers[layer][linear];
        self.partials.slice(start, 3 * groups)
    }
}

fn frozen(weight: Weight) -> Weight {
    Weight { role: Role::Frozen, ..weight }
}

fn frozen_delta_rule(weights: &DeltaRuleWeights) -> DeltaRuleWeights {
    let DeltaRuleWeights { conv, decay, norm } = weights;
    let decay = Weight { tensor: decay.in_f32(), role: Role::Frozen };
    DeltaRuleWeights { conv: frozen(*conv), decay, norm: frozen_norm(norm) }
}

fn frozen_norm(norm: &Norm) -> Norm {
    Norm { gamma: frozen(norm.gamma), ..*norm }
}

#[cfg(test)]
mod tests {
    use crate::category;
    use precast_kernels::KERNELS;
    use precast_kernels::{Arch, Dtype};

    use super::*;
    use precast_core::plan::Builder;

    #[test]
    fn sums_of_groups_and_matrices_add_up_by_layer() {
        let partials = Builder::new(&KERNELS, Arch::Sim).persistent("partials", category::INPUTS, Dtype::F32, 40);
        let layer = |start| [(start, 2), (start + 8, 1), (start + 12, 1), (start + 16, 1)];
        let guard = Guard { partials, layers: vec![layer(0), layer(20)] };
        let mut sums = [0.0; 40];
        // The lower layer's first matrix has two groups: dot 1 + 2, aa 3 + 4, bb 5 + 6.
        sums[..6].copy_from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        sums[8..11].copy_from_slice(&[10.0, 20.0, 30.0]);
        // The upper layer's last matrix: equally long, and opposite.
        sums[36..39].copy_from_slice(&[-4.0, 4.0, 4.0]);
        let [lower, upper] = guard.sums(&sums)[..] else { panic!("two layers") };
        assert_eq!(lower, Sums { ab: 13.0, aa: 27.0, bb: 41.0 });
        assert_eq!(upper, Sums { ab: -4.0, aa: 4.0, bb: 4.0 });
    }
}
