//! A launch by its host reference, and what its key says.

use bytemuck::Pod;
use precast_kernels::check::Case;
use precast_kernels::host::Buffer;
use precast_kernels::{Dtype, Format, Key};

/// A field of a key.
pub fn field(key: &Key, name: &str) -> String {
    let fields = key.text().split_once('{').expect("a key has fields").1.trim_end_matches('}');
    let value = fields.split(',').find_map(|pair| pair.split_once('=').filter(|(own, _)| *own == name));
    value.unwrap_or_else(|| panic!("{key} has no {name}")).1.to_owned()
}

pub fn size(key: &Key, name: &str) -> usize {
    field(key, name).parse().expect("a number")
}

/// A launch by the reference: what each operand holds before and after it. Numbers are u32 where an operand is.
pub struct Launch {
    case: Case,
    after: Vec<Buffer>,
}

impl Launch {
    pub fn new<P: Pod>(key: &Key, params: P) -> Self {
        Self::with(key, params, |_| Vec::new())
    }

    /// With operands that follow from others.
    pub fn with<P: Pod>(key: &Key, params: P, derived: impl FnOnce(&Self) -> Vec<(&'static str, Vec<f64>)>) -> Self {
        let mut launch = Self { case: Case::new(key, bytemuck::bytes_of(&params), 7), after: Vec::new() };
        for (name, values) in derived(&launch) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
            let index = launch.index(name);
            assert_eq!(launch.case.before[index].len(), bytes.len(), "{name}");
            launch.case.before[index] = Buffer::from(&bytes[..]);
        }
        launch.after = launch.case.reference();
        launch
    }

    fn index(&self, name: &str) -> usize {
        self.case.operands.iter().position(|operand| operand.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn numbers(&self, name: &str, buffers: &[Buffer]) -> Vec<f64> {
        let index = self.index(name);
        let words = buffers[index].chunks_exact(self.case.operands[index].format.bytes(1) as usize);
        let number = |word: &[u8]| match self.case.operands[index].format {
            Format::Dense(Dtype::Bf16) => f64::from(half::bf16::from_le_bytes([word[0], word[1]])),
            Format::Dense(Dtype::F32) => f64::from(f32::from_le_bytes(word.try_into().expect("four bytes"))),
            _ => f64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))),
        };
        words.map(number).collect()
    }

    pub fn before(&self, name: &str) -> Vec<f64> {
        self.numbers(name, &self.case.before)
    }

    pub fn after(&self, name: &str) -> Vec<f64> {
        self.numbers(name, &self.after)
    }

    /// `loss_scale`, and whether gradients are added to.
    pub fn micro(&self) -> (f64, bool) {
        let words = self.before("micro");
        (f64::from(f32::from_bits(words[0] as u32)), words[1] != 0.0)
    }

    /// Asserts that an output is what its formula says, within the rounding of f32.
    pub fn is(&self, name: &str, expected: &[f64]) {
        let found = self.after(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.case.key);
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
        let distance = difference / norm(&mut expected.iter().copied()).max(1e-30);
        assert!(difference == 0.0 || distance <= 2e-6, "{}: {name} is {distance:e} from its formula", self.case.key);
    }
}
