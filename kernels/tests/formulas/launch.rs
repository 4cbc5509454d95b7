//! A launch by its host reference, what its key and parameter block say, and what its outputs must be.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;

use bytemuck::Pod;
use precast_kernels::{Dtype, Format, KERNELS, Key, check::Case, host::Buffer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::calculus::{dots, slopes};

/// A launch by the reference: what each operand holds before and after it. Numbers are integers where an operand's are.
pub struct Launch {
    pub case: Case,
    name: String,
    /// Distance from a formula that f32 rounds by: of what is about 1 and cancels.
    allowed: f64,
    after: OnceCell<Vec<Buffer>>,
    ways: RefCell<BTreeSet<(&'static str, bool)>>,
}

impl Launch {
    pub fn new(key: &Key, sample: usize, seed: u64) -> Self {
        Self::named(format!("{key}, sample {sample}"), key, &key.kernel().samples()[sample], seed)
    }

    /// Makes a launch of this parameter block.
    pub fn of<P: Pod>(key: &str, params: P, seed: u64) -> Self {
        Self::named(key.to_owned(), &KERNELS.parse(key).expect("a key"), bytemuck::bytes_of(&params), seed)
    }

    fn named(name: String, key: &Key, params: &[u8], seed: u64) -> Self {
        Self {
            case: Case::new(key, params, seed),
            name,
            allowed: 2e-6,
            after: OnceCell::new(),
            ways: RefCell::default(),
        }
    }

    /// Gives an operand what follows from others.
    pub fn set(&mut self, name: &str, values: &[f64]) {
        assert!(self.after.get().is_none(), "{name} comes after the launch");
        let index = self.index(name);
        let bytes: Vec<u8> = match self.case.operands[index].format {
            Format::Dense(Dtype::Bf16) => {
                values.iter().flat_map(|value| half::bf16::from_f64(*value).to_le_bytes()).collect()
            }
            Format::Dense(Dtype::I8) => values.iter().map(|value| *value as i8 as u8).collect(),
            _ => values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        };
        assert_eq!(self.case.before[index].len(), bytes.len(), "{name}");
        self.case.before[index] = Buffer::from(&bytes[..]);
    }

    /// Begins another launch, of operands that are changed before it: of larger ones, which round by more.
    pub fn again(&mut self) {
        (self.after, self.allowed) = (OnceCell::new(), 2e-5);
    }

    /// The parameter block: zeros where it ends early, as formats that do not need its last fields have it.
    pub fn params<P: Pod>(&self) -> P {
        let mut block = P::zeroed();
        bytemuck::bytes_of_mut(&mut block)[..self.case.params.len()].copy_from_slice(&self.case.params);
        block
    }

    /// A field of the key.
    pub fn field(&self, name: &str) -> &str {
        self.optional(name).unwrap_or_else(|| panic!("{} has no {name}", self.case.key))
    }

    /// A field that only some keys have.
    pub fn optional(&self, name: &str) -> Option<&str> {
        let fields = self.case.key.text().split_once('{').expect("a key has fields").1.trim_end_matches('}');
        let value = fields.split(',').find_map(|pair| pair.split_once('=').filter(|(own, _)| *own == name));
        value.map(|(_, value)| value)
    }

    pub fn size(&self, name: &str) -> usize {
        self.field(name).parse().expect("a number")
    }

    /// Notes a way that a formula goes where it has two: over its launches it must go both.
    pub fn goes(&self, branch: &'static str, way: bool) -> bool {
        self.ways.borrow_mut().insert((branch, way));
        way
    }

    /// A field of the key that is a branch.
    pub fn flag(&self, name: &'static str) -> bool {
        self.goes(name, self.field(name) == "true")
    }

    pub fn into_ways(self) -> BTreeSet<(&'static str, bool)> {
        self.ways.into_inner()
    }

    fn index(&self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| panic!("no {name}"))
    }

    pub fn find(&self, name: &str) -> Option<usize> {
        self.case.operands.iter().position(|operand| operand.name == name)
    }

    /// The bytes of all operands once it has run.
    pub fn outputs(&self) -> &[Buffer] {
        self.after.get_or_init(|| self.case.reference())
    }

    fn numbers(&self, name: &str, buffers: &[Buffer]) -> Vec<f64> {
        let index = self.index(name);
        let words = buffers[index].chunks_exact(self.case.operands[index].format.bytes(1) as usize);
        let number = |word: &[u8]| match self.case.operands[index].format {
            Format::Dense(Dtype::Bf16) => f64::from(half::bf16::from_le_bytes([word[0], word[1]])),
            Format::Dense(Dtype::I8) => f64::from(word[0] as i8),
            Format::Dense(Dtype::F32) => f64::from(f32::from_le_bytes(word.try_into().expect("four bytes"))),
            _ => f64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))),
        };
        words.map(number).collect()
    }

    pub fn before(&self, name: &str) -> Vec<f64> {
        self.numbers(name, &self.case.before)
    }

    pub fn after(&self, name: &str) -> Vec<f64> {
        self.numbers(name, self.outputs())
    }

    /// Returns the addend that an output was before, where it is added to; else zeros.
    pub fn kept(&self, name: &str, adds: bool) -> Vec<f64> {
        let before = self.before(name);
        if self.goes("adds", adds) { before } else { vec![0.0; before.len()] }
    }

    pub fn loss_scale(&self) -> f64 {
        f64::from(f32::from_bits(self.before("micro")[0] as u32))
    }

    /// Says whether the micro-batch is a later one of its step.
    pub fn is_later(&self) -> bool {
        self.before("micro")[1] != 0.0
    }

    /// Asserts that an output is what its formula says, within the rounding of f32.
    pub fn is(&self, name: &str, expected: &[f64]) {
        self.are_near(name, &self.after(name), expected);
    }

    /// Asserts that an output is the gradient of losses, of which each depends on a row of its own, however wide. Along
    /// directions of random signs losses have the slope that it says: a wrong element shows wherever it is, for the
    /// price of a few losses.
    pub fn is_gradient(&self, name: &str, at: &[f64], losses: impl Fn(&[f64]) -> Vec<f64>) {
        let found = self.after(name);
        let (mut of_found, mut expected) = (Vec::new(), Vec::new());
        for direction in 0..DIRECTIONS {
            let mut rng = Pcg64Mcg::seed_from_u64(direction);
            let signs: Vec<f64> = at.iter().map(|_| if rng.random() { 1.0 } else { -1.0 }).collect();
            let slopes = slopes(at, &signs, &losses);
            of_found.extend(dots(&found, &signs, at.len() / slopes.len()));
            expected.extend(slopes);
        }
        self.are_near(name, &of_found, &expected);
    }

    fn are_near(&self, name: &str, found: &[f64], expected: &[f64]) {
        let name = format!("{}: {name}", self.name);
        assert_eq!(found.len(), expected.len(), "{name}");
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
        let distance = difference / norm(&mut expected.iter().copied()).max(1e-30);
        assert!(
            difference <= self.allowed || distance <= 10.0 * self.allowed,
            "{name} is {distance:e} from its formula"
        );
    }
}

/// Directions in which a gradient is compared.
const DIRECTIONS: u64 = 4;
