//! The slots of a decoding stage on its device.

use precast_kernels::abi::{IDLE_SLOT, NO_TOKEN};
use precast_plan::cache::RowState;
use precast_plan::decoding::{MOST_STOPS, bucket, decode_phase, prefill_phase};
use precast_plan::{Decoding, Tensor};
use precast_runtime::{DriverError, Sealed};

use super::DecodeError;
use super::schedule::{self, Decoder, Drawn, Row, RowProgress, Sequence};

/// A word of a row.
type Column = fn(&Row) -> u32;

/// The slots of a decoding stage on its device.
pub(crate) struct DecodingDevice<'a> {
    sealed: &'a mut Sealed,
    decoding: Decoding,
}

impl<'a> DecodingDevice<'a> {
    /// Takes a stage whose sequences end with one of `stops`.
    ///
    /// # Errors
    /// [`DecodeError`] of more of them than a stage compares, and of the device.
    pub fn new(sealed: &'a mut Sealed, decoding: Decoding, stops: &[u32]) -> Result<Self, DecodeError> {
        let mut words = [NO_TOKEN; MOST_STOPS as usize];
        words.get_mut(..stops.len()).ok_or(DecodeError::Stops(stops.len()))?.copy_from_slice(stops);
        sealed.write(decoding.state.stops, bytemuck::cast_slice(&words))?;
        Ok(Self { sealed, decoding })
    }

    /// Completes sequences; `done` is given each with its completion, in their order.
    ///
    /// # Errors
    /// [`DecodeError`], and those of `done`.
    pub fn complete<E: From<DecodeError>>(
        &mut self,
        sequences: impl IntoIterator<Item = Sequence>,
        done: impl FnMut(Sequence, Drawn) -> Result<(), E>,
    ) -> Result<(), E> {
        let shape = (self.decoding.slots.count, self.decoding.prefill);
        schedule::run(self, shape, sequences, done)
    }

    /// Writes the first `count` rows, those behind `rows` idle.
    fn write(&mut self, rows: &[Row], count: u32) -> Result<(), DriverError> {
        let rows: Vec<Row> = rows.iter().copied().chain(std::iter::repeat(Row::IDLE)).take(count as usize).collect();
        let Decoding { ids, rows: places, state, .. } = self.decoding;
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

    fn column(&mut self, tensor: Tensor, count: usize) -> Result<Vec<u32>, DriverError> {
        Ok(bytemuck::pod_collect_to_vec(&self.sealed.read(tensor.slice(0, count as u64))?))
    }
}

impl Decoder for DecodingDevice<'_> {
    type Error = DecodeError;

    fn prefill(&mut self, rows: &[Row]) -> Result<(), DecodeError> {
        let count = self.decoding.prefill.phase_of(rows.len());
        self.write(rows, count)?;
        Ok(self.sealed.run(&prefill_phase(count))?)
    }

    fn decode(&mut self, rows: &[Row], steps: u32) -> Result<Vec<RowProgress>, DecodeError> {
        let bucket = bucket(rows.len() as u32);
        self.write(rows, bucket)?;
        let phase = decode_phase(bucket);
        for _ in 0..steps {
            self.sealed.run(&phase)?;
        }
        let Decoding { ids, rows: places, state, .. } = self.decoding;
        let columns = [places.slots, places.positions, ids, state.ends].map(|tensor| self.column(tensor, rows.len()));
        let [slots, positions, ids, ends] = columns;
        let (slots, positions, ids, ends) = (slots?, positions?, ids?, ends?);
        let each = rows.iter().zip(slots.iter().zip(&positions).zip(ids.iter().zip(&ends)));
        each.map(|(row, ((slot, position), (id, end)))| match *end {
            NO_TOKEN => Err(DecodeError::NotFinite { sequence: row.sequence, position: position + 1 }),
            _ => Ok(RowProgress { length: position + 1, id: *id, ended: *slot == IDLE_SLOT }),
        })
        .collect()
    }

    fn read(&mut self, slot: u32, first: u32, end: u32) -> Result<Drawn, DecodeError> {
        let start = u64::from(slot) * u64::from(self.decoding.slots.seq_len) + u64::from(first);
        let RowState { tokens, log_probs, lses, .. } = self.decoding.state;
        let mut part = |of: Tensor| self.sealed.read(of.slice(start, u64::from(end - first)));
        let [ids, log_probs, lses] = [part(tokens)?, part(log_probs)?, part(lses)?];
        let scores = |bytes: &[u8]| bytemuck::pod_collect_to_vec(bytes);
        let (log_probs, lses) = (scores(&log_probs), scores(&lses));
        Ok(Drawn { ids: bytemuck::pod_collect_to_vec(&ids), log_probs, lses })
    }
}
