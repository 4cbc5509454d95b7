//! Formats of the file that a run trains for.

use std::collections::BTreeMap;
use std::fmt;

use itertools::Itertools;
use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig};
use serde::Serialize;

/// Formats of the matrices of layers.
const LAYERS: [Block; 3] = [Block::Q8_0, Block::Q4_0, Block::Q4_K];
/// Formats of embedding and head.
const HEADS: [Block; 2] = [Block::Q8_0, Block::Q6_K];

/// A format of a file, which llama.cpp and options name in lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileBlock(Block);

impl FileBlock {
    /// Parses a format of layers.
    ///
    /// # Errors
    /// A message that lists them, for another text.
    pub fn of_layers(text: &str) -> Result<Self, String> {
        Self::one_of(&LAYERS, text)
    }

    /// Parses a format of embedding and head.
    ///
    /// # Errors
    /// A message that lists them, for another text.
    pub fn of_head(text: &str) -> Result<Self, String> {
        Self::one_of(&HEADS, text)
    }

    fn one_of(formats: &[Block], text: &str) -> Result<Self, String> {
        let mut all = formats.iter().map(|block| Self(*block));
        let list = all.clone().format(", ");
        all.find(|one| one.to_string() == text).ok_or_else(|| format!("unknown format `{text}`: expected {list}"))
    }
}

impl fmt::Display for FileBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().to_lowercase())
    }
}

impl Serialize for FileBlock {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A file in blocks: the format of its layers, and of its embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    layers: FileBlock,
    head: FileBlock,
}

impl File {
    /// Without a head that is asked for, it follows from the layers.
    pub fn new(layers: FileBlock, head: Option<FileBlock>) -> Self {
        Self { layers, head: head.unwrap_or_else(|| FileBlock(Formats::usual_ends(layers.0))) }
    }

    /// Returns the formats of layers, and of embedding and head.
    pub fn blocks(self) -> (Block, Block) {
        (self.layers.0, self.head.0)
    }

    /// Returns the formats of a model's matrices.
    pub fn formats(self, config: &ModelConfig) -> Formats {
        Formats::rounded(config, self.layers.0, self.head.0)
    }

    /// Says in which formats the matrices of a model are.
    pub fn described(self, config: &ModelConfig) -> String {
        let mut counts: BTreeMap<Block, usize> = BTreeMap::new();
        self.formats(config).iter().for_each(|(_, block)| *counts.entry(block).or_default() += 1);
        let each = counts.into_iter().map(|(block, matrices)| format!("{matrices} x {block}"));
        format!("matrices train as a file has them: {}", each.format(", "))
    }

    /// Returns the arguments of `precast export` that write it.
    pub fn arguments(self) -> String {
        format!("--format {} --head {}", self.layers, self.head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_and_are_recorded_by_their_names() {
        type Parse = fn(&str) -> Result<FileBlock, String>;
        let options: [(&[Block], Parse); 2] = [(&LAYERS, FileBlock::of_layers), (&HEADS, FileBlock::of_head)];
        for (formats, parse) in options {
            for format in formats.iter().map(|block| FileBlock(*block)) {
                assert_eq!(parse(&format.to_string()), Ok(format));
                assert_eq!(serde_json::to_value(format).unwrap(), format.to_string());
            }
        }
        let refused = [FileBlock::of_layers("q5_0"), FileBlock::of_head("Q6_K")].map(Result::unwrap_err);
        assert_eq!(refused[0], "unknown format `q5_0`: expected q8_0, q4_0, q4_k");
        assert_eq!(refused[1], "unknown format `Q6_K`: expected q8_0, q6_k");
    }

    /// Rows of 576 columns are no whole blocks of 256.
    #[test]
    fn a_file_says_which_formats_stand_for_the_one_that_is_asked_for() {
        let json = include_str!("../../aot/models/smollm2-135m.json");
        let config = ModelConfig::from_json(json).unwrap();
        let file = File::new(FileBlock::of_layers("q4_k").unwrap(), None);
        let said = "matrices train as a file has them: 180 x Q5_0, 1 x Q8_0, 30 x Q4_K";
        assert_eq!(file.described(&config), said);
        assert_eq!(file.arguments(), "--format q4_k --head q6_k");
    }
}
