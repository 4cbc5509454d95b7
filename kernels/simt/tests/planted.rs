//! Defects planted in small kernels: each is found and explained, and the same kernel without it is not complained of.

use precast_kernels::host::Buffer;
use precast_kernels::{Arch, Geometry, Source};
use precast_simt::{CompileError, Operand, Program, Report};

use crate::{SIMT, snapshots};

/// A kernel with one defect or several, and its launch.
struct Planted {
    source: Source,
    elems: usize,
    geometry: Geometry,
}

macro_rules! planted {
    ($name:literal, $elems:expr, $blocks:expr, $threads:expr, $shared:expr) => {
        Planted {
            source: Source {
                path: concat!($name, ".cu"),
                text: include_str!(concat!("planted/", $name, ".cu")),
                headers: &[("planted.h", include_str!("planted/planted.h"))],
                common: &precast_core::source::COMMON,
            },
            elems: $elems,
            geometry: Geometry { grid: [$blocks, 1, 1], block: [$threads, 1, 1], shared_bytes: $shared },
        }
    };
}

impl Planted {
    fn program(&self, arch: Arch, defect: Option<u32>) -> Program {
        self.compile(arch, defect).unwrap_or_else(|error| panic!("{error}"))
    }

    fn compile(&self, arch: Arch, defect: Option<u32>) -> Result<Program, CompileError> {
        let threads = self.geometry.block[0].to_string();
        let mut defines = vec![("VARIANT_THREADS".to_owned(), threads), ("ENTRY".to_owned(), "planted".to_owned())];
        defines.extend(defect.map(|number| ("DEFECT".to_owned(), number.to_string())));
        SIMT.compile(&self.source, &defines, arch)
    }

    fn run(&self, program: &Program, seed: u64) -> Result<(), Box<Report>> {
        let bytes = 4 * self.elems;
        let mut memory = [0x3f, 0xff].map(|value| Buffer::filled(bytes + 512, value));
        let [x, y] = &mut memory;
        let (x, y) = (&mut x[256..][..bytes], &mut y[256..][..bytes]);
        let mut semaphore = Buffer::filled(4, 0);
        let params = [x.as_ptr() as u64, y.as_ptr() as u64, semaphore.as_ptr() as u64, self.elems as u64];
        let params = params.map(u64::to_ne_bytes).concat();
        let mut operands = [
            Operand { name: "x", bytes: x, writable: false, written: true },
            Operand { name: "y", bytes: y, writable: true, written: false },
            Operand { name: "semaphore", bytes: &mut semaphore, writable: true, written: true },
        ];
        program.launch(&self.geometry, &params, &mut operands, seed)?;
        assert_eq!(*semaphore, [0; 4], "the semaphore after {}", self.source.path);
        Ok(())
    }

    /// The report of the first seed; the others' break the same rule. Without the defect there is none.
    fn found(&self, defect: u32) -> String {
        for arch in [Arch::Sm89, Arch::Sm121] {
            let sound = self.program(arch, None);
            for seed in 0..4 {
                let result = self.run(&sound, seed);
                assert!(result.is_ok(), "{} without its defect, on {arch}: {}", self.source.path, result.unwrap_err());
            }
        }
        let program = self.program(Arch::Sm121, Some(defect));
        let reports: Vec<Report> = (0..4).map(|seed| *self.run(&program, seed).unwrap_err()).collect();
        assert!(reports.iter().all(|report| report.rule == reports[0].rule), "{reports:?}");
        reports[0].to_string()
    }
}

snapshots! {
    a_removed_barrier_is_a_race: planted!("removed_barrier", 64, 1, 64, 0).found(1);
    a_read_before_the_first_barrier_names_its_writer_too: planted!("first_barrier", 64, 1, 64, 0).found(1);
    an_off_by_one_row_is_out_of_bounds: planted!("off_by_one_row", 6 * 16, 2, 64, 0).found(1);
    an_unaligned_vector_is_misaligned: planted!("unaligned_vector", 64, 1, 32, 0).found(1);
    a_missing_wait_reads_what_is_under_way: planted!("missing_wait", 4 * 64, 1, 64, 16 * 64).found(1);
    threads_that_left_make_a_barrier_divergent: planted!("divergent_barrier", 64, 1, 64, 0).found(1);
    an_uninitialized_sum_is_a_read_of_uninitialized_memory: planted!("uninitialized_read", 64, 1, 32, 0).found(1);
    an_uninitialized_fragment_may_be_loaded_but_not_multiplied: planted!("uninitialized_fragment", 128, 1, 32,
        0).found(1);
    an_uninitialized_accumulator_is_not_added_to: planted!("uninitialized_accumulator", 128, 1, 32, 0).found(1);
    a_shared_buffer_one_short_is_overrun: planted!("short_buffer", 64, 1, 64, 0).found(1);
    two_blocks_that_write_the_same_element_race: planted!("cross_block_race", 128, 4, 32, 0).found(1);
    a_shuffle_from_a_lane_that_is_gone_is_divergent: planted!("lane_is_gone", 64, 1, 64, 0).found(1);
    a_semaphore_that_is_read_without_acquire_is_a_race: semaphore().found(1);
    a_semaphore_without_a_barrier_after_it_is_a_race: semaphore().found(2);
    a_semaphore_without_a_barrier_before_it_is_a_race: semaphore().found(3);
    a_semaphore_that_is_written_without_release_is_a_race: semaphore().found(4);
    a_semaphore_that_nobody_sets_is_a_deadlock: semaphore().found(5);
    a_cta_that_waits_for_a_later_one_may_deadlock: planted!("semaphore", 65 * 64, 65, 64, 0).found(6);
    more_static_shared_memory_than_a_block_may_have_is_refused:
        planted!("too_much_shared", 64, 1, 64, 0).compile(Arch::Sm121, None).err().unwrap();
}

/// Four CTAs that store to the same elements one after the other, as a semaphore says.
fn semaphore() -> Planted {
    planted!("semaphore", 4 * 64, 4, 64, 0)
}

#[test]
fn each_architecture_is_judged_by_its_own_code() {
    let planted = planted!("right_under_890", 64, 1, 64, 0);
    assert_eq!(planted.run(&planted.program(Arch::Sm89, Some(1)), 1), Ok(()));
    insta::assert_snapshot!(planted.found(1));
}
