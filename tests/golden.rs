//! Golden cases: what PyTorch computed of tiny models, in `tests/fixtures/golden` or in the directory that
//! `PRECAST_TEST_GOLDEN` names, which `cargo xtask truth --golden DIR` compares. `golden/make.py` says what a case
//! holds.

use std::sync::Once;

use itertools::Itertools;
use precast::device::session::Session;
use precast::inputs::data::{Chunk, MicroBatch, Packing, Places};
use precast::options::{Options, RunConfig};
use precast::run::step::StepRecord;
use precast_kernels::abi::MASKED_TOKEN;
use precast_plan::{ModelConfig, Precision, Recompute};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::golden_weights;
use crate::support::prelude::*;
use crate::support::{Texts, adapter_gradient};

/// What a case says of its run.
#[derive(Deserialize)]
#[allow(non_snake_case)]
pub struct Settings {
    pub T: Option<f32>,
    pub alpha: Option<f32>,
    pub beta: Option<f32>,
    pub lr: f64,
    pub wd: f32,
    pub clip: f32,
    pub B: u32,
    pub S: u32,
    pub accum: u32,
    pub steps: u64,
    pub warmup: u64,
    pub sched: String,
    #[serde(default)]
    pub packing: Packing,
    /// Of a student that learns from what it writes.
    pub options: Option<String>,
    /// `self` of a student that teaches itself.
    pub teacher: Option<String>,
}

#[derive(Deserialize)]
pub struct Reference {
    pub loss: f64,
    pub kd_loss: f64,
    pub ce_loss: f64,
    pub grad_norm: f64,
    pub lr: f64,
    pub tokens: Option<u64>,
    /// Standard error of the mean of log s - log t over the tokens that were drawn.
    pub log_ratio_error: Option<f64>,
    /// Standard deviations over the values above, where `rounded.py` has measured them.
    #[serde(default)]
    pub spread: Spread,
}

/// Of a step's values, relative to them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct Spread {
    pub loss: f64,
    pub kd_loss: f64,
    pub ce_loss: f64,
    pub grad_norm: f64,
}

/// A case, and in `case` a scratch directory whose `golden` has its files, weights among them.
pub struct Golden {
    pub name: String,
    pub case: Case,
    pub settings: Settings,
}

/// Opens every case of the tree, or of the directory that is named; says once which ones are of models that nothing
/// here computes.
pub fn cases() -> Vec<Golden> {
    static SAID: Once = Once::new();
    let directory = std::env::var_os("PRECAST_TEST_GOLDEN").map_or_else(|| fixture("golden"), PathBuf::from);
    let all = names_in(&directory).into_iter().map(|name| directory.join(name));
    let all = all.filter(|case| case.join("case.json").exists()).map(|case| {
        let refused = ["teacher", "student"].into_iter().find_map(|role| {
            let text = fs::read_to_string(case.join(role).join("config.json")).ok()?;
            ModelConfig::from_json(&text).err()
        });
        refused.map_or_else(|| Ok(case.clone()), |error| Err(format!("{}: not compared: {error}", case.display())))
    });
    let (supported, refused): (Vec<PathBuf>, Vec<String>) = all.partition_result();
    SAID.call_once(|| refused.iter().for_each(|error| eprintln!("{error}")));
    assert!(!supported.is_empty(), "{}: no directory in it is a case of a supported model", directory.display());
    supported.iter().map(|case| Golden::open(case)).collect()
}

/// Opens the cases whose students do not write what they learn from.
pub fn of_data() -> impl Iterator<Item = Golden> {
    cases().into_iter().filter(|golden| golden.settings.options.is_none())
}

impl Golden {
    /// Opens a case of the tree.
    pub fn of(name: &str) -> Self {
        Self::open(&fixture("golden").join(name))
    }

    fn open(directory: &Path) -> Self {
        let case = golden_weights::placed(directory);
        let settings = serde_json::from_value(case.json("golden/case.json")).expect("settings of a run");
        let name = directory.file_name().expect("a directory's name").to_string_lossy().into_owned();
        Self { name, case, settings }
    }

    pub fn teacher(&self) -> Option<&Path> {
        Some(&*self.case.teacher).filter(|teacher| teacher.exists())
    }

    pub fn adapter(&self) -> Option<PathBuf> {
        Some(self.case.path("golden/adapter")).filter(|adapter| adapter.exists())
    }

