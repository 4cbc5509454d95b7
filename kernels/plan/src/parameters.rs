//! A model's parameters, laid out in flat buffers.
//!
//! Matrices come before vectors, so that one index decides weight decay. Projections with one input are adjacent (q, k,
//! v; gate, up), so that one GEMM computes them, and so are the norms of q and k.

use std::ops::Range;

use precast_kernels::{Dtype, conv, delta_rule};

use crate::config::{DeltaHeads, ExpertsConfig, LayerKind, ModelConfig};
use crate::family::{DeltaRuleModules, Module, Modules, QkNorm};
use crate::sections::Sections;

/// One parameter, by its Hugging Face name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    /// Shape as stored in a checkpoint.
    pub shape: Vec<u64>,
}

impl Parameter {
    /// Returns the matrix of a model's head, `[vocab, hidden]`: its embedding where both are one.
    pub fn head(config: &ModelConfig) -> Self {
        let modules = config.family.modules;
        let module = if config.tied { &modules.embedding } else { &modules.head };
        Self { name: module.parameter("weight"), shape: vec![config.vocab.into(), config.hidden.into()] }
    }

    /// Returns the parameter of a layer that is what this one is of layer `own`; none of what that layer does not have.
    pub(crate) fn of_layer(&self, own: u32, layer: u32) -> Option<Self> {
        let (before, after) = self.name.split_once(&format!(".layers.{own}."))?;
        Some(Self { name: format!("{before}.layers.{layer}.{after}"), shape: self.shape.clone() })
    }

    /// Returns the dtype that it is kept in, of a model in this one: f32 for decays, which grow with a chunk's tokens.
    pub fn dtype(&self, of_model: Dtype) -> Dtype {
        let is_decay = DECAYS.iter().any(|part| self.name.strip_suffix(part).is_some_and(|rest| rest.ends_with('.')));
        if is_decay { Dtype::F32 } else { of_model }
    }

    pub fn elems(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The parameters of a model, laid out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Every parameter, in buffer order.
    pub list: Vec<Parameter>,
    /// Offset of each, elements.
    pub(crate) starts: Vec<u64>,
    /// Length of the place of each, elements: its own, but of the head's matrix, which has a row for each column of the
    /// logits, and zeros in those that are no tokens.
    pub(crate) extents: Vec<u64>,
    /// Elements of the buffer, padding included.
    pub elems: u64,
    /// Number of leading elements that are matrices: weight decay applies to them.
    pub decayed: u64,
    /// Ranges of each layer's GEMMs, elements.
    pub(crate) layers: Vec<[Range<u64>; 4]>,
    /// Places in the list of the first matrix of each layer's GEMMs; the others follow.
    pub(crate) first_matrices: Vec<[usize; 4]>,
    /// Ends of the embedding, the layers, an untied head and the vectors.
    ends: Vec<Vec<u64>>,
}

/// A projection `[rows, columns]` of a layer.
pub(crate) struct Projection {
    pub module: &'static Module,
    /// The expert that it is of, if there are some.
    pub expert: Option<u32>,
    pub rows: u32,
}

impl Projection {
    /// Returns the Hugging Face name of its matrix, or of another part, in a layer.
    pub fn parameter(&self, layer: u32, part: &str) -> String {
        let name = self.module.layer_parameter(layer, part);
        match self.expert {
            Some(expert) => name.replace('*', &expert.to_string()),
            None => name,
        }
    }
}

/// Projections of a layer with one input.
pub(crate) struct Stack {
    pub parts: Vec<Projection>,
    pub columns: u32,
    pub bias: bool,
}

impl Stack {
    pub fn rows(&self) -> u32 {
        self.parts.iter().map(|part| part.rows).sum()
    }

    pub fn elems(&self) -> u64 {
        u64::from(self.rows()) * u64::from(self.columns)
    }
}

/// Returns the GEMMs of each layer.
pub(crate) fn all_stacks(config: &ModelConfig) -> impl Iterator<Item = [Stack; 4]> + '_ {
    config.layers.iter().map(|layer| stacks(config, layer.kind))
}

