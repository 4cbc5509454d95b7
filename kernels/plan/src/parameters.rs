//! Where each of a model's parameters lies in its flat buffer.
//!
//! Matrices come before vectors, so that one index decides what weight decay applies to. Projections that
//! read the same input lie next to each other (q, k, v; gate, up), so that one product computes them.

use crate::config::ModelConfig;

/// A range of elements of the flat buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub elems: u64,
}

/// One parameter, by its Hugging Face name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Hugging Face name.
    pub name: String,
    /// Shape as stored in a checkpoint.
    pub shape: Vec<u64>,
    /// Where it lies.
    pub span: Span,
}

/// The spans of one transformer block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Gamma of the norm before attention.
    pub input_norm: Span,
    /// q, k and v, stacked along their rows.
    pub qkv: Span,
    /// Their biases.
    pub qkv_bias: Option<Span>,
    /// Attention output projection.
    pub o: Span,
    /// Its bias.
    pub o_bias: Option<Span>,
    /// Gamma of the norm before the MLP.
    pub post_norm: Span,
    /// gate and up, stacked.
    pub gate_up: Span,
    /// Their biases.
    pub gate_up_bias: Option<Span>,
    /// Down projection.
    pub down: Span,
    /// Its bias.
    pub down_bias: Option<Span>,
}

/// The layout of a model's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Every parameter, in the order of the buffer.
    pub list: Vec<Parameter>,
    /// Embedding table.
    pub embedding: Span,
    /// Transformer blocks.
    pub layers: Vec<Layer>,
    /// Gamma of the final norm.
    pub norm: Span,
    /// Head: the embedding table itself when tied.
    pub head: Span,
    /// Elements of the buffer, padding included.
    pub elems: u64,
    /// The first so many are matrices: weight decay applies to them.
    pub decayed: u64,
}

/// Spans start on multiples of this many elements: 128 bytes in bf16.
const ALIGN: u64 = 64;

struct Packer {
    list: Vec<Parameter>,
    next: u64,
}

impl Packer {
    /// Lays parameters out one after the other as one span.
    fn stack(&mut self, parts: &[(String, Vec<u64>)]) -> Span {
        self.next = self.next.next_multiple_of(ALIGN);
        let start = self.next;
        for (name, shape) in parts {
            let span = Span { start: self.next, elems: shape.iter().product() };
            self.next += span.elems;
            self.list.push(Parameter { name: name.clone(), shape: shape.clone(), span });
        }
        Span { start, elems: self.next - start }
    }

    fn one(&mut self, name: String, shape: &[u64]) -> Span {
        self.stack(&[(name, shape.to_vec())])
    }
}

impl Parameters {
    /// The layout for a model.
    pub fn new(config: &ModelConfig) -> Self {
        let mut packer = Packer { list: Vec::new(), next: 0 };
        let (hidden, intermediate) = (u64::from(config.hidden), u64::from(config.intermediate));
        let (vocab, attention) = (u64::from(config.vocab), u64::from(config.attention_width()));
        let kv = u64::from(config.kv_heads * config.head_dim);
        let name = |layer: u32, part: &str| format!("model.layers.{layer}.{part}");
        let qkv_rows = [("self_attn.q_proj", attention), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)];
        let gate_up_rows = [("mlp.gate_proj", intermediate), ("mlp.up_proj", intermediate)];
        let weights = |layer: u32, rows: &[(&str, u64)], columns: u64| -> Vec<(String, Vec<u64>)> {
            rows.iter().map(|(part, rows)| (name(layer, &format!("{part}.weight")), vec![*rows, columns])).collect()
        };
        let biases = |layer: u32, rows: &[(&str, u64)]| -> Vec<(String, Vec<u64>)> {
            rows.iter().map(|(part, rows)| (name(layer, &format!("{part}.bias")), vec![*rows])).collect()
        };

        let embedding = packer.one("model.embed_tokens.weight".into(), &[vocab, hidden]);
        let matrices: Vec<[Span; 4]> = (0..config.layers)
            .map(|layer| {
                [
                    packer.stack(&weights(layer, &qkv_rows, hidden)),
                    packer.one(name(layer, "self_attn.o_proj.weight"), &[hidden, attention]),
                    packer.stack(&weights(layer, &gate_up_rows, hidden)),
                    packer.one(name(layer, "mlp.down_proj.weight"), &[hidden, intermediate]),
                ]
            })
            .collect();
        let head = if config.tied { embedding } else { packer.one("lm_head.weight".into(), &[vocab, hidden]) };
        let decayed = packer.next;

        let layers = matrices
            .into_iter()
            .zip(0..)
            .map(|([qkv, o, gate_up, down], layer)| Layer {
                input_norm: packer.one(name(layer, "input_layernorm.weight"), &[hidden]),
                qkv,
                qkv_bias: config.qkv_bias.then(|| packer.stack(&biases(layer, &qkv_rows))),
                o,
                o_bias: config.o_bias.then(|| packer.one(name(layer, "self_attn.o_proj.bias"), &[hidden])),
                post_norm: packer.one(name(layer, "post_attention_layernorm.weight"), &[hidden]),
                gate_up,
                gate_up_bias: config.mlp_bias.then(|| packer.stack(&biases(layer, &gate_up_rows))),
                down,
                down_bias: config.mlp_bias.then(|| packer.one(name(layer, "mlp.down_proj.bias"), &[hidden])),
            })
            .collect();
        let norm = packer.one("model.norm.weight".into(), &[hidden]);
        let elems = packer.next.next_multiple_of(ALIGN);
        Self { list: packer.list, embedding, layers, norm, head, elems, decayed }
    }

    /// Elements that are parameters: padding and nothing else apart.
    pub fn count(&self) -> u64 {
        self.list.iter().map(|parameter| parameter.span.elems).sum()
    }
}
