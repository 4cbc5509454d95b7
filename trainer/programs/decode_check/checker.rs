//! The device that computes sequences whole, decodes them, and compares.

use precast_kernels::Dtype;
use precast_kernels::abi::IDLE_SLOT;
use precast_plan::decoding::{bucket, decode_phase, prefill_phase};
use precast_plan::{DecodeCheckBuffers, DecodeCheckPlan, Slots, Student, Tensor, evaluation};

use super::sequences::{CheckedRow, CheckedSequence};
use super::{Compared, DecodeCheck, DifferingToken};
use crate::device::frozen::{FrozenRequest, Opened};
use crate::device::seal::SealedDevice;
use crate::run::failure::Failure;
use crate::run::outcome::RunFault;

/// Tokens of a sequence where nothing is said.
const SEQ_LEN: u32 = 128;

/// A sealed device with a model's weights, a pool of keys and values, and the logits of the forward pass.
pub struct DecodeChecker {
    pub sealed: SealedDevice,
    pub plan: DecodeCheckPlan,
}

/// A column of rows, and the value of those that compute nothing.
type Column = (Tensor, fn(&CheckedRow) -> u32, u32);

impl DecodeChecker {
    /// Opens the device.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn open(request: &DecodeCheck, opened: &Opened) -> Result<Self, Failure> {
        let DecodeCheck { forward, rows, seq_len, .. } = request;
        let seq_len = seq_len.unwrap_or(SEQ_LEN.min(opened.model.config().max_positions));
        let slots = Slots { count: *rows, seq_len };
        let lower =
            |student: Student<'_>, _: u32, arch| DecodeCheckPlan::new(student, slots, forward.precision(), arch);
        let what = |_| format!("{rows} sequences of {seq_len} tokens do not fit: give smaller --rows or --seq-len");
        let (plan, sealed) =
            forward.open_plan(opened, &[], FrozenRequest { lower: &lower, slots: None, what: &what }, |_| ())?;
        Ok(Self { sealed, plan })
    }

    /// Computes sequences whole, and forgets earlier counts.
    ///
    /// # Errors
    /// [`Failure`], where a logit of the first token is not finite: bits of such prove nothing.
    pub fn score(&mut self, sequences: &[CheckedSequence]) -> Result<(), Failure> {
        let DecodeCheckBuffers { sequences: tokens, whole, counts, expected, slots, .. } = self.plan.buffers;
        let mut ids = vec![0; tokens.elems as usize];
        for CheckedSequence { slot, ids: own, .. } in sequences {
            ids[(slot * slots.seq_len) as usize..][..own.len()].copy_from_slice(own);
        }
        self.sealed.write(tokens, bytemuck::cast_slice(&ids))?;
        ids.fill(0);
        for counts in [counts.compared, counts.differing] {
            self.sealed.write(counts, bytemuck::cast_slice(&ids))?;
        }
        self.sealed.write(whole.all, bytemuck::cast_slice(&whole.full()))?;
        self.sealed.run(evaluation::SCORE)?;
        let row = self.sealed.read(expected.slice(0, expected.elems / tokens.elems))?;
        let is_finite = match expected.format == Dtype::F32 {
            true => bytemuck::pod_collect_to_vec::<u8, f32>(&row).into_iter().all(f32::is_finite),
            false => bytemuck::pod_collect_to_vec::<u8, half::bf16>(&row).into_iter().all(half::bf16::is_finite),
        };
        if !is_finite {
            return Err(RunFault("the model's logits are not finite: nothing is compared".to_owned()).into());
        }
        Ok(())
    }

    /// Writes the first `count` rows, those behind `rows` idle.
    fn write(&mut self, rows: &[CheckedRow], count: u32) -> Result<(), Failure> {
        let DecodeCheckBuffers { ids, rows: places, .. } = self.plan.buffers;
        let columns: [Column; 3] = [
            (ids, |row| row.id, 0),
            (places.slots, |row| row.slot, IDLE_SLOT),
            (places.positions, |row| row.position, 0),
        ];
        for (tensor, of, idle) in columns {
            let values = rows.iter().map(of).chain(std::iter::repeat(idle));
            let values: Vec<u32> = values.take(count as usize).collect();
            self.sealed.write(tensor.slice(0, count.into()), bytemuck::cast_slice(&values))?;
        }
        Ok(())
    }

    /// Stores keys and values of tokens of prompts.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn prefill(&mut self, rows: &[CheckedRow]) -> Result<(), Failure> {
        let count = self.plan.prefill.phase_of(rows.len());
        self.write(rows, count)?;
        Ok(self.sealed.run(&prefill_phase(count))?)
    }

    /// Decodes a token of each row, and compares its logits.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn decode(&mut self, rows: &[CheckedRow]) -> Result<(), Failure> {
        let bucket = bucket(rows.len() as u32);
        self.write(rows, bucket)?;
        Ok(self.sealed.run(&decode_phase(bucket))?)
    }

    /// Returns what was compared of these sequences, whose first has this number; tokens are in order of their
    /// positions.
    ///
    /// # Errors
    /// [`Failure`], where a token was to be decoded and its logits were not compared.
    pub fn compared(&mut self, sequences: &[CheckedSequence], first: u64) -> Result<Compared, Failure> {
        let DecodeCheckBuffers { counts, slots, expected, .. } = self.plan.buffers;
        let mut read = |tensor| Ok::<Vec<u32>, Failure>(bytemuck::pod_collect_to_vec(&self.sealed.read(tensor)?));
        let (compared, differing) = (read(counts.compared)?, read(counts.differing)?);
        let columns = expected.elems / counts.compared.elems;
        let mut result = Compared::default();
        let of_position = |position| (first..).zip(sequences).filter(move |(_, one)| one.decodes(position));
        for (position, (sequence, one)) in
            (0..slots.seq_len).flat_map(|position| of_position(position).map(move |one| (position, one)))
        {
            let place = (one.slot * slots.seq_len + position) as usize;
            let (compared, differing) = (u64::from(compared[place]), differing[place]);
            if compared != columns {
                let what = format!("{compared} of {columns} logits of sequence {sequence} at position {position}");
                return Err(RunFault(format!("{what} were compared")).into());
            }
            result += Compared {
                tokens: 1,
                compared,
                differing: differing.into(),
                first: (differing > 0).then_some(DifferingToken { sequence, position, differing }),
            };
        }
        Ok(result)
    }
}
