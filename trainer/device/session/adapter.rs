//! The matrices of an adapter that trains, row by row.

use precast_plan::{AdapterParameter, Tensor};
use precast_runtime::DriverError;

use crate::inputs::adapter::{extent, gathered};

use super::Session;

impl Session {
    /// The matrices of the adapter that trains; none where the student itself does.
    pub fn adapter_parameters(&self) -> Vec<AdapterParameter> {
        self.plan.adapters.as_ref().map(|adapters| adapters.parameters.list.clone()).unwrap_or_default()
    }

    /// The master weights of a matrix of the adapter, row by row.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn adapter_master(&mut self, parameter: &AdapterParameter) -> Result<Vec<f32>, DriverError> {
        self.adapter(parameter, self.trained().master)
    }

    /// The gradient of a matrix of the adapter, row by row, before clipping.
    ///
    /// # Errors
    /// [`DriverError`].
    pub fn adapter_gradient(&mut self, parameter: &AdapterParameter) -> Result<Vec<f32>, DriverError> {
        self.adapter(parameter, self.trained().grad)
    }

    fn adapter(&mut self, parameter: &AdapterParameter, of: Tensor) -> Result<Vec<f32>, DriverError> {
        let placed = self.read(of.slice(parameter.start, extent(parameter)))?;
        Ok(gathered(parameter, &bytemuck::pod_collect_to_vec::<u8, f32>(&placed)))
    }
}
