//! An adapter on a device: each matrix in the flat buffers of a plan, its rows as far apart as the plan says, and
//! between them padding, which is 0.

use precast_plan::{AdapterParameter, AdapterParameters};

use super::Adapter;
use crate::checkpoint::{CheckpointError, Scratch};

/// Elements from the first of a matrix to its last, padding between its rows included.
pub fn extent(parameter: &AdapterParameter) -> u64 {
    let [rows, columns] = parameter.shape;
    (rows - 1) * parameter.row + columns
}

/// A matrix, row by row, as it lies on the device.
fn spread(parameter: &AdapterParameter, values: &[f32]) -> Vec<f32> {
    let mut placed = vec![0.0; extent(parameter) as usize];
    let columns = parameter.shape[1] as usize;
    for (row, values) in values.chunks(columns).enumerate() {
        placed[row * parameter.row as usize..][..columns].copy_from_slice(values);
    }
    placed
}

/// The opposite: a matrix row by row, of what lies on the device from its first element to its last.
pub fn gathered(parameter: &AdapterParameter, placed: &[f32]) -> Vec<f32> {
    let columns = parameter.shape[1] as usize;
    placed.chunks(parameter.row as usize).flat_map(|row| &row[..columns]).copied().collect()
}

impl Adapter {
    /// One of its matrices as it lies on the device.
    ///
    /// # Errors
    /// [`CheckpointError`] where it cannot be read.
    ///
    /// # Panics
    /// If the plan is not of this adapter.
    pub fn placed(&self, parameter: &AdapterParameter) -> Result<Vec<f32>, CheckpointError> {
        let adapted = self.layout.each.iter().find(|adapted| adapted.parameter() == parameter.projection);
        let adapted = adapted.unwrap_or_else(|| panic!("{} has no adapter", parameter.projection));
        let mut scratch = Scratch::default();
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(self.read(adapted, parameter.factor, &mut scratch)?);
        Ok(spread(parameter, &values))
    }

    /// All of them, in one flat buffer with its padding.
    ///
    /// # Errors
    /// [`CheckpointError`] where one cannot be read.
    pub fn all_placed(&self, parameters: &AdapterParameters) -> Result<Vec<f32>, CheckpointError> {
        let mut all = vec![0.0; parameters.elems as usize];
        for parameter in &parameters.list {
            let placed = self.placed(parameter)?;
            all[parameter.start as usize..][..placed.len()].copy_from_slice(&placed);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use precast_plan::Factor;

    use super::*;

    #[test]
    fn rows_lie_apart_and_come_back() {
        let parameter = |shape, row| AdapterParameter {
            projection: "model.layers.0.self_attn.q_proj.weight".to_owned(),
            factor: Factor::B,
            shape,
            start: 64,
            row,
        };
        let values: Vec<f32> = (1..=6).map(|value| value as f32).collect();
        for (shape, row, expected) in [
            ([2, 3], 8, vec![1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, 5.0, 6.0]),
            ([2, 3], 3, values.clone()),
            ([6, 1], 1, values.clone()),
        ] {
            let parameter = parameter(shape, row);
            assert_eq!(spread(&parameter, &values), expected);
            assert_eq!(
                (extent(&parameter) as usize, gathered(&parameter, &expected)),
                (expected.len(), values.clone())
            );
        }
    }
}
