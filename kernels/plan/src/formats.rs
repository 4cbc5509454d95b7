//! Storage formats of a model's matrices, an input of a plan besides the configuration.

use std::collections::BTreeMap;

use precast_kernels::{Block, Dtype, int8};

use crate::config::{DeltaHeads, ModelConfig};
use crate::parameters::{Parameters, Projection, Stack, all_stacks};
use crate::recipe::PlanError;

/// The block format of each matrix in blocks, by Hugging Face name, or 8-bit GEMMs of layers. All else is dense, in
/// the precision of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formats {
    blocks: BTreeMap<String, Block>,
    dequantized: Option<&'static str>,
    int8: bool,
}

impl Formats {
    /// Returns the all-dense formats.
    pub const fn dense() -> Self {
        Self { blocks: BTreeMap::new(), dequantized: None, int8: false }
    }

    /// Rotates and quantizes matrices of layers to 8 bits at load, with a scale per row: their GEMMs are 8-bit too.
    /// Embedding and head stay dense.
    pub fn int8() -> Self {
        Self { int8: true, ..Self::default() }
    }

    /// True if the GEMMs of layers are 8-bit.
    pub fn is_int8(&self) -> bool {
        self.int8
    }

    /// Refuses int8 GEMMs that no kernel computes: in fp32, and of a depth without a rotation.
    pub(crate) fn check(&self, config: &ModelConfig, x: Dtype) -> Result<(), PlanError> {
        if !self.int8 {
            return Ok(());
        }
        if x != Dtype::Bf16 {
            return Err(PlanError::Int8Precision);
        }
        check_rows(config)?;
        check_depths(config, |stack| stack.columns)?;
        let rough = unrotated(config, |stack| stack.columns);
        rough.map_or(Ok(()), |(module, depth, block)| Err(PlanError::Rotation { module, depth, block }))
    }

    /// Adds matrices in a format of this name that no kernel reads: they are dequantized at load, and dense.
    #[must_use]
    pub fn with_dequantized(self, format: Option<&'static str>) -> Self {
        Self { dequantized: format, ..self }
    }

    /// Returns the format that matrices are dequantized from at load, if any.
    pub fn dequantized(&self) -> Option<&'static str> {
        self.dequantized
    }

    /// True if every matrix is dense.
    pub fn is_dense(&self) -> bool {
        self.blocks.is_empty() && !self.int8
    }

    /// Returns the block format of a matrix; none if it is dense.
    pub fn of(&self, name: &str) -> Option<Block> {
        self.blocks.get(name).copied()
    }

    /// Returns each matrix in blocks, with its format.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Block)> {
        self.blocks.iter().map(|(name, block)| (name.as_str(), *block))
    }

    /// Stores every matrix in one format if its rows are whole blocks.
    pub fn uniform(config: &ModelConfig, block: Block) -> Self {
        let matrices = Parameters::new(config).list.into_iter().filter(|parameter| parameter.shape.len() == 2);
        let whole = matrices.filter(|matrix| matrix.shape[1].is_multiple_of(block.elems()));
        whole.map(|matrix| (matrix.name, block)).collect()
    }

    /// Returns the format of embedding and head in a file whose layers have one: Q6_K, as llama.cpp keeps the head,
    /// unless layers are finer.
    pub fn usual_ends(layers: Block) -> Block {
        if layers == Block::Q8_0 { Block::Q8_0 } else { Block::Q6_K }
    }

    /// Stores the matrices of layers in one format, and embedding and head in another. Rows that are not whole blocks
    /// of 256 take the next larger format of 32, as `llama_tensor_get_type` has it, and so do columns of tiled heads,
    /// which a file holds in another order; what is in no whole blocks of 32 either is left out.
    pub fn rounded(config: &ModelConfig, layers: Block, ends: Block) -> Self {
        let modules = config.family.modules;
        let embedding = modules.embedding.parameter("weight");
        let head = (!config.tied).then(|| modules.head.parameter("weight"));
        let of_ends = [Some(embedding), head].into_iter().flatten().map(|name| (name, ends, config.hidden));
        let is_tiled = config.delta_heads.is_some_and(DeltaHeads::are_tiled);
        let of_layers = (0..).zip(all_stacks(config)).flat_map(|(layer, stacks)| {
            let of = |stack: Stack| stack.parts.into_iter().map(move |part| (part, stack.columns));
            stacks.into_iter().flat_map(of).map(move |(part, columns)| {
                let moves = is_tiled && part.module == &modules.delta_rule.out;
                // Halves of blocks of 256 move, and whole ones of 32.
                let block = if moves { smaller(layers) } else { layers };
                (part.parameter(layer, "weight"), block, columns)
            })
        });
        of_ends.chain(of_layers).filter_map(|(name, block, columns)| Some((name, fitting(block, columns)?))).collect()
    }

    /// Returns the mix that llama.cpp's `llama-quantize` calls Q4_K_M: Q4_K, and Q6_K for the head and, in half of the
    /// layers, for values and down projections. Rows that are not whole blocks of 256 take the next larger format of 32
    /// (`llama_tensor_get_type`). What readers dequantize is dense: in columns of tiled heads halves of blocks move.
    pub fn q4_k_m(config: &ModelConfig) -> Self {
        let modules = config.family.modules;
        let more = |layer: u32| {
            let eighth = config.depth() / 8;
            layer < eighth || layer >= 7 * config.depth() / 8 || (layer - eighth) % 3 == 2
        };
        let embedding = modules.embedding.parameter("weight");
        let ends = match config.tied {
            true => vec![(embedding, Block::Q6_K)],
            false => vec![(embedding, Block::Q4_K), (modules.head.parameter("weight"), Block::Q6_K)],
        };
        let ends = ends.into_iter().map(|(name, block)| (name, block, config.hidden));
        let layers = (0..).zip(all_stacks(config)).flat_map(|(layer, stacks)| {
            let of = |stack: Stack| stack.parts.into_iter().map(move |part| (part, stack.columns));
            let is_tiled = config.delta_heads.is_some_and(DeltaHeads::are_tiled);
            let moves = move |(part, _): &(Projection, u32)| is_tiled && part.module == &modules.delta_rule.out;
            stacks.into_iter().flat_map(of).filter(move |one| !moves(one)).map(move |(part, columns)| {
                let is_down = [&modules.down, &modules.experts.down].contains(&part.module);
                let larger = (part.module == &modules.v || is_down) && more(layer);
                let block = if larger { Block::Q6_K } else { Block::Q4_K };
                (part.parameter(layer, "weight"), block, columns)
            })
        });
        ends.chain(layers).filter_map(|(name, block, columns)| Some((name, fitting(block, columns)?))).collect()
    }
}

