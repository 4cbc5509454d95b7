//! Every kernel there is, one line each: what key texts are read with, and what every program that lists kernels knows.

use crate::erased::Registered;
use crate::key::Key;

/// An operation the registry knows.
#[derive(Clone, Copy)]
pub struct Op {
    /// `family.operation`.
    pub name: &'static str,
    /// Reads the key's fields.
    parse: fn(&[(&str, &str)]) -> Option<Key>,
    /// See [`Reference::examples`](crate::Reference::examples).
    pub examples: fn() -> Vec<Key>,
}

/// The registry's row of a kernel.
const fn op<K: Registered>() -> Op {
    Op {
        name: K::OP,
        parse: |pairs| K::from_pairs(pairs).map(Key::new),
        examples: || K::examples().into_iter().map(Key::new).collect(),
    }
}

/// Every operation, alphabetical.
pub static OPS: &[Op] = &[
    op::<crate::adamw::AdamwUpdate>(),
    op::<crate::add::Add>(),
    op::<crate::attention::AttentionBwd>(),
    op::<crate::attention::AttentionDelta>(),
    op::<crate::attention::AttentionFwd>(),
    op::<crate::cast::Cast>(),
    op::<crate::column_sum::ColumnSumFinish>(),
    op::<crate::column_sum::ColumnSumPartial>(),
    op::<crate::dequant::Dequant>(),
    op::<crate::embedding::EmbeddingBwd>(),
    op::<crate::embedding::EmbeddingFwd>(),
    op::<crate::fill::Fill>(),
    op::<crate::gemm::GemmDgrad>(),
    op::<crate::gemm::GemmFwd>(),
    op::<crate::gemm::GemmSwiglu>(),
    op::<crate::gemm::GemmWgrad>(),
    op::<crate::grad_distance::GradDistancePartial>(),
    op::<crate::grad_norm::GradNormFinish>(),
    op::<crate::grad_norm::GradNormPartial>(),
    op::<crate::head::HeadCe>(),
    op::<crate::head::HeadCompare>(),
    op::<crate::head::HeadDistill>(),
    op::<crate::head::HeadJsd>(),
    op::<crate::head::HeadMetrics>(),
    op::<crate::head::HeadNll>(),
    op::<crate::int8::Int8Columns>(),
    op::<crate::int8::Int8Quantize>(),
    op::<crate::lora::LoraDgradA>(),
    op::<crate::lora::LoraDgradB>(),
    op::<crate::lora::LoraFwdA>(),
    op::<crate::lora::LoraFwdB>(),
    op::<crate::lora::LoraWgrad>(),
    op::<crate::qk_norm::QkNormBwd>(),
    op::<crate::qk_norm::QkNormDgrad>(),
    op::<crate::qk_norm::QkNormFwd>(),
    op::<crate::rmsnorm::RmsnormBwd>(),
    op::<crate::rmsnorm::RmsnormDgrad>(),
    op::<crate::rmsnorm::RmsnormFwd>(),
    op::<crate::rope::RopeBwd>(),
    op::<crate::rope::RopeFwd>(),
    op::<crate::swiglu::SwigluBwd>(),
    op::<crate::swiglu::SwigluFwd>(),
];

/// The examples of every kernel.
pub fn examples() -> Vec<Key> {
    OPS.iter().flat_map(|op| (op.examples)()).collect()
}

impl Key {
    /// Reads a canonical text.
    ///
    /// # Errors
    /// [`KeyError`] where the operation is unknown or the text is not exactly what a key prints.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let malformed = || KeyError::Malformed(text.to_owned());
        let (name, rest) = text.split_once('{').ok_or_else(malformed)?;
        let body = rest.strip_suffix('}').ok_or_else(malformed)?;
        let op = OPS.iter().find(|op| op.name == name);
        let op = op.ok_or_else(|| KeyError::UnknownOp { op: name.to_owned(), text: text.to_owned() })?;
        let pairs: Vec<(&str, &str)> = match body {
            "" => Vec::new(),
            body => body.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>().ok_or_else(malformed)?,
        };
        let key = (op.parse)(&pairs).ok_or_else(malformed)?;
        if key.text() == text { Ok(key) } else { Err(malformed()) }
    }
}

/// The text is no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No kernel family has this operation.
    #[error("unknown operation `{op}` in key `{text}`: this program and the bundle come from different versions")]
    UnknownOp {
        /// Operation looked for.
        op: String,
        /// The whole text.
        text: String,
    },
    /// The text is not canonical.
    #[error("malformed key `{0}`: expected the canonical text `op{{field=value,...}}`")]
    Malformed(String),
}
