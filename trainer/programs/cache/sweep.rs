//! A teacher that does not fit: its layers pass through the device one after the other, each computing while the next
//! arrives.

use std::time::Instant;

use precast_plan::{Parameter, SweepPlan, Tensor, human_bytes};
use precast_system::progress::{Progress, Unit};

use super::engine::{Emit, Engine, Opening, read_rows};
use super::pass::Pass;
use super::sequences::{Micro, laid_out, taken};
use crate::base::notes::note;
use crate::device::DeviceError;
use crate::device::seal::SealedDevice;
use crate::device::upload::Upload;
use crate::inputs::checkpoint::{Checkpoint, Scratch};
use crate::inputs::data::Places;
use crate::inputs::teacher_cache::Made;
use crate::options::Patience;
use crate::run::failure::Failure;

/// Tokens of each sequence, of each batch of a block.
type Lengths = Vec<Vec<u32>>;

/// A teacher of which two layers are on the device.
pub(super) struct Sweep<'a> {
    plan: SweepPlan,
    /// Blocks of streams of a pass: one stays on the device, more are spilled to host memory.
    blocks: usize,
    /// True if all micro-batches are computed in one pass.
    is_whole: bool,
    sealed: SealedDevice,
    teacher: &'a Checkpoint,
    made: &'a Made,
    of_micro: Places,
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
    pub fn open(opening: Opening<'a>, pass: Pass) -> Result<Self, DeviceError> {
        let Opening { request, teacher, made, .. } = opening;
        let spilled = pass.spilled_bytes();
        let Pass { plan, blocks, is_whole } = pass;
        // A layer takes as long as it has tokens, and no step before says how long.
        let mut fit = opening.fit_sweep(plan, spilled);
        let mut sealed = opening.seal(&mut fit, (Some(Patience::None), spilled))?;
        let plan = fit.plan;
        Upload::new(&mut sealed, teacher, &mut |_| Ok(())).tables(&plan.first)?;
        let (of_micro, scratch) = (request.places(), None);
        let mut sweep = Self { plan, blocks, is_whole, sealed, teacher, made, of_micro, scratch, is_first: true };
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

    /// Dequantizes what of a layer is in blocks, once all of it has been sent.
    fn dequantize(&mut self, layer: u32) -> Result<(), DeviceError> {
        let phases: Vec<String> = self.plan.layer(layer).filter_map(|(.., phase)| phase).collect();
        Ok(phases.iter().try_for_each(|phase| self.sealed.run(phase))?)
    }

    /// Takes the streams of all batches through the layers, block after block of these sequences, and sends a part of
    /// the next layer beside each.
    fn layers(&mut self, micros: usize, sequences: &[Lengths]) -> Result<(), DeviceError> {
        let (layers, blocks) = (self.teacher.config().depth(), sequences.len());
        let progress = Progress::start("sweep", Unit::Things("layers"));
        let of_layer = |plan: &SweepPlan, layer| -> Vec<(Parameter, Tensor)> {
            plan.layer(layer).map(|(parameter, place, _)| (parameter, place)).collect()
        };
        self.send(&of_layer(&self.plan, 0))?;
        self.dequantize(0)?;
        for layer in 0..layers {
            let next = if layer + 1 < layers { of_layer(&self.plan, layer + 1) } else { Vec::new() };
            let is_measured = std::mem::take(&mut self.is_first) && !next.is_empty();
            for block in 0..blocks {
                let (number, begun) = (layer as usize * blocks + block, Instant::now());
                self.sealed.run_beside(&self.plan.layer_phase(layer, number % self.plan.places.len()))?;
                if is_measured && block == 0 {
                    self.wait()?;
                    let computed = Instant::now();
                    let bytes = self.send(&next)?;
                    self.dequantize(layer + 1)?;
                    self.wait()?;
                    let seconds = [(computed - begun) * blocks as u32, computed.elapsed()];
                    progress.suspend(|| self.say_rates(micros, bytes, seconds.map(|time| time.as_secs_f64())));
                }
                self.copy_beside(number, layers as usize * blocks, sequences)?;
                if !is_measured {
                    self.send(&next[next.len() * block / blocks..next.len() * (block + 1) / blocks])?;
                }
            }
            if !is_measured && !next.is_empty() {
                self.dequantize(layer + 1)?;
            }
            progress.set(u64::from(layer) + 1, layers.into());
        }
        Ok(())
    }

    /// Copies the block before to host memory while one computes, and then the next from there to the same place.
    /// Blocks are numbered over all layers, of which there are `end`; behind the last there is none.
    fn copy_beside(&mut self, number: usize, end: usize, sequences: &[Lengths]) -> Result<(), DeviceError> {
        let blocks = sequences.len();
        if blocks > 1 {
            let other = self.plan.places[(number + 1) % 2];
            if number > 0 {
                self.sealed.spill(other, other.bytes() * ((number - 1) % blocks) as u64)?;
            }
            if number + 1 < end {
                self.sealed.fetch(other, other.bytes() * ((number + 1) % blocks) as u64)?;
                self.send_sequences((number + 1) % 2, &sequences[(number + 1) % blocks])?;
            }
        }
        Ok(())
    }

    /// Waits for all work so far.
    fn wait(&mut self) -> Result<(), DeviceError> {
        let (_, norm) = self.plan.norm();
        self.sealed.read(norm).map(drop).map_err(DeviceError::from)
    }

    /// Says how long a layer of so many bytes takes to compute and to arrive, and which of them decides: without copies
    /// of spilled blocks.
    fn say_rates(&self, micros: usize, bytes: u64, [compute_s, arrive_s]: [f64; 2]) {
        let layers = f64::from(self.teacher.config().depth());
        let tokens = (micros * self.of_micro.count()) as f64;
        let decides = match (compute_s < arrive_s, self.is_whole) {
            (false, _) => "arithmetic decides",
            (true, true) => "the disk decides",
            (true, false) => "the disk decides, and with more --memory or --spill a pass has more tokens",
        };
        note(format_args!(
            "a layer of {} ({bytes} bytes) arrives in {arrive_s:.3} s, {:.2} GB/s, and computes in {compute_s:.3} s, \
            {:.0} tokens/s of \
             all layers: {decides}",
            human_bytes(bytes),
            bytes as f64 / arrive_s / 1e9,
            tokens / compute_s / layers,
        ));
    }

    /// Sends the ids of a block, and embeds them in the first place. Returns its sequences.
    fn embed(&mut self, micros: &[Micro]) -> Result<Lengths, DeviceError> {
        let mut lengths = Vec::new();
        for (index, ids) in self.plan.ids.iter().enumerate() {
            // All are computed, those that lack sequences too.
            let batch = laid_out(micros.get(index).map_or(&[], |micro| &**micro), self.of_micro);
            self.sealed.write(*ids, bytemuck::cast_slice(&batch.ids))?;
            lengths.push(batch.lengths);
        }
        self.sealed.run(SweepPlan::EMBED)?;
        Ok(lengths)
    }

    /// Sends the sequences of the block in a place.
    fn send_sequences(&mut self, place: usize, lengths: &Lengths) -> Result<(), DeviceError> {
        for (sequences, lengths) in self.plan.sequences[place].iter().zip(lengths) {
            self.sealed.write(sequences.all, bytemuck::cast_slice(&sequences.words(lengths)))?;
        }
        Ok(())
    }
}

