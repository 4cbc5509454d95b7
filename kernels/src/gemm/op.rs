//! The GEMMs of a linear layer.

use super::variants::Wgmma;

/// Which of the GEMMs: their operands have other layouts, so other tiles suit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GemmOp {
    Fwd,
    Swiglu,
    Dgrad,
    Wgrad,
}

impl GemmOp {
    /// The one that files call so.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "fwd" => Some(GemmOp::Fwd),
            "swiglu" => Some(GemmOp::Swiglu),
            "dgrad" => Some(GemmOp::Dgrad),
            "wgrad" => Some(GemmOp::Wgrad),
            _ => None,
        }
    }

    /// Whether the CTAs of a `wgmma` cluster multicast what their tiles have in common, and do not split K: forward, and
    /// where tiles of 64 rows are many enough to be left whole.
    pub fn multicasts(self, variant: Wgmma) -> bool {
        matches!(self, GemmOp::Fwd | GemmOp::Swiglu) || variant.tile_m == 64
    }
}
