//! Options by what they are of: each is declared once, as a field of one of these groups, and a command takes groups.
//! Names, values, defaults and help on the command line come from here, and so do run.toml, `run.json`, what `--resume`
//! and ranks compare, what shells complete, and docs/reference/options.md.

mod adapting;
mod arithmetic;
mod change;
mod completions;
mod data;
mod device;
mod division;
mod models;
mod on_policy;
mod optimizer;
mod options;
mod output;
mod sampling;
mod shape;
mod teaching;
pub(crate) mod values;

pub use adapting::AdapterOptions;
pub use arithmetic::ArithmeticOptions;
pub use change::Change;
pub use completions::{CompletionOptions, Completions};
pub use data::{ChatOptions, OrderOptions, PackingOptions, TextOptions};
pub use device::{DeviceOptions, Kernels, TuningOptions};
pub use division::{Division, DivisionOptions};
pub use models::ModelOptions;
pub use on_policy::{OnPolicy, OnPolicyOptions};
pub use optimizer::OptimizerOptions;
pub use options::Options;
pub use output::OutputOptions;
pub use sampling::SamplingOptions;
pub use shape::ShapeOptions;
pub(crate) use teaching::TEMPERATURES;
pub use teaching::{TeacherOptions, TeachingOptions};
