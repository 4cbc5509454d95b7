//! The program's launches on a machine without a GPU: under a stand-in for libcuda that keeps their parameters.

use std::sync::{LazyLock, Mutex};

use cudarc::driver::{DevicePtr, DevicePtrMut};
use plain::kernels::{SAXPY, affine, float4, saxpy, sum, transform};
use plain::vectors::abi::{Saxpy, SaxpyArgs};
use plain::vectors::{BLOCKS, THREADS};
use precast_core::{Geometry, Key, PlainKernel};
use precast_runtime::Modules;

/// Loaded once in this process, as in the program, behind a load that is refused.
static LOADED: LazyLock<(String, Modules)> = LazyLock::new(|| {
    static OTHER: PlainKernel = PlainKernel { name: "other", ..SAXPY };
    let bundle = plain::bundle().unwrap();
    precast_libcuda::install(&bundle);
    let refused = Modules::open(0, &bundle, &[Key::of_plain(&OTHER)]).unwrap_err();
    // A kernel that has a reference is found by the key of one that has none.
    Modules::open(0, &bundle, &[Key::of_plain(&SAXPY)]).unwrap();
    (refused.to_string(), plain::load(0).unwrap())
});

/// Held by the test that launches.
static LAUNCHING: Mutex<()> = Mutex::new(());

#[test]
fn a_kernel_that_the_bundle_lacks_is_named_before_anything_is_loaded() {
    let (refused, _) = &*LOADED;
    assert!(refused.contains("1 of 1 kernels") && refused.contains("  other{}[]"), "{refused}");
    assert!(refused.contains("Build them with: cargo build for sm_121"), "{refused}");
}

#[test]
fn arguments_arrive_where_cuda_puts_them() {
    let _launching = LAUNCHING.lock();
    let (_, modules) = &*LOADED;
    let stream = modules.context().new_stream().unwrap();
    let (x, mut y) = (stream.alloc_zeros::<f32>(300).unwrap(), stream.alloc_zeros::<f32>(300).unwrap());
    plain::saxpy(modules, &stream, 2.5, &x, &mut y).unwrap();
    let map = affine { scale: [1.0, 2.0, 3.0, 4.0], shift: [5.0; 4], steps: 6 };
    let bias = float4 { x: 7.0, y: 8.0, z: 9.0, w: 10.0 };
    // SAFETY: the stand-in does not know what `transform` does.
    unsafe { transform(modules.on(&stream), Geometry::linear(1, 256), map, -2, bias, 0x1234).unwrap() };
    stream.synchronize().unwrap();
    let launched = precast_libcuda::launched();
    assert_eq!(launched.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["saxpy", "transform"]);
    let (x, y) = (x.device_ptr(&stream).0.to_le_bytes(), y.device_ptr_mut(&stream).0.to_le_bytes());
    assert_eq!(launched[0].1, [&x[..], &y, &2.5f32.to_le_bytes(), &300i32.to_le_bytes()].concat());
    let floats = |floats: &[f32]| floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<u8>>();
    let parameters = &launched[1].1;
    assert_eq!(parameters.len(), 72);
    assert_eq!(parameters[..32], floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 5.0, 5.0, 5.0]));
    assert_eq!(parameters[32..38], [6, 0, 0, 0, 254, 255]);
    assert_eq!(parameters[48..64], floats(&[7.0, 8.0, 9.0, 10.0]));
    assert_eq!(parameters[64..], 0x1234u64.to_le_bytes());
}

#[test]
fn what_has_a_reference_computes_it_where_it_is_launched_as_its_builds_say() {
    let _launching = LAUNCHING.lock();
    let (_, modules) = &*LOADED;
    let stream = modules.context().new_stream().unwrap();
    let (x, mut y) = (stream.clone_htod(&[2.0f32; 300]).unwrap(), stream.clone_htod(&[1.0f32; 300]).unwrap());
    plain::saxpy(modules, &stream, 0.5, &x, &mut y).unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [2.0; 300]);
    assert_eq!(plain::sum(modules, &stream, &y).unwrap(), 600.0);
    {
        let ((x, _x), (y, _y)) = (x.device_ptr(&stream), y.device_ptr_mut(&stream));
        let args = SaxpyArgs { x, y, n: 300, a: 2.0 };
        // SAFETY: two buffers of 300 floats.
        unsafe { modules.launch(&stream, Saxpy {}, args).unwrap() };
        // SAFETY: the same; nobody knows what this one does.
        unsafe { saxpy(modules.on(&stream), Geometry::linear(1, 32), x, y, 2.0, 300).unwrap() };
    }
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [6.0; 300]);
    let mut partial = stream.alloc_zeros::<f32>(BLOCKS as usize).unwrap();
    {
        let ((y, _y), (to, _to)) = (y.device_ptr(&stream), partial.device_ptr_mut(&stream));
        // SAFETY: 300 floats, and one a block; without its shared memory nobody knows what it does, either.
        unsafe { sum(modules.on(&stream), Geometry::linear(BLOCKS, THREADS), y, to, 300).unwrap() };
    }
    assert_eq!(stream.clone_dtoh(&partial).unwrap(), [0.0; BLOCKS as usize]);
    precast_libcuda::launched();
}

#[test]
fn a_block_larger_than_the_machine_code_takes_is_refused() {
    let _launching = LAUNCHING.lock();
    let (_, modules) = &*LOADED;
    let stream = modules.context().new_stream().unwrap();
    let (map, bias) =
        (affine { scale: [0.0; 4], shift: [0.0; 4], steps: 0 }, float4 { x: 0.0, y: 0.0, z: 0.0, w: 0.0 });
    // SAFETY: nothing is launched.
    let refused = unsafe { transform(modules.on(&stream), Geometry::linear(1, 512), map, 1, bias, 0) };
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("transform{}[]") && refused.contains("512 threads"), "{refused}");
    assert!(refused.contains("at most 256"), "{refused}");
}
