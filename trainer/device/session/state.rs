//! Pieces of the weights that train, for checkpoints and results.

use precast_kernels::Dtype;
use precast_plan::weights::Trained;
use precast_plan::{AdapterParameter, Parameter, Tensor};
use precast_runtime::DriverError;

use super::Session;
use crate::inputs::adapter::{extent, gathered};

/// A part of the optimizer's state: its name, its dtype, and its pieces, each with where it begins.
type State = (&'static str, Dtype, Vec<(u64, Tensor)>);

impl Session {
    /// Returns the optimizer's state: master weights, first and second moments, flat: the pieces that this rank
    /// updates.
    pub fn state(&self) -> [State; 3] {
        let Trained { master, m, v, .. } = self.trained();
        let whole = self.plan.has_whole_masters();
        let own = self.plan.shards.own();
        let masters = own
            .iter()
            .map(|piece| (piece.start, master.slice(if whole { piece.start } else { piece.local }, piece.elems)));
        let masters = masters.collect();
        let pieces = |of: Tensor| own.iter().map(|piece| (piece.start, of.slice(piece.local, piece.elems))).collect();
        let part = |name, of: Tensor, pieces| (name, of.format.dtype().expect("it is dense"), pieces);
        [part("master", master, masters), part("m", m, pieces(m)), part("v", v, pieces(v))]
    }

    /// Returns the destinations of a checkpoint's tensors on this rank: as [`Self::state`], and all master weights
    /// where it has them all.
    pub fn restored_state(&self) -> [State; 3] {
        let [mut masters, m, v] = self.state();
        if self.plan.has_whole_masters() {
            masters.2 = vec![(0, self.trained().master)];
        }
        [masters, m, v]
    }

    /// Returns the optimizer's tensors of all that trains: the student, or its adapter.
    pub(super) fn trained(&self) -> Trained {
        self.plan.trained().trained().expect("something trains")
    }

    /// Returns the optimizer's tensors of a parameter of the student.
    ///
    /// # Panics
    /// If the student has no such parameter, or an adapter trains in its place.
    pub fn trained_of(&self, parameter: &Parameter) -> Trained {
        let found = self.plan.student.weights.states().find(|(one, ..)| *one == parameter);
        found.unwrap_or_else(|| panic!("{} is no parameter of the student", parameter.name)).2
    }

    /// Elements that train.
    pub fn trained_count(&self) -> u64 {
        match &self.plan.adapters {
            Some(adapters) => adapters.parameters.list.iter().map(|one| one.shape.iter().product::<u64>()).sum(),
            None => self.plan.student.weights.parameters.count(),
        }
    }

    /// Elements of the student and of its adapter, if it has one.
    pub fn all_count(&self) -> u64 {
        let of_student = self.plan.student.weights.parameters.count();
        if self.plan.adapters.is_some() { of_student + self.trained_count() } else { of_student }
    }

    /// The weights that launches read, of a parameter.
    pub fn working(&self, parameter: &Parameter) -> Tensor {
        let weight = self.plan.student.weights.of(parameter);
        let weight = weight.unwrap_or_else(|| panic!("{} is no parameter of the student", parameter.name));
        weight.tensor.slice(0, parameter.elems())
    }

    /// A parameter's fp32 master weights.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn master(&mut self, parameter: &Parameter) -> Result<Vec<u8>, DriverError> {
        self.read(self.trained_of(parameter).master)
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn read(&mut self, tensor: Tensor) -> Result<Vec<u8>, DriverError> {
        self.sealed.read(tensor)
    }

    /// The matrices of the adapter that trains; none where the student itself does.
    pub fn adapter_parameters(&self) -> Vec<AdapterParameter> {
        self.plan.adapters.as_ref().map(|adapters| adapters.parameters.list.clone()).unwrap_or_default()
    }

    /// The master weights of a matrix of the adapter, row by row.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn adapter_master(&mut self, parameter: &AdapterParameter) -> Result<Vec<f32>, DriverError> {
        let placed = self.read(self.trained().master.slice(parameter.start, extent(parameter)))?;
        Ok(gathered(parameter, &bytemuck::pod_collect_to_vec::<u8, f32>(&placed)))
    }
}
