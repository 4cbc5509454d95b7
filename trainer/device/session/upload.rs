//! Weights up: the models, an adapter, and what follows from them.

use std::borrow::Borrow;

use precast_kernels::Format;
use precast_plan::training::{CAST, CLEAR, TeacherBuffers, WIDEN, certify_phase};
use precast_plan::{Parameter, Resident, Tensor, TokenComparison};
use precast_runtime::{DriverError, Sealed};

use crate::base::roles::Models;
use crate::base::stop::Stopped;
use crate::device::DeviceError;
use crate::device::run_models::RunModels;
use crate::device::upload::{Staging, Upload, UploadProgress};
use crate::inputs::adapter::extent;
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::MicroBatch;

use super::{Session, read_columns};

/// Measures the distance of a teacher that has just been quantized, by its number.
fn measure(
    sealed: &mut Sealed,
    number: usize,
    columns: TokenComparison<Tensor>,
) -> Result<TokenComparison<Vec<f32>>, DriverError> {
    sealed.run(&certify_phase(number))?;
    read_columns(sealed, columns)
}

impl Session {
    /// True if a student that trains is sent as master weights. Where the run computes in the dtype in which it is
    /// stored, it is sent as it is, which halves the bytes.
    pub fn sent_wide(&self, student: &dyn Weights) -> bool {
        let weights = &self.plan.student.weights;
        let reads_masters = weights.is_rounded() || weights.reads_masters();
        weights.all.trained().is_some()
            && (reads_masters || student.dtype().map(Format::Dense) != Some(weights.all.tensor.format))
    }

    /// Returns the tensor that each parameter of the models is sent to.
    fn destinations(&self, sent_wide: bool) -> Models<Vec<(Parameter, Tensor)>> {
        let of = |model: &Resident| model.weights.list().map(|(one, weight)| (one.clone(), weight.tensor)).collect();
        let student = match sent_wide {
            true => self.plan.student.weights.states().map(|(one, _, own)| (one.clone(), own.master)).collect(),
            false => of(&self.plan.student),
        };
        let of_teacher = |teacher: &TeacherBuffers| match teacher {
            TeacherBuffers::Model(model) => of(model),
            TeacherBuffers::Cached(cached) => {
                cached.head().map(|head| (head.parameter.clone(), head.tensor())).into_iter().collect()
            }
            TeacherBuffers::Base | TeacherBuffers::Student => Vec::new(),
        };
        Models { teachers: self.plan.teachers.iter().map(of_teacher).collect(), student }
    }

    /// Bytes of the models' weights that are sent.
    pub fn upload_bytes(&self, models: &RunModels<impl Borrow<dyn Weights>>) -> u64 {
        let sent_wide = self.sent_wide(models.student());
        let sent = self.destinations(sent_wide);
        let student = Some(&self.plan.student).filter(|_| !sent_wide);
        let teachers = self.plan.teachers.iter().filter_map(TeacherBuffers::model);
        let staged = teachers.chain(student).flat_map(|model| &model.staged);
        let staged = staged.flat_map(|staged| &staged.parts);
        // After a head's rows come zeros that no file has.
        let of_file = |(one, tensor): &(Parameter, Tensor)| tensor.slice(0, one.elems()).bytes();
        sent.iter().flat_map(|(_, list)| list).chain(staged).map(of_file).sum()
    }