impl Engine for Sweep<'_> {
    fn micros(&self) -> usize {
        self.blocks * self.plan.ids.len()
    }

    fn rows(&mut self, micros: &[Micro], emit: &mut Emit<'_>) -> Result<(), Failure> {
        let (of_block, first) = (self.plan.ids.len(), self.plan.places[0]);
        // While one of two computes the other is copied.
        let blocks = micros.len().div_ceil(of_block).max(self.plan.places.len());
        let own = |block: usize| micros.chunks(of_block).nth(block).unwrap_or_default();
        let start = |block: usize| first.bytes() * block as u64;
        let embedding = [self.plan.embedding.clone()];
        self.send(&embedding)?;
        let mut sequences = Vec::new();
        for block in 0..blocks {
            sequences.push(self.embed(own(block))?);
            if blocks > 1 {
                self.sealed.spill(first, start(block))?;
            }
        }
        if blocks > 1 {
            self.sealed.fetch(first, 0)?;
        }
        self.send_sequences(0, &sequences[0])?;
        self.layers(micros.len(), &sequences)?;
        if blocks > 1 {
            self.sealed.wait_beside()?;
            let last = self.teacher.config().layers.len() * blocks - 1;
            self.sealed.spill(self.plan.places[last % 2], start(blocks - 1))?;
        }
        for block in 0..blocks {
            if blocks > 1 {
                self.sealed.fetch(first, start(block))?;
            }
            for (index, micro) in own(block).iter().enumerate() {
                self.sealed.run(&SweepPlan::norm_phase(index))?;
                let places = (taken(micro), self.of_micro.count());
                emit(read_rows(&mut self.sealed, &self.plan.results[index], places, self.made)?)?;
            }
        }
        Ok(())
    }
}
