//! Encodes the tensor maps of a launch, once addresses are known.

use std::ffi::c_void;
use std::fmt::Display;

use cudarc::driver::sys;
use precast_core::{Dtype, TensorMap};

use super::call::check_on;
use crate::driver::DriverError;

/// Encodes a map for the address in the parameter block, and writes it there.
pub(super) fn fill(params: &mut [u8], map: &TensorMap, label: &dyn Display) -> Result<(), DriverError> {
    use sys::CUtensorMapSwizzle_enum as Swizzle;
    let bytes = map.dtype.bytes();
    let address: u64 = bytemuck::pod_read_unaligned(&params[map.address..map.address + 8]);
    // The driver counts dimensions from the contiguous one.
    let [rows, columns] = map.shape.map(u64::from);
    let [box_rows, box_columns] = map.box_shape;
    let dtype = match map.dtype {
        Dtype::Bf16 => sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Dtype::F32 => sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Dtype::U32 => sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        Dtype::I8 => sys::CUtensorMapDataType_enum::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    };
    let swizzle = match u64::from(box_columns) * bytes {
        64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
        other => panic!("{label}: a box {other} bytes wide has no swizzle"),
    };
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    // SAFETY: the map is one; the arrays have as many elements as two dimensions take; nothing is kept.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            dtype,
            2,
            address as *mut c_void,
            [columns, rows].as_ptr(),
            [columns * bytes].as_ptr(),
            [box_columns, box_rows].as_ptr(),
            [1, 1].as_ptr(),
            sys::CUtensorMapInterleave_enum::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion_enum::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            sys::CUtensorMapFloatOOBfill_enum::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    check_on("cuTensorMapEncodeTiled", result, label)?;
    params[map.offset..map.offset + size_of_val(&encoded.opaque)]
        .copy_from_slice(bytemuck::cast_slice(&encoded.opaque));
    Ok(())
}
