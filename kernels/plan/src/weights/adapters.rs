//! Weights of adapters, and a model's weights with them.

use precast_kernels::Dtype;

use super::layer::{Layer, Linear, LinearAdapter};
use super::model::Weights;
use super::weight::{Kept, Role, Weight};
use crate::adapters::{AdapterParameters, StackLayout};
use crate::category;
use crate::recipe::Recipe;
use crate::share::{Shards, Share};
use precast_core::plan::Builder;

/// The weights of a model's adapters.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterWeights {
    /// All matrices, and padding, which is 0.
    pub all: Weight,
    /// Place of each matrix in it.
    pub parameters: AdapterParameters,
    /// By layer and GEMM.
    layers: Vec<[Option<LinearAdapter>; 4]>,
}

impl AdapterWeights {
    /// Declares adapters that train.
    pub(crate) fn trained(
        b: &mut Builder,
        name: &str,
        parameters: AdapterParameters,
        recipe: &Recipe,
        share: Share,
    ) -> Self {
        let own = Shards::new(share, &parameters.sections()).own_elems();
        let dtype = recipe.precision.dtype();
        // The adapter written at the end is its master weights.
        let weights = (dtype != Dtype::F32).then_some(parameters.elems);
        let kept = Kept { weights, masters: parameters.elems, moments: (own, recipe.moments.dtype()) };
        let all = Weight::declare_trained(b, (name, category::ADAPTERS), parameters.elems, dtype, kept);
        Self::new(all, parameters)
    }

    /// Declares frozen adapters.
    pub(crate) fn frozen(b: &mut Builder, name: &str, parameters: AdapterParameters, dtype: Dtype) -> Self {
        let tensor = b.persistent(format!("{name}.weights"), category::ADAPTERS, dtype, parameters.elems);
        Self::new(Weight { tensor, role: Role::Frozen }, parameters)
    }

    fn new(all: Weight, parameters: AdapterParameters) -> Self {
        let of_stack = |layout: &StackLayout| LinearAdapter {
            a: all.slice(layout.a, layout.a_elems),
            b: all.slice(layout.b, layout.b_elems),
            rank: layout.rank,
            parts: layout.parts.clone(),
        };
        let of_layer = |stacks: &[Option<StackLayout>; 4]| stacks.each_ref().map(|one| one.as_ref().map(of_stack));
        let layers = parameters.stacks.iter().map(of_layer).collect();
        Self { all, parameters, layers }
    }
}

impl Weights {
    /// Adds adapters to these weights.
    pub(crate) fn adapted(self, adapters: &AdapterWeights) -> Self {
        let with = |linear: Linear, adapter: &Option<LinearAdapter>| Linear { adapter: adapter.clone(), ..linear };
        let layers = self.layers.into_iter().zip(&adapters.layers).map(|(layer, [qkv, o, gate_up, down])| Layer {
            qkv: with(layer.qkv, qkv),
            o: with(layer.o, o),
            gate_up: with(layer.gate_up, gate_up),
            down: with(layer.down, down),
            ..layer
        });
        Self { layers: layers.collect(), ..self }
    }
}