impl Formats {
    /// Returns the formats of the embedding, the head and the GEMMs of layers. A GEMM with a dense part is all
    /// dense.
    pub(crate) fn of_linears(&self, config: &ModelConfig) -> Self {
        if self.int8 {
            return self.clone();
        }
        let modules = config.family.modules;
        let layers = (0..).zip(all_stacks(config)).flat_map(|(layer, stacks)| {
            let formats = |stack: &Stack| -> Option<Vec<(String, Block)>> {
                let names = stack.parts.iter().map(|part| part.parameter(layer, "weight"));
                names.map(|name| self.of(&name).map(|block| (name, block))).collect()
            };
            stacks.iter().filter_map(formats).flatten().collect::<Vec<_>>()
        });
        let ends = [&modules.embedding, &modules.head].map(|module| module.parameter("weight"));
        let ends = ends.into_iter().filter_map(|name| self.of(&name).map(|block| (name, block)));
        ends.chain(layers).collect()
    }
}

/// Returns the format of 32 that stands for one of 256 where rows are no whole blocks.
fn smaller(block: Block) -> Block {
    match block {
        Block::Q6_K => Block::Q8_0,
        Block::Q4_K => Block::Q5_0,
        of_32 => of_32,
    }
}

/// Returns the format, or the smaller one, of which rows are whole blocks.
fn fitting(block: Block, columns: u32) -> Option<Block> {
    [block, smaller(block)].into_iter().find(|block| u64::from(columns).is_multiple_of(block.elems()))
}

/// Finds the first GEMM of a layer whose depth has no rotation: its first matrix, the depth, and the largest power
/// of two that divides it.
fn unrotated(config: &ModelConfig, depth: impl Fn(&Stack) -> u32) -> Option<(String, u32, u32)> {
    let (module, depth) = find(config, |stack| int8::rotation(depth(stack)).is_none(), &depth)?;
    Some((module, depth, 1 << depth.trailing_zeros()))
}

/// Refuses GEMMs whose rows are too wide to quantize.
fn check_depths(config: &ModelConfig, depth: impl Fn(&Stack) -> u32) -> Result<(), PlanError> {
    let deep = find(config, |stack| depth(stack) > int8::MOST_DEPTH, &depth);
    deep.map_or(Ok(()), |(module, depth)| Err(PlanError::Int8Depth { module, depth }))
}

