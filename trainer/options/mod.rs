//! The configuration of a run: flags over run.toml over defaults.

mod advised;
mod bound;
mod cached;
pub(crate) mod card;
mod device;
mod file;
mod final_result;
mod flags;
mod given;
pub(crate) mod groups;
mod length;
pub(crate) mod max_kl;
mod measurement;
pub(crate) mod patience;
mod print;
mod resolve;
mod run_config;
pub mod schedule;
pub mod ship;
pub(crate) mod size;
mod slot_choice;
mod sources;
mod teachers;
#[cfg(test)]
mod tests;
pub(crate) mod usage;
mod weight_format;

pub use advised::Advised;
pub use device::DeviceChoice;
pub use file::FileOptions;
#[cfg(test)]
pub(crate) use file::OF_COMMAND_LINE;
pub use final_result::Final;
pub use flags::{FlagsAndFile, RUN, all, change, is_of_completions, is_of_teacher};
pub use given::{Asked, Given, OptionSource};
pub use groups::{
    AdapterOptions, ArithmeticOptions, Change, ChatOptions, CompletionOptions, Completions, DeviceOptions, Division,
    DivisionOptions, Kernels, ModelOptions, OnPolicy, OnPolicyOptions, OptimizerOptions, Options, OrderOptions,
    OutputOptions, PackingOptions, SamplingOptions, ShapeOptions, TeacherOptions, TeachingOptions, TextOptions,
    TuningOptions,
};
pub use length::{Length, Passes};
pub use max_kl::MostKl;
pub use measurement::Measurement;
pub use patience::Patience;
pub use resolve::{Before, Purpose};
pub use run_config::RunConfig;
pub use slot_choice::{SlotChoice, SlotsUnfit};
pub use sources::{DataRequest, TeacherPrompts, sources};
pub use teachers::{TaughtBy, TeacherChoice, TeacherSource, Teachers};
pub use usage::UsageError;
pub(crate) use usage::missing;
pub use weight_format::WeightFormat;
