//! Adapters train, and leave the base alone: the host references execute plans, which are compared with training the
//! matrix `W + scale B A` itself.

use precast_kernels::Operand;
use precast_kernels::abi::micro_scalars;
use precast_kernels::host::{Buffer, Views};

use crate::support::*;

const BATCH: u32 = 2;
const SEQ_LEN: u32 = 5;
const TOKENS: usize = (BATCH * SEQ_LEN) as usize;

/// A plan and its memory, which is NaN where nothing was written.
struct Machine<'a> {
    plan: &'a Plan,
    arena: Vec<u8>,
}

impl<'a> Machine<'a> {
    fn place(&self, tensor: Tensor) -> usize {
        (self.plan.buffer(tensor.buffer).offset + tensor.offset) as usize
    }

    fn write(&mut self, tensor: Tensor, bytes: &[u8]) {
        assert_eq!(bytes.len() as u64, tensor.bytes());
        let place = self.place(tensor);
        self.arena[place..place + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes(&self, tensor: Tensor) -> &[u8] {
        &self.arena[self.place(tensor)..][..tensor.bytes() as usize]
    }

    fn floats(&self, tensor: Tensor) -> Vec<f32> {
        assert_eq!(tensor.format, Dtype::F32);
        self.bytes(tensor).chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
    }

    fn write_floats(&mut self, tensor: Tensor, values: &[f32]) {
        self.write(tensor, bytemuck::cast_slice(values));
    }

    /// Gradients of all that trains.
    fn gradients(&self, training: &TrainingPlan) -> Vec<f32> {
        self.floats(training.trained().trained().unwrap().grad)
    }

    fn run(&mut self, phase: &str) {
        for node in &self.plan.phase(phase).nodes {
            let launch = node.launch().unwrap();
            let operands = launch.key.kernel().operands(&launch.params);
            let place = |touch: Touch| (self.plan.buffer(touch.buffer).offset + touch.offset) as usize;
            let places: Vec<usize> = node.touches().into_iter().map(place).collect();
            let pairs = || operands.iter().zip(&places);
            let buffer =
                |(operand, place): (&Operand, &usize)| Buffer::from(&self.arena[*place..][..operand.bytes() as usize]);
            let mut held: Vec<Buffer> = pairs().map(buffer).collect();
            let mut views = Views::new();
            for (operand, bytes) in operands.iter().zip(&mut held) {
                match operand.access.writes() {
                    true => views.push_write(operand, bytes),
                    false => views.push_read(operand, bytes),
                }
            }
            launch.key.kernel().host(&launch.params, &mut views);
            drop(views);
            for ((operand, place), bytes) in pairs().zip(&held).filter(|((operand, _), _)| operand.access.writes()) {
                self.arena[*place..][..operand.bytes() as usize].copy_from_slice(bytes);
            }
        }
    }

    /// A model before its first launch: rotary tables, and each weight as `write` puts it there.
    fn loaded(plan: &'a TrainingPlan, config: &ModelConfig, write: impl Fn(&mut Self, &Parameter, &Weight)) -> Self {
        let mut machine = Self { plan: &plan.plan, arena: vec![0xFF; plan.plan.arena_bytes as usize] };
        machine.run(CLEAR);
        let (tables, rope) = (&config.rope_tables(SEQ_LEN)[0], plan.student.ropes[0]);
        machine.write_floats(rope.cos, &tables.cos);
        machine.write_floats(rope.sin, &tables.sin);
        plan.student.weights.list().for_each(|(parameter, weight)| write(&mut machine, parameter, &weight));
        machine
    }

    /// Runs one micro-batch, always the same; `accumulate` adds it to the previous one.
    fn micro(&mut self, training: &TrainingPlan, accumulate: bool) {
        let ids: Vec<u32> = (0..TOKENS as u32).map(|i| i * 7 % 31).collect();
        let mut sorted: Vec<u32> = (0..TOKENS as u32).collect();
        sorted.sort_by_key(|position| ids[*position as usize]);
        let sorted_ids: Vec<u32> = sorted.iter().map(|position| ids[*position as usize]).collect();
        let targets: Vec<u32> = (0..TOKENS as u32).map(|i| i * 11 % 37).collect();
        let inputs = training.inputs;
        let tensors = [inputs.ids, inputs.targets, inputs.sorted_ids, inputs.sorted_positions];
        for (tensor, words) in tensors.into_iter().zip([ids, targets, sorted_ids, sorted]) {
            self.write(tensor, bytemuck::cast_slice(&words));
        }
        self.write(inputs.sequences.all, bytemuck::cast_slice(&inputs.sequences.words(&[SEQ_LEN; BATCH as usize])));
        let scalars = micro_scalars { loss_scale: 1.0 / TOKENS as f32, accumulate: u32::from(accumulate) };
        self.write(inputs.micro, bytemuck::bytes_of(&scalars));
        self.run(MICRO);
    }
}

/// Returns pseudorandom numbers that depend on a name.
fn numbers(name: &str, count: u64, size: f32) -> Vec<f32> {
    let hashed = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
    let mut state = name.bytes().fold(0xCBF2_9CE4_8422_2325, hashed);
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * size
    };
    (0..count).map(next).collect()
}

fn weights(name: &str, elems: u64) -> Vec<f32> {
    let norm = name.contains("norm");
    numbers(name, elems, if norm { 0.2 } else { 0.3 }).into_iter().map(|x| if norm { 1.0 + x } else { x }).collect()
}

/// Returns a nonzero matrix of an adapter, as after some steps.
fn factor(one: &AdapterParameter) -> Vec<f32> {
    numbers(&format!("{}{:?}", one.projection, one.factor), one.shape.iter().product(), 0.4)
}

/// Returns the indices of an adapter's matrix in its buffer.
fn places(one: &AdapterParameter) -> impl Iterator<Item = usize> + use<> {
    let ([rows, columns], start, row) = (one.shape, one.start, one.row);
    (0..rows).flat_map(move |i| (0..columns).map(move |j| (start + i * row + j) as usize))
}

fn tiny(model_type: &str, layers: u32) -> ModelConfig {
    let json = format!(
        r#"{{"model_type":"{model_type}","hidden_size":32,"intermediate_size":64,"num_hidden_layers":{layers},
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"vocab_size":64,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":true,"attention_bias":false,"hidden_act":"silu"}}"#
    );
    ModelConfig::from_json(&json).unwrap()
}

/// A step without a teacher or recomputation.
const PLAIN: Recipe =
    Recipe { batch: BATCH, seq_len: SEQ_LEN, precision: Precision::Fp32, objective: Objective::CrossEntropy, ..RECIPE };

fn recipe(recompute: Recompute, objective: Objective) -> Recipe {
    Recipe { objective, recompute, ..PLAIN }
}

/// Every kind of adapters: all alike; some, of unequal ranks and scales; one GEMM alone, in the middle.
fn cases(config: &ModelConfig) -> Vec<Adapters> {
    let name = |target: Target, layer| target.parameter(config.family, layer);
    let one = |target, layer, rank, scale| (name(target, layer), Adapter { rank, scale });
    let some = [
        one(Target::Q, 0, 3, 0.5),
        one(Target::V, 0, 9, 2.0),
        one(Target::Up, 1, 17, 0.25),
        one(Target::Gate, 2, 1, 1.0),
        one(Target::K, 2, 5, 3.0),
    ];
    let [all, pair] = [(&Target::ALL[..], 3, 2.0), (&[Target::Q, Target::V], 8, 0.5)]
        .map(|(targets, rank, scale)| Adapters::uniform(config, targets, rank, scale));
    let alone = Target::of(config).into_iter().map(|target| [one(target, 1, 4, 1.5)].into_iter().collect());
    [all, pair, some.into_iter().collect()].into_iter().chain(alone).collect()
}

fn training(
    teacher: Option<Teacher<'_>>,
    config: &ModelConfig,
    formats: &Formats,
    adapters: &Adapters,
    recipe: &Recipe,
) -> TrainingPlan {
    let student = Student { config, formats, adapters };
    TrainingPlan::new(TrainingRequest::new(student, recipe, Arch::Sim).taught_by(teacher)).unwrap()
}

/// Runs a micro-batch of adapters, on a base of dense weights.
fn adapted<'a>(plan: &'a TrainingPlan, config: &ModelConfig) -> Machine<'a> {
    let mut machine = Machine::loaded(plan, config, |machine, parameter, weight| {
        assert!(weight.trained().is_none(), "{} trains", parameter.name);
        machine.write_floats(weight.tensor, &weights(&parameter.name, parameter.elems()));
    });
    let adapters = plan.adapters.as_ref().unwrap();
    let master = adapters.all.trained().unwrap().master;
    assert!(machine.floats(master).iter().all(|value| value.to_bits() == 0), "padding is 0");
    let mut values = vec![0.0; adapters.parameters.elems as usize];
    for one in &adapters.parameters.list {
        places(one).zip(factor(one)).for_each(|(place, value)| values[place] = value);
    }
    machine.write_floats(master, &values);
    machine.run(CAST);
    machine.micro(plan, false);
    machine
}

