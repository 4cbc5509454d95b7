//! Sampling on a model's logits: the tokens to draw from by sorting in float64, and the tokens that the device draws by
//! its host reference.

use precast::device::frozen::{Forward, FrozenRequest};
use precast::device::seal::SealedDevice;
use precast::inputs::checkpoint::Checkpoint;
use precast::inputs::tokenizer::SpecialTokens;
use precast_kernels::abi::{IDLE_SLOT, NO_TOKEN, sample_params};
use precast_kernels::{KERNELS, check::Case, host::Buffer, sample::kept};
use precast_plan::decoding::{MOST_STOPS, bucket, decode_phase, prefill_phase};
use precast_plan::{BufferId, DecodeRequest, Decoding, GenerationPlan, Precision, Sampling, Slots, Tensor};
use rayon::prelude::*;

use crate::decode::forward;
use crate::support::prelude::*;

/// Tokens of a prompt.
const PROMPT: u32 = 8;

/// Ways of drawing: temperature, top-k, top-p.
const WAYS: [(f32, u32, f32); 5] = [(1.0, 0, 1.0), (1.0, 0, 0.9), (0.7, 40, 1.0), (1.3, 0, 0.5), (1.0, 1000, 0.99)];

/// A device that generates, and the numbers of what it computes.
struct Generator {
    sealed: SealedDevice,
    plan: GenerationPlan,
    columns: u32,
    sampling: Sampling,
}

/// Rows of logits of a step, widened, and what was drawn from them.
struct Drawn {
    logits: Vec<u8>,
    position: u32,
    tokens: Vec<u32>,
    log_probs: Vec<u32>,
}

impl Generator {
    /// Opens a model, and fills its slots with beginnings of a text.
    fn new(
        forward: &Forward,
        text: &[u32],
        (rows, steps): (u32, u32),
        (temperature, top_k, top_p): (f32, u32, f32),
    ) -> Self {
        let opened = forward.read().unwrap();
        let slots = Slots { count: rows, seq_len: PROMPT + steps + 1 };
        let sampling = Sampling { temperature, top_k, top_p, seed: 11 };
        let lower = |student: precast_plan::Student<'_>, _: u32, arch| {
            GenerationPlan::new(student, DecodeRequest { slots, sampling }, forward.precision(), arch)
        };
        let (plan, sealed) = forward
            .open_plan(&opened, &[], FrozenRequest { lower: &lower, slots: None, what: &|_| String::new() }, |_| ())
            .unwrap();
        let mut this = Self { sealed, columns: opened.model.config().logit_columns(), plan, sampling };
        let state = this.plan.decoding.state;
        this.write(state.stops, &[NO_TOKEN; MOST_STOPS as usize]);
        this.write(state.ends, &vec![u32::MAX; rows as usize]);
        this.write(state.sequences, &(0..rows).flat_map(|row| [row, 7]).collect::<Vec<_>>());
        let rest = this.plan.decoding.prefill.few_rows - rows;
        this.write(this.plan.decoding.ids, &vec![0; this.plan.decoding.prefill.few_rows as usize]);
        this.write(this.plan.decoding.rows.slots, &(0..rows).chain((0..rest).map(|_| IDLE_SLOT)).collect::<Vec<_>>());
        for position in 0..PROMPT {
            let ids = (0..rows).map(|row| text[((row * PROMPT + position) as usize) % text.len()]);
            this.write(this.plan.decoding.ids, &ids.collect::<Vec<_>>());
            this.write(
                this.plan.decoding.rows.positions,
                &vec![position; this.plan.decoding.prefill.few_rows as usize],
            );
            if position + 1 < PROMPT {
                this.sealed.run(&prefill_phase(this.plan.decoding.prefill.few_rows)).unwrap();
            }
        }
        this
    }

    fn write(&mut self, tensor: Tensor, words: &[u32]) {
        self.sealed.write(tensor.slice(0, words.len() as u64), bytemuck::cast_slice(words)).unwrap();
    }

    fn words(&mut self, tensor: Tensor) -> Vec<u32> {
        bytemuck::pod_collect_to_vec(&self.sealed.read(tensor).unwrap())
    }

    /// Decodes a token of each row, and draws the next.
    fn step(&mut self, step: u32) -> Drawn {
        let Decoding { slots, rows, ids, state, .. } = self.plan.decoding;
        let count = u64::from(slots.count);
        self.sealed.run(&decode_phase(bucket(slots.count))).unwrap();
        let position = PROMPT - 1 + step;
        assert!(self.words(rows.positions.slice(0, count)).iter().all(|now| *now == position + 1));
        let logits = self.logits();
        let log_probs = self.words(state.log_probs);
        let at = |slot: u32| (slot * slots.seq_len + position + 1) as usize;
        Drawn {
            logits: self.sealed.read(logits.slice(0, count * u64::from(self.columns))).unwrap(),
            position,
            tokens: self.words(ids.slice(0, count)),
            log_probs: (0..slots.count).map(|slot| log_probs[at(slot)]).collect(),
        }
    }

    /// The logits of the phase that has just run; those of others have the same name.
    fn logits(&self) -> Tensor {
        let elems = u64::from(bucket(self.plan.decoding.slots.count)) * u64::from(self.columns);
        let buffers = &self.plan.plan.buffers;
        let at = buffers.iter().position(|buffer| buffer.name == "head.logits" && buffer.elems == elems).unwrap();
        Tensor { buffer: BufferId(at as u32), offset: 0, format: buffers[at].format, elems }
    }

    fn params(&self) -> sample_params {
        let Sampling { temperature, top_k, top_p, seed } = self.sampling;
        sample_params {
            rows: self.plan.decoding.slots.count,
            vocab: self.columns,
            temperature,
            top_k,
            top_p,
            seed,
            ..Default::default()
        }
    }

    /// Asserts that the host reference draws the same tokens, with the same log-probabilities, from the same logits.
    fn check_draws(&self, drawn: &Drawn) {
        let (rows, key) = (self.plan.decoding.slots.count, KERNELS.parse("sample{x=bf16}").unwrap());
        let mut case = Case::new(&key, bytemuck::bytes_of(&self.params()), 1);
        let index = |case: &Case, name: &str| case.operands.iter().position(|operand| operand.name == name).unwrap();
        let mut set = |name: &str, bytes: &[u8]| {
            let index = index(&case, name);
            assert_eq!(case.before[index].len(), bytes.len());
            case.before[index] = Buffer::from(bytes);
        };
        set("logits", &drawn.logits);
        set("sequence", bytemuck::cast_slice(&(0..rows).flat_map(|row| [row, 7]).collect::<Vec<u32>>()));
        set("position", bytemuck::cast_slice(&vec![drawn.position; rows as usize]));
        let after = case.reference();
        let words = |name| bytemuck::pod_collect_to_vec::<u8, u32>(&after[index(&case, name)]);
        assert_eq!(drawn.tokens, words("token"), "{:?}", self.sampling);
        assert_eq!(drawn.log_probs, words("log_prob"), "{:?}", self.sampling);
    }
}

