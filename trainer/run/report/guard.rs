//! Drawings of what the guard of an int8 run saw.

use super::bars::{Bar, bars};
use crate::run::guard::{Guarded, LayerDistance};
use crate::run::step::StepRecord;

/// A bar for each layer: how far its gradients were from bf16's at worst, and how far when they were last compared.
/// Nothing where they never were.
pub(super) fn by_layer(records: &[StepRecord]) -> String {
    let compared: Vec<&Guarded> = records.iter().filter_map(|record| record.guard.as_ref()).collect();
    let Some(last) = compared.last() else { return String::new() };
    // A layer that cannot be compared is drawn as far as the farthest that can.
    let all = compared.iter().flat_map(|guarded| &guarded.0);
    let longest = all.filter_map(|distance| distance.apart()).fold(1.0, f64::max);
    let far = |distance: &LayerDistance| distance.apart().unwrap_or(longest);
    let bar = |(layer, now): (usize, &LayerDistance)| {
        let of_steps = compared.iter().filter_map(|guarded| guarded.0.get(layer));
        Bar {
            name: format!("layer {layer}"),
            value: of_steps.map(far).fold(0.0, f64::max),
            part: far(now),
            note: now.to_string(),
        }
    };
    let layers: Vec<Bar> = last.0.iter().enumerate().map(bar).collect();
    let title = format!(
        "int8's gradients beside bf16's: |difference| / |bf16|, {} steps compared, cosine and norm of the last",
        compared.len()
    );
    bars(&title, ["last", "largest so far"], &layers)
}

#[cfg(test)]
mod tests {
    use super::super::tests::record;
    use super::*;

    #[test]
    fn each_layer_has_a_bar_of_its_worst_and_its_last() {
        let of = |cosine| LayerDistance { cosine: Some(cosine), norm: Some(1.0) };
        let step = |number, layers: Vec<LayerDistance>| StepRecord {
            guard: Some(Guarded(layers)),
            ..record(number, Some(1.0))
        };
        let none = LayerDistance { cosine: None, norm: None };
        let drawn = by_layer(&[step(1, vec![of(0.5), of(0.999)]), step(2, vec![of(0.98), none])]);
        // |a - b| / |b| = sqrt(2 - 2 cosine), of a width of 360: 1.0, then 0.2; and as much for what is not comparable.
        let widths: Vec<&str> = drawn.split(" width=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        assert_eq!(widths, ["360.0", "72.0", "360.0", "360.0"]);
        assert!(drawn.contains("layer 1") && drawn.contains("cosine 0.9800 norm 1.000") && drawn.contains("2 steps"));
        assert_eq!(by_layer(&[record(1, Some(1.0))]), "");
    }
}