/// Runs a micro-batch of all weights, with the adapters multiplied out and added to their matrices.
fn merged<'a>(
    plan: &'a TrainingPlan,
    config: &ModelConfig,
    adapters: &Adapters,
    list: &[AdapterParameter],
) -> Machine<'a> {
    let write = |machine: &mut Machine<'_>, parameter: &Parameter, weight: &Weight| {
        let mut values = weights(&parameter.name, parameter.elems());
        if let Some(Adapter { rank, scale }) = adapters.of(&parameter.name) {
            let [a, b] = pair(list, &parameter.name).map(factor);
            let (rank, columns) = (rank as usize, parameter.shape[1] as usize);
            for (i, row) in values.chunks_mut(columns).enumerate() {
                for (j, value) in row.iter_mut().enumerate() {
                    let sum: f64 = (0..rank).map(|r| f64::from(b[i * rank + r]) * f64::from(a[r * columns + j])).sum();
                    *value += (f64::from(scale) * sum) as f32;
                }
            }
        }
        machine.write_floats(weight.trained().unwrap().master, &values);
    };
    let mut machine = Machine::loaded(plan, config, write);
    machine.micro(plan, false);
    machine
}

fn pair<'a>(list: &'a [AdapterParameter], name: &str) -> [&'a AdapterParameter; 2] {
    [Factor::A, Factor::B]
        .map(|factor| list.iter().find(|one| one.projection == name && one.factor == factor).expect("a pair"))
}

