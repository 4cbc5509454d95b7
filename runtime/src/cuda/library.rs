//! Loads modules, and readies launches of their kernels.

use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::fmt::Display;
use std::ptr::null_mut;

use cudarc::driver::sys;
use precast_core::{Geometry, Key, TensorMap};
use precast_fatbins::{Digest, Module};

use super::call::check_on;
use super::{memory, tensor_map};
use crate::driver::{DriverError, MoreMemory};
use crate::permit::Permit;

/// Loaded cubins, unloaded on drop. Kernels of one file share one.
#[derive(Default)]
pub(crate) struct Libraries(BTreeMap<Digest, sys::CUlibrary>);

impl Libraries {
    /// Loads a module into every context of the process. Returns its kernel in the current one.
    pub fn load(&mut self, module: &Module<'_>, _permit: &Permit) -> Result<sys::CUfunction, DriverError> {
        let code = module.entry.code.as_ref().ok_or_else(|| DriverError::Launch {
            label: module.pair.to_string(),
            reason: "has no machine code".to_owned(),
        })?;
        let entry = CString::new(code.entry.as_str()).expect("a verified entry symbol holds no NUL");
        let (mut kernel, mut function) = (null_mut(), null_mut());
        let library = self.library(module, code.digest)?;
        // SAFETY: the library is loaded, and the name ends in NUL.
        unsafe {
            let found = sys::cuLibraryGetKernel(&mut kernel, library, entry.as_ptr());
            check_on("cuLibraryGetKernel", found, &module.pair)?;
            check_on("cuKernelGetFunction", sys::cuKernelGetFunction(&mut function, kernel), &module.pair)?;
            check_on("cuFuncLoad", sys::cuFuncLoad(function), &module.pair)?;
        }
        Ok(function)
    }

    /// Loads the cubin of a module, once.
    fn library(&mut self, module: &Module<'_>, digest: Digest) -> Result<sys::CUlibrary, DriverError> {
        if let Some(library) = self.0.get(&digest) {
            return Ok(*library);
        }
        let (mut library, none) = (null_mut(), null_mut());
        let image = module.image.as_ptr().cast::<c_void>();
        // SAFETY: the image is a whole cubin whose digest and structure have been verified; the driver copies it. No
        // options are passed.
        let loaded =
            unsafe { sys::cuLibraryLoadData(&mut library, image, none, none.cast(), 0, none.cast(), none.cast(), 0) };
        let what = format!("load {}, {} bytes of code", module.pair, module.image.len());
        memory::check_memory("cuLibraryLoadData", loaded, &what, MoreMemory::EndOthers)?;
        self.0.insert(digest, library);
        Ok(library)
    }

    /// Leaves the modules loaded until the process ends: launches and graphs of theirs may outlive this value.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Libraries {
    fn drop(&mut self) {
        for library in std::mem::take(&mut self.0).into_values() {
            // SAFETY: the handle was made by this value, and nothing runs of it.
            let _ = unsafe { sys::cuLibraryUnload(library) };
        }
    }
}

/// Returns the address of each parameter in a block. A kernel of ours has one, the block; a plain one has its file's.
pub(crate) fn arguments(key: &Key, block: &mut [u8]) -> Vec<*mut c_void> {
    let parameters = key.plain().map_or(&[][..], |plain| plain.parameters);
    let offsets = std::iter::once(0).chain(parameters.iter().skip(1).map(|parameter| parameter.offset as usize));
    offsets.map(|offset| block[offset..].as_mut_ptr().cast()).collect()
}

/// Readies a launch: allows its shared memory, and encodes its tensor maps. Returns the parameter block.
pub(crate) fn ready(
    function: sys::CUfunction,
    geometry: &Geometry,
    params: &[u8],
    tensor_maps: &[TensorMap],
    label: &dyn Display,
) -> Result<Vec<u8>, DriverError> {
    let mut bytes = params.to_vec();
    tensor_maps.iter().try_for_each(|map| tensor_map::fill(&mut bytes, map, label))?;
    let limit = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the function is loaded.
    let raised = unsafe { sys::cuFuncSetAttribute(function, limit, geometry.shared_bytes as i32) };
    check_on("cuFuncSetAttribute", raised, label)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use precast_core::{Parameter, PlainKernel, PlainUnit, Source, source};

    use super::*;

    #[test]
    fn a_plain_kernel_has_an_address_a_parameter() {
        static UNIT: PlainUnit = PlainUnit {
            source: Source { path: "k/a.cu", text: "", headers: &[], common: &source::AS_IT_IS },
            entries: &["f"],
            instances: &[],
            interface: "",
            file: "src/kernels.rs",
            command: "precast-aot abi k/a.cu --out src/kernels.rs",
        };
        const fn at(offset: u32, bytes: u32) -> Parameter {
            Parameter { name: "p", offset, bytes, align: bytes }
        }
        static KERNEL: PlainKernel =
            PlainKernel { name: "f", symbol: "f", unit: &UNIT, parameters: &[at(0, 8), at(8, 4), at(16, 8)] };
        static NONE: PlainKernel = PlainKernel { parameters: &[], ..KERNEL };
        let mut block = [0; 24];
        let start = block.as_ptr().addr();
        let offsets = |kernel, block: &mut [u8]| -> Vec<usize> {
            arguments(&Key::of_plain(kernel), block).iter().map(|address| address.addr() - start).collect()
        };
        assert_eq!(offsets(&KERNEL, &mut block), [0, 8, 16]);
        // As a kernel of ours, whose block is one parameter.
        assert_eq!(offsets(&NONE, &mut block), [0]);
    }
}