/// Returns the GEMMs of a layer: q, k and v, each q with its gate where there are gates; o; gate and up; down. In place
/// of the first two, those of the gated delta rule.
pub(crate) fn stacks(config: &ModelConfig, kind: LayerKind) -> [Stack; 4] {
    let m = config.family.modules;
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let (attention, kv) = (config.attention_width(), config.kv_heads * config.head_dim);
    let q = config.projected_width() - 2 * kv;
    let stack = |parts: &[(&'static Module, u32)], columns, bias| Stack {
        parts: parts.iter().map(|(module, rows)| Projection { module, expert: None, rows: *rows }).collect(),
        columns,
        bias,
    };
    let [first, second] = match (kind, config.delta_heads) {
        (LayerKind::DeltaRule, Some(heads)) => {
            let d = &m.delta_rule;
            let parts = [(&d.qkv, heads.channels()), (&d.z, heads.width()), (&d.b, heads.values), (&d.a, heads.values)];
            [stack(&parts, hidden, false), stack(&[(&d.out, hidden)], heads.width(), false)]
        }
        _ => [
            stack(&[(&m.q, q), (&m.k, kv), (&m.v, kv)], hidden, config.qkv_bias),
            stack(&[(&m.o, hidden)], attention, config.o_bias),
        ],
    };
    if let Some(experts) = config.experts {
        let [gate_up, down] = expert_stacks(config, experts);
        return [first, second, gate_up, down];
    }
    [
        first,
        second,
        stack(&[(&m.gate, intermediate), (&m.up, intermediate)], hidden, config.mlp_bias),
        stack(&[(&m.down, hidden)], intermediate, config.mlp_bias),
    ]
}

/// Returns the GEMMs of experts: gate and up of each, one expert below the other, then of the shared one; down
/// likewise.
fn expert_stacks(config: &ModelConfig, experts: ExpertsConfig) -> [Stack; 2] {
    let m = &config.family.modules.experts;
    let stack = |of_expert: [&[&'static Module]; 2], rows, columns| {
        let part = |expert| move |module: &&'static Module| Projection { module, expert, rows };
        let routed = (0..experts.count).flat_map(|expert| of_expert[0].iter().map(part(Some(expert))));
        let shared = of_expert[1].iter().filter(|_| experts.has_shared).map(part(None));
        Stack { parts: routed.chain(shared).collect(), columns, bias: false }
    };
    [
        stack([&[&m.gate, &m.up], &[&m.shared_gate, &m.shared_up]], config.intermediate, config.hidden),
        stack([&[&m.down], &[&m.shared_down]], config.hidden, config.intermediate),
    ]
}

/// Returns the matrices whose rows give a token's logits of experts: the router's, and that of the shared one's gate.
pub(crate) fn router(config: &ModelConfig, experts: ExpertsConfig) -> impl Iterator<Item = Projection> {
    let m = &config.family.modules.experts;
    let shared = experts.has_shared.then_some((&m.shared_router, 1));
    let parts = [Some((&m.router, experts.count)), shared].into_iter().flatten();
    parts.map(|(module, rows)| Projection { module, expert: None, rows })
}

/// Parameters of the decays of the gated delta rule, read by one launch.
pub(crate) const DECAYS: [&str; 2] = ["A_log", "dt_bias"];

/// Columns of a convolution's kernel.
const TAPS: u64 = conv::TAPS as u64;

/// Norms of q and k, read by one launch.
pub(crate) const QK_NORMS: [fn(&'static Modules) -> &'static Module; 2] = [|m| &m.q_norm, |m| &m.k_norm];

/// Returns the widths of these norms, if the family has them.
fn qk_norms(config: &ModelConfig) -> Option<[u32; 2]> {
    match config.family.qk_norm {
        QkNorm::None => None,
        QkNorm::Head => Some([config.head_dim; 2]),
        QkNorm::Row => Some([config.attention_width(), config.kv_heads * config.head_dim]),
    }
}

/// Alignment of stacks and single parameters, elements: 128 bytes in bf16.
pub(crate) const ALIGN: u64 = 64;

impl Parameters {
    /// Lays out a model's parameters.
    pub fn new(config: &ModelConfig) -> Self {
        let modules = config.family.modules;
        let (vocab, hidden) = (u64::from(config.vocab), u64::from(config.hidden));
        let mut all = Self::default();
        all.add(modules.embedding.parameter("weight"), &[vocab, hidden]);
        let masked = config.head_elems() - vocab * hidden;
        if config.tied {
            all.extend(masked);
        }
        // Kernels of convolutions decay as matrices do, and no GEMM reads them.
        for (layer, heads) in
            (0..).zip(&config.layers).filter_map(|(layer, kind)| Some((layer, config.heads_of(kind)?)))
        {
            all.add(modules.delta_rule.conv.layer_parameter(layer, "weight"), &[heads.channels().into(), 1, TAPS]);
        }
        // Routers are not quantized: they precede the matrices, which are.
        if let Some(experts) = config.experts {
            (0..config.depth()).for_each(|layer| all.add_router(layer, config, experts));
        }
        all.ends.push(vec![all.elems]);
        for (layer, stacks) in (0..).zip(all_stacks(config)) {
            let firsts = stacks.map(|stack| (all.list.len(), all.add_matrices(layer, &stack)));
            all.first_matrices.push(firsts.clone().map(|(first, _)| first));
            all.layers.push(firsts.map(|(_, elems)| elems));
        }
        all.ends.push(all.layers.iter().map(|[.., down]| down.end).collect());
        if !config.tied {
            all.add(modules.head.parameter("weight"), &[vocab, hidden]);
            all.extend(masked);
            all.ends.push(vec![all.elems]);
        }
        all.decayed = all.elems;
        for (layer, [qkv, o, gate_up, down]) in (0..).zip(all_stacks(config)) {
            let [qkv, o, gate_up, down] = [&qkv, &o, &gate_up, &down];
            all.add_norm(layer, &modules.input_norm, hidden);
            all.add_biases(layer, qkv);
            match (config.heads_of(&config.layers[layer as usize]), qk_norms(config)) {
                (Some(heads), _) => all.add_delta_rule(layer, &modules.delta_rule, heads),
                (None, Some(widths)) => {
                    all.align();
                    for (norm, width) in QK_NORMS.iter().zip(widths) {
                        all.push(norm(modules).layer_parameter(layer, "weight"), vec![width.into()]);
                    }
                }
                (None, None) => {}
            }
            all.add_biases(layer, o);
            all.add_norm(layer, &modules.o_norm, hidden);
            all.add_norm(layer, &modules.post_norm, hidden);
            all.add_biases(layer, gate_up);
            all.add_biases(layer, down);
            all.add_norm(layer, &modules.down_norm, hidden);
        }
        all.add(modules.norm.parameter("weight"), &[hidden]);
        all.align();
        all.ends.push(vec![all.elems]);
        all
    }

    /// Returns the sections in which gradients become complete.
    pub(crate) fn sections(&self) -> Sections {
        Sections::new(self.ends.clone())
    }

    /// Returns the range of a layer's matrices, with padding up to the next layer.
    pub(crate) fn layer(&self, layer: usize) -> Range<u64> {
        let start = |layer: &[Range<u64>; 4]| layer[0].start;
        let end = self.layers[layer][3].end.next_multiple_of(ALIGN);
        start(&self.layers[layer])..self.layers.get(layer + 1).map_or(end, start)
    }

    /// Returns the range of all layers' matrices.
    pub(crate) fn matrices(&self) -> Range<u64> {
        self.layer(0).start..self.layer(self.layers.len() - 1).end
    }

    /// Returns the number of elements without padding.
    pub fn count(&self) -> u64 {
        self.list.iter().map(Parameter::elems).sum()
    }

    fn align(&mut self) {
        self.elems = self.elems.next_multiple_of(ALIGN);
    }

    fn add(&mut self, name: String, shape: &[u64]) {
        self.align();
        self.push(name, shape.to_vec());
    }

    /// Lengthens the place of the last one.
    fn extend(&mut self, elems: u64) {
        *self.extents.last_mut().expect("one") += elems;
        self.elems += elems;
    }

    fn add_norm(&mut self, layer: u32, norm: &Option<Module>, hidden: u64) {
        if let Some(norm) = norm {
            self.add(norm.layer_parameter(layer, "weight"), &[hidden]);
        }
    }

    /// Adds vectors of the gated delta rule.
    fn add_delta_rule(&mut self, layer: u32, modules: &DeltaRuleModules, heads: DeltaHeads) {
        self.align();
        for part in DECAYS {
            self.push(modules.decay.layer_parameter(layer, part), vec![heads.values.into()]);
        }
        self.add(modules.norm.layer_parameter(layer, "weight"), &[delta_rule::HEAD.into()]);
    }

    /// Adds a router's matrices, with a row of zeros for each column of the logits that is no expert.
    fn add_router(&mut self, layer: u32, config: &ModelConfig, experts: ExpertsConfig) {
        self.align();
        for part in router(config, experts) {
            self.push(part.parameter(layer, "weight"), vec![part.rows.into(), config.hidden.into()]);
        }
        self.extend(u64::from(experts.columns() - experts.matrices()) * u64::from(config.hidden));
    }

    fn push(&mut self, name: String, shape: Vec<u64>) {
        let parameter = Parameter { name, shape };
        self.starts.push(self.elems);
        self.extents.push(parameter.elems());
        self.elems += parameter.elems();
        self.list.push(parameter);
    }

    fn add_matrices(&mut self, layer: u32, stack: &Stack) -> Range<u64> {
        self.align();
        let start = self.elems;
        for part in &stack.parts {
            self.push(part.parameter(layer, "weight"), vec![part.rows.into(), stack.columns.into()]);
        }
        start..self.elems
    }

    fn add_biases(&mut self, layer: u32, stack: &Stack) {
        if stack.bias {
            self.align();
            for part in &stack.parts {
                self.push(part.parameter(layer, "bias"), vec![part.rows.into()]);
            }
        }
    }
}
