//! Several matrices in one tensor, taken for a tensor of each: experts of a layer, and gate and up of Granite 4.0.

use std::collections::{BTreeMap, BTreeSet};

use super::kind::Kind;
use super::store::Tensor;

/// Suffixes of Hugging Face tensors `[experts, rows, columns]`, each with the matrices that an expert's rows hold.
const FUSED: [(&str, &[&str]); 2] =
    [(".mlp.experts.gate_up_proj", &["gate_proj", "up_proj"]), (".mlp.experts.down_proj", &["down_proj"])];

/// Suffixes of Granite 4.0's tensors `[rows, columns]`, each with the matrices that its rows hold, by Granite's names.
const SHARED: [(&str, &[&str]); 2] = [
    (".shared_mlp.input_linear.weight", &["gate_proj", "up_proj"]),
    (".shared_mlp.output_linear.weight", &["down_proj"]),
];

/// Takes a tensor `[experts, rows, columns]` for the equal parts of each expert's rows: as `name` of expert and part
/// has them. One of another shape, or of blocks that do not end with a part, stays as it is.
pub(super) fn parts(
    tensor: &Tensor,
    of_expert: u64,
    name: impl Fn(u64, u64) -> String,
) -> Option<Vec<(String, Tensor)>> {
    let [experts, rows, columns] = tensor.shape[..] else { return None };
    if !rows.is_multiple_of(of_expert) {
        return None;
    }
    let (rows, kind) = (rows / of_expert, tensor.kind.as_ref().ok().copied());
    let elements = rows.checked_mul(columns)?;
    if kind == Some(Kind::AprQ8) || kind.is_some_and(|kind| !elements.is_multiple_of(kind.elems())) {
        return None;
    }
    let part = |index: u64| {
        let first = index * elements;
        let start = kind.map_or(tensor.start, |kind| kind.range(tensor.start, &(first..first)).start);
        let (format, kind) = (tensor.format.clone(), tensor.kind.clone());
        let tensor = Tensor { file: tensor.file, start, shape: vec![rows, columns], format, kind };
        (name(index / of_expert, index % of_expert), tensor)
    };
    Some((0..experts * of_expert).map(part).collect())
}

/// Takes tensors of several matrices of Hugging Face's files for those of each. One of which a part is there by its own
/// name stays as it is: it is one too many.
pub(super) fn split(all: BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let names: BTreeSet<String> = all.keys().cloned().collect();
    let each = |(name, tensor): (String, Tensor)| {
        let split = experts(&name, &tensor).or_else(|| shared(&name, &tensor));
        let split = split.filter(|parts| parts.iter().all(|(part, _)| !names.contains(part)));
        split.unwrap_or_else(|| vec![(name, tensor)])
    };
    all.into_iter().flat_map(each).collect()
}

fn experts(name: &str, tensor: &Tensor) -> Option<Vec<(String, Tensor)>> {
    let (layer, of_expert) = FUSED.iter().find_map(|(end, parts)| Some((name.strip_suffix(end)?, parts)))?;
    let name = |expert, part: u64| format!("{layer}.mlp.experts.{expert}.{}.weight", of_expert[part as usize]);
    parts(tensor, of_expert.len() as u64, name)
}

fn shared(name: &str, tensor: &Tensor) -> Option<Vec<(String, Tensor)>> {
    let (layer, of_mlp) = SHARED.iter().find_map(|(end, parts)| Some((name.strip_suffix(end)?, parts)))?;
    let [rows, columns] = tensor.shape[..] else { return None };
    let (format, kind) = (tensor.format.clone(), tensor.kind.clone());
    let of_one = Tensor { shape: vec![1, rows, columns], format, kind, ..*tensor };
    parts(&of_one, of_mlp.len() as u64, |_, part| format!("{layer}.mlp.{}.weight", of_mlp[part as usize]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fused(shape: &[u64]) -> BTreeMap<String, Tensor> {
        let (format, kind) = ("BF16".to_owned(), Ok(Kind::Bf16));
        let tensor = Tensor { file: 0, start: 100, shape: shape.to_vec(), format, kind };
        [("model.layers.3.mlp.experts.gate_up_proj".to_owned(), tensor)].into()
    }

    #[test]
    fn each_expert_has_its_rows_of_one_tensor() {
        let split = split(fused(&[3, 4, 5]));
        let places: Vec<(&str, u64, &[u64])> =
            split.iter().map(|(name, tensor)| (name.as_str(), tensor.start, &tensor.shape[..])).collect();
        let shape: &[u64] = &[2, 5];
        let expected = (0..3).flat_map(|expert| ["gate", "up"].into_iter().enumerate().map(move |part| (expert, part)));
        let expected: Vec<(String, u64)> = expected
            .map(|(expert, (part, name))| {
                let start = 100 + 20 * (2 * expert + part as u64);
                (format!("model.layers.3.mlp.experts.{expert}.{name}_proj.weight"), start)
            })
            .collect();
        assert_eq!(places, expected.iter().map(|(name, start)| (&**name, *start, shape)).collect::<Vec<_>>());
    }

    #[test]
    fn gate_and_up_of_granite_are_halves_of_one_tensor() {
        let (format, kind) = ("BF16".to_owned(), Ok(Kind::Bf16));
        let tensor = |start, shape: &[u64]| Tensor {
            file: 0,
            start,
            shape: shape.to_vec(),
            format: format.clone(),
            kind: kind.clone(),
        };
        let files = [("input_linear", tensor(100, &[6, 4])), ("output_linear", tensor(148, &[4, 3]))];
        let files = files.map(|(name, tensor)| (format!("model.layers.2.shared_mlp.{name}.weight"), tensor));
        let split = split(files.into());
        let places: Vec<(&str, u64, &[u64])> =
            split.iter().map(|(name, tensor)| (name.as_str(), tensor.start, &tensor.shape[..])).collect();
        assert_eq!(
            places,
            [
                ("model.layers.2.mlp.down_proj.weight", 148, &[4, 3][..]),
                ("model.layers.2.mlp.gate_proj.weight", 100, &[3, 4]),
                ("model.layers.2.mlp.up_proj.weight", 124, &[3, 4]),
            ]
        );
    }

    #[test]
    fn a_part_that_is_there_by_its_own_name_is_not_replaced() {
        let mut files = fused(&[3, 4, 5]);
        let own = "model.layers.3.mlp.experts.2.up_proj.weight".to_owned();
        let (format, kind) = ("BF16".to_owned(), Ok(Kind::Bf16));
        files.insert(own.clone(), Tensor { file: 0, start: 7, shape: vec![2, 5], format, kind });
        let split = split(files);
        assert_eq!((split.len(), split[&own].start), (2, 7));
    }

    #[test]
    fn what_is_no_tensor_of_experts_stays() {
        for shape in [&[3, 5, 5][..], &[4, 5]] {
            assert_eq!(split(fused(shape)).keys().collect::<Vec<_>>(), ["model.layers.3.mlp.experts.gate_up_proj"]);
        }
    }
}
