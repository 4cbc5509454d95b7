//! What the tests share: cases, programs, recipes, sessions.

mod case;
mod child;
#[macro_use]
mod device;
mod machine;
pub mod prelude;
mod process;
mod recipes;
mod session;
mod stand_ins;
mod tapped;

use std::path::PathBuf;

pub use case::{Case, GPU_FIELDS, contents, metrics_of, names_in, results, run_record};
pub use child::{
    FOREVER, as_rank, continuation, each_of, end, ends, free_address, goes_on, is_killed_at, is_thorough, kill, signal,
    start, wait_for_steps, wait_while,
};
pub use device::{
    bundle, device, device_and_bundle, device_for, gemm, has_bundle, has_driver, is_on_gpu, is_sim, lacks_compiler,
    lacks_kernels, on_device, skipped, smollm2, without_trust,
};
pub use machine::launches;
pub use process::{
    Process, Texts, heeding, is_heading, is_note, number_after, precast, precast_aot, shell, succeed, texts, under,
};
pub use recipes::{
    TEMPLATE, WORDS, case_of_words, copy, each, first_is_huge, list, masked_row, model_config, random_model, shape,
    simulated, tiny_config, token_file, tokenizer, tokenizer_of_words, with_tensor,
};
pub use session::{
    adapter_gradient, config, config_alone, distance, floats, gradients, logits, logits_adapted, session, session_on,
    session_placed,
};
pub use stand_ins::{build_cublas, build_libcuda, build_nccl, build_nvml, build_old_nvrtc, build_shim, library_path};
pub use tapped::{Tap, Tapped};

/// The checkout: where cargo runs tests, and where a person runs carried ones.
pub fn root() -> PathBuf {
    std::env::current_dir().expect("there is a current directory")
}

pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}
