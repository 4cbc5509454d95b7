//! What a phase holds: work for the device, the buffers it touches, and what it waits for.
//!
//! A launch's parameter block holds *virtual addresses* ([`Tensor::address`]). Binding replaces them by real ones;
//! nothing else about a plan changes when it runs.

use precast_kernels::{Access, Geometry, Key, Operand, Variant};

use crate::buffer::{BufferId, Tensor};

/// A piece of work of a phase. The arena and the dependencies need of it only what it touches.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What for: `student.layers.3.qkv`.
    pub label: String,
    /// What is to be done.
    pub work: Work,
    /// Earlier nodes of the phase that must have finished.
    pub dependencies: Vec<u32>,
}

/// The kinds of work.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    Launch(Launch),
}

impl Node {
    /// The buffers it touches.
    pub fn touches(&self) -> Vec<Touch> {
        match &self.work {
            Work::Launch(launch) => launch.touches(),
        }
    }

    /// The launch, if it is one.
    pub fn launch(&self) -> Option<&Launch> {
        match &self.work {
            Work::Launch(launch) => Some(launch),
        }
    }
}

/// One kernel launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What it computes.
    pub key: Key,
    /// How that is built.
    pub variant: Variant,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
    /// The parameter block, with virtual addresses.
    pub params: Vec<u8>,
}

/// A range of a buffer that a node works on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// The operand's name.
    pub name: &'static str,
    /// What is done with it.
    pub access: Access,
    pub buffer: BufferId,
    /// First byte in the buffer.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Launch {
    /// Its operands, each with the buffer and the offset that the parameter block has for it.
    pub(crate) fn operands(&self) -> impl Iterator<Item = (Operand, BufferId, u64)> {
        self.key.kernel().operands(&self.params).into_iter().map(|operand| {
            let address = bytemuck::pod_read_unaligned(&self.params[operand.offset..operand.offset + 8]);
            let Some((buffer, offset)) = Tensor::at(address) else {
                panic!("operand `{}` of {} has no buffer", operand.name, self.key)
            };
            (operand, buffer, offset)
        })
    }

    fn touches(&self) -> Vec<Touch> {
        let touch = |(operand, buffer, offset): (Operand, BufferId, u64)| Touch {
            name: operand.name,
            access: operand.access,
            buffer,
            offset,
            bytes: operand.bytes(),
        };
        self.operands().map(touch).collect()
    }

    /// The parameter block with each address 0: what is left is the launch's shape.
    pub fn shape(&self) -> Vec<u8> {
        let mut params = self.params.clone();
        for operand in self.key.kernel().operands(&self.params) {
            params[operand.offset..operand.offset + 8].fill(0);
        }
        params
    }

    /// Bytes it has to move.
    pub fn bytes(&self) -> u64 {
        self.key.kernel().bytes(&self.params)
    }

    /// Its floating-point operations, where they bound its time.
    pub fn flops(&self) -> u64 {
        self.key.kernel().flops(&self.params)
    }

    /// The parameter block with each virtual address replaced by a real one.
    pub fn bind(&self, address: impl Fn(BufferId) -> u64) -> Vec<u8> {
        let mut params = self.params.clone();
        for (operand, buffer, offset) in self.operands() {
            let real = address(buffer) + offset;
            params[operand.offset..operand.offset + 8].copy_from_slice(&real.to_ne_bytes());
        }
        params
    }
}
