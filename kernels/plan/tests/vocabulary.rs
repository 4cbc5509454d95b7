//! Vocabularies of any size: the head has a row for each of a multiple of 64 columns, so that tensor cores compute it.

use crate::support::*;
use precast_kernels::gemm::on_tensor_cores;

/// Granite 3's, and one of Llama 3's with a token added; wider by the columns that they are rounded up to.
const SIZES: [[u32; 2]; 2] = [[49_155, 49_216], [128_257, 128_320]];

/// Returns key, variant and block without addresses of the launches that make no mask. A head with one is as without.
fn launches(plan: &Plan) -> Vec<(String, Vec<u8>)> {
    let nodes = plan.phases.iter().flat_map(|phase| &phase.nodes).filter(|node| !node.label.contains(".mask"));
    let code = |launch: &Launch| launch.code().replace("bias=true", "bias=false");
    nodes.filter_map(Node::launch).map(|launch| (code(launch), launch.shape())).collect()
}

#[test]
fn a_vocabulary_of_any_size_runs_on_tensor_cores() {
    let config = config("smollm2-135m");
    for [vocab, rounded] in SIZES {
        let of = |vocab| ModelConfig { vocab, ..config.clone() };
        let stored = Formats::uniform(&of(vocab), Block::Q8_0);
        for arch in Arch::GPUS {
            for formats in [Formats::dense(), stored.clone()] {
                let lower = |vocab| taught((&of(vocab), &formats), &of(vocab), &RECIPE, arch);
                let [odd, even] = [vocab, rounded].map(lower);
                let on_cuda_cores = |launch: &&Launch| {
                    launch.key.op().starts_with("gemm.") && !on_tensor_cores(launch.pair().unwrap().variant)
                };
                let slow = odd.plan.launches().find(on_cuda_cores).map(Launch::code);
                assert_eq!(slow, None, "{vocab} on {arch}");
                assert!(launches(&odd.plan) == launches(&even.plan) || !formats.is_dense(), "{vocab} on {arch}");
                let (odd, even) = (odd.plan.device_bytes(), even.plan.device_bytes());
                assert!(odd <= even + 2 * 8 * u64::from(rounded), "{vocab} on {arch}: {odd} bytes and {even}");
            }
        }
    }
}

/// Of a wider teacher the student's columns are computed, and masked as the student's are.
#[test]
fn a_wider_teacher_is_masked_where_the_student_is() {
    let student = ModelConfig { vocab: 49_155, ..config("smollm2-135m") };
    let teacher = ModelConfig { vocab: 49_163, ..student.clone() };
    let plan = taught(&teacher, &student, &RECIPE, Arch::Sm121).plan;
    let heads: Vec<String> =
        plan.launches().map(Launch::code).filter(|code| code.starts_with("gemm.fwd{bias=true")).collect();
    assert!(heads.len() >= 2 && heads.len().is_multiple_of(2), "{heads:?}");
}

/// Masked columns of a stored head are of its own rows, however few these are.
#[test]
fn a_stored_head_of_few_tokens_has_rows_for_all_columns() {
    let config = ModelConfig { vocab: 24, ..config("smollm2-135m") };
    let stored = taught((&config, &Formats::uniform(&config, Block::Q8_0)), &config, &RECIPE, Arch::Sim).plan;
    let labels = stored.phase(MICRO).nodes.iter().map(|node| &node.label);
    let parts = labels.filter(|label| label.starts_with("head.teacher.dequant")).count();
    assert_eq!(parts, 3, "of 24, 24 and 16 rows");
}