    /// Sends the models' weights and what follows from them. The optimizer starts from zero.
    ///
    /// # Errors
    /// [`DeviceError`] of the files or the device. `progress` is told the bytes sent, and may end it.
    pub fn upload(
        &mut self,
        models: &RunModels<impl Borrow<dyn Weights>>,
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<(), DeviceError> {
        self.upload_frozen(models, None, &mut progress)?;
        self.upload_student(models, progress)
    }

    /// Sends all but the student, as [`Self::upload`] does, and compares each teacher that is not exact with the exact
    /// one on the micro-batch of its number: returns the comparisons by their numbers. Behind it comes
    /// [`Self::upload_student`].
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn certify(
        &mut self,
        models: &RunModels<impl Borrow<dyn Weights>>,
        batches: &[MicroBatch],
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<Vec<Option<TokenComparison<Vec<f32>>>>, DeviceError> {
        self.upload_frozen(models, Some(batches), &mut progress)
    }

    /// Sends the tokens of a micro-batch that a start-up phase reads.
    fn send_tokens(&mut self, batch: &MicroBatch) -> Result<(), DriverError> {
        let inputs = self.plan.inputs;
        self.sealed.write(inputs.ids, bytemuck::cast_slice(&batch.ids))?;
        self.sealed.write(inputs.targets, bytemuck::cast_slice(&batch.targets))?;
        let sequences = inputs.sequences.words(&batch.lengths);
        self.sealed.write(inputs.sequences.all, bytemuck::cast_slice(&sequences))
    }

    /// True if adapters train on a base that is quantized.
    fn has_quantized_base(&self) -> bool {
        self.plan.adapters.is_some() && !self.plan.student.staged.is_empty()
    }

    /// The teachers, and a base that is quantized. Before all else: what is quantized lies meanwhile where what trains
    /// will. With a micro-batch for each teacher, measures those that are quantized.
    fn upload_frozen(
        &mut self,
        models: &RunModels<impl Borrow<dyn Weights>>,
        certified: Option<&[MicroBatch]>,
        progress: &mut UploadProgress<'_>,
    ) -> Result<Vec<Option<TokenComparison<Vec<f32>>>>, DeviceError> {
        let mut measured = Vec::new();
        for (number, weights) in models.teachers().enumerate() {
            let is_own = self.plan.teachers[number].model().is_some();
            let (staging, columns) = self.certifying(certified, Some(number).filter(|_| is_own))?;
            let mut upload = Upload::new(&mut self.sealed, weights, progress);
            match &self.plan.teachers[number] {
                TeacherBuffers::Model(model) => upload.model(model, staging)?,
                TeacherBuffers::Cached(cached) => {
                    if let Some(head) = cached.head() {
                        upload.parameters(&[(head.parameter.clone(), head.tensor())])?;
                    }
                }
                TeacherBuffers::Base | TeacherBuffers::Student => {}
            }
            // What comes next takes the memory of the exact one's hidden states.
            measured.push(columns.map(|columns| measure(&mut self.sealed, number, columns)).transpose()?);
        }
        if self.has_quantized_base() {
            let is_base = |number: &usize| self.plan.teachers[*number] == TeacherBuffers::Base;
            let bases: Vec<usize> = (0..measured.len()).filter(is_base).collect();
            let (staging, columns) = self.certifying(certified, bases.first().copied())?;
            Upload::new(&mut self.sealed, models.student(), progress).model(&self.plan.student, staging)?;
            if let Some(columns) = columns {
                let of_base = measure(&mut self.sealed, bases[0], columns)?;
                bases.into_iter().for_each(|number| measured[number] = Some(of_base.clone()));
            }
        }
        Ok(measured)
    }

    /// Sends the micro-batch on which a teacher is measured, if it is. Returns how it is sent then, and where the
    /// result is.
    fn certifying(
        &mut self,
        certified: Option<&[MicroBatch]>,
        number: Option<usize>,
    ) -> Result<(Staging, Option<TokenComparison<Tensor>>), DriverError> {
        let found = certified
            .zip(number)
            .and_then(|(batches, number)| Some((&batches[number], (*self.plan.certificates.get(number)?)?)));
        let Some((batch, columns)) = found else { return Ok((Staging::Quantize, None)) };
        self.send_tokens(batch)?;
        Ok((Staging::QuantizeAndCertify, Some(columns)))
    }

    /// Sends the student, the adapter and what follows from them: the last part of [`Self::upload`].
    ///
    /// # Errors
    /// As [`Self::upload`].
    pub fn upload_student(
        &mut self,
        models: &RunModels<impl Borrow<dyn Weights>>,
        mut progress: impl FnMut(u64) -> Result<(), Stopped>,
    ) -> Result<(), DeviceError> {
        let student = models.student();
        let sent_wide = self.sent_wide(student);
        let (sent, has_base) = (self.destinations(sent_wide), self.has_quantized_base());
        let mut upload = Upload::new(&mut self.sealed, student, &mut progress);
        upload.sealed.run(CLEAR)?;
        if !has_base {
            upload.tables(&self.plan.student)?;
        }
        // Weights that come narrow are widened on the device; the padding between them is that of the master weights.
        upload.sealed.run(CAST)?;
        if sent_wide && !self.plan.has_whole_masters() {
            upload.masters(&self.plan)?;
        } else if !has_base {
            upload.parameters(&sent.student)?;
            if !sent_wide {
                upload.staged(&self.plan.student.staged, Staging::Quantize)?;
            }
        }
        let Some((adapter, weights)) = models.adapter.as_ref().zip(self.plan.adapters.as_ref()) else {
            return Ok(self.sealed.run(if sent_wide { CAST } else { WIDEN })?);
        };
        let master = self.plan.trained().trained().expect("adapters train").master;
        for parameter in &weights.parameters.list {
            let place = master.slice(parameter.start, extent(parameter));
            self.sealed.write(place, bytemuck::cast_slice(&adapter.placed(parameter)?))?;
        }
        Ok(self.sealed.run(CAST)?)
    }
}
