//! Matrices that train as the values that they will have in the blocks of a file.

use std::ops::Range;

use precast_kernels::Block;

use crate::formats::Formats;
use crate::parameters::{Parameter, Parameters};

/// Neighboring matrices whose working copy has the values of blocks.
///
/// Columns are a multiple of 32 and rows one of 8, so that each begins at a multiple of 256 elements, as do the pieces
/// that ranks update: no piece cuts a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rounded {
    /// Elements in flat buffers.
    pub range: Range<u64>,
    pub block: Block,
}

impl Rounded {
    /// Returns the matrices that formats have in blocks, in buffer order.
    pub fn of(parameters: &Parameters, formats: &Formats) -> Vec<Self> {
        let of_one = |(one, start): (&Parameter, &u64)| {
            Some(Self { range: *start..start + one.elems(), block: formats.of(&one.name)? })
        };
        let mut all: Vec<Self> = Vec::new();
        for Self { range, block } in parameters.list.iter().zip(&parameters.starts).filter_map(of_one) {
            match all.last_mut() {
                Some(last) if last.block == block && last.range.end == range.start => last.range.end = range.end,
                _ => all.push(Self { range, block }),
            }
        }
        all
    }

    /// Returns the part of these matrices that is in a range, as elements of that.
    pub fn within(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = (self.range.start.max(range.start), self.range.end.min(range.end));
        (start < end).then(|| start - range.start..end - range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    /// Ranks update pieces that begin at multiples of this.
    #[test]
    fn all_begin_at_whole_blocks_of_any_format() {
        let json = include_str!("../../../../aot/models/smollm2-135m.json");
        for vocab in ["49152", "49153"] {
            let config = ModelConfig::from_json(&json.replace("49152", vocab)).unwrap();
            let all = Rounded::of(&Parameters::new(&config), &Formats::rounded(&config, Block::Q4_K, Block::Q6_K));
            assert!(all.iter().any(|one| one.block == Block::Q4_K));
            assert!(all.iter().all(|one| one.range.start.is_multiple_of(256)), "{vocab}");
        }
    }

    /// q, k and v lie next to each other, and so do gate and up; a layer's range has whole matrices.
    #[test]
    fn neighbors_of_a_format_are_rounded_at_once() {
        let json = include_str!("../../../../aot/models/smollm2-135m.json");
        let config = ModelConfig::from_json(json).unwrap();
        let parameters = Parameters::new(&config);
        let all = Rounded::of(&parameters, &Formats::rounded(&config, Block::Q4_0, Block::Q6_K));
        // Rows of 576 are no whole blocks of 256.
        assert_eq!((all[0].block, all[0].range.clone()), (Block::Q8_0, 0..49152 * 576));
        assert!(all[1..].iter().all(|one| one.block == Block::Q4_0));
        let elems: u64 = all.iter().map(|one| one.range.end - one.range.start).sum();
        assert_eq!(elems, parameters.list.iter().filter(|one| one.shape.len() == 2).map(Parameter::elems).sum::<u64>());
        let layer = parameters.layer(3);
        let inside: u64 = all.iter().filter_map(|one| one.within(&layer)).map(|part| part.end - part.start).sum();
        assert_eq!(inside, parameters.layers[3].iter().map(|range| range.end - range.start).sum::<u64>());
        assert_eq!(all[0].within(&layer), None);
    }
}
