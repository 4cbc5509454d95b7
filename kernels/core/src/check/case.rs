//! A launch to check.

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::distance::{Distance, Mismatch, OutputFault, POISON, distance, integers, unequal, unwritten};
use super::draw::{positions, random, steps};
use crate::host::{Buffer, Views};
use crate::key::Key;
use crate::operand::{Access, Content, Operand};
use crate::reference::Tolerance;

/// A launch to check: a key, a parameter block with addresses 0, and the contents of its operands.
pub struct Case {
    /// Kernel that is launched.
    pub key: Key,
    /// Parameter block, addresses 0.
    pub params: Vec<u8>,
    /// Operands of the launch, in the order of the block.
    pub operands: Vec<Operand>,
    /// Contents of each operand before the launch.
    pub before: Vec<Buffer>,
}

/// Returns the content of an operand.
///
/// # Panics
/// If it does not come before the one that depends on it.
fn content_of<'a>(operands: &[Operand], before: &'a [Buffer], name: &str) -> &'a [u8] {
    let index = operands.iter().position(|other| other.name == name);
    &before[index.filter(|index| *index < before.len()).expect("it comes before")]
}

impl Case {
    /// Fills every operand that is read with random content, every other one with poison.
    pub fn new(key: &Key, params: &[u8], seed: u64) -> Self {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let operands = key.kernel().operands(params);
        let mut before: Vec<Buffer> = Vec::new();
        for operand in &operands {
            let content = match (operand.access, operand.content) {
                (Access::Write | Access::Scratch, _) => vec![POISON; operand.bytes() as usize],
                (_, Content::PositionsOf(name)) => positions(content_of(&operands, &before, name), &mut rng),
                (_, Content::Steps(name, bound, chunk)) => {
                    steps(content_of(&operands, &before, name), (bound, chunk), &mut rng)
                }
                (_, content) => random(operand, content, &mut rng),
            };
            before.push(Buffer::from(&content[..]));
        }
        Self { key: key.clone(), params: params.to_vec(), operands, before }
    }

    /// Returns each operand's contents after the launch, by the host reference.
    pub fn reference(&self) -> Vec<Buffer> {
        let mut after = self.before.clone();
        let mut views = Views::new();
        for (operand, bytes) in self.operands.iter().zip(&mut after) {
            if operand.access.writes() {
                views.push_write(operand, bytes);
            } else {
                views.push_read(operand, bytes);
            }
        }
        self.key.kernel().host(&self.params, &mut views);
        drop(views);
        after
    }

    /// Compares an operand after a launch with the reference. Scratch operands may hold anything.
    ///
    /// # Errors
    /// [`Mismatch`] if an element was not written, is beyond the kernel's tolerance, or is finite while the reference
    /// is not, or vice versa.
    pub fn compare(&self, operand: &Operand, out: &[u8], reference: &[u8]) -> Result<Distance, Mismatch> {
        self.compare_within(self.key.kernel().tolerance(operand), operand, out, reference)
    }

    /// Like [`Self::compare`], within another tolerance than the kernel's own.
    ///
    /// # Errors
    /// Those of [`Self::compare`].
    pub fn compare_within(
        &self,
        tolerance: Tolerance,
        operand: &Operand,
        out: &[u8],
        reference: &[u8],
    ) -> Result<Distance, Mismatch> {
        if operand.access == Access::Scratch {
            return Ok(Distance::NONE);
        }
        let fault = |fault| Mismatch { key: self.key.to_string(), operand: operand.name, fault };
        if let Some(unwritten) = unwritten(operand, out, reference) {
            return Err(fault(unwritten));
        }
        if let Some(integers) = integers(operand, out, reference).filter(|_| tolerance == Tolerance::EXACT) {
            return Err(fault(integers));
        }
        let distance = match unequal(operand, out, reference) {
            Some(index) => Distance { norm: f64::INFINITY, element: f64::INFINITY, index },
            None => distance(operand.format, out, reference, tolerance),
        };
        if distance.norm <= tolerance.norm && distance.element <= tolerance.element {
            Ok(distance)
        } else {
            Err(fault(OutputFault::Distance { distance, tolerance }))
        }
    }
}
