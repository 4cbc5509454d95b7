//! Formats of the file that a run trains for.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use itertools::Itertools;
use precast_kernels::Block;
use precast_plan::{Formats, ModelConfig};
use serde::Serialize;

/// Format of the matrices of layers, as llama.cpp names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerBlocks(Block);

/// Format of embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadBlocks(Block);

impl LayerBlocks {
    pub const ALL: [Self; 3] = [Self(Block::Q8_0), Self(Block::Q4_0), Self(Block::Q4_K)];
}

impl HeadBlocks {
    pub const ALL: [Self; 2] = [Self(Block::Q8_0), Self(Block::Q6_K)];
}

impl FromStr for LayerBlocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.to_string() == text);
        found.ok_or_else(|| format!("unknown format `{text}`: q8_0, q4_0 or q4_k"))
    }
}

impl FromStr for HeadBlocks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.to_string() == text);
        found.ok_or_else(|| format!("unknown format `{text}`: q8_0 or q6_k"))
    }
}

impl fmt::Display for LayerBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().to_lowercase())
    }
}

impl fmt::Display for HeadBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_string().to_lowercase())
    }
}

/// A file in blocks: the format of its layers, and of its embedding and head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    layers: LayerBlocks,
    head: HeadBlocks,
}

impl File {
    /// Without a head that is asked for, it follows from the layers.
    pub fn new(layers: LayerBlocks, head: Option<HeadBlocks>) -> Self {
        Self { layers, head: head.unwrap_or_else(|| HeadBlocks(Formats::usual_ends(layers.0))) }
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

impl Serialize for LayerBlocks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for HeadBlocks {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_read_back_and_are_recorded_by_their_names() {
        for layers in LayerBlocks::ALL {
            assert_eq!(layers.to_string().parse(), Ok(layers));
            assert_eq!(serde_json::to_value(layers).unwrap(), layers.to_string());
        }
        for head in HeadBlocks::ALL {
            assert_eq!(head.to_string().parse(), Ok(head));
            assert_eq!(serde_json::to_value(head).unwrap(), head.to_string());
        }
        assert_eq!("q5_0".parse::<LayerBlocks>().unwrap_err(), "unknown format `q5_0`: q8_0, q4_0 or q4_k");
        assert_eq!("Q6_K".parse::<HeadBlocks>().unwrap_err(), "unknown format `Q6_K`: q8_0 or q6_k");
    }

    /// Rows of 576 columns are no whole blocks of 256.
    #[test]
    fn a_file_says_which_formats_stand_for_the_one_that_is_asked_for() {
        let json = include_str!("../../aot/models/smollm2-135m.json");
        let config = ModelConfig::from_json(json).unwrap();
        let file = File::new("q4_k".parse().unwrap(), None);
        let said = "matrices train as a file has them: 180 x Q5_0, 1 x Q8_0, 30 x Q4_K";
        assert_eq!(file.described(&config), said);
        assert_eq!(file.arguments(), "--format q4_k --head q6_k");
    }
}
