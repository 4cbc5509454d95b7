//! The device that decodes: a sealed plan, its slots, and the rows that it computes.

use std::cell::Cell;

use precast_fatbins::Digest;
use precast_kernels::abi::{IDLE_SLOT, NO_TOKEN};
use precast_plan::generation::{BUCKETS, PREFILL, bucket, decode_phase};
use precast_plan::{GenerationPlan, Slots, Tensor};

use super::options::{Generation, MOST_SLOTS, SlotChoice};
use super::schedule::{Decoder, Progress, Row};
use super::sequences::Sequences;
use crate::device::DeviceError;
use crate::device::frozen::{Fits, Opened};
use crate::device::seal::SealedDevice;
use crate::options::WeightFormat;
use crate::programs::failure::Failure;
use crate::run::outcome::RunFault;

/// A word of a row.
type Column = fn(&Row) -> u32;

/// A sealed device with the model's weights and a pool of keys and values.
pub(super) struct DeviceDecoder {
    sealed: SealedDevice,
    plan: GenerationPlan,
}

impl DeviceDecoder {
    /// Opens the device with as many slots as are asked for, or as it has room for.
    ///
    /// # Errors
    /// [`Failure`] where it has no room for those asked for: in bytes, with the most that it has room for.
    pub fn open(request: &Generation, opened: &Opened, sequences: &Sequences) -> Result<Self, Failure> {
        let Generation { forward, slots: asked, .. } = request;
        let (count, seq_len) = (sequences.all.len() as u32, sequences.seq_len);
        let stops = opened.model.eos_tokens();
        let asked = match asked {
            SlotChoice::Count(asked) => *asked,
            SlotChoice::Auto => count.min(MOST_SLOTS),
        };
        // The most that the device has room for, as far as it was looked for.
        let most = Cell::new(0);
        let is_auto = request.slots == SlotChoice::Auto;
        let (plan, sealed) = forward
            .open_plan(opened, &request.data, |fits: Fits<'_, GenerationPlan>, student, arch| {
                let lower = |count| {
                    let slots = Slots { count, seq_len };
                    GenerationPlan::new(
                        student,
                        (slots, stops.len() as u32),
                        request.sampling(),
                        forward.precision(),
                        arch,
                    )
                };
                let found = choices(asked).into_iter().find(|count| lower(*count).is_ok_and(|plan| fits(&plan)));
                // A form that is not asked for is lowered to say what it would take.
                if student.formats.is_int8() == (forward.format == WeightFormat::Int8) {
                    most.set(most.get().max(found.unwrap_or_default()));
                }
                lower(found.filter(|_| is_auto).unwrap_or(asked))
            })
            .map_err(|error| too_many(error, (asked, seq_len), most.get()))?;
        let mut decoder = Self { sealed, plan };
        let words = decoder.plan.state.stops;
        decoder.sealed.write(words, bytemuck::cast_slice(&padded(&stops, words.elems)))?;
        Ok(decoder)
    }

    /// Slots, and rows at most.
    pub fn shape(&self) -> (u32, u32) {
        (self.plan.slots.count, self.plan.most_rows)
    }

    /// Digest of the kernels; none of the simulated GPU, which has none.
    pub fn kernels(&self) -> Option<Digest> {
        self.sealed.device().compute_capability.map(|_| self.sealed.bundle)
    }

    /// Writes the first `count` rows, those behind `rows` idle.
    fn write(&mut self, rows: &[Row], count: u32) -> Result<(), Failure> {
        let rows: Vec<Row> = rows.iter().copied().chain(std::iter::repeat(Row::IDLE)).take(count as usize).collect();
        let GenerationPlan { ids, rows: places, state, .. } = self.plan;
        let columns: [(Tensor, Column); 4] = [
            (ids, |row| row.id),
            (places.slots, |row| row.slot),
            (places.positions, |row| row.position),
            (state.ends, |row| row.end),
        ];
        let numbers: Vec<u64> = rows.iter().map(|row| row.sequence).collect();
        self.sealed.write(state.sequences.slice(0, 2 * u64::from(count)), bytemuck::cast_slice(&numbers))?;
        for (tensor, of) in columns {
            let values: Vec<u32> = rows.iter().map(of).collect();
            self.sealed.write(tensor.slice(0, count.into()), bytemuck::cast_slice(&values))?;
        }
        Ok(())
    }

    fn column(&mut self, tensor: Tensor, count: usize) -> Result<Vec<u32>, Failure> {
        Ok(bytemuck::pod_collect_to_vec(&self.sealed.read(tensor.slice(0, count as u64))?))
    }
}

