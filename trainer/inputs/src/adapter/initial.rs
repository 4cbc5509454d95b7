//! The values that an adapter starts from: A as `torch.nn.Linear` starts, Kaiming-uniform with a = sqrt(5), and B zero,
//! so that the first step computes what the base computes.

use precast_plan::Factor;
use rand::RngExt;

use super::layout::Adapted;
use crate::checkpoint::Scratch;
use crate::random::{draw, name_hash};

/// One matrix of a new adapter, f32. The same seed gives the same values on any machine.
pub(super) fn read<'a>(adapted: &Adapted, factor: Factor, seed: u64, scratch: &'a mut Scratch) -> &'a [f32] {
    let [rows, columns] = adapted.shape(factor);
    let values = scratch.values((rows * columns) as usize);
    match factor {
        Factor::B => values.fill(0.0),
        Factor::A => {
            // sqrt(6 / ((1 + a^2) columns))
            let bound = 1.0 / (columns as f32).sqrt();
            draw(values, seed ^ name_hash(&adapted.tensor(factor)), |rng| rng.random_range(-bound..bound));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::super::layout::Projection;
    use super::*;

    fn adapted(module: &str) -> Adapted {
        Adapted {
            projection: Projection { module: module.to_owned(), rows: 300, columns: 400 },
            rank: 200,
            alpha: 32.0,
        }
    }

    #[test]
    fn a_is_uniform_by_seed_and_name_and_b_is_zero() {
        let values =
            |module: &str, factor, seed| read(&adapted(module), factor, seed, &mut Scratch::default()).to_vec();
        let a = values("model.layers.0.self_attn.q_proj", Factor::A, 7);
        assert_eq!((a.len(), &a), (200 * 400, &values("model.layers.0.self_attn.q_proj", Factor::A, 7)));
        assert_ne!(a, values("model.layers.0.self_attn.q_proj", Factor::A, 8));
        assert_ne!(a, values("model.layers.1.self_attn.q_proj", Factor::A, 7));
        let bound = 1.0 / 20.0;
        assert!(a.iter().all(|value| value.abs() <= bound));
        assert!(a.iter().copied().fold(0.0, f32::max) > 0.999 * bound);
        // A uniform distribution has a third of the bound's square as variance.
        let variance = a.iter().map(|value| f64::from(value * value)).sum::<f64>() / a.len() as f64;
        assert!((variance * 3.0 / f64::from(bound * bound) - 1.0).abs() < 0.02, "{variance}");
        let b = values("model.layers.0.self_attn.q_proj", Factor::B, 7);
        assert!(b.len() == 300 * 200 && b.iter().all(|value| *value == 0.0));
    }
}
