//! Weights as values: where a weight is, how it is stored, and what training does with it.

use std::collections::HashMap;

use precast_kernels::{Dtype, Format};

use crate::buffer::{Category, Tensor};
use crate::builder::Builder;
use crate::config::ModelConfig;
use crate::parameters::{Parameter, Parameters, Stack, stacks};

/// A weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weight {
    /// What launches read, in its own format.
    pub tensor: Tensor,
    /// What training does with it.
    pub role: Role,
}

/// What training does with a weight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// Nothing.
    Frozen,
    /// Updates it.
    Trained(Trained),
}

/// What the optimizer has of a trained weight, each f32 and of as many elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trained {
    /// Master weights: what launches read too, in fp32.
    pub master: Tensor,
    /// Gradient.
    pub grad: Tensor,
    /// First moments.
    pub m: Tensor,
    /// Second moments.
    pub v: Tensor,
}

impl Weight {
    /// What the optimizer has of it, if it trains.
    pub fn trained(self) -> Option<Trained> {
        match self.role {
            Role::Frozen => None,
            Role::Trained(trained) => Some(trained),
        }
    }

    /// A range of its elements.
    fn slice(self, start: u64, elems: u64) -> Self {
        let slice = |tensor: Tensor| tensor.slice(start, elems);
        let role = match self.role {
            Role::Frozen => Role::Frozen,
            Role::Trained(Trained { master, grad, m, v }) => {
                Role::Trained(Trained { master: slice(master), grad: slice(grad), m: slice(m), v: slice(v) })
            }
        };
        Self { tensor: slice(self.tensor), role }
    }

    /// This weight and the next as one, where format and role agree and they lie next to each other: one product
    /// computes what both do.
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

/// A norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Its scale, one element a column.
    pub gamma: Weight,
    /// What is added to the mean square.
    pub eps: f32,
}

/// A linear layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// `[n, k]`, row-major
    pub weight: Weight,
    /// `[n]`
    pub bias: Option<Weight>,
    /// Out features.
    pub n: u32,
    /// In features.
    pub k: u32,
}

/// The weights of a transformer block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layer {
    /// Before attention.
    pub input_norm: Norm,
    /// Queries, keys and values.
    pub qkv: Linear,
    /// Attention output.
    pub o: Linear,
    /// Before the MLP.
    pub post_norm: Norm,
    /// Gate and up projection.
    pub gate_up: Linear,
    /// Down projection.
    pub down: Linear,
}

/// The weights of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Weights {
    /// All of them in one, padding included.
    pub all: Weight,
    /// The parameters they are read from and written to.
    pub parameters: Parameters,
    /// Embedding table, [vocab, hidden].
    pub embedding: Weight,
    /// Transformer blocks.
    pub layers: Vec<Layer>,
    /// Before the head.
    pub norm: Norm,
    /// Head; its weight is the embedding table itself when tied.
    pub head: Linear,
}

impl Weights {
    /// Weights that stay as they are.
    pub(crate) fn frozen(
        b: &mut Builder,
        name: &str,
        category: Category,
        config: &ModelConfig,
        format: Format,
    ) -> Self {
        let parameters = Parameters::new(config);
        let tensor = b.persistent(format!("{name}.weights"), category, format, parameters.elems);
        Self::new(config, parameters, Weight { tensor, role: Role::Frozen })
    }

    /// Weights that train. In fp32 what launches read are the master weights.
    pub(crate) fn trained(b: &mut Builder, name: &str, config: &ModelConfig, dtype: Dtype) -> Self {
        let parameters = Parameters::new(config);
        let mut flat = |part: &str, category, dtype: Dtype| {
            b.persistent(format!("{name}.{part}"), category, dtype, parameters.elems)
        };
        let (master, tensor) = if dtype == Dtype::F32 {
            let master = flat("master", Category::StudentWeights, Dtype::F32);
            (master, master)
        } else {
            let master = flat("master", Category::MasterWeights, Dtype::F32);
            (master, flat("weights", Category::StudentWeights, dtype))
        };
        let grad = flat("grad", Category::Gradients, Dtype::F32);
        let (m, v) = (flat("m", Category::Moments, Dtype::F32), flat("v", Category::Moments, Dtype::F32));
        Self::new(config, parameters, Weight { tensor, role: Role::Trained(Trained { master, grad, m, v }) })
    }

