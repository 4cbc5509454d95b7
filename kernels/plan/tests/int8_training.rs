//! A student that trains in int8: its 8-bit GEMMs, memory, and the accesses of its guard.

use precast_kernels::int8::MOST_DEPTH;
use precast_plan::category;

use crate::support::*;

fn recipe(precision: Precision, recompute: Recompute) -> Recipe {
    Recipe { batch: 8, seq_len: 1024, precision, recompute, ..RECIPE }
}

/// Plans Qwen2.5-1.5B to 0.5B.
fn qwen(recipe: &Recipe, share: Share) -> TrainingPlan {
    let (teacher, student) = (config("qwen2.5-1.5b"), config("qwen2.5-0.5b"));
    let request = TrainingRequest::new(&student, recipe, Arch::Sm90a).taught_by(Some(&teacher));
    TrainingPlan::new(TrainingRequest { share, ..request }).unwrap()
}

/// Part of an int8 GEMM's key.
const INT8_GEMM: &str = "w=i8,x=i8";

const LAYERS: u32 = 24;

#[test]
fn gemms_of_layers_are_of_8_bits_but_for_gradients_of_weights() {
    for gemm in [Gemm::Bundle, Gemm::Cublas] {
        let recipe = Recipe { gemm, ..recipe(Precision::Int8, Recompute::None) };
        let plan = qwen(&recipe, Share::ALONE).plan;
        let of_student = |op| count(&plan, MICRO, "student.", op);
        assert_eq!(of_student(INT8_GEMM), 2 * 4 * LAYERS, "forward and for the gradients of inputs");
        assert_eq!([of_student("gemm.wgrad"), of_student("gemm.")], [4, 4 + 2 * 4].map(|each| each * LAYERS));
        assert_eq!(count(&plan, MICRO, "teacher.", "i8"), 0, "it says nothing of the teacher");
        assert!(count(&plan, MICRO, "head.", "gemm.") > 0);
        assert!(plan.cublas_gemms().all(|gemm| gemm.key.op().starts_with("gemm.") && !gemm.key.text().contains("i8")));
        assert_eq!(plan.cublas_gemms().next().is_some(), gemm == Gemm::Cublas);
    }
}

/// Norms and SwiGLU, forward and backward, quantize the inputs of int8 GEMMs; a pass of its own quantizes the rest:
/// the outputs of attention, and the gradients of q, k and v.
#[test]
fn what_gemms_read_is_quantized_by_what_makes_it() {
    let ops = [
        "rmsnorm.fwd{h=896,out=bf16+i8",
        "swiglu.fwd{n=4864,out=bf16+i8",
        "swiglu.fwd{n=4864,out=i8",
        "swiglu.bwd{n=4864,out=bf16+i8",
        "int8.quantize",
    ];
    let of_residual = ["rmsnorm.bwd{h=896,out=bf16+i8", "rmsnorm.bwd{h=896,residual"];
    let counts = |recompute| {
        let plan = qwen(&recipe(Precision::Int8, recompute), Share::ALONE).plan;
        let nodes = || plan.phase(MICRO).nodes.iter().filter(|node| node.label.starts_with("student."));
        let launches = || nodes().filter_map(|node| node.launch());
        let of = |op: &str| launches().filter(|launch| launch.key.text().starts_with(op)).count() as u32;
        // No GEMM reads the gradient of the lowest block's input; one reads the last norm's.
        assert_eq!(of_residual.map(of), [2 * LAYERS, 1]);
        ops.map(|op| of(op) / LAYERS)
    };
    assert_eq!(counts(Recompute::None), [2, 1, 0, 1, 2]);
    // Unread outputs are not written; recomputation uses the same kernels, for the same bits.
    assert_eq!(counts(Recompute::Norms), [4, 1, 1, 1, 2]);
    // All of a block but its last GEMM.
    assert_eq!(counts(Recompute::Blocks), [4, 1, 1, 1, 3]);
}

/// Each form of a matrix is made once, right after the update, and read from the next micro-batch on.
#[test]
fn both_forms_of_a_matrix_are_made_once_a_step() {
    let forms = |share: Share, phase: &str| {
        let plan = qwen(&recipe(Precision::Int8, Recompute::None), share).plan;
        ["int8.quantize", "int8.columns"].map(|op| count(&plan, phase, "", op))
    };
    assert_eq!(forms(Share::ALONE, UPDATE), [4 * LAYERS; 2]);
}

