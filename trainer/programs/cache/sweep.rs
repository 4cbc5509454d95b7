//! A teacher that does not fit: its layers pass through the device one after the other, each computing while the next
//! arrives.

use std::sync::Arc;
use std::time::Instant;

use precast_plan::{Parameter, SweepPlan, Tensor, human_bytes};
use precast_system::progress::{Progress, Unit};

use super::engine::{Emit, Engine, Opening, read_rows};
use super::sequences::{Sequence, laid_out};
use crate::base::notes::note;
use crate::device::DeviceError;
use crate::device::seal::SealedDevice;
use crate::device::upload::Upload;
use crate::inputs::checkpoint::{Checkpoint, Scratch};
use crate::inputs::teacher_cache::Made;
use crate::options::Patience;
use crate::programs::failure::Failure;

/// A teacher of which two layers are on the device.
pub(super) struct Sweep<'a> {
    plan: SweepPlan,
    sealed: SealedDevice,
    teacher: &'a Checkpoint,
    made: &'a Made,
    batch: usize,
    /// Memory that weights are converted in.
    scratch: Option<Scratch>,
    /// True before the first pass, whose first layers are measured.
    is_first: bool,
}

impl<'a> Sweep<'a> {
    /// Seals a plan, and sends the weights that stay.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(opening: Opening<'a>, mut plan: SweepPlan) -> Result<Self, DeviceError> {
        let Opening { request, teacher, made, .. } = opening;
        // A layer takes as long as it has tokens, and no step before says how long.
        let mut sealed = opening.seal(&mut plan.plan, &plan.first, Some(Patience::None))?;
        Upload::new(&mut sealed, teacher, &mut |_| Ok(())).tables(&plan.first)?;
        let batch = request.shape.batch_size as usize;
        let mut sweep = Self { plan, sealed, teacher, made, batch, scratch: None, is_first: true };
        let head = sweep.plan.head.as_ref().map(|head| (head.parameter.clone(), head.tensor()));
        let stays: Vec<(Parameter, Tensor)> = head.into_iter().chain([sweep.plan.norm()]).collect();
        sweep.send(&stays)?;
        Ok(sweep)
    }

    /// Sends parameters to their places; returns their bytes there.
    fn send(&mut self, parameters: &[(Parameter, Tensor)]) -> Result<u64, DeviceError> {
        let progress = &mut |_| Ok(());
        let mut upload = Upload::new(&mut self.sealed, self.teacher, progress).reusing(self.scratch.take());
        upload.parameters(parameters)?;
        self.scratch = Some(upload.into_scratch());
        Ok(parameters.iter().map(|(_, tensor)| tensor.bytes()).sum())
    }

    /// Sends a layer while the one before computes, and then dequantizes what of it is in blocks.
    fn send_layer(&mut self, layer: u32) -> Result<u64, DeviceError> {
        let (mut parameters, mut phases) = (Vec::new(), Vec::new());
        for (parameter, place, phase) in self.plan.layer(layer) {
            parameters.push((parameter, place));
            phases.extend(phase);
        }
        let bytes = self.send(&parameters)?;
        phases.iter().try_for_each(|phase| self.sealed.run(phase))?;
        Ok(bytes)
    }

    /// Takes the streams of all batches through the layers.
    fn layers(&mut self, sequences: usize) -> Result<(), DeviceError> {
        let layers = self.teacher.config().layers;
        let progress = Progress::start("sweep", Unit::Things("layers"));
        self.send_layer(0)?;
        for layer in 0..layers {
            let begun = Instant::now();
            self.sealed.run_beside(&SweepPlan::layer_phase(layer))?;
            let is_measured = std::mem::take(&mut self.is_first) && layer + 1 < layers;
            if is_measured {
                self.wait()?;
            }
            let computed = Instant::now();
            let bytes = if layer + 1 < layers { self.send_layer(layer + 1)? } else { 0 };
            if is_measured {
                self.wait()?;
                let seconds = [computed - begun, computed.elapsed()].map(|time| time.as_secs_f64());
                progress.suspend(|| self.say_rates(sequences, bytes, seconds));
            }
            progress.set(u64::from(layer) + 1, layers.into());
        }
        Ok(())
    }

    /// Waits for all work so far.
    fn wait(&mut self) -> Result<(), DeviceError> {
        let (_, norm) = self.plan.norm();
        self.sealed.read(norm).map(drop).map_err(DeviceError::from)
    }

    /// Says how long a layer of so many bytes takes to compute and to arrive, and which of them decides.
    fn say_rates(&self, sequences: usize, bytes: u64, [compute_s, arrive_s]: [f64; 2]) {
        let layers = f64::from(self.teacher.config().layers);
        let tokens = sequences as f64 * f64::from(self.plan.ids[0].elems as u32) / self.batch as f64;
        note(format_args!(
            "a layer of {} ({bytes} bytes) arrives in {arrive_s:.3} s, {:.2} GB/s, and computes in {compute_s:.3} s, {:.0} tokens/s of \
             all layers: {} decides",
            human_bytes(bytes),
            bytes as f64 / arrive_s / 1e9,
            tokens / compute_s / layers,
            if compute_s < arrive_s { "the disk" } else { "arithmetic" }
        ));
    }
}

impl Engine for Sweep<'_> {
    fn sequences(&self) -> usize {
        self.plan.ids.len() * self.batch
    }

    fn rows(&mut self, sequences: &[Arc<Sequence>], emit: &mut Emit<'_>) -> Result<(), Failure> {
        let mut batches = sequences.chunks(self.batch);
        for ids in &self.plan.ids {
            // All are computed, those that lack sequences too.
            let own = batches.next().unwrap_or_default();
            self.sealed.write(*ids, bytemuck::cast_slice(&laid_out(own, ids.elems)))?;
        }
        let embedding = [self.plan.embedding.clone()];
        self.send(&embedding)?;
        self.sealed.run(SweepPlan::EMBED)?;
        self.layers(sequences.len())?;
        for (index, sequences) in sequences.chunks(self.batch).enumerate() {
            self.sealed.run(&SweepPlan::norm_phase(index))?;
            let count = (sequences.len(), self.batch);
            emit(sequences.len(), read_rows(&mut self.sealed, &self.plan.results[index], count, self.made)?)?;
        }
        Ok(())
    }
}
