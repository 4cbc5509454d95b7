//! What nearly every file of tests uses.

pub use std::fs;
pub use std::path::{Path, PathBuf};
pub use std::process::{Child, Command, Stdio};

pub use serde_json::{Value, json};

pub use super::{
    Case, Process, TEMPLATE, WORDS, bundle, case_of_words, config, config_alone, contents, continuation, copy, device,
    device_and_bundle, distance, each, each_of, end, ends, first_is_huge, fixture, floats, goes_on, gradients,
    has_bundle, has_driver, is_heading, is_killed_at, is_note, is_on_gpu, is_sim, is_thorough, kill, lacks_compiler,
    lacks_kernels, list, logits, masked_row, metrics_of, model_config, names_in, number_after, on_device, precast,
    precast_aot, random_model, root, run_record, session, session_on, shape, shell, signal, simulated, skipped, start,
    texts, tiny_config, token_file, tokenizer, tokenizer_of_words, under, wait_for_steps, wait_while, with_tensor,
    without_trust,
};
