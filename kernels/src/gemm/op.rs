//! The GEMMs of a linear layer.

use super::variants::Wgmma;

/// A GEMM of a linear layer: operand layouts differ, so different tiles suit them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GemmOp {
    Fwd,
    Swiglu,
    /// [`Self::Fwd`] of experts: tiles of a list of their rows.
    FwdExperts,
    /// [`Self::Swiglu`] of experts.
    SwigluExperts,
    Dgrad,
    Wgrad,
}

impl GemmOp {
    /// Finds the operation with this name in files.
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "fwd" => Some(GemmOp::Fwd),
            "swiglu" => Some(GemmOp::Swiglu),
            "fwd.experts" => Some(GemmOp::FwdExperts),
            "swiglu.experts" => Some(GemmOp::SwigluExperts),
            "dgrad" => Some(GemmOp::Dgrad),
            "wgrad" => Some(GemmOp::Wgrad),
            _ => None,
        }
    }

    /// True if a tile's columns are of gate and up.
    pub fn is_gated(self) -> bool {
        matches!(self, GemmOp::Swiglu | GemmOp::SwigluExperts)
    }

    /// True if it multiplies rows by expert.
    pub fn is_of_experts(self) -> bool {
        matches!(self, GemmOp::FwdExperts | GemmOp::SwigluExperts)
    }

    /// Returns the experts of a launch with so many matrices; 0 if it is of none.
    pub fn experts(self, matrices: u32) -> u32 {
        if self.is_of_experts() { matrices } else { 0 }
    }

    /// True if it computes outputs.
    pub fn is_forward(self) -> bool {
        matches!(self, GemmOp::Fwd | GemmOp::Swiglu) || self.is_of_experts()
    }

    /// True if a CTA's two consumer warpgroups take half of each k-tile: gradients of weights, in tiles of 64 rows.
    pub fn splits_k_tiles(self, variant: Wgmma) -> bool {
        self == GemmOp::Wgrad && variant.tile_m == 64
    }

    /// True if the CTAs of a `wgmma` cluster compute tiles below each other and never split K: in forward GEMMs, and
    /// where 64-row tiles fill the GPU unsplit.
    pub fn never_splits(self, variant: Wgmma) -> bool {
        matches!(self, GemmOp::Fwd | GemmOp::Swiglu) || self.splits_k_tiles(variant)
    }
}
