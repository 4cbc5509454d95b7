//! Nodes of a phase: work for the device, the buffers it touches, and its dependencies.
//!
//! A launch's parameter block holds *virtual addresses* ([`Tensor::address`]). Binding replaces them by real ones;
//! nothing else about a plan changes when it runs.

use crate::{Access, Geometry, Key, KeyVariant, Operand, Variant};

use crate::plan::buffer::{BufferId, Tensor};

/// One piece of work of a phase. Arena and dependencies depend only on the ranges that it touches.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Name in messages: `student.layers.3.qkv`.
    pub label: String,
    /// Work for the device.
    pub work: Work,
    /// Earlier nodes of the phase that must have finished.
    pub dependencies: Vec<u32>,
}

/// Work of a node.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly all work is launches: a box would be a pointer more each")]
pub enum Work {
    /// Launches a kernel, or a library in its place.
    Launch(Launch),
    /// Moves tensors between ranks.
    Exchange(Exchange),
}

/// Copies tensors unmodified between ranks, or within one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// Receiving rank and tensor, in the receiver's order.
    pub sends: Vec<(u32, Tensor)>,
    /// Sending rank and tensor.
    pub receives: Vec<(u32, Tensor)>,
}

impl Exchange {
    fn touches(&self) -> Vec<Touch> {
        let touch = |name, access| {
            move |(_, tensor): &(u32, Tensor)| Touch {
                name,
                access,
                buffer: tensor.buffer,
                offset: tensor.offset,
                bytes: tensor.bytes(),
            }
        };
        let sends = self.sends.iter().map(touch("send", Access::Read));
        sends.chain(self.receives.iter().map(touch("receive", Access::Write))).collect()
    }

    /// Returns the bytes that this rank sends to others.
    pub fn bytes(&self, rank: u32) -> u64 {
        self.sends.iter().filter(|(to, _)| *to != rank).map(|(_, tensor)| tensor.bytes()).sum()
    }
}

impl Node {
    /// Returns the ranges that it touches.
    pub fn touches(&self) -> Vec<Touch> {
        match &self.work {
            Work::Launch(launch) => launch.touches(),
            Work::Exchange(exchange) => exchange.touches(),
        }
    }

    /// Returns the launch, if it is one.
    pub fn launch(&self) -> Option<&Launch> {
        match &self.work {
            Work::Launch(launch) => Some(launch),
            Work::Exchange(_) => None,
        }
    }

    pub(crate) fn launch_mut(&mut self) -> Option<&mut Launch> {
        match &mut self.work {
            Work::Launch(launch) => Some(launch),
            Work::Exchange(_) => None,
        }
    }
}

/// A computation named by a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// Computation that is asked for.
    pub key: Key,
    /// The parameter block, with virtual addresses.
    pub params: Vec<u8>,
    /// Executor of the computation.
    pub by: Executor,
}

/// Executor of a launch.
#[derive(Clone, Debug, PartialEq)]
pub enum Executor {
    /// A kernel of the bundle.
    Kernel(Build),
    /// cuBLASLt: the key has a [`BlasGemm`](crate::BlasGemm).
    Cublas(Cublas),
}

/// A kernel of the bundle, as it is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Build {
    /// Parameters that the kernel is built with.
    pub variant: Variant,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
}

/// Additional operands of a cuBLASLt GEMM.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cublas {
    /// Its workspace.
    pub workspace: Tensor,
    /// For a GEMM that accumulates depending on the micro-batch: alpha and beta, f32.
    pub factors: Option<Tensor>,
}

/// A node's access to a range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Touch {
    /// Name of the operand.
    pub name: &'static str,
    /// Reads, writes or both.
    pub access: Access,
    /// Buffer that is touched.
    pub buffer: BufferId,
    /// First byte in the buffer.
    pub offset: u64,
    /// Size of the range, bytes.
    pub bytes: u64,
}

impl Cublas {
    fn touches(&self) -> impl Iterator<Item = Touch> {
        let touch = |name, access, tensor: Tensor| Touch {
            name,
            access,
            buffer: tensor.buffer,
            offset: tensor.offset,
            bytes: tensor.bytes(),
        };
        let workspace = touch("workspace", Access::Scratch, self.workspace);
        std::iter::once(workspace).chain(self.factors.map(|factors| touch("factors", Access::Read, factors)))
    }
}

impl Launch {
    /// Returns the kernel that it launches; none for cuBLASLt.
    pub fn pair(&self) -> Option<KeyVariant> {
        match &self.by {
            Executor::Kernel(build) => Some(KeyVariant { key: self.key.clone(), variant: build.variant }),
            Executor::Cublas(_) => None,
        }
    }

    /// Formats key and executor: `matmul{...}[threads=64]`, `matmul{...}[cublas]`.
    pub fn code(&self) -> String {
        self.pair().map_or_else(|| format!("{}[cublas]", self.key), |pair| pair.to_string())
    }

    /// Returns its operands with the buffer and offset in the parameter block.
    pub fn operands(&self) -> impl Iterator<Item = (Operand, BufferId, u64)> {
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
        let cublas = match &self.by {
            Executor::Cublas(cublas) => Some(cublas),
            Executor::Kernel(_) => None,
        };
        self.operands().map(touch).chain(cublas.into_iter().flat_map(Cublas::touches)).collect()
    }

    /// Returns the parameter block with addresses set to 0: the launch's shape.
    pub fn shape(&self) -> Vec<u8> {
        self.key.shape(&self.params)
    }

    /// Returns the bytes that it must move.
    pub fn bytes(&self) -> u64 {
        self.key.kernel().bytes(&self.params)
    }

    /// Returns its floating-point operations, if they bound its time.
    pub fn flops(&self) -> u64 {
        self.key.kernel().flops(&self.params)
    }

    /// Returns the parameter block with real addresses in place of virtual ones.
    pub fn bind(&self, address: impl Fn(BufferId) -> u64) -> Vec<u8> {
        let mut params = self.params.clone();
        for (operand, buffer, offset) in self.operands() {
            let real = address(buffer) + offset;
            params[operand.offset..operand.offset + 8].copy_from_slice(&real.to_ne_bytes());
        }
        params
    }
}
