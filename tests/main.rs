//! Whole-program tests: the built binaries on real files, and the trainer's own library on a device.
//!
//! They run on the simulated GPU unless `PRECAST_TEST_DEVICE` names another (`cuda:0`), which needs kernels
//! for the models used here: `PRECAST_TEST_BUNDLE`. On a machine other than the one that built them, run
//! them from the checkout's root with `PRECAST_BIN` naming the `precast` program.

#[macro_use]
mod support;

mod apr;
mod artifact;
mod bad_input;
mod beside;
mod bounds;
mod chat;
mod commands;
mod copies;
mod core_packages;
mod coverage;
mod cublas;
mod data;
mod decode;
mod determinism;
mod driver;
mod dry_run;
mod emulated;
mod epochs;
mod evidence;
mod examples;
mod export;
mod families;
mod faults;
mod formulas;
mod gauge;
mod generate;
mod gguf;
mod golden;
mod golden_int8;
mod golden_rollouts;
mod golden_steps;
mod golden_weights;
mod guard;
mod held_out;
mod held_out_prompts;
mod init;
mod int8;
mod int8_training;
mod kill;
mod loads;
mod log;
mod lora;
mod mathematics;
mod messages;
mod mixture;
mod models;
mod on_policy;
mod one_memory;
mod other_sources;
mod output;
mod ownership;
mod pages;
mod pairs;
mod poison;
mod programs;
mod publish;
mod ranks;
mod refusals;
mod remedies;
mod resume;
mod rollout_samples;
mod room;
mod rooms;
mod rows;
mod sampling;
mod shell;
mod simt;
mod smoke;
mod stop;
mod stored;
mod success;
mod teacher_cache;
mod teacher_cache_filled;
mod teacher_score;
mod train;
mod tuned;
mod unlaunched;
mod watch;
mod words;
