//! Two libraries in one process, on a machine without a GPU: under a stand-in for libcuda that keeps parameters.

use blur::Blur;
use cudarc::driver::CudaContext;
use histogram::Histogram;
use precast_core::{Geometry, Key};
use precast_runtime::Modules;

#[test]
fn kernels_of_one_name_do_not_clash_and_nothing_is_loaded_after_a_launch() {
    precast_libcuda::install(&blur::bundle().unwrap());
    precast_libcuda::install(&histogram::bundle().unwrap());
    let context = CudaContext::new(0).unwrap();
    let (blur, histogram) = (Blur::new(&context).unwrap(), Histogram::new(&context).unwrap());
    let keys = [Key::of_plain(blur::kernels::PLAIN[0])];
    let missing = Modules::load(context.clone(), &histogram::bundle().unwrap(), &keys).err().unwrap().to_string();
    assert!(missing.contains("blur_rows{}[] of kernels/blur.cu"), "{missing}");
    let others = Modules::load(context.clone(), &histogram::bundle().unwrap(), &[]).unwrap();
    let stream = context.new_stream().unwrap();
    // SAFETY: nothing is launched.
    let refused = unsafe { blur::kernels::scale(others.on(&stream), Geometry::linear(1, 32), 0u64, 1.0, 2.0, 0) };
    let refused = refused.unwrap_err().to_string();
    let said = "is of kernels/blur.cu; the kernel of that name in the modules of histogram is another";
    assert!(refused.contains(said), "{refused}");
    let mut image = stream.alloc_zeros::<f32>(2000).unwrap();
    let mut bytes = stream.alloc_zeros::<u8>(2000).unwrap();
    blur.scale(&stream, &mut image, 200.0, 20.0).unwrap();
    blur.to_bytes(&stream, &image, &mut bytes).unwrap();
    histogram.shares(&stream, &bytes).unwrap();

    let launched = precast_libcuda::launched();
    let sizes: Vec<(&str, usize)> = launched.iter().map(|(name, bytes)| (&**name, bytes.len())).collect();
    // One `scale` has a pointer, two floats and an integer, the other a pointer and an integer.
    let convert = "convert<float,unsigned_char>";
    assert_eq!(sizes, [("scale", 20), (convert, 20), ("histogram", 24), ("scale", 12)]);
    let floats = [200.0f32, 20.0].map(f32::to_le_bytes).concat();
    assert_eq!(launched[0].1[8..], [&floats[..], &2000i32.to_le_bytes()].concat());
    assert_eq!(launched[3].1[8..], 20u32.to_le_bytes());

    let refused = Blur::new(&context).err().unwrap().to_string();
    assert!(refused.contains("load every bundle of the program before the first launch"), "{refused}");
}
