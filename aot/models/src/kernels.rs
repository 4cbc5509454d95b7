//! Finds kernels by name, independent of models.

use std::collections::BTreeSet;

use precast_kernels::{KERNELS, Key};
use precast_plan::{ModelConfig, build_keys};

use crate::model::Model;

/// The text names no kernel.
#[derive(Debug, thiserror::Error)]
#[error(
    "no kernel `{text}`: looked for a key, exactly as `precast-aot keys` prints one, and for an operation: {}",
    KERNELS.ops.iter().map(|op| op.name).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownKernel {
    text: String,
}

/// Returns the keys that a text names: one key, or the examples of an operation.
///
/// # Errors
/// [`UnknownKernel`] if it is neither.
pub fn find(text: &str) -> Result<Vec<Key>, UnknownKernel> {
    let examples = KERNELS.ops.iter().find(|op| op.name == text).map(|op| (op.examples)());
    let key = || KERNELS.parse(text).ok().map(|key| vec![key]);
    examples.or_else(key).ok_or_else(|| UnknownKernel { text: text.to_owned() })
}

/// Returns the examples of every operation that no run over the built-in models launches: a kernel has examples before
/// it has a plan.
pub fn unlaunched() -> Vec<Key> {
    not_launched_by(&Model::built_in())
}

fn not_launched_by(models: &[Model]) -> Vec<Key> {
    let models: Vec<ModelConfig> = models.iter().map(|model| model.config.clone()).collect();
    let launched = build_keys(&models);
    let launched: BTreeSet<&str> = launched.keys().into_iter().map(Key::op).collect();
    KERNELS.ops.iter().filter(|op| !launched.contains(op.name)).flat_map(|op| (op.examples)()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_stand_for_a_kernel_until_a_plan_launches_it() {
        assert_eq!(not_launched_by(&[]), KERNELS.examples());
        let one = not_launched_by(&Model::built_in()[..1]);
        assert!(one.iter().all(|key| key.op() != "swiglu.fwd"), "{one:?}");
    }

    #[test]
    fn a_key_or_an_operation_names_kernels() {
        assert_eq!(find("swiglu.fwd{x=bf16}").unwrap()[0].text(), "swiglu.fwd{x=bf16}");
        assert_eq!(
            find("cast").unwrap(),
            ["cast{from=bf16,to=f32}", "cast{from=f32,to=bf16}", "cast{from=f32,to=f32}"]
                .map(|text| KERNELS.parse(text).unwrap())
        );
        for text in ["swiglu", "swiglu.fwd{x=f16}", "swiglu.fwd{x=bf16} ", ""] {
            assert!(find(text).unwrap_err().to_string().contains("swiglu.bwd, swiglu.fwd"), "{text}");
        }
    }
}
