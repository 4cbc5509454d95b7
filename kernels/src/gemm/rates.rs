//! Rates of tiles, beside `tuned.txt`: a file per architecture that was measured, and one for all others.
//!
//! A line is `ops dtype variant percent` and `#` starts a comment. An architecture builds exactly the tiles with a
//! line, and each is a candidate: it breaks no [`Constraint`](super::candidates::Constraint).

use std::collections::HashMap;
use std::sync::LazyLock;

use super::candidates;
use super::op::GemmOp;
use super::variants::Tiling;
use crate::variant::Numbers;
use crate::{Arch, Dtype};

const UNMEASURED: &str = include_str!("../rates/unmeasured.txt");
/// Rates of every portable tile, measured on an H200. sm_100 has its shared memory, so the same tiles.
const PORTABLE: &str = include_str!("../rates/sm_90_portable.txt");

const FILES: [(Arch, &str); 9] = [
    (Arch::Sm80, UNMEASURED),
    (Arch::Sm86, UNMEASURED),
    (Arch::Sm89, UNMEASURED),
    (Arch::Sm90a, include_str!("../rates/sm_90a.txt")),
    (Arch::Sm90Portable, PORTABLE),
    (Arch::Sm100, PORTABLE),
    (Arch::Sm120, UNMEASURED),
    (Arch::Sm121, UNMEASURED),
    (Arch::Sim, UNMEASURED),
];

/// A tile and its rate when every multiprocessor is full: percent of the fastest.
pub type Rate = (Tiling, u32);

/// By architecture, GEMM and dtype of the inputs.
type Tables = HashMap<(Arch, GemmOp, Dtype), Vec<Rate>>;

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let mut tables = Tables::new();
    for (arch, text) in FILES {
        read(&mut tables, arch, text).unwrap_or_else(|error| panic!("rates of {arch}: {error}"));
    }
    tables
});

/// Adds an architecture's lines.
fn read(tables: &mut Tables, arch: Arch, text: &str) -> Result<(), String> {
    let tiles: HashMap<String, Tiling> = candidates::tiles().map(|tile| (tile.erase().to_string(), tile)).collect();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [ops, dtype, tile, percent] = words[..] else {
            return Err(format!("`{line}` is not `ops dtype variant percent`"));
        };
        let dtype = [Dtype::Bf16, Dtype::F32, Dtype::I8].into_iter().find(|known| known.name() == dtype);
        let dtype = dtype.ok_or_else(|| format!("`{line}`: no dtype of a GEMM"))?;
        let tile = *tiles.get(tile).ok_or_else(|| format!("`{line}`: no tile"))?;
        let percent = percent.parse().ok().filter(|percent| *percent > 0);
        let percent: u32 = percent.ok_or_else(|| format!("`{line}`: no percentage"))?;
        for op in ops.split(',') {
            let op = GemmOp::of_name(op).ok_or_else(|| format!("`{line}`: no GEMM `{op}`"))?;
            if let Some(constraint) = candidates::refused(op, tile, arch) {
                return Err(format!("`{line}` breaks {constraint:?}"));
            }
            tables.entry((arch, op, dtype)).or_default().push((tile, percent));
        }
    }
    Ok(())
}

/// Returns the tiles that are built, in order of preference among equals; none for an unsupported dtype.
pub fn rates(op: GemmOp, dtype: Dtype, arch: Arch) -> &'static [Rate] {
    TABLES.get(&(arch, op, dtype)).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_gemms_a_dtype_and_a_candidate() {
        let tile = "mma=1,stages=4,threads=256,tile_k=32,tile_m=128,tile_n=256,warp_n=64";
        let parse = |line: &str| {
            let mut tables = Tables::new();
            read(&mut tables, Arch::Sm89, line).map(|()| tables)
        };
        let read = parse(&format!("# said\n\nfwd,wgrad bf16 {tile} 90\n")).unwrap();
        assert_eq!(read.len(), 2);
        assert_eq!(read[&(Arch::Sm89, GemmOp::Wgrad, Dtype::Bf16)][0].1, 90);
        let deep = tile.replace("tile_k=32", "tile_k=64");
        let hopper = "cluster=1,shared_bytes=232448,threads=384,tile_k=64,tile_m=128,tile_n=256,wgmma=1";
        for (line, error) in [
            (format!("fwd bf16 {tile}"), "is not `ops"),
            (format!("fwd u32 {tile} 90"), "no dtype"),
            (format!("all bf16 {tile} 90"), "no GEMM `all`"),
            (format!("fwd bf16 {tile} 0"), "no percentage"),
            ("fwd bf16 tile=64 90".to_owned(), "no tile"),
            (format!("fwd bf16 {deep} 90"), "breaks SharedMemory"),
            (format!("fwd bf16 {hopper} 90"), "breaks Instruction"),
        ] {
            assert!(parse(&line).unwrap_err().contains(error), "{line}");
        }
    }

    #[test]
    fn every_architecture_multiplies_every_dtype() {
        let [first, second] = [GemmOp::FwdExperts, GemmOp::SwigluExperts];
        let ops = [GemmOp::Fwd, GemmOp::Swiglu, first, second, GemmOp::Dgrad, GemmOp::Wgrad];
        for ((arch, _), op) in FILES.iter().flat_map(|file| ops.map(|op| (file, op))) {
            for dtype in [Dtype::Bf16, Dtype::F32] {
                assert!(rates(op, dtype, *arch).iter().any(|(tile, _)| matches!(tile, Tiling::CudaCores(_))));
            }
        }
        for op in [GemmOp::Fwd, first] {
            assert!(FILES.iter().all(|(arch, _)| !rates(op, Dtype::I8, *arch).is_empty()));
        }
    }
}
