//! Golden cases whose weights no file holds, in float64: `golden/made.py` says what each is apart for.

use std::fs;
use std::path::{Path, PathBuf};

use precast::device::session::Session;
use precast::inputs::data::{Chunk, MicroBatch};
use precast_plan::{Precision, Recompute};
use safetensors::SafeTensors;

use crate::golden::{
    compare_gradients, differences, distance_to, run_case, settings, steps, trajectory_of, within_bf16,
};
use crate::golden_weights::Models;
use crate::support::{self, adapter_gradient, fixture};

pub const CASES: [&str; 7] =
    ["made-qwen2", "made-mask", "made-reverse", "made-half", "made-qwen3", "made-llama3", "made-lora"];

fn case(name: &str) -> PathBuf {
    fixture("golden").join(name)
}

#[test]
fn every_step_of_made_cases() {
    for name in CASES {
        let case = case(name);
        let worst = differences(&run_case(&case, "fp32"), &trajectory_of(&case));
        assert!(worst.iter().all(|difference| *difference <= 2e-5), "{name}: {worst:?}");
        within_bf16(name, &run_case(&case, "bf16"), &trajectory_of(&case));
        within_bf16(name, &run_case(&case, "int8"), &trajectory_of(&case.join("int8")));
    }
}

#[test]
fn every_first_gradient_of_made_cases() {
    for name in CASES {
        let (case, models) = (case(name), Models::of(&case(name)));
        for (precision, gate) in [(Precision::Fp32, 2e-5), (Precision::Bf16, 6e-2)] {
            for recompute in Recompute::ALL {
                let mut session = first_step(&case, &models, (precision, recompute));
                match models.adapter() {
                    None => compare_gradients(&mut session, &case, gate),
                    Some(_) => compare_adapter(&mut session, &case, gate),
                }
            }
        }
    }
}

#[test]
fn logits_of_made_models_in_fp32() {
    for name in CASES {
        let (case, models) = (case(name), Models::of(&case(name)));
        let expected = fs::read(case.join("step0.safetensors")).unwrap();
        let expected = SafeTensors::deserialize(&expected).unwrap();
        let ids = &steps(&case)[0][0].ids[..settings(&case).S as usize];
        let student = support::logits_adapted(&models.student(), models.adapter().as_deref(), ids);
        let columns = student.len() / ids.len();
        // The reference holds the student's columns of a wider teacher.
        let of_teacher = models.teacher().map(|teacher| {
            let whole = support::logits(&teacher, ids);
            let rows = whole.chunks(whole.len() / ids.len());
            ("teacher_logits", rows.flat_map(|row| &row[..columns]).copied().collect())
        });
        for (tensor, logits) in [("student_logits", student)].into_iter().chain(of_teacher) {
            let distance = distance_to(tensor, &logits, &expected.tensor(tensor).unwrap());
            assert!(distance <= 2e-5, "{name}, {tensor}: {distance:e}");
        }
    }
}

/// Gradients of the first step of a case.
fn first_step(case: &Path, models: &Models, (precision, recompute): (Precision, Recompute)) -> Session {
    let settings = settings(case);
    let change = |options: &mut precast::options::Options| {
        (options.arithmetic.precision, options.arithmetic.recompute) = (precision, recompute);
        (options.shape.batch_size, options.shape.seq_len) = (settings.B, settings.S);
        if let Some((alpha, temperature)) = settings.alpha.zip(settings.T) {
            (options.teaching.alpha, options.teaching.temperature) = (alpha, temperature);
            options.teaching.teacher.beta = settings.beta.unwrap_or_default();
        }
        options.adapting.adapter = models.adapter();
    };
    let config = match models.teacher() {
        Some(teacher) => support::config(&teacher, &models.student(), change),
        None => support::config_alone(&models.student(), change),
    };
    let mut session = support::session(&config);
    let rows = steps(case).remove(0);
    let scale = 1.0 / rows.iter().map(Chunk::counted).sum::<usize>() as f32;
    for (number, rows) in rows.chunks(settings.B as usize).enumerate() {
        let batch = MicroBatch::of(rows, (settings.B as usize, settings.S as usize));
        session.micro(&batch, scale, number).unwrap();
    }
    session
}

fn compare_adapter(session: &mut Session, case: &Path, gate: f64) {
    let expected = fs::read(case.join("step0.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let parameters = session.adapter_parameters();
    assert_eq!(parameters.len(), expected.names().iter().filter(|name| name.starts_with("grad.")).count());
    for parameter in parameters {
        let module = parameter.projection.strip_suffix(".weight").unwrap();
        let name = format!("grad.base_model.model.{module}.lora_{:?}.default.weight", parameter.factor);
        let found = adapter_gradient(session, &parameter);
        let distance = distance_to(&name, &found, &expected.tensor(&name).unwrap());
        assert!(distance <= gate, "{name}: {distance:e} > {gate:e}");
    }
}