    /// The options of its run.
    pub fn options(&self) -> String {
        let Settings { T, alpha, beta, lr, wd, clip, B, S, accum, steps, warmup, sched, packing, options, teacher } =
            &self.settings;
        let of_teacher = [("alpha", alpha), ("temperature", T), ("beta", beta)];
        let given = of_teacher.iter().filter_map(|(name, value)| value.map(|value| format!("--{name} {value} ")));
        let adapter = self.adapter().map_or("", |_| "--adapter golden/adapter");
        let teacher = teacher.as_ref().map_or_else(String::new, |teacher| format!("--teacher {teacher}"));
        let packing = if options.is_some() { String::new() } else { format!("--packing {packing}") };
        format!(
            "{} {packing} {teacher} --steps {steps} --batch-size {B} --seq-len {S} --grad-accum {accum} --lr {lr} \
             --warmup {warmup} --schedule {sched} --weight-decay {wd} --clip {clip} --checkpoint-every 0 {adapter} {}",
            given.collect::<String>(),
            options.as_deref().unwrap_or_default()
        )
    }

    /// Trains as its settings say. Returns the steps of the run, which is in `out`.
    pub fn run(&self, arguments: impl Texts) -> Vec<StepRecord> {
        let options = self.options();
        let words = [vec![&*options, "--overwrite"], arguments.each()].concat();
        let is_taught = self.teacher().is_some() || self.settings.teacher.is_some();
        let mut command = if is_taught { self.case.distill("out", words) } else { self.case.train("out", words) };
        command.succeeds();
        self.case.metrics("out")
    }

    /// Returns the largest distance of what its run came to from PyTorch's weights, if the case has those.
    pub fn result(&self) -> Option<f64> {
        let files = ["final.safetensors", "final/model.safetensors", "final-adapter/adapter_model.safetensors"];
        let expected = files.iter().find_map(|file| self.kept(file))?;
        let trained =
            self.adapter().map_or("out/student/model.safetensors", |_| "out/adapter/adapter_model.safetensors");
        let found = Kept(self.case.read(trained));
        assert_eq!(found.tensors().len(), expected.tensors().len(), "{}", self.name);
        let tensors = found.tensors();
        let apart = tensors.iter().map(|(name, view)| expected.distance(name, &floats(view.data())));
        Some(largest(apart))
    }

    /// Returns the steps of PyTorch's run, or with `int8/` those of `golden/rounded.py`.
    pub fn trajectory(&self, of: &str) -> Vec<Reference> {
        let text = self.case.text(format!("golden/{of}trajectory.jsonl"));
        text.lines().map(|line| serde_json::from_str(line).expect("a step")).collect()
    }

    /// The sequences of each step.
    pub fn steps(&self) -> Vec<Vec<Chunk>> {
        let sequences: Vec<Chunk> = if self.case.has("golden/rows.jsonl") {
            self.case.text("golden/rows.jsonl").lines().map(row).collect()
        } else {
            let ids: Vec<u32> = bytemuck::pod_collect_to_vec(&self.case.read("golden/tokens.bin"));
            ids.chunks_exact(self.settings.S as usize + 1).map(Chunk::plain).collect()
        };
        let micros = self.places().divide(&sequences);
        let steps = micros.chunks(self.settings.accum as usize).take(self.settings.steps as usize);
        steps.map(|micros| sequences[micros[0].start..micros[micros.len() - 1].end].to_vec()).collect()
    }

    fn places(&self) -> Places {
        Places::new(self.settings.B, self.settings.S, self.settings.packing)
    }

    /// The first sequence, without the token behind it.
    pub fn ids(&self) -> Vec<u32> {
        let first = &self.steps()[0][0].ids;
        first[..first.len() - 1].to_vec()
    }

    /// A configuration of its models and objective, changed.
    pub fn config(&self, change: impl FnOnce(&mut Options)) -> RunConfig {
        let settings = &self.settings;
        let change = |options: &mut Options| {
            (options.shape.batch_size, options.shape.seq_len) = (settings.B, settings.S);
            options.packing.packing = settings.options.is_none().then_some(settings.packing);
            if let Some((alpha, temperature)) = settings.alpha.zip(settings.T) {
                (options.teaching.alpha, options.teaching.temperature) = (alpha.into(), temperature.into());
                options.teaching.teacher.beta = settings.beta.unwrap_or_default().into();
            }
            options.adapting.adapter = self.adapter();
            change(options);
        };
        let own = self.settings.teacher.as_ref().map(Path::new);
        let config = match self.teacher().or(own) {
            Some(teacher) => config(teacher, &self.case.student, change),
            None => config_alone(&self.case.student, change),
        };
        let own_prompts = self.steps()[0].iter().any(|row| row.teacher_prompt.is_some());
        RunConfig { own_prompts, ..config }
    }

