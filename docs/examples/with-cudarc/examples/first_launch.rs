//! Measures the time from the start of a process to the end of its first kernel, of machine code that is in the program
//! and of the same CUDA source, compiled at run time by cudarc and NVRTC. On a machine with a GPU and libnvrtc on the
//! library path:
//!
//! ```sh
//! cargo run --release --example first_launch
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use cudarc::driver::{CudaContext, CudaSlice, DevicePtr, DevicePtrMut, DeviceRepr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use precast_core::{Arch, Dtype, Key, OPTIONS};
use with_cudarc::smooth::abi::{Smooth, SmoothArgs, smooth_params};

type Done = Result<(), Box<dyn Error>>;

/// Processes of each kind, after one that nobody measures.
const PROCESSES: usize = 10;

/// A kind of process, chosen by its argument.
struct Kind {
    name: &'static str,
    argument: &'static str,
    variable: Option<(&'static str, &'static str)>,
}

const KINDS: [Kind; 4] = [
    Kind { name: "cudarc's context and buffers, no kernel", argument: "context", variable: None },
    Kind { name: "machine code in the program, by Modules", argument: "modules", variable: None },
    Kind {
        name: "NVRTC at run time, the driver compiles PTX",
        argument: "nvrtc",
        variable: Some(("CUDA_CACHE_DISABLE", "1")),
    },
    Kind { name: "NVRTC at run time, PTX in the driver's cache", argument: "nvrtc", variable: None },
];

fn main() -> Done {
    match std::env::args().nth(1).as_deref() {
        Some("context") => context(),
        Some("modules") => modules(),
        Some("nvrtc") => nvrtc(),
        _ => compare(),
    }
}

/// Starts processes of each kind by turns, and prints what they took.
fn compare() -> Done {
    let mut taken = [const { Vec::new() }; KINDS.len()];
    for turn in 0..=PROCESSES {
        for (kind, taken) in KINDS.iter().zip(&mut taken) {
            let ms = first_launch_ms(kind)?;
            if turn > 0 {
                taken.push(ms);
            }
        }
    }
    println!("{:>9} {:>9}  ms from the start of a process to the end of its first kernel", "median", "fastest");
    for (Kind { name, .. }, mut taken) in KINDS.iter().zip(taken) {
        taken.sort_by(f64::total_cmp);
        println!("{:9.1} {:9.1}  {name}", taken[taken.len() / 2], taken[0]);
    }
    Ok(())
}

/// Starts a process, and waits until it says that its first kernel has ended.
fn first_launch_ms(Kind { argument, variable, .. }: &Kind) -> Result<f64, Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(argument).envs(*variable).stdout(Stdio::piped());
    let start = Instant::now();
    let mut process = command.spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().expect("it is piped")).read_line(&mut line)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let ended = process.wait()?;
    if line == "done\n" && ended.success() { Ok(ms) } else { Err(format!("{argument}: {ended}").into()) }
}

const STEP: [f32; 6] = [0.0, 0.0, 0.0, 16.0, 16.0, 16.0];

/// Says that the first kernel has ended, and with what.
fn done(found: &[f32]) -> Done {
    assert_eq!(found, [0.0, 0.0, 4.0, 12.0, 16.0, 16.0]);
    println!("done");
    Ok(())
}

fn context() -> Done {
    let stream = CudaContext::new(0)?.new_stream()?;
    assert_eq!(stream.clone_dtoh(&stream.clone_htod(&STEP)?)?, STEP);
    println!("done");
    Ok(())
}

fn modules() -> Done {
    let modules = with_cudarc::load(0)?;
    let stream = modules.context().new_stream()?;
    let (x, mut y) = (stream.clone_htod(&STEP)?, stream.alloc_zeros(STEP.len())?);
    with_cudarc::smooth(&modules, &stream, &x, &mut y)?;
    done(&stream.clone_dtoh(&y)?)
}

/// The parameter block, as cudarc takes an argument.
#[repr(transparent)]
struct Block(smooth_params);

// SAFETY: the block is plain data of the layout that the kernel declares.
unsafe impl DeviceRepr for Block {}

fn nvrtc() -> Done {
    let context = CudaContext::new(0)?;
    let (major, minor) = context.compute_capability()?;
    let pair = Key::new(Smooth { x: Dtype::F32 }).built(Arch::Sm89).next().expect("a kernel has variants");
    let source = pair.source();
    // NVRTC reads headers from a folder.
    let folder = std::env::temp_dir().join(format!("first_launch.{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    for (name, text) in source.includes() {
        std::fs::write(folder.join(name), text)?;
    }
    let defines = pair.defines(Arch::Sm89).into_iter().map(|(name, value)| format!("-D{name}={value}"));
    let ptx = compile_ptx_with_opts(
        source.text,
        CompileOptions {
            arch: Some(format!("compute_{major}{minor}").leak()),
            include_paths: vec![folder.display().to_string()],
            options: OPTIONS.iter().map(ToString::to_string).chain(defines).collect(),
            ..CompileOptions::default()
        },
    )?;
    std::fs::remove_dir_all(&folder)?;
    let kernel = context.load_module(ptx)?.load_function(&pair.entry(Arch::Sm89))?;
    let stream = context.new_stream()?;
    let (x, mut y): (CudaSlice<f32>, CudaSlice<f32>) = (stream.clone_htod(&STEP)?, stream.alloc_zeros(STEP.len())?);
    {
        let ((x, _x), (y, _y)) = (x.device_ptr(&stream), y.device_ptr_mut(&stream));
        let block = Block(SmoothArgs { x, y, n: STEP.len() as u64 }.into());
        let geometry = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the block is the kernel's only parameter; x and y are buffers of its n elements.
        unsafe { stream.launch_builder(&kernel).arg(&block).launch(geometry)? };
    }
    done(&stream.clone_dtoh(&y)?)
}
