//! A launch as a kernel's description has it: operands with nothing of their own around them.

use precast_core::check::POISON;
use precast_core::host::Buffer;
use precast_core::{Geometry, Operand, TensorMap};

use crate::launch;
use crate::program::Program;
use crate::report::Report;

/// Bytes before and behind each operand that belong to nothing: a page, so that what is near an operand is near no
/// other.
const GUARD: usize = 4096;
/// Alignment of operands, bytes: no access is wider.
const ALIGN: usize = 16;

/// `TensorMap` of the machine, in place of what the CUDA driver encodes.
const MAP: u64 = 0x7061_6d20_736e_6574;

/// Puts tensor maps into a parameter block that has the operands' addresses.
pub(crate) fn encode(maps: &[TensorMap], params: &mut [u8]) {
    for map in maps {
        let address: [u8; 8] = params[map.address..][..8].try_into().expect("eight bytes");
        let numbers = [map.shape, map.box_shape].concat();
        let numbers = numbers.into_iter().chain([map.dtype.bytes() as u32]).flat_map(u32::to_le_bytes);
        let bytes = MAP.to_le_bytes().into_iter().chain(address).chain(numbers);
        params[map.offset..].iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
    }
}

/// Executes a launch. `memory` holds what each operand holds, before and after it; of the addresses in the parameter
/// block only their alignment counts.
///
/// # Errors
/// A [`Report`] of the first thing that is wrong; the launch ends there.
pub fn execute(
    program: &Program,
    geometry: &Geometry,
    params: &[u8],
    operands: &[Operand],
    maps: &[TensorMap],
    memory: &mut [Buffer],
    seed: u64,
) -> Result<(), Box<Report>> {
    let mut params = params.to_vec();
    let mut guarded: Vec<(usize, Buffer)> = Vec::new();
    for (operand, bytes) in operands.iter().zip(&*memory) {
        let address = &mut params[operand.offset..][..8];
        let start = GUARD + usize::from(address[0]) % ALIGN;
        let mut buffer = Buffer::filled(start + bytes.len() + GUARD, POISON);
        buffer[start..][..bytes.len()].copy_from_slice(bytes);
        address.copy_from_slice(&(buffer.as_ptr() as u64 + start as u64).to_le_bytes());
        guarded.push((start, buffer));
    }
    encode(maps, &mut params);
    let mut seen: Vec<launch::Operand<'_>> = operands
        .iter()
        .zip(&mut guarded)
        .map(|(operand, (start, buffer))| launch::Operand {
            name: operand.name,
            bytes: &mut buffer[*start..][..operand.bytes() as usize],
            writable: operand.access.writes(),
            written: operand.access.reads(),
        })
        .collect();
    program.launch(geometry, &params, &mut seen, seed)?;
    seen.iter().zip(memory).for_each(|(after, bytes)| bytes.copy_from_slice(after.bytes));
    Ok(())
}