fn close(found: &[f32], expected: &[f64], what: &str) {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(*a) - b));
    let size = norm(&mut expected.iter().copied());
    assert!(size > 1e-9 && difference <= 2e-5 * size, "{what} is {:e} of {size:e} off", difference / size);
}

/// Checks `dB = scale dW A^T` and `dA = scale B^T dW`, dW being the gradient of the whole matrix, for every choice of
/// adapters, on every family's blocks, with every recomputation. Padding gets gradients of exactly 0, and a second
/// micro-batch adds.
#[test]
fn adapters_get_the_gradient_of_their_matrix() {
    let mut padded = 0;
    for class in ["qwen2", "qwen3"] {
        let config = tiny(class, 3);
        let dense = Formats::dense();
        let whole = alone(&config, &PLAIN, Arch::Sim);
        for (case, adapters) in cases(&config).iter().enumerate() {
            for recompute in Recompute::ALL {
                let what = format!("{class}, case {case}, recompute {recompute}");
                let plan = training(None, &config, &dense, adapters, &recipe(recompute, Objective::CrossEntropy));
                let parameters = &plan.adapters.as_ref().unwrap().parameters;
                let mut machine = adapted(&plan, &config);
                let full = merged(&whole, &config, adapters, &parameters.list);
                let [own, of_matrix] = [(&machine, &plan), (&full, &whole)].map(|(m, p)| m.floats(p.metrics)[1]);
                assert!((own - of_matrix).abs() <= 1e-5 * of_matrix.abs(), "{what}: loss {own}, {of_matrix}");
                let grad = machine.gradients(&plan);
                let mut covered = vec![false; grad.len()];
                for (name, Adapter { rank, scale }) in adapters.iter() {
                    let (parameter, weight) = whole.student.weights.list().find(|(one, _)| one.name == name).unwrap();
                    let dw = full.floats(weight.trained().unwrap().grad);
                    let (columns, rank) = (parameter.shape[1] as usize, rank as usize);
                    let [a, b] = pair(&parameters.list, name);
                    let (av, bv) = (factor(a), factor(b));
                    let mut da = vec![0.0; av.len()];
                    let mut db = vec![0.0; bv.len()];
                    for (at, dw) in dw.iter().enumerate() {
                        let (i, j) = (at / columns, at % columns);
                        for r in 0..rank {
                            let dw = f64::from(scale) * f64::from(*dw);
                            da[r * columns + j] += dw * f64::from(bv[i * rank + r]);
                            db[i * rank + r] += dw * f64::from(av[r * columns + j]);
                        }
                    }
                    for (one, expected) in [(a, da), (b, db)] {
                        let found: Vec<f32> = places(one).map(|place| grad[place]).collect();
                        places(one).for_each(|place| covered[place] = true);
                        close(&found, &expected, &format!("{what}: {name} {:?}", one.factor));
                    }
                }
                let padding: Vec<f32> =
                    grad.iter().zip(covered).filter(|(_, covered)| !covered).map(|(grad, _)| *grad).collect();
                assert!(padding.iter().all(|grad| *grad == 0.0), "{what}: padding has a gradient");
                padded += usize::from(!padding.is_empty());
                machine.micro(&plan, true);
                let twice = machine.gradients(&plan);
                close(&twice, &grad.iter().map(|x| 2.0 * f64::from(*x)).collect::<Vec<_>>(), &what);
            }
        }
    }
    assert!(padded > 12, "only {padded} plans have padding");
}

