//! Parameter blocks: the Rust twins of the C structs in `kernels/abi`, made by bindgen.
//!
//! Not edited by hand: `cargo xtask abi` regenerates it, and so does `cargo run -p precast-abi`.
#![allow(non_camel_case_types, missing_docs, clippy::undocumented_unsafe_blocks, clippy::unreadable_literal)]

pub const MASKED_TOKEN: u32 = 4294967295;
pub type address = u64;
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct tensor_map {
    pub opaque: [u64; 16usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of tensor_map"][::std::mem::size_of::<tensor_map>() - 128usize];
    ["Alignment of tensor_map"][::std::mem::align_of::<tensor_map>() - 64usize];
    ["Offset of field: tensor_map::opaque"][::std::mem::offset_of!(tensor_map, opaque) - 0usize];
};
impl Default for tensor_map {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct micro_scalars {
    pub loss_scale: f32,
    pub accumulate: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of micro_scalars"][::std::mem::size_of::<micro_scalars>() - 8usize];
    ["Alignment of micro_scalars"][::std::mem::align_of::<micro_scalars>() - 4usize];
    ["Offset of field: micro_scalars::loss_scale"][::std::mem::offset_of!(micro_scalars, loss_scale) - 0usize];
    ["Offset of field: micro_scalars::accumulate"][::std::mem::offset_of!(micro_scalars, accumulate) - 4usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct update_scalars {
    pub lr: f32,
    pub bias_correction1: f32,
    pub bias_correction2: f32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of update_scalars"][::std::mem::size_of::<update_scalars>() - 16usize];
    ["Alignment of update_scalars"][::std::mem::align_of::<update_scalars>() - 4usize];
    ["Offset of field: update_scalars::lr"][::std::mem::offset_of!(update_scalars, lr) - 0usize];
    ["Offset of field: update_scalars::bias_correction1"]
        [::std::mem::offset_of!(update_scalars, bias_correction1) - 4usize];
    ["Offset of field: update_scalars::bias_correction2"]
        [::std::mem::offset_of!(update_scalars, bias_correction2) - 8usize];
    ["Offset of field: update_scalars::reserved"][::std::mem::offset_of!(update_scalars, reserved) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct step_metrics {
    pub kd_loss: f32,
    pub ce_loss: f32,
    pub grad_norm: f32,
    pub clip_scale: f32,
    pub skipped: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of step_metrics"][::std::mem::size_of::<step_metrics>() - 24usize];
    ["Alignment of step_metrics"][::std::mem::align_of::<step_metrics>() - 4usize];
    ["Offset of field: step_metrics::kd_loss"][::std::mem::offset_of!(step_metrics, kd_loss) - 0usize];
    ["Offset of field: step_metrics::ce_loss"][::std::mem::offset_of!(step_metrics, ce_loss) - 4usize];
    ["Offset of field: step_metrics::grad_norm"][::std::mem::offset_of!(step_metrics, grad_norm) - 8usize];
    ["Offset of field: step_metrics::clip_scale"][::std::mem::offset_of!(step_metrics, clip_scale) - 12usize];
    ["Offset of field: step_metrics::skipped"][::std::mem::offset_of!(step_metrics, skipped) - 16usize];
    ["Offset of field: step_metrics::reserved"][::std::mem::offset_of!(step_metrics, reserved) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct adamw_params {
    pub grad: address,
    pub update: address,
    pub metrics: address,
    pub master: address,
    pub m: address,
    pub v: address,
    pub weights: address,
    pub n: u64,
    pub decayed: u64,
    pub beta1: f32,
    pub beta2: f32,
    pub eps: f32,
    pub weight_decay: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of adamw_params"][::std::mem::size_of::<adamw_params>() - 88usize];
    ["Alignment of adamw_params"][::std::mem::align_of::<adamw_params>() - 8usize];
    ["Offset of field: adamw_params::grad"][::std::mem::offset_of!(adamw_params, grad) - 0usize];
    ["Offset of field: adamw_params::update"][::std::mem::offset_of!(adamw_params, update) - 8usize];
    ["Offset of field: adamw_params::metrics"][::std::mem::offset_of!(adamw_params, metrics) - 16usize];
    ["Offset of field: adamw_params::master"][::std::mem::offset_of!(adamw_params, master) - 24usize];
    ["Offset of field: adamw_params::m"][::std::mem::offset_of!(adamw_params, m) - 32usize];
    ["Offset of field: adamw_params::v"][::std::mem::offset_of!(adamw_params, v) - 40usize];
    ["Offset of field: adamw_params::weights"][::std::mem::offset_of!(adamw_params, weights) - 48usize];
    ["Offset of field: adamw_params::n"][::std::mem::offset_of!(adamw_params, n) - 56usize];
    ["Offset of field: adamw_params::decayed"][::std::mem::offset_of!(adamw_params, decayed) - 64usize];
    ["Offset of field: adamw_params::beta1"][::std::mem::offset_of!(adamw_params, beta1) - 72usize];
    ["Offset of field: adamw_params::beta2"][::std::mem::offset_of!(adamw_params, beta2) - 76usize];
    ["Offset of field: adamw_params::eps"][::std::mem::offset_of!(adamw_params, eps) - 80usize];
    ["Offset of field: adamw_params::weight_decay"][::std::mem::offset_of!(adamw_params, weight_decay) - 84usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct add_params {
    pub x: address,
    pub y: address,
    pub n: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of add_params"][::std::mem::size_of::<add_params>() - 24usize];
    ["Alignment of add_params"][::std::mem::align_of::<add_params>() - 8usize];
    ["Offset of field: add_params::x"][::std::mem::offset_of!(add_params, x) - 0usize];
    ["Offset of field: add_params::y"][::std::mem::offset_of!(add_params, y) - 8usize];
    ["Offset of field: add_params::n"][::std::mem::offset_of!(add_params, n) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct attention_fwd_params {
    pub qkv: address,
    pub o: address,
    pub lse: address,
    pub batch: u32,
    pub seq_len: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub scale: f32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of attention_fwd_params"][::std::mem::size_of::<attention_fwd_params>() - 48usize];
    ["Alignment of attention_fwd_params"][::std::mem::align_of::<attention_fwd_params>() - 8usize];
    ["Offset of field: attention_fwd_params::qkv"][::std::mem::offset_of!(attention_fwd_params, qkv) - 0usize];
    ["Offset of field: attention_fwd_params::o"][::std::mem::offset_of!(attention_fwd_params, o) - 8usize];
    ["Offset of field: attention_fwd_params::lse"][::std::mem::offset_of!(attention_fwd_params, lse) - 16usize];
    ["Offset of field: attention_fwd_params::batch"][::std::mem::offset_of!(attention_fwd_params, batch) - 24usize];
    ["Offset of field: attention_fwd_params::seq_len"][::std::mem::offset_of!(attention_fwd_params, seq_len) - 28usize];
    ["Offset of field: attention_fwd_params::heads"][::std::mem::offset_of!(attention_fwd_params, heads) - 32usize];
    ["Offset of field: attention_fwd_params::kv_heads"]
        [::std::mem::offset_of!(attention_fwd_params, kv_heads) - 36usize];
    ["Offset of field: attention_fwd_params::scale"][::std::mem::offset_of!(attention_fwd_params, scale) - 40usize];
    ["Offset of field: attention_fwd_params::reserved"]
        [::std::mem::offset_of!(attention_fwd_params, reserved) - 44usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct attention_delta_params {
    pub o: address,
    pub d_o: address,
    pub delta: address,
    pub batch: u32,
    pub seq_len: u32,
    pub heads: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of attention_delta_params"][::std::mem::size_of::<attention_delta_params>() - 40usize];
    ["Alignment of attention_delta_params"][::std::mem::align_of::<attention_delta_params>() - 8usize];
    ["Offset of field: attention_delta_params::o"][::std::mem::offset_of!(attention_delta_params, o) - 0usize];
    ["Offset of field: attention_delta_params::d_o"][::std::mem::offset_of!(attention_delta_params, d_o) - 8usize];
    ["Offset of field: attention_delta_params::delta"][::std::mem::offset_of!(attention_delta_params, delta) - 16usize];
    ["Offset of field: attention_delta_params::batch"][::std::mem::offset_of!(attention_delta_params, batch) - 24usize];
    ["Offset of field: attention_delta_params::seq_len"]
        [::std::mem::offset_of!(attention_delta_params, seq_len) - 28usize];
    ["Offset of field: attention_delta_params::heads"][::std::mem::offset_of!(attention_delta_params, heads) - 32usize];
    ["Offset of field: attention_delta_params::reserved"]
        [::std::mem::offset_of!(attention_delta_params, reserved) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct attention_bwd_params {
    pub qkv: address,
    pub d_o: address,
    pub lse: address,
    pub delta: address,
    pub dqkv: address,
    pub batch: u32,
    pub seq_len: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub scale: f32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of attention_bwd_params"][::std::mem::size_of::<attention_bwd_params>() - 64usize];
    ["Alignment of attention_bwd_params"][::std::mem::align_of::<attention_bwd_params>() - 8usize];
    ["Offset of field: attention_bwd_params::qkv"][::std::mem::offset_of!(attention_bwd_params, qkv) - 0usize];
    ["Offset of field: attention_bwd_params::d_o"][::std::mem::offset_of!(attention_bwd_params, d_o) - 8usize];
    ["Offset of field: attention_bwd_params::lse"][::std::mem::offset_of!(attention_bwd_params, lse) - 16usize];
    ["Offset of field: attention_bwd_params::delta"][::std::mem::offset_of!(attention_bwd_params, delta) - 24usize];
    ["Offset of field: attention_bwd_params::dqkv"][::std::mem::offset_of!(attention_bwd_params, dqkv) - 32usize];
    ["Offset of field: attention_bwd_params::batch"][::std::mem::offset_of!(attention_bwd_params, batch) - 40usize];
    ["Offset of field: attention_bwd_params::seq_len"][::std::mem::offset_of!(attention_bwd_params, seq_len) - 44usize];
    ["Offset of field: attention_bwd_params::heads"][::std::mem::offset_of!(attention_bwd_params, heads) - 48usize];
    ["Offset of field: attention_bwd_params::kv_heads"]
        [::std::mem::offset_of!(attention_bwd_params, kv_heads) - 52usize];
    ["Offset of field: attention_bwd_params::scale"][::std::mem::offset_of!(attention_bwd_params, scale) - 56usize];
    ["Offset of field: attention_bwd_params::reserved"]
        [::std::mem::offset_of!(attention_bwd_params, reserved) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct cast_params {
    pub x: address,
    pub y: address,
    pub n: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cast_params"][::std::mem::size_of::<cast_params>() - 24usize];
    ["Alignment of cast_params"][::std::mem::align_of::<cast_params>() - 8usize];
    ["Offset of field: cast_params::x"][::std::mem::offset_of!(cast_params, x) - 0usize];
    ["Offset of field: cast_params::y"][::std::mem::offset_of!(cast_params, y) - 8usize];
    ["Offset of field: cast_params::n"][::std::mem::offset_of!(cast_params, n) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct column_sum_partial_params {
    pub x: address,
    pub partial: address,
    pub rows: u32,
    pub n: u32,
    pub group: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of column_sum_partial_params"][::std::mem::size_of::<column_sum_partial_params>() - 32usize];
    ["Alignment of column_sum_partial_params"][::std::mem::align_of::<column_sum_partial_params>() - 8usize];
    ["Offset of field: column_sum_partial_params::x"][::std::mem::offset_of!(column_sum_partial_params, x) - 0usize];
    ["Offset of field: column_sum_partial_params::partial"]
        [::std::mem::offset_of!(column_sum_partial_params, partial) - 8usize];
    ["Offset of field: column_sum_partial_params::rows"]
        [::std::mem::offset_of!(column_sum_partial_params, rows) - 16usize];
    ["Offset of field: column_sum_partial_params::n"][::std::mem::offset_of!(column_sum_partial_params, n) - 20usize];
    ["Offset of field: column_sum_partial_params::group"]
        [::std::mem::offset_of!(column_sum_partial_params, group) - 24usize];
    ["Offset of field: column_sum_partial_params::reserved"]
        [::std::mem::offset_of!(column_sum_partial_params, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct column_sum_finish_params {
    pub partial: address,
    pub micro: address,
    pub grad: address,
    pub rows: u32,
    pub n: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of column_sum_finish_params"][::std::mem::size_of::<column_sum_finish_params>() - 32usize];
    ["Alignment of column_sum_finish_params"][::std::mem::align_of::<column_sum_finish_params>() - 8usize];
    ["Offset of field: column_sum_finish_params::partial"]
        [::std::mem::offset_of!(column_sum_finish_params, partial) - 0usize];
    ["Offset of field: column_sum_finish_params::micro"]
        [::std::mem::offset_of!(column_sum_finish_params, micro) - 8usize];
    ["Offset of field: column_sum_finish_params::grad"]
        [::std::mem::offset_of!(column_sum_finish_params, grad) - 16usize];
    ["Offset of field: column_sum_finish_params::rows"]
        [::std::mem::offset_of!(column_sum_finish_params, rows) - 24usize];
    ["Offset of field: column_sum_finish_params::n"][::std::mem::offset_of!(column_sum_finish_params, n) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct dequant_params {
    pub w: address,
    pub x: address,
    pub n: u64,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of dequant_params"][::std::mem::size_of::<dequant_params>() - 24usize];
    ["Alignment of dequant_params"][::std::mem::align_of::<dequant_params>() - 8usize];
    ["Offset of field: dequant_params::w"][::std::mem::offset_of!(dequant_params, w) - 0usize];
    ["Offset of field: dequant_params::x"][::std::mem::offset_of!(dequant_params, x) - 8usize];
    ["Offset of field: dequant_params::n"][::std::mem::offset_of!(dequant_params, n) - 16usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct embedding_fwd_params {
    pub ids: address,
    pub table: address,
    pub y: address,
    pub tokens: u32,
    pub vocab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of embedding_fwd_params"][::std::mem::size_of::<embedding_fwd_params>() - 32usize];
    ["Alignment of embedding_fwd_params"][::std::mem::align_of::<embedding_fwd_params>() - 8usize];
    ["Offset of field: embedding_fwd_params::ids"][::std::mem::offset_of!(embedding_fwd_params, ids) - 0usize];
    ["Offset of field: embedding_fwd_params::table"][::std::mem::offset_of!(embedding_fwd_params, table) - 8usize];
    ["Offset of field: embedding_fwd_params::y"][::std::mem::offset_of!(embedding_fwd_params, y) - 16usize];
    ["Offset of field: embedding_fwd_params::tokens"][::std::mem::offset_of!(embedding_fwd_params, tokens) - 24usize];
    ["Offset of field: embedding_fwd_params::vocab"][::std::mem::offset_of!(embedding_fwd_params, vocab) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct embedding_bwd_params {
    pub sorted_ids: address,
    pub sorted_positions: address,
    pub dy: address,
    pub dtable: address,
    pub tokens: u32,
    pub vocab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of embedding_bwd_params"][::std::mem::size_of::<embedding_bwd_params>() - 40usize];
    ["Alignment of embedding_bwd_params"][::std::mem::align_of::<embedding_bwd_params>() - 8usize];
    ["Offset of field: embedding_bwd_params::sorted_ids"]
        [::std::mem::offset_of!(embedding_bwd_params, sorted_ids) - 0usize];
    ["Offset of field: embedding_bwd_params::sorted_positions"]
        [::std::mem::offset_of!(embedding_bwd_params, sorted_positions) - 8usize];
    ["Offset of field: embedding_bwd_params::dy"][::std::mem::offset_of!(embedding_bwd_params, dy) - 16usize];
    ["Offset of field: embedding_bwd_params::dtable"][::std::mem::offset_of!(embedding_bwd_params, dtable) - 24usize];
    ["Offset of field: embedding_bwd_params::tokens"][::std::mem::offset_of!(embedding_bwd_params, tokens) - 32usize];
    ["Offset of field: embedding_bwd_params::vocab"][::std::mem::offset_of!(embedding_bwd_params, vocab) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct fill_params {
    pub micro: address,
    pub y: address,
    pub n: u64,
    pub value: f32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of fill_params"][::std::mem::size_of::<fill_params>() - 32usize];
    ["Alignment of fill_params"][::std::mem::align_of::<fill_params>() - 8usize];
    ["Offset of field: fill_params::micro"][::std::mem::offset_of!(fill_params, micro) - 0usize];
    ["Offset of field: fill_params::y"][::std::mem::offset_of!(fill_params, y) - 8usize];
    ["Offset of field: fill_params::n"][::std::mem::offset_of!(fill_params, n) - 16usize];
    ["Offset of field: fill_params::value"][::std::mem::offset_of!(fill_params, value) - 24usize];
    ["Offset of field: fill_params::reserved"][::std::mem::offset_of!(fill_params, reserved) - 28usize];
};
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct gemm_fwd_params {
    pub x: address,
    pub w: address,
    pub bias: address,
    pub residual: address,
    pub y: address,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub reserved: [u32; 3usize],
    pub maps: [tensor_map; 2usize],
    pub x_scale: address,
    pub w_scale: address,
    pub reserved_int8: [u32; 12usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of gemm_fwd_params"][::std::mem::size_of::<gemm_fwd_params>() - 384usize];
    ["Alignment of gemm_fwd_params"][::std::mem::align_of::<gemm_fwd_params>() - 64usize];
    ["Offset of field: gemm_fwd_params::x"][::std::mem::offset_of!(gemm_fwd_params, x) - 0usize];
    ["Offset of field: gemm_fwd_params::w"][::std::mem::offset_of!(gemm_fwd_params, w) - 8usize];
    ["Offset of field: gemm_fwd_params::bias"][::std::mem::offset_of!(gemm_fwd_params, bias) - 16usize];
    ["Offset of field: gemm_fwd_params::residual"][::std::mem::offset_of!(gemm_fwd_params, residual) - 24usize];
    ["Offset of field: gemm_fwd_params::y"][::std::mem::offset_of!(gemm_fwd_params, y) - 32usize];
    ["Offset of field: gemm_fwd_params::m"][::std::mem::offset_of!(gemm_fwd_params, m) - 40usize];
    ["Offset of field: gemm_fwd_params::n"][::std::mem::offset_of!(gemm_fwd_params, n) - 44usize];
    ["Offset of field: gemm_fwd_params::k"][::std::mem::offset_of!(gemm_fwd_params, k) - 48usize];
    ["Offset of field: gemm_fwd_params::reserved"][::std::mem::offset_of!(gemm_fwd_params, reserved) - 52usize];
    ["Offset of field: gemm_fwd_params::maps"][::std::mem::offset_of!(gemm_fwd_params, maps) - 64usize];
    ["Offset of field: gemm_fwd_params::x_scale"][::std::mem::offset_of!(gemm_fwd_params, x_scale) - 320usize];
    ["Offset of field: gemm_fwd_params::w_scale"][::std::mem::offset_of!(gemm_fwd_params, w_scale) - 328usize];
    ["Offset of field: gemm_fwd_params::reserved_int8"]
        [::std::mem::offset_of!(gemm_fwd_params, reserved_int8) - 336usize];
};
impl Default for gemm_fwd_params {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct gemm_swiglu_params {
    pub x: address,
    pub w: address,
    pub bias: address,
    pub y: address,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub reserved: [u32; 5usize],
    pub maps: [tensor_map; 2usize],
    pub x_scale: address,
    pub w_scale: address,
    pub reserved_int8: [u32; 12usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of gemm_swiglu_params"][::std::mem::size_of::<gemm_swiglu_params>() - 384usize];
    ["Alignment of gemm_swiglu_params"][::std::mem::align_of::<gemm_swiglu_params>() - 64usize];
    ["Offset of field: gemm_swiglu_params::x"][::std::mem::offset_of!(gemm_swiglu_params, x) - 0usize];
    ["Offset of field: gemm_swiglu_params::w"][::std::mem::offset_of!(gemm_swiglu_params, w) - 8usize];
    ["Offset of field: gemm_swiglu_params::bias"][::std::mem::offset_of!(gemm_swiglu_params, bias) - 16usize];
    ["Offset of field: gemm_swiglu_params::y"][::std::mem::offset_of!(gemm_swiglu_params, y) - 24usize];
    ["Offset of field: gemm_swiglu_params::m"][::std::mem::offset_of!(gemm_swiglu_params, m) - 32usize];
    ["Offset of field: gemm_swiglu_params::n"][::std::mem::offset_of!(gemm_swiglu_params, n) - 36usize];
    ["Offset of field: gemm_swiglu_params::k"][::std::mem::offset_of!(gemm_swiglu_params, k) - 40usize];
    ["Offset of field: gemm_swiglu_params::reserved"][::std::mem::offset_of!(gemm_swiglu_params, reserved) - 44usize];
    ["Offset of field: gemm_swiglu_params::maps"][::std::mem::offset_of!(gemm_swiglu_params, maps) - 64usize];
    ["Offset of field: gemm_swiglu_params::x_scale"][::std::mem::offset_of!(gemm_swiglu_params, x_scale) - 320usize];
    ["Offset of field: gemm_swiglu_params::w_scale"][::std::mem::offset_of!(gemm_swiglu_params, w_scale) - 328usize];
    ["Offset of field: gemm_swiglu_params::reserved_int8"]
        [::std::mem::offset_of!(gemm_swiglu_params, reserved_int8) - 336usize];
};
impl Default for gemm_swiglu_params {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct gemm_dgrad_params {
    pub dy: address,
    pub w: address,
    pub dx: address,
    pub workspace: address,
    pub semaphores: address,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub splits: u32,
    pub reserved: [u32; 2usize],
    pub maps: [tensor_map; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of gemm_dgrad_params"][::std::mem::size_of::<gemm_dgrad_params>() - 320usize];
    ["Alignment of gemm_dgrad_params"][::std::mem::align_of::<gemm_dgrad_params>() - 64usize];
    ["Offset of field: gemm_dgrad_params::dy"][::std::mem::offset_of!(gemm_dgrad_params, dy) - 0usize];
    ["Offset of field: gemm_dgrad_params::w"][::std::mem::offset_of!(gemm_dgrad_params, w) - 8usize];
    ["Offset of field: gemm_dgrad_params::dx"][::std::mem::offset_of!(gemm_dgrad_params, dx) - 16usize];
    ["Offset of field: gemm_dgrad_params::workspace"][::std::mem::offset_of!(gemm_dgrad_params, workspace) - 24usize];
    ["Offset of field: gemm_dgrad_params::semaphores"][::std::mem::offset_of!(gemm_dgrad_params, semaphores) - 32usize];
    ["Offset of field: gemm_dgrad_params::m"][::std::mem::offset_of!(gemm_dgrad_params, m) - 40usize];
    ["Offset of field: gemm_dgrad_params::n"][::std::mem::offset_of!(gemm_dgrad_params, n) - 44usize];
    ["Offset of field: gemm_dgrad_params::k"][::std::mem::offset_of!(gemm_dgrad_params, k) - 48usize];
    ["Offset of field: gemm_dgrad_params::splits"][::std::mem::offset_of!(gemm_dgrad_params, splits) - 52usize];
    ["Offset of field: gemm_dgrad_params::reserved"][::std::mem::offset_of!(gemm_dgrad_params, reserved) - 56usize];
    ["Offset of field: gemm_dgrad_params::maps"][::std::mem::offset_of!(gemm_dgrad_params, maps) - 64usize];
};
impl Default for gemm_dgrad_params {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[repr(align(64))]
#[derive(Debug, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct gemm_wgrad_params {
    pub dy: address,
    pub x: address,
    pub micro: address,
    pub dw: address,
    pub semaphores: address,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub accumulate: u32,
    pub splits: u32,
    pub reserved: u32,
    pub maps: [tensor_map; 2usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of gemm_wgrad_params"][::std::mem::size_of::<gemm_wgrad_params>() - 320usize];
    ["Alignment of gemm_wgrad_params"][::std::mem::align_of::<gemm_wgrad_params>() - 64usize];
    ["Offset of field: gemm_wgrad_params::dy"][::std::mem::offset_of!(gemm_wgrad_params, dy) - 0usize];
    ["Offset of field: gemm_wgrad_params::x"][::std::mem::offset_of!(gemm_wgrad_params, x) - 8usize];
    ["Offset of field: gemm_wgrad_params::micro"][::std::mem::offset_of!(gemm_wgrad_params, micro) - 16usize];
    ["Offset of field: gemm_wgrad_params::dw"][::std::mem::offset_of!(gemm_wgrad_params, dw) - 24usize];
    ["Offset of field: gemm_wgrad_params::semaphores"][::std::mem::offset_of!(gemm_wgrad_params, semaphores) - 32usize];
    ["Offset of field: gemm_wgrad_params::m"][::std::mem::offset_of!(gemm_wgrad_params, m) - 40usize];
    ["Offset of field: gemm_wgrad_params::n"][::std::mem::offset_of!(gemm_wgrad_params, n) - 44usize];
    ["Offset of field: gemm_wgrad_params::k"][::std::mem::offset_of!(gemm_wgrad_params, k) - 48usize];
    ["Offset of field: gemm_wgrad_params::accumulate"][::std::mem::offset_of!(gemm_wgrad_params, accumulate) - 52usize];
    ["Offset of field: gemm_wgrad_params::splits"][::std::mem::offset_of!(gemm_wgrad_params, splits) - 56usize];
    ["Offset of field: gemm_wgrad_params::reserved"][::std::mem::offset_of!(gemm_wgrad_params, reserved) - 60usize];
    ["Offset of field: gemm_wgrad_params::maps"][::std::mem::offset_of!(gemm_wgrad_params, maps) - 64usize];
};
impl Default for gemm_wgrad_params {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct grad_distance_partial_params {
    pub a: address,
    pub b: address,
    pub partial: address,
    pub n: u64,
    pub group: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of grad_distance_partial_params"][::std::mem::size_of::<grad_distance_partial_params>() - 40usize];
    ["Alignment of grad_distance_partial_params"][::std::mem::align_of::<grad_distance_partial_params>() - 8usize];
    ["Offset of field: grad_distance_partial_params::a"]
        [::std::mem::offset_of!(grad_distance_partial_params, a) - 0usize];
    ["Offset of field: grad_distance_partial_params::b"]
        [::std::mem::offset_of!(grad_distance_partial_params, b) - 8usize];
    ["Offset of field: grad_distance_partial_params::partial"]
        [::std::mem::offset_of!(grad_distance_partial_params, partial) - 16usize];
    ["Offset of field: grad_distance_partial_params::n"]
        [::std::mem::offset_of!(grad_distance_partial_params, n) - 24usize];
    ["Offset of field: grad_distance_partial_params::group"]
        [::std::mem::offset_of!(grad_distance_partial_params, group) - 32usize];
    ["Offset of field: grad_distance_partial_params::reserved"]
        [::std::mem::offset_of!(grad_distance_partial_params, reserved) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct grad_norm_partial_params {
    pub grad: address,
    pub partial: address,
    pub n: u64,
    pub group: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of grad_norm_partial_params"][::std::mem::size_of::<grad_norm_partial_params>() - 32usize];
    ["Alignment of grad_norm_partial_params"][::std::mem::align_of::<grad_norm_partial_params>() - 8usize];
    ["Offset of field: grad_norm_partial_params::grad"]
        [::std::mem::offset_of!(grad_norm_partial_params, grad) - 0usize];
    ["Offset of field: grad_norm_partial_params::partial"]
        [::std::mem::offset_of!(grad_norm_partial_params, partial) - 8usize];
    ["Offset of field: grad_norm_partial_params::n"][::std::mem::offset_of!(grad_norm_partial_params, n) - 16usize];
    ["Offset of field: grad_norm_partial_params::group"]
        [::std::mem::offset_of!(grad_norm_partial_params, group) - 24usize];
    ["Offset of field: grad_norm_partial_params::reserved"]
        [::std::mem::offset_of!(grad_norm_partial_params, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct grad_norm_finish_params {
    pub partial: address,
    pub metrics: address,
    pub count: u32,
    pub clip: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of grad_norm_finish_params"][::std::mem::size_of::<grad_norm_finish_params>() - 24usize];
    ["Alignment of grad_norm_finish_params"][::std::mem::align_of::<grad_norm_finish_params>() - 8usize];
    ["Offset of field: grad_norm_finish_params::partial"]
        [::std::mem::offset_of!(grad_norm_finish_params, partial) - 0usize];
    ["Offset of field: grad_norm_finish_params::metrics"]
        [::std::mem::offset_of!(grad_norm_finish_params, metrics) - 8usize];
    ["Offset of field: grad_norm_finish_params::count"]
        [::std::mem::offset_of!(grad_norm_finish_params, count) - 16usize];
    ["Offset of field: grad_norm_finish_params::clip"][::std::mem::offset_of!(grad_norm_finish_params, clip) - 20usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_distill_params {
    pub teacher: address,
    pub student: address,
    pub targets: address,
    pub micro: address,
    pub kd: address,
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
    pub alpha: f32,
    pub temperature: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_distill_params"][::std::mem::size_of::<head_distill_params>() - 64usize];
    ["Alignment of head_distill_params"][::std::mem::align_of::<head_distill_params>() - 8usize];
    ["Offset of field: head_distill_params::teacher"][::std::mem::offset_of!(head_distill_params, teacher) - 0usize];
    ["Offset of field: head_distill_params::student"][::std::mem::offset_of!(head_distill_params, student) - 8usize];
    ["Offset of field: head_distill_params::targets"][::std::mem::offset_of!(head_distill_params, targets) - 16usize];
    ["Offset of field: head_distill_params::micro"][::std::mem::offset_of!(head_distill_params, micro) - 24usize];
    ["Offset of field: head_distill_params::kd"][::std::mem::offset_of!(head_distill_params, kd) - 32usize];
    ["Offset of field: head_distill_params::ce"][::std::mem::offset_of!(head_distill_params, ce) - 40usize];
    ["Offset of field: head_distill_params::tokens"][::std::mem::offset_of!(head_distill_params, tokens) - 48usize];
    ["Offset of field: head_distill_params::vocab"][::std::mem::offset_of!(head_distill_params, vocab) - 52usize];
    ["Offset of field: head_distill_params::alpha"][::std::mem::offset_of!(head_distill_params, alpha) - 56usize];
    ["Offset of field: head_distill_params::temperature"]
        [::std::mem::offset_of!(head_distill_params, temperature) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_jsd_params {
    pub teacher: address,
    pub student: address,
    pub targets: address,
    pub micro: address,
    pub kd: address,
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
    pub alpha: f32,
    pub temperature: f32,
    pub beta: f32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_jsd_params"][::std::mem::size_of::<head_jsd_params>() - 72usize];
    ["Alignment of head_jsd_params"][::std::mem::align_of::<head_jsd_params>() - 8usize];
    ["Offset of field: head_jsd_params::teacher"][::std::mem::offset_of!(head_jsd_params, teacher) - 0usize];
    ["Offset of field: head_jsd_params::student"][::std::mem::offset_of!(head_jsd_params, student) - 8usize];
    ["Offset of field: head_jsd_params::targets"][::std::mem::offset_of!(head_jsd_params, targets) - 16usize];
    ["Offset of field: head_jsd_params::micro"][::std::mem::offset_of!(head_jsd_params, micro) - 24usize];
    ["Offset of field: head_jsd_params::kd"][::std::mem::offset_of!(head_jsd_params, kd) - 32usize];
    ["Offset of field: head_jsd_params::ce"][::std::mem::offset_of!(head_jsd_params, ce) - 40usize];
    ["Offset of field: head_jsd_params::tokens"][::std::mem::offset_of!(head_jsd_params, tokens) - 48usize];
    ["Offset of field: head_jsd_params::vocab"][::std::mem::offset_of!(head_jsd_params, vocab) - 52usize];
    ["Offset of field: head_jsd_params::alpha"][::std::mem::offset_of!(head_jsd_params, alpha) - 56usize];
    ["Offset of field: head_jsd_params::temperature"][::std::mem::offset_of!(head_jsd_params, temperature) - 60usize];
    ["Offset of field: head_jsd_params::beta"][::std::mem::offset_of!(head_jsd_params, beta) - 64usize];
    ["Offset of field: head_jsd_params::reserved"][::std::mem::offset_of!(head_jsd_params, reserved) - 68usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_ce_params {
    pub logits: address,
    pub targets: address,
    pub micro: address,
    pub ce: address,
    pub tokens: u32,
    pub vocab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_ce_params"][::std::mem::size_of::<head_ce_params>() - 40usize];
    ["Alignment of head_ce_params"][::std::mem::align_of::<head_ce_params>() - 8usize];
    ["Offset of field: head_ce_params::logits"][::std::mem::offset_of!(head_ce_params, logits) - 0usize];
    ["Offset of field: head_ce_params::targets"][::std::mem::offset_of!(head_ce_params, targets) - 8usize];
    ["Offset of field: head_ce_params::micro"][::std::mem::offset_of!(head_ce_params, micro) - 16usize];
    ["Offset of field: head_ce_params::ce"][::std::mem::offset_of!(head_ce_params, ce) - 24usize];
    ["Offset of field: head_ce_params::tokens"][::std::mem::offset_of!(head_ce_params, tokens) - 32usize];
    ["Offset of field: head_ce_params::vocab"][::std::mem::offset_of!(head_ce_params, vocab) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_nll_params {
    pub logits: address,
    pub targets: address,
    pub nll: address,
    pub tokens: u32,
    pub vocab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_nll_params"][::std::mem::size_of::<head_nll_params>() - 32usize];
    ["Alignment of head_nll_params"][::std::mem::align_of::<head_nll_params>() - 8usize];
    ["Offset of field: head_nll_params::logits"][::std::mem::offset_of!(head_nll_params, logits) - 0usize];
    ["Offset of field: head_nll_params::targets"][::std::mem::offset_of!(head_nll_params, targets) - 8usize];
    ["Offset of field: head_nll_params::nll"][::std::mem::offset_of!(head_nll_params, nll) - 16usize];
    ["Offset of field: head_nll_params::tokens"][::std::mem::offset_of!(head_nll_params, tokens) - 24usize];
    ["Offset of field: head_nll_params::vocab"][::std::mem::offset_of!(head_nll_params, vocab) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_compare_params {
    pub reference: address,
    pub logits: address,
    pub targets: address,
    pub kl: address,
    pub agrees: address,
    pub reference_nll: address,
    pub nll: address,
    pub tokens: u32,
    pub vocab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_compare_params"][::std::mem::size_of::<head_compare_params>() - 64usize];
    ["Alignment of head_compare_params"][::std::mem::align_of::<head_compare_params>() - 8usize];
    ["Offset of field: head_compare_params::reference"]
        [::std::mem::offset_of!(head_compare_params, reference) - 0usize];
    ["Offset of field: head_compare_params::logits"][::std::mem::offset_of!(head_compare_params, logits) - 8usize];
    ["Offset of field: head_compare_params::targets"][::std::mem::offset_of!(head_compare_params, targets) - 16usize];
    ["Offset of field: head_compare_params::kl"][::std::mem::offset_of!(head_compare_params, kl) - 24usize];
    ["Offset of field: head_compare_params::agrees"][::std::mem::offset_of!(head_compare_params, agrees) - 32usize];
    ["Offset of field: head_compare_params::reference_nll"]
        [::std::mem::offset_of!(head_compare_params, reference_nll) - 40usize];
    ["Offset of field: head_compare_params::nll"][::std::mem::offset_of!(head_compare_params, nll) - 48usize];
    ["Offset of field: head_compare_params::tokens"][::std::mem::offset_of!(head_compare_params, tokens) - 56usize];
    ["Offset of field: head_compare_params::vocab"][::std::mem::offset_of!(head_compare_params, vocab) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct head_metrics_params {
    pub kd: address,
    pub ce: address,
    pub micro: address,
    pub metrics: address,
    pub tokens: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of head_metrics_params"][::std::mem::size_of::<head_metrics_params>() - 40usize];
    ["Alignment of head_metrics_params"][::std::mem::align_of::<head_metrics_params>() - 8usize];
    ["Offset of field: head_metrics_params::kd"][::std::mem::offset_of!(head_metrics_params, kd) - 0usize];
    ["Offset of field: head_metrics_params::ce"][::std::mem::offset_of!(head_metrics_params, ce) - 8usize];
    ["Offset of field: head_metrics_params::micro"][::std::mem::offset_of!(head_metrics_params, micro) - 16usize];
    ["Offset of field: head_metrics_params::metrics"][::std::mem::offset_of!(head_metrics_params, metrics) - 24usize];
    ["Offset of field: head_metrics_params::tokens"][::std::mem::offset_of!(head_metrics_params, tokens) - 32usize];
    ["Offset of field: head_metrics_params::reserved"][::std::mem::offset_of!(head_metrics_params, reserved) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct int8_quantize_params {
    pub x: address,
    pub q: address,
    pub scale: address,
    pub rows: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of int8_quantize_params"][::std::mem::size_of::<int8_quantize_params>() - 32usize];
    ["Alignment of int8_quantize_params"][::std::mem::align_of::<int8_quantize_params>() - 8usize];
    ["Offset of field: int8_quantize_params::x"][::std::mem::offset_of!(int8_quantize_params, x) - 0usize];
    ["Offset of field: int8_quantize_params::q"][::std::mem::offset_of!(int8_quantize_params, q) - 8usize];
    ["Offset of field: int8_quantize_params::scale"][::std::mem::offset_of!(int8_quantize_params, scale) - 16usize];
    ["Offset of field: int8_quantize_params::rows"][::std::mem::offset_of!(int8_quantize_params, rows) - 24usize];
    ["Offset of field: int8_quantize_params::reserved"]
        [::std::mem::offset_of!(int8_quantize_params, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct int8_columns_params {
    pub x: address,
    pub q: address,
    pub scale: address,
    pub columns: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of int8_columns_params"][::std::mem::size_of::<int8_columns_params>() - 32usize];
    ["Alignment of int8_columns_params"][::std::mem::align_of::<int8_columns_params>() - 8usize];
    ["Offset of field: int8_columns_params::x"][::std::mem::offset_of!(int8_columns_params, x) - 0usize];
    ["Offset of field: int8_columns_params::q"][::std::mem::offset_of!(int8_columns_params, q) - 8usize];
    ["Offset of field: int8_columns_params::scale"][::std::mem::offset_of!(int8_columns_params, scale) - 16usize];
    ["Offset of field: int8_columns_params::columns"][::std::mem::offset_of!(int8_columns_params, columns) - 24usize];
    ["Offset of field: int8_columns_params::reserved"][::std::mem::offset_of!(int8_columns_params, reserved) - 28usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_part {
    pub scale: f32,
    pub start: u32,
    pub width: u32,
    pub row: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_part"][::std::mem::size_of::<lora_part>() - 16usize];
    ["Alignment of lora_part"][::std::mem::align_of::<lora_part>() - 4usize];
    ["Offset of field: lora_part::scale"][::std::mem::offset_of!(lora_part, scale) - 0usize];
    ["Offset of field: lora_part::start"][::std::mem::offset_of!(lora_part, start) - 4usize];
    ["Offset of field: lora_part::width"][::std::mem::offset_of!(lora_part, width) - 8usize];
    ["Offset of field: lora_part::row"][::std::mem::offset_of!(lora_part, row) - 12usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_fwd_a_params {
    pub x: address,
    pub a: address,
    pub t: address,
    pub m: u32,
    pub k: u32,
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_fwd_a_params"][::std::mem::size_of::<lora_fwd_a_params>() - 88usize];
    ["Alignment of lora_fwd_a_params"][::std::mem::align_of::<lora_fwd_a_params>() - 8usize];
    ["Offset of field: lora_fwd_a_params::x"][::std::mem::offset_of!(lora_fwd_a_params, x) - 0usize];
    ["Offset of field: lora_fwd_a_params::a"][::std::mem::offset_of!(lora_fwd_a_params, a) - 8usize];
    ["Offset of field: lora_fwd_a_params::t"][::std::mem::offset_of!(lora_fwd_a_params, t) - 16usize];
    ["Offset of field: lora_fwd_a_params::m"][::std::mem::offset_of!(lora_fwd_a_params, m) - 24usize];
    ["Offset of field: lora_fwd_a_params::k"][::std::mem::offset_of!(lora_fwd_a_params, k) - 28usize];
    ["Offset of field: lora_fwd_a_params::rank"][::std::mem::offset_of!(lora_fwd_a_params, rank) - 32usize];
    ["Offset of field: lora_fwd_a_params::parts"][::std::mem::offset_of!(lora_fwd_a_params, parts) - 36usize];
    ["Offset of field: lora_fwd_a_params::part"][::std::mem::offset_of!(lora_fwd_a_params, part) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_fwd_b_params {
    pub t: address,
    pub b: address,
    pub y: address,
    pub m: u32,
    pub n: u32,
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_fwd_b_params"][::std::mem::size_of::<lora_fwd_b_params>() - 88usize];
    ["Alignment of lora_fwd_b_params"][::std::mem::align_of::<lora_fwd_b_params>() - 8usize];
    ["Offset of field: lora_fwd_b_params::t"][::std::mem::offset_of!(lora_fwd_b_params, t) - 0usize];
    ["Offset of field: lora_fwd_b_params::b"][::std::mem::offset_of!(lora_fwd_b_params, b) - 8usize];
    ["Offset of field: lora_fwd_b_params::y"][::std::mem::offset_of!(lora_fwd_b_params, y) - 16usize];
    ["Offset of field: lora_fwd_b_params::m"][::std::mem::offset_of!(lora_fwd_b_params, m) - 24usize];
    ["Offset of field: lora_fwd_b_params::n"][::std::mem::offset_of!(lora_fwd_b_params, n) - 28usize];
    ["Offset of field: lora_fwd_b_params::rank"][::std::mem::offset_of!(lora_fwd_b_params, rank) - 32usize];
    ["Offset of field: lora_fwd_b_params::parts"][::std::mem::offset_of!(lora_fwd_b_params, parts) - 36usize];
    ["Offset of field: lora_fwd_b_params::part"][::std::mem::offset_of!(lora_fwd_b_params, part) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_dgrad_b_params {
    pub dy: address,
    pub b: address,
    pub dt: address,
    pub m: u32,
    pub n: u32,
    pub rank: u32,
    pub parts: u32,
    pub part: [lora_part; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_dgrad_b_params"][::std::mem::size_of::<lora_dgrad_b_params>() - 88usize];
    ["Alignment of lora_dgrad_b_params"][::std::mem::align_of::<lora_dgrad_b_params>() - 8usize];
    ["Offset of field: lora_dgrad_b_params::dy"][::std::mem::offset_of!(lora_dgrad_b_params, dy) - 0usize];
    ["Offset of field: lora_dgrad_b_params::b"][::std::mem::offset_of!(lora_dgrad_b_params, b) - 8usize];
    ["Offset of field: lora_dgrad_b_params::dt"][::std::mem::offset_of!(lora_dgrad_b_params, dt) - 16usize];
    ["Offset of field: lora_dgrad_b_params::m"][::std::mem::offset_of!(lora_dgrad_b_params, m) - 24usize];
    ["Offset of field: lora_dgrad_b_params::n"][::std::mem::offset_of!(lora_dgrad_b_params, n) - 28usize];
    ["Offset of field: lora_dgrad_b_params::rank"][::std::mem::offset_of!(lora_dgrad_b_params, rank) - 32usize];
    ["Offset of field: lora_dgrad_b_params::parts"][::std::mem::offset_of!(lora_dgrad_b_params, parts) - 36usize];
    ["Offset of field: lora_dgrad_b_params::part"][::std::mem::offset_of!(lora_dgrad_b_params, part) - 40usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_dgrad_a_params {
    pub dt: address,
    pub a: address,
    pub dx: address,
    pub m: u32,
    pub k: u32,
    pub rank: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_dgrad_a_params"][::std::mem::size_of::<lora_dgrad_a_params>() - 40usize];
    ["Alignment of lora_dgrad_a_params"][::std::mem::align_of::<lora_dgrad_a_params>() - 8usize];
    ["Offset of field: lora_dgrad_a_params::dt"][::std::mem::offset_of!(lora_dgrad_a_params, dt) - 0usize];
    ["Offset of field: lora_dgrad_a_params::a"][::std::mem::offset_of!(lora_dgrad_a_params, a) - 8usize];
    ["Offset of field: lora_dgrad_a_params::dx"][::std::mem::offset_of!(lora_dgrad_a_params, dx) - 16usize];
    ["Offset of field: lora_dgrad_a_params::m"][::std::mem::offset_of!(lora_dgrad_a_params, m) - 24usize];
    ["Offset of field: lora_dgrad_a_params::k"][::std::mem::offset_of!(lora_dgrad_a_params, k) - 28usize];
    ["Offset of field: lora_dgrad_a_params::rank"][::std::mem::offset_of!(lora_dgrad_a_params, rank) - 32usize];
    ["Offset of field: lora_dgrad_a_params::reserved"][::std::mem::offset_of!(lora_dgrad_a_params, reserved) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct lora_wgrad_params {
    pub dy: address,
    pub x: address,
    pub dw: address,
    pub partial: address,
    pub micro: address,
    pub m: u32,
    pub n: u32,
    pub columns: u32,
    pub splits: u32,
    pub parts: u32,
    pub reserved: u32,
    pub part: [lora_part; 3usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of lora_wgrad_params"][::std::mem::size_of::<lora_wgrad_params>() - 112usize];
    ["Alignment of lora_wgrad_params"][::std::mem::align_of::<lora_wgrad_params>() - 8usize];
    ["Offset of field: lora_wgrad_params::dy"][::std::mem::offset_of!(lora_wgrad_params, dy) - 0usize];
    ["Offset of field: lora_wgrad_params::x"][::std::mem::offset_of!(lora_wgrad_params, x) - 8usize];
    ["Offset of field: lora_wgrad_params::dw"][::std::mem::offset_of!(lora_wgrad_params, dw) - 16usize];
    ["Offset of field: lora_wgrad_params::partial"][::std::mem::offset_of!(lora_wgrad_params, partial) - 24usize];
    ["Offset of field: lora_wgrad_params::micro"][::std::mem::offset_of!(lora_wgrad_params, micro) - 32usize];
    ["Offset of field: lora_wgrad_params::m"][::std::mem::offset_of!(lora_wgrad_params, m) - 40usize];
    ["Offset of field: lora_wgrad_params::n"][::std::mem::offset_of!(lora_wgrad_params, n) - 44usize];
    ["Offset of field: lora_wgrad_params::columns"][::std::mem::offset_of!(lora_wgrad_params, columns) - 48usize];
    ["Offset of field: lora_wgrad_params::splits"][::std::mem::offset_of!(lora_wgrad_params, splits) - 52usize];
    ["Offset of field: lora_wgrad_params::parts"][::std::mem::offset_of!(lora_wgrad_params, parts) - 56usize];
    ["Offset of field: lora_wgrad_params::reserved"][::std::mem::offset_of!(lora_wgrad_params, reserved) - 60usize];
    ["Offset of field: lora_wgrad_params::part"][::std::mem::offset_of!(lora_wgrad_params, part) - 64usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct rmsnorm_dgrad_params {
    pub dy: address,
    pub x: address,
    pub gamma: address,
    pub rstd: address,
    pub dresidual: address,
    pub dx: address,
    pub tokens: u32,
    pub reserved: u32,
    pub q: address,
    pub scale: address,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rmsnorm_dgrad_params"][::std::mem::size_of::<rmsnorm_dgrad_params>() - 72usize];
    ["Alignment of rmsnorm_dgrad_params"][::std::mem::align_of::<rmsnorm_dgrad_params>() - 8usize];
    ["Offset of field: rmsnorm_dgrad_params::dy"][::std::mem::offset_of!(rmsnorm_dgrad_params, dy) - 0usize];
    ["Offset of field: rmsnorm_dgrad_params::x"][::std::mem::offset_of!(rmsnorm_dgrad_params, x) - 8usize];
    ["Offset of field: rmsnorm_dgrad_params::gamma"][::std::mem::offset_of!(rmsnorm_dgrad_params, gamma) - 16usize];
    ["Offset of field: rmsnorm_dgrad_params::rstd"][::std::mem::offset_of!(rmsnorm_dgrad_params, rstd) - 24usize];
    ["Offset of field: rmsnorm_dgrad_params::dresidual"]
        [::std::mem::offset_of!(rmsnorm_dgrad_params, dresidual) - 32usize];
    ["Offset of field: rmsnorm_dgrad_params::dx"][::std::mem::offset_of!(rmsnorm_dgrad_params, dx) - 40usize];
    ["Offset of field: rmsnorm_dgrad_params::tokens"][::std::mem::offset_of!(rmsnorm_dgrad_params, tokens) - 48usize];
    ["Offset of field: rmsnorm_dgrad_params::reserved"]
        [::std::mem::offset_of!(rmsnorm_dgrad_params, reserved) - 52usize];
    ["Offset of field: rmsnorm_dgrad_params::q"][::std::mem::offset_of!(rmsnorm_dgrad_params, q) - 56usize];
    ["Offset of field: rmsnorm_dgrad_params::scale"][::std::mem::offset_of!(rmsnorm_dgrad_params, scale) - 64usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct qk_norm_dgrad_params {
    pub dx: address,
    pub raw: address,
    pub gamma: address,
    pub cos: address,
    pub sin: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    pub key_heads: u32,
    pub row_heads: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of qk_norm_dgrad_params"][::std::mem::size_of::<qk_norm_dgrad_params>() - 64usize];
    ["Alignment of qk_norm_dgrad_params"][::std::mem::align_of::<qk_norm_dgrad_params>() - 8usize];
    ["Offset of field: qk_norm_dgrad_params::dx"][::std::mem::offset_of!(qk_norm_dgrad_params, dx) - 0usize];
    ["Offset of field: qk_norm_dgrad_params::raw"][::std::mem::offset_of!(qk_norm_dgrad_params, raw) - 8usize];
    ["Offset of field: qk_norm_dgrad_params::gamma"][::std::mem::offset_of!(qk_norm_dgrad_params, gamma) - 16usize];
    ["Offset of field: qk_norm_dgrad_params::cos"][::std::mem::offset_of!(qk_norm_dgrad_params, cos) - 24usize];
    ["Offset of field: qk_norm_dgrad_params::sin"][::std::mem::offset_of!(qk_norm_dgrad_params, sin) - 32usize];
    ["Offset of field: qk_norm_dgrad_params::eps"][::std::mem::offset_of!(qk_norm_dgrad_params, eps) - 40usize];
    ["Offset of field: qk_norm_dgrad_params::tokens"][::std::mem::offset_of!(qk_norm_dgrad_params, tokens) - 44usize];
    ["Offset of field: qk_norm_dgrad_params::seq_len"][::std::mem::offset_of!(qk_norm_dgrad_params, seq_len) - 48usize];
    ["Offset of field: qk_norm_dgrad_params::query_heads"]
        [::std::mem::offset_of!(qk_norm_dgrad_params, query_heads) - 52usize];
    ["Offset of field: qk_norm_dgrad_params::key_heads"]
        [::std::mem::offset_of!(qk_norm_dgrad_params, key_heads) - 56usize];
    ["Offset of field: qk_norm_dgrad_params::row_heads"]
        [::std::mem::offset_of!(qk_norm_dgrad_params, row_heads) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct qk_norm_fwd_params {
    pub x: address,
    pub raw: address,
    pub gamma: address,
    pub cos: address,
    pub sin: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    pub key_heads: u32,
    pub row_heads: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of qk_norm_fwd_params"][::std::mem::size_of::<qk_norm_fwd_params>() - 64usize];
    ["Alignment of qk_norm_fwd_params"][::std::mem::align_of::<qk_norm_fwd_params>() - 8usize];
    ["Offset of field: qk_norm_fwd_params::x"][::std::mem::offset_of!(qk_norm_fwd_params, x) - 0usize];
    ["Offset of field: qk_norm_fwd_params::raw"][::std::mem::offset_of!(qk_norm_fwd_params, raw) - 8usize];
    ["Offset of field: qk_norm_fwd_params::gamma"][::std::mem::offset_of!(qk_norm_fwd_params, gamma) - 16usize];
    ["Offset of field: qk_norm_fwd_params::cos"][::std::mem::offset_of!(qk_norm_fwd_params, cos) - 24usize];
    ["Offset of field: qk_norm_fwd_params::sin"][::std::mem::offset_of!(qk_norm_fwd_params, sin) - 32usize];
    ["Offset of field: qk_norm_fwd_params::eps"][::std::mem::offset_of!(qk_norm_fwd_params, eps) - 40usize];
    ["Offset of field: qk_norm_fwd_params::tokens"][::std::mem::offset_of!(qk_norm_fwd_params, tokens) - 44usize];
    ["Offset of field: qk_norm_fwd_params::seq_len"][::std::mem::offset_of!(qk_norm_fwd_params, seq_len) - 48usize];
    ["Offset of field: qk_norm_fwd_params::query_heads"]
        [::std::mem::offset_of!(qk_norm_fwd_params, query_heads) - 52usize];
    ["Offset of field: qk_norm_fwd_params::key_heads"][::std::mem::offset_of!(qk_norm_fwd_params, key_heads) - 56usize];
    ["Offset of field: qk_norm_fwd_params::row_heads"][::std::mem::offset_of!(qk_norm_fwd_params, row_heads) - 60usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct qk_norm_bwd_params {
    pub dx: address,
    pub raw: address,
    pub gamma: address,
    pub cos: address,
    pub sin: address,
    pub dgamma_partial: address,
    pub eps: f32,
    pub tokens: u32,
    pub seq_len: u32,
    pub query_heads: u32,
    pub key_heads: u32,
    pub row_heads: u32,
    pub rows: u32,
    pub reserved: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of qk_norm_bwd_params"][::std::mem::size_of::<qk_norm_bwd_params>() - 80usize];
    ["Alignment of qk_norm_bwd_params"][::std::mem::align_of::<qk_norm_bwd_params>() - 8usize];
    ["Offset of field: qk_norm_bwd_params::dx"][::std::mem::offset_of!(qk_norm_bwd_params, dx) - 0usize];
    ["Offset of field: qk_norm_bwd_params::raw"][::std::mem::offset_of!(qk_norm_bwd_params, raw) - 8usize];
    ["Offset of field: qk_norm_bwd_params::gamma"][::std::mem::offset_of!(qk_norm_bwd_params, gamma) - 16usize];
    ["Offset of field: qk_norm_bwd_params::cos"][::std::mem::offset_of!(qk_norm_bwd_params, cos) - 24usize];
    ["Offset of field: qk_norm_bwd_params::sin"][::std::mem::offset_of!(qk_norm_bwd_params, sin) - 32usize];
    ["Offset of field: qk_norm_bwd_params::dgamma_partial"]
        [::std::mem::offset_of!(qk_norm_bwd_params, dgamma_partial) - 40usize];
    ["Offset of field: qk_norm_bwd_params::eps"][::std::mem::offset_of!(qk_norm_bwd_params, eps) - 48usize];
    ["Offset of field: qk_norm_bwd_params::tokens"][::std::mem::offset_of!(qk_norm_bwd_params, tokens) - 52usize];
    ["Offset of field: qk_norm_bwd_params::seq_len"][::std::mem::offset_of!(qk_norm_bwd_params, seq_len) - 56usize];
    ["Offset of field: qk_norm_bwd_params::query_heads"]
        [::std::mem::offset_of!(qk_norm_bwd_params, query_heads) - 60usize];
    ["Offset of field: qk_norm_bwd_params::key_heads"][::std::mem::offset_of!(qk_norm_bwd_params, key_heads) - 64usize];
    ["Offset of field: qk_norm_bwd_params::row_heads"][::std::mem::offset_of!(qk_norm_bwd_params, row_heads) - 68usize];
    ["Offset of field: qk_norm_bwd_params::rows"][::std::mem::offset_of!(qk_norm_bwd_params, rows) - 72usize];
    ["Offset of field: qk_norm_bwd_params::reserved"][::std::mem::offset_of!(qk_norm_bwd_params, reserved) - 76usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct rmsnorm_fwd_params {
    pub x: address,
    pub delta: address,
    pub sum: address,
    pub gamma: address,
    pub y: address,
    pub rstd: address,
    pub eps: f32,
    pub tokens: u32,
    pub q: address,
    pub scale: address,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rmsnorm_fwd_params"][::std::mem::size_of::<rmsnorm_fwd_params>() - 72usize];
    ["Alignment of rmsnorm_fwd_params"][::std::mem::align_of::<rmsnorm_fwd_params>() - 8usize];
    ["Offset of field: rmsnorm_fwd_params::x"][::std::mem::offset_of!(rmsnorm_fwd_params, x) - 0usize];
    ["Offset of field: rmsnorm_fwd_params::delta"][::std::mem::offset_of!(rmsnorm_fwd_params, delta) - 8usize];
    ["Offset of field: rmsnorm_fwd_params::sum"][::std::mem::offset_of!(rmsnorm_fwd_params, sum) - 16usize];
    ["Offset of field: rmsnorm_fwd_params::gamma"][::std::mem::offset_of!(rmsnorm_fwd_params, gamma) - 24usize];
    ["Offset of field: rmsnorm_fwd_params::y"][::std::mem::offset_of!(rmsnorm_fwd_params, y) - 32usize];
    ["Offset of field: rmsnorm_fwd_params::rstd"][::std::mem::offset_of!(rmsnorm_fwd_params, rstd) - 40usize];
    ["Offset of field: rmsnorm_fwd_params::eps"][::std::mem::offset_of!(rmsnorm_fwd_params, eps) - 48usize];
    ["Offset of field: rmsnorm_fwd_params::tokens"][::std::mem::offset_of!(rmsnorm_fwd_params, tokens) - 52usize];
    ["Offset of field: rmsnorm_fwd_params::q"][::std::mem::offset_of!(rmsnorm_fwd_params, q) - 56usize];
    ["Offset of field: rmsnorm_fwd_params::scale"][::std::mem::offset_of!(rmsnorm_fwd_params, scale) - 64usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct rmsnorm_bwd_params {
    pub dy: address,
    pub x: address,
    pub gamma: address,
    pub rstd: address,
    pub dresidual: address,
    pub dx: address,
    pub dgamma_partial: address,
    pub tokens: u32,
    pub rows: u32,
    pub q: address,
    pub scale: address,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rmsnorm_bwd_params"][::std::mem::size_of::<rmsnorm_bwd_params>() - 80usize];
    ["Alignment of rmsnorm_bwd_params"][::std::mem::align_of::<rmsnorm_bwd_params>() - 8usize];
    ["Offset of field: rmsnorm_bwd_params::dy"][::std::mem::offset_of!(rmsnorm_bwd_params, dy) - 0usize];
    ["Offset of field: rmsnorm_bwd_params::x"][::std::mem::offset_of!(rmsnorm_bwd_params, x) - 8usize];
    ["Offset of field: rmsnorm_bwd_params::gamma"][::std::mem::offset_of!(rmsnorm_bwd_params, gamma) - 16usize];
    ["Offset of field: rmsnorm_bwd_params::rstd"][::std::mem::offset_of!(rmsnorm_bwd_params, rstd) - 24usize];
    ["Offset of field: rmsnorm_bwd_params::dresidual"][::std::mem::offset_of!(rmsnorm_bwd_params, dresidual) - 32usize];
    ["Offset of field: rmsnorm_bwd_params::dx"][::std::mem::offset_of!(rmsnorm_bwd_params, dx) - 40usize];
    ["Offset of field: rmsnorm_bwd_params::dgamma_partial"]
        [::std::mem::offset_of!(rmsnorm_bwd_params, dgamma_partial) - 48usize];
    ["Offset of field: rmsnorm_bwd_params::tokens"][::std::mem::offset_of!(rmsnorm_bwd_params, tokens) - 56usize];
    ["Offset of field: rmsnorm_bwd_params::rows"][::std::mem::offset_of!(rmsnorm_bwd_params, rows) - 60usize];
    ["Offset of field: rmsnorm_bwd_params::q"][::std::mem::offset_of!(rmsnorm_bwd_params, q) - 64usize];
    ["Offset of field: rmsnorm_bwd_params::scale"][::std::mem::offset_of!(rmsnorm_bwd_params, scale) - 72usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct rope_params {
    pub x: address,
    pub cos: address,
    pub sin: address,
    pub tokens: u32,
    pub seq_len: u32,
    pub heads: u32,
    pub row_stride: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of rope_params"][::std::mem::size_of::<rope_params>() - 40usize];
    ["Alignment of rope_params"][::std::mem::align_of::<rope_params>() - 8usize];
    ["Offset of field: rope_params::x"][::std::mem::offset_of!(rope_params, x) - 0usize];
    ["Offset of field: rope_params::cos"][::std::mem::offset_of!(rope_params, cos) - 8usize];
    ["Offset of field: rope_params::sin"][::std::mem::offset_of!(rope_params, sin) - 16usize];
    ["Offset of field: rope_params::tokens"][::std::mem::offset_of!(rope_params, tokens) - 24usize];
    ["Offset of field: rope_params::seq_len"][::std::mem::offset_of!(rope_params, seq_len) - 28usize];
    ["Offset of field: rope_params::heads"][::std::mem::offset_of!(rope_params, heads) - 32usize];
    ["Offset of field: rope_params::row_stride"][::std::mem::offset_of!(rope_params, row_stride) - 36usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct swiglu_fwd_params {
    pub gate_up: address,
    pub y: address,
    pub tokens: u32,
    pub n: u32,
    pub q: address,
    pub scale: address,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of swiglu_fwd_params"][::std::mem::size_of::<swiglu_fwd_params>() - 40usize];
    ["Alignment of swiglu_fwd_params"][::std::mem::align_of::<swiglu_fwd_params>() - 8usize];
    ["Offset of field: swiglu_fwd_params::gate_up"][::std::mem::offset_of!(swiglu_fwd_params, gate_up) - 0usize];
    ["Offset of field: swiglu_fwd_params::y"][::std::mem::offset_of!(swiglu_fwd_params, y) - 8usize];
    ["Offset of field: swiglu_fwd_params::tokens"][::std::mem::offset_of!(swiglu_fwd_params, tokens) - 16usize];
    ["Offset of field: swiglu_fwd_params::n"][::std::mem::offset_of!(swiglu_fwd_params, n) - 20usize];
    ["Offset of field: swiglu_fwd_params::q"][::std::mem::offset_of!(swiglu_fwd_params, q) - 24usize];
    ["Offset of field: swiglu_fwd_params::scale"][::std::mem::offset_of!(swiglu_fwd_params, scale) - 32usize];
};
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, bytemuck :: Pod, bytemuck :: Zeroable, PartialEq)]
pub struct swiglu_bwd_params {
    pub gate_up: address,
    pub dy: address,
    pub dgate_up: address,
    pub tokens: u32,
    pub n: u32,
    pub q: address,
    pub scale: address,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of swiglu_bwd_params"][::std::mem::size_of::<swiglu_bwd_params>() - 48usize];
    ["Alignment of swiglu_bwd_params"][::std::mem::align_of::<swiglu_bwd_params>() - 8usize];
    ["Offset of field: swiglu_bwd_params::gate_up"][::std::mem::offset_of!(swiglu_bwd_params, gate_up) - 0usize];
    ["Offset of field: swiglu_bwd_params::dy"][::std::mem::offset_of!(swiglu_bwd_params, dy) - 8usize];
    ["Offset of field: swiglu_bwd_params::dgate_up"][::std::mem::offset_of!(swiglu_bwd_params, dgate_up) - 16usize];
    ["Offset of field: swiglu_bwd_params::tokens"][::std::mem::offset_of!(swiglu_bwd_params, tokens) - 24usize];
    ["Offset of field: swiglu_bwd_params::n"][::std::mem::offset_of!(swiglu_bwd_params, n) - 28usize];
    ["Offset of field: swiglu_bwd_params::q"][::std::mem::offset_of!(swiglu_bwd_params, q) - 32usize];
    ["Offset of field: swiglu_bwd_params::scale"][::std::mem::offset_of!(swiglu_bwd_params, scale) - 40usize];
};