/// Finds the first GEMM of which something holds: its first matrix and its depth.
fn find(config: &ModelConfig, holds: impl Fn(&Stack) -> bool, depth: impl Fn(&Stack) -> u32) -> Option<(String, u32)> {
    let of_layer = |(layer, stacks): (u32, [Stack; 4])| {
        let found = stacks.into_iter().find(&holds)?;
        Some((found.parts[0].parameter(layer, "weight"), depth(&found)))
    };
    (0..).zip(all_stacks(config)).find_map(of_layer)
}

/// Refuses rows that are no whole vectors of the output: only those of the gated delta rule may be.
fn check_rows(config: &ModelConfig) -> Result<(), PlanError> {
    match config.delta_heads.filter(|heads| !heads.projected().is_multiple_of(8)) {
        None => Ok(()),
        Some(_) => Err(PlanError::DeltaRule {
            reason: "whose value heads are no multiple of 4 are not computed in int8: use bf16",
        }),
    }
}

/// Refuses a student whose GEMMs no kernel computes in 8 bits, forward and backward.
pub(crate) fn check_student(config: &ModelConfig) -> Result<(), PlanError> {
    check_rows(config)?;
    check_depths(config, |stack| stack.columns.max(stack.rows()))?;
    let forward = unrotated(config, |stack| stack.columns).map(|found| ("the output", found));
    let backward = || Some(("the gradient of the input", unrotated(config, Stack::rows)?));
    forward.or_else(backward).map_or(Ok(()), |(result, (module, depth, block))| {
        Err(PlanError::StudentRotation { result, module, depth, block })
    })
}

impl FromIterator<(String, Block)> for Formats {
    fn from_iter<I: IntoIterator<Item = (String, Block)>>(formats: I) -> Self {
        Self { blocks: formats.into_iter().collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use precast_kernels::Format;

    use super::*;

    fn config(json: &str) -> ModelConfig {
        ModelConfig::from_json(json).unwrap()
    }

    fn counts(formats: &Formats) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        formats.iter().for_each(|(_, block)| *counts.entry(block.to_string()).or_default() += 1);
        counts
    }

    /// Files tile value heads where key heads are fewer: half a block of 256 columns moves.
    #[test]
    fn what_moves_by_halves_of_blocks_is_dense_in_the_mix() {
        let formats = |json: &str| {
            let formats = Formats::q4_k_m(&config(json));
            ["in_proj_qkv", "out_proj"].map(|name| formats.of(&format!("model.layers.0.linear_attn.{name}.weight")))
        };
        let block = Some(Block::Q4_K);
        assert_eq!(formats(include_str!("../../../aot/models/qwen3.5-0.8b.json")), [block, block]);
        assert_eq!(formats(include_str!("../../../aot/models/qwen3.5-4b.json")), [block, None]);
    }

    /// Qwen publishes a file of 4,683,073,536 bytes, tokenizer and norms included.
    #[test]
    fn the_mix_of_a_7b_is_that_of_the_published_file() {
        let config = config(include_str!("../../../aot/models/qwen2.5-7b.json"));
        let formats = Formats::q4_k_m(&config);
        assert_eq!(counts(&formats), [("Q4_K".to_owned(), 169), ("Q6_K".to_owned(), 29)].into());
        let bytes = |parameter: &crate::Parameter| {
            formats.of(&parameter.name).map_or(4 * parameter.elems(), |b| Format::Block(b).bytes(parameter.elems()))
        };
        let bytes: u64 = Parameters::new(&config).list.iter().map(bytes).sum();
        assert!((4_670_000_000..4_683_073_536).contains(&bytes), "{bytes}");
    }

    #[test]
    fn rows_that_are_no_whole_blocks_of_256_fall_back_to_32() {
        let config = config(include_str!("../../../aot/models/smollm2-135m.json"));
        let formats = Formats::q4_k_m(&config);
        assert_eq!(formats.of("model.embed_tokens.weight"), Some(Block::Q8_0));
        assert_eq!(formats.of("model.layers.1.self_attn.q_proj.weight"), Some(Block::Q5_0));
        assert_eq!(formats.of("model.layers.0.mlp.down_proj.weight"), Some(Block::Q6_K), "1536 columns");
        assert_eq!(formats.of("model.norm.weight"), None);
    }

    #[test]
    fn uniform_formats_leave_out_what_does_not_divide() {
        let config = config(include_str!("../../../aot/models/qwen2.5-0.5b.json"));
        // Only matrices with 4864 columns are whole blocks.
        assert_eq!(counts(&Formats::uniform(&config, Block::Q4_K)), [("Q4_K".to_owned(), 24)].into());
        assert_eq!(counts(&Formats::uniform(&config, Block::Q4_0)), [("Q4_0".to_owned(), 1 + 7 * 24)].into());
    }
}
