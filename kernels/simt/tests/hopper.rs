//! Defects planted in small kernels of Hopper's own instructions: each is found and explained, and the same kernel
//! without it is its reference. And defects planted in what ships.

use precast_kernels::host::Buffer;
use precast_kernels::{Access, Arch, Content, Dtype, Geometry, Operand, Source, TensorMap};
use precast_simt::{Program, execute};

use crate::{SIMT, snapshots};

const ROWS: u32 = 64;
const COLUMNS: u32 = 256;
/// Layout of the parameter block of `planted.cuh`, bytes.
const PARAMS_BYTES: usize = 192;
const MAP: usize = 64;

struct Planted {
    source: Source,
    geometry: Geometry,
    /// Rows of the box that a tensor map copies.
    box_rows: u32,
    reference: fn(&[f32]) -> Vec<f32>,
}

macro_rules! source {
    ($name:literal) => {
        Source {
            path: concat!($name, ".cu"),
            text: include_str!(concat!("planted/hopper/", $name, ".cu")),
            headers: &[("planted.cuh", include_str!("planted/hopper/planted.cuh"))],
            common: &precast_core::source::COMMON,
        }
    };
}

/// x x^T over the first columns.
fn multiplied(x: &[f32], depth: u32) -> Vec<f32> {
    let row = |i: u32| &x[(i * COLUMNS) as usize..][..depth as usize];
    let dot = |i, j| row(i).iter().zip(row(j)).map(|(a, b)| a * b).sum();
    (0..ROWS * ROWS).map(|n| dot(n / ROWS, n % ROWS)).collect()
}

fn ring() -> Planted {
    let geometry = Geometry { grid: [1, 1, 1], block: [256, 1, 1], shared_bytes: 2 * 8192 + 32 };
    Planted { source: source!("ring"), geometry, box_rows: ROWS, reference: |x| multiplied(x, COLUMNS) }
}

fn proxy() -> Planted {
    let geometry = Geometry { grid: [1, 1, 1], block: [128, 1, 1], shared_bytes: 8192 };
    Planted { source: source!("proxy"), geometry, box_rows: ROWS, reference: |x| multiplied(x, 64) }
}

fn pair() -> Planted {
    let geometry = Geometry { grid: [2, 1, 1], block: [32, 1, 1], shared_bytes: 8192 };
    // What the other block has found in its rows.
    let reference = |x: &[f32]| (0..64).map(|n| x[((n ^ 32) * COLUMNS) as usize] + 1.0).collect();
    Planted { source: source!("pair"), geometry, box_rows: ROWS / 2, reference }
}

impl Planted {
    fn program(&self, defect: u32) -> Program {
        let threads = self.geometry.block[0].to_string();
        let defines = [
            ("VARIANT_THREADS", &*threads),
            ("VARIANT_BLOCKS", "2"),
            ("ENTRY", "planted"),
            ("DEFECT", &defect.to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
        SIMT.compile(&self.source, &defines, Arch::Sm90a).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns the fault of a launch; none of one without.
    fn run(&self, program: &Program, seed: u64) -> Option<String> {
        // Small integers: every sum is exact.
        let x: Vec<f32> = (0..ROWS * COLUMNS).map(|n| ((n / COLUMNS * 7 + n % COLUMNS * 3) % 5) as f32 - 2.0).collect();
        let reference = (self.reference)(&x);
        let bf16: Vec<u8> = x.iter().flat_map(|value| ((value.to_bits() >> 16) as u16).to_le_bytes()).collect();
        let mut params = Buffer::filled(PARAMS_BYTES, 0);
        params[16..20].copy_from_slice(&(reference.len() as u32).to_le_bytes());
        let operand = |name, offset, access, format: Dtype, elems| Operand {
            name,
            offset,
            access,
            format: format.into(),
            elems,
            content: Content::Zeros,
        };
        let operands = [
            operand("x", 0, Access::Read, Dtype::Bf16, u64::from(ROWS * COLUMNS)),
            operand("y", 8, Access::Write, Dtype::F32, reference.len() as u64),
        ];
        let map = TensorMap {
            offset: MAP,
            address: 0,
            dtype: Dtype::Bf16,
            shape: [ROWS, COLUMNS],
            box_shape: [self.box_rows, 64],
        };
        let mut memory = [Buffer::from(&bf16[..]), Buffer::filled(4 * reference.len(), 0xff)];
        match execute(program, &self.geometry, &params, &operands, &[map], &mut memory, seed) {
            Err(report) => Some(report.to_string()),
            Ok(()) => {
                let y = memory[1].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
                let wrong = y.zip(&reference).position(|(y, expected)| y != *expected);
                wrong.map(|index| format!("y[{index}] is not the reference"))
            }
        }
    }

    /// Returns the report at the first seed. Others have a report, too, and none has one without the defect.
    fn found(&self, defect: u32) -> String {
        let program = self.program(defect);
        let reports: Vec<String> = (0..4).map(|seed| self.run(&program, seed).expect("a defect")).collect();
        reports[0].clone()
    }
}

#[test]
fn without_defects_they_are_their_references() {
    for planted in [ring(), proxy(), pair()] {
        let program = planted.program(0);
        for seed in 0..8 {
            assert_eq!(planted.run(&program, seed), None, "{}", planted.source.path);
        }
    }
}

snapshots! {
    a_stage_that_is_freed_before_its_wgmma_is_waited_for_is_a_race: ring().found(1);
    sums_are_not_read_before_their_wgmma_is_waited_for: ring().found(2);
    a_barrier_that_expects_a_tile_too_much_is_waited_for_in_vain: ring().found(3);
    a_barrier_that_expects_half_a_tile_is_overdrawn: ring().found(4);
    a_stage_that_three_of_four_warps_have_freed_is_not_free: ring().found(5);
    a_producer_that_waits_for_the_wrong_parity_never_starts: ring().found(6);
    a_consumer_that_waits_for_the_wrong_parity_reads_what_is_not_there: ring().found(7);
    a_descriptor_of_another_swizzle_is_refused: ring().found(8);
    a_descriptor_of_another_stride_is_not_the_reference: ring().found(9);
    a_wgmma_without_a_fence_is_refused: ring().found(10);
    a_barrier_that_copies_do_not_know_of_is_refused: ring().found(11);
    registers_that_nobody_gives_are_not_taken: ring().found(12);
    a_barrier_that_every_lane_arrives_at_passes_too_early: ring().found(13);
    a_barrier_that_is_expected_of_twice_has_too_many_arrivals: ring().found(14);
    a_stage_that_nobody_has_freed_is_not_filled: ring().found(15);
    sums_are_not_written_while_they_are_under_way: ring().found(16);
    sums_that_were_written_are_fenced_before_the_next_wgmma: ring().found(17);
    stores_are_fenced_before_wgmma_reads_them: proxy().found(1);
    stores_of_other_warps_are_waited_for: proxy().found(2);
    threads_that_expect_different_numbers_at_a_named_barrier_diverge: proxy().found(3);
    an_operand_is_not_overwritten_while_it_is_multiplied: proxy().found(4);
    a_multicast_that_misses_a_block_leaves_it_waiting: pair().found(1);
    a_block_that_ends_before_what_it_is_sent_arrives_is_gone: pair().found(2);
    a_block_that_may_not_have_begun_is_not_copied_to: pair().found(3);
    a_barrier_that_expects_half_of_what_is_sent_is_overdrawn: pair().found(4);
    a_block_that_ends_before_it_is_arrived_at_is_gone: pair().found(5);
    a_tile_that_is_not_waited_for_is_not_read: pair().found(6);
}
