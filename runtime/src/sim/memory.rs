//! Memory of the simulated GPU.

use std::io;

use memmap2::MmapMut;
use precast_core::Operand;
use precast_core::check::POISON;
use precast_core::host::Views;

/// First device address: high enough that no offset is mistaken for one.
const BASE: u64 = 0x7f00_0000_0000;
/// Unmapped addresses between two allocations.
const GAP: u64 = 1 << 20;
const ALIGN: u64 = 256;

/// Allocations at increasing addresses with gaps between them.
#[derive(Default)]
pub(super) struct Memory {
    allocations: Vec<(u64, MmapMut)>,
}

impl Memory {
    pub fn bytes(&self) -> u64 {
        self.allocations.iter().map(|(_, buffer)| buffer.len() as u64).sum()
    }

    /// Allocates memory, filled with poison.
    pub fn allocate(&mut self, bytes: u64) -> io::Result<u64> {
        let end = self.allocations.last().map_or(BASE, |(address, buffer)| address + buffer.len() as u64 + GAP);
        let address = end.next_multiple_of(ALIGN);
        let mut memory = MmapMut::map_anon(bytes as usize)?;
        // Fewer, larger pages: each step touches a whole arena of gigabytes. Only a hint.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        memory.fill(POISON);
        self.allocations.push((address, memory));
        Ok(address)
    }

    /// Returns the allocation that holds a range, and the range's offset in it.
    fn find(&self, address: u64, bytes: u64) -> Option<(usize, usize)> {
        let index = self.allocations.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, buffer) = &self.allocations[index];
        let offset = address - start;
        (offset.checked_add(bytes)? <= buffer.len() as u64).then_some((index, offset as usize))
    }

    pub fn slice_mut(&mut self, address: u64, bytes: u64) -> Option<&mut [u8]> {
        let (index, offset) = self.find(address, bytes)?;
        Some(&mut self.allocations[index].1[offset..offset + bytes as usize])
    }

    /// Returns views of a launch's operands: each inside one live allocation, overlapping no other unless both are only
    /// read.
    pub fn views(&mut self, operands: &[Operand], params: &[u8]) -> Result<Views<'_>, String> {
        struct OperandPlace<'o> {
            operand: &'o Operand,
            allocation: usize,
            start: usize,
            end: usize,
        }
        let mut places = Vec::with_capacity(operands.len());
        for operand in operands {
            let address: u64 = bytemuck::pod_read_unaligned(&params[operand.offset..operand.offset + 8]);
            let name = operand.name;
            if !address.is_multiple_of(operand.format.align()) {
                return Err(format!(
                    "operand `{name}` at {address:#x} is not aligned to its format {}",
                    operand.format
                ));
            }
            let Some((allocation, start)) = self.find(address, operand.bytes()) else {
                let bytes = operand.bytes();
                return Err(format!("operand `{name}`, {bytes} bytes at {address:#x}, is not inside an allocation"));
            };
            places.push(OperandPlace { operand, allocation, start, end: start + operand.bytes() as usize });
        }
        places.sort_by_key(|place| (place.allocation, place.start));

        let mut views = Views::new();
        let mut places = places.into_iter().peekable();
        for (index, (_, buffer)) in self.allocations.iter_mut().enumerate() {
            let mut rest: &mut [u8] = buffer;
            let mut taken = 0;
            while let Some(first) = places.next_if(|place| place.allocation == index) {
                // Overlapping read-only operands share one slice.
                let mut group = vec![first];
                let mut end = group[0].end;
                while let Some(next) = places.next_if(|place| place.allocation == index && place.start < end) {
                    end = end.max(next.end);
                    group.push(next);
                }
                if group.len() > 1 && group.iter().any(|place| place.operand.access.writes()) {
                    let names: Vec<&str> = group.iter().map(|place| place.operand.name).collect();
                    return Err(format!("operands {} overlap and one of them is written", names.join(", ")));
                }
                let start = group[0].start;
                let (head, tail) = rest.split_at_mut(end - taken);
                rest = tail;
                let slice = &mut head[start - taken..];
                taken = end;
                if group[0].operand.access.writes() {
                    views.push_write(group[0].operand, slice);
                } else {
                    let slice: &[u8] = slice;
                    for place in &group {
                        views.push_read(place.operand, &slice[place.start - start..place.end - start]);
                    }
                }
            }
        }
        Ok(views)
    }
}

#[cfg(test)]
mod tests {
    use precast_core::{Access, Content, Dtype};

    use super::*;

    fn operand(name: &'static str, offset: usize, access: Access, elems: u64) -> Operand {
        Operand { name, offset, access, format: Dtype::F32.into(), elems, content: Content::Normal(1.0) }
    }

    fn params(addresses: [u64; 2]) -> Vec<u8> {
        bytemuck::cast_slice(&addresses).to_vec()
    }

    #[test]
    fn fresh_memory_is_nan() {
        let mut memory = Memory::default();
        let address = memory.allocate(8).unwrap();
        let bytes = memory.slice_mut(address, 8).unwrap();
        assert!(bytemuck::cast_slice::<u8, f32>(bytes).iter().all(|value| value.is_nan()));
    }

    #[test]
    fn accesses_are_checked() {
        let mut memory = Memory::default();
        let (a, b) = (memory.allocate(64).unwrap(), memory.allocate(64).unwrap());
        let read = operand("x", 0, Access::Read, 8);
        let write = operand("y", 8, Access::Write, 8);
        let result = |memory: &mut Memory, addresses| {
            memory.views(&[read, write], &params(addresses)).map(|_| ()).map_err(|reason| {
                reason.split("0x").next().unwrap_or_default().to_owned()
                    + reason.rsplit(", ").next().unwrap_or_default()
            })
        };
        assert_eq!(result(&mut memory, [a, b]), Ok(()));
        assert_eq!(result(&mut memory, [a, a + 32]), Ok(()));
        assert!(result(&mut memory, [a, a + 28]).unwrap_err().contains("overlap"));
        assert!(result(&mut memory, [a, a + 36]).unwrap_err().contains("not inside an allocation"));
        assert!(result(&mut memory, [a + 2, b]).unwrap_err().contains("not aligned"));
        assert!(result(&mut memory, [0, b]).unwrap_err().contains("not inside an allocation"));
        assert!(result(&mut memory, [a + 64, b]).unwrap_err().contains("not inside an allocation"));
    }

    #[test]
    fn reads_may_overlap() {
        let mut memory = Memory::default();
        let a = memory.allocate(64).unwrap();
        memory
            .slice_mut(a, 64)
            .unwrap()
            .copy_from_slice(bytemuck::cast_slice(&std::array::from_fn::<f32, 16, _>(|i| i as f32)));
        let operands = [operand("x", 0, Access::Read, 8), operand("y", 8, Access::Read, 8)];
        let mut views = memory.views(&operands, &params([a, a + 16])).unwrap();
        assert_eq!(views.read::<f32>("x")[7], 7.0);
        assert_eq!(views.read::<f32>("y")[0], 4.0);
    }
}