    /// A session that has the gradients of the first step.
    pub fn first_step(&self, precision: Precision, recompute: Recompute) -> Session {
        let mut session = session(&self.config(|options| {
            (options.arithmetic.precision, options.arithmetic.recompute) = (precision, recompute);
        }));
        let rows = self.steps().remove(0);
        let scale = 1.0 / rows.iter().map(Chunk::counted).sum::<usize>() as f32;
        for (number, own) in self.places().divide(&rows).into_iter().enumerate() {
            session.micro(&MicroBatch::laid_out(&rows[own], self.places()), scale, number).expect("a micro-batch");
        }
        session
    }

    /// Tensors of one of its files.
    pub fn kept(&self, name: &str) -> Option<Kept> {
        self.case.has(&format!("golden/{name}")).then(|| Kept(self.case.read(format!("golden/{name}"))))
    }
}

fn row(line: &str) -> Chunk {
    #[derive(Deserialize)]
    struct Row {
        input_ids: Vec<u32>,
        labels: Vec<i64>,
        teacher_prompt: Option<Vec<u32>>,
    }
    let Row { input_ids, labels, teacher_prompt } = serde_json::from_str(line).expect("a row");
    let labels = labels.into_iter().map(|label| u32::try_from(label).unwrap_or(MASKED_TOKEN));
    Chunk { ids: input_ids, labels: Some(labels.collect()), teacher_prompt, ..Chunk::default() }
}

/// Reads the gradients of all that trains, by the names that PyTorch has for them.
pub fn named_gradients(session: &mut Session) -> Vec<(String, Vec<f32>)> {
    let factors = session.adapter_parameters();
    let of_factors = factors.iter().map(|factor| {
        let module = factor.projection.strip_suffix(".weight").expect("a projection");
        let name = format!("grad.base_model.model.{module}.lora_{:?}.default.weight", factor.factor);
        (name, adapter_gradient(session, factor))
    });
    let of_factors: Vec<_> = of_factors.collect();
    if !of_factors.is_empty() {
        return of_factors;
    }
    let parameters = session.plan.student.weights.parameters.list.clone();
    let names = parameters.iter().map(|parameter| format!("grad.{}", parameter.name));
    names.zip(gradients(session).iter().map(|bytes| floats(bytes))).collect()
}

/// A file of tensors, as they are or as their sums.
pub struct Kept(pub Vec<u8>);

impl Kept {
    pub fn tensors(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).expect("a file of tensors")
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors().tensor(name).is_ok()
    }

    pub fn values(&self, name: &str) -> Vec<f64> {
        bytemuck::pod_collect_to_vec(self.tensors().tensor(name).unwrap_or_else(|_| panic!("no {name}")).data())
    }

    /// The relative distance of a tensor, or of its last elements where no more are kept, from the one with its name.
    pub fn distance(&self, name: &str, found: &[f32]) -> f64 {
        let tensors = self.tensors();
        let kept = tensors.tensor(name).unwrap_or_else(|_| panic!("no {name}"));
        match kept.dtype() {
            Dtype::F64 => golden_weights::distance(name, found, &bytemuck::pod_collect_to_vec(kept.data())),
            _ => {
                let kept = floats(kept.data());
                distance(&found[found.len() - kept.len()..], &kept)
            }
        }
    }
}

/// Largest relative differences over the trajectory: loss, kd_loss, ce_loss, grad_norm.
pub fn differences(records: &[StepRecord], reference: &[Reference]) -> [f64; 4] {
    assert_eq!(records.len(), reference.len());
    let mut worst = [0.0f64; 4];
    for (record, reference) in records.iter().zip(reference) {
        let pairs = [
            (record.loss, reference.loss),
            (record.kd_loss, reference.kd_loss),
            (record.ce_loss, reference.ce_loss),
            (record.grad_norm, reference.grad_norm),
        ];
        for (worst, (found, expected)) in worst.iter_mut().zip(pairs) {
            // Without a teacher the divergence is 0.
            *worst = worst.max((found.unwrap() - expected).abs() / expected.abs().max(1e-12));
        }
        assert!((record.lr - reference.lr).abs() < 1e-12);
        assert!(reference.tokens.is_none_or(|tokens| tokens == record.tokens));
    }
    worst
}

/// The largest of distances, which are no less than 0.
pub fn largest(distances: impl IntoIterator<Item = f64>) -> f64 {
    distances.into_iter().fold(0.0, f64::max)
}