impl Decoder for DeviceDecoder {
    type Error = Failure;

    fn prefill(&mut self, rows: &[Row]) -> Result<(), Failure> {
        self.write(rows, self.plan.most_rows)?;
        Ok(self.sealed.run(PREFILL)?)
    }

    fn decode(&mut self, rows: &[Row], steps: u32) -> Result<Vec<Progress>, Failure> {
        let bucket = bucket(rows.len() as u32);
        self.write(rows, bucket)?;
        let phase = decode_phase(bucket);
        for _ in 0..steps {
            self.sealed.run(&phase)?;
        }
        let GenerationPlan { ids, rows: places, state, .. } = self.plan;
        let columns = [places.slots, places.positions, ids, state.ends].map(|tensor| self.column(tensor, rows.len()));
        let [slots, positions, ids, ends] = columns;
        let (slots, positions, ids, ends) = (slots?, positions?, ids?, ends?);
        let each = rows.iter().zip(slots.iter().zip(&positions).zip(ids.iter().zip(&ends)));
        let progress = each.map(|(row, ((slot, position), (id, end)))| {
            if *end == NO_TOKEN {
                return Err(RunFault(format!(
                    "sequence {}: after {} tokens a logit is not finite. The weights are damaged or activations overflow: try \
                     --precision fp32, and check the model with precast eval",
                    row.sequence,
                    position + 1
                )));
            }
            Ok(Progress { length: position + 1, id: *id, ended: *slot == IDLE_SLOT })
        });
        Ok(progress.collect::<Result<_, _>>()?)
    }

    fn read(&mut self, slot: u32, first: u32, end: u32) -> Result<Vec<u32>, Failure> {
        let start = u64::from(slot) * u64::from(self.plan.slots.seq_len) + u64::from(first);
        let tokens = self.plan.state.tokens.slice(start, u64::from(end - first));
        Ok(bytemuck::pod_collect_to_vec(&self.sealed.read(tokens)?))
    }
}

/// Names the most slots that fit where those that are asked for do not.
fn too_many(error: DeviceError, (count, seq_len): (u32, u32), most: u32) -> Failure {
    let remedy = match most {
        0 => "not even one does: give a smaller --seq-len, or --format stored or int8".to_owned(),
        most => format!("--slots {most} does"),
    };
    let what = format!("{count} slots of {seq_len} tokens do not fit; {remedy}");
    Failure::from(match error {
        DeviceError::Memory { needed, free, device, table, .. } => DeviceError::Unfit(format!(
            "{what}: the plan takes {needed} bytes of device memory and {device} has {free} free\n{table}"
        )),
        // Its advice is of runs.
        DeviceError::Unfit(reason) if reason.contains("Use --recompute") => {
            let reason = reason.split("Use --recompute").next().unwrap_or_default();
            DeviceError::Unfit(format!("{what}\n{}", reason.trim_end()))
        }
        DeviceError::OneMemory { reason, .. } => DeviceError::Unfit(format!("{what}\n{reason}")),
        error => error,
    })
}

/// Numbers of slots to try, the largest first.
fn choices(most: u32) -> Vec<u32> {
    let smaller = BUCKETS.iter().rev().copied().chain([32, 16, 8, 4, 2, 1]);
    std::iter::once(most).chain(smaller.filter(|count| *count < most)).collect()
}

/// Words behind which none of a model's tokens is.
fn padded(stops: &[u32], count: u64) -> Vec<u32> {
    stops.iter().copied().chain(std::iter::repeat(NO_TOKEN)).take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_slots_as_fit_are_taken() {
        assert_eq!(choices(300), [300, 256, 128, 64, 32, 16, 8, 4, 2, 1]);
        assert_eq!(choices(1), [1]);
    }
}