/// The tokens to draw from, by sorting in float64, the smallest id first at ties; and how far the probability of the
/// last that is in, or of all before it, is from top-p at the nearest.
fn sorted(p: &sample_params, logits: &[f32]) -> (Vec<usize>, f64) {
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|a, b| logits[*b].partial_cmp(&logits[*a]).unwrap());
    if p.top_k > 0 {
        ids.truncate(p.top_k as usize);
    }
    if p.top_p >= 1.0 {
        return (ids, 1.0);
    }
    let top = f64::from(logits[ids[0]]);
    let weights: Vec<f64> =
        ids.iter().map(|id| ((f64::from(logits[*id]) - top) / f64::from(p.temperature)).exp()).collect();
    let (target, mut sum) = (f64::from(p.top_p) * weights.iter().sum::<f64>(), 0.0);
    let mut nearest = f64::INFINITY;
    for (count, weight) in weights.iter().enumerate() {
        sum += weight;
        nearest = nearest.min((sum / target - 1.0).abs());
        if sum >= target {
            ids.truncate(count + 1);
            return (ids, nearest);
        }
    }
    (ids, nearest)
}

/// Compares the sets of tokens to draw from, of each row by each way. Returns those that differ, by a sum of weights
/// that is top-p but for rounding.
fn check_sets(logits: &[f32], vocab: u32) -> usize {
    let rows = logits.par_chunks(vocab as usize);
    let differing = rows.map(|row| {
        let differs = WAYS.iter().filter(|(temperature, top_k, top_p)| {
            let p =
                sample_params { vocab, temperature: *temperature, top_k: *top_k, top_p: *top_p, ..Default::default() };
            let ((mut expected, nearest), mut found) = (sorted(&p, row), kept(&p, row));
            expected.sort_unstable();
            found.sort_unstable();
            assert!(expected == found || nearest < 1e-6, "{p:?}: {} and {} tokens", expected.len(), found.len());
            expected != found
        });
        differs.count()
    });
    differing.sum()
}

/// Draws from `rows` rows, so many times, by each way, and compares the sets of all ways on the logits of the first.
fn check(model: &Path, text: &[u32], (rows, steps): (u32, u32), say: impl Fn(String)) {
    let forward = forward(model, Precision::Bf16);
    for (number, way) in WAYS.into_iter().enumerate() {
        let mut generator = Generator::new(&forward, text, (rows, steps), way);
        let mut differing = 0;
        for step in 0..steps {
            let drawn = generator.step(step);
            generator.check_draws(&drawn);
            if number == 0 {
                let widened: Vec<u8> = drawn.logits.chunks(2).flat_map(|half| [0, 0, half[0], half[1]]).collect();
                differing += check_sets(&floats(&widened), generator.columns);
            }
        }
        let draws = rows * steps;
        if number == 0 {
            let sets = draws as usize * WAYS.len();
            say(format!("{sets} sets: those of float64, but {differing} where a sum is top-p within 1e-6"));
        }
        say(format!("{draws} draws by {way:?}: those of the host reference"));
    }
}

/// `PRECAST_TEST_SAMPLING` is a model with a tokenizer: then 10,240 rows of its logits, after texts of this checkout,
/// by each way.
#[test]
fn draws_are_those_of_the_reference_among_the_tokens_left() {
    match std::env::var_os("PRECAST_TEST_SAMPLING").map(PathBuf::from) {
        None => {
            let dir = tempfile::tempdir().unwrap();
            let tiny = random_model(dir.path(), "tiny", 3, &tiny_config(&[]));
            check(&tiny, &[5, 17, 80, 3, 44], (9, 2), |_| ());
        }
        Some(model) => {
            let checkpoint = Checkpoint::open(&model).unwrap();
            let tokenizer = checkpoint.tokenizer().unwrap().expect("a tokenizer");
            let texts = ["ARCHITECTURE.md", "BENCHMARKS.md", "CONTRIBUTING.md", "docs/reference/commands.md"];
            let text = texts.map(|path| fs::read_to_string(root().join(path)).unwrap()).concat();
            let ids = tokenizer.encode(&text, SpecialTokens::Omit).unwrap();
            check(&model, &ids, (512, 20), |line| println!("{line}"));
        }
    }
}