/// The base gets no launches: no gradient of a matrix, a bias, a norm or the embedding, and none below the lowest
/// adapted GEMM.
#[test]
fn the_backward_pass_stops_at_the_lowest_adapter() {
    let config = first_layers(4, "qwen2.5-0.5b");
    let labels = |adapters: &Adapters| -> Vec<String> {
        let plan = training(None, &config, &Formats::dense(), adapters, &PLAIN);
        plan.plan.phase(MICRO).nodes.iter().map(|node| node.label.clone()).collect()
    };
    let has = |labels: &[String], part: &str| labels.iter().any(|label| label.contains(part));
    let every = labels(&Adapters::uniform(&config, &Target::ALL, 16, 1.0));
    for part in ["bias", "dgamma", "embedding.bwd", "embedding.clear", "down.wgrad", "head.0.wgrad", "norm.bwd"] {
        assert!(!has(&every, part), "{part}");
    }
    assert!(has(&every, "layers.0.qkv.lora_a.wgrad") && has(&every, "layers.1.qkv.dgrad"));
    for part in ["layers.0.qkv.dgrad", "layers.0.qkv.lora_a.dgrad", "layers.0.input_norm.dgrad"] {
        assert!(!has(&every, part), "{part}");
    }
    let one = [(Target::O.parameter(config.family, 2), Adapter { rank: 8, scale: 1.0 })].into_iter().collect();
    let one = labels(&one);
    assert!(has(&one, "layers.3.qkv.dgrad") && has(&one, "layers.2.o.lora_a.wgrad"));
    let none = ["layers.2.o.dgrad", "layers.2.attention.bwd", "layers.1.down.dgrad", "layers.1.swiglu"];
    for part in none.into_iter().chain(["layers.3.down.lora"]) {
        assert!(!has(&one, part), "{part}");
    }
}

