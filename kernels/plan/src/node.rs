//! What a phase holds: work for the device, the buffers it touches, and what it waits for.
//!
//! A launch's parameter block holds *virtual addresses* ([`Tensor::address`]). Binding replaces them by real ones;
//! nothing else about a plan changes when it runs.

use precast_kernels::{Access, Geometry, Key, KeyVariant, Operand, Variant};

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
#[expect(clippy::large_enum_variant, reason = "nearly all work is launches: a box would be a pointer more each")]
pub enum Work {
    Launch(Launch),
    Exchange(Exchange),
}

/// Tensors from rank to rank, as they are: nothing is computed on the way. To the rank itself it is a copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exchange {
    /// What goes where, in the order in which the receiver takes it.
    pub sends: Vec<(u32, Tensor)>,
    /// What comes from where.
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

    /// Bytes that this rank sends to others.
    pub fn bytes(&self, rank: u32) -> u64 {
        self.sends.iter().filter(|(to, _)| *to != rank).map(|(_, tensor)| tensor.bytes()).sum()
    }
}

impl Node {
    /// The buffers it touches.
    pub fn touches(&self) -> Vec<Touch> {
        match &self.work {
            Work::Launch(launch) => launch.touches(),
            Work::Exchange(exchange) => exchange.touches(),
        }
    }

    /// The launch, if it is one.
    pub fn launch(&self) -> Option<&Launch> {
        match &self.work {
            Work::Launch(launch) => Some(launch),
            Work::Exchange(_) => None,
        }
    }
}

/// One computation that a key names.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// What it computes.
    pub key: Key,
    /// The parameter block, with virtual addresses.
    pub params: Vec<u8>,
    /// Whose code does that.
    pub by: Executor,
}

/// Whose code computes what a launch says.
#[derive(Clone, Debug, PartialEq)]
pub enum Executor {
    /// A kernel of the bundle.
    Kernel(Build),
    /// cuBLASLt: the key has a [`Product`](precast_kernels::Product).
    Cublas(Cublas),
}

/// A kernel of the bundle, as it is launched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Build {
    /// How the key is built.
    pub variant: Variant,
    /// Grid, block and dynamic shared memory.
    pub geometry: Geometry,
}

/// What a product of cuBLASLt touches besides its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cublas {
    /// Where it may work.
    pub workspace: Tensor,
    /// For a product that is added to what its micro-batch says: the factors of product and addend, f32.
    pub factors: Option<Tensor>,
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
    /// The kernel of the bundle that it launches, if it does.
    pub fn pair(&self) -> Option<KeyVariant> {
        match &self.by {
            Executor::Kernel(build) => Some(KeyVariant { key: self.key.clone(), variant: build.variant }),
            Executor::Cublas(_) => None,
        }
    }

    /// What it computes, and whose code does: `gemm.fwd{...}[threads=64]`, `gemm.fwd{...}[cublas]`.
    pub fn code(&self) -> String {
        self.pair().map_or_else(|| format!("{}[cublas]", self.key), |pair| pair.to_string())
    }

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
        let cublas = match &self.by {
            Executor::Cublas(cublas) => Some(cublas),
            Executor::Kernel(_) => None,
        };
        self.operands().map(touch).chain(cublas.into_iter().flat_map(Cublas::touches)).collect()
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
