//! Two libraries in one process, on a machine without a GPU: under a stand-in for libcuda that keeps parameters.

use blur::Blur;
use cudarc::driver::CudaContext;
use histogram::Histogram;

#[test]
fn kernels_of_one_name_do_not_clash_and_nothing_is_loaded_after_a_launch() {
    precast_libcuda::install(&blur::bundle().unwrap());
    precast_libcuda::install(&histogram::bundle().unwrap());
    let context = CudaContext::new(0).unwrap();
    let (blur, histogram) = (Blur::new(&context).unwrap(), Histogram::new(&context).unwrap());
    let stream = context.new_stream().unwrap();
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