/// Without adapters a plan launches nothing for them; with adapters, nothing for frozen weights.
#[test]
fn no_adapters_are_no_change() {
    let config = first_layers(3, "qwen3-0.6b");
    let of_adapters =
        ["lora.dgrad_a", "lora.dgrad_b", "lora.fwd_a", "lora.fwd_b", "lora.wgrad", "qk_norm.dgrad", "rmsnorm.dgrad"];
    let of_weights = ["embedding.bwd", "gemm.wgrad", "qk_norm.bwd", "rmsnorm.bwd"];
    for recipe in Recipe::every(64).filter(|recipe| !recipe.objective.has_teacher()) {
        let [whole, adapted] = [Adapters::none(), Adapters::uniform(&config, &Target::ALL, 16, 1.0)]
            .map(|adapters| training(None, &config, &Formats::dense(), &adapters, &recipe));
        assert!(whole == alone(&config, &recipe, Arch::Sim) && whole.adapters.is_none());
        let [whole, adapted] = [whole, adapted].map(|training| {
            // A guard freezes everything but the matrices of layers.
            let phases = training.plan.phases.iter().filter(|phase| phase.name != GUARD);
            let launches = phases.flat_map(Phase::launches).map(|launch| launch.key.op());
            launches.collect::<BTreeSet<&str>>()
        });
        for (launched, has, lacks) in
            [(whole, &of_weights[..], &of_adapters[..]), (adapted, &of_adapters[..], &of_weights[..])]
        {
            assert!(has.iter().all(|op| launched.contains(*op)), "{launched:?}");
            assert!(lacks.iter().all(|op| !launched.contains(*op)), "{launched:?}");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let config = tiny("qwen2", 2);
    let (dense, none) = (Formats::dense(), Adapters::none());
    let int8 = Formats::int8();
    let of = |name: &str, rank| [(name.to_owned(), Adapter { rank, scale: 1.0 })].into_iter().collect::<Adapters>();
    let with = |teacher, formats, adapters: &Adapters, objective| {
        let student = Student { config: &config, formats, adapters };
        let request = TrainingRequest::new(student, &recipe(Recompute::None, objective), Arch::Sim);
        TrainingPlan::new(request.taught_by(teacher)).unwrap_err()
    };
    let ce = Objective::CrossEntropy;
    let name = "model.layers.1.mlp.up_proj.weight";
    for rank in [0, 257] {
        assert_eq!(with(None, &dense, &of(name, rank), ce), PlanError::Rank { name: name.to_owned(), rank });
    }
    for name in ["model.layers.2.mlp.up_proj.weight", "model.embed_tokens.weight", "model.norm.weight"] {
        assert_eq!(with(None, &dense, &of(name, 8), ce), PlanError::UnknownProjection { name: name.to_owned() });
    }
    assert_eq!(with(None, &int8, &none, ce), PlanError::StoredWithoutAdapters);
    let distill = Objective::Distill { alpha: 0.5, temperature: 1.0, beta: 0.0 };
    assert_eq!(with(Some(Teacher::Base), &dense, &none, distill), PlanError::BaseWithoutAdapters);
}

/// Elements outside of all parameters are padding; parameters must not overlap.
#[test]
fn matrices_lie_apart_and_rows_of_b_are_whole_vectors() {
    let config = tiny("qwen3", 3);
    for adapters in cases(&config) {
        let plan = training(None, &config, &Formats::dense(), &adapters, &PLAIN);
        let parameters = &plan.adapters.as_ref().unwrap().parameters;
        assert_eq!(parameters.list.len(), 2 * adapters.iter().count());
        let mut seen = vec![false; parameters.elems as usize];
        for one in &parameters.list {
            let base = Parameters::new(&config).list.into_iter().find(|base| base.name == one.projection).unwrap();
            let rank = u64::from(adapters.of(&one.projection).unwrap().rank);
            let shape = if one.factor == Factor::A { [rank, base.shape[1]] } else { [base.shape[0], rank] };
            assert_eq!(one.shape, shape, "{}", one.projection);
            assert!(one.factor == Factor::A || one.row.is_multiple_of(8) && one.row >= rank);
            for place in places(one) {
                assert!(!std::mem::replace(&mut seen[place], true), "two matrices share element {place}");
            }
        }
        assert_eq!(seen.iter().filter(|seen| **seen).count() as u64, parameters.count());
        assert!(plan.plan.phase(UPDATE).launches().all(|launch| !launch.params.is_empty()));
    }
}

/// Memory of adapters of rank 16 on every projection of a 7B, with micro-batches of 1024 tokens.
#[test]
fn adapters_of_a_7b_fit_a_card() {
    const GIB: u64 = 1 << 30;
    let config = config("qwen2.5-7b");
    let adapters = Adapters::uniform(&config, &Target::ALL, 16, 2.0);
    let bytes = |teacher, formats: &Formats, recompute, objective| {
        let recipe = Recipe { seq_len: 1024, recompute, objective, ..RECIPE };
        let student = Student { config: &config, formats, adapters: &adapters };
        let plan =
            TrainingPlan::new(TrainingRequest::new(student, &recipe, Arch::Sm90a).taught_by(teacher)).unwrap().plan;
        println!("{}", MemoryTable::of(&plan));
        plan.arena_bytes
    };
    let stored = Formats::q4_k_m(&config);
    let ce = Objective::CrossEntropy;
    let none = bytes(None, &stored, Recompute::None, ce);
    let blocks = bytes(None, &stored, Recompute::Blocks, ce);
    assert!(none <= 12 * GIB && blocks <= 8 * GIB, "{none} {blocks}");
    let distill = Objective::Distill { alpha: 0.5, temperature: 2.0, beta: 0.0 };
    let taught = bytes(Some(Teacher::Base), &Formats::dense(), Recompute::None, distill);
    assert!(taught <= 21 * GIB, "{taught}");
    // The teaching base is the adapted base: there is no second copy.
    let alone = bytes(None, &Formats::dense(), Recompute::None, ce);
    assert!(taught - alone <= GIB, "{taught} {alone}");
}

/// Workspaces for sums over ranges of tokens take at most a quarter of the adapted matrix, at any rank; at common ranks
/// there are enough ranges to keep a GPU busy.
#[test]
fn no_workspace_is_of_the_size_of_the_matrix() {
    let config = first_layers(2, "qwen3-0.6b");
    for rank in [1, 16, 64, 256] {
        let adapters = Adapters::uniform(&config, &Target::ALL, rank, 1.0);
        let recipe = Recipe { batch: 8, seq_len: 2048, objective: Objective::CrossEntropy, ..RECIPE };
        let student = Student { config: &config, formats: &Formats::dense(), adapters: &adapters };
        let plan = alone(student, &recipe, Arch::Sm90a).plan;
        let mut partials = 0;
        for (gemm, elems) in [("qkv", 4096 * 1024), ("o", 1024 * 2048), ("gate_up", 6144 * 1024), ("down", 1024 * 3072)]
        {
            for factor in ["lora_a", "lora_b"] {
                let name = format!("student.layers.1.{gemm}.{factor}.wgrad_partial");
                let Some(partial) = plan.buffers.iter().find(|buffer| buffer.name == name) else { continue };
                assert!(partial.bytes() <= 2 * elems / 4, "{name} takes {} bytes at rank {rank}", partial.bytes());
                partials += 1;
            }
        }
        assert!(rank > 16 || partials == 8, "{partials} of 8 gradients are summed in ranges at rank {rank}");
    }
}
