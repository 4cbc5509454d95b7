//! Value heads of the gated delta rule in the order that Hugging Face's files have them: those that a key head serves
//! one after another. GGUF's files tile them instead: the first of each key head, then the second of each.

use precast_kernels::delta_rule::HEAD;
use precast_plan::{DeltaHeads, Family};
use rayon::prelude::*;

use super::kind::Kind;

/// Heads of a model whose files have value heads tiled.
pub(super) struct Tiled {
    pub family: &'static Family,
    pub heads: DeltaHeads,
}

impl Tiled {
    /// Where value heads lie in a tensor, by its Hugging Face name; none where it has none, or all are in order.
    ///
    /// # Errors
    /// Error of a shape that is not that of so many heads.
    pub fn of(&self, name: &str, shape: &[u64]) -> Result<Option<Tiling>, String> {
        let DeltaHeads { keys, values } = self.heads;
        let (head, values) = (u64::from(HEAD), u64::from(values));
        let modules = &self.family.modules.delta_rule;
        let Some((module, _)) = name.rsplit_once('.').filter(|_| self.heads.are_tiled()) else { return Ok(None) };
        let is = |one: &precast_plan::family::Module| module.ends_with(one.hugging_face);
        let (skipped, rows) = match () {
            () if is(&modules.out) => return self.columns(name, shape),
            () if is(&modules.qkv) || is(&modules.conv) => (2 * u64::from(keys) * head, values * head),
            () if is(&modules.z) => (0, values * head),
            () if is(&modules.b) || is(&modules.a) || is(&modules.decay) => (0, values),
            () => return Ok(None),
        };
        match shape {
            [found, columns @ ..] if *found == skipped + rows && !columns.contains(&0) => {
                let columns: u64 = columns.iter().product();
                let line = (skipped + rows) * columns;
                Ok(Some(Tiling { line, skipped: skipped * columns, heads: self.heads }))
            }
            _ => Err(format!(
                "tensor {name} has shape {shape:?}: {keys} key and {values} value heads have {} rows",
                skipped + rows
            )),
        }
    }

    fn columns(&self, name: &str, shape: &[u64]) -> Result<Option<Tiling>, String> {
        let width = u64::from(self.heads.width());
        match shape {
            [_, columns] if *columns == width => Ok(Some(Tiling { line: width, skipped: 0, heads: self.heads })),
            _ => Err(format!(
                "tensor {name} has shape {shape:?}: {} value heads have {width} columns",
                self.heads.values
            )),
        }
    }
}

/// Where value heads lie in a tensor: in each line of elements behind those of no value head, of equal length.
pub(super) struct Tiling {
    /// Elements of a line: of the whole tensor, or of a row.
    pub line: u64,
    skipped: u64,
    heads: DeltaHeads,
}

impl Tiling {
    /// True if a head is whole blocks of a kind of storage. Rows are, in any file.
    pub fn is_whole(&self, kind: Kind) -> bool {
        ((self.line - self.skipped) / u64::from(self.heads.values)).is_multiple_of(kind.elems())
    }

    /// Puts the heads of whole lines right: so many elements, or the blocks that hold them.
    pub fn untile<T: Copy + Send + Sync>(&self, out: &mut [T], elements: u64) {
        self.transpose(out, elements, [self.each(), self.heads.keys as usize]);
    }

    /// Stores the heads of whole lines as [`Self::untile`] finds them.
    pub fn tile<T: Copy + Send + Sync>(&self, out: &mut [T], elements: u64) {
        self.transpose(out, elements, [self.heads.keys as usize, self.each()]);
    }

    /// Value heads that a key head serves.
    fn each(&self) -> usize {
        (self.heads.values / self.heads.keys) as usize
    }

    /// Turns rows of heads into columns.
    fn transpose<T: Copy + Send + Sync>(&self, out: &mut [T], elements: u64, [rows, columns]: [usize; 2]) {
        let held = |part: u64| (out.len() as u64 * part / elements) as usize;
        let (line, skipped) = (held(self.line), held(self.skipped));
        out.par_chunks_exact_mut(line).for_each(|line| {
            let heads = &mut line[skipped..];
            let from = heads.to_vec();
            let head_len = from.len() / (rows * columns);
            for (to, head) in heads.chunks_exact_mut(head_len).enumerate() {
                let source = to % rows * columns + to / rows;
                head.copy_from_slice(&from[source * head_len..][..head_len]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiled() -> Tiled {
        let family = Family::of_model_type("qwen3_5_text").unwrap();
        Tiled { family, heads: DeltaHeads { keys: 2, values: 6 } }
    }

    const LAYER: &str = "model.layers.0.linear_attn";

    #[test]
    fn heads_of_a_key_head_are_one_after_another_as_read_and_tiled_as_written() {
        let tiling = tiled().of(&format!("{LAYER}.in_proj_a.weight"), &[6, 2]).unwrap().unwrap();
        // Heads k0v0, k1v0, k0v1, k1v1, k0v2, k1v2 of two elements each.
        let file = [0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51];
        let mut heads = file;
        tiling.untile(&mut heads, 12);
        assert_eq!(heads, [0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51]);
        tiling.tile(&mut heads, 12);
        assert_eq!(heads, file);
    }

    /// Of queries and keys nothing moves, of the output's projection columns do.
    #[test]
    fn what_moves_is_what_belongs_to_value_heads() {
        let head = u64::from(HEAD);
        let all: Vec<u64> = (0..(4 + 6) * head).collect();
        let mut rows = all.clone();
        let shape = [10 * head, 1, 1];
        tiled().of(&format!("{LAYER}.conv1d.weight"), &shape).unwrap().unwrap().untile(&mut rows, 10 * head);
        let firsts = |rows: &[u64]| rows.chunks(head as usize).map(|rows| rows[0] / head).collect::<Vec<_>>();
        assert_eq!(firsts(&rows), [0, 1, 2, 3, 4, 6, 8, 5, 7, 9]);
        let mut columns = all[..2 * 6 * head as usize - 2 * head as usize].to_vec();
        columns.extend_from_slice(&all[..2 * head as usize]);
        let out = tiled().of(&format!("{LAYER}.out_proj.weight"), &[2, 6 * head]).unwrap().unwrap();
        out.untile(&mut columns, 12 * head);
        assert_eq!(firsts(&columns), [0, 2, 4, 1, 3, 5, 6, 8, 0, 7, 9, 1]);
        assert!(!out.is_whole(Kind::Block(precast_kernels::Block::Q4_K)));
        assert!(out.is_whole(Kind::Block(precast_kernels::Block::Q8_0)));
        assert!(tiled().of(&format!("{LAYER}.norm.weight"), &[head]).unwrap().is_none());
    }

    #[test]
    fn other_shapes_than_those_of_the_heads_are_refused() {
        for (name, shape, wanted) in [
            ("in_proj_z.weight", &[767, 4][..], "value heads have 768 rows"),
            ("out_proj.weight", &[4, 770][..], "value heads have 768 columns"),
            ("A_log", &[][..], "value heads have 6 rows"),
        ] {
            let error = tiled().of(&format!("{LAYER}.{name}"), shape).err().unwrap();
            assert!(error.contains(wanted), "{error}");
        }
    }
}
