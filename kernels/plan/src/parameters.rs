//! A model's parameters, laid out in flat buffers.
//!
//! Matrices come before vectors, so that one index decides weight decay. Projections with one input are adjacent (q, k,
//! v; gate, up), so that one GEMM computes them, and so are the norms of q and k.

use std::ops::Range;

use crate::config::ModelConfig;
use crate::family::{Module, Modules, QkNorm};
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

    /// Returns the parameter of another layer that is what this one is of the first; none of what is outside of the
    /// layers.
    pub(crate) fn of_layer(&self, layer: u32) -> Option<Self> {
        let (before, after) = self.name.split_once(".layers.0.")?;
        Some(Self { name: format!("{before}.layers.{layer}.{after}"), shape: self.shape.clone() })
    }

    pub fn elems(&self) -> u64 {
        self.shape.iter().product()
    }
}

/// The parameters of a model, laid out.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Ends of the embedding, the layers, an untied head and the vectors.
    ends: Vec<Vec<u64>>,
}

/// A projection `[rows, columns]` of a layer.
pub(crate) struct Projection {
    pub module: &'static Module,
    pub rows: u32,
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

/// Returns the GEMMs of a layer: q, k and v; o; gate and up; down.
pub(crate) fn stacks(config: &ModelConfig) -> [Stack; 4] {
    let m = config.family.modules;
    let (hidden, intermediate) = (config.hidden, config.intermediate);
    let (attention, kv) = (config.attention_width(), config.kv_heads * config.head_dim);
    let stack = |parts: &[(&'static Module, u32)], columns, bias| Stack {
        parts: parts.iter().map(|(module, rows)| Projection { module, rows: *rows }).collect(),
        columns,
        bias,
    };
    [
        stack(&[(&m.q, attention), (&m.k, kv), (&m.v, kv)], hidden, config.qkv_bias),
        stack(&[(&m.o, hidden)], attention, config.o_bias),
        stack(&[(&m.gate, intermediate), (&m.up, intermediate)], hidden, config.mlp_bias),
        stack(&[(&m.down, hidden)], intermediate, config.mlp_bias),
    ]
}

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
        let [qkv, o, gate_up, down] = &stacks(config);
        let (list, starts, extents) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = Self { list, starts, extents, elems: 0, decayed: 0, layers: Vec::new(), ends: Vec::new() };
        all.add(modules.embedding.parameter("weight"), &[vocab, hidden]);
        let masked = config.head_elems() - vocab * hidden;
        if config.tied {
            all.extend(masked);
        }
        all.ends.push(vec![all.elems]);
        let layers =
            (0..config.depth()).map(|layer| [qkv, o, gate_up, down].map(|stack| all.add_matrices(layer, stack)));
        all.layers = layers.collect();
        all.ends.push(all.layers.iter().map(|[.., down]| down.end).collect());
        if !config.tied {
            all.add(modules.head.parameter("weight"), &[vocab, hidden]);
            all.extend(masked);
            all.ends.push(vec![all.elems]);
        }
        all.decayed = all.elems;
        for layer in 0..config.depth() {
            all.add_norm(layer, &modules.input_norm, hidden);
            all.add_biases(layer, qkv);
            if let Some(widths) = qk_norms(config) {
                all.align();
                for (norm, width) in QK_NORMS.iter().zip(widths) {
                    all.push(norm(modules).layer_parameter(layer, "weight"), vec![width.into()]);
                }
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
            self.push(part.module.layer_parameter(layer, "weight"), vec![part.rows.into(), stack.columns.into()]);
        }
        start..self.elems
    }

    fn add_biases(&mut self, layer: u32, stack: &Stack) {
        if stack.bias {
            self.align();
            for part in &stack.parts {
                self.push(part.module.layer_parameter(layer, "bias"), vec![part.rows.into()]);
            }
        }
    }
}