/// A rank quantizes its share of the gathered layers for all, if a teacher that computes next hides twice the bytes on
/// links of servers; else it quantizes all of them for itself.
#[test]
fn ranks_divide_quantization_where_a_teacher_hides_the_bytes() {
    let student = config("qwen2.5-0.5b");
    let quantized = |ranks, arch, taught: bool, on_policy| {
        let objective = if taught { RECIPE.objective } else { Objective::CrossEntropy };
        let recipe = Recipe { objective, ..recipe(Precision::Int8, Recompute::None) };
        let share = Share { replicas: ranks, ranks, rank: 1 };
        let request = TrainingRequest { share, on_policy, ..TrainingRequest::new(&student, &recipe, arch) };
        let plan = TrainingPlan::new(request.taught_by(taught.then_some(&student))).unwrap().plan;
        ["int8.quantize", "int8.columns"].map(|op| count(&plan, GATHER, "", op))
    };
    assert_eq!(quantized(2, Arch::Sm90a, true, false), [4 * LAYERS / 2; 2]);
    // Layers 4 to 9 of 24.
    assert_eq!(quantized(5, Arch::Sm90a, true, false), [4 * 5; 2]);
    for (arch, taught, on_policy) in [(Arch::Sm89, true, false), (Arch::Sm90a, false, false), (Arch::Sm90a, true, true)]
    {
        assert_eq!(quantized(2, arch, taught, on_policy), [4 * LAYERS; 2], "{arch} {taught} {on_policy}");
    }
}

/// On one GPU no matrix of a layer is in bf16: its replacement has the same size, apart from scales.
#[test]
fn memory_is_that_of_bf16() {
    for recompute in Recompute::ALL {
        let [bf16, int8] =
            [Precision::Bf16, Precision::Int8].map(|precision| qwen(&recipe(precision, recompute), Share::ALONE).plan);
        let more = int8.arena_bytes as i64 - bf16.arena_bytes as i64;
        assert!(more < 8 << 20, "{recompute}: {more}");
        let of_weights = |plan: &Plan, format: Format| -> u64 {
            let of =
                plan.buffers.iter().filter(|one| one.category == category::STUDENT_WEIGHTS && one.format == format);
            of.map(|buffer| buffer.bytes()).sum()
        };
        let student = config("qwen2.5-0.5b");
        let (embedding, vectors) = (u64::from(student.vocab) * u64::from(student.hidden), 200_000);
        assert!(of_weights(&int8, Format::Dense(Dtype::Bf16)) < 2 * (embedding + vectors));
        assert_eq!(of_weights(&bf16, Format::Dense(Dtype::I8)), 0);
    }
}

/// It writes to memory of its own phase, and to the semaphores, which are 0 again after each launch; and takes no more
/// memory than the micro-batch, for any recomputation, apart from its results.
#[test]
fn a_guard_writes_nothing_of_training_and_takes_no_memory() {
    let shares = [Share::ALONE, Share { replicas: 2, ranks: 2, rank: 1 }];
    for (recompute, share) in Recompute::ALL.into_iter().flat_map(|recompute| shares.map(|share| (recompute, share))) {
        let training = qwen(&recipe(Precision::Int8, recompute), share);
        let plan = &training.plan;
        let end = |phase: &str| {
            let touched = plan.phase(phase).nodes.iter().flat_map(Node::touches).map(|touch| plan.buffer(touch.buffer));
            touched.map(|buffer| buffer.offset + buffer.bytes()).max().unwrap()
        };
        let read = training.guards[0].partials.bytes();
        assert!(end(GUARD) <= end(MICRO) + read.next_multiple_of(256), "{recompute}: {} {}", end(GUARD), end(MICRO));
        assert!(read < 1 << 18, "{read}");
        let semaphores = plan.tensor("student.semaphores").map(|tensor| tensor.buffer);
        let writes = plan.phase(GUARD).nodes.iter().flat_map(Node::touches).filter(|touch| touch.access.writes());
        for touch in writes.filter(|touch| Some(touch.buffer) != semaphores) {
            let buffer = plan.buffer(touch.buffer);
            assert!(!buffer.is_persistent(), "{} writes {}", touch.name, buffer.name);
        }
        assert_eq!(count(plan, GUARD, "guard.", "grad_distance.partial"), 4 * LAYERS);
        assert_eq!(count(plan, GUARD, "guard.", "i8"), 0);
    }
}

/// Norms of heads, convolutions and decays train too, and have no int8 form to compare.
#[test]
fn a_guard_writes_no_gradient_of_what_is_no_matrix() {
    for name in ["qwen3-0.6b", "qwen3.5-0.8b", "gemma-3-270m"] {
        let model = config(name).representative();
        let recipe = recipe(Precision::Int8, Recompute::None);
        let training = taught(&model, &model, &recipe, Arch::Sim);
        let plan = &training.plan;
        let semaphores = plan.tensor("student.semaphores").map(|tensor| tensor.buffer);
        let writes = plan.phase(GUARD).nodes.iter().flat_map(Node::touches).filter(|touch| touch.access.writes());
        for touch in writes.filter(|touch| Some(touch.buffer) != semaphores) {
            let buffer = plan.buffer(touch.buffer);
            assert!(!buffer.is_persistent(), "{name}: {} writes {}", touch.name, buffer.name);
        }
    }
}