    fn new(config: &ModelConfig, parameters: Parameters, all: Weight) -> Self {
        let modules = config.family.modules;
        let named = parameters.list.iter().zip(&parameters.starts);
        let named: HashMap<&str, Weight> =
            named.map(|(one, start)| (one.name.as_str(), all.slice(*start, one.elems()))).collect();
        let weight = |name: String| named[name.as_str()];
        let norm = |name| Norm { gamma: weight(name), eps: config.rms_norm_eps };
        let linear = |layer, stack: &Stack| {
            let stacked = |part| {
                let weights = stack.parts.iter().map(|one| weight(one.module.layer_parameter(layer, part)));
                weights.map(Some).reduce(|a, b| a?.join(b?)).flatten().expect("they lie next to each other")
            };
            Linear {
                weight: stacked("weight"),
                bias: stack.bias.then(|| stacked("bias")),
                n: stack.parts.iter().map(|part| part.rows).sum(),
                k: stack.columns,
            }
        };
        let layers = (0..config.layers).map(|layer| {
            let [qkv, o, gate_up, down] = &stacks(config);
            Layer {
                input_norm: norm(modules.input_norm.layer_parameter(layer, "weight")),
                qkv: linear(layer, qkv),
                o: linear(layer, o),
                post_norm: norm(modules.post_norm.layer_parameter(layer, "weight")),
                gate_up: linear(layer, gate_up),
                down: linear(layer, down),
            }
        });
        let layers = layers.collect();
        let embedding = weight(modules.embedding.parameter("weight"));
        let head = if config.tied { embedding } else { weight(modules.head.parameter("weight")) };
        let head = Linear { weight: head, bias: None, n: config.vocab, k: config.hidden };
        let norm = norm(modules.norm.parameter("weight"));
        Self { all, embedding, layers, norm, head, parameters }
    }

    /// Every parameter with its weight, in the order of the buffer.
    pub fn list(&self) -> impl Iterator<Item = (&Parameter, Weight)> {
        let Parameters { list, starts, .. } = &self.parameters;
        list.iter().zip(starts).map(|(parameter, start)| (parameter, self.all.slice(*start, parameter.elems())))
    }

    /// The weight of a parameter; none where there is no such parameter.
    pub fn of(&self, parameter: &Parameter) -> Option<Weight> {
        self.list().find(|(one, _)| *one == parameter).map(|(_, weight)| weight)
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::{Arch, Block};

    use super::*;

    fn frozen(b: &mut Builder, format: impl Into<Format>) -> Weight {
        Weight { tensor: b.persistent("weights", Category::TeacherWeights, format, 1024), role: Role::Frozen }
    }

    #[test]
    fn weights_stack_where_format_and_role_agree() {
        let b = &mut Builder::new(Arch::Sim);
        let whole = frozen(b, Dtype::Bf16);
        let [first, second, third] = [(0, 256), (256, 512), (768, 256)].map(|(start, elems)| whole.slice(start, elems));
        assert_eq!(first.join(second), Some(whole.slice(0, 768)));
        assert_eq!(first.join(third), None, "they are apart");
        let elsewhere = Tensor { offset: 512, ..frozen(b, Dtype::F32).tensor };
        assert_eq!(first.join(Weight { tensor: elsewhere, ..first }), None, "another format");
        let [master, grad, m, v] = [0; 4].map(|_| b.persistent("state", Category::Moments, Dtype::F32, 1024));
        let trained = Weight { role: Role::Trained(Trained { master, grad, m, v }), ..whole };
        assert_eq!(trained.slice(0, 256).join(trained.slice(256, 768)), Some(trained));
        assert_eq!(first.join(trained.slice(256, 512)), None, "another role");
    }

    #[test]
    fn a_weight_in_blocks_takes_what_its_format_says() {
        let b = &mut Builder::new(Arch::Sim);
        let whole = frozen(b, Format::Block(Block::Q4_K));
        assert_eq!(whole.tensor.bytes(), 4 * 144);
        let rest = whole.slice(256, 768);
        assert_eq!((rest.tensor.offset, rest.tensor.bytes()), (144, 3 * 144));
        assert_eq!(whole.slice(0, 256).join(rest), Some(whole));
        b.phase("none");
        assert_eq!(std::mem::replace(b, Builder::new(Arch::Sim)).finish().arena_bytes, 768);
    }
}