/// Only a student that trains itself has gradients of matrices to compare.
#[test]
fn a_frozen_base_of_8_bits_has_no_guard() {
    let student = config("qwen2.5-0.5b");
    let (dense, adapters) = (Formats::dense(), Adapters::uniform(&student, &Target::ALL, 16, 1.0));
    let adapted = Student { config: &student, formats: &dense, adapters: &adapters };
    let recipe = Recipe { batch: 1, seq_len: 64, ..recipe(Precision::Int8, Recompute::None) };
    let training = taught(Teacher::Base, adapted, &recipe, Arch::Sm90a);
    assert!(training.guards.is_empty() && training.plan.phases.iter().all(|phase| phase.name != GUARD));
    let of_student = |op| count(&training.plan, MICRO, "student.", op);
    // Nothing below the lowest layer's q, k and v trains.
    assert_eq!([of_student(INT8_GEMM), of_student("gemm.")], [2 * 4 * LAYERS - 1; 2]);
    assert!(training.certificates[0].is_some(), "a base that teaches in int8 is measured, as any teacher is");
    // Sent one layer at a time, and quantized once.
    assert_eq!(training.student.staged.len() as u32, LAYERS);
    assert_eq!(count(&training.plan, UPDATE, "", "i8"), 0);
}

/// Only the weights that launches read change: the sums of the norm, their order, and the update are bf16's.
#[test]
fn the_update_is_that_of_bf16() {
    let updates = [Precision::Bf16, Precision::Int8].map(|precision| {
        let plan = qwen(&recipe(precision, Recompute::None), Share::ALONE).plan;
        let launches = plan.phase(UPDATE).launches().filter(|launch| launch.key.op().starts_with("grad_norm"));
        launches.map(|launch| (launch.key.to_string(), launch.shape())).collect::<Vec<_>>()
    });
    assert_eq!(updates[0], updates[1]);
}

#[test]
fn rows_that_registers_do_not_hold_are_refused_by_name() {
    assert!(u64::from(MOST_DEPTH) * 127 * 127 < 1 << 31, "sums fit 32 bits");
    let model = config("qwen2.5-0.5b");
    let recipe = Recipe { objective: Objective::CrossEntropy, ..recipe(Precision::Int8, Recompute::None) };
    let of = |intermediate| {
        let model = ModelConfig { intermediate, ..model.clone() };
        TrainingPlan::new(TrainingRequest::new(&model, &recipe, Arch::Sim))
    };
    // The gradient of gate and up's input sums over both.
    assert!(of(MOST_DEPTH / 2).is_ok());
    let module = "model.layers.0.mlp.gate_proj.weight".to_owned();
    let found = of(MOST_DEPTH / 2 + 128).unwrap_err();
    assert_eq!(found, PlanError::Int8Depth { module, depth: MOST_DEPTH + 256 });
}

#[test]
fn what_nothing_rotates_is_refused_by_name() {
    let model = config("qwen2.5-0.5b");
    let recipe = Recipe { objective: Objective::CrossEntropy, ..recipe(Precision::Int8, Recompute::None) };
    let refused = |model: &ModelConfig| TrainingPlan::new(TrainingRequest::new(model, &recipe, Arch::Sim)).unwrap_err();
    // Twice 4872 has a rotation, but 4872 has none.
    let found = refused(&ModelConfig { intermediate: 4872, ..model.clone() });
    let module = "model.layers.0.mlp.down_proj.weight".to_owned();
    assert_eq!(found, PlanError::StudentRotation { result: "the output", module, depth: 4872, block: 8 });
    assert!(found.to_string().ends_with("sums over 4872: the largest power of two that divides it is 8"), "{found}");
    let found = refused(&ModelConfig { hidden: 904, ..model.clone() });
    assert!(matches!(found, PlanError::StudentRotation { result: "the output", depth: 904, .. }), "{found}");
    let stored = Formats::uniform(&model, Block::Q8_0);
    let adapters = Adapters::uniform(&model, &Target::ALL, 8, 1.0);
    let student = Student { config: &model, formats: &stored, adapters: &adapters };
    let stored = TrainingPlan::new(TrainingRequest::new(student, &recipe, Arch::Sim));
    assert_eq!(stored.unwrap_err(), PlanError::StoredInt8);
}
